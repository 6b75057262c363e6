"""Decoders that make Python values of those keys only that some class of kai.api declares.

Half of what an API server says about a pod is not read here: who set which field, what containers report, mounts.
A key that an outline does not have is skipped byte by byte, which costs a fifth of making its value. An outline is
about keys, not about values: whether a value is right is for the codec to say, and JSON that has an array where an
object should be is decoded whole, so that it can.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Annotated, Any, Final, get_args, get_origin

import attrs
import msgspec

from kai.api.codec.dra_versions import UPGRADES
from kai.api.fields import name_on_the_wire, without_none

# The outline of a class is only known when the class is, which no type checker can follow.
_make_outline: Final[Any] = typing.TypedDict
_list_of: Final[Any] = list
_OUTLINES: Final[dict[type[Any], Any]] = {}
_DECODERS: Final[dict[type[Any], Callable[[Any], Any]]] = {}


def decode_as(cls: type[Any], raw: Any) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
    """Return JSON of an object of `cls` as Python values, with what the class reads of it at least.

    Raises: msgspec.DecodeError for what is no JSON.
    """
    decode = _DECODERS.get(cls)
    if decode is None:
        decode = _DECODERS[cls] = _decoder(cls)
    return decode(raw)


def _decoder(cls: type[Any]) -> Callable[[Any], Any]:
    whole = msgspec.json.Decoder()
    if cls in UPGRADES:
        return whole.decode  # older shapes of its JSON have keys that the class does not declare
    outlined = msgspec.json.Decoder(outline_of(cls))

    def decode(raw: Any) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
        try:
            return outlined.decode(raw)
        except msgspec.ValidationError:
            return whole.decode(raw)

    return decode


def outline_of(cls: type[Any]) -> Any:  # noqa: ANN401 - a type that is made here
    """Return the keys of a class, and of the classes beneath it, as a type."""
    if cls in _OUTLINES:
        return _OUTLINES[cls]
    hints = typing.get_type_hints(cls, include_extras=True)
    keys: dict[str, Any] = {"apiVersion": Any, "kind": Any}
    keys |= {name_on_the_wire(field): _of_hint(hints[field.name]) for field in attrs.fields(cls)}
    _OUTLINES[cls] = _make_outline(cls.__name__, keys, total=False)
    return _OUTLINES[cls]


def _of_hint(hint: Any) -> Any:  # noqa: ANN401 - type hints are of many unrelated classes
    """Return the outline of an object or of a list of objects; Any for everything else, null included."""
    hint = without_none(hint)
    if get_origin(hint) is tuple:
        element = _of_hint(get_args(hint)[0])
        return Any if element is Any else _list_of[element] | None
    if get_origin(hint) is Annotated:
        return _of_hint(get_args(hint)[0])
    return outline_of(hint) | None if attrs.has(hint) else Any
