"""The one cattrs converter: how each type of an api class is read from JSON and written to it.

Null is the same as absent; unknown keys are ignored. A reader that fails raises BadValue, and each enclosing reader
adds its key or index as the exception propagates. Without a failure this costs nothing, so no second, slower converter
is needed to locate a bad value.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import attrs
import cattrs
from cattrs.fns import identity
from cattrs.gen import make_dict_unstructure_fn, override

from kai.api import values
from kai.api.codec import json_values
from kai.api.codec.pod_templates import draft_of, shared, templated
from kai.api.fields import Bounds, Format, Int64, Pattern, is_shared, is_union, name_on_the_wire, without_none
from kai.api.values import BadValue

if typing.TYPE_CHECKING:
    from kai.api.codec.json_values import Reader

Writer: TypeAlias = Callable[[Any], Any]
# Type hints are of many unrelated classes; only `typing` knows how to take them apart.
Hint: TypeAlias = Any

_FORMATS: Final[dict[str, Reader]] = {
    "time": json_values.time,
    "duration": json_values.duration,
    "quantity": json_values.quantity_text,
    "requests": json_values.requests,
    "amounts": json_values.amounts,
    "share": json_values.share,
    "number": json_values.number,
    "word": json_values.word,
    "number or text": json_values.number_or_text,
    "json": json_values.json_value,
    "json object": json_values.json_object,
}

_WORTH_A_DRAFT: Final = 500
"""The number of objects from which compiling a draft class costs less than it saves."""


def make_converter() -> cattrs.Converter:
    """Make the converter for api classes."""
    converter = cattrs.Converter(detailed_validation=False)
    converter.register_structure_hook(str, json_values.text)
    converter.register_structure_hook(bool, json_values.flag)
    converter.register_structure_hook(float, json_values.number)
    # Go's integers end at 64 bits; Python's do not.
    converter.register_structure_hook(int, _annotated_reader(Int64, converter))
    factories: tuple[tuple[Callable[[Hint], bool], Callable[[Hint, cattrs.Converter], Reader]], ...] = (
        (is_union, _union_reader),
        (_comes_from(Literal), _literal_reader),
        (_comes_from(Mapping), _mapping_reader),
        (_comes_from(tuple), _tuple_reader),
        (_comes_from(Annotated), _annotated_reader),
        (attrs.has, _class_reader),
    )
    for fits, make in factories:
        converter.register_structure_hook_factory(fits, lambda hint, make=make: make(hint, converter))
    converter.register_unstructure_hook_factory(attrs.has, lambda hint: _class_writer(hint, converter))
    return converter


def _comes_from(origin: object) -> Callable[[Hint], bool]:
    return lambda hint: get_origin(hint) is origin


# --- Reading -------------------------------------------------------------------------------------------------------


def _class_reader(cls: Hint, converter: cattrs.Converter) -> Reader:
    """Make the reader of an api class; it visits the keys present and ignores undeclared ones.

    Cost: nothing until the first object is read. Most clusters have no objects of most classes, and making a draft
    class pays off from `_WORTH_A_DRAFT` objects on.
    """
    find: Callable[[object], tuple[str, type | None, Reader] | None] | None = None
    required: list[tuple[str, str]] = []
    draft: type[Any] | None = None
    until_draft = _WORTH_A_DRAFT

    def read(value: object, _: object = None) -> object:
        nonlocal find, required, draft, until_draft
        # Testing for the exact type first is twenty times as fast, and decoded JSON is always a dict.
        if type(value) is not dict and not isinstance(value, Mapping):
            raise BadValue(value, "an object")
        if find is None:
            find, required = _slots(cls, converter)
        given: dict[str, object] = {}
        key: object = None
        try:
            for key, item in value.items():
                slot = find(key)
                # A field that kai does not declare may come with any newer version of Kubernetes.
                if slot is not None and item is not None:
                    name, as_it_is, reader = slot
                    given[name] = item if type(item) is as_it_is else reader(item, None)
        except BadValue as bad:
            bad.under(key)
            raise
        for name, wire in required:
            if name not in given:
                raise BadValue(None, "a value", path=(wire,))
        if draft is None:
            until_draft -= 1
            if until_draft == 0:
                draft = draft_of(cls)
            return cls(**given)
        # A draft is made faster than a frozen object of the class, and has the same fields in the same places.
        made = draft(**given)
        made.__class__ = cls
        return made

    return read


def _slots(
    cls: Hint, converter: cattrs.Converter
) -> tuple[Callable[[object], tuple[str, type | None, Reader] | None], list[tuple[str, str]]]:
    """Return a look-up of a class' fields by JSON key, and its required fields by Python and JSON name."""
    hints = typing.get_type_hints(cls, include_extras=True)
    table: dict[object, tuple[str, type | None, Reader]] = {}
    required: list[tuple[str, str]] = []
    for field in attrs.fields(cls):
        hint, wire = without_none(hints[field.name]), name_on_the_wire(field)
        reader = converter.get_structure_hook(hint)
        # A value of exactly this type needs no conversion; that saves a call for half of all fields.
        as_it_is = hint if hint in {str, bool} else None
        if is_shared(field):
            reader = shared(reader)
        table[wire] = (field.alias or field.name, as_it_is, reader)
        if field.default is attrs.NOTHING:
            required.append((field.alias or field.name, wire))
    return table.get, required


def _tuple_reader(hint: Hint, converter: cattrs.Converter) -> Reader:
    """Make the reader of a list; its elements must not be null."""
    reader = converter.get_structure_hook(get_args(hint)[0])

    def read(value: object, _: object = None) -> tuple[object, ...]:
        if type(value) is not list and not isinstance(value, list | tuple):
            raise BadValue(value, "a list")
        result: list[object] = []
        try:
            for item in value:
                result.append(reader(item, None))  # noqa: PERF401 - its length is the index of an element that fails
        except BadValue as bad:
            bad.under(len(result))
            raise
        return tuple(result)

    return read


def _mapping_reader(hint: Hint, converter: cattrs.Converter) -> Reader:
    """Make the reader of an object with arbitrary keys."""
    element = get_args(hint)[1]
    # Labels and annotations are most of all mappings, and have a reader without a call for each value.
    if element is str:
        return json_values.labels
    reader = converter.get_structure_hook(element)

    def read(value: object, _: object = None) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            raise BadValue(value, "an object")
        result: dict[str, object] = {}
        for key, item in value.items():
            try:
                result[json_values.text(key)] = reader(item, None)
            except BadValue as bad:
                bad.under(key)
                raise
        return result

    return read


def _annotated_reader(hint: Hint, converter: cattrs.Converter) -> Reader:
    """Make the reader of a type with a format, bounds or a pattern."""
    inner, *notes = get_args(hint)
    for note in notes:
        if isinstance(note, Bounds):
            return json_values.integers(note)
        if isinstance(note, Pattern):
            return json_values.patterned(note)
        if isinstance(note, Format):
            return _format_reader(note.name, inner, converter)
    raise TypeError(f"no reader for {hint}")


def _format_reader(name: str, hint: Hint, converter: cattrs.Converter) -> Reader:
    if name == "referring":
        return _referring_reader(hint, converter)
    if name == "templated":
        return templated(hint, converter.get_structure_hook(hint))
    return _FORMATS[name]


def _referring_reader(hint: Hint, converter: cattrs.Converter) -> Reader:
    """Make the reader of a list of environment variables; it keeps those with a value from a config map."""
    everything = _tuple_reader(hint, converter)

    def read(value: object, _: object = None) -> tuple[object, ...]:
        if isinstance(value, list) and all(isinstance(item, dict) and item.get("valueFrom") is None for item in value):
            return ()
        return tuple(variable for variable in everything(value, None) if _from_config_map(variable))

    return read


def _from_config_map(variable: Any) -> bool:  # noqa: ANN401 - the classes are beyond what this module knows
    return variable.value_from is not None and variable.value_from.config_map_key_ref is not None


def _literal_reader(hint: Hint, _: cattrs.Converter) -> Reader:
    return json_values.one_of(get_args(hint))


def _union_reader(hint: Hint, converter: cattrs.Converter) -> Reader:
    """Make the reader of an optional type, or of a union of literal types."""
    present = without_none(hint)
    if present is not hint:
        reader: Reader = converter.get_structure_hook(present)
        return reader
    return json_values.one_of(tuple(word for part in get_args(hint) for word in get_args(part)))


# --- Writing -------------------------------------------------------------------------------------------------------


def _class_writer(cls: Hint, converter: cattrs.Converter) -> Writer:
    """Make the writer of an api class: every field that differs from its default, by its JSON name.

    Holds: no null is written, since the default of every optional field is None.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    options: dict[str, Any] = {
        field.name: override(
            rename=name_on_the_wire(field), unstruct_hook=_writer(without_none(hints[field.name]), converter)
        )
        for field in attrs.fields(cls)
    }
    # cattrs compiles straight-line code for the class, which takes half the time of a loop over its fields.
    write: Writer = make_dict_unstructure_fn(cls, converter, **options, _cattrs_omit_if_default=True)
    return write


def _writer(hint: Hint, converter: cattrs.Converter) -> Writer:
    """Return the writer of a type."""
    origin: object = get_origin(hint)
    if origin is Annotated:
        inner, *notes = get_args(hint)
        name = next((note.name for note in notes if isinstance(note, Format)), "")
        return _WRITERS.get(name) or _writer(inner, converter)
    if origin is tuple:
        element = _writer(get_args(hint)[0], converter)
        return lambda items: [element(item) for item in items]
    if origin is Mapping:
        member = _writer(get_args(hint)[1], converter)
        return lambda items: {key: member(item) for key, item in items.items()}
    # cattrs' generated code recognises `identity` and omits the call.
    return converter.get_unstructure_hook(hint) if attrs.has(hint) else identity


def _number(value: float) -> float:
    """Return a number without a fraction as an integer, which is how people write it."""
    # A reader passes whole numbers of JSON on as int, which has no is_integer before Python 3.12.
    return int(value) if float(value).is_integer() else value


_WRITERS: Final[dict[str, Writer]] = {
    "time": values.instant_text,
    "duration": values.duration_text,
    "share": _number,
    "number": _number,
    "json": json_values.json_value,
    "json object": json_values.json_value,
}
