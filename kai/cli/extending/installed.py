"""The installed plugins and actions as values, with their origin, hooks and options.

The hooks of a plugin are read from its source code: instantiating it would need a cluster, and the result would depend
on it.
"""

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Final, get_args

import attrs

from kai.answers.documents.listings import PluginItem
from kai.basics.errors import ConfigError
from kai.cli.running.configuring import load_configuration
from kai.deciding.configuration.options import described, wanted
from kai.deciding.configuration.profile_reading import Configuration, default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry, load_class, origin_of
from kai.framework.hooks import Extension

_EXTENSIONS: Final = frozenset(get_args(Extension))


def hooks_of(cls: type[object]) -> list[str]:
    """Return the extension points and terms that the module of ``cls`` instantiates; none without source.

    If a module has several plugins, only instantiations within the class count; extensions made elsewhere in the module
    are missed.
    """
    try:
        whole = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    except (OSError, TypeError, SyntaxError, KeyError):
        return []
    own = next((node for node in whole.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__), whole)
    return sorted(_named(own, cls) or _named(whole, cls))


def _named(tree: ast.AST, cls: type[object]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = getattr(sys.modules[cls.__module__], node.func.id, None)
            if called in _EXTENSIONS:
                found.add(str(getattr(called, "__name__", "")))
    return found


@attrs.frozen(kw_only=True)
class Installed:
    """One plugin or action. ``position`` is its place in the configuration's order, None where it is not enabled."""

    name: str
    kind: str
    position: int | None
    origin: str
    version: str
    target: str
    does: str = ""
    """The purpose of the plugin in one line, from the docstring of its class."""
    hooks: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    rights: tuple[str, ...] = ()
    """Resources that the scheduler must be allowed to get, list and watch for the plugin."""
    problem: str = ""
    """Why the package is broken; "" if it is not."""
    rivals: tuple[str, ...] = ()
    """Distributions that offer the same name: while there are any, a configuration cannot use it."""


def list_installed(path: str | None) -> tuple[Installed, ...]:
    """Return actions, then plugins, in the order of the configuration at ``path``; disabled ones come last.

    A name that several distributions offer is listed for each of them, with the others as its rivals, so that users
    find the conflict here.

    Raises: ConfigError for a configuration that cannot be read, or that names or sets something unusable.
    """
    registry = Registry.installed()
    configuration = load_configuration(path, registry) if path else default_configuration()
    make_profile(_undisputed(configuration, registry), registry)
    names = [entry.name for entry in configuration.plugins]
    return (*_listed(registry.actions, "action", configuration.actions), *_listed(registry.plugins, "plugin", names))


def item_of(installed: Installed) -> PluginItem:
    """Return an entry as an item of a document."""
    own = {name: getattr(installed, name) for name in attrs.fields_dict(Installed)}
    return PluginItem(**{**own, "options": dict(installed.options)}, enabled=installed.position is not None)


def _undisputed(configuration: Configuration, registry: Registry) -> Configuration:
    """Return a configuration without the names that several distributions offer."""
    return attrs.evolve(
        configuration,
        actions=tuple(name for name in configuration.actions if not registry.disputed("action", name)),
        plugins=tuple(entry for entry in configuration.plugins if not registry.disputed("plugin", entry.name)),
    )


def _listed(points: Mapping[str, tuple[EntryPoint, ...]], kind: str, enabled: Sequence[str]) -> list[Installed]:
    order = {name: position for position, name in enumerate(enabled, start=1)}
    found = [
        attrs.evolve(
            _described(point, kind, order.get(name)),
            rivals=tuple(_offer(other) for other in choices if other is not point),
        )
        for name, choices in points.items()
        for point in choices
    ]
    return sorted(found, key=lambda each: (each.position or len(order) + 1, each.name))


def _offer(point: EntryPoint) -> str:
    """Return the distribution of an entry point; its target if it belongs to none."""
    return str(origin_of(point)) or point.value


def _described(point: EntryPoint, kind: str, position: int | None) -> Installed:
    """Return the description of an entry point; for an unusable package with the problem."""
    origin = origin_of(point)
    found = Installed(
        name=point.name, kind=kind, position=position, origin=str(origin), version=origin.version, target=point.value
    )
    try:
        cls = load_class(point)
        options = tuple((field.name, wanted(field)) for field in described(cls)) if kind == "plugin" else ()
    except ConfigError as error:
        return attrs.evolve(found, problem=str(error))
    except NameError as error:
        return attrs.evolve(found, problem=f"the types of its options cannot be resolved: {error}")
    return attrs.evolve(
        found,
        does=first_line(cls),
        hooks=tuple(hooks_of(cls)) if kind == "plugin" else ("run",),
        rights=tuple(each.right for each in getattr(cls, "reads", ())) if kind == "plugin" else (),
        options=options,
    )


def first_line(cls: type[object]) -> str:
    """Return the first sentence of a class's docstring without code marks; "" if it has no docstring of its own."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("``", "")
    return "" if text.startswith(f"{cls.__name__}(") else text
