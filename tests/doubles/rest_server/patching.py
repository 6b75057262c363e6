"""What each form of patch makes of a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tests.doubles.merge_patch import merged

Path: TypeAlias = tuple[str, ...]
_MERGE_KEYS: Final = {
    "conditions": "type",
    "ownerReferences": "uid",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "tolerations": "",
    "finalizers": "",
}
"""By which key a strategic merge patch finds the items of a list; none for lists of plain values."""


def strategic(target: object, patch: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """Return what a strategic merge patch makes of an object: lists of named things are merged by name."""
    del name
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = strategic(result.get(key), value, key)
        elif isinstance(value, list) and _MERGE_KEYS.get(key) and isinstance(result.get(key), list):
            result[key] = _joined(result[key], value, _MERGE_KEYS[key])
        else:
            result[key] = value
    return result


def _joined(known: Sequence[Any], given: Sequence[Any], by: str) -> list[Any]:
    items = {each.get(by): each for each in known}
    for each in given:
        if each.get("$patch") == "delete":
            items.pop(each.get(by), None)
        else:
            items[each.get(by)] = strategic(items.get(each.get(by)), each)
    return list(items.values())


def operated(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return what the operations of a JSON patch make of a value.

    Raises: ValueError where one of them cannot be done.
    """
    for each in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:]]
        target = _operate(target, path, each)
    return target


def _operate(target: Any, path: list[str], operation: Mapping[str, Any]) -> Any:
    key, rest = path[0], path[1:]
    if isinstance(target, list):
        index = len(target) if key == "-" else int(key)
        changed: Any = list(target)
        if rest:
            changed[index] = _operate(changed[index], rest, operation)
        elif operation["op"] == "add":
            changed.insert(index, operation["value"])
        elif operation["op"] == "remove":
            del changed[index]
        else:
            changed[index] = _replaced(changed[index], operation)
        return changed
    if not isinstance(target, dict):
        raise KeyError(key)
    changed = dict(target)
    if rest:
        changed[key] = _operate(changed.get(key), rest, operation)
    elif operation["op"] == "add":
        changed[key] = operation["value"]
    elif key not in changed:
        raise ValueError(f"there is no {key}")
    elif operation["op"] == "remove":
        del changed[key]
    else:
        changed[key] = _replaced(changed[key], operation)
    return changed


def _replaced(found: Any, operation: Mapping[str, Any]) -> Any:
    if operation["op"] == "test" and found != operation["value"]:
        raise ValueError("testing a value failed")
    return operation["value"]


# --- Server-side apply -------------------------------------------------------------------------------------------

_IDENTITY: Final = {("apiVersion",), ("kind",)}
_NO_FIELDS: Final = {"name", "namespace", "uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"}


def leaves(value: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    """Return the paths of all fields that hold no further fields; a list is one field."""
    for key, inner in value.items():
        path = (*at, key)
        if path in _IDENTITY or (at == ("metadata",) and key in _NO_FIELDS):
            continue
        if isinstance(inner, Mapping) and inner:
            yield from leaves(inner, path)
        else:
            yield path


def without(value: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return an object without one field, and without what is empty then."""
    result = dict(value)
    key, rest = path[0], path[1:]
    if not rest:
        result.pop(key, None)
    elif isinstance(result.get(key), Mapping):
        result[key] = without(result[key], rest)
        if not result[key]:
            del result[key]
    return result


def at_path(value: object, path: Path) -> object:
    """Return a field, or None."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


__all__ = ["Path", "at_path", "leaves", "merged", "operated", "strategic", "without"]
