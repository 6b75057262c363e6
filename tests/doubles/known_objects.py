"""What a pod grouper looks up, from a list of manifests."""

from collections.abc import Iterable
from typing import Self

import attrs

from kai.roles.podgrouper import Absent, Get, Many
from kai.roles.podgrouper.lookup import Why
from kai.roles.podgrouper.resource import Kind, Manifest, Resource


@attrs.frozen
class KnownObjects:
    """A lookup over a fixed set of objects, which is all there is.

    ``optional_kinds`` are those that a cluster has only when an object of them is there; of other kinds an absent
    object is merely not found.
    """

    objects: tuple[Resource, ...]
    optional_kinds: frozenset[Kind] = frozenset()

    @classmethod
    def of(cls, manifests: Iterable[Manifest], optional_kinds: Iterable[Kind] = ()) -> Self:
        """Return the lookup over ``manifests``.

        Raises: InputError for one that is not an object of the API.
        """
        return cls(tuple(Resource.of(manifest) for manifest in manifests), frozenset(optional_kinds))

    def get(self, read: Get, /) -> Manifest | Absent:
        """Return the object of exactly this kind, namespace (or none) and name."""
        for known in self.objects:
            if (known.kind, known.name) == (read.kind, read.name) and known.namespace in {read.namespace, ""}:
                return known.manifest
        return self._absence(read.kind)

    def many(self, read: Many, /) -> tuple[Manifest, ...] | Absent:
        """Return the matching objects in the order in which they were given."""
        if read.kind in self.optional_kinds and not any(known.kind == read.kind for known in self.objects):
            return self._absence(read.kind)
        return tuple(
            known.manifest
            for known in self.objects
            if known.kind == read.kind
            and (not read.namespace or known.namespace == read.namespace)
            and all(known.labels.get(key) == value for key, value in read.labels)
        )

    def _absence(self, kind: Kind) -> Absent:
        is_missing = kind in self.optional_kinds and not any(known.kind == kind for known in self.objects)
        return Absent(Why.NO_SUCH_KIND if is_missing else Why.NOT_FOUND)
