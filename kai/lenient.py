"""Parts of JSON and YAML that others wrote: what is missing, or has another shape than expected, counts as absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def part_of(value: object, *path: str) -> Any:  # noqa: ANN401 - JSON from outside
    """Return what is at a path of keys inside of a value; None where the path leads nowhere."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mapping_of(value: object, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path; an empty one where there is none."""
    found = part_of(value, *path)
    return found if isinstance(found, Mapping) else {}


def list_of(value: object, *path: str) -> Sequence[Any]:
    """Return the list at a path; an empty one where there is none."""
    found = part_of(value, *path)
    return found if isinstance(found, list | tuple) else ()


def mappings_of(value: object, *path: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at a path."""
    return [each for each in list_of(value, *path) if isinstance(each, Mapping)]


def text_of(value: object, *path: str) -> str:
    """Return the text at a path; an empty one where there is none."""
    found = part_of(value, *path)
    return found if isinstance(found, str) else ""


def has_condition(manifest: object, *types: str) -> bool:
    """Return whether the status of an object has a true condition of one of these types."""
    conditions = mappings_of(manifest, "status", "conditions")
    return any(each.get("type") in types and each.get("status") == "True" for each in conditions)


__all__ = ["has_condition", "list_of", "mapping_of", "mappings_of", "part_of", "text_of"]
