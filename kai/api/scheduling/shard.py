"""SchedulingShard and Config (kai.scheduler/v1): how a scheduler, and the installation around it, are configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Count, Format, Int32, JsonObject, Labels, Quantity, Seconds, Time, by_content, by_json
from kai.api.kubernetes.meta import Condition, ObjectMeta

Strategy: TypeAlias = Literal["", "binpack", "spread"]
WindowType: TypeAlias = Literal["", "sliding", "tumbling", "cron"]
UsageClient: TypeAlias = Literal["", "prometheus", "sqlite", "postgresql", "fake", "fake-with-history"]
Number: TypeAlias = Annotated[float, Format("number")]
Durations: TypeAlias = Mapping[str, Seconds]


@attrs.frozen(kw_only=True)
class PlacementStrategy:
    """Whether to fill nodes one after the other or to spread over them; empty means binpack."""

    gpu: Strategy = ""
    cpu: Strategy = ""


@attrs.frozen(kw_only=True)
class MinRuntime:
    """How long pods run undisturbed where their queue does not say."""

    preempt_min_runtime: Seconds | None = None
    reclaim_min_runtime: Seconds | None = None


@attrs.frozen(kw_only=True)
class UsageParams:
    """How past usage is measured; what is absent has the defaults of the usage reader."""

    half_life_period: Seconds | None = None
    window_size: Seconds | None = None
    window_type: WindowType = ""
    tumbling_window_start_time: Time | None = None
    cron_string: str = ""
    fetch_interval: Seconds | None = None
    staleness_period: Seconds | None = None
    wait_timeout: Seconds | None = None
    extra_params: Labels = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class UsageDbConfig:
    """Where past usage is read from."""

    client_type: UsageClient = ""
    connection_string: str = ""
    connection_string_env_var: str = ""
    usage_params: UsageParams | None = None


@attrs.frozen(kw_only=True)
class ScenarioSearchBudgets:
    """How long searches for victims may take."""

    max_action_search_duration: Durations = attrs.field(default=EMPTY, eq=by_content)
    max_job_search_duration: Seconds | None = None
    min_job_search_duration: Seconds | None = None
    max_generator_search_duration: Durations = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class PluginConfig:
    """What a shard changes about a plugin; given arguments replace all default ones."""

    enabled: bool | None = None
    priority: Int32 | None = None
    arguments: Labels | None = attrs.field(default=None, eq=by_content)


@attrs.frozen(kw_only=True)
class ActionConfig:
    """What a shard changes about an action."""

    enabled: bool | None = None
    priority: Int32 | None = None


@attrs.frozen(kw_only=True)
class SchedulingShardSpec:
    """A scheduler of its own for the nodes, queues and groups with one partition label value."""

    args: Labels = attrs.field(default=EMPTY, eq=by_content)
    partition_label_value: str = ""
    placement_strategy: PlacementStrategy | None = None
    queue_depth_per_action: Mapping[str, Count] = attrs.field(default=EMPTY, eq=by_content)
    min_runtime: MinRuntime | None = None
    k_value: Number | None = None
    usage_db_config: UsageDbConfig | None = None
    scenario_search_budgets: ScenarioSearchBudgets | None = None
    plugins: Mapping[str, PluginConfig] = attrs.field(default=EMPTY, eq=by_content)
    actions: Mapping[str, ActionConfig] = attrs.field(default=EMPTY, eq=by_content)
    go_mem_limit_ratio: Number | None = None
    go_mem_limit: Quantity | None = None


@attrs.frozen(kw_only=True)
class ConditionsStatus:
    """A status that consists of conditions."""

    conditions: tuple[Condition, ...] = ()


@attrs.frozen(kw_only=True)
class SchedulingShard:
    """A shard."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SchedulingShardSpec = SchedulingShardSpec()
    status: ConditionsStatus = ConditionsStatus()


@attrs.frozen(kw_only=True)
class GlobalConfig:
    """Settings that all components share."""

    scheduler_name: str = ""
    node_pool_label_key: str = ""
    queue_label_key: str = ""
    replica_count: Count | None = None
    namespace_label_selector: Labels = attrs.field(default=EMPTY, eq=by_content)
    pod_label_selector: Labels = attrs.field(default=EMPTY, eq=by_content)
    json_log: bool | None = None


@attrs.frozen(kw_only=True)
class ConfigSpec:
    """The sections of an installation's configuration; those of single components are carried as they are."""

    namespace: str = ""
    global_: GlobalConfig | None = None
    pod_grouper: JsonObject = attrs.field(default=EMPTY, eq=by_json)
    binder: JsonObject = attrs.field(default=EMPTY, eq=by_json)
    admission: JsonObject = attrs.field(default=EMPTY, eq=by_json)
    scheduler: JsonObject = attrs.field(default=EMPTY, eq=by_json)
    queue_controller: JsonObject = attrs.field(default=EMPTY, eq=by_json)
    pod_group_controller: JsonObject = attrs.field(default=EMPTY, eq=by_json)
    node_scale_adjuster: JsonObject = attrs.field(default=EMPTY, eq=by_json)
    prometheus: JsonObject = attrs.field(default=EMPTY, eq=by_json)
    numa_placement_exporter: JsonObject = attrs.field(default=EMPTY, eq=by_json)


@attrs.frozen(kw_only=True)
class Config:
    """The configuration of an installation; there is one, called ``kai-config``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ConfigSpec = ConfigSpec()
    status: ConditionsStatus = ConditionsStatus()
