"""What is read of a manifest to tell whether the rest is worth reading: which object it is, in which form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kai.api.kinds import Key

UNKNOWN_VERSION: Final = -1
"""Of what has no version that can be compared; it is taken for newer than anything."""


@attrs.frozen
class Peek:
    """Which object a manifest is, and in which form."""

    key: Key
    uid: str
    version: int


def peek(manifest: object) -> Peek | None:
    """Return key, UID and version of a manifest; None for something that has no name, which is no object."""
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    if not isinstance(metadata, Mapping):
        return None
    name, namespace, uid = metadata.get("name"), metadata.get("namespace") or "", metadata.get("uid") or ""
    if not isinstance(name, str) or not name or not isinstance(namespace, str) or not isinstance(uid, str):
        return None
    return Peek((namespace, name), uid, version_of(metadata.get("resourceVersion")))


def version_of(text: object) -> int:
    """Return a resource version as a number; -1 for what is none, which is taken for newer than anything.

    Source: since Kubernetes 1.35 versions are documented as comparable; every API server on etcd has always used them
    as such.
    """
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    return UNKNOWN_VERSION
