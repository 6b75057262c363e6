"""The view of a reader with restricted rights.

It is not the whole view with names removed: totals, positions in line, order and counts would still reveal how much
others have. Each value here is computed only from what a right shows (`kai.dashboard.access.Scope`):

- the reader's jobs: their data, the decisions about them, and the reasons, which the scheduler writes on them anyway;
- queues that the reader may get: their figures, which count all jobs in them;
- nodes, if the reader may list them: how much of each is taken, but not by whom;
- the cluster: its capacity, and the health of this process.

`tests/properties/test_scoped_looks.py` generates clusters and rights, changes what the rights do not show, and checks
that no page and no document changes.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from kai.answers.outcomes.entitlement import Entitlement, Gains
from kai.answers.outcomes.gpu_slots import (
    FREE,
    HELD,
    LEAVING,
    SHARED,
    UNHEALTHY,
    USED,
    Holder,
    NodeSlots,
    Slices,
    SliceUser,
    Slot,
    User,
)
from kai.answers.outcomes.node_occupancy import Occupancy, Tenant
from kai.answers.why.explanation import JobExplanation, unproved
from kai.answers.why.pod_changes import ATTACH_LIMIT, DEVICE_CLASS
from kai.answers.why.suggestions import Suggestions, in_general
from kai.answers.why.unfit_nodes import NODE_FIELD
from kai.basics.trees import colors_of
from kai.dashboard.access import FOREIGN_JOB, FOREIGN_NAMESPACE, FOREIGN_NODE, FOREIGN_POD, FOREIGN_QUEUE, Scope
from kai.dashboard.look import Capacity, History, Look, WholeLook
from kai.deciding.explain.codes import BY_CODE
from kai.facts.model.axis import GPU_UNIT
from kai.framework.decisions import Cause
from kai.framework.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kai.answers.outcomes.job_lines import JobLine, PodLine, RunLimit
    from kai.answers.outcomes.overview import Job
    from kai.answers.outcomes.owners import Above
    from kai.answers.outcomes.queue_lines import QueueLine, QueueWeek
    from kai.answers.why.evictions import Eviction
    from kai.answers.why.facts import Evidence
    from kai.answers.why.trials import ChangeTrial
    from kai.dashboard.feed import Happening
    from kai.facts.model.groups import Queue

_STATES = (USED, SHARED, LEAVING, HELD, FREE, UNHEALTHY)
"""The order of a node's GPUs on the page. Any other order would reveal which jobs the others are."""


@attrs.frozen
class _Leaf:
    """A queue known only by its name."""

    name: str
    parent: str = ""
    leaf: bool = True


@attrs.define(eq=False, slots=False, kw_only=True)
class OwnLook(Look):
    """One moment, for a reader with restricted rights."""

    _whole: WholeLook

    @classmethod
    def of(cls, whole: WholeLook, scope: Scope) -> OwnLook:
        """Return the view of a moment within a scope."""
        return cls(whole=whole, number=whole.number, time=whole.time, failing=whole.failing, scope=scope)

    @property
    def capacity(self) -> Capacity:
        """The capacity of the cluster."""
        return self._whole.capacity

    # --- Jobs ------------------------------------------------------------------------------------------------------

    @cached_property
    def lines(self) -> tuple[JobLine, ...]:
        """The jobs of namespaces whose pod groups the reader may list."""
        known, scope = self._whole.lines_by_namespace, self.scope
        names = known if scope.namespaces is None else sorted(scope.namespaces)
        chosen = [line for name in names for line in known.get(name, ())]
        counts = Counter(line.job.name for line in chosen)
        lost = self._lost
        found = [_line(line, scope, lost.get(line.job.key, ()), is_alone=counts[line.job.name] == 1) for line in chosen]
        return tuple(sorted(found, key=_place))

    @cached_property
    def _lost(self) -> Mapping[str, Sequence[str]]:
        """The beneficiaries and causes of evictions of the reader's jobs, by key of the job."""
        counts: dict[str, Counter[tuple[str, str]]] = {}
        for each in self.evictions:
            if not each.moved_to:
                gains = each.beneficiary.partition("/")[2]
                counts.setdefault(each.job, Counter())[gains, each.cause] += 1
        return {job: tuple(_lost_to(found)) for job, found in counts.items()}

    @cached_property
    def evictions(self) -> tuple[Eviction, ...]:
        """The pending evictions of the reader's pods.

        Evictions for the reader's jobs are not included: their pods belong to others.
        """
        sees = self.scope.sees
        return tuple(self._eviction(each) for each in self._whole.evictions if sees(each.job.partition("/")[0]))

    def _eviction(self, each: Eviction) -> Eviction:
        gains = each.beneficiary
        if gains and not self.scope.sees(gains.partition("/")[0]):
            gains = f"{FOREIGN_NAMESPACE}/{FOREIGN_JOB}"
        node = self._node_name
        # For other causes, the figures that allow the eviction are those of other jobs.
        because = each.because if each.cause == Cause.STALE.name else ()
        return attrs.evolve(
            each, beneficiary=gains, node=node(each.node), moved_to=node(each.moved_to), because=because
        )

    def _node_name(self, name: str) -> str:
        return name if self.scope.nodes or not name else FOREIGN_NODE

    @property
    def unused(self) -> tuple[str, ...]:
        """Empty: resources vacated in excess are others'."""
        return ()

    @cached_property
    def owners(self) -> Mapping[str, Sequence[Above]]:
        """The owners of the reader's jobs."""
        found = self._whole.owners
        return {line.job.key: found[line.job.key] for line in self.lines if line.job.key in found}

    def history(self, history: History) -> History:
        """Return how long cycles took, and what they decided about the reader's jobs.

        The total decisions of each cycle, and the durations of its phases, depend on all jobs, so they are left out.
        """
        found: Sequence[Happening] = history.happenings
        if self.scope.namespaces is not None:
            names = sorted(self.scope.namespaces)
            found = sorted(
                (each for name in names for each in history.by_namespace.get(name, ())), key=lambda each: each.number
            )
        return History(
            cycles=tuple(attrs.evolve(line, counts={}, phases={}) for line in history.cycles),
            happenings=tuple(map(self._happening, found)),
            past=history.past,
            facts=tuple(
                (name, text if is_right else "not as it should be", is_right)
                for at, (name, text, is_right) in enumerate(history.facts)
                if not at or not is_right
            ),
        )

    def _happening(self, each: Happening) -> Happening:
        out = each if self.scope.nodes else attrs.evolve(each, nodes=())
        if out.for_job and not self.scope.sees(out.for_namespace):
            out = attrs.evolve(out, for_namespace="", for_job=FOREIGN_JOB)
        return out

    # --- Explanations ----------------------------------------------------------------------------------------------

    def explain(self, line: JobLine) -> JobExplanation | None:
        """Return why a job of the reader waits, and which changes of it would help."""
        full = self._whole.find(line.job.namespace, line.job.name)
        explained = None if full is None else self._whole.explain(full)
        if explained is None:
            return None
        own, scope = unproved(line, self.time), self.scope
        also = (reason for reason in explained.also if _scoped(reason, line.job, scope).text == reason.text)
        trials = (self._trial(trial) for trial in explained.suggestions.changes)
        return attrs.evolve(
            own,
            also=tuple(_scoped(reason, line.job, scope) for reason in also),
            evidence=tuple(each for each in explained.evidence if _is_own(each, scope)),
            suggestions=Suggestions(
                changes=tuple(each for each in trials if each is not None), all_tried=explained.suggestions.all_tried
            ),
            waiting=in_general(explained.waiting, own.waiting),
        )

    @property
    def tries(self) -> bool:
        """Whether changes are tried; that is the same for all readers."""
        return self._whole.tries

    def _trial(self, trial: ChangeTrial) -> ChangeTrial | None:
        """Return a change and its outcome for the job; None for a change of something that is others'."""
        scope = self.scope
        if not _is_ones_own(trial, scope):
            return None
        return attrs.evolve(
            trial,
            reason=None if trial.reason is None else _general(trial.reason),
            placement=tuple((pod, self._node_name(node)) for pod, node in trial.placement),
            losses=tuple(each for each in trial.losses if scope.sees(each.namespace)),
        )

    def assumptions(self, line: JobLine) -> tuple[str, ...]:
        """Return nothing: assumptions are stated about all pods, and about parents of queues."""
        del line
        return ()

    # --- Queues ----------------------------------------------------------------------------------------------------

    @cached_property
    def queues(self) -> tuple[QueueLine, ...]:
        """The queues that the reader may get; a queue whose parent the reader may not get has none."""
        depths: dict[str, int] = {}
        found = []
        for line in self._whole.queues:
            if self.scope.reads(line.name):
                depth = depths[line.name] = depths.get(line.parent, -1) + 1
                parent = line.parent if line.parent in depths else ""
                # Who else has jobs in the queue is not shown to readers of some namespaces.
                users = line.users if self.scope.namespaces is None else ()
                found.append(attrs.evolve(line, parent=parent, depth=depth, last=(), users=users))
        return tuple(found)

    @cached_property
    def colors(self) -> Mapping[str, str]:
        """The colours of the reader's queues, assigned anew.

        Those of the whole tree would reveal how many other queues there are.
        """
        known = {line.name for line in self.queues}
        more = sorted({line.job.queue for line in self.lines} - known)
        return colors_of([*self.queues, *map(_Leaf, more)])

    def queue_facts(self) -> Iterable[Queue]:
        """Return the queues that the reader may get, as the cycle read them."""
        return [each for each in self._whole.queue_facts() if self.scope.reads(each.name)]

    def queue_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of the queues that the reader may get."""
        return {name: labels for name, labels in self._whole.queue_labels().items() if self.scope.reads(name)}

    def queue_uids(self) -> Mapping[str, str]:
        """Return how the history knows the queues that the reader may get, by name."""
        return {name: uid for name, uid in self._whole.queue_uids().items() if self.scope.reads(name)}

    def run_limit(self, line: JobLine) -> RunLimit | None:
        """Return how long a job of the reader may run; a queue that the reader may not get is not named."""
        full = self._whole.find(line.job.namespace, line.job.name)
        found = None if full is None else self._whole.run_limit(full)
        if found is None:
            return None
        known = (found.queue in {"", line.job.queue}) or self.scope.reads(found.queue)
        return found if known else attrs.evolve(found, queue="", source=FOREIGN_QUEUE)

    def week(self, queue: str) -> QueueWeek | None:
        """Return the week of a queue that the reader may get, if its quota follows the clock."""
        return self._whole.week(queue) if self.scope.reads(queue) else None

    def entitlement(self, queue: str) -> Entitlement | None:
        """Return the share of a queue. Its division is included only if the reader may get every queue in it."""
        found = self._whole.entitlement(queue) if self.scope.reads(queue) else None
        if found is None:
            return None
        reads = self.scope.reads
        if all(reads(part.name) for part in found.siblings) and (not found.parent or reads(found.parent)):
            return attrs.evolve(found, gains=Gains(are_known=False))  # gains depend on the divisions above, too
        return attrs.evolve(
            found,
            parent=found.parent if found.parent and reads(found.parent) else "",
            total=None,
            siblings=tuple(part for part in found.siblings if reads(part.name)),
            steps=(),
            with_history=bool(found.own.usage),
            gains=Gains(are_known=False),
        )

    # --- Nodes -----------------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> tuple[NodeSlots, ...]:
        """The nodes; on each GPU the pods of others count as one user."""
        return tuple(map(self._slots, self._whole.nodes)) if self.scope.nodes else ()

    def _slots(self, node: NodeSlots) -> NodeSlots:
        slots = sorted((attrs.evolve(slot, users=self._users(slot)) for slot in node.slots), key=_order)
        return attrs.evolve(node, slots=tuple(slots), slices=tuple(map(self._slices, node.slices)))

    def _users(self, slot: Slot) -> tuple[User, ...]:
        others: Counter[tuple[str, str]] = Counter()
        own = []
        for user in slot.users:
            if self.scope.sees(user.namespace):
                own.append(user)
            else:
                others[self._queue_of(user), user.state] += user.share
        return (*own, *(User(**_other(*key), share=min(GPU_UNIT, share)) for key, share in sorted(others.items())))

    def _slices(self, slices: Slices) -> Slices:
        others: Counter[tuple[str, str]] = Counter()
        own = []
        for user in slices.users:
            if self.scope.sees(user.namespace):
                own.append(user)
            else:
                others[self._queue_of(user), user.state] += user.count
        more = (SliceUser(**_other(*key), count=count) for key, count in sorted(others.items()))
        return attrs.evolve(slices, users=(*own, *more))

    def _queue_of(self, user: Holder | Tenant) -> str:
        return user.queue if user.queue and self.scope.reads(user.queue) else FOREIGN_QUEUE

    def occupancy(self, node: str) -> Occupancy | None:
        """Return the occupancy of a node; the pods of others are one tenant."""
        if not self.scope.nodes:
            return None
        found = self._whole.occupancy(node, [line.job for line in self.lines])
        if found is None:
            return None
        tenants = sorted(self._tenants(found.tenants), key=lambda each: (-each.gpus, each.job, each.queue, each.state))
        return attrs.evolve(found, tenants=tuple(tenants), slices=tuple(map(self._slices, found.slices)))

    def _tenants(self, tenants: Sequence[Tenant]) -> Iterator[Tenant]:
        others: dict[tuple[str, str], list[Tenant]] = {}
        for each in tenants:
            if self.scope.sees(each.job.partition("/")[0]):
                yield each
            else:
                others.setdefault((self._queue_of(each), each.state), []).append(each)
        for (queue, state), found in others.items():
            yield Tenant(
                job=f"{FOREIGN_NAMESPACE}/{FOREIGN_JOB}",
                title=FOREIGN_JOB,
                queue=queue,
                pods=sum(each.pods for each in found),
                gpus=sum(each.gpus for each in found),
                state=state,
            )

    def spare(self, node: str) -> tuple[str, ...]:
        """Return the free resources of a visible node besides GPUs, as text."""
        return self._whole.spare(node) if self.scope.nodes else ()


# --- Jobs as far as they are the reader's ----------------------------------------------------------------------------


def _line(line: JobLine, scope: Scope, lost: Sequence[str], *, is_alone: bool) -> JobLine:
    """Return a line of the reader's jobs.

    The position in line counts all jobs of the queue, so it needs the right to the queue.
    """
    job, reads = line.job, scope.reads(line.job.queue)
    own = attrs.evolve(
        job,
        title=job.name if is_alone else job.key,
        nodes=job.nodes if scope.nodes else (FOREIGN_NODE,) if job.nodes else (),
        lost_to=tuple(lost),
        waiting_reason=None if job.waiting_reason is None else _scoped(job.waiting_reason, job, scope),
    )
    return attrs.evolve(
        line,
        job=own,
        position=line.position if reads else None,
        others_before=None,
        keys=line.keys if reads else (),
        pods=tuple(_pod(pod, scope) for pod in line.pods),
    )


def _place(line: JobLine) -> tuple[bool, str, int, int, str, str]:
    job = line.job
    return (line.waits, job.queue, line.position or 0, -(job.priority or 0), job.name, job.namespace)


def _pod(pod: PodLine, scope: Scope) -> PodLine:
    return pod if scope.nodes or not pod.node else attrs.evolve(pod, node=FOREIGN_NODE)


def _lost_to(counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for (gains, cause), count in counts.items():
        yield f"{count} {'pod' if count == 1 else 'pods'} {f'for {gains} ' if gains else ''}({cause})"


# --- Reasons as far as they are the reader's -------------------------------------------------------------------------

_WRITTEN = frozenset(
    {
        "PodGroupRefused",
        "QueueNotAllowed",
        "PriorityNotAllowed",
        "TimeLimit",
        "SubGroupsInvalid",
        "UnknownSubGroup",
        "Gated",
        "NotReady",
        "NoNodes",
        "NoNodeLargeEnough",
        "GpuMemoryUnknown",
        "ClusterTooSmall",
        "TopologyMissing",
        "TopologyLevelMissing",
        "DomainTooSmall",
        "OverLimit",
        "OverUserLimit",
        "OverModelLimit",
        "NonPreemptibleOverQuota",
        "BudgetUsed",
        "PodRefused",
        "NoNodeMatches",
        "EvictionsCapped",
        "VictimsProtected",
        "Plugin",
        "TopologyHasNoRoom",
        "GangDoesNotFit",
        "PreemptionDelayNotElapsed",
        "TriesSpent",
        "NotTried",
        "WaitsForTurn",
    }
)
"""Codes whose text reveals no more than the job, the figures of nodes, and the conditions on the pod group."""
_BOUNDS = frozenset({"OverLimit", "OverUserLimit", "OverModelLimit", "NonPreemptibleOverQuota"})
"""Codes whose figures the condition states as well."""
_OF_NODES = frozenset({"HeldForLeaving", "NoScore"})
_EVIDENCE_OF_JOBS = frozenset({"needs", "condition", "priority", "why so"})
_EVIDENCE_OF_NODES = frozenset(
    {"idle", "free parts", "selector", "affinity", "left out", "levels", "topologies", "volume", "devices", "place"}
)


def _scoped(reason: Reason[str], job: Job, scope: Scope) -> Reason[str]:
    """Return a reason if the reader may see its text, else the general meaning of its code."""
    code, facts = reason.code, reason.facts
    if code in _WRITTEN or (code in _OF_NODES and scope.nodes):
        return attrs.evolve(reason, facts=facts if code in _BOUNDS else {})
    if code in {"AtFairShare", "ModelOwedToOthers"} and scope.reads(str(facts.get("queue"))):
        return reason
    if code == "NoRoom" and (text := str(facts.get("without_others") or "")):
        return Reason(code, text)
    if code not in BY_CODE and any(reason.text == each.message for each in job.explanations):
        return Reason(code, reason.text)  # a plugin's own text, which the condition has as well
    return _general(reason)


def _is_ones_own(trial: ChangeTrial, scope: Scope) -> bool:
    """Return whether a change concerns the reader's job, or something else that the reader may see."""
    change, before = trial.change, trial.before
    if before is None or (change.field == "queue" and not scope.reads(change.new)):
        return False
    # Such changes reveal values of node labels, devices of nodes, and device classes.
    of_nodes = bool(change.new) and change.field.startswith(("nodeSelector", "affinity"))
    of_nodes |= change.field.startswith(NODE_FIELD)
    if (of_nodes or change.field in (ATTACH_LIMIT, DEVICE_CLASS)) and not scope.nodes:
        return False
    changed = [queue for queue, old in zip(change.objects.queues, before.queues, strict=False) if queue is not old]
    return all(scope.reads(queue.metadata.name) for queue in changed)


def _general(reason: Reason[str]) -> Reason[str]:
    """Return the general meaning of a reason, since its own text may mention others."""
    known = BY_CODE.get(reason.code)
    text = reason.code if known is None else known.means.rstrip(".")
    return Reason(reason.code, f"{text[:1].lower()}{text[1:]}")


def _is_own(each: Evidence, scope: Scope) -> bool:
    label, queue = each.label, each.values.get("queue")
    if label in _EVIDENCE_OF_JOBS or label.startswith("on "):
        return True
    if label in {"taking", queue}:
        return scope.reads(str(queue))
    counts_nodes = label.endswith((" node", " nodes")) or label.startswith("by ") or "nodes" in each.values
    return scope.nodes and (label in _EVIDENCE_OF_NODES or counts_nodes)


# --- Users of nodes --------------------------------------------------------------------------------------------------


def _other(queue: str, state: str) -> dict[str, str]:
    """Return the fields of the one tenant that stands for all others on a node."""
    return {"job": FOREIGN_JOB, "namespace": FOREIGN_NAMESPACE, "queue": queue, "pod": FOREIGN_POD, "state": state}


def _order(slot: Slot) -> tuple[int, bool, tuple[tuple[str, str, str, str, int], ...]]:
    users = tuple((user.queue, user.job, user.pod, user.state, user.share) for user in slot.users)
    return _STATES.index(slot.state), any(user.job == FOREIGN_JOB for user in slot.users), users
