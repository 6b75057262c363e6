"""The documents about queues: `QueueList`, `QueueWeekList` and `QueueExplanation`.

Units: GPUs in devices, CPU in millicores, memory in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from kai.answers.documents.document import ABSENT, Document, read_json
from kai.answers.documents.explanations import ReasonItem
from kai.answers.outcomes.entitlement import Entitlement, Gains, Part, Step
from kai.answers.outcomes.job_states import State
from kai.answers.outcomes.overview import Job
from kai.answers.outcomes.queue_lines import PARTS, BudgetLine, ModelUse, QueueLine, Share, UserUse
from kai.api.values import instant_text
from kai.deciding.explain.phrases import quantity
from kai.facts.model.axis import GPU_UNIT

if TYPE_CHECKING:
    from kai.answers.outcomes.queue_lines import QueueWeek, WeekSlice
    from kai.facts.model.groups import Queue


# --- Queues and what they hold -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class StepItem:
    """One step of the division: what the queue was given, and what all were given."""

    step: str
    total: float
    given: float
    formula: str

    @classmethod
    def of(cls, step: Step, unit: float) -> StepItem:
        """Return the item of a step; ``unit`` is that of the divided resource."""
        total, given = round(step.total / unit, 3), round(step.given / unit, 3)
        return cls(step=step.step, total=total, given=given, formula=step.formula)


@attrs.frozen(kw_only=True)
class ShareOfQueue:
    """One resource of a queue; ``null`` with ``unlimited`` is no limit."""

    quota: float | None
    limit: float | None
    unlimited: bool
    fair_share: float
    used: float
    used_non_preemptible: float
    requested: float
    weight: float | None = ABSENT
    usage: float | None = ABSENT

    @classmethod
    def of(cls, share: Share, unit: float) -> ShareOfQueue:
        """Return the item of a share, without what only the queue itself says."""
        return cls(
            quota=None if share.quota is None else share.quota / unit,
            limit=None if share.limit is None else share.limit / unit,
            unlimited=share.limit is None,
            fair_share=round(share.fair_share / unit, 3),
            used=share.used / unit,
            used_non_preemptible=share.used_non_preemptible / unit,
            requested=share.wanted / unit,
        )

    def share(self, unit: float) -> Share:
        """Return the share of this item."""
        return Share(
            quota=None if self.quota is None else self.quota * unit,
            limit=None if self.limit is None else self.limit * unit,
            fair_share=self.fair_share * unit,
            used=self.used * unit,
            used_non_preemptible=self.used_non_preemptible * unit,
            wanted=self.requested * unit,
        )


@attrs.frozen(kw_only=True)
class ModelOfQueue:
    """What a queue may use, and uses, of one model of GPU, in GPUs; no limit: unlimited."""

    model: str
    limit: float | None
    used: float
    quota: float | None = 0.0
    """Null is unlimited."""
    deserved: float = 0.0
    """The part of the quota that the queue is owed now: it holds that many, or bound jobs wait for them."""

    @classmethod
    def of(cls, use: ModelUse) -> ModelOfQueue:
        """Return the item of a model."""
        limit, quota = (None if each is None else each / GPU_UNIT for each in (use.limit, use.quota))
        used, deserved = use.used / GPU_UNIT, use.deserved / GPU_UNIT
        return cls(model=use.model, limit=limit, used=used, quota=quota, deserved=deserved)

    def use(self) -> ModelUse:
        """Return the model of this item."""
        limit, quota = (None if each is None else each * GPU_UNIT for each in (self.limit, self.quota))
        used, deserved = self.used * GPU_UNIT, self.deserved * GPU_UNIT
        return ModelUse(model=self.model, limit=limit, used=used, quota=quota, deserved=deserved)


@attrs.frozen(kw_only=True)
class UserOfQueue:
    """What one user may hold, and holds, of one resource in a queue that limits users; GPUs, millicores or bytes."""

    user: str
    resource: str
    """``cpu``, ``memory`` or ``gpu``."""
    limit: float
    used: float

    @classmethod
    def of(cls, use: UserUse) -> UserOfQueue:
        """Return the item of a user."""
        unit = GPU_UNIT if use.resource == "gpu" else 1
        return cls(user=use.user, resource=use.resource, limit=use.limit / unit, used=use.used / unit)

    def use(self) -> UserUse:
        """Return the user of this item."""
        unit = GPU_UNIT if self.resource == "gpu" else 1
        return UserUse(user=self.user, resource=self.resource, limit=self.limit * unit, used=self.used * unit)


@attrs.frozen(kw_only=True)
class BudgetItem:
    """One budget of GPU-hours of a queue, as of the last cycle; hours are weighted by GPU model."""

    name: str
    enforce: str
    amount_hours: float
    """With what was carried over."""
    spent_hours: float | None
    """Null where it is not known, as is the remainder."""
    committed_hours: float
    """What running work may still use."""
    left_hours: float | None
    used_up: bool
    begins_anew: str | None
    """When the next period begins; null for never."""

    @classmethod
    def of(cls, line: BudgetLine) -> BudgetItem:
        """Return the item of a budget."""
        return cls(
            name=line.name,
            enforce=line.enforce,
            amount_hours=round(line.amount, 4),
            spent_hours=None if line.used is None else round(line.used, 4),
            committed_hours=round(line.held, 4),
            left_hours=None if line.left is None else round(line.left, 4),
            used_up=line.is_used_up,
            begins_anew=None if math.isinf(line.until) else instant_text(line.until),
        )


@attrs.frozen(kw_only=True)
class QueueItem:
    """One queue."""

    name: str
    parent: str | None
    leaf: bool
    priority: int
    jobs_running: int
    jobs_waiting: int
    gpus: ShareOfQueue
    cpu_millis: ShareOfQueue
    memory_bytes: ShareOfQueue
    models: tuple[ModelOfQueue, ...] = ()
    """The models of GPUs that the queue bounds."""
    users: tuple[UserOfQueue, ...] = ABSENT
    """The users with jobs in a queue that limits users; absent where there are none."""
    labels: Mapping[str, str] = ABSENT
    fair_share_steps: tuple[StepItem, ...] = ABSENT
    """How the share came about, of GPUs, or of CPU where there are none."""
    budgets: tuple[BudgetItem, ...] = ABSENT
    """The budgets of the queue; absent where it has none."""

    @classmethod
    def of(cls, queue: QueueLine) -> QueueItem:
        """Return the item of a queue, with its place in the tree, its jobs and its shares."""
        cpu, memory, gpu = queue.shares
        return cls(
            name=queue.name,
            parent=queue.parent or None,
            leaf=queue.leaf,
            priority=queue.priority,
            jobs_running=queue.running,
            jobs_waiting=queue.waiting,
            gpus=ShareOfQueue.of(gpu, GPU_UNIT),
            cpu_millis=ShareOfQueue.of(cpu, 1),
            memory_bytes=ShareOfQueue.of(memory, 1),
            models=tuple(map(ModelOfQueue.of, queue.models)),
            users=tuple(map(UserOfQueue.of, queue.users)) or ABSENT,
        )

    def with_facts(self, facts: Queue | None, labels: Mapping[str, str]) -> QueueItem:
        """Return this item with weights, past usage and labels; null where the queue is not known."""
        shares = {
            key: attrs.evolve(
                getattr(self, key),
                weight=None if facts is None else getattr(facts.weight, name),
                usage=None if facts is None else getattr(facts.usage, name),
            )
            for key, name in (("gpus", "gpu"), ("cpu_millis", "cpu"), ("memory_bytes", "memory"))
        }
        return attrs.evolve(self, **shares, labels=labels)

    def line(self, last: tuple[bool, ...]) -> QueueLine:
        """Return the queue of this item; ``last`` says where it stands in the tree."""
        return QueueLine(
            name=self.name,
            parent=self.parent or "",
            leaf=self.leaf,
            priority=self.priority,
            depth=len(last),
            last=last,
            running=self.jobs_running,
            waiting=self.jobs_waiting,
            shares=(self.cpu_millis.share(1), self.memory_bytes.share(1), self.gpus.share(GPU_UNIT)),
            models=tuple(each.use() for each in self.models),
            users=() if self.users is ABSENT else tuple(each.use() for each in self.users),
        )


@attrs.frozen(kw_only=True)
class AbsentQueue:
    """A queue that is written down and takes no part, with the reason."""

    name: str
    code: str
    text: str


@attrs.frozen(kw_only=True)
class QueueList(Document):
    """Who is entitled to what, who has it and who wants it (``kai queues``)."""

    items: tuple[QueueItem, ...]
    left_out: tuple[AbsentQueue, ...] = ABSENT
    continue_: str | None = ABSENT
    """Where the next page begins, null on the last one: of a service that is asked for pages."""


def queue_items(
    lines: Iterable[QueueLine],
    queues: Iterable[Queue],
    steps: Mapping[str, Sequence[Step]] | None = None,
    unit: float = GPU_UNIT,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    budgets: Iterable[BudgetLine] = (),
) -> tuple[QueueItem, ...]:
    """Return queues with their weights and past usage from ``queues``, and their budgets; unknown values are null.

    ``labels`` are those of queues by name. ``steps`` are those of the divisions that led to the shares, if known, in
    ``unit``.
    """
    facts = {queue.name: queue for queue in queues}
    items = [QueueItem.of(line).with_facts(facts.get(line.name), (labels or {}).get(line.name, {})) for line in lines]
    of_queues: dict[str, tuple[BudgetItem, ...]] = {}
    for budget in budgets:
        of_queues[budget.queue] = (*of_queues.get(budget.queue, ()), BudgetItem.of(budget))
    items = [attrs.evolve(item, budgets=of_queues[item.name]) if item.name in of_queues else item for item in items]
    if steps is None:
        return tuple(items)
    return tuple(
        attrs.evolve(item, fair_share_steps=tuple(StepItem.of(step, unit) for step in steps.get(item.name, ())))
        for item in items
    )


def queue_lines(document: Mapping[str, Any]) -> tuple[QueueLine, ...]:
    """Return the queues of a QueueList as a tree; a queue whose parent is not included is at the top."""
    items = read_json(QueueList, document).items
    names = {item.name for item in items}
    children: dict[str, list[QueueItem]] = {}
    for item in items:
        parent = item.parent or ""
        children.setdefault(parent if parent in names else "", []).append(item)
    found: list[QueueLine] = []
    waiting: list[tuple[QueueItem, tuple[bool, ...]]] = [(top, ()) for top in reversed(children.get("", []))]
    while waiting:
        item, last = waiting.pop()
        below = children.get(item.name, [])
        found.append(item.line(last))
        waiting += [(child, (*last, child is below[-1])) for child in reversed(below)]
    return tuple(found)


# --- Weeks ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class WeekSliceItem:
    """A time in which the amounts of a queue do not change; CPU in millicores, memory in MB, -1 is unlimited."""

    from_: str
    until: str
    windows: tuple[str, ...]
    quota: Mapping[str, float]
    limit: Mapping[str, float]

    @classmethod
    def of(cls, each: WeekSlice) -> WeekSliceItem:
        """Return the item of a slice."""
        return cls(
            from_=instant_text(each.since),
            until=instant_text(each.until),
            windows=each.windows,
            quota={part: getattr(each.resources, part).quota for part in PARTS},
            limit={part: getattr(each.resources, part).limit for part in PARTS},
        )


@attrs.frozen(kw_only=True)
class QueueWeekItem:
    """The week of a queue whose amounts follow the clock."""

    name: str
    time_zone: str
    slices: tuple[WeekSliceItem, ...]

    @classmethod
    def of(cls, week: QueueWeek) -> QueueWeekItem:
        """Return the item of a week."""
        return cls(name=week.queue, time_zone=week.zone or "UTC", slices=tuple(map(WeekSliceItem.of, week.slices)))


@attrs.frozen(kw_only=True)
class QueueWeekList(Document):
    """What queues may have over a week (``kai queues --week``)."""

    items: tuple[QueueWeekItem, ...]


# --- Why a queue has its share -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SiblingItem:
    """What one of the queues that divide an amount asks for and gets."""

    name: str
    requested: float
    quota: float | None
    limit: float | None
    weight: float
    priority: int
    usage: float
    used: float
    fair_share: float

    @classmethod
    def of(cls, part: Part, unit: float) -> SiblingItem:
        """Return the item of a queue that takes part in a division."""
        return cls(
            name=part.name,
            requested=part.asks / unit,
            quota=None if part.quota is None else part.quota / unit,
            limit=None if part.limit is None else part.limit / unit,
            weight=part.weight,
            priority=part.priority,
            usage=part.usage,
            used=part.used / unit,
            fair_share=round(part.given / unit, 3),
        )

    def part(self, unit: float) -> Part:
        """Return the queue of this item."""
        return Part(
            name=self.name,
            asks=self.requested * unit,
            quota=None if self.quota is None else self.quota * unit,
            limit=None if self.limit is None else self.limit * unit,
            weight=self.weight,
            priority=self.priority,
            usage=self.usage,
            used=self.used * unit,
            given=self.fair_share * unit,
        )


@attrs.frozen(kw_only=True)
class GainsItem:
    """Siblings that have to ask for less, and bounds of the queue that have to be higher: each alone is enough."""

    siblings: tuple[str, ...]
    bounds: tuple[str, ...]


@attrs.frozen(kw_only=True)
class QueueExplanation(Document):
    """Why a queue has its fair share (``kai why queue/NAME``)."""

    subject: Mapping[str, str]
    summary: str
    reason: ReasonItem | None
    """Why the queue takes no part; null for one that does, which has the fields below."""
    parent: str | None = ABSENT
    resource: str = ABSENT
    total: float | None = ABSENT
    """What is divided; null where a service does not tell it, nor the steps, because others have the rest."""
    fair_share: float = ABSENT
    used: float = ABSENT
    requested: float = ABSENT
    siblings: tuple[SiblingItem, ...] = ABSENT
    fair_share_steps: tuple[StepItem, ...] = ABSENT
    past_usage_counts: bool = ABSENT
    gets_more_by: GainsItem | None = ABSENT
    """What alone would give it more; null where fair shares are divided by other rules."""
    waiting: tuple[Mapping[str, str], ...] = ABSENT
    budgets: tuple[BudgetItem, ...] = ABSENT
    """The budgets of the queue and of those above it that have some; absent where none has."""

    @classmethod
    def of(cls, found: Entitlement, waiting: Sequence[Job]) -> QueueExplanation:
        """Return the division of a share, and the waiting jobs of the queue."""
        unit, gains = unit_of(found), found.gains
        return cls(
            subject={"kind": "Queue", "name": found.queue},
            summary=entitled(found),
            reason=None,
            parent=found.parent or None,
            resource=found.resource,
            total=None if found.total is None else found.total / unit,
            fair_share=round(found.share / unit, 3),
            used=found.used / unit,
            requested=found.asks / unit,
            siblings=tuple(SiblingItem.of(part, unit) for part in found.siblings),
            fair_share_steps=tuple(StepItem.of(step, unit) for step in found.steps),
            past_usage_counts=found.with_history,
            gets_more_by=GainsItem(siblings=gains.siblings, bounds=gains.bounds) if gains.are_known else None,
            waiting=tuple({"namespace": job.namespace, "name": job.name} for job in waiting),
        )

    def entitlement(self) -> Entitlement:
        """Return the division of the share.

        Raises: KeyError where a field is missing.
        """
        for name in ("parent", "resource", "total", "siblings", "fair_share_steps", "past_usage_counts"):
            if getattr(self, name) is ABSENT:
                raise KeyError(name)
        unit = GPU_UNIT if self.resource == "gpu" else 1
        gains = self.gets_more_by or None
        return Entitlement(
            queue=self.subject["name"],
            parent=self.parent or "",
            resource=self.resource,
            total=None if self.total is None else self.total * unit,
            share=self.fair_share * unit,
            used=self.used * unit,
            asks=self.requested * unit,
            siblings=tuple(each.part(unit) for each in self.siblings),
            steps=tuple(
                Step(step=each.step, total=each.total * unit, given=each.given * unit, formula=each.formula)
                for each in self.fair_share_steps
            ),
            with_history=self.past_usage_counts,
            gains=Gains(are_known=False) if gains is None else Gains(siblings=gains.siblings, bounds=gains.bounds),
        )


def entitlement(document: Mapping[str, Any]) -> Entitlement:
    """Return the entitlement in a QueueExplanation."""
    return read_json(QueueExplanation, document).entitlement()


def waiting_jobs(document: Mapping[str, Any]) -> tuple[Job, ...]:
    """Return the waiting jobs of a QueueExplanation."""
    names = [(each["name"], each["namespace"]) for each in read_json(QueueExplanation, document).waiting]
    return tuple(Job(name=name, title=name, namespace=namespace, state=State.WAITS) for name, namespace in names)


def entitled(found: Entitlement) -> str:
    """Return the share of a queue and its reason, in one sentence."""
    own, share = found.own, _amount(found, found.share)
    what = f"{found.queue} is entitled to {share}"
    if not found.asks or found.total is None:
        return f"{what}, and asks for {_amount(found, found.asks)}." if found.asks else f"{what}: it asks for nothing."
    quota, surplus, rest = (step.given for step in found.steps)
    more = surplus + rest
    if own.quota is None:
        return f"{what}: its quota is unlimited, and it asks for {_amount(found, found.asks)}."
    if found.share >= found.asks:
        return f"{what}: all that it asks for" + (", within its quota." if more <= 0 else f", {_extra(found, more)}.")
    if more > 0:
        return f"{what}: its quota of {_amount(found, quota)}, {_extra(found, more)}."
    if own.limit is not None and own.limit <= found.share:
        return f"{what}: its limit allows no more."
    if quota < own.quota:
        return f"{what}: that is all there is, less than its quota of {_amount(found, own.quota)}."
    quota_is = f"{what}: its quota is {_amount(found, own.quota)}"
    if found.total - sum(part.given for part in found.siblings) < unit_of(found):
        return f"{quota_is} and nothing is left to share out."
    return f"{quota_is}, and its weight {'of 0 ' if not own.weight else ''}gives it nothing of what others leave."


def _extra(found: Entitlement, amount: float) -> str:
    return f"and {_amount(found, amount)} of what others leave"


def _amount(found: Entitlement, amount: float) -> str:
    return quantity(round(amount), found.resource)


def unit_of(found: Entitlement) -> float:
    """Return the divisor from amounts to displayed units: amounts of GPUs are thousandths."""
    return GPU_UNIT if found.resource == "gpu" else 1.0
