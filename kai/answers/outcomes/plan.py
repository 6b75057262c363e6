"""The decisions of an outcome, for machines: as a plan, and as the answer that conformance cases compare.

A plan lists which pods start where, which are promised a place, and which are evicted for whom. It consists of named
values, so that it can be stored, compared with another, and identified by its hash.

An answer has the statuses, nodes, devices and counts after the last cycle.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kai.answers.cases.plan_document import KINDS, Departure, Hold, Place, digest_of
from kai.answers.offline.run import Cycle, Outcome
from kai.facts.model.axis import GPU, GPU_UNIT, Int64s
from kai.facts.model.pod import ACTIVE_USED, Status, within
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind, Decision, Evict
from kai.framework.hooks import ShownDetail
from kai.intake.bind_requests import fields


@attrs.frozen(kw_only=True)
class Plan:
    """The decisions of all cycles of an outcome, in order."""

    place: tuple[Place, ...]
    hold: tuple[Hold, ...]
    evict: tuple[Departure, ...]
    move: tuple[Departure, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of pods that start, are promised a place, are evicted, and move."""
        return {
            "start": len(self.place),
            "hold": len(self.hold),
            "evict": len(self.evict),
            "move": len(self.move),
        }

    @property
    def digest(self) -> str:
        """Return a digest that is equal for equal decisions."""
        return digest_of(self._items())

    def document(self) -> dict[str, Any]:
        """Return the plan as plain values, under the names of the output kind."""
        items = self._items()
        return {**items, "counts": dict(self.counts), "decisionHash": digest_of(items)}

    def _items(self) -> dict[str, list[dict[str, Any]]]:
        return {kind: [_values(each) for each in getattr(self, kind)] for kind in KINDS}


def _values(item: Place | Hold | Departure) -> dict[str, Any]:
    """Return a decision as plain values; without MIG slices the key is left out, as in recordings."""
    values = attrs.asdict(item)
    return values if item.sliced else {key: value for key, value in values.items() if key != "sliced"}


def plan_of(outcome: Outcome) -> Plan:
    """Return the plan of all cycles of an outcome."""
    place: list[Place] = []
    hold: list[Hold] = []
    gone: list[Departure] = []
    for cycle in outcome.cycles:
        weights, origins = cycle.snapshot.axis.gpu_weights(), cycle.origins
        for decision in cycle.decisions:
            common = _common(cycle, decision, weights, origins)
            if isinstance(decision, Bind):
                shared = bool(decision.devices)
                # Three digits, as quotas count thousandths: floats that differ
                # beyond them must not change the hash of a plan.
                share = round(decision.gpu_portion, 3) if shared else None
                place.append(Place(**common, slots=tuple(decision.devices), share=share))
            elif isinstance(decision, Evict):
                gone.append(_departure(cycle, decision, common))
            else:
                hold.append(Hold(**common))
    return Plan(
        place=tuple(place),
        hold=tuple(hold),
        evict=tuple(each for each in gone if each.to is None),
        move=tuple(each for each in gone if each.to is not None),
    )


def _common(cycle: Cycle, decision: Decision, weights: Int64s, origins: Int64s) -> dict[str, Any]:
    snapshot, pod = cycle.snapshot, decision.pod
    request = snapshot.requests[int(snapshot.pod_shape[pod])]
    asked = int(request @ weights)
    group = int(snapshot.pod_group[pod])
    # An eviction has no node of its own: the pod was where it was before the cycle, or where it started in it.
    node = int(origins[pod]) if isinstance(decision, Evict) else decision.node
    return {
        "cycle": cycle.number,
        "pod": snapshot.pods[pod].key,
        "job": snapshot.groups[group].key if group >= 0 else "",
        "queue": snapshot.groups[group].queue if group >= 0 else "",
        "node": snapshot.nodes[node].name if node >= 0 else "",
        "gpus": round(asked / GPU_UNIT, 3),
        "sliced": round((asked - int(request[GPU])) / GPU_UNIT, 3),
    }


def _departure(cycle: Cycle, decision: Evict, common: Mapping[str, Any]) -> Departure:
    snapshot = cycle.snapshot
    return Departure(
        **common,
        cause=decision.cause.name,
        rule=decision.rule,
        aggressor=snapshot.groups[decision.aggressor].key if decision.aggressor >= 0 else None,
        to=snapshot.nodes[decision.moved_to].name if decision.moved_to >= 0 else None,
    )


Answer = dict[str, Any]


def answer(outcome: Outcome) -> Answer:
    """Return pods and nodes after the last cycle, the counts of each cycle, and the same for every stable cycle.

    With stable cycles, pods are reported after the cluster has reacted to the last cycle.
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
    """Return every pod's status, node, devices and plugin details after the last action of ``cycle``.

    A pod whose promise another group took counts as releasing the node that it was promised, as with the peer.
    """
    after, lapsed = cycle.aftermath, cycle.report.lapsed
    names, nodes = pod_names(cycle.snapshot), cycle.report.node.tolist()
    return {
        names[row]: _pod(
            cycle.snapshot,
            Status.RELEASING if row in lapsed else after.status(row),
            lapsed.get(row, nodes[row]),
            after.devices(row),
            _details(cycle, row),
        )
        for row in range(len(names))
    }


def settled_pods(snapshot: Snapshot, last: Cycle) -> Answer:
    """Return every pod's status, node and devices in a snapshot, with the plugin details of the ``last`` cycle.

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
            _details(last, rows[snapshot.pods[row].key]),
        )
        for row in range(len(names))
    }


def pod_names(snapshot: Snapshot) -> list[str]:
    """Return the name of each pod in answers, with its namespace only where two pods share the name."""
    seen = Counter(pod.name for pod in snapshot.pods)
    return [pod.name if seen[pod.name] == 1 else pod.key for pod in snapshot.pods]


def _pod(snapshot: Snapshot, status: Status, node: int, devices: Sequence[str], details: Answer) -> Answer:
    here = within(status, ACTIVE_USED)
    return {
        "status": status.label,
        "node": snapshot.nodes[node].name if node >= 0 else "",
        "gpuGroups": list(devices) if here else [],
        "numaZones": [],
        **(details if here else {}),
    }


def _details(cycle: Cycle, pod: int) -> Answer:
    """Return the details of a pod's placement: those chosen in this cycle, else those on record."""
    found: Answer = {}
    for detail in cycle.report.details.get(pod, {}).values():
        if isinstance(detail, ShownDetail):
            found |= detail.shown_fields()
    return found


def nodes_of(cycle: Cycle) -> Mapping[str, Any]:
    """Return the idle and the releasing whole GPUs of each node after the last action.

    Plugins add their own node details.
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
