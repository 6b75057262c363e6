"""An outcome for machines: statuses, nodes, devices and counts, as conformance cases compare them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kai.framework.hooks import Told
from kai.intake.details import fields
from kai.model.axis import GPU, GPU_UNIT
from kai.model.status import ACTIVE_USED, Status, within
from kai.simulation.deciding.run import Cycle, Outcome
from kai.state.snapshot import Snapshot

Answer = dict[str, Any]


def answer(outcome: Outcome) -> Answer:
    """Return pods and nodes after the last cycle, counts of each cycle, and the same for every stable cycle.

    With stable cycles pods are reported as the cluster has them once it has reacted to the last cycle.
    """
    pods = pods_of(outcome.last) if outcome.settled is None else settled_pods(outcome.settled, outcome.last)
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
    """Return every pod's status, node, devices and what plugins tell of it after the last action of ``cycle``.

    A pod whose promise another group took counts as leaving the node that it was promised, as with the peer.
    """
    after, lapsed = cycle.aftermath, cycle.report.lapsed
    names, nodes = pod_names(cycle.snapshot), cycle.report.node.tolist()
    return {
        names[row]: _pod(
            cycle.snapshot,
            Status.RELEASING if row in lapsed else after.status(row),
            lapsed.get(row, nodes[row]),
            after.devices(row),
            _told(cycle, row),
        )
        for row in range(len(names))
    }


def settled_pods(snapshot: Snapshot, last: Cycle) -> Answer:
    """Return every pod's status, node and devices as a snapshot finds them, with what was told in the ``last`` cycle.

    The snapshot shows the cluster after it has reacted to that cycle.
    """
    names = pod_names(snapshot)
    rows = {pod.key: row for row, pod in enumerate(last.snapshot.pods)}
    return {
        names[row]: _pod(
            snapshot,
            Status(int(snapshot.pod_status[row])),
            int(snapshot.pod_node[row]),
            snapshot.pod_devices.get(row, ()),
            _told(last, rows[snapshot.pods[row].key]),
        )
        for row in range(len(names))
    }


def pod_names(snapshot: Snapshot) -> list[str]:
    """Return what each pod is called: by its name, with its namespace only where two pods share the name."""
    seen = Counter(pod.name for pod in snapshot.pods)
    return [pod.name if seen[pod.name] == 1 else pod.key for pod in snapshot.pods]


def _pod(snapshot: Snapshot, status: Status, node: int, devices: Sequence[str], told: Answer) -> Answer:
    here = within(status, ACTIVE_USED)
    return {
        "status": status.label,
        "node": snapshot.nodes[node].name if node >= 0 else "",
        "gpuGroups": list(devices) if here else [],
        "numaZones": [],
        **(told if here else {}),
    }


def _told(cycle: Cycle, pod: int) -> Answer:
    """Return what details of a pod's placement say: those chosen in this cycle, else those on record."""
    found: Answer = {}
    for detail in cycle.report.details.get(pod, {}).values():
        if isinstance(detail, Told):
            found |= detail.told()
    return found


def nodes_of(cycle: Cycle) -> Mapping[str, Any]:
    """Return the whole GPUs of each node that are idle, and that are being released, after the last action.

    Plugins add what they report of nodes.
    """
    return {
        node.name: {
            "idleGpus": _gpus(int(cycle.report.idle[row, GPU])),
            "releasingGpus": _gpus(int(cycle.report.releasing[row, GPU])),
            **_told_of_node(cycle, row),
        }
        for row, node in enumerate(cycle.snapshot.nodes)
    }


def _told_of_node(cycle: Cycle, node: int) -> Answer:
    found: Answer = {}
    for reported in cycle.report.node_details.get(node, {}).values():
        if isinstance(reported, Mapping):
            found |= fields(reported)
    return found


def _gpus(amount: int) -> float | int:
    return amount // GPU_UNIT if amount % GPU_UNIT == 0 else amount / GPU_UNIT
