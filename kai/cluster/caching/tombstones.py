"""Tombstones of deleted objects, so that an outdated message does not bring one back.

An outdated message is the page of a list that began before the deletion, or the answer to a write that was sent before
it. Neither takes minutes, so a tombstone lives for some minutes: each call of `fade` forgets those from before the last
call.

`peek` reads identity and version of a manifest, which decide whether the rest is worth parsing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kai.api.kinds import Key

UNKNOWN_VERSION: Final = -1
"""Stands for a version that cannot be compared; it counts as newer than any other."""


@attrs.frozen
class Peek:
    """Identity and version of a manifest."""

    key: Key
    uid: str
    version: int


def peek(manifest: object) -> Peek | None:
    """Return key, UID and version of a manifest; None for a value without a name, which is no object."""
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    if not isinstance(metadata, Mapping):
        return None
    name, namespace, uid = metadata.get("name"), metadata.get("namespace") or "", metadata.get("uid") or ""
    if not isinstance(name, str) or not name or not isinstance(namespace, str) or not isinstance(uid, str):
        return None
    return Peek((namespace, name), uid, version_of(metadata.get("resourceVersion")))


def version_of(text: object) -> int:
    """Return a resourceVersion as a number; -1 if it is none, which counts as newer than any other.

    Source: since Kubernetes 1.35 resourceVersions are documented as comparable; every API server on etcd has always
    treated them so.
    """
    # Nineteen digits hold every revision of etcd, a signed 64-bit number. `isdigit` alone accepts superscripts.
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    return UNKNOWN_VERSION


_MOST: Final = 1 << 16
_FOREVER: Final = 1 << 64


@attrs.frozen
class _End:
    """The deletion of an object."""

    version: int
    number: int
    """Count of deletions noted before it."""


@attrs.define(eq=False)
class Tombstones:
    """UIDs of deleted objects of one kind, and the versions of their deletion."""

    noted: int = 0
    """Count of deletions noted so far."""
    _young: dict[str, _End] = attrs.field(factory=dict)
    _old: dict[str, _End] = attrs.field(factory=dict)

    def leave(self, uid: str, version: int) -> None:
        """Note the deletion of an object; without a version it covers every version."""
        if uid:
            self._young[uid] = _End(version if version >= 0 else _FOREVER, self.noted)
            self.noted += 1
            # Dictionaries keep the order of insertion: the oldest tombstone goes first.
            if len(self._young) > _MOST:
                del self._young[next(iter(self._young))]

    def covers(self, uid: str, version: int) -> bool:
        """Return whether an object is known to have been deleted at this version or later."""
        end = self._of(uid)
        return end is not None and version <= end.version

    def is_refuted(self, uid: str, version: int, noted: int) -> bool:
        """Return whether a list of this version that shows an object refutes its tombstone: the deletion is older.

        That is also so if the deletion is among the ``noted`` ones before the list was requested, because a deletion
        known from the answer to a request has no version.
        """
        end = self._of(uid)
        return end is not None and (end.version <= version or end.number < noted)

    def _of(self, uid: str) -> _End | None:
        return self._young.get(uid, self._old.get(uid))

    def fade(self) -> None:
        """Forget the tombstones from before the last call."""
        self._young, self._old = {}, self._young

    def clear(self) -> None:
        """Forget all tombstones."""
        self._young, self._old = {}, {}
