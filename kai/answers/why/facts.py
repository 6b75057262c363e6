"""Facts that prove a reason: idle resources, victims that may not be taken, and absent priority classes.

`Evidence` is one fact; a maker yields facts for a site.

Quotas to come: when they hold a job that cannot be preempted for as long as it may run.

Idle resources: whole GPUs, free parts of shared ones, and each resource that is short.

Victims: why a waiting job takes no place from others, although its queue or its priority allows that.

Absent priority classes: a class that a job names and that does not exist changes the priority its user intended.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, Self, TypeAlias

import attrs
import numpy as np

from kai.answers.outcomes.gpu_slots import SHARED, slots_on
from kai.answers.why.changes import Site
from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.quota_windows import AHEAD_SECONDS, first_shortage, first_start, turning_at
from kai.api.scheduling.queue import QueueSpec
from kai.basics.schedules import clock_text
from kai.basics.wording import number_text, span_text
from kai.deciding.explain.declared import Takeable
from kai.deciding.explain.phrases import listed, number, plain, quantity
from kai.facts.kernels import fit
from kai.facts.model.axis import GPU, GPU_UNIT, LEADING
from kai.facts.model.groups import Queue, path_to
from kai.facts.model.pod import GpuKind
from kai.framework.decisions import Cause
from kai.framework.verdict import Code, Histogram, Reason
from kai.intake.traits import trait_key
from kai.manifests.unused import OF_THE_SYSTEM


@attrs.frozen(kw_only=True)
class Evidence:
    """One fact. Units of values: GPUs in devices, CPU in millicores, memory in bytes."""

    label: str
    text: str
    values: Mapping[str, Any] = attrs.field(factory=dict, eq=False)


Maker: TypeAlias = Callable[[Site], Iterator[Evidence]]


def in_units(amount: float, resource: str) -> float:
    """Return an amount in axis units in the unit of machine-readable output: GPUs in devices, the rest unchanged."""
    return amount / GPU_UNIT if resource == "gpu" else amount


_UNITS: Final = {"gpu": float(GPU_UNIT), "cpu": 1.0, "memory": 1e6}
"""Axis units in a unit of a queue's quota."""
_MOST = 5
_MOST_NODES = 4


# ------------------------------------------------------------------------------------------------------ quotas to come


@attrs.frozen(kw_only=True)
class Ahead:
    """A job that cannot be preempted, before quotas that follow the clock. Times are seconds since the epoch."""

    queue: QueueSpec
    """The queue whose quota falls."""
    now: float
    runs: float
    """How long it may run from a start on; infinity where no end is known."""
    start: float | None
    """The first instant from which the quotas hold it for that long; None: none in sight."""
    fits: float
    """For how many seconds from now on the quotas hold it; infinity for as long as is known."""

    @classmethod
    def of(cls, site: Site, reason: Reason[str]) -> Self:
        """Return what is ahead of the job, by the resource and the queue that ``reason`` names."""
        facts, snapshot = reason.facts, site.cycle.snapshot
        resource, asked = str(facts["resource"]), float(number(facts["requested"]))
        row, bound = int(number(facts["queue_row"])), snapshot.groups[site.group].bound
        specs = {each.metadata.name: each.spec for each in site.objects.queues}
        # Only what cannot be preempted: a quota bounds nothing else.
        held = site.cycle.report.queue_fixed[:, LEADING.index(resource)]
        needs = [
            (spec, (float(held[at]) + asked) / _UNITS[resource])
            # The quotas of all ancestors count, each with windows of its own; the first that falls decides.
            for at in path_to(snapshot.queues, snapshot.groups[site.group].queue_row)
            if (spec := specs.get(snapshot.queues[at].name)) is not None
        ]
        now, runs = snapshot.now, inf if bound is None else bound.left
        ends = [first_shortage(spec, resource, needed, now) for spec, needed in needs]
        return cls(
            queue=specs.get(snapshot.queues[row].name, QueueSpec()),
            now=now,
            runs=runs,
            start=first_start(needs, resource, now, runs),
            fits=min((end for end in ends if end is not None), default=inf) - now,
        )

    @property
    def waits(self) -> bool:
        """Whether later quotas hold the job for as long as it may run."""
        return self.start is not None and self.start > self.now

    def turning(self, edge: float) -> str:
        """Return which windows of the queue close or open then, behind a comma; "" if none does."""
        found = turning_at(self.queue, edge)
        return f", {found}" if found else ""

    def wait(self, zone: str) -> str:
        """Return until when the job waits for its quotas, or how short it would have to be."""
        if self.start is not None and self.waits:
            return f"until {clock_text(self.start, zone)}{self.turning(self.start)}"
        shorter = f"; with a limit of {span_text(self.fits)} or less it fits now" if 0 < self.fits < self.runs else ""
        return f"does not help: no quota of the next {round(AHEAD_SECONDS / 86_400)} days covers its whole run{shorter}"


def shapes_of(site: Site) -> set[int]:
    """Return the shape rows of the pods of a group."""
    snapshot = site.cycle.snapshot
    return {int(shape) for shape in snapshot.pod_shape[snapshot.pod_group == site.group]}


def asks_gpus(site: Site) -> bool:
    """Return whether a pod of the group requests whole GPUs, fractions or GPU memory."""
    snapshot = site.cycle.snapshot
    return any(
        snapshot.requests[shape, GPU] or snapshot.shapes[shape].gpu.kind is GpuKind.MEMORY for shape in shapes_of(site)
    )


def idle(site: Site) -> Iterator[Evidence]:
    """Yield the resources that are idle after the cycle, by node: GPUs if the group requests any, and what is short."""
    if asks_gpus(site):
        yield _of_gpus(site)
        if any(site.cycle.snapshot.shapes[shape].gpu.kind in _PARTS for shape in shapes_of(site)):
            yield from _parts(site)
    names = site.cycle.snapshot.axis.names
    for at in sorted(names.index(name) for name in _short(site) if name in names):
        if at != GPU:
            yield _of_resource(site, at)


_PARTS = frozenset({GpuKind.FRACTION, GpuKind.MEMORY})


def _of_gpus(site: Site) -> Evidence:
    snapshot, report = site.cycle.snapshot, site.cycle.report
    # A node that lost devices while pods hold them has less than nothing idle, which must not lower the sum of others.
    free = np.maximum(report.idle[:, GPU], 0)
    names = {snapshot.nodes[row].name: int(free[row]) for row in np.flatnonzero(free)}
    text = quantity(int(free.sum()), "gpu") + _by_amount(site, names, "gpu")
    nodes = {name: amount / GPU_UNIT for name, amount in names.items()}
    return Evidence(label="idle", text=text, values={"gpus": int(free.sum()) / GPU_UNIT, "nodes": nodes})


def _parts(site: Site) -> Iterator[Evidence]:
    """Yield the free parts of shared GPUs, with the largest part of each node."""
    largest: dict[str, int] = {}
    total = 0
    for row, node in enumerate(site.cycle.snapshot.nodes):
        parts = [slot.left for slot in slots_on(site.cycle, row) if slot.state == SHARED and slot.left]
        if parts:
            largest[node.name] = max(parts)
            total += sum(parts)
    if largest:
        text = f"{plain(total)} GPUs of shared ones, the largest of each node{_by_amount(site, largest, 'gpu')}"
        nodes = {name: amount / GPU_UNIT for name, amount in largest.items()}
        yield Evidence(label="free parts", text=text, values={"gpus": total / GPU_UNIT, "largest": nodes})


def _of_resource(site: Site, at: int) -> Evidence:
    """Return the idle amount of a resource by node; only nodes with idle GPUs count if the group requests GPUs."""
    snapshot, report = site.cycle.snapshot, site.cycle.report
    name, with_gpus = snapshot.axis.names[at], asks_gpus(site)
    # CPU on nodes without an idle GPU is of no use to the job, and would read as if CPU were not short.
    rows = np.flatnonzero(report.idle[:, GPU] > 0) if with_gpus else np.arange(len(snapshot.nodes))
    free = {snapshot.nodes[row].name: max(0, int(report.idle[row, at])) for row in rows.tolist()}
    text = _by_amount(site, free, name).removeprefix(": ") or "none"
    values = {"resource": name, "nodes": {node: in_units(amount, name) for node, amount in free.items()}}
    where = " (nodes with idle GPUs)" if with_gpus else ""
    return Evidence(label="idle", text=text + where, values=values)


def _by_amount(site: Site, amounts: Mapping[str, int], resource: str) -> str:
    """Return the nodes grouped by amount, the greatest amount first."""
    by_amount: dict[int, list[str]] = {}
    closed = {node.name: node.closed for node in site.cycle.snapshot.nodes if not node.ready}
    for name, amount in amounts.items():
        by_amount.setdefault(amount, []).append(f"{name} ({closed[name]})" if name in closed else name)
    texts = [
        f"{plain(amount) if resource == 'gpu' else quantity(amount, resource)} on {listed(nodes, _MOST_NODES)}"
        for amount, nodes in sorted(by_amount.items(), reverse=True)
    ]
    return f": {'; '.join(texts[:_MOST])}" if texts else ""


def _short(site: Site) -> set[str]:
    """Return the resources that nodes lacked for the first refused pod."""
    record = site.cycle.report.records.get(site.group)
    reasons = (*site.reasons, *(record.reasons if record is not None else ()))
    found = [each.facts.get("histogram") for each in reasons]
    return {
        reason.subject
        for each in found
        if isinstance(each, Histogram)
        for _, reason in each.counts
        if reason.code >= fit.SHORT_OF
    }


_MOST_NAMED = 4


def reclaiming(site: Site) -> Iterator[Evidence]:
    """Yield why a queue that is entitled to reclaim finds no victims."""
    record = site.cycle.report.records.get(site.group)
    reasons = [] if record is None else [*record.notes, *record.reasons]
    # Then reclaim did not look for victims at all, so to name spared groups would mislead.
    if any(each.code in {Code.NOT_ELIGIBLE, Code.PREEMPTION_DELAY} for each in reasons):
        return
    found = site.takeable(Cause.RECLAIM)
    if found is None or found.free or not (found.fixed or found.protected):
        return
    queue = site.cycle.snapshot.groups[site.group].queue
    text = f"queue {queue} may take from others, and none can be taken: {'; '.join(_spared(site, found))}"
    yield Evidence(label="reclaim", text=text, values=_values(site, found))


def within_quotas(site: Site) -> Iterator[Evidence]:
    """Yield that other queues stay within their quotas, where a queue waits for its own quota.

    Quotas may then exceed the GPUs of the cluster; a second fact shows that.
    """
    snapshot, report = site.cycle.snapshot, site.cycle.report
    if site.takeable(Cause.RECLAIM) is None or report.takes_by_priority:
        return
    queues, own = snapshot.queues, snapshot.groups[site.group].queue_row
    held = {row: int(report.queue_used[row, GPU]) for row in range(len(queues)) if report.queue_used[row, GPU] > 0}
    mine = path_to(queues, own)
    # Reclaim compares queues where the paths from the root diverge: siblings of the queue, or of one of its ancestors.
    rivals = sorted({row for row in held if row not in mine and queues[row].parent in {*mine, -1}})
    asked = int(report.queue_requested[own, GPU]) - held.get(own, 0)
    if not rivals or asked <= 0 or not all(_is_within(queues[row], held[row]) for row in rivals):
        return
    # A queue that holds its quota in full is owed nothing by quota, and its fair share explains the wait better.
    if not _is_within(queues[own], held.get(own, 0) + 1):
        return
    holdings = [f"{queues[row].name} has {_gpus(held[row])} and a quota of {_quota(queues[row])}" for row in rivals]
    text = f"{listed(holdings, _MOST_NAMED)}: what a queue has within its quota is not taken back"
    yield Evidence(label="quotas", text=text, values={"withinQuota": [queues[row].name for row in rivals]})
    parent = queues[rivals[0]].parent
    siblings = [queue for queue in queues if queue.parent == parent and queue.quota.gpu >= 0]
    promised, there = sum(queue.quota.gpu for queue in siblings), float(report.total[GPU])
    if promised > there:
        owed = f"{listed([queue.name for queue in siblings], _MOST_NAMED)} are promised {_gpus(promised)}"
        text = f"{owed} together, and the cluster has {_gpus(there)}"
        yield Evidence(label="promised", text=text, values={"gpus": promised / GPU_UNIT, "there": there / GPU_UNIT})


def _is_within(queue: Queue, used: float) -> bool:
    return queue.quota.gpu < 0 or used <= queue.quota.gpu


def _gpus(amount: float) -> str:
    return quantity(round(amount), "gpu")


def _quota(queue: Queue) -> str:
    return "no bound" if queue.quota.gpu < 0 else f"{number_text(queue.quota.gpu / GPU_UNIT)}"


def preempting(site: Site) -> Iterator[Evidence]:
    """Yield why a job preempts no job of its own queue."""
    found = site.takeable(Cause.PREEMPT)
    if found is None or found.free or not (found.fixed or found.protected or found.higher):
        return
    facts = site.cycle.snapshot.groups[site.group]
    if not (found.fixed or found.protected):
        if site.reasons[0].code != Code.NOT_ELIGIBLE:
            return
        text = f"no job that runs in queue {facts.queue} has a lower priority than {facts.priority}"
    else:
        text = f"of lower priority in queue {facts.queue}: {'; '.join(_spared(site, found))}"
    yield Evidence(label="preempt", text=text, values=_values(site, found))


def _spared(site: Site, found: Takeable) -> Iterator[str]:
    for rows, one, many in (
        (found.fixed, "is non-preemptible", "are non-preemptible"),
        (found.protected, "is protected by its minimum runtime", "are protected by their minimum runtime"),
    ):
        if rows:
            yield f"{listed(_names(site, rows), _MOST_NAMED)} {one if len(rows) == 1 else many}"


def _names(site: Site, rows: Sequence[int]) -> list[str]:
    return [site.cycle.snapshot.groups[row].name for row in rows]


def _values(site: Site, found: Takeable) -> dict[str, list[str]]:
    groups = site.cycle.snapshot.groups
    return {
        "nonPreemptible": [groups[row].key for row in found.fixed],
        "protected": [groups[row].key for row in found.protected],
    }


def absent_classes(site: Site) -> Iterator[Evidence]:
    """Yield each absent priority class that a group or its pods name, with the priority that applies instead."""
    known = {each.metadata.name for each in site.objects.priority_classes}
    spec, priority = site.source.spec, site.cycle.snapshot.groups[site.group].priority
    holders = [site.source.metadata.labels, *(pod.metadata.labels for pod in site.waiting)]
    named = [spec.priority_class_name, *(labels.get(names.PRIORITY_CLASS, "") for labels in holders)]
    counts = f", that of class {spec.priority_class_name}" if spec.priority_class_name in known else ", the default"
    for name in dict.fromkeys(named):
        # Kubernetes makes its system classes itself, so manifests that name one are right although the input lacks it.
        if name and name not in known and name not in OF_THE_SYSTEM:
            text = f"{priority}{counts}: class {name} does not exist"
            values = {"priority": priority, "absentClass": name, "class": spec.priority_class_name}
            yield Evidence(label="priority", text=text, values=values)


def assumptions(objects: ClusterObjects, queues: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the assumptions about pods without a node, and about queues that are being deleted.

    ``queues``: the queues of the explained jobs; None: of all jobs.
    """
    return (*_config_maps(objects), *_leaving_queues(objects, queues))


def _leaving_queues(objects: ClusterObjects, queues: Collection[str] | None) -> Iterator[str]:
    """Yield the queues that are being deleted while they or their children have jobs.

    An API server refuses new objects in a namespace that is being deleted. No scheduler does so for a queue. A
    finalizer keeps the queue; until it is removed, the jobs keep their shares.
    """
    used = {each.spec.queue for each in objects.pod_groups} if queues is None else {*queues}
    known = {each.metadata.name: each for each in objects.queues}
    above: dict[str, None] = {}
    for name in sorted(used):
        at = name
        while at in known and at not in above:
            above[at] = None
            at = known[at].spec.parent_queue
    for name in sorted(above):
        if known[name].metadata.deletion_timestamp is not None:
            yield f"queue {name}, which is being deleted, stays a while: once it is gone, no more of its jobs start"


def _config_maps(objects: ClusterObjects) -> Iterator[str]:
    """Yield the config maps that pods need, where the input has none at all."""
    # An input with some config maps is taken as complete: then a missing one is a refusal, not an assumption.
    if objects.config_maps:
        return
    needed = {
        f"{pod.metadata.namespace}/{name}"
        for pod in objects.pods
        if not pod.spec.node_name
        for name in trait_key(pod, finished=False).config_maps
    }
    if needed:
        yield f"config maps exist that pods need, because the input holds no config map: {listed(sorted(needed))}"
