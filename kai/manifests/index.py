"""What pod grouping reads when all there is was written down: objects by kind, namespace and name."""

from collections.abc import Iterable
from typing import Any

import attrs

from kai.errors import InputError
from kai.podgrouper import Absent, Get, Kind, Many, Resource, Why
from kai.podgrouper.kinds import KARTA

Manifest = dict[str, Any]


@attrs.define
class Index:
    """Objects that can be looked up; those that are made on the way join the others."""

    _objects: dict[tuple[Kind, str, str], Manifest] = attrs.field(factory=dict)
    _kinds: dict[Kind, list[Manifest]] = attrs.field(factory=dict)
    remarks: list[str] = attrs.field(factory=list)
    """What a model could not follow, as an object is not there; who asked the model takes them from here."""

    def add(self, manifests: Iterable[Manifest]) -> None:
        """Add objects; what is no object of the API is for reading it to say."""
        for manifest in manifests:
            try:
                known = Resource.of(manifest)
            except InputError:
                continue
            self._objects[known.kind, known.namespace, known.name] = manifest
            self._kinds.setdefault(known.kind, []).append(manifest)

    def owners(self) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """Return kind, name and UID of the owners of each object that has some, by its UID; pods are left out."""
        found = {}
        for kind, manifests in self._kinds.items():
            for known in map(Resource.of, manifests if kind.kind != "Pod" else ()):
                if known.owner_references:
                    above = [(each.kind.kind, each.name, each.uid) for each in known.owner_references]
                    found[known.uid] = tuple(above)
        return found

    def get(self, read: Get, /) -> Manifest | Absent:
        """Return the object of this kind, namespace (or none) and name."""
        for namespace in (read.namespace, ""):
            found = self._objects.get((read.kind, namespace, read.name))
            if found is not None:
                return found
        return Absent(Why.NOT_FOUND)

    def many(self, read: Many, /) -> tuple[Manifest, ...] | Absent:
        """Return the matching objects in the order in which they were added."""
        if read.kind == KARTA and read.kind not in self._kinds:
            return Absent(Why.NO_SUCH_KIND)
        return tuple(manifest for manifest in self._kinds.get(read.kind, ()) if _matches(Resource.of(manifest), read))


def _matches(known: Resource, read: Many) -> bool:
    in_namespace = not read.namespace or known.namespace == read.namespace
    return in_namespace and all(known.labels.get(key) == value for key, value in read.labels)
