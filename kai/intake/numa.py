"""NUMA: the zones of nodes, and where pods were put among them."""

import functools
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs
import msgspec

from kai.api import bindrequest as api_bindrequest
from kai.api import names
from kai.api import numa as api
from kai.api.bad_value import BadValue
from kai.api.codec import structure_as
from kai.api.pod import Pod
from kai.api.quantity import amount
from kai.model.amounts import Amounts, axis_name, packed, parts_of
from kai.model.node import NumaLayout, NumaZone

DrawnZones: TypeAlias = tuple[tuple[str, Amounts], ...]
"""Zones by name with what a pod takes of each."""

_TRAILING_NUMBER: Final = re.compile(r"(\d+)$")
_NODE_ZONE: Final = "Node"
_POLICY, _SCOPE = "topologyManagerPolicy", "topologyManagerScope"
_LEGACY: Final = re.compile(r"(SingleNUMANode|Restricted|BestEffort|None)(?:(Container|Pod)(?:Level)?)?(?:Level)?")
_LEGACY_POLICIES: Final = {
    "SingleNUMANode": "single-numa-node",
    "Restricted": "restricted",
    "BestEffort": "best-effort",
}
_NOT_DEVICES: Final = frozenset({names.CPU, names.MEMORY})


@attrs.frozen(kw_only=True, eq=False)
class NumaRecord:
    """What intake made of the zones of one node."""

    source: api.NodeResourceTopology
    order: tuple[str, str]
    layout: NumaLayout
    devices: frozenset[str]
    """Devices that the zones report, by name on the axis."""


def read_numa(source: api.NodeResourceTopology) -> NumaRecord:
    """Return the zones of a node in the order of the numbers that their names end in."""
    zones = [zone for zone in source.zones if zone.type == _NODE_ZONE]
    policy, scope = _manager(source)
    layout = NumaLayout(zones=tuple(_zone(zone) for zone in sorted(zones, key=_number)), policy=policy, scope=scope)
    reported = {axis_name(each.name) for zone in zones for each in zone.resources if is_device(each.name)}
    return NumaRecord(source=source, order=("", source.metadata.name), layout=layout, devices=frozenset(reported))


def is_device(resource: str) -> bool:
    """Say whether a resource is handed out piece by piece: neither CPU nor memory of any kind."""
    return resource not in _NOT_DEVICES and not resource.startswith(names.HUGE_PAGES_PREFIX)


def _number(zone: api.Zone) -> tuple[bool, int, str]:
    """Return what orders zones: by number, those without one last, as the kubelet prefers the lowest."""
    match = _TRAILING_NUMBER.search(zone.name)
    return (match is None, int(match[1]) if match else 0, zone.name)


def _zone(source: api.Zone) -> NumaZone:
    return NumaZone(
        name=source.name,
        allocatable=_amounts((each.name, each.allocatable) for each in source.resources),
        available=_amounts((each.name, each.available) for each in source.resources),
    )


def _amounts(texts: Iterable[tuple[str, str]]) -> Amounts:
    found: dict[str, int] = {}
    for resource, text in texts:
        name = axis_name(resource)
        found[name] = found.get(name, 0) + amount(text, parts_of(resource))
    return packed(found)


def _manager(source: api.NodeResourceTopology) -> tuple[str, str]:
    """Return policy and scope of the node's topology manager: from attributes, else from the older list."""
    attributes = {each.name: each.value for each in source.attributes}
    if attributes.get(_POLICY):
        return attributes[_POLICY], attributes.get(_SCOPE) or "container"
    for text in source.topology_policies:
        match = _LEGACY.fullmatch(text)
        if match:
            return _LEGACY_POLICIES.get(match[1], "none"), (match[2] or "Container").lower()
    return "none", "container"


def drawn_zones(pod: Pod, request: api_bindrequest.BindRequest | None, layout: NumaLayout) -> DrawnZones | None:
    """Return where a pod was put among the zones of its node; None if no source says so, or it cannot be true.

    What the node observed counts before what is being bound, and that before what was predicted. An annotation that is
    no such record says nothing, as any user may have written it: then the next source counts.

    Source: the peer's numa plugin.
    """
    annotations = pod.metadata.annotations
    observed, predicted = annotations.get(names.NUMA_OBSERVED), annotations.get(names.NUMA_PREDICTED)
    ordered = request.spec.predicted_numa_zones if request is not None else ()
    found = (
        _parsed(observed or "")
        or tuple((zone.zone, _amounts(zone.amount.items())) for zone in ordered)
        or _parsed(predicted or "")
    )
    zones = {zone.name for zone in layout.zones}
    return found if found and all(zone in zones for zone, _ in found) else None


@functools.lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> DrawnZones:
    try:
        entries = [
            structure_as(api_bindrequest.NumaZone, entry)
            for entry in msgspec.json.decode(text, type=list[dict[str, object]])
        ]
    except (msgspec.DecodeError, RecursionError, BadValue):
        return ()
    return tuple((each.zone, _amounts(each.amount.items())) for each in entries)
