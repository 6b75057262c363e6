"""JSON Schemas (2020-12) of attrs classes: what programs may rely on in the documents that kai writes."""

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

import attrs

from kai.api.fields import document_name

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schema_of(cls: type[Any]) -> dict[str, Any]:
    """Return the schema of a kind; it allows fields that it does not name.

    Raises: TypeError for a field whose type has no place in a schema.
    """
    return {"$schema": DIALECT, "title": cls.__name__, **_object(cls)}


def _object(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    fields = attrs.fields(cls)
    return {
        "type": "object",
        "description": " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split()).replace("``", ""),
        "properties": {document_name(field.name): _schema(hints[field.name]) for field in fields},
        "required": [document_name(field.name) for field in fields if field.default is attrs.NOTHING],
    }


def _schema(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - type hints are of many classes
    origin: object = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if attrs.has(hint):
        return _object(hint)
    if origin in {typing.Union, types.UnionType}:
        return {"anyOf": [_schema(part) for part in parts]}
    if origin is tuple:
        return {"type": "array", "items": _schema(parts[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(parts[1])}
    raise TypeError(f"no JSON Schema for {hint}")
