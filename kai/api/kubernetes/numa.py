"""NodeResourceTopology (topology.node.k8s.io/v1alpha2): the NUMA zones of the node of the same name."""

from __future__ import annotations

import attrs

from kai.api.fields import Quantity
from kai.api.kubernetes.meta import ObjectMeta


@attrs.frozen(kw_only=True)
class Attribute:
    """A named setting of the node's kubelet, or a named property of a zone."""

    name: str
    value: str = ""


@attrs.frozen(kw_only=True)
class ZoneResource:
    """What a zone has of one resource."""

    name: str
    capacity: Quantity = "0"
    allocatable: Quantity = "0"
    available: Quantity = "0"


@attrs.frozen(kw_only=True)
class Zone:
    """A zone of a node; only those of type ``Node`` are NUMA zones."""

    name: str
    type: str = ""
    parent: str = ""
    attributes: tuple[Attribute, ...] = ()
    resources: tuple[ZoneResource, ...] = ()


@attrs.frozen(kw_only=True)
class NodeResourceTopology:
    """The zones of a node; `topology_policies` is the older way to name the kubelet's policy."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    zones: tuple[Zone, ...] = ()
