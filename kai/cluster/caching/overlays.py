"""Annotations that objects of one kind are shown with although they do not have them, or not yet.

An overlay lies on one object (UID) until the object has all of its annotations, another object has its name, or it is
taken away. What the object says itself counts more than what is laid over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import attrs

from kai.api.kinds import ApiObject, Key

T = TypeVar("T", bound=ApiObject)


@attrs.frozen
class _Overlay:
    uid: str
    """Empty for an object that is only assumed: whatever comes in its place keeps the annotations."""
    annotations: Mapping[str, str]


@attrs.define(eq=False)
class Overlays:
    """What lies over objects, by key."""

    known: dict[Key, _Overlay] = attrs.field(factory=dict)

    def shows(self, key: Key, annotations: Mapping[str, str]) -> bool:
        """Return whether just these annotations lie over an object."""
        overlay = self.known.get(key)
        return overlay is not None and overlay.annotations == annotations

    def lay(self, key: Key, uid: str, annotations: Mapping[str, str]) -> None:
        """Lay annotations over an object, in the place of those before."""
        self.known[key] = _Overlay(uid, dict(annotations))

    def take_away(self, key: Key) -> None:
        """Lay nothing over an object."""
        self.known.pop(key, None)

    def over(self, key: Key, obj: T | None) -> T | None:
        """Return an object as it is shown; an overlay that it needs no longer is taken away."""
        overlay = self.known[key]
        if obj is None or overlay.uid not in {"", obj.metadata.uid}:
            del self.known[key]
            return obj
        there = obj.metadata.annotations
        if overlay.annotations.keys() <= there.keys():
            del self.known[key]
            return obj
        return annotated(obj, {**overlay.annotations, **there})

    def beneath(self, key: Key, obj: T) -> T:
        """Return an object that is shown as it is without its overlay."""
        overlay = self.known.get(key)
        if overlay is None:
            return obj
        annotations = obj.metadata.annotations.items()
        return annotated(obj, {name: value for name, value in annotations if name not in overlay.annotations})


def annotated(obj: T, annotations: Mapping[str, str]) -> T:
    """Return an object with these annotations in the place of its own."""
    return attrs.evolve(obj, metadata=attrs.evolve(obj.metadata, annotations=annotations))
