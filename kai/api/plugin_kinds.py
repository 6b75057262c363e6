"""Kinds that plugins read: made known before manifests are read, or before the watches of a service begin."""

from __future__ import annotations

from typing import Final

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


def declare(api_version: str, kind: str, plural: str, *, namespaced: bool) -> type[ApiObject]:
    """Make a kind known to everything that reads objects, and return its class; again is the same.

    Raises: ConfigError for a kind that kai reads itself, and for two different declarations of one.
    """
    known = BY_NAME.get((api_version, kind))
    if known is None:
        cls: type[Foreign] = attrs.frozen(kw_only=True)(type(kind, (Foreign,), {"__module__": __name__}))
        declared = Kind(cls, kind, plural, (api_version,), namespaced)
        BY_NAME[api_version, kind] = BY_CLASS[cls] = DECLARED[api_version, kind] = declared
        return cls
    if DECLARED.get((api_version, kind)) is None and known.cls not in HANDED_ON:
        raise ConfigError(f"{api_version} {kind}: found a kind that kai reads itself, expected one of the plugin's own")
    if (known.plural, known.namespaced) != (plural, namespaced):
        found = f"{plural}, namespaced: {namespaced}"
        raise ConfigError(
            f"{api_version} {kind}: found {found}, expected {known.plural}, namespaced: {known.namespaced}"
        )
    return known.cls
