"""Node: what it offers, and what keeps pods away from it."""

from __future__ import annotations

import attrs

from kai.api.fields import EMPTY, Requests, Time, by_content, shared
from kai.api.kubernetes.meta import Condition, ObjectMeta
from kai.api.kubernetes.selection import TaintEffect


@attrs.frozen(kw_only=True, weakref_slot=False)
class Taint:
    """A mark on a node that keeps away pods which do not tolerate it."""

    key: str
    value: str = ""
    effect: TaintEffect = ""
    time_added: Time | None = attrs.field(default=None, eq=False)
    """When it was set: pods tolerate a taint or do not, however old it is."""


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeSpec:
    """What an administrator says about a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeStatus:
    """What a node's kubelet says about it."""

    allocatable: Requests = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    capacity: Requests = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    conditions: tuple[Condition, ...] = ()
    declared_features: tuple[str, ...] = ()
    """What the kubelet can do that pods may need, since Kubernetes 1.36."""


@attrs.frozen(kw_only=True, weakref_slot=False)
class Node:
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = attrs.field(default=NodeSpec(), metadata=shared())
    status: NodeStatus = NodeStatus()
