"""A document as one class: its fields give the JSON, its reader and its JSON Schema.

A document is a frozen attrs class, and so is each of its parts. Field names are those of the JSON in Python's manner
(`kai.api.fields.document_name`), in the order in which the JSON has them. A field whose default is `ABSENT` is left out
of the JSON while it has no value; every other field is written, and null is a value that is not known.

`as_json` writes, `read_json` reads what this version or a later one wrote, and `schema_of` makes the contract of
``-o json`` (2020-12). Within a version fields are only added, so readers ignore what they do not know, and a schema
allows it.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

import attrs

from kai.answers.documents.envelope import Envelope
from kai.api.fields import document_name, is_union, without_none

T = TypeVar("T")

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class _Absent:
    """The value of a field that the JSON does not have."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final[Any] = _Absent()


@attrs.frozen(kw_only=True)
class Document:
    """The own fields of a document; its kind is the name of its class, and the envelope comes before them."""


# --- Writing -------------------------------------------------------------------------------------------------------


def as_json(part: object) -> dict[str, Any]:
    """Return a document or a part of one as JSON values, without the envelope. Cost: one call for each part."""
    out: dict[str, Any] = {}
    cls: Any = type(part)
    for name, key, convert in _written(cls):
        value = getattr(part, name)
        if value is not ABSENT:
            out[key] = value if convert is None or value is None else convert(value)
    return out


@cache
def _written(cls: type[Any]) -> tuple[tuple[str, str, Callable[[Any], Any] | None], ...]:
    """Return name, key and converter of each field; None where the value is JSON as it is."""
    hints = typing.get_type_hints(cls)
    return tuple((each.name, document_name(each.name), _writer(hints[each.name])) for each in attrs.fields(cls))


def _writer(hint: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - type hints are of many classes
    hint = without_none(hint)
    if attrs.has(hint):
        return as_json
    if typing.get_origin(hint) is tuple:
        inner = _writer(typing.get_args(hint)[0])
        return list if inner is None else lambda items: [inner(each) for each in items]
    return dict if typing.get_origin(hint) is Mapping else None


# --- Reading -------------------------------------------------------------------------------------------------------


def read_json(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return the document, or part of one, in JSON values. Types of plain values are not checked.

    Raises: KeyError for a missing field; TypeError or AttributeError for a value of another form.
    """
    found: dict[str, Any] = {}
    kind: Any = cls
    for name, key, convert, is_required in _read(kind):
        if key in values:
            value = values[key]
            found[name] = value if convert is None or value is None else convert(value)
        elif is_required:
            raise KeyError(key)
    return cls(**found)


@cache
def _read(cls: type[Any]) -> tuple[tuple[str, str, Callable[[Any], Any] | None, bool], ...]:
    hints = typing.get_type_hints(cls)
    return tuple(
        (each.name, document_name(each.name), _reader(hints[each.name]), each.default is attrs.NOTHING)
        for each in attrs.fields(cls)
    )


def _reader(hint: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - as above
    hint = without_none(hint)
    if attrs.has(hint):
        return lambda values: read_json(hint, values)
    if typing.get_origin(hint) is tuple:
        inner = _reader(typing.get_args(hint)[0])
        return tuple if inner is None else lambda items: tuple(inner(each) for each in items)
    return None


# --- Schemas -------------------------------------------------------------------------------------------------------


def schema_of(cls: type[Any], *, is_whole: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a kind; it allows fields that it does not name.

    ``is_whole``: every field is always written, and defaults are for readers and tests only.

    Raises: TypeError for a field whose type has no place in a schema.
    """
    return {"$schema": DIALECT, "title": cls.__name__, **_object(cls, is_whole=is_whole)}


def _object(cls: type[Any], *, is_whole: bool) -> dict[str, Any]:
    parts = (Envelope, cls) if issubclass(cls, Document) else (cls,)
    properties: dict[str, Any] = {}
    required = []
    for part in parts:
        hints = typing.get_type_hints(part)
        for field in attrs.fields(part):
            key = document_name(field.name)
            properties[key] = _schema(hints[field.name], is_whole=is_whole)
            if is_whole or field.default is attrs.NOTHING:
                required.append(key)
    return {
        "type": "object",
        "description": " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split()).replace("``", ""),
        "properties": properties,
        "required": required,
    }


def _schema(hint: Any, *, is_whole: bool) -> dict[str, Any]:  # noqa: ANN401 - as above
    parts = typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if attrs.has(hint):
        return _object(hint, is_whole=is_whole)
    if is_union(hint):
        return {"anyOf": [_schema(part, is_whole=is_whole) for part in parts]}
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _schema(parts[0], is_whole=is_whole)}
    if typing.get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": _schema(parts[1], is_whole=is_whole)}
    raise TypeError(f"no JSON Schema for {hint}")
