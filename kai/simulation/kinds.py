"""Kinds that plugins read: known before manifests are read, so that their objects are not passed over."""

from kai.api.declaring import declare
from kai.configuration.registry import Registry
from kai.framework.objects import Objects


def declare_kinds(registry: Registry) -> None:
    """Make the kinds of all installed plugins known; one that cannot be loaded says so where a configuration names it.

    Raises: ConfigError for a kind that kai reads itself.
    """
    for each in registry.objects():
        declare_objects(each)


def declare_objects(objects: Objects) -> None:
    """Make one kind known."""
    declare(objects.api_version, objects.kind, objects.plural, namespaced=objects.namespaced)


__all__ = ["declare_kinds", "declare_objects"]
