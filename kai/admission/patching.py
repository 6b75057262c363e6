"""The way from one manifest to another as a JSON patch (RFC 6902)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the operations that turn `before` into `after`, in order.

    Holds: applied to `before` they give `after`; equal manifests give none.
    Cost: parts that are the same object in both are not looked into, so a caller that copies only what it changes pays
    for the change, not for the manifest.
    """
    return tuple(_between(before, after, ""))


def _between(before: object, after: object, path: str) -> list[dict[str, Any]]:
    if before is after:
        return []
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _between_mappings(before, after, path)
    if isinstance(before, list) and isinstance(after, list):
        return _between_lists(before, after, path)
    if before == after and type(before) is type(after):
        return []
    return [{"op": "replace", "path": path, "value": after}]


def _between_mappings(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for key in before:
        place = f"{path}/{pointer_step(key)}"
        if key in after:
            operations += _between(before[key], after[key], place)
        else:
            operations.append({"op": "remove", "path": place})
    operations += [
        {"op": "add", "path": f"{path}/{pointer_step(key)}", "value": after[key]} for key in after if key not in before
    ]
    return operations


def _between_lists(before: list[Any], after: list[Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        operations += _between(old, new, f"{path}/{index}")
    # From the end, because every removal moves up what stands behind it.
    operations += [{"op": "remove", "path": f"{path}/{index}"} for index in range(len(before) - 1, len(after) - 1, -1)]
    operations += [
        {"op": "add", "path": f"{path}/{index}", "value": after[index]} for index in range(len(before), len(after))
    ]
    return operations


def pointer_step(key: str) -> str:
    """Return a key as it is written in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
