"""Selectors of lists and watches, as far as clients in tests use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Selects: TypeAlias = Callable[[Mapping[str, Any]], bool]

_REQUIREMENT: Final = re.compile(r"^(?P<key>[^=!]+)(?P<operator>==|!=|=)(?P<value>.*)$")


def selector(labels: str, fields: str) -> Selects:
    """Return whether an object is selected, as a function."""
    wanted = [(_label, *each) for each in _read(labels)] + [(_field, *each) for each in _read(fields)]
    return lambda obj: all((find(obj, key) == value) is equal for find, key, equal, value in wanted)


def _read(text: str) -> list[tuple[str, bool, str]]:
    found = []
    for part in text.split(",") if text else ():
        match = _REQUIREMENT.match(part)
        assert match, f"the model knows no such selector: {part}"
        found.append((match["key"], match["operator"] != "!=", match["value"]))
    return found


def _label(obj: Mapping[str, Any], key: str) -> str | None:
    found = (obj["metadata"].get("labels") or {}).get(key)
    return None if found is None else str(found)


def _field(obj: Mapping[str, Any], path: str) -> str:
    value: Any = obj
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
