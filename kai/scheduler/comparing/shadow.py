"""Shadow: what is decided here beside what another scheduler did, pod by pod. A machine without clock and I/O.

After each cycle it is shown what the cycle was given, and what it decided. What is given shows what the other scheduler
did since: pods that have a node now (or a bind request that names one), pods that were made to go. Nothing of ours is
carried out, so each cycle decides again about what the other left undecided: of several decisions about one pod the
newest counts, because it takes into account what the other did before. Each pod is counted once as bound and once as
evicted.

A pod of one job and shape may take the node of its twin: which of them stands where is no difference.

What shows of another scheduler in the cluster: where its pods are at one moment, and what conditions say of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import numpy as np

from kai.api import names
from kai.api.kinds import ClusterObjects, key_of
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroupSpec
from kai.basics.wording import first_of
from kai.framework.decisions import Bind, Evict
from kai.model.pod import Status
from kai.scheduler.feedback.moved_pods import group_of

if TYPE_CHECKING:
    from kai.scheduler.cycle.cycling import Done
    from kai.scheduler.publishing.explanations import GroupAccount
    from kai.state.snapshot import Snapshot

_NOT_OF_SCHEDULERS: Final = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"})
"""Reasons of the condition DisruptionTarget with which other parts of Kubernetes make pods go."""
_BY_API: Final = "EvictionByEvictionAPI"
_CLOSED: Final = "Failed"

JobKey: TypeAlias = tuple[str, str]
"""Namespace and name."""


@attrs.frozen(kw_only=True)
class Placements:
    """What counts of the cluster at one moment."""

    pods: Mapping[str, Pod]
    """By UID."""
    placed: Mapping[str, str]
    """The nodes of pods that have one or are being bound, by UID."""
    leaving: frozenset[str]
    holding: frozenset[str]
    """UIDs of pods that hold what they asked for."""
    room: tuple[object, ...]
    """What the cluster offers, and what queues may have of it."""

    @classmethod
    def of(cls, objects: ClusterObjects) -> Placements:
        """Return what counts. Cost: O(pods)."""
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
    """Return with which words a scheduler made a pod go; "" where its owner, a drain or a kubelet may have."""
    for each in pod.status.conditions:
        if each.type != names.DISRUPTION_TARGET_CONDITION or each.status != "True" or each.reason in _NOT_OF_SCHEDULERS:
            continue
        if each.reason == _BY_API and is_cordoned:
            continue
        return each.message or each.reason or each.type
    return ""


def words_of_groups(objects: ClusterObjects, wanted: set[JobKey]) -> dict[JobKey, str]:
    """Return what the newest conditions of some groups say."""
    if not wanted:
        return {}
    return {
        key_of(each): each.status.scheduling_conditions[-1].message
        for each in objects.pod_groups
        if each.status.scheduling_conditions and key_of(each) in wanted
    }


def word_of_pod(pod: Pod | None) -> str:
    """Return with which words a scheduler said that a pod has no node; "" if none did."""
    conditions = () if pod is None else pod.status.conditions
    return next((each.message for each in conditions if each.type == "PodScheduled" and each.status == "False"), "")


BIND: Final = "bind"
EVICT: Final = "evict"
_FITS: Final = "it fits, within the share of its queue"
_HELD: Final = "it fits once pods that have to go are gone"
_KEEPS: Final = "nothing that waits may have its place"
_FEW: Final = 4


class Outcome(StrEnum):
    """How a decision of the other scheduler, or one that it did not make, compares with ours."""

    EQUAL = "equal"
    OTHER_NODE = "other-node"
    WAITS_THERE = "waits-there"
    """We start the pod, and there it still waits."""
    STARTS_THERE = "starts-there"
    """There the pod starts, and here it waits."""
    STAYS_THERE = "stays-there"
    """We evict the pod, and there it still runs."""
    EVICTED_THERE = "evicted-there"
    UNSEEN = "unseen"
    """The other was quicker than our look, or what we looked at changed in between: there is nothing to compare."""


@attrs.frozen(kw_only=True)
class Difference:
    """Pods of one job about which the two decide otherwise, with what both say."""

    time: float
    cycle: int
    outcome: Outcome
    job: str
    """``namespace/name``."""
    queue: str
    pods: tuple[str, ...]
    ours: str
    our_reason: str
    theirs: str
    their_reason: str
    """What conditions say of it; "" where they say nothing."""


@attrs.frozen(kw_only=True)
class Subject:
    """A pod, its job and its queue."""

    pod: str
    job: JobKey
    queue: str


@attrs.define(kw_only=True)
class _Start:
    """A pod that we start, or hold a place for."""

    subject: Subject
    node: str
    kin: tuple[object, ...]
    """Equal for pods that may take each other's nodes."""
    since: float
    is_held: bool


@attrs.frozen(kw_only=True)
class _Departure:
    subject: Subject
    why: str
    since: float


@attrs.frozen(kw_only=True)
class _Wait:
    subject: Subject
    why: str
    spec: PodGroupSpec | None
    """What its group wanted when it waited."""


@attrs.define(eq=False, kw_only=True)
class Shadow:
    """Compares, cycle after cycle. One thread at a time."""

    scheduler_name: str
    """Of the other scheduler, as pods name it."""
    patience: float
    """For how many seconds the other may leave undone what we decided before that is a difference."""
    counts: Counter[tuple[str, Outcome]] = attrs.field(factory=Counter)
    """How many pods, by what was decided and how it compares."""
    _seen: Placements | None = None
    _starts: dict[str, _Start] = attrs.field(factory=dict)
    _departures: dict[str, _Departure] = attrs.field(factory=dict)
    _waits: dict[str, _Wait] = attrs.field(factory=dict)
    _told: set[tuple[str, str]] = attrs.field(factory=set)
    """What was counted already: the decision and the pod's UID."""
    _cycle: int = 0
    _time: float = 0.0

    def look(self, done: Done, now: float) -> tuple[Difference, ...]:
        """Take a cycle, and return the differences that are known since; ``now`` is a time that never goes back."""
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
        """Return when something that we decided becomes a difference if the other does not act; None for never."""
        times = [each.since for each in self._starts.values() if not each.is_held]
        times += [each.since for each in self._departures.values()]
        return min(times) + self.patience if times else None

    # --- What the other did --------------------------------------------------------------------------------------

    def _bound(
        self, before: Placements, seen: Placements, specs: Mapping[JobKey, PodGroupSpec]
    ) -> Iterator[Difference]:
        fresh = [uid for uid in seen.placed if uid not in before.placed and uid not in seen.leaving]
        changed = bool(before.holding - seen.holding) or before.room != seen.room
        grown = {group_of(pod) for uid, pod in seen.pods.items() if uid not in before.pods}
        for uid in fresh:
            if seen.pods[uid].spec.scheduler_name != self.scheduler_name or not self._is_first(BIND, uid):
                continue
            start, wait, node = self._starts.get(uid), self._waits.get(uid), seen.placed[uid]
            if start is not None:
                self._swap(uid, start, node)
                outcome = Outcome.EQUAL if start.node == node else Outcome.OTHER_NODE
                self.counts[BIND, outcome] += 1
                if outcome is not Outcome.EQUAL:
                    why = _HELD if start.is_held else _FITS
                    yield self._difference(outcome, start.subject, f"starts on {start.node}", why, f"starts on {node}")
            elif wait is None or changed or wait.subject.job in grown or wait.spec != specs.get(wait.subject.job):
                self.counts[BIND, Outcome.UNSEEN] += 1
            else:
                self.counts[BIND, Outcome.STARTS_THERE] += 1
                yield self._difference(Outcome.STARTS_THERE, wait.subject, "waits", wait.why, f"starts on {node}")

    def _swap(self, uid: str, start: _Start, node: str) -> None:
        """Let a pod have the node of its twin, and its twin that of the pod."""
        if start.node == node:
            return
        for other, twin in self._starts.items():
            if other != uid and twin.kin == start.kin and twin.node == node and (BIND, other) not in self._told:
                start.node, twin.node = node, start.node
                return

    def _evicted(self, before: Placements, seen: Placements, objects: ClusterObjects) -> Iterator[Difference]:
        cordoned = {each.metadata.name for each in objects.nodes if each.spec.unschedulable}
        queues = {key_of(each): each.spec.queue for each in objects.pod_groups}
        for uid in sorted(seen.leaving - before.leaving):
            pod = seen.pods[uid]
            if uid not in before.placed or pod.spec.scheduler_name != self.scheduler_name:
                continue
            if uid in self._departures and self._is_first(EVICT, uid):
                self.counts[EVICT, Outcome.EQUAL] += 1
                continue
            why = word_of_evictor(pod, is_cordoned=seen.placed[uid] in cordoned)
            if why and self._is_first(EVICT, uid):
                self.counts[EVICT, Outcome.EVICTED_THERE] += 1
                job = group_of(pod)
                subject = Subject(pod=pod.metadata.name, job=job, queue=queues.get(job, ""))
                yield self._difference(Outcome.EVICTED_THERE, subject, "stays", _KEEPS, "is evicted", why)
        for uid in sorted(before.holding - seen.pods.keys()):  # it ended at once, so that no look found it leaving
            if uid in self._departures and self._is_first(EVICT, uid):
                self.counts[EVICT, Outcome.EQUAL] += 1

    def _is_first(self, decision: str, uid: str) -> bool:
        """Return whether this was not counted yet; from now on it is."""
        if (decision, uid) in self._told:
            return False
        self._told.add((decision, uid))
        return True

    def _forget(self, seen: Placements) -> None:
        """Forget what is decided, and pods that are gone."""
        for uid in [each for each in self._starts if each in seen.placed or each not in seen.pods]:
            del self._starts[uid]
        for uid in [each for each in self._departures if each not in seen.holding]:
            del self._departures[uid]
        self._told = {(decision, uid) for decision, uid in self._told if uid in seen.pods}

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
        if later:  # what would be evicted for a group that had no turn is decided once it has one
            departures = {**self._departures, **departures}
        self._starts, self._departures, self._waits = starts, departures, waits

    def _decided(self, done: Done, now: float) -> tuple[dict[str, _Start], dict[str, _Departure]]:
        """Return what a cycle decided, less what was counted; what was decided before keeps its time."""
        snapshot = done.snapshot
        starts: dict[str, _Start] = {}
        departures: dict[str, _Departure] = {}
        for each in done.decided:
            uid, subject = snapshot.pods[each.pod].uid, _subject(snapshot, each.pod)
            if isinstance(each, Evict):
                if (EVICT, uid) not in self._told:
                    known = self._departures.get(uid)
                    since = now if known is None else known.since
                    departures[uid] = _Departure(subject=subject, why=_cause(snapshot, each), since=since)
                continue
            before = self._starts.get(uid)
            is_held = not isinstance(each, Bind)
            starts[uid] = _Start(
                subject=subject,
                node=snapshot.nodes[each.node].name,
                kin=(snapshot.revision, subject.job, int(snapshot.pod_shape[each.pod]), is_held),
                since=now if before is None or before.is_held else before.since,
                is_held=is_held,
            )
        return {uid: each for uid, each in starts.items() if (BIND, uid) not in self._told}, departures

    # --- What the other leaves undone ----------------------------------------------------------------------------

    def _overdue(self, seen: Placements, objects: ClusterObjects, now: float) -> Iterator[Difference]:
        late = {
            uid: each for uid, each in self._starts.items() if not each.is_held and now - each.since >= self.patience
        }
        words = words_of_groups(objects, {each.subject.job for each in late.values()})
        for uid, start in late.items():
            del self._starts[uid]
            self._told.add((BIND, uid))
            self.counts[BIND, Outcome.WAITS_THERE] += 1
            why = words.get(start.subject.job, "") or word_of_pod(seen.pods.get(uid))
            yield self._difference(Outcome.WAITS_THERE, start.subject, f"starts on {start.node}", _FITS, "waits", why)
        for uid, leaves in list(self._departures.items()):
            if now - leaves.since >= self.patience:
                del self._departures[uid]
                self._told.add((EVICT, uid))
                self.counts[EVICT, Outcome.STAYS_THERE] += 1
                yield self._difference(Outcome.STAYS_THERE, leaves.subject, "is evicted", leaves.why, "stays")

    def _difference(
        self, outcome: Outcome, subject: Subject, ours: str, our_reason: str, theirs: str, their_reason: str = ""
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


def _subject(snapshot: Snapshot, row: int) -> Subject:
    pod, group = snapshot.pods[row], int(snapshot.pod_group[row])
    if group < 0:
        return Subject(pod=pod.name, job=(pod.namespace, pod.group), queue="")
    facts = snapshot.groups[group]
    return Subject(pod=pod.name, job=(facts.namespace, facts.name), queue=facts.queue)


def _why(account: GroupAccount | None) -> str:
    return "" if account is None else account.unschedulable or account.not_ready


def _cause(snapshot: Snapshot, each: Evict) -> str:
    gains = snapshot.groups[each.aggressor].key if each.aggressor >= 0 else ""
    return f"{each.cause.name}{f' for {gains}' if gains else ''}{f': {each.rule}' if each.rule else ''}"


def _joined(found: Iterable[Difference]) -> Iterator[Difference]:
    """Yield one difference for all pods of a job that differ in the same way, with the nodes of a few."""
    together: dict[tuple[str, Outcome], list[Difference]] = {}
    for each in found:
        together.setdefault((each.job, each.outcome), []).append(each)
    for alike in together.values():
        yield attrs.evolve(
            alike[0],
            pods=tuple(sorted(each.pods[0] for each in alike)),
            ours=first_of(sorted({each.ours for each in alike}), _FEW),
            theirs=first_of(sorted({each.theirs for each in alike}), _FEW),
        )
