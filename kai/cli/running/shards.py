"""Render a SchedulingShard into the scheduler's configuration, as KAI-Scheduler's operator does for its scheduler.

The operator writes a configuration file, which is ``Rendered.document`` here, and a command line;
``Rendered.flags`` has its flags that the scheduler knows. A Config (``kai-config``) beside the shard has the settings
that all shards of an installation share.

Source: KAI-Scheduler's pkg/apis/kai/v1, defaults of a shard, and its operator's pkg/operator/operands/scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import attrs

from kai.api.codec.structuring import structure_as
from kai.api.fields import EMPTY, camel
from kai.api.scheduling.shard import (
    ActionConfig,
    Config,
    PluginConfig,
    ScenarioSearchBudgets,
    SchedulingShard,
    SchedulingShardSpec,
)
from kai.api.values import duration_text
from kai.basics.errors import ConfigError, InputError
from kai.basics.parsing import RECORDED_USAGE, mapping_of, part_of
from kai.basics.wording import shown
from kai.deciding.configuration.peer import BUDGETED, DEFAULT_ACTIONS
from kai.deciding.configuration.registry import Registry

GROUP: Final = "kai.scheduler/"
_BINPACK, _SPREAD = "binpack", "spread"
_PLUGINS: Final[Mapping[str, int]] = {
    "predicates": 1900,
    "proportion": 1800,
    "priority": 1700,
    "nodeavailability": 1600,
    "resourcetype": 1500,
    "podaffinity": 1400,
    "elastic": 1300,
    "kubeflow": 1200,
    "ray": 1100,
    "subgrouporder": 1000,
    "taskorder": 900,
    "nominatednode": 800,
    "dynamicresources": 700,
    "minruntime": 600,
    "topology": 500,
    "snapshot": 400,
    "sg-nodelocalgreedy": 360,
    "sg-multinodegang": 350,
    "gpupack": 300,
    "gpuspread": 300,
    "nodeplacement": 200,
    "gpusharingorder": 100,
}
"""The default priorities of plugins: a higher one runs earlier."""
_MEANINGLESS: Final = {"go_mem_limit": "the memory of a Go program", "go_mem_limit_ratio": "the memory of a Go program"}
_IN_CLUSTER: Final = "http://usage-prometheus.{}.svc.cluster.local:9090"
_NAMESPACE: Final = "kai-scheduler"


@attrs.frozen(kw_only=True)
class Rendered:
    """A rendered shard."""

    document: Mapping[str, Any]
    """A configuration in KAI-Scheduler's form."""
    flags: Mapping[str, str]
    """Flags of the scheduler by name, their values as text."""
    notes: tuple[str, ...]


@attrs.frozen(kw_only=True)
class _Use:
    """One plugin or action of a shard, as it will be used."""

    enabled: bool
    priority: int
    arguments: Mapping[str, str] = EMPTY


def is_shard(document: object) -> bool:
    """Return whether a document is a manifest of KAI-Scheduler's API rather than a configuration file."""
    return isinstance(document, Mapping) and str(document.get("apiVersion", "")).startswith(GROUP)


def render(documents: Sequence[Mapping[str, Any]], place: str, known: Iterable[str]) -> Rendered:
    """Return the configuration of the one shard among ``documents``; ``known`` are the scheduler's flags.

    Raises: ConfigError for a shard that the operator would refuse, and for no shard or more than one.
    """
    shards = [each for each in documents if each.get("kind") == "SchedulingShard"]
    configs = [each for each in documents if each.get("kind") == "Config"]
    if len(shards) != 1 or len(configs) > 1:
        found = ", ".join(f"{_on_one_line(each.get('kind'))} {_name(each)}" for each in documents) or "nothing"
        raise ConfigError(f"{place}: found {found}, expected one SchedulingShard, and a Config at most")
    (source,) = shards
    where = f"{place}: schedulingshard {_name(source)}"
    raw = source.get("spec") or {}
    usage = part_of(raw, "usageDBConfig")
    # Its durations are in Prometheus' syntax, unlike the shard's others. They stay raw: the scheduler parses them.
    spec = _decoded(SchedulingShard, {**source, "spec": _without(raw, "usageDBConfig")}, place).spec
    config = _decoded(Config, configs[0], place) if configs else Config()
    notes = [*_strangers(raw, where), *_unused(spec, where)]
    document = _document(spec, where)
    if usage:
        document["usageDBConfig"] = _usage(usage, config, where, notes)
    flags = {**_config_flags(config), "partition-label-value": spec.partition_label_value, **spec.args}
    chosen = set(known)
    strangers = sorted(set(spec.args) - chosen)
    notes += [
        f"{where}: spec.args.{_on_one_line(name)}: found no flag of the scheduler, expected one; ignored"
        for name in strangers
    ]
    return Rendered(
        document=document, flags={key: text for key, text in flags.items() if key in chosen}, notes=tuple(notes)
    )


def _decoded(cls: Any, document: Mapping[str, Any], place: str) -> Any:  # noqa: ANN401 - either of two classes
    try:
        return structure_as(cls, document)
    except InputError as error:
        raise ConfigError(*(f"{place}: {message}" for message in error.messages)) from None


def _without(raw: object, key: str) -> object:
    return {each: value for each, value in raw.items() if each != key} if isinstance(raw, Mapping) else raw


def _name(document: Mapping[str, Any]) -> str:
    return _on_one_line(mapping_of(document, "metadata").get("name", ""))


def _on_one_line(value: object) -> str:
    """Return a value of a file for a one-line message: as it stands, or quoted if it is not printable."""
    return value if isinstance(value, str) and value.isprintable() else shown(value)


def _strangers(raw: object, where: str) -> list[str]:
    """Return a note for each key of a shard's spec that kai does not know."""
    known = {camel(field) for field in attrs.fields_dict(SchedulingShardSpec)}
    unknown = [key for key in mapping_of(raw) if key not in known]
    wanted = ", ".join(sorted(known))
    return [
        f"{where}: spec.{_on_one_line(key)}: found an unknown key, expected one of {wanted}; ignored" for key in unknown
    ]


def _unused(spec: SchedulingShardSpec, where: str) -> list[str]:
    return [
        f"{where}: spec.{camel(field)}: is about {about}; ignored"
        for field, about in _MEANINGLESS.items()
        if getattr(spec, field) is not None
    ]


# ------------------------------------------------------------------------------------------------ configuration file


def _document(spec: SchedulingShardSpec, where: str) -> dict[str, Any]:
    actions = _in_order(_actions(spec))
    depths = dict(spec.queue_depth_per_action)
    for action in depths:
        if action not in actions:
            wrong, known = _on_one_line(action), ", ".join(actions)
            raise ConfigError(
                f"{where}: spec.queueDepthPerAction.{wrong}: the scheduler's actions are {known}. "
                f"{wrong} isn't one of them, making the queueDepthPerAction invalid"
            )
    plugins = _plugins(spec)
    tier = [
        {"name": name, **({"arguments": dict(plugins[name].arguments)} if plugins[name].arguments else {})}
        for name in _in_order(plugins)
    ]
    out: dict[str, Any] = {"actions": ", ".join(actions), "tiers": [{"plugins": tier}]}
    if depths:
        out["queueDepthPerAction"] = depths
    if spec.scenario_search_budgets is not None:
        out["scenarioSearchBudgets"] = _budgets(spec.scenario_search_budgets, where)
    return out


def _in_order(uses: Mapping[str, _Use]) -> list[str]:
    """Return the names of the enabled ones by descending priority, then by name."""
    return sorted((name for name, use in uses.items() if use.enabled), key=lambda name: (-uses[name].priority, name))


def _plugins(spec: SchedulingShardSpec) -> dict[str, _Use]:
    placement = spec.placement_strategy
    gpu = (placement and placement.gpu) or _BINPACK
    cpu = (placement and placement.cpu) or _BINPACK
    # The strategy for CPUs switches no plugin: it is an argument of nodeplacement only.
    packs = gpu == _BINPACK
    enabled = {"gpusharingorder": packs, "gpupack": packs, "gpuspread": not packs}
    arguments: dict[str, dict[str, str]] = {"nodeplacement": {"gpu": gpu, "cpu": cpu}}
    if spec.k_value is not None:
        # In digits alone: repr writes small numbers with an exponent.
        arguments["proportion"] = {"kValue": format(Decimal(repr(spec.k_value)).normalize(), "f")}
    runtimes = spec.min_runtime
    if runtimes is not None:
        pairs = {
            "defaultPreemptMinRuntime": runtimes.preempt_min_runtime,
            "defaultReclaimMinRuntime": runtimes.reclaim_min_runtime,
        }
        arguments["minruntime"] = {key: duration_text(each) for key, each in pairs.items() if each is not None}
    out = {
        name: _Use(enabled=enabled.get(name, True), priority=priority, arguments=arguments.get(name, {}))
        for name, priority in _PLUGINS.items()
    }
    for name, change in spec.plugins.items():
        known = _changed(out.get(name), change)
        # Arguments in the shard replace all arguments of the plugin, including generated ones, as in the operator.
        out[name] = known if change.arguments is None else attrs.evolve(known, arguments=change.arguments)
    return out


def _actions(spec: SchedulingShardSpec) -> dict[str, _Use]:
    placement = spec.placement_strategy
    spreads = placement is not None and _SPREAD in (placement.gpu, placement.cpu)
    installed = Registry.installed()
    out = {
        # Consolidation packs nodes, against which a shard that spreads would work at once.
        name: _Use(enabled=name != "consolidation" or not spreads, priority=installed.priority_of(name))
        for name in DEFAULT_ACTIONS
    }
    for name, change in spec.actions.items():
        out[name] = _changed(out.get(name) or _Use(enabled=True, priority=installed.priority_of(name)), change)
    return out


def _changed(known: _Use | None, change: PluginConfig | ActionConfig) -> _Use:
    """Return ``known`` with the changes of the shard; a new plugin is enabled and comes last."""
    before = known or _Use(enabled=True, priority=0)
    return attrs.evolve(
        before,
        enabled=before.enabled if change.enabled is None else change.enabled,
        priority=before.priority if change.priority is None else change.priority,
    )


def _budgets(budgets: ScenarioSearchBudgets, where: str) -> dict[str, Any]:
    """Return the search budgets.

    Raises: ConfigError for budgets that the operator would refuse.
    """
    place = f"{where}: spec.scenarioSearchBudgets"
    longest = {
        "maxActionSearchDuration": budgets.max_action_search_duration,
        "maxGeneratorSearchDuration": budgets.max_generator_search_duration,
    }
    for action in longest["maxActionSearchDuration"]:
        if action not in BUDGETED:
            wanted = ", ".join(BUDGETED)
            raise ConfigError(f"{place}.maxActionSearchDuration: found key {shown(action)}, expected one of {wanted}")
    most, least = budgets.max_job_search_duration, budgets.min_job_search_duration
    singles = {
        key: each
        for key, each in {"maxJobSearchDuration": most, "minJobSearchDuration": least}.items()
        if each is not None
    }
    named = {f"{key}.{name}": each for key, mapping in longest.items() for name, each in mapping.items()}
    for key, each in {**named, **singles}.items():
        if each < 0:
            raise ConfigError(f"{place}.{key}: found {shown(duration_text(each))}, expected 0s or more")
    if most and least is not None and least >= most:
        found = duration_text(least)
        raise ConfigError(
            f"{place}.minJobSearchDuration: found {shown(found)}, expected less than maxJobSearchDuration"
        )
    out: dict[str, Any] = {key: duration_text(each) for key, each in singles.items()}
    for key, mapping in longest.items():
        if mapping:
            out[key] = {name: duration_text(each) for name, each in mapping.items()}
    return out


def _usage(usage: object, config: Config, where: str, notes: list[str]) -> object:
    """Return the source of past usage; if the shard names none, the one of the Config, as in the operator."""
    if not isinstance(usage, Mapping) or usage.get("connectionString") or usage.get("connectionStringEnvVar"):
        return usage
    if usage.get("clientType") in RECORDED_USAGE:  # neither has a default: shards must not share a file
        return usage
    prometheus = config.spec.prometheus
    outside = prometheus.get("externalPrometheusUrl")
    address = _IN_CLUSTER.format(config.spec.namespace or _NAMESPACE)
    if outside and not prometheus.get("enabled"):
        address = str(outside)
    elif not prometheus.get("enabled"):
        notes.append(f"{where}: spec.usageDBConfig: found no address, expected one; used {address}")
    return {**usage, "connectionString": address}


# ------------------------------------------------------------------------------------------------------ command line


def _config_flags(config: Config) -> dict[str, str]:
    """Return the flags that a Config sets for every scheduler; settings that it leaves out keep the flags' defaults."""
    spec, shared = config.spec, config.spec.global_
    reservation = mapping_of(spec.binder, "resourceReservation")
    texts = {
        "namespace": spec.namespace,
        "scheduler-name": shared.scheduler_name if shared else "",
        "nodepool-label-key": shared.node_pool_label_key if shared else "",
        "queue-label-key": shared.queue_label_key if shared else "",
        "resource-reservation-namespace": reservation.get("namespace"),
        "resource-reservation-app-label": reservation.get("appLabel"),
        "metrics-namespace": spec.queue_controller.get("metricsNamespace"),
    }
    found = {name: str(text) for name, text in texts.items() if text}
    replicas = spec.scheduler.get("replicas", shared.replica_count if shared else None)
    # A single replica has no other to hand over to, and starts sooner without a lease.
    if isinstance(replicas, int) and replicas > 1:
        found["leader-elect"] = "true"
    return found
