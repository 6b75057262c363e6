"""Node and its NUMA topology, and the constraints that pods put on nodes.

A node has allocatable resources, and taints and conditions that keep pods away.

A pod constrains its node by node selectors, affinity, tolerations and spread constraints.

NodeResourceTopology (topology.node.k8s.io/v1alpha2) lists the NUMA zones of the node of the same name.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Int32, Int64, Quantity, Requests, Time, by_content, shared, wire_name
from kai.api.kubernetes.meta import Condition, LabelSelector, ObjectMeta

NodeOperator: TypeAlias = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
TolerationOperator: TypeAlias = Literal["", "Equal", "Exists", "Lt", "Gt"]
TaintEffect: TypeAlias = Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"]

_REQUIRED = wire_name("requiredDuringSchedulingIgnoredDuringExecution")
_PREFERRED = wire_name("preferredDuringSchedulingIgnoredDuringExecution")


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeSelectorRequirement:
    """One condition on one label or field of a node."""

    key: str
    operator: NodeOperator
    values: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeSelectorTerm:
    """A conjunction of conditions; a term without any matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeSelector:
    """A disjunction of terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class PreferredSchedulingTerm:
    """A node preference, with its weight."""

    weight: Int32
    preference: NodeSelectorTerm = NodeSelectorTerm()


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeAffinity:
    """Required and preferred terms about the node."""

    required: NodeSelector | None = attrs.field(default=None, metadata=_REQUIRED)
    preferred: tuple[PreferredSchedulingTerm, ...] = attrs.field(default=(), metadata=_PREFERRED)


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodAffinityTerm:
    """The pods to be near to (or away from), and the topology that defines near."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class WeightedPodAffinityTerm:
    """A preference about other pods, with its weight."""

    weight: Int32
    pod_affinity_term: PodAffinityTerm


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodAffinity:
    """Required and preferred terms about other pods, for affinity and anti-affinity alike."""

    required: tuple[PodAffinityTerm, ...] = attrs.field(default=(), metadata=_REQUIRED)
    preferred: tuple[WeightedPodAffinityTerm, ...] = attrs.field(default=(), metadata=_PREFERRED)


@attrs.frozen(kw_only=True, weakref_slot=False)
class Affinity:
    """The `affinity` of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class Toleration:
    """The taints that a pod tolerates; an empty key with `Exists` matches every taint."""

    key: str = ""
    operator: TolerationOperator = ""
    value: str = ""
    effect: TaintEffect = ""
    toleration_seconds: Int64 | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class TopologySpreadConstraint:
    """How evenly to spread pods over the values of a node label: required (``DoNotSchedule``) or preferred."""

    topology_key: str = ""
    max_skew: Int32 = 0
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class Taint:
    """A mark on a node that repels pods without a matching toleration."""

    key: str
    value: str = ""
    effect: TaintEffect = ""
    time_added: Time | None = attrs.field(default=None, eq=False)
    """When it was set; not compared, since tolerations do not depend on it."""


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeSpec:
    """The part of a node that administrators set."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeStatus:
    """The part of a node that its kubelet reports."""

    allocatable: Requests = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    capacity: Requests = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    conditions: tuple[Condition, ...] = ()
    declared_features: tuple[str, ...] = ()
    """Features of the kubelet that pods may require, since Kubernetes 1.36."""


@attrs.frozen(kw_only=True, weakref_slot=False)
class Node:
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = attrs.field(default=NodeSpec(), metadata=shared())
    status: NodeStatus = NodeStatus()


@attrs.frozen(kw_only=True)
class Attribute:
    """A named setting of the node's kubelet, or a named property of a zone."""

    name: str
    value: str = ""


@attrs.frozen(kw_only=True)
class ZoneResource:
    """The amounts of one resource in a zone."""

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
