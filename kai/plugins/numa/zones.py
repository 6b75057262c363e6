"""The zones of all nodes as columns, and who draws from them when a session opens."""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from kai.framework import ACTIVE_ALLOCATED, Amounts, Bools, Int64s, ResourceAxis, Snapshot, within
from kai.plugins.numa.kernels import POLICY_BEST_EFFORT, POLICY_NONE, POLICY_RESTRICTED, POLICY_SINGLE, Zones
from kai.plugins.numa.objects import DrawnZones, NumaLayout

POLICIES: Mapping[str, int] = {
    "none": POLICY_NONE,
    "best-effort": POLICY_BEST_EFFORT,
    "restricted": POLICY_RESTRICTED,
    "single-numa-node": POLICY_SINGLE,
}
"""Policies of the kubelet's topology manager; an unknown one aligns nothing."""


@attrs.frozen(kw_only=True)
class NumaPlacement:
    """The NUMA zones of a node that a pod draws from. No zones: nothing to align, or nothing known.

    ``zones`` are positions in the node's ``NumaLayout``, ascending; ``names`` and ``amounts`` belong to them in order.
    """

    zones: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    amounts: tuple[Amounts, ...] = ()

    def told(self) -> Mapping[str, object]:
        """Return the zones as answers show them, by position."""
        return {"numaZones": list(self.zones)}


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


def recorded_placements(
    snapshot: Snapshot, records: Mapping[int, DrawnZones], layouts: Sequence[NumaLayout | None]
) -> Mapping[int, NumaPlacement]:
    """Return where pods were put among the zones of their nodes, as their ``records`` say, by row."""
    return {pod: _placement(record, layouts[int(snapshot.pod_node[pod])]) for pod, record in records.items()}


def _placement(record: DrawnZones, layout: NumaLayout | None) -> NumaPlacement:
    rows = {zone.name: row for row, zone in enumerate(layout.zones)} if layout is not None else {}
    ordered = sorted((rows[zone], zone, drawn) for zone, drawn in record)
    return NumaPlacement(
        zones=tuple(row for row, _, _ in ordered),
        names=tuple(zone for _, zone, _ in ordered),
        amounts=tuple(drawn for _, _, drawn in ordered),
    )


def read_layouts(
    snapshot: Snapshot,
    layouts: tuple[NumaLayout | None, ...],
    ignored: frozenset[str],
    placements: Mapping[int, NumaPlacement] | None,
) -> Layouts | None:
    """Return the zones of all nodes; None if no node reports any.

    With ``placements`` of pods on record, what is left in a zone is what it can give less what these draw from it;
    otherwise what the node reports. Reports lag behind in both directions, records do not.
    """
    nodes, axis = snapshot.nodes, snapshot.axis
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
    if placements is not None:
        scored = np.repeat(policy != POLICY_NONE, np.diff(start))
        available[scored] = (allocatable - _drawn(snapshot, placements, start))[scored]
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


def _drawn(snapshot: Snapshot, placements: Mapping[int, NumaPlacement], start: Int64s) -> Int64s:
    """Return int64[Z, R]: what active pods draw from the zones of all nodes."""
    axis = snapshot.axis
    drawn = np.zeros((int(start[-1]), len(axis)), np.int64)
    for pod, placement in placements.items():
        if within(int(snapshot.pod_status[pod]), ACTIVE_ALLOCATED):
            first = start[snapshot.pod_node[pod]]
            for zone, amount in zip(placement.zones, placement.amounts, strict=True):
                drawn[first + zone] += _vector(amount, axis)
    return drawn


def _vector(values: Amounts, axis: ResourceAxis) -> Int64s:
    """Return int64[R]; resources that no node and no pod has do not count."""
    return axis.vector({name: amount for name, amount in values if name in axis.index})
