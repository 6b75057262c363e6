"""Translation of the peer's configuration: settings outside of plugins, and its plugins by our names.

Search budgets, queue depths, parameters of snapshots and flags belong to no plugin. Each plugin entry of the peer's
file becomes some of our plugins. Its string arguments become typed options. A bad value is treated as the peer does: a
warning, and the default.

Source: the peer's cmd/scheduler/app/options, pkg/scheduler/conf, pkg/scheduler/plugins and their arguments.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

import attrs

from kai.basics import parsing
from kai.basics.errors import ConfigError
from kai.basics.parsing import is_whole
from kai.basics.wording import shown
from kai.deciding.configuration.registry import UnknownNameError, suggestion
from kai.framework.parameters import AS_PEER, LEAST_HARM, UNBOUNDED, Parameters, SearchBudgets

T = TypeVar("T")
Options = Mapping[str, object]


@attrs.frozen
class PluginEntry:
    """A plugin that the configuration names, by our name, with its options.

    ``key`` is its place in messages. ``elsewhere`` gives the keys of single options that are written elsewhere.
    """

    name: str
    options: Options = attrs.field(factory=dict)
    key: str = "plugins"
    elsewhere: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define
class Arguments:
    """The arguments of one plugin in the peer's file. Records which were read, and what was wrong with them."""

    plugin: str
    values: Mapping[str, str]
    notes: list[str] = attrs.field(factory=list)
    known: set[str] = attrs.field(factory=set)

    def number(self, key: str, lowest: float = 0.0) -> float:
        """Return a number, by default 1; a number below ``lowest`` becomes that."""
        text = self._text(key)
        if text is None:
            return 1.0
        value = parsing.floating(text)
        if value is None or not math.isfinite(value):
            return self._instead(key, "a number", 1.0)
        return max(lowest, value)

    def duration(self, key: str) -> float:
        """Return a duration in seconds; 0 if it is missing or negative."""
        text = self._text(key)
        if not text:
            return 0.0
        try:
            return max(0.0, parsing.seconds(text))
        except ValueError:
            return self._instead(key, parsing.DURATION_WANTED, 0.0)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Return one of ``choices``; the first is the default."""
        text = self._text(key)
        if not text or text in choices:
            return text or choices[0]
        return self._instead(key, " or ".join(choices), choices[0])

    def truth(self, key: str, *, default: bool) -> bool:
        """Return a truth value."""
        text = self._text(key)
        if text is None:
            return default
        value = parsing.truth(text)
        return self._instead(key, "true or false", default) if value is None else value

    def names(self, key: str) -> tuple[str, ...]:
        """Return the names of a comma-separated list."""
        return tuple(name.strip() for name in (self._text(key) or "").split(",") if name.strip())

    def passed_over(self, key: str, why: str) -> None:
        """Mark an argument that has no effect here as known, and note it if it is given."""
        if self._text(key) is not None:
            self.notes.append(f"{self.plugin}.{key}: {why}; ignored")

    def _text(self, key: str) -> str | None:
        # Also where the file lacks it: what is never read is a key that the plugin does not know.
        self.known.add(key)
        return self.values.get(key)

    def _instead(self, key: str, wanted: str, default: T) -> T:
        self.notes.append(f"{self.plugin}.{key}: found {shown(self.values[key])}, expected {wanted}; used {default}")
        return default


Translation = Callable[[Arguments], tuple[PluginEntry, ...]]


def _plainly(*names: str) -> Translation:
    return lambda _: tuple(PluginEntry(name) for name in names)


def _proportion(arguments: Arguments) -> tuple[PluginEntry, ...]:
    # The peer spells the key exactly so, and ignores the correct spelling.
    k = arguments.number("kValue")
    multiplier = arguments.number("relcaimerSaturationMultiplier", lowest=1.0)
    options: dict[str, object] = {"k": k, "saturation_multiplier": multiplier}
    if arguments.truth("queuePriorityInQuotaReclaim", default=False):
        options["queue_priority_in_quota_reclaim"] = True
    return (PluginEntry("proportion", options),)


def _node_placement(arguments: Arguments) -> tuple[PluginEntry, ...]:
    """Return binpack, spread or both; any other strategy behaves as binpack, as in the peer."""
    strategy = {kind: arguments.choice(kind, ("binpack", "spread")) for kind in ("cpu", "gpu")}
    found = []
    for name in ("binpack", "spread"):
        options = {kind: strategy[kind] == name for kind in ("cpu", "gpu")}
        if any(options.values()):
            found.append(PluginEntry(name, options))
    return tuple(found)


def _min_runtime(arguments: Arguments) -> tuple[PluginEntry, ...]:
    options = {
        "preempt_seconds": arguments.duration("defaultPreemptMinRuntime"),
        "reclaim_seconds": arguments.duration("defaultReclaimMinRuntime"),
        "reclaim_resolve_method": arguments.choice("reclaimResolveMethod", ("lca", "queue")),
    }
    return (PluginEntry("min_runtime", options),)


def _numa(arguments: Arguments) -> tuple[PluginEntry, ...]:
    options = {
        "ignore": arguments.names("ignoreList"),
        "reconstruct_available": arguments.truth("reconstructAvailable", default=True),
    }
    return (PluginEntry("numa", options),)


def _dynamic_resources(arguments: Arguments) -> tuple[PluginEntry, ...]:
    arguments.passed_over("maxCelCacheEntries", "is about memory of KAI-Scheduler")
    return (PluginEntry("dra"),)


PREDICATES = (
    "affinity",
    "taints",
    "ports",
    "pod_affinity",
    "pod_topology_spread",
    "volumes",
    "config_maps",
    "pool_maximum",
    "worker_nodes",
)
"""Checks that the peer has in one plugin, plus topology spread, which it has in none although pods may require it."""

PLUGINS: Mapping[str, Translation] = {
    "predicates": _plainly(*PREDICATES),
    "podaffinity": _plainly("pod_affinity_score"),
    "proportion": _proportion,
    "priority": _plainly("priority"),
    "elastic": _plainly("elastic"),
    "kubeflow": _plainly("kubeflow"),
    "ray": _plainly("ray"),
    "taskorder": _plainly("task_order"),
    "nodeavailability": _plainly("availability"),
    "gpusharingorder": _plainly("gpusharing"),
    "gpupack": _plainly("gpu_pack"),
    "gpuspread": _plainly("gpu_spread"),
    "resourcetype": _plainly("resource_type"),
    "subgrouporder": _plainly("subgroup_order"),
    "nominatednode": _plainly("nominated"),
    "dynamicresources": _dynamic_resources,
    "nodeplacement": _node_placement,
    "minruntime": _min_runtime,
    "topology": _plainly("topology"),
    "numa": _numa,
    "sg-nodelocalgreedy": _plainly("node_local_victims"),
    "sg-multinodegang": _plainly("gang"),
    # These serve the data of a cycle over HTTP, which is the service's task.
    "snapshot": _plainly(),
    "reflectjoborder": _plainly(),
}
"""The peer's plugins. One of them may correspond to several of ours, or to none."""

DEFAULT_ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")

DEFAULT_PLUGINS = (
    "predicates",
    "proportion",
    "priority",
    "elastic",
    "kubeflow",
    "ray",
    "nodeavailability",
    "gpusharingorder",
    "gpupack",
    "resourcetype",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "nodeplacement",
    "minruntime",
    "topology",
    "snapshot",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
)
"""The peer's built-in profile, in its order.

Source: the peer's pkg/scheduler/conf_util, default configuration.
"""


def ours(name: str) -> str:
    """Return the first of our plugins for a plugin of the peer; "" for a name that the peer does not have."""
    translation = PLUGINS.get(name)
    entries = translation(Arguments(name, {})) if translation else ()
    return entries[0].name if entries else ""


_NANOSECONDS = 10**9
BUDGETED = ("default", "reclaim", "preempt", "consolidation")
"""The actions that search, and the key for all other actions."""
_BUDGET_KEYS = ("maxActionSearchDuration", "maxJobSearchDuration", "minJobSearchDuration", "maxGeneratorSearchDuration")


def read_depths(value: object, place: str) -> Mapping[str, int]:
    """Return the most groups of a queue that each action considers.

    Raises: ConfigError.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping from action names to numbers")
    for name, depth in value.items():
        if not is_whole(depth) or depth < 0:
            raise ConfigError(f"{place}.{name}: found {shown(depth)}, expected a whole number, 0 or more")
    return {str(name): depth for name, depth in value.items()}


def read_budgets(value: object, place: str) -> SearchBudgets | None:
    """Return the search budgets; None if the file has none.

    Raises: ConfigError.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping of durations")
    strangers = [key for key in value if key not in _BUDGET_KEYS]
    if strangers:
        message = f"{place}: found key {shown(strangers[0])}, expected one of {', '.join(_BUDGET_KEYS)}"
        raise UnknownNameError(message, help=suggestion(str(strangers[0]), _BUDGET_KEYS))
    default = SearchBudgets()
    action, group, least, generator = (value.get(key) for key in _BUDGET_KEYS)
    return SearchBudgets(
        action={**default.action, **_durations(action, f"{place}.{_BUDGET_KEYS[0]}")},
        group=default.group if group is None else _limit(group, f"{place}.{_BUDGET_KEYS[1]}"),
        group_minimum=default.group_minimum if least is None else _limit(least, f"{place}.{_BUDGET_KEYS[2]}"),
        generator={**default.generator, **_durations(generator, f"{place}.{_BUDGET_KEYS[3]}")},
    )


def _durations(value: object, place: str) -> Mapping[str, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping of durations")
    return {str(name): _limit(each, f"{place}.{name}") for name, each in value.items()}


def _limit(value: object, place: str) -> float:
    """Return a time limit; 0 means no limit."""
    found = duration(value, place)
    if found < 0:
        raise ConfigError(f"{place}: found {shown(value)}, expected 0s or more")
    return found


def duration(value: object, place: str) -> float:
    """Return a duration in seconds: text as Go writes it, or whole nanoseconds.

    Raises: ConfigError.
    """
    if is_whole(value):
        return value / _NANOSECONDS
    try:
        if isinstance(value, str):
            return parsing.seconds(value)
    except ValueError:
        pass
    raise ConfigError(f"{place}: found {shown(value)}, expected {parsing.DURATION_WANTED}")


def read_victims(value: object, place: str) -> Literal["least-harm", "as-peer"]:
    """Return how victims are chosen.

    Raises: ConfigError.
    """
    if value == AS_PEER:
        return AS_PEER
    if value == LEAST_HARM:
        return LEAST_HARM
    raise ConfigError(f"{place}: found {shown(value)}, expected {LEAST_HARM} or {AS_PEER}")


@attrs.frozen
class Settings:
    """The peer's scheduler parameters, by its names; only parameters that affect decisions are known here.

    A snapshot omits zero values, so a missing key means zero there (``zeroed``); in a scenario it means the default.
    """

    values: Mapping[str, object]
    place: str
    zeroed: bool = False

    def parameters(self, base: Parameters) -> Parameters:
        """Return ``base`` with these settings.

        Raises: ConfigError for a value of the wrong type.
        """
        # The peer's snapshots name three settings otherwise than its flags do.
        preemptees = "maxNumberConsolidationPreemptees" if self.zeroed else "maxConsolidationPreemptees"
        grace = "globalDefaultStalenessGracePeriod" if self.zeroed else "defaultStalenessGracePeriod"
        restrict = "restrictSchedulingNodes" if self.zeroed else "restrictNodeScheduling"
        return attrs.evolve(
            base,
            scheduler_name=self.text("schedulerName", base.scheduler_name),
            max_consolidation_preemptees=max(UNBOUNDED, self.whole(preemptees, base.max_consolidation_preemptees)),
            allow_consolidating_reclaim=self.truth(
                "allowConsolidatingReclaim", default=base.allow_consolidating_reclaim
            ),
            victims=read_victims(self.values.get("victims", base.victims), f"{self.place}.victims"),
            use_scheduling_signatures=self.truth("useSchedulingSignatures", default=base.use_scheduling_signatures),
            default_staleness_grace_seconds=self.seconds(grace, base.default_staleness_grace_seconds),
            restrict_node_scheduling=self.truth(restrict, default=base.restrict_node_scheduling),
            detailed_fit_errors=self.truth("detailedFitErrors", default=base.detailed_fit_errors),
            schedule_csi_storage=self.truth("scheduleCSIStorage", default=base.schedule_csi_storage),
        )

    def truth(self, key: str, *, default: bool) -> bool:
        """Return a truth value."""
        value = self.values.get(key, False if self.zeroed else default)
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{self.place}.{key}: found {shown(value)}, expected true or false")

    def whole(self, key: str, default: int) -> int:
        """Return a whole number."""
        value = self.values.get(key, 0 if self.zeroed else default)
        if is_whole(value):
            return value
        raise ConfigError(f"{self.place}.{key}: found {shown(value)}, expected a whole number")

    def text(self, key: str, default: str) -> str:
        """Return a text; an empty one is the default."""
        value = self.values.get(key) or default
        if isinstance(value, str):
            return value
        raise ConfigError(f"{self.place}.{key}: found {shown(value)}, expected text")

    def seconds(self, key: str, default: float) -> float:
        """Return a duration in seconds."""
        if key not in self.values:
            return 0.0 if self.zeroed else default
        return duration(self.values[key], f"{self.place}.{key}")
