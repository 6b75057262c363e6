"""Workloads that own each other in a circle: none of them is at the top, so nothing would ask for their pods."""

from collections.abc import Iterable, Mapping
from typing import Any

from kai.lenient import mapping_of, mappings_of

Place = tuple[str, str]
"""Kind, and namespace and name."""


def circles(manifests: Iterable[Mapping[str, Any]], namespace: str) -> dict[Place, str]:
    """Return for each object that is among its own owners the way back to it; ``namespace`` is for what names none."""
    owners = {_place(manifest, namespace): _owners(manifest, namespace) for manifest in manifests}
    found: dict[Place, str] = {}
    for place, above in owners.items():
        way = _way_back(place, owners) if above else ()
        if way:
            found[place] = " -> ".join(f"{kind} {name}" for kind, name in way)
    return found


def _way_back(place: Place, owners: Mapping[Place, tuple[Place, ...]]) -> tuple[Place, ...]:
    """Return the shortest way from an object over its owners to itself; none if there is no such way."""
    seen: set[Place] = set()
    ways: list[tuple[Place, ...]] = [(place,)]
    for way in ways:  # grows while it is read
        for above in owners.get(way[-1], ()):
            if above == place:
                return (*way, above)
            if above not in seen:
                seen.add(above)
                ways.append((*way, above))
    return ()


def _owners(manifest: Mapping[str, Any], namespace: str) -> tuple[Place, ...]:
    metadata = mapping_of(manifest, "metadata")
    here = metadata.get("namespace") or namespace
    references = mappings_of(metadata, "ownerReferences")
    return tuple((str(each.get("kind")), f"{here}/{each.get('name')}") for each in references)


def _place(manifest: Mapping[str, Any], namespace: str) -> Place:
    metadata = mapping_of(manifest, "metadata")
    return str(manifest.get("kind")), f"{metadata.get('namespace') or namespace}/{metadata.get('name')}"
