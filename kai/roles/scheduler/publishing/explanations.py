"""Turns the report of a cycle into accounts for users: events, conditions and timestamps, by group.

Pure: snapshot and report in, accounts out. An account describes the present state of a group.
`kai.roles.scheduler.publishing.publisher` compares it with the objects in the store, and writes what differs.

Source: what KAI-Scheduler does when it closes a session: its status updater and job_errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from kai.api import names
from kai.api.scheduling.pod_group import QueueDetails, UnschedulableDetails, UnschedulableReason
from kai.api.scheduling.queue import BudgetStatus
from kai.api.values import instant_text
from kai.basics.parsing import canonical
from kai.basics.schedules import clock_text
from kai.deciding.engine.records import GroupRecord
from kai.deciding.explain import messages
from kai.deciding.explain.code_texts import held_text, not_ready, tree_text
from kai.deciding.explain.codes import stage_of
from kai.deciding.explain.declared import Declared, missing_queue
from kai.deciding.explain.recorded import metric_code, refused_pods, vacated_nodes
from kai.facts.model.groups import DEFAULT_SUBGROUP, PodGroup, path_to
from kai.facts.model.pod import ACTIVE_ALLOCATED, ACTIVE_USED, ALIVE, Status, status_mask
from kai.framework.verdict import Code, Reason

if TYPE_CHECKING:
    from kai.api.kinds import Key
    from kai.deciding.engine.cycle import CycleReport
    from kai.facts.model.axis import Bools, Int64s
    from kai.facts.state.snapshot import Snapshot

NOT_READY: Final = "NotReady"
STALE: Final = "StaleJob"
CLOSING: Final = "WindowCloses"
UNSCHEDULABLE: Final = "Unschedulable"
NOT_GROUPED: Final = "NotGrouped"
_NOT_TRIED: Final = "NotTried"
_WAITING: Final = status_mask(Status.PENDING, Status.GATED)
_BEING_BOUND: Final = status_mask(Status.ALLOCATED, Status.PIPELINED, Status.BINDING)
_READY: Final = ALIVE & ~status_mask(Status.GATED)
_STAMPS: Final = (
    (names.STALE_SINCE, "stale_since"),
    (names.PARTIAL_SINCE, "partial_since"),
    (names.LAST_START, "last_start"),
    (names.LAST_EVICTION, "last_eviction"),
)


@attrs.frozen(kw_only=True)
class PodAccount:
    """Why a pod waits. ``on_pod``: whether the pod gets a condition beside the event."""

    name: str
    namespace: str
    uid: str
    message: str
    on_pod: bool = True
    reason: str = names.UNSCHEDULABLE_REASON
    """Reason of the condition. Autoscalers add nodes only for pods whose reason is Unschedulable."""
    is_announced: bool = True
    """Whether the publisher sends an event; False where another part of kai sends one, to avoid a duplicate."""
    is_figured: bool = False
    """Whether a change of figures is published at once: the count of attempts and the next step matter to users."""
    only_instead: bool = False
    """Whether the condition is written only to replace one with another reason."""


@attrs.frozen(kw_only=True)
class Waiting:
    """Why a group waits, as its condition carries it."""

    message: str
    reasons: tuple[UnschedulableReason, ...] = ()
    is_figured: bool = False
    """As in `PodAccount`."""
    only_instead: bool = False
    """As in `PodAccount`."""


@attrs.frozen(kw_only=True)
class GroupAccount:
    """The present state of a group for its users. An event whose text is "" is not sent."""

    name: str
    namespace: str
    uid: str
    stamps: Mapping[str, str | None]
    """Wanted timestamp annotations; None removes one."""
    stale: str = ""
    closing: str = ""
    """That a window of its queue closes soon and evicts."""
    not_ready: str = ""
    unschedulable: str = ""
    condition: Waiting | None = None
    pods: tuple[PodAccount, ...] = ()
    waits_for_turn: bool = False
    """The group was not considered in this cycle: an earlier explanation is more telling, and stays."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name


@attrs.frozen(kw_only=True)
class Overall:
    """All that a cycle has to publish."""

    groups: tuple[GroupAccount, ...] = ()
    """Accounts of groups that may need a write."""
    settled: frozenset[tuple[str, str]] = frozenset()
    """Groups, by namespace and name, without pods that wait or are being bound: their conditions are outdated."""
    fair_shares: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Fair shares by queue, as quantities."""
    budgets: Mapping[str, tuple[BudgetStatus, ...]] = attrs.field(factory=dict)
    """What was used of budgets by now, by queue; empty from `explain`, since it changes while a report stays."""
    waiting: Mapping[str, int] = attrs.field(factory=dict)
    """Count of waiting pods by reason code."""


def explain(
    snapshot: Snapshot,
    report: CycleReport,
    pool: str,
    *,
    detailed: bool = False,
    published: frozenset[str] = frozenset(),
    attend: Callable[[int], None] = lambda _: None,
    declared: Callable[[], Declared] = Declared,
) -> Overall:
    """Return the accounts of all groups that wait, changed or are stale, and the fair shares of queues.

    ``detailed``: messages have a line for each node. ``published``: UIDs of groups whose reason was published before;
    they get no account that only says that they wait for their turn. ``attend`` is called with the row of the group
    that is being explained, -1 at the end. ``declared`` is called to explain a queue that is not in the snapshot.

    Cost: O(pods) in columns, then O(groups and pods that wait).
    """
    explainer = _Explainer(
        snapshot, report, pool, detailed=detailed, published=published, attend=attend, declared=declared
    )
    return Overall(
        groups=tuple(explainer.accounts()),
        settled=explainer.settled(),
        fair_shares=fair_shares(snapshot, report),
        waiting=explainer.waiting(),
    )


def fair_shares(snapshot: Snapshot, report: CycleReport) -> Mapping[str, Mapping[str, str]]:
    """Return the fair share of each queue as quantities."""
    out: dict[str, Mapping[str, str]] = {}
    for row, queue in enumerate(snapshot.queues):
        out[queue.name] = _resources(report.fair_share[row, :3].tolist())
    return out


@attrs.frozen
class _Why:
    """What a group waits for."""

    code: str
    """The dominant reason, as metrics label it. A finer code would need calls of plugins."""
    record: GroupRecord | None = None
    missing: tuple[tuple[str, int, int, int], ...] = ()
    """The sub-groups that lack pods: name, pods needed, existing, gated."""
    is_tried: bool = True
    """Whether the engine looks for a place; a state of the group, its queue or a pod may forbid that."""


class _Explainer:
    def __init__(
        self,
        snapshot: Snapshot,
        report: CycleReport,
        pool: str,
        *,
        detailed: bool,
        published: frozenset[str],
        attend: Callable[[int], None],
        declared: Callable[[], Declared],
    ) -> None:
        self._snapshot = snapshot
        self._declare = declared
        self._attend = attend
        self._published = published
        self._later = np.zeros(len(snapshot.groups), np.bool_)
        self._later[snapshot.crowds.waiting] = True
        self._later[report.left] = True
        self._parents = frozenset(queue.parent for queue in snapshot.queues)
        self._detailed = detailed
        self._report = report
        self._pool = pool
        # A pod that moves, and the row that stands in for it, have a node already: neither waits for a promised place.
        self._is_promised: Bools = (report.status == Status.PIPELINED) & (snapshot.pod_node < 0)
        grouped = snapshot.pod_group >= 0
        self._pods = np.flatnonzero(grouped)
        # Stable, so that the pods of a group stay in the order of rows and each cycle reads them alike.
        self._by_group = self._pods[np.argsort(snapshot.pod_group[self._pods], kind="stable")]
        self._starts: list[int] = np.searchsorted(
            snapshot.pod_group[self._by_group], np.arange(len(snapshot.groups) + 1), side="left"
        ).tolist()
        self._leaf, self._status = snapshot.pod_subgroup[self._by_group], report.status[self._by_group]
        lost = (self._leaf < 0) | (self._status == Status.GATED)
        self._strange = np.bincount(snapshot.pod_group[self._by_group[lost]], minlength=len(snapshot.groups)) > 0
        """bool[G]: groups with gated pods or pods without a sub-group, which may get messages of their own."""
        self._waiting = self._count(_WAITING)
        self._active = self._count(ACTIVE_ALLOCATED)
        self._binding = self._count(_BEING_BOUND)
        promised = self._pods[self._is_promised[self._pods]]
        self._promised: Int64s = np.bincount(snapshot.pod_group[promised], minlength=len(snapshot.groups))

    def _count(self, statuses: int) -> Int64s:
        """Return int64[G]: the count of pods of each group whose status is in the mask."""
        pods = self._pods[((statuses >> self._report.status[self._pods]) & 1).astype(np.bool_)]
        counts: Int64s = np.bincount(self._snapshot.pod_group[pods], minlength=len(self._snapshot.groups))
        return counts

    def accounts(self) -> Iterator[GroupAccount]:
        """Yield the accounts of groups that wait, are stale, or whose timestamps changed."""
        changed = ~np.isnan(self._report.stale_since) | self._stamped()
        changed[[*self._closing]] = True
        for row in np.flatnonzero((self._waiting > 0) | (self._promised > 0) | changed).tolist():
            group = self._snapshot.groups[row]
            if changed[row] or not (self._later[row] and group.uid in self._published):
                self._attend(row)
                yield self._account(row, group)
        self._attend(-1)

    def waiting(self) -> Mapping[str, int]:
        """Return the count of waiting pods by reason code; pods without a group wait for the pod grouper."""
        counts = self._waiting + self._promised
        tally = Counter[str]()
        for row in np.flatnonzero(counts > 0).tolist():
            tally[self._why(row).code] += int(counts[row])
        loose = (self._report.status == Status.PENDING) & (self._snapshot.pod_group < 0)
        if count := int(np.count_nonzero(loose)):
            tally[NOT_GROUPED] += count
        return dict(tally)

    def _why(self, row: int) -> _Why:
        """Return the reason why a group waits; memoized, as the account and the metric both need it."""
        known = self._known.get(row)
        if known is None:
            known = self._known[row] = self._looked_at(row, self._snapshot.groups[row])
        return known

    def _looked_at(self, row: int, group: PodGroup) -> _Why:
        record = self._untriable(row, group)
        is_tried = record is None
        if is_tried and not self._waiting[row]:
            return _Why(Code.HELD_FOR_LEAVING.value)
        if is_tried and (missing := self._missing(row, group)):
            gated = any(gated for _, _, _, gated in missing)
            return _Why((Code.GATED if gated else Code.NOT_READY).value, missing=missing)
        record = record or self._report.records.get(row)
        reasons = record.reasons if record else ()
        code = min(map(metric_code, reasons), key=stage_of, default=_NOT_TRIED)
        return _Why(code, record, is_tried=is_tried)

    def settled(self) -> frozenset[tuple[str, str]]:
        """Return the groups without pods that wait or are being bound."""
        groups = self._snapshot.groups
        rows = np.flatnonzero((self._waiting == 0) & (self._binding == 0)).tolist()
        return frozenset([(groups[row].namespace, groups[row].name) for row in rows])

    def _stamped(self) -> Bools:
        """Return bool[G]: groups whose timestamps the cycle changed."""
        changed = np.zeros(len(self._snapshot.groups), np.bool_)
        for _, name in _STAMPS:
            before = np.array([getattr(group, name) for group in self._snapshot.groups], np.float64)
            after = getattr(self._report, name)
            # NaN differs from itself: a time that is absent before and after is no change.
            changed |= (before != after) & ~(np.isnan(before) & np.isnan(after))
        return changed

    def _account(self, row: int, group: PodGroup) -> GroupAccount:
        base = GroupAccount(
            name=group.name,
            namespace=group.namespace,
            uid=group.uid,
            stamps=self._stamps(row),
            stale=self._stale(row, group),
            closing=self._closing.get(row, ""),
        )
        strangers = (*self._strangers(row, group), *self._refused(row, group)) if self._strange[row] else ()
        if self._promised[row] and self._why(row).is_tried:
            strangers = (*strangers, *self._promised_pods(row, group))
        if not self._waiting[row]:
            held = self._held(row, group) if self._promised[row] == self._active[row] > 0 else None
            return attrs.evolve(base, pods=strangers, condition=held) if strangers or held else base
        why = self._why(row)
        if why.missing:
            return self._lacking(row, group, attrs.evolve(base, pods=strangers), not_ready({"missing": why.missing}))
        record = why.record
        write = messages.detailed_group_message if self._detailed else messages.group_message
        message = self._with_pool(group, write(record.reasons if record else ()))
        condition = self._condition(row, record, message)
        return attrs.evolve(
            base,
            unschedulable="" if condition.is_figured else message,
            condition=None if self._active[row] else condition,
            pods=(*strangers, *self._waiting_pods(row, group, record)),
            waits_for_turn=bool(self._later[row]),
        )

    def _untriable(self, row: int, group: PodGroup) -> GroupRecord | None:
        """Return why the engine does not look for a place; None if neither group, queue nor pods forbid it."""
        if group.held:
            return _recorded(Code(group.held_code), text=group.held)
        if group.queue_row < 0:
            words = missing_queue(group.queue, self._declared)
            if words.code == Code.QUEUE_MISSING:
                return _recorded(Code.QUEUE_MISSING, queue=group.queue)
            return _recorded(Code(words.code), text=_capitalized(words.text))
        if group.queue_row in self._parents:
            below = tuple(queue.name for queue in self._snapshot.queues if queue.parent == group.queue_row)
            return _recorded(Code.QUEUE_NOT_LEAF, queue=group.queue, leaves=below)
        if group.tree_error:
            return _recorded(Code.SUBGROUPS_INVALID, text=_capitalized(tree_text(group.tree_error)))
        if not self._strange[row]:
            return None
        rows = self._rows(row)
        gated = [self._snapshot.pods[pod] for pod in rows[self._report.status[rows] == Status.GATED].tolist()]
        refused = [pod for pod in gated if pod.refused]
        if not refused:
            return self._without_sub_group(row, group, rows)
        words = refused_pods(refused, len(rows))
        return _recorded(Code(words.code), text=_capitalized(words.text))

    def _without_sub_group(self, row: int, group: PodGroup, rows: Int64s) -> GroupRecord | None:
        """Return a record if the group lacks pods because some name an unknown sub-group; else None."""
        lost = rows[(self._snapshot.pod_subgroup[rows] < 0) & (self._report.status[rows] == Status.PENDING)]
        if not len(lost) or not self._missing(row, group):
            return None
        return _recorded(Code.UNKNOWN_SUBGROUP, subgroup=self._snapshot.pods[int(lost[0])].subgroup, group=group.key)

    @cached_property
    def _known(self) -> dict[int, _Why]:
        return {}

    @cached_property
    def _declared(self) -> Declared:
        return self._declare()

    def _stamps(self, row: int) -> Mapping[str, str | None]:
        found: dict[str, str | None] = {}
        for key, column in _STAMPS:
            instant = float(getattr(self._report, column)[row])
            found[key] = None if np.isnan(instant) else instant_text(float(int(instant)))
        return found

    # --- Pods ----------------------------------------------------------------------------------------------------

    def _rows(self, row: int) -> Int64s:
        return self._by_group[self._starts[row] : self._starts[row + 1]]

    def _waiting_pods(self, row: int, group: PodGroup, record: GroupRecord | None) -> Iterator[PodAccount]:
        shared = messages.pod_message(attrs.evolve(record, pods={}) if record else None, -1)
        for pod in self._rows(row).tolist():
            if self._report.status[pod] != Status.PENDING or self._snapshot.pod_subgroup[pod] < 0:
                continue
            own = record is not None and pod in record.pods
            message = messages.pod_message(record, pod, detailed=self._detailed) if own else shared
            yield self._pod(pod, self._with_pool(group, message), on_pod=group.mark_unschedulable)

    def _promised_pods(self, row: int, group: PodGroup) -> Iterator[PodAccount]:
        """Yield pods that wait for others to leave their node; the event of the nomination says so, too."""
        for pod in self._rows(row)[self._is_promised[self._rows(row)]].tolist():
            text = held_text([self._snapshot.nodes[int(self._report.node[pod])].name], self._vacated)
            account = self._pod(pod, self._with_pool(group, _capitalized(text)), on_pod=True)
            yield attrs.evolve(account, reason=Code.HELD_FOR_LEAVING.value, is_announced=False)

    def _held(self, row: int, group: PodGroup) -> Waiting:
        """Return the condition of a group whose pods all wait for others to leave their nodes."""
        rows = self._rows(row)
        nodes = sorted(
            {self._snapshot.nodes[int(each)].name for each in self._report.node[rows[self._is_promised[rows]]]}
        )
        text = _capitalized(held_text(nodes, self._vacated))
        reason = UnschedulableReason(reason=Code.HELD_FOR_LEAVING.value, message=text)
        return Waiting(message=self._with_pool(group, f"{reason.reason}: {text}."), reasons=(reason,))

    @cached_property
    def _vacated(self) -> frozenset[str]:
        return vacated_nodes(self._snapshot, self._report)

    def _strangers(self, row: int, group: PodGroup) -> Iterator[PodAccount]:
        """Yield pods that name a sub-group which the group lacks; they get a message in any state of the group."""
        rows = self._rows(row)
        for pod in rows[self._snapshot.pod_subgroup[rows] < 0].tolist():
            if self._report.status[pod] in (Status.PENDING, Status.GATED):
                facts = {"subgroup": self._snapshot.pods[pod].subgroup, "group": group.key}
                unknown = messages.reason_text(Reason(code=Code.UNKNOWN_SUBGROUP, facts=facts))
                tree = f"Its group's sub-groups form no tree: {group.tree_error}" if group.tree_error else ""
                text = group.held or tree or unknown
                yield self._pod(pod, self._with_pool(group, text), on_pod=True)

    def _refused(self, row: int, group: PodGroup) -> Iterator[PodAccount]:
        """Yield pods whose manifest exceeds a cap; in the cluster they have no scheduling gate that users would see."""
        rows = self._rows(row)
        for pod in rows[self._report.status[rows] == Status.GATED].tolist():
            facts = self._snapshot.pods[pod]
            if not facts.refused:
                continue
            account = self._pod(pod, self._with_pool(group, facts.refused), on_pod=True)
            if facts.refused_code == Code.BIND_REFUSED:
                text = self._with_pool(group, f"{_capitalized(facts.refused)}.")
                account = attrs.evolve(
                    account, message=text, reason=Code.BIND_REFUSED.value, is_announced=False, is_figured=True
                )
            yield account

    def _pod(self, row: int, message: str, *, on_pod: bool) -> PodAccount:
        facts = self._snapshot.pods[row]
        return PodAccount(name=facts.name, namespace=facts.namespace, uid=facts.uid, message=message, on_pod=on_pod)

    def _lacking(self, row: int, group: PodGroup, base: GroupAccount, text: str) -> GroupAccount:
        """Return the account of a group that lacks pods: an event, and conditions that replace outdated ones."""
        message = self._with_pool(group, f"{NOT_READY}: {text}.")
        reason = UnschedulableReason(reason=NOT_READY, message=text)
        waiting = Waiting(message=message, reasons=(reason,), only_instead=True)
        pods = tuple(
            attrs.evolve(
                self._pod(pod, self._with_pool(group, text), on_pod=True),
                reason=NOT_READY,
                is_announced=False,
                only_instead=True,
            )
            for pod in self._rows(row).tolist()
            if self._report.status[pod] == Status.PENDING and self._snapshot.pod_subgroup[pod] >= 0
        )
        condition = None if self._active[row] else waiting
        return attrs.evolve(base, not_ready=text, condition=condition, pods=(*base.pods, *pods))

    # --- Readiness and staleness ---------------------------------------------------------------------------------

    def _leaf_counts(self, row: int, statuses: int) -> Mapping[int, int]:
        """Return the count of pods whose status is in the mask, by sub-group."""
        own = slice(self._starts[row], self._starts[row + 1])
        # Most groups that wait have few pods: for these numpy would take ten times as long.
        pods = zip(self._leaf[own].tolist(), self._status[own].tolist(), strict=True)
        return Counter([leaf for leaf, status in pods if statuses >> status & 1])

    def _missing(self, row: int, group: PodGroup) -> tuple[tuple[str, int, int, int], ...]:
        """Return the sub-groups that lack pods, as (name, pods needed, existing, gated).

        Empty if enough sub-groups are ready.
        """
        ready = self._leaf_counts(row, _READY)
        subgroups = group.subgroups
        enough: dict[int, bool] = {}
        children, satisfied = Counter(each.parent for each in subgroups), Counter[int]()
        for at in reversed(range(len(subgroups))):  # children before their parents
            each = subgroups[at]
            if each.leaf:
                enough[at] = ready.get(at, 0) >= _needed(each.minimum, 1)
            else:
                enough[at] = satisfied[at] >= _needed(each.minimum, children[at])
            satisfied[each.parent] += enough[at]
        if enough.get(0, True):
            return ()
        alive, gated = self._leaf_counts(row, ALIVE), self._leaf_counts(row, status_mask(Status.GATED))
        return tuple(
            (each.name, _needed(each.minimum, 1), alive.get(at, 0), gated.get(at, 0))
            for at, each in sorted(enumerate(subgroups), key=lambda item: item[1].name)
            if each.leaf and not enough[at]
        )

    @cached_property
    def _closing(self) -> Mapping[int, str]:
        """Return the running groups whose queue will hold more than its quota when a window closes, with the text."""
        queues, found = self._snapshot.queues, dict[int, str]()
        for at, queue in enumerate(queues):
            windows = queue.windows
            if windows is None or windows.ending is None:
                continue
            closes, name, quota = windows.ending
            used = self._report.queue_used[at, :3].tolist()
            if not any(0 <= quota.of(part) < used[part] for part in range(3)):
                continue
            text = (
                f"The window {name} of queue {queue.title} closes at {clock_text(closes, windows.timezone)}; running"
                " work that is then beyond the quota of the queue is evicted"
            )
            for row in np.flatnonzero(self._active > 0).tolist():
                if at in path_to(queues, self._snapshot.groups[row].queue_row):
                    found.setdefault(row, text)
        return found

    def _stale(self, row: int, group: PodGroup) -> str:
        if np.isnan(self._report.stale_since[row]):
            return ""
        used = self._leaf_counts(row, ACTIVE_USED)
        leaves = [(at, each) for at, each in enumerate(group.subgroups) if each.leaf]
        total = sum(used.get(at, 0) for at, _ in leaves)
        needed = sum(_needed(each.minimum, 1) for _, each in leaves)
        text = f"Job is stale. {total} pods are active, minMember is {needed}"
        for at, each in leaves:
            if each.name != DEFAULT_SUBGROUP and used.get(at, 0) < _needed(each.minimum, 1):
                active = used.get(at, 0)
                text += f", subGroup {each.name} minMember is {_needed(each.minimum, 1)} and {active} pods are active"
        return text

    # --- Reasons -------------------------------------------------------------------------------------------------

    def _reasons(self, row: int, record: GroupRecord | None) -> tuple[UnschedulableReason, ...]:
        found = record.reasons if record else []
        return tuple(
            UnschedulableReason(reason=each.reason, message=each.message, details=self._details(row, reason))
            for reason in found
            for each in messages.explanations([reason])
        )

    def _condition(self, row: int, record: GroupRecord | None, message: str) -> Waiting:
        is_figured = record is not None and any(each.code == Code.BIND_REFUSED for each in record.reasons)
        return Waiting(message=message, reasons=self._reasons(row, record), is_figured=is_figured)

    def _details(self, row: int, reason: Reason) -> UnschedulableDetails | None:
        if reason.code not in (Code.OVER_LIMIT, Code.OVER_QUOTA):
            return None
        at = reason.facts.get("queue_row")
        if not isinstance(at, int):
            return None
        queue, report = self._snapshot.queues[at], self._report
        wanted = self._wanted(row)
        fixed = not self._snapshot.groups[row].preemptible
        quota, limit = queue.quota, queue.limit
        details = QueueDetails(
            name=queue.title,
            queue_requested_resources=_resources(report.queue_requested[at, :3].tolist()),
            queue_deserved_resources=_resources([quota.cpu, quota.memory, quota.gpu]),
            queue_allocated_resources=_resources(report.queue_used[at, :3].tolist()),
            queue_allocated_non_preemptible_resources=_resources(report.queue_fixed[at, :3].tolist()),
            queue_resource_limits=_resources([limit.cpu, limit.memory, limit.gpu]),
            pod_group_requested_resources=_resources(wanted),
            pod_group_requested_non_preemptible_resources=_resources(wanted if fixed else [0.0, 0.0, 0.0]),
        )
        return UnschedulableDetails(queue_details=details)

    def _wanted(self, row: int) -> list[float]:
        rows = self._rows(row)
        waiting = rows[self._report.status[rows] == Status.PENDING]
        amounts = self._snapshot.requests[self._snapshot.pod_shape[waiting]][:, :3].sum(axis=0)
        return [float(amount) for amount in amounts]

    def _with_pool(self, group: PodGroup, text: str) -> str:
        """Return the message, with the node pool in front for groups that give up on a pool after one attempt.

        Source: the format of KAI-Scheduler.
        """
        return f"Node-Pool '{self._pool}': {text}" if group.scheduling_backoff == 1 else text


def _recorded(code: Code, **facts: object) -> GroupRecord:
    return GroupRecord(reasons=[Reason(code=code, facts=facts)])


def _capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _needed(minimum: int | None, absent: int) -> int:
    return absent if minimum is None else minimum


def _resources(amounts: list[float]) -> Mapping[str, str]:
    """Return CPU, memory and GPUs, given in axis units, as quantities; -1 means unlimited and stays -1."""
    cpu, memory, gpu = amounts
    return {
        names.CPU: _quantity(cpu, 1000),
        names.MEMORY: _quantity(memory, 1),
        names.NVIDIA_GPU: _quantity(gpu, 1000),
    }


@lru_cache(maxsize=1 << 13)
def _quantity(amount: float, parts: int) -> str:
    """Return an amount as a quantity. Memoized: most amounts of queues do not change from cycle to cycle."""
    return "-1" if amount < 0 else canonical(round(min(amount, 2.0**62)), parts)
