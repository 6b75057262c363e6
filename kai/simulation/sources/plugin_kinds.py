"""Kinds that plugins read: known before manifests are read, so that their objects are not passed over."""

from collections.abc import Iterable

from kai.api.kinds import ApiObject
from kai.api.plugin_kinds import declare
from kai.configuration.registry import Registry
from kai.framework.objects import Objects


def declare_kinds(registry: Registry) -> None:
    """Make the kinds of all installed plugins known; one that cannot be loaded says so where a configuration names it.

    Raises: ConfigError for a kind that kai reads itself.
    """
    for each in registry.objects():
        declare_objects(each)


def kinds_of(registry: Registry, plugins: Iterable[str]) -> tuple[type[ApiObject], ...]:
    """Return the kinds that these plugins read besides those of kai; they are known afterwards.

    Raises: ConfigError for a kind that kai reads itself.
    """
    return tuple(declare_objects(each) for each in registry.objects(plugins))


def declare_objects(objects: Objects) -> type[ApiObject]:
    """Make one kind known and return the class of its objects."""
    return declare(objects.api_version, objects.kind, objects.plural, namespaced=objects.namespaced)
