"""Kinds that plugins read: known before manifests are read, so that their objects are not passed over."""

import contextlib
from collections.abc import Iterable

from kai.api.kinds import ApiObject
from kai.api.plugin_kinds import declare, declare_all
from kai.configuration.registry import Registry
from kai.errors import ConfigError
from kai.framework.objects import Objects


def declare_kinds(registry: Registry) -> None:
    """Make the kinds of all installed plugins known.

    A plugin that cannot be loaded, or reads what it may not, says so where a configuration names it, and nowhere else.
    """
    for each in registry.objects():
        with contextlib.suppress(ConfigError):
            declare_objects(each)


def kinds_of(registry: Registry, plugins: Iterable[str]) -> tuple[type[ApiObject], ...]:
    """Return the kinds that these plugins read besides those of kai; they are known afterwards.

    Raises: ConfigError for a kind that kai reads itself.
    """
    return declare_all(registry.objects(plugins).items())


def declare_objects(objects: Objects) -> type[ApiObject]:
    """Make one kind known and return the class of its objects."""
    return declare(objects.api_version, objects.kind, objects.plural, namespaced=objects.namespaced)
