"""What is remembered of objects that are gone, so that a late word about one does not bring it back.

A late word is the page of a list that began before the end, or the answer to a write that was sent before it. Neither
takes minutes, so an end is remembered for some minutes: with each call of `fade`, those from before the call before it
are forgotten.

What is read of a manifest to tell whether the rest is worth reading: which object it is, in which form.
"""

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


_MOST: Final = 1 << 16
_FOREVER: Final = 1 << 64


@attrs.frozen
class _End:
    """The end of an object."""

    version: int
    number: int
    """How many ends were noted before it."""


@attrs.define(eq=False)
class Tombstones:
    """UIDs of deleted objects of one kind, and the versions at which they ended."""

    noted: int = 0
    """How many ends were noted so far."""
    _young: dict[str, _End] = attrs.field(factory=dict)
    _old: dict[str, _End] = attrs.field(factory=dict)

    def leave(self, uid: str, version: int) -> None:
        """Note the end of an object; one at no version covers every word about it."""
        if uid:
            self._young[uid] = _End(version if version >= 0 else _FOREVER, self.noted)
            self.noted += 1
            if len(self._young) > _MOST:
                del self._young[next(iter(self._young))]

    def covers(self, uid: str, version: int) -> bool:
        """Return whether an object is known to have ended at this version, or after it."""
        end = self._of(uid)
        return end is not None and version <= end.version

    def is_refuted(self, uid: str, version: int, noted: int) -> bool:
        """Return whether a list of a version that shows an object refutes its end: it had ended by then.

        It also does where the end was among the ``noted`` ones that were known as the list was asked for: an end that
        the answer to a deletion told has no version.
        """
        end = self._of(uid)
        return end is not None and (end.version <= version or end.number < noted)

    def _of(self, uid: str) -> _End | None:
        return self._young.get(uid, self._old.get(uid))

    def fade(self) -> None:
        """Forget the ends from before the last call."""
        self._young, self._old = {}, self._young

    def clear(self) -> None:
        """Forget all ends."""
        self._young, self._old = {}, {}
