"""What the model remembers: objects, one version for all of them, and the changes since the last compaction.

Manifests are never changed once they are stored; a change stores another one. So a reader may keep what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import attrs
import msgspec

from tests.doubles.rest_server.kinds import Served

Manifest: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, str]
"""Namespace and name."""


@attrs.define(eq=False)
class Change:
    """One object at one version, and what it was before; a side is None where it did not exist."""

    version: int
    served: Served
    before: Manifest | None
    after: Manifest | None
    time: float
    by: str = ""
    _bytes: bytes | None = None

    @property
    def present(self) -> Manifest:
        """The object as it is, or as it was last."""
        found = self.after if self.after is not None else self.before
        assert found is not None
        return found

    @property
    def place(self) -> Place:
        metadata = self.present["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    @property
    def encoded(self) -> bytes:
        """The object as JSON."""
        if self._bytes is None:
            self._bytes = msgspec.json.encode(self.present)
        return self._bytes


@attrs.frozen(eq=False)
class Backup:
    """What a storage had at a version."""

    version: int
    objects_of: dict[Served, dict[Place, Manifest]]


@attrs.define(eq=False)
class Storage:
    """The objects of a cluster."""

    now: Callable[[], float] = lambda: 1_700_000_000.0
    version: int = 1
    compacted: int = 0
    """Changes up to this version are forgotten."""
    objects_of: dict[Served, dict[Place, Manifest]] = attrs.field(factory=dict)
    history: dict[Served, list[Change]] = attrs.field(factory=dict)
    listeners: list[Callable[[Change], None]] = attrs.field(factory=list)
    by: str = ""
    """Who is writing at the moment."""

    def get(self, served: Served, place: Place) -> Manifest | None:
        return self.objects_of.get(served, {}).get(place)

    def all(self, served: Served, namespace: str = "") -> Iterator[Manifest]:
        """Return the objects by namespace and name."""
        objects = self.objects_of.get(served, {})
        for place in sorted(objects):
            if namespace in {"", place[0]}:
                yield objects[place]

    def put(self, served: Served, manifest: Manifest) -> Manifest:
        """Store an object at a new version, and return it as it is now."""
        self.version += 1
        stored = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self.version)}}
        place = (stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
        objects = self.objects_of.setdefault(served, {})
        before = objects.get(place)
        objects[place] = stored
        self._tell(Change(self.version, served, before, stored, self.now(), self.by))
        return stored

    def remove(self, served: Served, place: Place, last: Manifest | None = None) -> Manifest:
        """Remove an object, and return its last form, at the version of its end."""
        self.version += 1
        before = self.objects_of[served].pop(place)
        before = before if last is None else last
        ended = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
        self._tell(Change(self.version, served, ended, None, self.now(), self.by))
        return ended

    def compact(self) -> None:
        """Forget all changes so far, for watches that are not open yet: those that are have been given them."""
        self.compacted = self.version

    def backup(self) -> Backup:
        """Return what there is now, to be put back later."""
        return Backup(self.version, {served: dict(objects) for served, objects in self.objects_of.items()})

    def restore(self, backup: Backup, kept: Served) -> list[Change]:
        """Put everything but one kind back to a backup, and return what that changed; nothing is told to watches.

        Versions count on beyond where they were, and those before are forgotten, as `etcdutl snapshot restore` has it
        with ``--bump-revision`` and ``--mark-compacted``: what a client knows is not of the future, no watch goes on.
        """
        self.version += 1
        self.compacted = self.version
        found: list[Change] = []
        for served in sorted({*self.objects_of, *backup.objects_of} - {kept}, key=lambda each: each.plural):
            now, then = self.objects_of.get(served, {}), dict(backup.objects_of.get(served, {}))
            for place in sorted({*now, *then}):
                before, after = now.get(place), then.get(place)
                if before is not after:
                    found.append(Change(self.version, served, before, after, self.now(), "backup"))
            self.objects_of[served] = then
            self.history[served] = [each for each in self.history.get(served, []) if each.version <= backup.version]
        return found

    def changes_after(self, served: Served, version: int) -> Iterable[Change]:
        """Return the changes of a kind after a version, oldest first."""
        known = self.history.get(served, [])
        start = len(known)
        while start and known[start - 1].version > version:
            start -= 1
        return known[start:]

    def _tell(self, change: Change) -> None:
        self.history.setdefault(change.served, []).append(change)
        for listener in tuple(self.listeners):
            listener(change)
