"""How the machines of the scheduler look at the cluster as it is known now."""

from __future__ import annotations

from typing import Protocol, TypeVar

from kai.api.kinds import ApiObject, Key
from kai.cluster.port import Index

T = TypeVar("T", bound=ApiObject)


class Reader(Protocol):
    """What is known of the cluster now; the store of `kai.cluster.port` is one."""

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """Return an object."""
        ...

    def all(self, cls: type[T]) -> tuple[T, ...]:
        """Return all objects of a kind; the same tuple until one of them changes."""
        ...

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects to which this key of an index leads, by namespace and name."""
        ...

    def is_assumed(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is shown as assumed."""
        ...

    def is_overlaid(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is shown with annotations that it does not have."""
        ...

    def age(self) -> float:
        """Return for how many seconds the kind that was heard of least recently has been silent."""
        ...
