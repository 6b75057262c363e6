"""The zones of all nodes as columns, and who draws from them when a session opens."""

from collections.abc import Mapping

import attrs
import numpy as np

from kai.framework import ACTIVE_ALLOCATED, Bools, Int64s, ResourceAxis, Snapshot, within
from kai.framework.zones import Amounts, NumaLayout, NumaPlacement
from kai.plugins.numa.kernels import POLICY_BEST_EFFORT, POLICY_NONE, POLICY_RESTRICTED, POLICY_SINGLE, Zones

POLICIES: Mapping[str, int] = {
    "none": POLICY_NONE,
    "best-effort": POLICY_BEST_EFFORT,
    "restricted": POLICY_RESTRICTED,
    "single-numa-node": POLICY_SINGLE,
}
"""Policies of the kubelet's topology manager; an unknown one aligns nothing."""


@attrs.frozen(kw_only=True, eq=False)
class Layouts:
    """Zones of all nodes as they are when a session opens."""

    zones: Zones
    layouts: tuple[NumaLayout | None, ...]
    """[N]"""
    widest: int
    """The most zones that a node has."""
    reported: Bools
    """[R] Resources that zones report on some node that aligns pods."""

    def placement(self, node: int, drawn: Int64s, axis: ResourceAxis) -> NumaPlacement:
        """Return the placement that draws ``drawn`` [W, R] from the zones of ``node``."""
        layout = self.layouts[node]
        rows = [int(row) for row in np.flatnonzero(drawn.any(axis=1))]
        if layout is None or not rows:
            return NumaPlacement()
        return NumaPlacement(
            zones=tuple(rows),
            names=tuple(layout.zones[row].name for row in rows),
            amounts=tuple(amounts(drawn[row], axis) for row in rows),
        )

    def cells(self, node: int, placement: NumaPlacement, axis: ResourceAxis) -> Mapping[int, int]:
        """Return flat positions in ``available`` and the amounts that ``placement`` draws there."""
        first = int(self.zones.start[node])
        return {
            (first + zone) * len(axis) + axis.index[name]: amount
            for zone, drawn in zip(placement.zones, placement.amounts, strict=True)
            for name, amount in drawn
            if name in axis.index
        }


def amounts(vector: Int64s, axis: ResourceAxis) -> Amounts:
    """Return what is not zero in ``vector`` [R] by name."""
    return tuple(sorted((axis.names[at], int(vector[at])) for at in np.flatnonzero(vector)))


def recorded_placement(snapshot: Snapshot, pod: int) -> NumaPlacement:
    """Return where ``pod`` was put among the zones of its node, as far as its record says."""
    record = snapshot.pod_numa.get(pod, ())
    layout = snapshot.nodes[int(snapshot.pod_node[pod])].numa if snapshot.pod_node[pod] >= 0 else None
    if layout is None or not record:
        return NumaPlacement()
    rows = {zone.name: row for row, zone in enumerate(layout.zones)}
    if any(zone not in rows for zone, _ in record):
        return NumaPlacement()
    ordered = sorted((rows[zone], zone, drawn) for zone, drawn in record)
    return NumaPlacement(
        zones=tuple(row for row, _, _ in ordered),
        names=tuple(zone for _, zone, _ in ordered),
        amounts=tuple(tuple(sorted(drawn)) for _, _, drawn in ordered),
    )


def read_layouts(snapshot: Snapshot, ignored: frozenset[str], *, reconstruct: bool) -> Layouts | None:
    """Return the zones of all nodes; None if no node reports any.

    ``reconstruct``: what is left in a zone is what it can give less what pods on record draw from it; otherwise what
    the node reports. Reports lag behind in both directions, records do not.
    """
    nodes, axis = snapshot.nodes, snapshot.axis
    layouts = tuple(node.numa if node.numa is not None and node.numa.zones else None for node in nodes)
    counts = [len(layout.zones) if layout else 0 for layout in layouts]
    if not any(counts):
        return None
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64)
    allocatable = np.zeros((int(start[-1]), len(axis)), np.int64)
    available = np.zeros_like(allocatable)
    prefix = np.zeros_like(allocatable)
    aware = np.zeros((len(nodes), len(axis)), np.bool_)
    for row, layout in enumerate(layouts):
        for at, zone in enumerate(layout.zones if layout else ()):
            allocatable[start[row] + at] = _vector(zone.allocatable, axis)
            available[start[row] + at] = _vector(zone.available, axis)
            for name, _ in (*zone.allocatable, *zone.available):
                if name in axis.index and name not in ignored:
                    aware[row, axis.index[name]] = True
        part = slice(start[row], start[row + 1])
        prefix[part] = np.cumsum(-np.sort(-allocatable[part], axis=0), axis=0)
    policy = np.array([POLICIES.get(layout.policy, POLICY_NONE) if layout else POLICY_NONE for layout in layouts])
    if reconstruct:
        _draw_recorded(snapshot, start, policy, allocatable, available)
    return Layouts(
        zones=Zones(
            start=start,
            policy=policy.astype(np.int64),
            whole_pod=np.array([layout is not None and layout.scope == "pod" for layout in layouts], np.bool_),
            aware=aware,
            prefix=prefix,
            available=available,
        ),
        layouts=layouts,
        widest=max(counts),
        reported=aware[policy != POLICY_NONE].any(axis=0),
    )


def _draw_recorded(snapshot: Snapshot, start: Int64s, policy: Int64s, allocatable: Int64s, available: Int64s) -> None:
    """Set what is left of zones to what they can give less what active pods on record draw."""
    axis = snapshot.axis
    scored = np.repeat(policy != POLICY_NONE, np.diff(start))
    available[scored] = allocatable[scored]
    for pod in snapshot.pod_numa:
        node = int(snapshot.pod_node[pod])
        if node < 0 or policy[node] == POLICY_NONE or not within(int(snapshot.pod_status[pod]), ACTIVE_ALLOCATED):
            continue
        placement = recorded_placement(snapshot, pod)
        for zone, drawn in zip(placement.zones, placement.amounts, strict=True):
            available[start[node] + zone] -= _vector(drawn, axis)


def _vector(values: Amounts, axis: ResourceAxis) -> Int64s:
    """Return int64[R]; resources that no node and no pod has do not count."""
    return axis.vector({name: amount for name, amount in values if name in axis.index})
