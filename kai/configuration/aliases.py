"""The peer's plugins by our names: what each entry of its configuration file stands for here.

The peer's strings become typed options. A bad value is treated as the peer treats it: a warning, and the default.

Source: the peer's pkg/scheduler/plugins and their arguments.
"""

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs

from kai import durations, numerals
from kai.notation import shown

T = TypeVar("T")
Options = Mapping[str, object]


@attrs.frozen
class PluginEntry:
    """A plugin that the configuration asks for, by our name, with its options.

    ``key`` is where messages say that it stands. ``elsewhere`` are keys of single options that stand in another place.
    """

    name: str
    options: Options = attrs.field(factory=dict)
    key: str = "plugins"
    elsewhere: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define
class Arguments:
    """The arguments of one plugin of the peer's file. Remembers which were asked for, and what was wrong with them."""

    plugin: str
    values: Mapping[str, str]
    notes: list[str] = attrs.field(factory=list)
    known: set[str] = attrs.field(factory=set)

    def number(self, key: str, lowest: float = 0.0) -> float:
        """Return a number, 1 if there is none; one below ``lowest`` counts as it."""
        text = self._text(key)
        if text is None:
            return 1.0
        value = numerals.floating(text)
        if value is None or not math.isfinite(value):
            return self._instead(key, "a number", 1.0)
        return max(lowest, value)

    def duration(self, key: str) -> float:
        """Return a duration in seconds; 0 if there is none or it is negative."""
        text = self._text(key)
        if not text:
            return 0.0
        try:
            return max(0.0, durations.seconds(text))
        except ValueError:
            return self._instead(key, durations.WANTED, 0.0)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Return one of ``choices``, the first of which is the default."""
        text = self._text(key)
        if not text or text in choices:
            return text or choices[0]
        return self._instead(key, " or ".join(choices), choices[0])

    def truth(self, key: str, *, default: bool) -> bool:
        """Return a truth value."""
        text = self._text(key)
        if text is None:
            return default
        value = numerals.truth(text)
        return self._instead(key, "true or false", default) if value is None else value

    def names(self, key: str) -> tuple[str, ...]:
        """Return the names of a comma-separated list."""
        return tuple(name.strip() for name in (self._text(key) or "").split(",") if name.strip())

    def passed_over(self, key: str, why: str) -> None:
        """Know an argument that changes nothing here, and note it where it is given."""
        if self._text(key) is not None:
            self.notes.append(f"{self.plugin}.{key}: {why}; passed over")

    def _text(self, key: str) -> str | None:
        self.known.add(key)
        return self.values.get(key)

    def _instead(self, key: str, wanted: str, default: T) -> T:
        self.notes.append(f"{self.plugin}.{key}: found {shown(self.values[key])}, expected {wanted}; used {default}")
        return default


Translation = Callable[[Arguments], tuple[PluginEntry, ...]]


def _plainly(*names: str) -> Translation:
    return lambda _: tuple(PluginEntry(name) for name in names)


def _proportion(arguments: Arguments) -> tuple[PluginEntry, ...]:
    # The peer spells the second one exactly so, and passes over the correct spelling.
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
"""What the peer keeps in one plugin, and what it leaves to no plugin though pods demand it: how they are spread."""

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
    # They serve what a cycle saw over HTTP: the service's business, not the cycle's.
    "snapshot": _plainly(),
    "reflectjoborder": _plainly(),
}
"""The peer's plugins. One of them may be several of ours, or none."""

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
    """Return the first of our plugins that a plugin of the peer stands for, "" for a name it does not have."""
    translation = PLUGINS.get(name)
    entries = translation(Arguments(name, {})) if translation else ()
    return entries[0].name if entries else ""
