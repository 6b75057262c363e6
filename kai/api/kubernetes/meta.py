"""Metadata, label selectors and conditions, small core kinds, and kinds that only plugins read.

All kinds share object metadata, owner references, label selectors and conditions.

The small kinds of the Kubernetes core are priority classes, config maps, namespaces and disruption budgets.

Of objects that only plugins read, kai reads the metadata and the plugin reads the rest. ``kai.api.kinds`` declares
their kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Count64, Int32, Labels, NumberOrText, Time, Word, by_content, shared

SelectorOperator: TypeAlias = Literal["In", "NotIn", "Exists", "DoesNotExist"]


@attrs.frozen(kw_only=True, weakref_slot=False)
class OwnerReference:
    """The object that an object belongs to, and with which it is garbage-collected."""

    api_version: Word = ""
    kind: Word = ""
    name: Word = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class ObjectMeta:
    """The part of `metadata` that a module of kai reads or writes."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Count64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: Labels = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    annotations: Labels = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    owner_references: tuple[OwnerReference, ...] = attrs.field(default=(), metadata=shared())
    finalizers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class LabelSelectorRequirement:
    """One condition on one label."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class LabelSelector:
    """A conjunction over labels; an empty selector selects everything, an absent one (None) nothing."""

    match_labels: Labels = attrs.field(default=EMPTY, eq=by_content)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class Condition:
    """A condition in the status of a pod, node, queue or other object."""

    type: Word = ""
    status: Word = ""
    reason: Word = ""
    message: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    observed_generation: Count64 = 0


@attrs.frozen(kw_only=True)
class PriorityClass:
    """A named priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


@attrs.frozen(kw_only=True)
class ConfigMap:
    """Text by key. Binary data is not kept."""

    metadata: ObjectMeta = ObjectMeta()
    data: Labels = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class Namespace:
    """A namespace; namespace selectors match its labels."""

    metadata: ObjectMeta = ObjectMeta()


@attrs.frozen(kw_only=True)
class PodDisruptionBudgetSpec:
    """The pods of a budget, and how many may be missing; amounts are numbers or percentages."""

    selector: LabelSelector | None = None
    min_available: NumberOrText | None = None
    max_unavailable: NumberOrText | None = None
    unhealthy_pod_eviction_policy: str = ""
    """AlwaysAllow, or IfHealthyBudget, which is the default."""


@attrs.frozen(kw_only=True)
class PodDisruptionBudgetStatus:
    """How many pods may be evicted now. None: the disruption controller has not computed it."""

    disruptions_allowed: Int32 | None = None
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0


@attrs.frozen(kw_only=True)
class PodDisruptionBudget:
    """A limit on voluntary disruptions."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


@attrs.frozen(kw_only=True)
class JobSpec:
    """The deadline of a Job; its own controller counts it from ``status.startTime`` on."""

    active_deadline_seconds: Count64 | None = None


@attrs.frozen(kw_only=True)
class JobStatus:
    """When a Job started, and whether it has ended."""

    start_time: Time | None = None
    conditions: tuple[Condition, ...] = ()


@attrs.frozen(kw_only=True)
class Job:
    """A Job, as far as a limit of its run time is concerned."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


@attrs.frozen(kw_only=True)
class Foreign:
    """An object that a plugin reads; each such kind is a subclass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = EMPTY
    status: Mapping[str, Any] = EMPTY
