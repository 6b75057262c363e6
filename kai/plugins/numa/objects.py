"""What NUMA alignment reads: the zones that nodes report, and where pods were put among them.

Source: the peer's numa plugin; the objects are those of the node feature discovery's topology updater.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from kai.framework import Amounts, Column, Objects, RawObject, SessionView, amounts_of

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
"""Zones by name with what a pod takes of each."""


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
    """Return what orders zones: by number, those without one last, as the kubelet prefers the lowest."""
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
    """Return where a pod was put among the zones of its node; None if no source says so, or it cannot be true.

    What the node observed counts before what the spec of a bind ``request`` says, and that before what was predicted.
    An annotation that is no such record says nothing, as any user may have written it: then the next source counts.
    """
    ordered = request.get(ON_REQUEST, ())
    found = (
        _parsed(annotations.get(OBSERVED, ""))
        or tuple((zone["zone"], amounts_of(tuple(zone.get("amount", {}).items()))) for zone in ordered)
        or _parsed(annotations.get(PREDICTED, ""))
    )
    zones = {zone.name for zone in layout.zones}
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
    except (ValueError, RecursionError):
        return ()


def _amounts(found: Iterable[tuple[str, str | int | float]]) -> Amounts:
    drawn = amounts_of(tuple((name, value if isinstance(value, str) else repr(value)) for name, value in found))
    if any(amount < 0 for _, amount in drawn):
        raise ValueError("found a negative amount, expected what a pod draws")
    return drawn
