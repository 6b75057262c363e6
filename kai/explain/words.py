"""Why a group waits, in one line of plain words: the dominant reason, with its code.

Several reasons can hold at once. The first of these that applies is told, because without its removal the others do not
matter: the queue is missing; too few pods exist; impossible with these nodes, even if they were empty; a limit; a
quota that non-preemptible pods may not pass; no node matches; a plugin or the gang finds no room; fairness forbids
taking; others are in the way.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kai.engine.observe import Silent
from kai.engine.policy import checked_mask
from kai.engine.profile import Profile
from kai.engine.records import GroupRecord
from kai.engine.report import CycleReport
from kai.engine.session import Session
from kai.explain import messages
from kai.explain.phrases import Words, counted, listed, number, plain, quantity
from kai.framework.decisions import Recorder
from kai.framework.hooks import Dependence
from kai.framework.verdict import Code, Histogram, Reason
from kai.kernels import fit
from kai.model.axis import CPU, GPU, GPU_UNIT, MEMORY, UNBOUNDED
from kai.model.pod import GpuKind
from kai.model.podgroup import PodGroup
from kai.model.rows import Bools, GroupRow, Int64s, PodRow, SubGroupRow
from kai.model.status import ALIVE, Status, within
from kai.state.facts import claimable
from kai.state.kept import node_columns
from kai.state.snapshot import Snapshot

_NOTHING = GroupRecord()


class Teller:
    """Tells for the groups of one cycle why they wait.

    Cost: plugins are asked what they would refuse on an empty cluster, once per shape, and only when it matters.
    """

    def __init__(self, snapshot: Snapshot, profile: Profile, report: CycleReport) -> None:
        """Look at a cycle that is over."""
        self._snapshot = snapshot
        self._profile = profile
        self._report = report
        self._objections: dict[int, tuple[Bools, Mapping[str, Sequence[int]]]] = {}
        self._rooms: dict[int, Int64s] = {}

    def tell(self, group: int) -> Words:
        """Return the dominant reason why pods of ``group`` wait."""
        return next(self._reasons(group))

    def tell_all(self, group: int) -> tuple[Words, ...]:
        """Return every reason that holds, the dominant one first, each code once."""
        found: dict[str, Words] = {}
        for words in self._reasons(group):
            found.setdefault(words.code, words)
        return tuple(found.values())

    def objections(self, pod: int) -> Mapping[str, Sequence[int]]:
        """Return the nodes that would refuse ``pod`` even if they were empty, by what they object to."""
        return self._static(pod)[1]

    def _reasons(self, group: int) -> Iterator[Words]:
        """Yield everything that keeps the group waiting, dominant first; never nothing."""
        facts = self._snapshot.groups[group]
        record = self._report.records.get(group, _NOTHING)
        pods = self._pods(group)
        if facts.held:
            yield Words(Code.HELD, facts.held)
            return
        yield from self._queue(facts)
        yield from self._readiness(facts, pods)
        waiting = [pod for pod in pods if self._report.status[pod] == Status.PENDING]
        if not waiting:
            yield Words(Code.HELD_FOR_LEAVING, held_text(self._held_nodes(pods)))
            return
        yield from self._impossible(group, pods)
        if later := [reason for reason in record.reasons if reason.code is Code.WAITS_FOR_TURN]:
            yield Words(Code.WAITS_FOR_TURN, messages.reason_text(later[0]), later[0].facts)
            return
        yield from _bounds(record.reasons)
        yield from self._matches(waiting, record)
        yield from _no_room(record, facts)
        yield from self._forbidden(record, facts, waiting)
        yield from self._others(record, waiting)

    # ------------------------------------------------------------------ facts

    def _pods(self, group: int) -> list[int]:
        return [pod for pod in self._members[group] if within(int(self._snapshot.pod_status[pod]), ALIVE)]

    @cached_property
    def _session(self) -> Session:
        """The session in which plugins are asked, with nothing decided."""
        return Session(self._snapshot, self._profile, Recorder(), Silent())

    @cached_property
    def _members(self) -> list[list[int]]:
        """The pods of each group."""
        members: list[list[int]] = [[] for _ in self._snapshot.groups]
        for pod in np.flatnonzero(self._snapshot.pod_group >= 0):
            members[self._snapshot.pod_group[pod]].append(int(pod))
        return members

    @cached_property
    def _allocatable(self) -> Int64s:
        """int64[N, R]: what nodes have when they are empty; what claims serve where there is none is not missing."""
        amounts = node_columns(self._snapshot).allocatable
        return np.where((amounts == 0) & claimable(self._snapshot), UNBOUNDED, amounts)

    @cached_property
    def _parents(self) -> frozenset[int]:
        """The rows of queues that have children."""
        return frozenset(queue.parent for queue in self._snapshot.queues)

    def _held_nodes(self, pods: Sequence[int]) -> list[str]:
        held = [pod for pod in pods if self._report.status[pod] == Status.PIPELINED]
        return sorted({self._snapshot.nodes[int(self._report.node[pod])].name for pod in held})

    # ------------------------------------------------------------------ before anything is tried

    def _queue(self, facts: PodGroup) -> Iterator[Words]:
        if facts.queue_row < 0:
            yield Words(Code.QUEUE_MISSING, f"queue {facts.queue} does not exist", {"queue": facts.queue})
        elif facts.queue_row in self._parents:
            below = [queue for queue in self._snapshot.queues if queue.parent == facts.queue_row]
            titles = ", ".join(queue.title for queue in below)
            text = f"queue {facts.queue} has children; only a leaf queue runs jobs: {titles}"
            yield Words("QueueNotLeaf", text, {"queue": facts.queue, "leaves": tuple(queue.name for queue in below)})

    def _readiness(self, facts: PodGroup, pods: Sequence[int]) -> Iterator[Words]:
        status = [int(self._snapshot.pod_status[pod]) for pod in pods]
        gated = status.count(Status.GATED)
        needed = least_pods(facts)
        if len(pods) - gated < needed and gated and len(pods) >= needed:
            yield Words("Gated", f"{gated} of its {len(pods)} pods have scheduling gates that nobody has opened yet")
        elif len(pods) < needed:
            text = f"only {len(pods)} of the {needed} pods that must start together exist"
            yield Words(Code.NOT_READY, text, {"needed": needed, "existing": len(pods)})
        elif status and all(each == Status.GATED for each in status):
            yield Words("Gated", "its pods have scheduling gates that nobody has opened yet")

    # ------------------------------------------------------------------ impossible with these nodes

    def _impossible(self, group: int, pods: Sequence[int]) -> Iterator[Words]:
        nodes, facts = self._snapshot.nodes, self._snapshot.groups[group]
        if not nodes:
            yield Words("NoNodes", "there are no nodes")
            return
        shapes = sorted({int(self._snapshot.pod_shape[pod]) for pod in pods})
        for shape in shapes:
            if not self._room(shape).any():
                yield self._largest(shape)
                return
        if len(shapes) != 1:
            return
        room, needed = self._room(shapes[0]), least_pods(facts)
        if needed > 1 and int(room.sum()) < needed:
            text = f"its {needed} pods must start together, and only {int(room.sum())} would fit on empty nodes"
            yield Words("ClusterTooSmall", text, {"needed": needed, "fit": int(room.sum())})
        yield from self._domains_too_small(group, shapes[0], room, max(needed, 1))

    def _room(self, shape: int) -> Int64s:
        """Return int64[N]: how many pods of ``shape`` would fit on each node if it were empty."""
        if shape not in self._rooms:
            self._rooms[shape] = self._count_room(shape)
        return self._rooms[shape]

    def _count_room(self, shape: int) -> Int64s:
        request = self._snapshot.requests[shape]
        gpu = self._snapshot.shapes[shape].gpu
        asked = request.copy()
        if gpu.kind is GpuKind.FRACTION:
            asked[GPU] = gpu.devices * (GPU_UNIT if not 0 < gpu.portion < 1 else round(gpu.portion * GPU_UNIT))
        wanted = asked > 0
        counts: Int64s = (self._allocatable[:, wanted] // asked[wanted]).min(axis=1)
        if gpu.kind is GpuKind.MEMORY:
            per_device = np.array([node.gpu_memory // gpu.memory for node in self._snapshot.nodes], np.int64)
            devices = self._allocatable[:, GPU] // GPU_UNIT
            counts = np.minimum(counts, devices * per_device // gpu.devices)
        return counts

    def _largest(self, shape: int) -> Words:
        request, axis = self._snapshot.requests[shape], self._snapshot.axis
        for resource in (GPU, CPU, MEMORY, *range(MEMORY + 2, len(axis))):
            most = int(self._allocatable[:, resource].max())
            if request[resource] > most:
                name = axis.names[resource]
                asked = quantity(int(request[resource]), name)
                text = f"a pod asks for {asked}, the largest node has {quantity(most, name)}"
                facts = {"resource": name, "requested": int(request[resource]), "most": most}
                return Words("NoNodeLargeEnough", text, facts)
        return Words("NoNodeLargeEnough", "no node has everything that a pod asks for")

    def _domains_too_small(self, group: int, shape: int, room: Int64s, needed: int) -> Iterator[Words]:
        if self._snapshot.groups[group].subgroups[0].constraint is None:
            return
        session = self._session
        root = SubGroupRow(int(session.facts.groups.first_subgroup[group]))
        asked = session.policy.together(GroupRow(group), root)
        required = next((each.level for each in asked if each.level), "")
        if not required:
            return
        domains: dict[str, int] = {}
        for node, fits in zip(self._snapshot.nodes, room, strict=True):
            value = node.labels.get(required)
            if value is not None:
                domains[value] = domains.get(value, 0) + int(fits)
        best = max(domains.values(), default=0)
        if best < needed:
            level = required.rpartition("/")[2]
            gpus = int(self._snapshot.requests[shape, GPU]) * needed
            size = f" ({quantity(gpus, 'gpu')})" if gpus else ""
            text = f"its {needed} pods{size} must fit in one {level}, and no {level} can hold more than {best} of them"
            numbers = {"level": level, "needed": needed, "best": best, "domains": tuple(sorted(domains.items()))}
            yield Words("DomainTooSmall", text, numbers)

    # ------------------------------------------------------------------ nodes that never match

    def _matches(self, waiting: Sequence[int], record: GroupRecord) -> Iterator[Words]:
        for reason in record.reasons:
            refusals = reason.facts.get("refusals")
            if isinstance(refusals, tuple) and refusals:
                yield Words(Code.POD_REFUSED, messages.fit_message(reason.facts).replace("\n", " ").strip())
        for pod in waiting:
            accepted, refused = self._static(pod)
            if not accepted.any():
                ordered = sorted(refused.items(), key=lambda item: -len(item[1]))
                parts = [counted(len(nodes), text) for text, nodes in ordered]
                objections = tuple((text, tuple(nodes)) for text, nodes in ordered)
                yield Words("NoNodeMatches", "no node matches: " + ", ".join(parts), {"objections": objections})
                return

    def _static(self, pod: int) -> tuple[Bools, Mapping[str, Sequence[int]]]:
        """Return the nodes that only amounts keep the pod from, and the others by objection."""
        shape = int(self._snapshot.pod_shape[pod])
        if shape not in self._objections:
            self._objections[shape] = self._ask(pod, shape)
        return self._objections[shape]

    def _ask(self, pod: int, shape: int) -> tuple[Bools, Mapping[str, Sequence[int]]]:
        session = self._session
        accepted = np.array([node.ready for node in self._snapshot.nodes], np.bool_)
        found: dict[str, list[int]] = {}
        if not accepted.all():
            found["not ready or cordoned"] = [int(node) for node in np.flatnonzero(~accepted)]
        for plugin in session.policy.plugins:
            filters = plugin.node_filter
            if filters is None or filters.depends is not Dependence.SHAPE:
                continue
            if not plugin.is_asked(shape):
                continue
            open_nodes = np.flatnonzero(accepted).astype(np.int64)
            refused = open_nodes[~checked_mask(plugin, PodRow(pod), open_nodes)]
            explain = filters.explain
            texts = explain(PodRow(pod), refused) if explain else [f"refused by {plugin.name}"] * len(refused)
            for node, text in zip(refused, texts, strict=True):
                found.setdefault(text, []).append(int(node))
            accepted[refused] = False
        return accepted, found

    # ------------------------------------------------------------------ others are in the way

    def _forbidden(self, record: GroupRecord, facts: PodGroup, waiting: Sequence[int]) -> Iterator[Words]:
        if any(note.code is Code.NOT_ELIGIBLE for note in record.notes):
            numbers = self._share(facts.queue_row, waiting)
            used, share = (quantity(numbers[key], numbers["resource"]) for key in ("used", "fair_share"))
            have = f"it uses {used}, its fair share is {share}"
            text = f"no room, and queue {numbers['queue']} may not take from others: {have}"
            yield Words(Code.NOT_ELIGIBLE, text, numbers)

    def _share(self, queue: int, waiting: Sequence[int]) -> dict[str, Any]:
        """Return what the queue has of the resource for which it would pass its fair share."""
        request = self._snapshot.requests[int(self._snapshot.pod_shape[waiting[0]])]
        used, share = self._report.queue_used[queue], self._report.fair_share[queue]
        passed = [at for at in (GPU, CPU, MEMORY) if used[at] + request[at] > share[at]]
        at = passed[0] if passed else GPU
        return {
            "queue": self._snapshot.queues[queue].title,
            "queue_row": queue,
            "resource": self._snapshot.axis.names[at],
            "used": int(used[at]),
            "requested": int(self._snapshot.requests[self._snapshot.pod_shape[list(waiting)], at].sum()),
            "fair_share": round(share[at]),
        }

    def _others(self, record: GroupRecord, waiting: Sequence[int]) -> Iterator[Words]:
        for reason in record.reasons:
            if reason.code is Code.PREEMPTION_DELAY:
                yield Words(Code.PREEMPTION_DELAY, messages.reason_text(reason), reason.facts)
        request = self._snapshot.requests[int(self._snapshot.pod_shape[waiting[0]])]
        gpus = int(request[GPU])
        if not record.reasons and not record.notes:
            yield Words("NotTried", "no action has tried it in this cycle")
        elif (lacking := _lacking(record)).keys() - {"GPUs"}:
            counts = ", ".join(f"{count} {'lacks' if count == 1 else 'lack'} {name}" for name, count in lacking.items())
            yield Words("NoRoom", f"no node that it may use has all that it asks for: {counts}", {"lacking": lacking})
        elif gpus:
            idle = int(np.maximum(self._report.idle[:, GPU], 0).sum())
            yield Words(
                "NoRoom", f"no node that it may use has {quantity(gpus, 'gpu')} idle; {plain(idle)} idle in all"
            )
        else:
            yield Words("NoRoom", "no node that it may use has enough idle")


# ------------------------------------------------------------------------------------------------------------- records


def _bounds(reasons: Sequence[Reason]) -> Iterator[Words]:
    """Yield limits and quotas."""
    for code in (Code.OVER_LIMIT, Code.OVER_QUOTA):
        for reason in reasons:
            if reason.code is code:
                yield Words(code, _bound_text(reason), reason.facts)


def _bound_text(reason: Reason) -> str:
    resource = str(reason.facts["resource"])
    bound, used, requested = (number(reason.facts[key]) for key in ("bound", "used", "requested"))
    queue, would = reason.facts["queue"], quantity(round(used + requested), resource)
    most = quantity(round(bound), resource)
    if reason.code is Code.OVER_LIMIT:
        return f"queue {queue} may not use more than {most}, and this job would make it {would}"
    return f"non-preemptible pods of {queue} may use {most}, and this job would make it {would}"


_LACKED = {"": "places for pods", "pods": "places for pods", "cpu": "CPU", "gpu": "GPUs", "gpu-memory": "GPU memory"}


def _lacking(record: GroupRecord) -> Mapping[str, int]:
    """Return how many nodes lack what for the first pod that none takes, as far as amounts are concerned."""
    found = next((each.facts["histogram"] for each in record.reasons if "histogram" in each.facts), None)
    out: dict[str, int] = {}
    for count, reason in found.counts if isinstance(found, Histogram) else ():
        if reason.code >= fit.SHORT_OF or reason.code == fit.REFUSED_PODS:
            name = _LACKED.get(reason.subject, reason.subject)
            out[name] = out.get(name, 0) + count
    return out


def _no_room(record: GroupRecord, facts: PodGroup) -> Iterator[Words]:
    """Yield what plugins say, and what the whole gang does not find."""
    for reason in record.reasons:
        words = messages.own_words(reason)
        if words is not None:
            yield Words(words.plain_code or words.code, (words.plain or words.text)(reason.facts), reason.facts)
    needed = least_pods(facts)
    for reason in record.reasons:
        if reason.code is Code.NO_NODE and reason.facts.get("gang") and not reason.facts.get("satisfied"):
            placed = reason.facts.get("placed", 0)
            fit = {0: "none fits", 1: "only 1 fits"}.get(int(number(placed)), f"only {placed} fit")
            least, whose = needed, f"its {needed} pods"
            if reason.facts.get("extra"):
                least = int(number(reason.facts.get("minimum")))
                whose = f"the {least} pods of its sub-group {reason.facts.get('subgroup')}"
            text = f"{whose} must start together, and {fit} now"
            yield Words("GangDoesNotFit", text, {**reason.facts, "needed": least})


def least_pods(facts: PodGroup) -> int:
    """Return how many pods must start together: over all leaves, or over the fewest that the tree asks for."""
    minimum = {at: subgroup.minimum or 0 for at, subgroup in enumerate(facts.subgroups) if subgroup.leaf}
    below: dict[int, list[int]] = {}
    for at in reversed(range(len(facts.subgroups))):  # children before their parents
        subgroup = facts.subgroups[at]
        if not subgroup.leaf:
            fewest = sorted(below.pop(at, ()))
            minimum[at] = sum(fewest if subgroup.minimum is None else fewest[: subgroup.minimum])
        below.setdefault(subgroup.parent, []).append(minimum[at])
    return minimum.get(0, 0)


def held_text(nodes: Sequence[str]) -> str:
    """Return where a group is going to start."""
    return f"its place on {listed(nodes)} is being vacated by pods that are terminating"
