"""The NUMA zones of all nodes as columns, and the pods that draw from them when a session opens.

Nodes report their zones; records on pods and nodes say where pods were placed among them.

Source: the peer's numa plugin; the objects are those of the node feature discovery's topology updater.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec
import numpy as np

from kai.framework import (
    ACTIVE_ALLOCATED,
    Amounts,
    Bools,
    Column,
    Int64s,
    Objects,
    RawObject,
    ResourceAxis,
    SessionView,
    Snapshot,
    amounts_of,
    within,
)
from kai.plugins.numa.kernels import POLICY_BEST_EFFORT, POLICY_NONE, POLICY_RESTRICTED, POLICY_SINGLE, Zones

PREDICTED: Final = "kai.scheduler/numa-placement-predicted"
"""Annotation that the binder writes: where the pod is expected to be put."""
OBSERVED: Final = "kai.scheduler/numa-placement-observed"
"""Annotation that the exporter on the node writes: where the kubelet did put the pod."""
ON_REQUEST: Final = "predictedNUMAZones"
"""Field of a bind request's spec: the same as the first for a pod that is being bound."""

_TRAILING_NUMBER: Final = re.compile(r"(\d+)$")
_NODE_ZONE: Final = "Node"
_POLICY, _SCOPE = "topologyManagerPolicy", "topologyManagerScope"
_LEGACY: Final = re.compile(r"(SingleNUMANode|Restricted|BestEffort|None)(?:(Container|Pod)(?:Level)?)?(?:Level)?")
_LEGACY_POLICIES: Final = {
    "SingleNUMANode": "single-numa-node",
    "Restricted": "restricted",
    "BestEffort": "best-effort",
}

DrawnZones = tuple[tuple[str, Amounts], ...]
"""Zones by name with the amounts that a pod takes of each."""


@attrs.frozen(kw_only=True)
class NumaZone:
    """One NUMA zone of a node: what it can give, by resource name in axis units."""

    name: str
    allocatable: Amounts
    available: Amounts


@attrs.frozen(kw_only=True)
class NumaLayout:
    """Zones of a node in the order of their numbers, with the node's alignment policy and scope."""

    zones: tuple[NumaZone, ...]
    policy: str = "none"
    scope: str = "container"


def _read_layout(raw: RawObject) -> NumaLayout:
    """Return the zones of the node of the same name, in the order of the numbers that their names end in."""
    content = raw.content
    zones = [zone for zone in content.get("zones", ()) if zone.get("type") == _NODE_ZONE]
    policy, scope = _settings(content)
    return NumaLayout(zones=tuple(_zone(zone) for zone in sorted(zones, key=_number)), policy=policy, scope=scope)


LAYOUTS: Final = Objects(
    api_version="topology.node.k8s.io/v1alpha2",
    kind="NodeResourceTopology",
    plural="noderesourcetopologies",
    read=_read_layout,
)


def _number(zone: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Return the sort key of zones: by number, unnumbered ones last, as the kubelet prefers the lowest."""
    name: str = zone["name"]
    match = _TRAILING_NUMBER.search(name)
    return (match is None, int(match[1]) if match else 0, name)


def _zone(zone: Mapping[str, Any]) -> NumaZone:
    resources = zone.get("resources", ())
    return NumaZone(
        name=zone["name"],
        allocatable=amounts_of(tuple((each["name"], each.get("allocatable", "0")) for each in resources)),
        available=amounts_of(tuple((each["name"], each.get("available", "0")) for each in resources)),
    )


def _settings(content: Mapping[str, Any]) -> tuple[str, str]:
    """Return policy and scope of the node's topology manager: from attributes, else from the older list."""
    attributes = {each["name"]: each.get("value", "") for each in content.get("attributes", ())}
    if attributes.get(_POLICY):
        return attributes[_POLICY], attributes.get(_SCOPE) or "container"
    for text in content.get("topologyPolicies", ()):
        match = _LEGACY.fullmatch(text)
        if match:
            return _LEGACY_POLICIES.get(match[1], "none"), (match[2] or "Container").lower()
    return "none", "container"


def layouts_of(view: SessionView) -> tuple[NumaLayout | None, ...]:
    """Return the zones of each node that reports any."""
    nodes, values = view.snapshot.nodes, view.values(LAYOUTS)

    def found() -> tuple[NumaLayout | None, ...]:
        layouts = (values.get(node.name) for node in nodes)
        return tuple(each if isinstance(each, NumaLayout) and each.zones else None for each in layouts)

    return view.once("NUMA layouts", (nodes, values), found)


# ------------------------------------------------------------------------------------------------- where pods were put


def _is_recorded(labels: Mapping[str, str], annotations: Mapping[str, str]) -> float:
    del labels
    return float(OBSERVED in annotations or PREDICTED in annotations)


RECORDED: Final = Column(read=_is_recorded, otherwise=0.0)
"""Which pods have an annotation about zones."""


def records_of(view: SessionView, layouts: Sequence[NumaLayout | None]) -> Mapping[int, DrawnZones]:
    """Return where pods were put among the zones of their nodes, by row."""
    snapshot = view.snapshot
    rows = {*view.pod_column(RECORDED).nonzero()[0].tolist(), *snapshot.bind_requests}
    out: dict[int, DrawnZones] = {}
    for row in sorted(rows):
        node = int(snapshot.pod_node[row])
        layout = layouts[node] if node >= 0 else None
        if layout is not None:
            request = snapshot.bind_requests.get(row)
            drawn = drawn_zones(snapshot.pods[row].annotations, request.spec if request else {}, layout)
            if drawn is not None:
                out[row] = drawn
    return out


def drawn_zones(annotations: Mapping[str, str], request: Mapping[str, Any], layout: NumaLayout) -> DrawnZones | None:
    """Return the zones in which a pod was placed; None if no source says so, or it cannot be true.

    The node's observation overrides the spec of a bind ``request``, which overrides the prediction. An annotation in a
    wrong format is skipped, because any user may have written it: then the next source counts.
    """
    ordered = request.get(ON_REQUEST, ())
    found = (
        _parsed(annotations.get(OBSERVED, ""))
        or tuple((zone["zone"], amounts_of(tuple(zone.get("amount", {}).items()))) for zone in ordered)
        or _parsed(annotations.get(PREDICTED, ""))
    )
    zones = {zone.name for zone in layout.zones}
    # A record with an unknown zone is not about this node as it is now, so none of its zones count.
    return found if found and all(zone in zones for zone, _ in found) else None


class _Entry(msgspec.Struct):
    """What an annotation says of one zone; a number stands for a quantity."""

    zone: str
    amount: dict[str, str | int | float] = {}


_ENTRIES: Final = msgspec.json.Decoder(list[_Entry])


@functools.lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> DrawnZones:
    try:
        return tuple((entry.zone, _amounts(entry.amount.items())) for entry in _ENTRIES.decode(text))
    # Any user may write the annotation: text that is nested without end raises RecursionError.
    except (ValueError, RecursionError):
        return ()


def _amounts(found: Iterable[tuple[str, str | int | float]]) -> Amounts:
    drawn = amounts_of(tuple((name, value if isinstance(value, str) else repr(value)) for name, value in found))
    if any(amount < 0 for _, amount in drawn):
        raise ValueError("found a negative amount, expected what a pod draws")
    return drawn


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

    def shown_fields(self) -> Mapping[str, object]:
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
    names: tuple[int, ...]
    """[N] Equal numbers for nodes whose zones have the same names."""

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
    """Return the nonzero amounts in ``vector`` [R] by name."""
    return tuple(sorted((axis.names[at], int(vector[at])) for at in np.flatnonzero(vector)))


def recorded_placements(
    snapshot: Snapshot, records: Mapping[int, DrawnZones], layouts: Sequence[NumaLayout | None]
) -> Mapping[int, NumaPlacement]:
    """Return the zones in which pods were placed by their ``records``, by row."""
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

    With ``placements`` of pods on record, the free amount of a zone is its capacity less what these draw; otherwise it
    is what the node reports. Reports lag behind in both directions, records do not.
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
        # The most that one, two, … zones can have together, by resource: the bound for how many zones a pod needs.
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
        names=_numbered(layouts),
    )


def _numbered(layouts: Sequence[NumaLayout | None]) -> tuple[int, ...]:
    numbers: dict[tuple[str, ...], int] = {}
    names = (tuple(zone.name for zone in each.zones) if each else () for each in layouts)
    return tuple([numbers.setdefault(each, len(numbers)) for each in names])


def _drawn(snapshot: Snapshot, placements: Mapping[int, NumaPlacement], start: Int64s) -> Int64s:
    """Return int64[Z, R]: the amounts that active pods draw from the zones of all nodes."""
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
