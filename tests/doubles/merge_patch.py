"""JSON merge patches (RFC 7386): the difference between two pieces of JSON, and its application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns `before` into `after`; empty if they are equal.

    Holds: a merge patch cannot write a null, so `after` must hold none.
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            inner = merge_patch(old, value)
            if inner:
                patch[key] = inner
        elif old != value or type(old) is not type(value):
            patch[key] = value
    return patch


def merged(target: object, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a merge patch makes of a piece of JSON; parts that it does not touch are shared with it."""
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = merged(result.get(key), value)
        else:
            result[key] = value
    return result
