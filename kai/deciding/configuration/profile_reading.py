"""Configuration: from the values of a file to a profile.

There are two formats. Our own:

    with:
      same-rack: {weight: 3}
      proportion: {k: 1.0}
      gpu_pack: false
    actions: [allocate, reclaim]
    parameters: {max_consolidation_preemptees: 16}
    usageDBConfig: {clientType: prometheus, connectionString: "http://prometheus:9090"}

``with`` adds plugins to the default ones, sets their options, or switches them off. ``plugins`` in its place is the
whole list: other plugins are off. A note tells what is lost with each default plugin that is off.

The peer's format (``tiers``, ``actions`` as one string, arguments as strings) loads unchanged. Missing keys of either
have the peer's defaults. An unknown name or option is an error at the start: a policy that silently does not apply is
worse than none.

Source: the peer's pkg/scheduler/conf and conf_util.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

import attrs

from kai.basics.errors import ConfigError
from kai.basics.wording import shown
from kai.deciding.configuration import peer
from kai.deciding.configuration.options import build, described, from_text
from kai.deciding.configuration.past_usage import UsageSettings, read_usage
from kai.deciding.configuration.peer import (
    BUDGETED,
    Arguments,
    Options,
    PluginEntry,
    read_budgets,
    read_depths,
    read_victims,
)
from kai.deciding.configuration.registry import Registry, UnknownNameError, suggestion
from kai.deciding.engine.shortcuts import TABLE as SHORTCUTS
from kai.framework.parameters import Parameters, SearchBudgets

ON_FAILURE = "on_failure"
"""The option of every plugin that sets the reaction to its failures."""
OUR_KEYS = ("with", "plugins", "actions", "parameters", "usageDBConfig", "victims")
PEER_KEYS = ("actions", "tiers", "queueDepthPerAction", "usageDBConfig", "scenarioSearchBudgets", "victims")
SWITCHES = (
    *("disableJobOrder", "disableTaskOrder", "disablePreemptable", "disableReclaimable", "disableQueueOrder"),
    *("disablePredicate", "disableNodeOrder"),
)
"""The peer's switches for single callbacks of a plugin: they are part of its format, but the peer ignores them too."""
_ALLOCATE = "allocate"
_SPREADING = frozenset({"pod_topology_spread"})
_MISSED = {
    "pods may be placed where node selectors, taints or volumes forbid it": frozenset(peer.PREDICATES) - _SPREADING,
    "pods that demand to be spread may be in one place": _SPREADING,
    "queues have no fair share, quotas or limits": frozenset({"proportion"}),
    "gangs that need several nodes take nothing back from others": frozenset({"gang"}),
}
"""The effect of switching off each of these default plugins."""
_PEER_ONLY = frozenset(PEER_KEYS) - frozenset(OUR_KEYS)


@attrs.frozen(kw_only=True)
class Configuration:
    """A parsed configuration: names and options, nothing loaded yet.

    ``notes`` list values in the peer's format that were unusable, and their replacements; ``place`` names the
    file in messages.
    """

    actions: tuple[str, ...]
    plugins: tuple[PluginEntry, ...]
    parameters: Parameters = attrs.field(factory=Parameters)
    usage: UsageSettings | None = None
    """How to query past usage; None: it is ignored."""
    notes: tuple[str, ...] = ()
    place: str = "configuration"


def default_configuration() -> Configuration:
    """Return the peer's built-in configuration."""
    return read_configuration(None, "built-in configuration")


def read_configuration(document: object, place: str, registry: Registry | None = None) -> Configuration:
    """Return the configuration in ``document``, in either format; if it names no plugins, the default ones are on.

    ``place`` names the file in messages.

    Raises: ConfigError naming the path of every key that cannot be used.
    """
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        raise ConfigError.about(place, "document", found=document, wanted="a mapping with actions and plugins")
    if what := _what_else(document):
        raise ConfigError(f"{place}: found {what}, expected a configuration: actions, plugins, with, parameters")
    ours = {"with", "plugins", "parameters"} & set(document) or isinstance(document.get("actions"), list | tuple)
    if ours and _PEER_ONLY & set(document):
        mixed = ", ".join(sorted(_PEER_ONLY & set(document)))
        raise ConfigError(f"{place}: found {mixed} beside keys of kai's own form, expected one form in a file")
    known = OUR_KEYS if ours else PEER_KEYS if _PEER_ONLY & set(document) else dict.fromkeys((*OUR_KEYS, *PEER_KEYS))
    refuse_unknown(document, tuple(known), place)
    return _read_ours(document, place) if ours else read_peer(document, place, registry or Registry.installed())


def _what_else(document: Mapping[str, object]) -> str:
    """Return the kind of document if it belongs elsewhere; "" if it may be a configuration."""
    if "kind" in document and "apiVersion" in document:
        return f"a Kubernetes object of kind {document['kind']}"
    return "a scenario" if len({"cluster", "queues", "groups"} & set(document)) > 1 else ""


def refuse_unknown(found: Mapping[str, object], known: Sequence[str], place: str) -> None:
    """Raise ConfigError for the keys of ``found`` that are not ``known``."""
    strangers = [key for key in found if key not in known]
    if strangers:
        messages = [f"{place}: found key {shown(key)}, expected one of {', '.join(known)}" for key in strangers]
        # Without a close match there is no hint, since the message lists all known keys.
        hints = [suggestion(key, known) if get_close_matches(key, known) else "" for key in map(str, strangers)]
        raise UnknownNameError(*messages, helps=hints)


# ---------------------------------------------------------------------------------------------------------- our form


def _read_ours(document: Mapping[str, object], place: str) -> Configuration:
    default = read_peer({}, place, None)
    chosen = document.get("actions")
    actions = default.actions if chosen is None else _names(chosen, f"{place}: actions")
    named = _entries(document.get("plugins"), f"{place}: plugins")
    plugins = named or default.plugins
    more, off = _switched_off(document.get("with"), f"{place}: with", [entry.name for entry in plugins])
    parameters = document.get("parameters")
    on = tuple(entry for entry in _changed(plugins, more, {each.name for each in named}) if entry.name not in off)
    notes = _missed(on, {entry.name for entry in default.plugins}, place, is_whole=not off)
    notes += [*_opposed(frozenset(entry.name for entry in on), place), *_idle(actions, place)]
    return Configuration(
        actions=actions,
        plugins=on,
        parameters=_with_victims(_parameters(parameters, f"{place}: parameters"), document, place),
        usage=read_usage(document.get("usageDBConfig"), f"{place}: usageDBConfig", notes),
        notes=tuple(notes),
        place=place,
    )


def _switched_off(value: object, place: str, on: Sequence[str]) -> tuple[tuple[PluginEntry, ...], frozenset[str]]:
    """Return the plugins that ``with`` adds or changes, and the names that it switches off with false.

    Raises: ConfigError, also for a name that is switched off but was not on.
    """
    if not isinstance(value, Mapping):
        return _entries(value, place), frozenset()
    off = frozenset(str(name) for name, options in value.items() if options is False)
    for name in sorted(off - set(on)):
        found = f"{place}.{name}: found false, expected the name of a plugin that is on, or options"
        raise UnknownNameError(found, help=suggestion(name, on))
    return _entries({name: options for name, options in value.items() if options is not False}, place), off


def _opposed(on: frozenset[str], place: str) -> list[str]:
    """Return a note if two plugins with opposite preferences are on, which cancel each other."""
    if not {"gpu_pack", "gpu_spread"} <= on:
        return []
    conflict = "gpu_pack and gpu_spread are both on and cancel each other out"
    return [f"{place}: {conflict}; gpu_pack: false under with: switches the first off"]


def _idle(actions: Collection[str], place: str) -> list[str]:
    """Return a note if no action would start jobs on idle resources."""
    return [] if _ALLOCATE in actions else [f"{place}: actions: {_ALLOCATE} off: no job starts on what is idle"]


def _changed(
    plugins: Iterable[PluginEntry], more: Iterable[PluginEntry], named: Collection[str]
) -> tuple[PluginEntry, ...]:
    """Return plugins with options set, new plugins last.

    ``named`` are the plugins that the document lists under ``plugins``. Messages place the others where the document
    has them, under ``with``: a user who looks for ``plugins`` in the file would find nothing.
    """
    out = {entry.name: entry for entry in plugins}
    for entry in more:
        known = out.get(entry.name, entry)
        out[entry.name] = PluginEntry(
            name=entry.name,
            options={**known.options, **entry.options},
            key="plugins" if entry.name in named else "with",
            elsewhere=dict.fromkeys(entry.options, "with"),
        )
    return tuple(out.values())


def _missed(plugins: Iterable[PluginEntry], default: Iterable[str], place: str, *, is_whole: bool) -> list[str]:
    """Return a note for each important effect that is lost because a default plugin is off.

    ``is_whole``: the plugins are missing from a whole list, rather than switched off one by one.
    """
    key, way = ("plugins", "; with: adds to the default plugins") if is_whole else ("with", "")
    named = {entry.name for entry in plugins}
    off = {loss: sorted(wanted.intersection(default) - named) for loss, wanted in _MISSED.items()}
    return [f"{place}: {key}: {', '.join(names)} off: {loss}{way}" for loss, names in off.items() if names]


def _names(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(f"{place}: found {shown(value)}, expected a list of names")
    return tuple(value)


def _entries(value: object, place: str) -> tuple[PluginEntry, ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping from plugin names to their options")
    return tuple(PluginEntry(str(name), _options(options, f"{place}.{name}")) for name, options in value.items())


def _options(value: object, place: str) -> Options:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        or_off = ", or false" if ": with." in place else ""
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping from option names to values{or_off}")
    return value


def _parameters(value: object, place: str) -> Parameters:
    if not value:
        return Parameters()
    parameters = build(Parameters, _options(value, place), place, "the scheduler")
    known = [each.name for each in SHORTCUTS]
    for name in parameters.without:
        if name not in known:
            raise ConfigError(f"{place}.without: found {shown(name)}, expected one of {', '.join(known)}")
    return parameters


def _with_victims(parameters: Parameters, document: Mapping[str, object], place: str) -> Parameters:
    """Return ``parameters`` with the victim settings that a document has outside of them, in either format."""
    said = document.get("victims")
    return parameters if said is None else attrs.evolve(parameters, victims=read_victims(said, f"{place}: victims"))


# ------------------------------------------------------------------------------------------------------- peer's form


def read_peer(document: Mapping[str, object], place: str, registry: Registry | None) -> Configuration:
    """Return the configuration in the peer's format.

    ``registry`` is used for plugins that the peer does not know: those of third parties.

    Raises: ConfigError naming the path of every key that cannot be used.
    """
    notes: list[str] = []
    tiers = document.get("tiers")
    parameters = _with_victims(Parameters(), document, place)
    depths = read_depths(document.get("queueDepthPerAction"), f"{place}: queueDepthPerAction")
    budgets = read_budgets(document.get("scenarioSearchBudgets"), f"{place}: scenarioSearchBudgets")
    if depths:
        parameters = attrs.evolve(parameters, queue_depth=depths)
    if budgets is not None:
        parameters = attrs.evolve(parameters, budgets=budgets)
    usage = read_usage(document.get("usageDBConfig"), f"{place}: usageDBConfig", notes)
    actions = _peer_actions(document.get("actions"), f"{place}: actions")
    plugins = read_tiers(tiers, place, registry, notes) if tiers else _default_plugins()
    if budgets is not None:
        known = {*SearchBudgets().generator, *(entry.name for entry in plugins)}
        _refuse_strangers(budgets.generator, known, f"{place}: scenarioSearchBudgets.maxGeneratorSearchDuration")
        _note_strangers(budgets.action, BUDGETED, f"{place}: scenarioSearchBudgets.maxActionSearchDuration", notes)
    _note_strangers(depths, actions, f"{place}: queueDepthPerAction", notes)
    notes += _idle(actions, place)
    return Configuration(
        actions=actions,
        plugins=plugins,
        parameters=parameters,
        usage=usage,
        notes=tuple(notes),
        place=place,
    )


def _refuse_strangers(found: Iterable[str], known: Iterable[str], place: str) -> None:
    """Raise ConfigError for an unknown name with which the peer would make no more decisions."""
    names = sorted(known)
    for name in found:
        if name not in names:
            message = f"{place}: found {shown(name)}, expected one of {', '.join(names)}"
            raise UnknownNameError(message, help=suggestion(name, names))


def _note_strangers(found: Iterable[str], known: Iterable[str], place: str, notes: list[str]) -> None:
    """Note an unknown name that the peer ignores."""
    names = tuple(known)
    notes += [
        f"{place}: found {shown(name)}, expected one of {', '.join(names)}; ignored"
        for name in found
        if name not in names
    ]


def _default_plugins() -> tuple[PluginEntry, ...]:
    return merged(entry for name in peer.DEFAULT_PLUGINS for entry in peer.PLUGINS[name](Arguments(name, {})))


def _peer_actions(value: object, place: str) -> tuple[str, ...]:
    if not value:
        return peer.DEFAULT_ACTIONS
    if not isinstance(value, str):
        raise ConfigError(f"{place}: found {shown(value)}, expected names separated by commas")
    return tuple(name.strip() for name in value.split(",") if name.strip())


def read_tiers(tiers: object, place: str, registry: Registry | None, notes: list[str]) -> tuple[PluginEntry, ...]:
    """Return the plugins of all tiers as one list: the peer treats them as one.

    Raises: ConfigError.
    """
    out: list[PluginEntry] = []
    for at, tier in enumerate(_list(tiers, f"{place}: tiers")):
        where = f"{place}: tiers[{at}]"
        if not isinstance(tier, Mapping):
            raise ConfigError(f"{where}: found {shown(tier)}, expected a mapping with plugins")
        refuse_unknown(tier, ("plugins",), where)
        for number, plugin in enumerate(_list(tier.get("plugins") or (), f"{where}.plugins")):
            out += _peer_plugin(plugin, f"{where}.plugins[{number}]", registry, notes)
    return merged(out)


def _list(value: object, place: str) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{place}: found {shown(value)}, expected a list")
    return value


def _peer_plugin(plugin: object, place: str, registry: Registry | None, notes: list[str]) -> tuple[PluginEntry, ...]:
    if not isinstance(plugin, Mapping) or not isinstance(plugin.get("name"), str):
        raise ConfigError(f"{place}: found {shown(plugin)}, expected a mapping with the name of a plugin")
    refuse_unknown(plugin, ("name", "arguments", *SWITCHES), place)
    notes += [
        f"{place}.{key}: found {shown(plugin[key])}, expected false: KAI-Scheduler and kai never ask it; ignored"
        for key in SWITCHES
        if plugin.get(key)
    ]
    name = plugin["name"]
    texts = _options(plugin.get("arguments"), f"{place}.arguments")
    values = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in texts.items()}
    translation = peer.PLUGINS.get(name)
    if translation is None:
        return (_third_party(name, values, place, registry),)
    arguments = Arguments(name, values)
    entries = translation(arguments)
    strangers = [key for key in values if key not in arguments.known]
    if strangers:
        message = f"{place}.arguments: found {shown(strangers[0])}, expected an argument of {name}"
        raise UnknownNameError(
            message, help=suggestion(strangers[0], sorted(arguments.known)) if arguments.known else "it has none"
        )
    notes += [f"{place}: {note}" for note in arguments.notes]
    return entries


def _third_party(name: str, values: Mapping[str, str], place: str, registry: Registry | None) -> PluginEntry:
    """Return a plugin of a third party, with its arguments parsed by the types of its fields."""
    known = registry or Registry.installed()
    if name not in known.plugins:
        names = sorted({*peer.PLUGINS, *known.plugins})
        raise UnknownNameError(
            f"{place}.name: found {shown(name)}, expected the name of a plugin", help=suggestion(name, names)
        )
    fields = {field.name: field for field in described(known.plugin(name, f"{place}.name"))}
    options: dict[str, object] = {}
    for key, text in values.items():
        try:
            options[key] = from_text(fields[key], text) if key in fields else text
        except ValueError:
            options[key] = text
    return PluginEntry(name, options)


def merged(entries: Iterable[PluginEntry]) -> tuple[PluginEntry, ...]:
    """Return each plugin once, at its first mention; later options override earlier ones, and booleans are or-ed.

    ``gpupack`` beside ``gpuspread`` is two plugins, ``nodeplacement`` named twice is one.
    """
    out: dict[str, dict[str, object]] = {}
    for entry in entries:
        known = out.setdefault(entry.name, {})
        for key, value in entry.options.items():
            known[key] = bool(known.get(key)) or value if isinstance(value, bool) and key in known else value
    return tuple(PluginEntry(name, options) for name, options in out.items())
