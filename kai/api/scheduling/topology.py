"""Topology (kai.scheduler/v1alpha1): the levels of a data centre, as node labels from the widest to the narrowest."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import attrs

from kai.api.fields import Pattern
from kai.api.kubernetes.meta import ObjectMeta

_PREFIX = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
LabelKey: TypeAlias = Annotated[
    str,
    Pattern(rf"^{_PREFIX}([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$", shortest=1, longest=316),
]


@attrs.frozen(kw_only=True)
class TopologyLevel:
    """One level: the node label that names a node's domain there, and a shorter name for the level."""

    node_label: LabelKey
    alias: LabelKey | None = None


@attrs.frozen(kw_only=True)
class TopologySpec:
    """The levels of a topology."""

    levels: tuple[TopologyLevel, ...] = ()


@attrs.frozen(kw_only=True)
class Topology:
    """A topology."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec = TopologySpec()
