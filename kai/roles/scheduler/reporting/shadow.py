"""Compares our decisions with those of another scheduler, pod by pod. A state machine without clock and I/O.

After each cycle it receives the cycle's input and decisions. The input shows what the other scheduler did since: pods
with a new node (or a bind request that names one), and pods that were evicted. Our decisions are not carried out, so
each cycle decides again on pods that the other left undecided. Of several decisions on a pod the newest counts, because
it takes the other's earlier actions into account. Each pod is counted once as bound and once as evicted.

Two pods of the same job and shape are twins: it is no difference if they swap nodes.

`Placements` extracts what the cluster shows of the other scheduler at one moment: the nodes of its pods. The functions
`word_of_evictor`, `words_of_groups` and `word_of_pod` read its reasons from conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import numpy as np

from kai.api import names
from kai.api.kinds import key_of
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroupSpec
from kai.basics.wording import first_of
from kai.facts.model.pod import Status
from kai.framework.decisions import Bind, Evict
from kai.roles.scheduler.feedback.moved_pods import group_of

if TYPE_CHECKING:
    from kai.api.cluster_objects import ClusterObjects
    from kai.facts.state.snapshot import Snapshot
    from kai.roles.scheduler.cycle.cycling import Done
    from kai.roles.scheduler.publishing.explanations import GroupAccount

_NOT_OF_SCHEDULERS: Final = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"})
"""Reasons of the DisruptionTarget condition that come from other parts of Kubernetes, not from a scheduler."""
_BY_API: Final = "EvictionByEvictionAPI"
_CLOSED: Final = "Failed"

JobKey: TypeAlias = tuple[str, str]
"""Namespace and name."""


@attrs.frozen(kw_only=True)
class Placements:
    """The state of the cluster at one moment, as far as a comparison needs it."""

    pods: Mapping[str, Pod]
    """By UID."""
    placed: Mapping[str, str]
    """Nodes of pods that are bound or being bound, by UID."""
    leaving: frozenset[str]
    holding: frozenset[str]
    """UIDs of pods that hold their resources."""
    room: tuple[object, ...]
    """Capacity of the nodes, and the specs of queues."""

    @classmethod
    def of(cls, objects: ClusterObjects) -> Placements:
        """Return the placements in a cluster. Cost: O(pods)."""
        ordered = {
            (each.metadata.namespace, each.spec.pod_name): each.spec.selected_node
            for each in objects.bind_requests
            if each.status.phase != _CLOSED
        }
        pods = {pod.metadata.uid: pod for pod in objects.pods}
        placed: dict[str, str] = {}
        for uid, pod in pods.items():
            if node := pod.spec.node_name or ordered.get(key_of(pod), ""):
                placed[uid] = node
        leaving = frozenset(uid for uid in placed if pods[uid].metadata.deletion_timestamp is not None)
        ended = {uid for uid in placed if pods[uid].status.phase in ENDED}
        nodes = tuple((each.metadata.name, each.spec, each.status.allocatable) for each in objects.nodes)
        room = (nodes, tuple((each.metadata.name, each.spec) for each in objects.queues))
        return cls(pods=pods, placed=placed, leaving=leaving, holding=frozenset(placed) - leaving - ended, room=room)


def word_of_evictor(pod: Pod, *, is_cordoned: bool) -> str:
    """Return the reason with which a scheduler evicted a pod; "" if its owner, a drain or a kubelet may have."""
    for each in pod.status.conditions:
        if each.type != names.DISRUPTION_TARGET_CONDITION or each.status != "True" or each.reason in _NOT_OF_SCHEDULERS:
            continue
        if each.reason == _BY_API and is_cordoned:
            continue
        return each.message or each.reason or each.type
    return ""


def words_of_groups(objects: ClusterObjects, wanted: set[JobKey]) -> dict[JobKey, str]:
    """Return the messages of the newest conditions of the ``wanted`` groups."""
    if not wanted:
        return {}
    return {
        key_of(each): each.status.scheduling_conditions[-1].message
        for each in objects.pod_groups
        if each.status.scheduling_conditions and key_of(each) in wanted
    }


def word_of_pod(pod: Pod | None) -> str:
    """Return the reason with which a scheduler left a pod without a node; "" if there is none."""
    conditions = () if pod is None else pod.status.conditions
    return next((each.message for each in conditions if each.type == "PodScheduled" and each.status == "False"), "")


BIND: Final = "bind"
EVICT: Final = "evict"
_FITS: Final = "it fits, within the share of its queue"
_HELD: Final = "it fits once pods that have to go are gone"
_KEEPS: Final = "nothing that waits may have its place"
_FEW: Final = 4


class ShadowOutcome(StrEnum):
    """How a decision of the other scheduler, or the lack of one, compares with ours."""

    EQUAL = "equal"
    OTHER_NODE = "other-node"
    WAITS_THERE = "waits-there"
    """We start the pod, but the other leaves it waiting."""
    STARTS_THERE = "starts-there"
    """The other starts the pod, but we leave it waiting."""
    STAYS_THERE = "stays-there"
    """We evict the pod, but with the other it keeps running."""
    EVICTED_THERE = "evicted-there"
    UNSEEN = "unseen"
    """The other was faster than our cycle, or the objects changed in between: there is nothing to compare."""


@attrs.frozen(kw_only=True)
class Difference:
    """Pods of one job on which the two decide differently, with both reasons."""

    time: float
    cycle: int
    outcome: ShadowOutcome
    job: str
    """``namespace/name``."""
    queue: str
    pods: tuple[str, ...]
    ours: str
    our_reason: str
    theirs: str
    their_reason: str
    """Reason from conditions; "" if they hold none."""


@attrs.frozen(kw_only=True)
class ShadowSubject:
    """A pod, its job and its queue."""

    pod: str
    job: JobKey
    queue: str


@attrs.define(kw_only=True)
class _Start:
    """A pod that we start, or nominate for a node."""

    subject: ShadowSubject
    node: str
    kin: tuple[object, ...]
    """Equal for twins, which may swap nodes."""
    since: float
    is_held: bool


@attrs.frozen(kw_only=True)
class _Departure:
    subject: ShadowSubject
    why: str
    since: float


@attrs.frozen(kw_only=True)
class _Wait:
    subject: ShadowSubject
    why: str
    spec: PodGroupSpec | None
    """Spec of its group while it waited."""


@attrs.define(eq=False, kw_only=True)
class Shadow:
    """Compares the decisions of successive cycles. Not thread-safe."""

    scheduler_name: str
    """Name of the other scheduler in pods."""
    patience: float
    """How many seconds the other may take for a decision that we made, before that is a difference."""
    counts: Counter[tuple[str, ShadowOutcome]] = attrs.field(factory=Counter)
    """Count of pods by decision and outcome."""
    _seen: Placements | None = None
    _starts: dict[str, _Start] = attrs.field(factory=dict)
    _departures: dict[str, _Departure] = attrs.field(factory=dict)
    _waits: dict[str, _Wait] = attrs.field(factory=dict)
    _counted: set[tuple[str, str]] = attrs.field(factory=set)
    """Decisions that are counted already, with the pod's UID."""
    _cycle: int = 0
    _time: float = 0.0

    def look(self, done: Done, now: float) -> tuple[Difference, ...]:
        """Take a cycle, and return new differences; ``now`` is the time of a monotonic clock."""
        before, seen = self._seen, Placements.of(done.objects)
        self._seen, self._cycle, self._time = seen, done.snapshot.revision, done.snapshot.now
        specs = {key_of(each): each.spec for each in done.objects.pod_groups}
        found: list[Difference] = []
        if before is not None:
            found += self._bound(before, seen, specs)
            found += self._evicted(before, seen, done.objects)
        self._forget(seen)
        self._note(done, specs, now)
        found += self._overdue(seen, done.objects, now)
        return tuple(_joined(found))

    def due(self) -> float | None:
        """Return when an open decision of ours becomes a difference if the other does not act; None for never."""
        times = [each.since for each in self._starts.values() if not each.is_held]
        times += [each.since for each in self._departures.values()]
        return min(times) + self.patience if times else None

    # --- What the other did --------------------------------------------------------------------------------------

    def _bound(
        self, before: Placements, seen: Placements, specs: Mapping[JobKey, PodGroupSpec]
    ) -> Iterator[Difference]:
        fresh = [uid for uid in seen.placed if uid not in before.placed and uid not in seen.leaving]
        changed = bool(before.holding - seen.holding) or before.room != seen.room
        # A gang that has grown since may start now: that it waited in our last cycle is no difference.
        grown = {group_of(pod) for uid, pod in seen.pods.items() if uid not in before.pods}
        for uid in fresh:
            if seen.pods[uid].spec.scheduler_name != self.scheduler_name or not self._is_first(BIND, uid):
                continue
            start, wait, node = self._starts.get(uid), self._waits.get(uid), seen.placed[uid]
            if start is not None:
                self._swap(uid, start, node)
                outcome = ShadowOutcome.EQUAL if start.node == node else ShadowOutcome.OTHER_NODE
                self.counts[BIND, outcome] += 1
                if outcome is not ShadowOutcome.EQUAL:
                    why = _HELD if start.is_held else _FITS
                    yield self._difference(outcome, start.subject, f"starts on {start.node}", why, f"starts on {node}")
            elif wait is None or changed or wait.subject.job in grown or wait.spec != specs.get(wait.subject.job):
                self.counts[BIND, ShadowOutcome.UNSEEN] += 1
            else:
                self.counts[BIND, ShadowOutcome.STARTS_THERE] += 1
                yield self._difference(ShadowOutcome.STARTS_THERE, wait.subject, "waits", wait.why, f"starts on {node}")

    def _swap(self, uid: str, start: _Start, node: str) -> None:
        """Swap the nodes of a pod and its twin if that explains the other's decision."""
        if start.node == node:
            return
        for other, twin in self._starts.items():
            if other != uid and twin.kin == start.kin and twin.node == node and (BIND, other) not in self._counted:
                start.node, twin.node = node, start.node
                return

    def _evicted(self, before: Placements, seen: Placements, objects: ClusterObjects) -> Iterator[Difference]:
        cordoned = {each.metadata.name for each in objects.nodes if each.spec.unschedulable}
        queues = {key_of(each): each.spec.queue for each in objects.pod_groups}
        # Sorted: a set of texts iterates differently in each process, and differences are logged in this order.
        for uid in sorted(seen.leaving - before.leaving):
            pod = seen.pods[uid]
            if uid not in before.placed or pod.spec.scheduler_name != self.scheduler_name:
                continue
            if uid in self._departures and self._is_first(EVICT, uid):
                self.counts[EVICT, ShadowOutcome.EQUAL] += 1
                continue
            why = word_of_evictor(pod, is_cordoned=seen.placed[uid] in cordoned)
            if why and self._is_first(EVICT, uid):
                self.counts[EVICT, ShadowOutcome.EVICTED_THERE] += 1
                job = group_of(pod)
                subject = ShadowSubject(pod=pod.metadata.name, job=job, queue=queues.get(job, ""))
                yield self._difference(ShadowOutcome.EVICTED_THERE, subject, "stays", _KEEPS, "is evicted", why)
        for uid in sorted(before.holding - seen.pods.keys()):  # deleted between two cycles, so never seen terminating
            if uid in self._departures and self._is_first(EVICT, uid):
                self.counts[EVICT, ShadowOutcome.EQUAL] += 1

    def _is_first(self, decision: str, uid: str) -> bool:
        """Return whether a decision was not counted yet, and mark it as counted."""
        if (decision, uid) in self._counted:
            return False
        self._counted.add((decision, uid))
        return True

    def _forget(self, seen: Placements) -> None:
        """Forget decisions that the other has made too, and pods that are gone."""
        for uid in [each for each in self._starts if each in seen.placed or each not in seen.pods]:
            del self._starts[uid]
        for uid in [each for each in self._departures if each not in seen.holding]:
            del self._departures[uid]
        self._counted = {(decision, uid) for decision, uid in self._counted if uid in seen.pods}

    # --- What we decide ------------------------------------------------------------------------------------------

    def _note(self, done: Done, specs: Mapping[JobKey, PodGroupSpec], now: float) -> None:
        snapshot = done.snapshot
        later = {*done.report.left.tolist(), *snapshot.crowds.waiting.tolist()}
        accounts = {each.uid: each for each in done.overall.groups}
        starts, departures = self._decided(done, now)
        waits: dict[str, _Wait] = {}
        for row in np.flatnonzero(snapshot.pod_status == Status.PENDING).tolist():
            uid, group = snapshot.pods[row].uid, int(snapshot.pod_group[row])
            if uid in starts or group < 0:
                continue
            if group in later:
                if (kept := self._starts.get(uid)) is not None:
                    starts[uid] = kept
                continue
            subject = _subject(snapshot, row)
            why = _why(accounts.get(snapshot.groups[group].uid))
            waits[uid] = _Wait(subject=subject, why=why, spec=specs.get(subject.job))
        if later:  # groups without a turn keep the evictions that were decided for them earlier
            departures = {**self._departures, **departures}
        self._starts, self._departures, self._waits = starts, departures, waits

    def _decided(self, done: Done, now: float) -> tuple[dict[str, _Start], dict[str, _Departure]]:
        """Return the uncounted decisions of a cycle; one that is repeated keeps its time."""
        snapshot = done.snapshot
        starts: dict[str, _Start] = {}
        departures: dict[str, _Departure] = {}
        for each in done.decided:
            uid, subject = snapshot.pods[each.pod].uid, _subject(snapshot, each.pod)
            if isinstance(each, Evict):
                if (EVICT, uid) not in self._counted:
                    known = self._departures.get(uid)
                    since = now if known is None else known.since
                    departures[uid] = _Departure(subject=subject, why=_cause(snapshot, each), since=since)
                continue
            before = self._starts.get(uid)
            is_held = not isinstance(each, Bind)
            starts[uid] = _Start(
                subject=subject,
                node=snapshot.nodes[each.node].name,
                # With the revision: only within one cycle are two pods given two places at once, so that it is the same
                # to swap them.
                kin=(snapshot.revision, subject.job, int(snapshot.pod_shape[each.pod]), is_held),
                # The patience begins with the first cycle that would bind the pod. While its place is only promised,
                # the other cannot have bound it either.
                since=now if before is None or before.is_held else before.since,
                is_held=is_held,
            )
        return {uid: each for uid, each in starts.items() if (BIND, uid) not in self._counted}, departures

    # --- What the other leaves undone ----------------------------------------------------------------------------

    def _overdue(self, seen: Placements, objects: ClusterObjects, now: float) -> Iterator[Difference]:
        late = {
            uid: each for uid, each in self._starts.items() if not each.is_held and now - each.since >= self.patience
        }
        words = words_of_groups(objects, {each.subject.job for each in late.values()})
        for uid, start in late.items():
            del self._starts[uid]
            self._counted.add((BIND, uid))
            self.counts[BIND, ShadowOutcome.WAITS_THERE] += 1
            why = words.get(start.subject.job, "") or word_of_pod(seen.pods.get(uid))
            yield self._difference(
                ShadowOutcome.WAITS_THERE, start.subject, f"starts on {start.node}", _FITS, "waits", why
            )
        for uid, leaves in list(self._departures.items()):
            if now - leaves.since >= self.patience:
                del self._departures[uid]
                self._counted.add((EVICT, uid))
                self.counts[EVICT, ShadowOutcome.STAYS_THERE] += 1
                yield self._difference(ShadowOutcome.STAYS_THERE, leaves.subject, "is evicted", leaves.why, "stays")

    def _difference(
        self,
        outcome: ShadowOutcome,
        subject: ShadowSubject,
        ours: str,
        our_reason: str,
        theirs: str,
        their_reason: str = "",
    ) -> Difference:
        return Difference(
            time=self._time,
            cycle=self._cycle,
            outcome=outcome,
            job="/".join(subject.job),
            queue=subject.queue,
            pods=(subject.pod,),
            ours=ours,
            our_reason=our_reason,
            theirs=theirs,
            their_reason=their_reason,
        )


# --- Words ---------------------------------------------------------------------------------------------------------


def _subject(snapshot: Snapshot, row: int) -> ShadowSubject:
    pod, group = snapshot.pods[row], int(snapshot.pod_group[row])
    if group < 0:
        return ShadowSubject(pod=pod.name, job=(pod.namespace, pod.group), queue="")
    facts = snapshot.groups[group]
    return ShadowSubject(pod=pod.name, job=(facts.namespace, facts.name), queue=facts.queue)


def _why(account: GroupAccount | None) -> str:
    return "" if account is None else account.unschedulable or account.not_ready


def _cause(snapshot: Snapshot, each: Evict) -> str:
    gains = snapshot.groups[each.aggressor].key if each.aggressor >= 0 else ""
    return f"{each.cause.name}{f' for {gains}' if gains else ''}{f': {each.rule}' if each.rule else ''}"


def _joined(found: Iterable[Difference]) -> Iterator[Difference]:
    """Merge the differences of a job with the same outcome, and name a few of the nodes."""
    together: dict[tuple[str, ShadowOutcome], list[Difference]] = {}
    for each in found:
        together.setdefault((each.job, each.outcome), []).append(each)
    for alike in together.values():
        yield attrs.evolve(
            alike[0],
            pods=tuple(sorted(each.pods[0] for each in alike)),
            ours=first_of(sorted({each.ours for each in alike}), _FEW),
            theirs=first_of(sorted({each.theirs for each in alike}), _FEW),
        )
