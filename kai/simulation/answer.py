"""An outcome for machines: statuses, nodes, devices and counts, as conformance cases compare them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kai.intake.details import texts
from kai.model.axis import GPU, GPU_UNIT
from kai.model.placement import ZonesLeft
from kai.model.status import ACTIVE_USED, Status, within
from kai.simulation.run import Cycle, Outcome
from kai.state.snapshot import Snapshot

Answer = dict[str, Any]


def answer(outcome: Outcome) -> Answer:
    """Return pods and nodes after the last cycle, counts of each cycle, and the same for every stable cycle.

    With stable cycles pods are reported as the cluster has them once it has reacted to the last cycle.
    """
    pods = pods_of(outcome.last) if outcome.settled is None else settled_pods(outcome.settled)
    result: Answer = {
        "scenario": outcome.case.name,
        "pods": pods,
        "nodes": nodes_of(outcome.last),
        "counts": [dict(cycle.report.counts) for cycle in outcome.cycles],
    }
    if outcome.stable:
        result["stable"] = [
            {"pods": pods_of(cycle), "nodes": nodes_of(cycle), "counts": dict(cycle.report.counts)}
            for cycle in outcome.stable
        ]
    return result


def pods_of(cycle: Cycle) -> Answer:
    """Return every pod's status, node, devices and NUMA zones after the last action of ``cycle``."""
    after = cycle.aftermath
    names = pod_names(cycle.snapshot)
    return {
        names[row]: _pod(
            cycle.snapshot, after.status(row), int(cycle.report.node[row]), after.devices(row), _zones(cycle, row)
        )
        for row in range(len(names))
    }


def settled_pods(snapshot: Snapshot) -> Answer:
    """Return every pod's status, node, devices and NUMA zones as a snapshot finds them."""
    names = pod_names(snapshot)
    return {
        names[row]: _pod(
            snapshot,
            Status(int(snapshot.pod_status[row])),
            int(snapshot.pod_node[row]),
            snapshot.pod_devices.get(row, ()),
            [name for name, _ in snapshot.pod_numa.get(row, ())],
        )
        for row in range(len(names))
    }


def pod_names(snapshot: Snapshot) -> list[str]:
    """Return what each pod is called: by its name, with its namespace only where two pods share the name."""
    seen: dict[str, int] = {}
    for pod in snapshot.pods:
        seen[pod.name] = seen.get(pod.name, 0) + 1
    return [pod.name if seen[pod.name] == 1 else pod.key for pod in snapshot.pods]


def _pod(snapshot: Snapshot, status: Status, node: int, devices: Sequence[str], zones: Sequence[str]) -> Answer:
    here = within(status, ACTIVE_USED)
    layout = snapshot.nodes[node].numa if node >= 0 else None
    order = [zone.name for zone in layout.zones] if layout else []
    return {
        "status": status.label,
        "node": snapshot.nodes[node].name if node >= 0 else "",
        "gpuGroups": list(devices) if here else [],
        "numaZones": [order.index(zone) for zone in zones if zone in order] if here else [],
    }


def _zones(cycle: Cycle, pod: int) -> list[str]:
    """Return the names of the NUMA zones of a pod: those chosen in this cycle, else those on record."""
    chosen = cycle.report.details.get(pod, {}).get("numa")
    names: Callable[[], Sequence[str]] | None = getattr(chosen, "zone_names", None)
    if names is not None:
        return list(names())
    return [name for name, _ in cycle.snapshot.pod_numa.get(pod, ())]


def nodes_of(cycle: Cycle) -> Mapping[str, Any]:
    """Return the whole GPUs of each node that are idle, and that are being released, after the last action.

    Nodes that report NUMA zones also say what is left in each.
    """
    return {
        node.name: {
            "idleGpus": _gpus(int(cycle.report.idle[row, GPU])),
            "releasingGpus": _gpus(int(cycle.report.releasing[row, GPU])),
            **_zones_left(cycle.report.node_details.get(row, {}).get("numa")),
        }
        for row, node in enumerate(cycle.snapshot.nodes)
    }


def _zones_left(left: object) -> Answer:
    if not isinstance(left, ZonesLeft):
        return {}
    return {"numaZonesAvailable": {str(at): texts(amounts) for at, amounts in enumerate(left.amounts)}}


def _gpus(amount: int) -> float | int:
    return amount // GPU_UNIT if amount % GPU_UNIT == 0 else amount / GPU_UNIT
