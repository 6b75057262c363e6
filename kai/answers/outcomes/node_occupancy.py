"""The occupancy of a node: its pods, why it is not used more, and what keeps waiting jobs from it.

Why and since when a node takes no pods, and how many of its GPUs have failed, from its Node object.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from kai.answers.offline.run import Outcome
from kai.answers.outcomes.gpu_slots import Slices, share_of, slices_of, slots_on
from kai.answers.outcomes.overview import Job, Overview
from kai.answers.outcomes.states import counted_gpus
from kai.api import names
from kai.api.kubernetes.node import Node as ApiNode
from kai.api.kubernetes.node import Taint
from kai.deciding.explain.codes import Stage, stage_of
from kai.deciding.explain.phrases import objection, of_devices, plain, quantity
from kai.deciding.explain.words import GroupReasons
from kai.facts.model import pod as model
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import ACTIVE_ALLOCATED, ACTIVE_USED, GpuKind, Node, Status, within
from kai.facts.model.units import amounts

READY: Final = "Ready"
OWN_TAINTS: Final = "node.kubernetes.io/"
"""Prefix of taints that the control plane sets, and removes when their cause is gone."""
_CORDONED: Final = f"{OWN_TAINTS}unschedulable"


@attrs.frozen(kw_only=True)
class NodeState:
    """A node that takes no pods, or that offers fewer GPUs than it has."""

    node: ApiNode
    closed: str
    """The condition that keeps pods away: ``cordoned``, ``not ready``; "" where nothing does."""
    since: float | None
    """Start of that condition, in seconds since the epoch; None where the object does not have it."""
    why: str
    """The reason that its kubelet reports."""
    failed: int
    """GPUs that it has and does not offer."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.metadata.name


def state_of(node: ApiNode, closed: str) -> NodeState:
    """Return the state of a node; ``closed`` is the reason for which the scheduler keeps pods away."""
    bad = next((each for each in node.status.conditions if each.type == READY and each.status != "True"), None)
    cordon = next((taint for taint in node.spec.taints if taint.key == _CORDONED), None)
    since = None
    if closed:
        # `spec.unschedulable` has no time. The taint that the node controller adds for it may have one.
        since = bad.last_transition_time if bad is not None else cordon.time_added if cordon is not None else None
    return NodeState(
        node=node,
        closed=closed,
        since=since,
        why=bad.reason if bad is not None else "",
        failed=sum(most - offered for most, offered in _gpus(node)),
    )


def states_of(nodes: Iterator[ApiNode], known: Mapping[str, model.Node]) -> list[NodeState]:
    """Return the states of nodes that take no pods or have lost GPUs; ``known`` are the nodes of the snapshot."""
    found = (state_of(each, known[each.metadata.name].closed) for each in nodes if each.metadata.name in known)
    return [each for each in found if each.closed or each.failed]


def _gpus(node: ApiNode) -> Iterator[tuple[int, int]]:
    """Yield capacity and allocatable of each GPU resource where the node offers fewer than it has."""
    for resource in names.GPU_RESOURCES:
        if resource in node.status.capacity:
            most, offered = (
                amounts(((resource, each.get(resource, "0")),)).get("gpu", 0) // GPU_UNIT
                for each in (node.status.capacity, node.status.allocatable)
            )
            if offered < most:
                yield most, offered


def uncordoned(node: ApiNode) -> ApiNode:
    """Return a node as ``kubectl uncordon`` leaves it."""
    spec = attrs.evolve(node.spec, unschedulable=False, taints=_without(node.spec.taints, _CORDONED))
    return attrs.evolve(node, spec=spec)


def recovered(node: ApiNode) -> ApiNode:
    """Return a node whose kubelet reports healthy conditions, without the taints of unhealthy ones."""
    conditions = tuple(
        attrs.evolve(each, status="True" if each.type == READY else "False") for each in node.status.conditions
    )
    # A cordon stays: it is the decision of an administrator, which no recovery of a kubelet takes back.
    spec = attrs.evolve(
        node.spec,
        taints=tuple(each for each in node.spec.taints if not each.key.startswith(OWN_TAINTS) or each.key == _CORDONED),
    )
    return attrs.evolve(node, spec=spec, status=attrs.evolve(node.status, conditions=conditions))


def repaired(node: ApiNode) -> ApiNode:
    """Return a node that offers all GPUs that it has."""
    has = {each: node.status.capacity[each] for each in names.GPU_RESOURCES if each in node.status.capacity}
    return attrs.evolve(node, status=attrs.evolve(node.status, allocatable={**node.status.allocatable, **has}))


def _without(taints: tuple[Taint, ...], key: str) -> tuple[Taint, ...]:
    return tuple(each for each in taints if each.key != key)


_TOO_EARLY = (Stage.QUEUE, Stage.READINESS, Stage.BIND, Stage.LIMIT, Stage.QUOTA)
"""Stages before nodes are considered."""


@attrs.frozen(kw_only=True)
class Tenant:
    """The pods of one job on a node."""

    job: str
    """``namespace/name`` of the job, or of the pod where it has no group."""
    title: str
    queue: str
    pods: int
    gpus: int
    """In thousandths."""
    state: str
    """``running``, ``held`` or ``leaving``."""


@attrs.frozen(kw_only=True)
class Occupancy:
    """One node after a cycle. Amounts are thousandths of a GPU; MIG slices count as GPUs, as they do in quota."""

    node: str
    gpus: int
    idle: int
    partly: int
    """Free parts of shared GPUs."""
    ready: bool
    closed: str
    """The condition that keeps all pods away: ``cordoned``, ``not ready``; "" where nothing does."""
    closed_for: float | None
    """For how many seconds; None if unknown."""
    failed: int
    """GPUs, in thousandths, that it has and does not offer."""
    taints: tuple[str, ...]
    tenants: tuple[Tenant, ...]
    kept_away: tuple[tuple[str, tuple[str, ...]], ...]
    """Each obstacle for waiting jobs, with the names of these jobs; the one with most jobs first."""
    slices: tuple[Slices, ...] = ()
    """Its MIG slices, by profile."""

    def sum(self, state: str) -> int:
        """Return the GPUs of tenants in ``state``."""
        return sum(each.gpus for each in self.tenants if each.state == state)


def occupancy(outcome: Outcome, seen: Overview, name: str) -> Occupancy:
    """Return the occupancy of the node ``name``.

    Raises: KeyError for a node that is not in the snapshot.
    """
    snapshot, report = outcome.last.snapshot, outcome.last.report
    row = snapshot.node_rows[name]
    node = snapshot.nodes[row]
    weights = snapshot.axis.gpu_weights()
    source = next((each for each in outcome.case.objects.nodes if each.metadata.name == name), None)
    state = None if source is None else state_of(source, node.closed)
    kept: dict[str, list[str]] = {}
    for title, why in _kept_away(outcome, seen, row):
        kept.setdefault(why, []).append(title)
    return Occupancy(
        node=name,
        gpus=int(snapshot.axis.vector(node.allocatable) @ weights),
        # A resource that is over-filled has a negative amount idle, which would hide free slices of another profile.
        idle=int(np.maximum(report.idle[row], 0) @ weights),
        partly=sum(slot.left for slot in slots_on(outcome.last, row) if slot.users),
        ready=node.ready,
        closed=node.closed + (f", {state.why}" if state is not None and state.why else ""),
        closed_for=None if state is None or state.since is None else max(0.0, snapshot.now - state.since),
        failed=0 if state is None else state.failed * GPU_UNIT,
        taints=tuple(_taints(node)),
        tenants=tuple(_tenants(outcome, seen, row)),
        kept_away=tuple(
            (why, tuple(titles)) for why, titles in sorted(kept.items(), key=lambda item: (-len(item[1]), item[0]))
        ),
        slices=slices_of(outcome.last, row, np.flatnonzero(outcome.last.places == row).tolist()),
    )


def spare(outcome: Outcome, name: str) -> tuple[str, ...]:
    """Return the free amount of each resource of a node except GPUs and MIG slices, as text: ``58 of 64 cores``."""
    snapshot, report = outcome.last.snapshot, outcome.last.report
    row = snapshot.node_rows[name]
    offered = snapshot.axis.vector(snapshot.nodes[row].allocatable)
    counted = snapshot.axis.gpu_weights()
    found = []
    for at, resource in enumerate(snapshot.axis.names):
        if offered[at] > 0 and not counted[at]:
            idle = min(int(offered[at]), max(0, int(report.idle[row, at])))
            whole = quantity(int(offered[at]), resource)
            found.append(f"{quantity(idle, resource).partition(' ')[0]} of {whole}")
    return tuple(found)


def _taints(node: Node) -> Iterator[str]:
    for taint in node.taints:
        if taint.effect in {"NoSchedule", "NoExecute"}:
            yield f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _tenants(outcome: Outcome, seen: Overview, row: int) -> Sequence[Tenant]:
    """Return the tenants of a node, most GPUs first."""
    snapshot, report = outcome.last.snapshot, outcome.last.report
    titles = {job.key: job.title for job in seen.jobs}
    places = outcome.last.places
    counts = counted_gpus(snapshot, places, report.details)
    pods: Counter[tuple[int, str]] = Counter()
    gpus: Counter[tuple[int, str]] = Counter()
    for pod in np.flatnonzero(places == row).tolist():
        status = int(report.status[pod])
        if not within(status, ACTIVE_USED):
            continue
        held = status == Status.PIPELINED or snapshot.pods[pod].is_stand_in
        state = "held" if held else "running" if within(status, ACTIVE_ALLOCATED) else "leaving"
        group = int(snapshot.pod_group[pod])
        # Pods without a group are tenants by themselves: their row, as a negative number, keeps them apart from groups.
        key = (group if group >= 0 else -1 - pod, state)
        pods[key] += 1
        gpus[key] += int(counts[pod])
    found = []
    for (group, state), count in pods.items():
        facts = snapshot.groups[group] if group >= 0 else None
        job = facts.key if facts is not None else snapshot.pods[-1 - group].key
        found.append(
            Tenant(
                job=job,
                title=titles.get(job, job),
                queue=facts.queue if facts is not None else "",
                pods=count,
                gpus=gpus[group, state],
                state=state,
            )
        )
    return sorted(found, key=lambda each: (-each.gpus, each.job, each.state))


def _kept_away(outcome: Outcome, seen: Overview, row: int) -> Iterator[tuple[str, str]]:
    """Yield each waiting job with what keeps it from the node."""
    cycle = outcome.last
    group_reasons = GroupReasons(cycle.snapshot, outcome.profile, cycle.report)
    groups = {group.key: at for at, group in enumerate(cycle.snapshot.groups)}
    for job in seen.jobs:
        # A job that is promised a place needs none on this node.
        if job.waiting_reason is None or job.held or job.wanted == job.placed:
            continue
        yield job.title, _why(outcome, group_reasons, job, groups[job.key], row)


def _why(outcome: Outcome, group_reasons: GroupReasons, job: Job, group: int, row: int) -> str:
    snapshot, report = outcome.last.snapshot, outcome.last.report
    code = "" if job.waiting_reason is None else job.waiting_reason.code
    if stage_of(code) in _TOO_EARLY:
        return f"waits for its queue or its pods first ({code})"
    pending = [pod for pod in np.flatnonzero(snapshot.pod_group == group) if report.status[pod] == Status.PENDING]
    if not pending:
        return f"waits for something else first ({code})"
    # Pods of one group mostly have one shape; the first that waits stands for them.
    pod = int(pending[0])
    for text, nodes in group_reasons.objections(pod).items():
        if row in nodes:
            return objection(text)
    shape = int(snapshot.pod_shape[pod])
    gpu, request = snapshot.shapes[shape].gpu, snapshot.requests[shape].copy()
    if gpu.shared:
        part = share_of(gpu, snapshot.nodes[row])
        left = sorted((slot.left for slot in slots_on(outcome.last, row)), reverse=True)
        if len(left) < gpu.devices or left[gpu.devices - 1] < part:
            idle = f"at most {plain(left[0])} of one" if left and left[0] else "none"
            asked = f"{gpu.memory} MiB" if gpu.kind is GpuKind.MEMORY else plain(part)
            return f"a pod asks for {asked} of {of_devices(gpu.devices)}, {idle} idle here"
        request[GPU] = 0
    short = np.flatnonzero(request > np.maximum(report.idle[row], 0))
    if len(short):
        # GPUs first: they are what jobs are sized by, and CPU on a GPU node is rarely the bottleneck.
        at = int(GPU if GPU in short else short[0])
        name = snapshot.axis.names[at]
        asked, idle = (quantity(int(amount), name) for amount in (request[at], max(0, int(report.idle[row, at]))))
        return f"a pod asks for {asked}, {idle} idle here"
    return f"has room here, and waits for more than that ({code})"
