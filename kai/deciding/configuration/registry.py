"""The installed plugins and actions: entry points by name, imported on first use.

Built-ins are registered like those of a third party: as ``[project.entry-points."kai.plugins"]`` and ``"kai.actions"``
of an installed distribution.
"""

import contextlib
import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any, Self, cast

import attrs

from kai.basics.errors import ConfigError, error_text
from kai.basics.wording import shown
from kai.framework.decisions import BUILT_IN, Action, Cause, cause_of, priority_of
from kai.framework.objects import Objects

PLUGINS = "kai.plugins"
ACTIONS = "kai.actions"
_WORDS = {PLUGINS: "plugin", ACTIONS: "action"}
_METHODS = {PLUGINS: "open", ACTIONS: "run"}


class UnknownNameError(ConfigError):
    """Unknown names in the configuration; ``helps`` has a suggestion for each message."""


@attrs.frozen
class Origin:
    """The origin of an entry point: its distribution with version, and the object that it names."""

    distribution: str
    version: str
    target: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


@attrs.frozen(slots=False)
class Registry:
    """The entry points of plugins and actions by name. Two of one name are an error only when the name is used."""

    plugins: Mapping[str, tuple[EntryPoint, ...]]
    actions: Mapping[str, tuple[EntryPoint, ...]]

    @classmethod
    def installed(cls) -> "Registry":
        """Return the entry points of the environment.

        Cost: reads the metadata of every distribution on the path, some milliseconds; memoized while the path is the
        same.
        """
        return _found(tuple(sys.path))

    @classmethod
    def of(cls, plugins: Iterable[EntryPoint], actions: Iterable[EntryPoint]) -> Self:
        """Return a registry of these entry points."""
        return cls(_by_name(plugins), _by_name(actions))

    def plugin(self, name: str, place: str) -> type[object]:
        """Return the class of the plugin called ``name``; ``place`` is where the configuration names it.

        Raises: ConfigError for a name that is unknown, ambiguous, or whose entry point cannot be loaded.
        """
        return self._load(PLUGINS, self.plugins, name, place)

    def action(self, name: str, place: str) -> type[object]:
        """Return the class of the action called ``name``.

        Raises: ConfigError for a name that is unknown, ambiguous, or whose entry point cannot be loaded.
        """
        return self._load(ACTIONS, self.actions, name, place)

    def objects(self, names: Iterable[str] | None = None) -> Mapping[Objects, str]:
        """Return the kinds that plugins read besides kai's: of the plugins ``names``, or of all that can be loaded.

        Each kind maps to the name of a plugin that reads it.
        """
        found: dict[Objects, str] = {}
        for name in self.plugins if names is None else names:
            with contextlib.suppress(ConfigError):
                found.update(dict.fromkeys(getattr(self.plugin(name, "plugins"), "reads", ()), name))
        return found

    def priority_of(self, name: str) -> int:
        """Return the priority of the action called ``name``; 0 if it is not installed."""
        action = self._made(name)
        return 0 if action is None else priority_of(action)

    def cause_of(self, name: str) -> Cause:
        """Return the cause of the action called ``name``; just its name if it is no longer installed."""
        if name in BUILT_IN:
            return BUILT_IN[name]
        action = self._made(name)
        return Cause(name) if action is None else cause_of(action)

    def _made(self, name: str) -> Action[Any] | None:
        if name not in self.actions:
            return None
        try:
            return cast("Action[Any]", self.action(name, "actions")())
        except Exception:  # noqa: BLE001 - a package of others: what it does not say is not known
            return None

    def disputed(self, kind: str, name: str) -> bool:
        """Return whether several distributions offer the ``plugin`` or ``action`` called ``name``."""
        return len((self.plugins if kind == "plugin" else self.actions).get(name, ())) > 1

    @cached_property
    def _loaded(self) -> dict[tuple[str, str], type[object]]:
        return {}

    def _load(self, group: str, points: Mapping[str, tuple[EntryPoint, ...]], name: str, place: str) -> type[object]:
        if (group, name) not in self._loaded:
            self._loaded[group, name] = _load(group, points, name, place)
        return self._loaded[group, name]


@cache
def _found(_: tuple[str, ...]) -> Registry:
    """Find the entry points on the path; memoized, because deciding case after case asks for them each time."""
    found = entry_points()
    return Registry.of(found.select(group=PLUGINS), found.select(group=ACTIONS))


def _by_name(points: Iterable[EntryPoint]) -> Mapping[str, tuple[EntryPoint, ...]]:
    out: dict[str, list[EntryPoint]] = {}
    for point in points:
        known = out.setdefault(point.name, [])
        if all(point.value != other.value for other in known):
            # Equal targets mean that one distribution was found twice: installed, and on the path.
            known.append(point)
    return {name: tuple(out[name]) for name in sorted(out)}


def _load(group: str, points: Mapping[str, tuple[EntryPoint, ...]], name: str, place: str) -> type[object]:
    word = _WORDS[group]
    choices = points.get(name, ())
    if not choices:
        raise UnknownNameError(
            f"{place}: found {shown(name)}, expected the name of an installed {word}",
            help=suggestion(name, list(points)),
        )
    if len(choices) > 1:
        owners = " and ".join(str(origin_of(point)) for point in choices)
        ways = [f'rename it in [project.entry-points."{group}"] of a package of yours', "uninstall that package"]
        if group == PLUGINS:
            ways.append(f"switch the plugin off ({name}: false under with:)")
        raise UnknownNameError(
            f"{place}: found {shown(name)} in {owners}, expected one distribution to offer the {word}",
            help=f"{', '.join(ways[:-1])}, or {ways[-1]}",
        )
    (point,) = choices
    try:
        return load_class(point)
    except ConfigError as error:
        raise ConfigError(f"{place}: {word} {shown(name)} of {origin_of(point)}: {error}") from error


def load_class(point: EntryPoint) -> type[object]:
    """Return the class that the entry point of a plugin or an action names.

    Raises: ConfigError that says what is wrong with the package, whatever its import raises.
    """
    try:
        loaded = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may leave the process when it is imported, or panic
        raise ConfigError(f"cannot be loaded from {point.value}: {error_text(error)}") from error
    method = _METHODS.get(point.group, "open")
    if not isinstance(loaded, type) or not callable(getattr(loaded, method, None)):
        kind = "a class" if isinstance(loaded, type) else type(loaded).__name__
        wanted = f"a class with a method {method}"
        raise ConfigError(f"found {kind} at {point.value}, expected {wanted}")
    if point.group == PLUGINS and not attrs.has(loaded):
        raise ConfigError(f"found a class without attrs at {point.value}, expected a frozen attrs class")
    if point.group == PLUGINS:
        try:
            attrs.resolve_types(cast("type[attrs.AttrsInstance]", loaded))
        except Exception as error:
            raise ConfigError(f"the types of its options cannot be resolved: {error_text(error)}") from error
        reads = getattr(loaded, "reads", ())
        if not isinstance(reads, tuple) or not all(isinstance(each, Objects) for each in reads):
            raise ConfigError(
                f"reads: found {shown(reads)} at {point.value}, expected a ClassVar with a tuple of Objects"
            )
    return loaded


def origin_of(point: EntryPoint) -> Origin:
    """Return the origin of an entry point."""
    name, version = ("", "") if point.dist is None else _name_and_version(point.dist)
    return Origin(distribution=name, version=version, target=point.value)


@cache
def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return name and version of a distribution.

    Cost: its metadata is parsed as a mail; doing so for each plugin would be a tenth of the start time of a command.
    """
    metadata = distribution.metadata
    return metadata["Name"], metadata["Version"]


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return one line with the names that may have been meant, or all known names."""
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known are {', '.join(sorted(known))}" if known else "none is installed"
