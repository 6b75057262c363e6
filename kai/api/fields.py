"""The annotated types and field metadata by which the classes of `kai.api` declare their JSON.

An api class is a frozen attrs class; its annotations are the whole schema. A field called ``node_name`` is read from
``nodeName``; a field whose wire name cannot be derived has it in ``metadata=wire_name(...)``. The annotated aliases
below express what plain Python types cannot (an instant, a duration, a quantity, a lower bound).
`kai.api.codec.converter` validates by them and `kai.api.crds.definitions` writes them into the OpenAPI schemas: one
source for both.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Never, TypeAlias, get_args, get_origin

import attrs

EMPTY: Final[Mapping[str, Never]] = types.MappingProxyType({})
"""The default of every mapping field: shared, immutable."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@attrs.frozen
class Format:
    """The JSON form of a Python value; found in the metadata of an annotated type."""

    name: str


@attrs.frozen
class Bounds:
    """The smallest and the largest number that a field may hold."""

    lowest: int
    highest: int
    width: int = 32


@attrs.frozen
class Pattern:
    """A regular expression, and lengths, that a string must satisfy."""

    expression: str = ""
    shortest: int = 0
    longest: int | None = None


if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
    JsonObject: TypeAlias = Mapping[str, Json]
else:  # a recursive alias cannot be resolved by typing.get_type_hints, and the codec needs no more than this
    Json = Annotated[object, Format("json")]
    JsonObject = Annotated[object, Format("json object")]

Word: TypeAlias = Annotated[str, Format("word")]
"""A string that many objects share, such as the kind of an owner; it is interned."""

NumberOrText: TypeAlias = Annotated[int | str, Format("number or text")]
"""An amount or a percentage, as in disruption budgets."""

Time: TypeAlias = Annotated[float, Format("time")]
"""An instant, in seconds since the epoch; RFC 3339 text on the wire."""

Seconds: TypeAlias = Annotated[float, Format("duration")]
"""A duration in seconds; Go duration text on the wire."""

Quantity: TypeAlias = Annotated[str, Format("quantity")]
"""A Kubernetes quantity as text, checked; numbers are read through `kai.api.values`."""

Requests: TypeAlias = Annotated[Mapping[str, str], Format("requests")]
"""Quantity texts by resource name, none negative; in the unit of its resource every amount fits into 64 bits."""

Amounts: TypeAlias = Annotated[Mapping[str, str], Format("amounts")]
"""Like `Requests`, for measured amounts: may be negative."""

Share: TypeAlias = Annotated[float, Format("share")]
"""A finite number that is -1 (unlimited) or not negative: quota, limit or weight of a queue."""

Int32: TypeAlias = Annotated[int, Bounds(-(2**31), INT32_MAX)]
Int64: TypeAlias = Annotated[int, Bounds(-(2**63), INT64_MAX, width=64)]
Count: TypeAlias = Annotated[int, Bounds(0, INT32_MAX)]
Count64: TypeAlias = Annotated[int, Bounds(0, INT64_MAX, width=64)]
Port: TypeAlias = Annotated[int, Bounds(0, 65535)]

Labels: TypeAlias = Mapping[str, str]

ObjectName: TypeAlias = Annotated[str, Pattern(longest=253)]
"""The name of an object of any kind, or empty."""
LevelName: TypeAlias = Annotated[str, Pattern(longest=316)]
"""A node label, or an alias of one, or empty."""

# Go's JSON names keep these words in capitals unless they come first.
_CAPITALS: Final = frozenset({"gpu", "numa", "id", "ip", "db", "csi"})


def wire_name(name: str) -> dict[str, str]:
    """Return field metadata that pins the JSON name of a field."""
    return {"wire": name}


def shared() -> dict[str, bool]:
    """Return field metadata for parts that many objects share: equal values are read into one object."""
    return {"shared": True}


def is_shared(field: attrs.Attribute[object]) -> bool:
    """Return whether equal values of a field become one object."""
    return bool(field.metadata.get("shared"))


def is_union(hint: Any) -> bool:  # noqa: ANN401 - type hints are of many unrelated classes
    """Return whether a type hint is a union, in either notation."""
    return get_origin(hint) in {typing.Union, types.UnionType}


def without_none(hint: Any) -> Any:  # noqa: ANN401 - type hints are of many unrelated classes
    """Return a type hint without None; a union of several other types stays a union."""
    if not is_union(hint):
        return hint
    parts = [part for part in get_args(hint) if part is not type(None)]
    return parts[0] if len(parts) == 1 else hint


def camel(name: str) -> str:
    """Return the JSON name of a Python field name: ``selected_gpu_groups`` becomes ``selectedGPUGroups``."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(word.upper() if word in _CAPITALS else word.capitalize() for word in rest)


def document_name(name: str) -> str:
    """Return the name of a field in documents that kai writes: ``lost_gpu_seconds`` becomes ``lostGpuSeconds``."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def name_on_the_wire(field: attrs.Attribute[object]) -> str:
    """Return the JSON name of a field of an api class."""
    pinned = field.metadata.get("wire")
    return pinned if isinstance(pinned, str) else camel(field.name)


def by_content(mapping: Mapping[str, object] | None) -> frozenset[tuple[str, object]] | None:
    """Return the key by which to compare and hash a mapping field, so that api objects stay hashable.

    Holds: equal mappings give equal keys, whatever their order and type.
    """
    return None if mapping is None else frozenset(mapping.items())


def by_json(value: object) -> str:
    """Return the key by which to compare and hash a field of raw JSON."""
    return json.dumps(value, sort_keys=True, default=dict)
