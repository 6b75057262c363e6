"""Kinds that plugins read: made known before manifests are read, or before the watches of a service begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import attrs

from kai.api.kinds import BY_CLASS, BY_NAME, ApiObject, Kind
from kai.api.kubernetes.foreign import Foreign
from kai.api.kubernetes.numa import NodeResourceTopology
from kai.api.kubernetes.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kai.api.scheduling.topology import Topology
from kai.errors import ConfigError
from kai.notation import shown

HANDED_ON: Final = (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    NodeResourceTopology,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    Topology,
)
"""Kinds of kai that plugins may read, as they were written."""
DECLARED: Final[dict[tuple[str, str], Kind]] = {}


def declare(api_version: str, kind: str, plural: str, *, namespaced: bool, plugin: str = "") -> type[ApiObject]:
    """Make a kind known to everything that reads objects, and return its class; again is the same.

    ``plugin`` names the plugin that reads it, for messages.

    Raises: ConfigError for a kind that kai reads itself, and for two different declarations of one.
    """
    known = BY_NAME.get((api_version, kind))
    place = f"{f'plugin {shown(plugin)}: ' if plugin else ''}{api_version} {kind}"
    if known is None:
        cls: type[Foreign] = attrs.frozen(kw_only=True)(type(kind, (Foreign,), {"__module__": __name__}))
        declared = Kind(cls, kind, plural, (api_version,), namespaced)
        BY_NAME[api_version, kind] = BY_CLASS[cls] = DECLARED[api_version, kind] = declared
        return cls
    if DECLARED.get((api_version, kind)) is None and known.cls not in HANDED_ON:
        raise ConfigError(f"{place}: found a kind that kai reads itself, expected one of the plugin's own")
    if (known.plural, known.namespaced) != (plural, namespaced):
        found = f"{plural}, namespaced: {namespaced}"
        raise ConfigError(f"{place}: found {found}, expected {known.plural}, namespaced: {known.namespaced}")
    return known.cls


class KindRead(Protocol):
    """A kind as a plugin names it, whose package this one does not know."""

    @property
    def api_version(self) -> str:
        """Return group and version."""
        ...

    @property
    def kind(self) -> str:
        """Return the kind."""
        ...

    @property
    def plural(self) -> str:
        """Return its name in paths."""
        ...

    @property
    def namespaced(self) -> bool:
        """Say whether objects are in namespaces."""
        ...


def declare_all(kinds: Iterable[tuple[KindRead, str]]) -> tuple[type[ApiObject], ...]:
    """Make kinds known, each with the name of a plugin that reads it, and return their classes.

    Raises: ConfigError for a kind that kai reads itself.
    """
    return tuple(
        declare(each.api_version, each.kind, each.plural, namespaced=each.namespaced, plugin=plugin)
        for each, plugin in kinds
    )
