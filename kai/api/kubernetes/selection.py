"""How a pod says where it wants to be: node selectors, affinity, tolerations, spread constraints."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from kai.api.fields import Int32, Int64, wire_name
from kai.api.kubernetes.meta import LabelSelector

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
    """A wish about the node, with its weight."""

    weight: Int32
    preference: NodeSelectorTerm = NodeSelectorTerm()


@attrs.frozen(kw_only=True, weakref_slot=False)
class NodeAffinity:
    """Demands and wishes about the node."""

    required: NodeSelector | None = attrs.field(default=None, metadata=_REQUIRED)
    preferred: tuple[PreferredSchedulingTerm, ...] = attrs.field(default=(), metadata=_PREFERRED)


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodAffinityTerm:
    """Pods to be near to (or away from), and what near means."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class WeightedPodAffinityTerm:
    """A wish about other pods, with its weight."""

    weight: Int32
    pod_affinity_term: PodAffinityTerm


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodAffinity:
    """Demands and wishes about other pods; serves affinity and anti-affinity alike."""

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
    """A kind of taint that a pod puts up with; an empty key with `Exists` stands for every taint."""

    key: str = ""
    operator: TolerationOperator = ""
    value: str = ""
    effect: TaintEffect = ""
    toleration_seconds: Int64 | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class TopologySpreadConstraint:
    """How evenly pods are to be spread over the values of a node label: a demand (``DoNotSchedule``) or a wish."""

    topology_key: str = ""
    max_skew: Int32 = 0
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()
