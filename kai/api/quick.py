"""Objects straight from bytes: for what is as it should be, the same as the codec makes, at a fraction of the cost.

msgspec puts the fields of a class into a struct, in C, and only what has a form of its own is looked at in Python:
times, literals, parts that many objects share. It is stricter than the codec, which knows what a null means and finds
words for all that is wrong. So what it refuses is for the codec to read, or to refuse; what it takes is what the codec
would have made of it.

An object is read in two steps, metadata first, so that one that is known already costs no more than that.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin

import attrs
import msgspec

from kai.api import times
from kai.api.bad_value import BadValue
from kai.api.codec import part_reader
from kai.api.dra_versions import UPGRADES
from kai.api.drafts import draft_of
from kai.api.known import shared_bytes, shared_structs
from kai.api.outline import outline_of
from kai.api.templates import templated_bytes
from kai.api.wire import Format, Sharing, name_on_the_wire, sharing_of, without_none

Fix: TypeAlias = Callable[[Any], Any]
"""Makes of what a struct holds what an object holds; never asked about null."""
Hint: TypeAlias = Any

REFUSED: Final = (msgspec.DecodeError, UnicodeError, RecursionError, BadValue)
_AS_THEY_ARE: Final = frozenset({str, bool, tuple[str, ...]})
# The struct of a class is only known when the class is, which no type checker can follow.
_struct: Final[Any] = msgspec.defstruct
_list_of: Final[Any] = list


@attrs.frozen
class Plan:
    """How a class is read: the struct that it is decoded into, and what makes an object of that."""

    struct: Any
    build: Fix


_OBJECTS: Final[dict[type[Any], Plan]] = {}
_PARTS: Final[dict[type[Any], Plan]] = {}
_OPENERS: Final[dict[type[Any], Callable[[Any], Any]]] = {}


def open_object(cls: type[Any], raw: Any) -> Any:  # noqa: ANN401 - bytes to a struct that is made here
    """Return a struct with the fields of an object, of which its metadata are read and the rest is left in bytes.

    Returns None for a class that only the codec reads.

    Raises: one of `REFUSED` for what is for the codec to read.
    """
    decode = _OPENERS.get(cls)
    if decode is None:
        # Older shapes of the JSON of some kinds have keys that their class does not declare.
        decode = _none if cls in UPGRADES else msgspec.json.Decoder(_plan_of_object(cls).struct).decode
        _OPENERS[cls] = decode
    return decode(raw)


def _none(_: object) -> None:
    return None


def read_opened(cls: type[Any], opened: object) -> Any:  # noqa: ANN401 - an object of the class
    """Return the object of which the metadata are read.

    Raises: one of `REFUSED` for what is for the codec to read.
    """
    return _plan_of_object(cls).build(opened)


def _plan_of_object(cls: type[Any]) -> Plan:
    if cls not in _OBJECTS:
        _OBJECTS[cls] = _plan(
            cls, lambda name, hint: _form(hint) if name == "metadata" else (msgspec.Raw, _from_bytes(hint))
        )
    return _OBJECTS[cls]


def _plan_of_part(cls: type[Any]) -> Plan:
    if cls not in _PARTS:
        _PARTS[cls] = _plan(cls, lambda _, hint: _form(hint))
    return _PARTS[cls]


def _plan(cls: type[Any], form_of: Callable[[str, Hint], tuple[Any, Fix | None]]) -> Plan:
    hints = typing.get_type_hints(cls, include_extras=True)
    members: list[tuple[Any, ...]] = []
    fixes: list[tuple[int, object, Fix]] = []
    for index, field in enumerate(attrs.fields(cls)):
        hint = without_none(hints[field.name])
        sharing = sharing_of(field)
        form, fix = form_of(field.name, hint) if sharing is None else _shared_form(hint, sharing)
        if field.default is attrs.NOTHING:
            members.append((field.name, form))
        elif fix is None and field.default is not None:
            members.append((field.name, form, field.default))
        else:
            members.append((field.name, _optional(form), None))
        if fix is not None:
            fixes.append((index, field.default, fix))
    names = {field.name: name_on_the_wire(field) for field in attrs.fields(cls)}
    # No collector need look at what is taken apart at once.
    struct = _struct(cls.__name__, members, rename=names, kw_only=True, gc=False)
    return Plan(struct, _builder(cls, tuple(fixes)))


def _builder(cls: type[Any], fixes: tuple[tuple[int, object, Fix], ...]) -> Fix:
    """Return what makes an object of a struct."""
    draft = draft_of(cls, complete=True)
    names = tuple(field.alias or field.name for field in attrs.fields(cls))
    values_of = msgspec.structs.astuple

    def build(struct: Any) -> Any:  # noqa: ANN401 - classes that are only known then
        values = list(values_of(struct))
        for index, default, fix in fixes:
            value = values[index]
            if value is not None:
                value = fix(value)
            if value is None:
                value = default
                if value is attrs.NOTHING:
                    raise BadValue(None, "a value")
            values[index] = value
        if draft is None:
            return cls(**dict(zip(names, values, strict=True)))
        made = draft(*values)
        made.__class__ = cls
        return made

    return build


def _shared_form(hint: Hint, sharing: Sharing) -> tuple[Any, Fix]:
    if not sharing.each:
        return msgspec.Raw, shared_bytes(_reader(hint), sharing.longest)
    plan = _plan_of_part(get_args(hint)[0])
    return _list_of[plan.struct], _of_each(shared_structs(plan.build))


def _of_each(build: Fix) -> Fix:
    return lambda structs: tuple([build(struct) for struct in structs])


def _form(hint: Hint) -> tuple[Any, Fix | None]:
    """Return the type that msgspec is to expect, and what is to be made of it."""
    if hint in _AS_THEY_ARE:
        return hint, None
    origin: object = get_origin(hint)
    if origin is Mapping and get_args(hint) == (str, str):
        return dict[str, str], None
    if origin is Annotated:
        inner, *notes = get_args(hint)
        if Format("time") in notes:
            return str, times.instant
        if Format("templated") in notes:
            return outline_of(inner), part_reader(hint)
        return Any, part_reader(hint)
    if attrs.has(hint):
        plan = _plan_of_part(hint)
        return plan.struct, plan.build
    if origin is tuple and attrs.has(get_args(hint)[0]):
        plan = _plan_of_part(get_args(hint)[0])
        return _list_of[plan.struct], _of_each(plan.build)
    return Any, part_reader(hint)


def _from_bytes(hint: Hint) -> Fix:
    """Return what reads a part of an object that was left in bytes."""
    read = _reader(hint)
    origin: object = get_origin(hint)
    is_templated = origin is Annotated and Format("templated") in get_args(hint)
    return templated_bytes(get_args(hint)[0], read) if is_templated else read


def _optional(form: Any) -> Any:  # noqa: ANN401 - a type for msgspec
    """Return a type that may be null as well; these two may be already."""
    return form if form in {Any, msgspec.Raw} else form | None


def _reader(hint: Hint) -> Fix:
    """Return what makes a value of JSON; None of null."""
    form, fix = _form(hint)
    decode = msgspec.json.Decoder(_optional(form)).decode
    if fix is None:
        return decode

    def read(raw: Any) -> Any:  # noqa: ANN401 - a type that only the caller knows
        value = decode(raw)
        return None if value is None else fix(value)

    return read
