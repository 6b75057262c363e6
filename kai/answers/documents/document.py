"""A document as one class: its fields give the JSON, its reader and its JSON Schema.

A document is a frozen attrs class, and so is each of its parts. Field names are those of the JSON in Python's manner
(`kai.api.fields.document_name`), in the order in which the JSON has them. A field whose default is `ABSENT` is left out
of the JSON while it has no value; every other field is written, and null is a value that is not known.

`as_json` writes, `read_json` reads what this version or a later one wrote, and `schema_of` makes the contract of
``-o json`` (2020-12). Within a version fields are only added, so readers ignore what they do not know, and a schema
allows it.

The envelope of every document has kind, time, source, and the version of kai. `installed` gives versions of packages,
and `span` durations as text of at most two units.
"""

from __future__ import annotations

import datetime as dt
import inspect
import os
import time
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from kai.api.fields import document_name, is_union, without_none

if TYPE_CHECKING:
    from kai.answers.cases.origin import Origin


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


DISTRIBUTION = "kai-scheduler"


def installed(name: str) -> str:
    """Return the version of an installed distribution, "not installed" if there is none."""
    from importlib import metadata  # noqa: PLC0415 - importing it takes as long as the rest of a help text

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def span(seconds: float) -> str:
    """Return a duration as text: ``45s``, ``12m``, ``1h05m``, ``3d4h``."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR}h"


API_VERSION = "output.kai/v1"


@attrs.frozen(kw_only=True)
class Source:
    """Where a document was made from."""

    type: str
    cluster: str | None
    revision: str | None
    sha256: str | None
    complete: bool


@attrs.frozen(kw_only=True)
class Program:
    """Which kai made a document."""

    version: str


@attrs.frozen(kw_only=True)
class Envelope:
    """What every document begins with."""

    api_version: str
    kind: str
    generated_at: str
    source: Source | None
    program: Program


def enveloped(kind: str, fields: Mapping[str, Any], origin: Origin | None = None) -> dict[str, Any]:
    """Return a document: the envelope and its own fields; ``origin`` is None where nothing was read."""
    envelope = Envelope(
        api_version=API_VERSION,
        kind=kind,
        generated_at=_now(),
        source=None if origin is None else _source(origin),
        program=Program(version=installed(DISTRIBUTION)),
    )
    return {**{document_name(name): value for name, value in attrs.asdict(envelope).items()}, **fields}


def _source(origin: Origin) -> Source:
    return Source(**{name: getattr(origin, name) for name in attrs.fields_dict(Source)})


def _now() -> str:
    """Return the present time, or SOURCE_DATE_EPOCH, with which the same input gives the same bytes."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(fixed) if fixed.isdecimal() else int(time.time())
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
