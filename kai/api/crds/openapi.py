"""Annotations of api classes as OpenAPI v3 schemas, in the structural form that custom resource definitions need.

`schema_of` reads the vocabulary of `kai.api.fields`, as `kai.api.codec.converter` does: what a reader refuses because
of a type, a bound or a pattern, the API server refuses first. What annotations do not say (immutable fields, rules over
several fields) is added by `kai.api.crds.definitions`.

A class that describes an object of Kubernetes itself declares only what kai reads. Its schema is therefore open: what
another program writes beside it is stored, not pruned.

What each field of our own kinds means, in the words that `kubectl explain` shows.

The sentences are kept by class and Python field name. A field whose type is a class needs no sentence here: the
docstring of that class is shown. Units and the meaning of absence belong into the sentence, since this is where an
administrator looks.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import attrs

from kai.api.fields import (
    INT32_MAX,
    INT64_MAX,
    Bounds,
    Format,
    Pattern,
    camel,
    is_union,
    name_on_the_wire,
    without_none,
)
from kai.api.kubernetes.meta import Condition
from kai.api.scheduling.bind_request import (
    BindRequestSpec,
    BindRequestStatus,
    ExtendedResourceClaimAllocation,
    NumaZone,
    ReceivedGpu,
    ResourceClaimAllocation,
)
from kai.api.scheduling.pod_group import (
    PodGroupCondition,
    PodGroupResources,
    PodGroupSpec,
    PodGroupStatus,
    QueueDetails,
    SchedulingCondition,
    SubGroup,
    TopologyConstraint,
    UnschedulableReason,
)
from kai.api.scheduling.queue import (
    BudgetStatus,
    ModelWeight,
    QueueBudget,
    QueueModel,
    QueueResource,
    QueueResources,
    QueueSchedule,
    QueueSpec,
    QueueStatus,
    ScheduledModel,
    ScheduledResource,
    ScheduledResources,
    ScheduledUser,
    TopologyLevel,
    TopologySpec,
    UserResource,
)
from kai.api.scheduling.shard import (
    ActionConfig,
    ConditionsStatus,
    ConfigSpec,
    GlobalConfig,
    MinRuntime,
    PlacementStrategy,
    PluginConfig,
    ScenarioSearchBudgets,
    SchedulingShardSpec,
    UsageDbConfig,
    UsageParams,
)

_CONDITION: Final = {
    "type": "What the condition says something about.",
    "status": "True, False or Unknown.",
    "reason": "Why, in one word.",
    "message": "Why, in a sentence.",
    "last_probe_time": "When the condition was last looked at.",
    "last_transition_time": "When the status last changed.",
    "observed_generation": "The metadata.generation on which the condition is based.",
}
_USED: Final = {
    "allocated": "What the pods hold, by resource name.",
    "allocated_non_preemptible": "The part of it that no other workload can take back.",
    "requested": "What the pods that are not finished ask for, whether or not they run.",
}

EXPLANATIONS: Final[Mapping[type, Mapping[str, str]]] = {
    Condition: _CONDITION,
    PodGroupCondition: {**_CONDITION, "transition_id": "A decimal number that grows with every transition."},
    ConditionsStatus: {"conditions": "The latest observations."},
    # --- Queue
    QueueSpec: {
        "display_name": "A name for people, used in metrics and messages.",
        "parent_queue": "The queue above; none for a queue at the top.",
        "priority": "Queues of higher priority are served first and reclaimed from last. Default 100.",
        "preempt_min_runtime": "How long a running workload is safe from workloads of higher priority in its queue.",
        "reclaim_min_runtime": "How long a running workload is safe from queues that are below their fair share.",
        "max_runtime": "How long a workload in or below this queue may run; queues below may only shorten it.",
        "default_runtime": "How long a workload that states no limit may run; the queue nearest to it counts.",
        "schedules": "Windows of time with other resources. Where several are open, later entries win.",
        "budgets": "GPU-hours that the queue and all below it may use in a period. Each budget counts for itself.",
    },
    QueueBudget: {
        "name": "A name for messages, such as month.",
        "amount": "How many GPU-hours a period has: hours of one GPU, parts of GPUs in part.",
        "weights": "How much an hour of certain GPU models counts; the first entry that fits counts, all others are 1.",
        "period": "monthly, weekly (from Monday on) or daily, from midnight on; a schedule in the five fields of cron, "
        "at whose times a period begins; or once, from from to until. Default monthly.",
        "time_zone": "The IANA time zone of the periods, such as Europe/Berlin. UTC if absent.",
        "from_": "When a budget with period once begins; absent means that all recorded usage counts.",
        "until": "When a budget with period once ends; from then on no work starts under it. Absent means never.",
        "carry_over": "Which part of the amount that was not used in the period before is added, from 0 to 1. "
        "Default 0.",
        "enforce": "admit starts only work that cannot exceed the budget, stop starts nothing once it is used up and "
        "lets other queues take back what runs, warn only says so. Default admit.",
        "refund": "Whose GPU-hours are given back: of pods that ended with their node (nodeFailure), and of pods that "
        "the scheduler evicted for others (preempted).",
        "slice": "For how long work without a limit of its run time is charged at a time, with admit. Default 1h.",
    },
    ModelWeight: {
        "model": "A GPU model by its short name such as h100. The node label nvidia.com/gpu.product, a pattern for it "
        "such as NVIDIA-H100-* and one of its words count, too.",
        "weight": "GPU-hours that an hour of one such GPU counts.",
    },
    BudgetStatus: {
        "name": "The name of the budget.",
        "since": "When the present period began.",
        "until": "When the present period ends.",
        "at": "When this was written.",
        "spent": "GPU-hours that were used in this period until then, less refunds.",
        "committed": "GPU-hours that running work may still use, by the limits of its run time.",
        "carried": "GPU-hours that were carried over from the period before.",
        "user_hours": "GPU-hours of the users who used most.",
    },
    QueueSchedule: {
        "name": "A name for messages, such as nights.",
        "time_zone": "The IANA time zone of the start, such as Europe/Berlin. UTC if absent.",
        "start": "When the window opens, in the five fields of cron: 0 22 * * 1-5 is 22:00 from Monday to Friday.",
        "duration": "How long it stays open. At the instant at which it closes it is closed.",
        "on_close": "What becomes of work that started in the window and is above the quota when it closes. drain lets "
        "it run to its end, reclaim lets other queues take it back, evict ends it. Default reclaim.",
        "notice": "How long before the close an event announces the end of such work, with evict. Default 5m.",
    },
    ScheduledResource: {
        "quota": "The quota while the window is open; absent means the one outside of it.",
        "over_quota_weight": "The over-quota weight while the window is open; absent means the one outside of it.",
        "limit": "The limit while the window is open; absent means the one outside of it.",
    },
    QueueResource: {
        "quota": "The guaranteed share: GPUs in devices, CPU in millicores, memory in megabytes. -1 is unlimited.",
        "over_quota_weight": "How large a part of what others leave over goes to this queue; 0 for none.",
        "limit": "What the queue never exceeds, in the units of the quota. -1 is unlimited; absent means 0.",
    },
    QueueModel: {
        "quota": "What the queue may reclaim of this model for work that is bound to it, in devices. -1 is unlimited.",
        "limit": "What the queue never exceeds of this model, in devices. -1 or absent is unlimited.",
    },
    ScheduledModel: {
        "quota": "The quota while the window is open; absent means the one outside of it.",
        "limit": "The limit while the window is open; absent means the one outside of it.",
    },
    ScheduledUser: {
        "limit": "The limit of each user while the window is open; absent means the one outside of it.",
    },
    ScheduledResources: {
        "models": "Bounds by model of GPU while the window is open; other models stay as they are outside of it.",
    },
    QueueResources: {
        "models": "Bounds by model of GPU, within those of gpu. A model is the short name of a product, such as h100.",
    },
    UserResource: {
        "limit": "What a user never exceeds, in the units of the queue's limit. -1 or absent is unlimited.",
    },
    QueueStatus: {
        "child_queues": "The queues that name this one as their parent.",
        **_USED,
        "fair_share": "What the queue is entitled to at the moment, by resource name.",
        "budgets": "What was used of each budget in its present period.",
        "conditions": "What is wrong with the queue's place in the tree, if anything.",
    },
    # --- PodGroup
    PodGroupSpec: {
        "queue": "The queue that pays; a group without an existing queue is not scheduled.",
        "min_member": "How many pods must be placed together. 0: none need be. Excludes minSubGroup.",
        "min_sub_group": "How many of the sub-groups directly below must be placed. Excludes minMember.",
        "priority_class_name": "The PriorityClass that orders the groups of a queue.",
        "preemptibility": "Whether others may take the group's resources back; by default below priority 100.",
        "sub_groups": "The parts of the group, in any order; names are unique.",
        "mark_unschedulable": "Whether pods that find no place get the condition PodScheduled=False. Default true.",
        "scheduling_backoff": "-1 (default): try in every cycle; 1: once, until something about the group changes.",
        "preemption_delay": "How long the group waits before it may take resources from others.",
        "staleness_grace_period": "How long a group may run below its minimum; negative: for ever.",
    },
    SubGroup: {
        "name": "The value of the label kai.scheduler/subgroup-name of its pods.",
        "parent": "The sub-group above; none directly below the group.",
        "min_member": "How many pods of a sub-group without children must be placed. Excludes minSubGroup.",
        "min_sub_group": "How many children of a sub-group must be placed. Excludes minMember.",
    },
    TopologyConstraint: {
        "topology": "The name of a Topology.",
        "required_topology_level": "All pods must be in one domain of this level, a node label or its alias.",
        "preferred_topology_level": "All pods should be in one domain of this level, a node label or its alias.",
    },
    PodGroupStatus: {
        "conditions": "The latest observations.",
        "scheduling_conditions": "Why the group is not scheduled: the last word of each node pool.",
        "running_since": "Since when its minimum runs. Only for groups with a limit of their run time.",
        "consumed_runtime": "How long earlier runs took, which count against the limit.",
    },
    SchedulingCondition: {
        "type": "UnschedulableOnNodePool.",
        "node_pool": "The node pool that has no place for the group.",
        "reason": "Deprecated: see reasons.",
        "message": "Deprecated: see reasons.",
        "reasons": "Every reason, with figures where a queue is the obstacle.",
        "transition_id": "A decimal number that grows with every transition.",
        "last_transition_time": "When this was found out.",
        "status": "True.",
    },
    UnschedulableReason: {"reason": "Why, in one word.", "message": "Why, in a sentence."},
    QueueDetails: {
        "name": "The queue.",
        "queue_requested_resources": "What its workloads ask for.",
        "queue_deserved_resources": "Its quota.",
        "queue_allocated_resources": "What its workloads hold.",
        "queue_allocated_non_preemptible_resources": "The part of it that no other workload can take back.",
        "queue_resource_limits": "Its limits.",
        "pod_group_requested_resources": "What the group asks for.",
        "pod_group_requested_non_preemptible_resources": "The part of it that no other workload could take back.",
    },
    PodGroupResources: _USED,
    # --- BindRequest
    BindRequestSpec: {
        "pod_name": "The pod, in the namespace of the request.",
        "selected_node": "The node for it.",
        "received_resource_type": "Regular for whole GPUs or none, Fraction for parts of GPUs.",
        "selected_gpu_groups": "The GPU groups that the pod joins, one for each device.",
        "resource_claim_allocations": "The devices for the pod's resource claims.",
        "predicted_numa_zones": "What the pod is expected to take from each NUMA zone.",
        "backoff_limit": "How often a failed bind is tried again before the scheduler decides anew.",
    },
    ReceivedGpu: {"count": "How many devices.", "portion": "How much of each, with two decimal places."},
    ResourceClaimAllocation: {"name": "The name of the claim in the pod."},
    ExtendedResourceClaimAllocation: {
        "device_requests": "The requests of the claim.",
        "container_mappings": "Which request serves which resource of which container.",
    },
    NumaZone: {"zone": "The name of the zone.", "amount": "What is taken from it, by resource name."},
    BindRequestStatus: {
        "phase": "Pending, Succeeded or Failed.",
        "reason": "Why the last attempt failed.",
        "failed_attempts": "How many attempts failed.",
    },
    # --- Topology
    TopologySpec: {"levels": "From the widest to the narrowest; node labels cannot be changed, aliases can."},
    TopologyLevel: {
        "node_label": "The node label whose value names the node's domain at this level.",
        "alias": "Another name for the level, for use in constraints.",
    },
    # --- SchedulingShard and Config
    SchedulingShardSpec: {
        "args": "Flags of the scheduler, by name without dashes.",
        "partition_label_value": "The value of the node-pool label that nodes, queues and groups of the shard have.",
        "queue_depth_per_action": "How many groups of a queue an action looks at, by action.",
        "k_value": "How strongly past usage lowers a queue's share of what others leave over.",
        "plugins": "Changes to plugins, by name.",
        "actions": "Changes to actions, by name.",
        "go_mem_limit_ratio": "Accepted for compatibility; without effect.",
        "go_mem_limit": "Accepted for compatibility; without effect.",
    },
    PlacementStrategy: {
        "gpu": "binpack (default) or spread, for pods that ask for GPUs.",
        "cpu": "binpack (default) or spread, for pods that do not.",
    },
    MinRuntime: {
        "preempt_min_runtime": "The default for queues that do not say.",
        "reclaim_min_runtime": "The default for queues that do not say.",
    },
    UsageDbConfig: {
        "client_type": "prometheus; sqlite or postgresql, a file or tables that kai writes; or a fake for tests.",
        "connection_string": "The address of Prometheus or of PostgreSQL, without a password, or the file of sqlite.",
        "connection_string_env_var": "The environment variable that holds the address or file.",
    },
    UsageParams: {
        "half_life_period": "After how long usage counts half; absent: it does not fade.",
        "window_size": "How far back usage counts. Default one week.",
        "window_type": "sliding (default), tumbling or cron.",
        "tumbling_window_start_time": "When the first tumbling window begins.",
        "cron_string": "When cron windows begin.",
        "fetch_interval": "How often usage is read. Default one minute.",
        "staleness_period": "How old usage may be and still count. Default five minutes.",
        "wait_timeout": "How long to wait for the first reading. Default one minute.",
        "extra_params": "Names of metrics to read instead of the default ones; for the other two, the retention.",
    },
    ScenarioSearchBudgets: {
        "max_action_search_duration": "How long an action may search for victims, by action or default.",
        "max_job_search_duration": "How long the search for one group may take; 0 is unlimited.",
        "min_job_search_duration": "How long the search for one group may always take.",
        "max_generator_search_duration": "How long a generator of scenarios may search, by generator or default.",
    },
    PluginConfig: {
        "enabled": "Whether the plugin runs.",
        "priority": "Plugins of higher priority come first.",
        "arguments": "Its arguments; they replace all default ones.",
    },
    ActionConfig: {"enabled": "Whether the action runs.", "priority": "Actions of higher priority come first."},
    GlobalConfig: {
        "scheduler_name": "The scheduler name of the pods that are ours.",
        "node_pool_label_key": "The label that assigns nodes, queues and groups to shards.",
        "queue_label_key": "The label that names a workload's queue.",
        "replica_count": "How many replicas of each component run.",
        "namespace_label_selector": "Labels of the namespaces whose pods are ours.",
        "pod_label_selector": "Labels of the pods that are ours.",
        "json_log": "Whether components log JSON.",
    },
    ConfigSpec: {
        "namespace": "The namespace of the components.",
        "pod_grouper": "Settings of the pod grouper.",
        "binder": "Settings of the binder.",
        "admission": "Settings of the admission webhooks.",
        "scheduler": "Settings of the scheduler.",
        "queue_controller": "Settings of the queue controller.",
        "pod_group_controller": "Settings of the pod-group controller.",
        "node_scale_adjuster": "Settings of the node-scale adjuster.",
        "prometheus": "Settings of the usage database.",
        "numa_placement_exporter": "Settings of the exporter of NUMA placements.",
    },
}


Schema: TypeAlias = dict[str, Any]
# Type hints are of many unrelated classes; only `typing` knows how to take them apart.
Hint: TypeAlias = Any
Extras: TypeAlias = Mapping[tuple[type, str], Mapping[str, Any]]
"""What to add to the schema of a field, by class and JSON name; an empty name stands for the class itself."""

OPEN: Final = {"x-kubernetes-preserve-unknown-fields": True}

_OWN: Final = ("kai.api.scheduling.", "kai.api.kubernetes.meta")
_NUMBER: Final = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_DURATION: Final = rf"^[-+]?(0|({_NUMBER}(ns|us|µs|μs|ms|s|m|h|d|w|y))+)$"
_QUANTITY: Final = rf"^[-+]?{_NUMBER}([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"
_INT_OR_STRING: Final = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_AMOUNT: Final = {**_INT_OR_STRING, "pattern": _QUANTITY}
_SHARE_RULE: Final = {"rule": "self == -1.0 || self >= 0.0", "message": "must be -1 (unlimited), 0 or positive"}
_FORMATS: Final[dict[str, Schema]] = {
    "time": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "pattern": _DURATION},
    "quantity": _AMOUNT,
    "requests": {"type": "object", "additionalProperties": _AMOUNT},
    "amounts": {"type": "object", "additionalProperties": _AMOUNT},
    "share": {"type": "number", "x-kubernetes-validations": [_SHARE_RULE]},
    "number": {"type": "number"},
    "number or text": _INT_OR_STRING,
    "json": OPEN,
    "json object": {"type": "object", **OPEN},
}
_QUOTED: Final = re.compile(r"`+([^`]+)`+")
_NATURAL: Final = {32: (-(2**31), INT32_MAX), 64: (-(2**63), INT64_MAX)}


def schema_of(hint: Hint, extras: Extras) -> Schema:
    """Return the schema of a type that a field of an api class may have.

    Raises: TypeError for a type that has no place in the vocabulary.
    """
    hint = without_none(hint)  # an absent field is never null in what the API server stores
    origin: object = get_origin(hint)
    if attrs.has(hint):
        return _object(hint, extras)
    if origin is Annotated:
        return _annotated(hint, extras)
    if origin is tuple:
        return {"type": "array", "items": schema_of(get_args(hint)[0], extras)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": schema_of(get_args(hint)[1], extras)}
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if is_union(hint) and all(get_origin(part) is Literal for part in get_args(hint)):
        return {"type": "string", "enum": [word for part in get_args(hint) for word in get_args(part)]}
    plain = {str: "string", bool: "boolean", float: "number"}.get(hint)
    if plain is not None:
        return {"type": plain}
    if hint is int:
        return {"type": "integer", "format": "int64"}
    raise TypeError(f"no schema for {hint}")


def _annotated(hint: Hint, extras: Extras) -> Schema:
    inner, *notes = get_args(hint)
    for note in notes:
        if isinstance(note, Bounds):
            return _integer(note)
        if isinstance(note, Pattern):
            return _text(note)
        if isinstance(note, Format):
            known = _FORMATS.get(note.name)
            return schema_of(inner, extras) if known is None else dict(known)
    raise TypeError(f"no schema for {hint}")


def _integer(bounds: Bounds) -> Schema:
    """Return the schema of a whole number; its format keeps it within the natural bounds of its width."""
    lowest, highest = _NATURAL[bounds.width]
    schema: Schema = {"type": "integer", "format": f"int{bounds.width}"}
    if bounds.lowest != lowest:
        schema["minimum"] = bounds.lowest
    if bounds.highest != highest:
        schema["maximum"] = bounds.highest
    return schema


def _text(pattern: Pattern) -> Schema:
    schema: Schema = {"type": "string"}
    if pattern.shortest:
        schema["minLength"] = pattern.shortest
    if pattern.longest is not None:
        schema["maxLength"] = pattern.longest
    if pattern.expression:
        schema["pattern"] = pattern.expression
    return schema


def _object(cls: type[Any], extras: Extras) -> Schema:
    """Return the schema of an api class: described by its docstring, with a property for each field."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = sorted(attrs.fields(cls), key=name_on_the_wire)
    sentences = EXPLANATIONS.get(cls, {})
    properties: dict[str, Schema] = {}
    for field in fields:
        wire = name_on_the_wire(field)
        schema = {**schema_of(hints[field.name], extras), **extras.get((cls, wire), {})}
        sentence = sentences.get(field.name)
        properties[wire] = schema if sentence is None else {**schema, "description": sentence}
    required = [name_on_the_wire(field) for field in fields if field.default is attrs.NOTHING]
    return {
        "type": "object",
        "description": description_of(cls),
        "properties": properties,
        **({"required": required} if required else {}),
        **({} if cls.__module__.startswith(_OWN) else OPEN),
        **extras.get((cls, ""), {}),
    }


def description_of(cls: type[Any]) -> str:
    """Return the first paragraph of the docstring of a class, on one line, with fields called as on the wire."""
    paragraph = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
    return _QUOTED.sub(lambda quoted: camel(quoted[1]), " ".join(paragraph.split()))
