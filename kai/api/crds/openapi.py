"""Annotations of api classes as OpenAPI v3 schemas, in the structural form that custom resource definitions need.

`schema_of` reads the vocabulary of `kai.api.fields`, as `kai.api.codec.converter` does: what a reader refuses because
of a type, a bound or a pattern, the API server refuses first. What annotations do not say (immutable fields, rules over
several fields) is added by `kai.api.crds.definitions`.

A class that describes an object of Kubernetes itself declares only what kai reads. Its schema is therefore open: what
another program writes beside it is stored, not pruned.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import attrs

from kai.api.crds.descriptions import EXPLANATIONS
from kai.api.fields import (
    INT32_MAX,
    INT64_MAX,
    Bounds,
    Format,
    Pattern,
    camel,
    is_union,
    name_on_the_wire,
    without_none,
)

Schema: TypeAlias = dict[str, Any]
# Type hints are of many unrelated classes; only `typing` knows how to take them apart.
Hint: TypeAlias = Any
Extras: TypeAlias = Mapping[tuple[type, str], Mapping[str, Any]]
"""What to add to the schema of a field, by class and JSON name; an empty name stands for the class itself."""

OPEN: Final = {"x-kubernetes-preserve-unknown-fields": True}

_OWN: Final = ("kai.api.scheduling.", "kai.api.kubernetes.meta")
_NUMBER: Final = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_DURATION: Final = rf"^[-+]?(0|({_NUMBER}(ns|us|µs|μs|ms|s|m|h|d|w|y))+)$"
_QUANTITY: Final = rf"^[-+]?{_NUMBER}([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"
_INT_OR_STRING: Final = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_AMOUNT: Final = {**_INT_OR_STRING, "pattern": _QUANTITY}
_SHARE_RULE: Final = {"rule": "self == -1.0 || self >= 0.0", "message": "must be -1 (unlimited), 0 or positive"}
_FORMATS: Final[dict[str, Schema]] = {
    "time": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "pattern": _DURATION},
    "quantity": _AMOUNT,
    "requests": {"type": "object", "additionalProperties": _AMOUNT},
    "amounts": {"type": "object", "additionalProperties": _AMOUNT},
    "share": {"type": "number", "x-kubernetes-validations": [_SHARE_RULE]},
    "number": {"type": "number"},
    "number or text": _INT_OR_STRING,
    "json": OPEN,
    "json object": {"type": "object", **OPEN},
}
_QUOTED: Final = re.compile(r"`+([^`]+)`+")
_NATURAL: Final = {32: (-(2**31), INT32_MAX), 64: (-(2**63), INT64_MAX)}


def schema_of(hint: Hint, extras: Extras) -> Schema:
    """Return the schema of a type that a field of an api class may have.

    Raises: TypeError for a type that has no place in the vocabulary.
    """
    hint = without_none(hint)  # an absent field is never null in what the API server stores
    origin: object = get_origin(hint)
    if attrs.has(hint):
        return _object(hint, extras)
    if origin is Annotated:
        return _annotated(hint, extras)
    if origin is tuple:
        return {"type": "array", "items": schema_of(get_args(hint)[0], extras)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": schema_of(get_args(hint)[1], extras)}
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if is_union(hint) and all(get_origin(part) is Literal for part in get_args(hint)):
        return {"type": "string", "enum": [word for part in get_args(hint) for word in get_args(part)]}
    plain = {str: "string", bool: "boolean", float: "number"}.get(hint)
    if plain is not None:
        return {"type": plain}
    if hint is int:
        return {"type": "integer", "format": "int64"}
    raise TypeError(f"no schema for {hint}")


def _annotated(hint: Hint, extras: Extras) -> Schema:
    inner, *notes = get_args(hint)
    for note in notes:
        if isinstance(note, Bounds):
            return _integer(note)
        if isinstance(note, Pattern):
            return _text(note)
        if isinstance(note, Format):
            known = _FORMATS.get(note.name)
            return schema_of(inner, extras) if known is None else dict(known)
    raise TypeError(f"no schema for {hint}")


def _integer(bounds: Bounds) -> Schema:
    """Return the schema of a whole number; its format keeps it within the natural bounds of its width."""
    lowest, highest = _NATURAL[bounds.width]
    schema: Schema = {"type": "integer", "format": f"int{bounds.width}"}
    if bounds.lowest != lowest:
        schema["minimum"] = bounds.lowest
    if bounds.highest != highest:
        schema["maximum"] = bounds.highest
    return schema


def _text(pattern: Pattern) -> Schema:
    schema: Schema = {"type": "string"}
    if pattern.shortest:
        schema["minLength"] = pattern.shortest
    if pattern.longest is not None:
        schema["maxLength"] = pattern.longest
    if pattern.expression:
        schema["pattern"] = pattern.expression
    return schema


def _object(cls: type[Any], extras: Extras) -> Schema:
    """Return the schema of an api class: described by its docstring, with a property for each field."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = sorted(attrs.fields(cls), key=name_on_the_wire)
    sentences = EXPLANATIONS.get(cls, {})
    properties: dict[str, Schema] = {}
    for field in fields:
        wire = name_on_the_wire(field)
        schema = {**schema_of(hints[field.name], extras), **extras.get((cls, wire), {})}
        sentence = sentences.get(field.name)
        properties[wire] = schema if sentence is None else {**schema, "description": sentence}
    required = [name_on_the_wire(field) for field in fields if field.default is attrs.NOTHING]
    return {
        "type": "object",
        "description": description_of(cls),
        "properties": properties,
        **({"required": required} if required else {}),
        **({} if cls.__module__.startswith(_OWN) else OPEN),
        **extras.get((cls, ""), {}),
    }


def description_of(cls: type[Any]) -> str:
    """Return the first paragraph of the docstring of a class, on one line, with fields called as on the wire."""
    paragraph = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
    return _QUOTED.sub(lambda quoted: camel(quoted[1]), " ".join(paragraph.split()))
