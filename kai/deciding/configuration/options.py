"""Options of plugins: from configuration values to a frozen attrs object, or to errors that say what is allowed.

A plugin's fields are its options. Their names, types, defaults and validators are the only source for the messages
here, the output of ``kai plugins`` and the check.
"""

import types
import typing
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import attrs
import cattrs
from attrs import NOTHING, Attribute

from kai.basics import parsing
from kai.basics.errors import error_text
from kai.basics.parsing import is_number, is_whole
from kai.basics.wording import shown
from kai.deciding.configuration.registry import UnknownNameError, suggestion

T = TypeVar("T")
Options = Mapping[str, object]

_WORDS: Mapping[object, str] = {bool: "true or false", int: "whole number", float: "number", str: "text"}
_SEVERAL: Mapping[object, str] = {int: "whole numbers", float: "numbers", str: "texts"}
_BOUNDS = {">=": "{} or more", ">": "more than {}", "<=": "at most {}", "<": "less than {}"}


def build(
    cls: type[T], options: Options, place: str, owner: str, elsewhere: Mapping[str, str] = MappingProxyType({})
) -> T:
    """Return an instance of ``cls`` with these options.

    ``place`` is their place in the configuration (``policy.yaml: plugins.same-rack``), ``owner`` the distribution that
    defines them. ``elsewhere`` gives the places of single options that are written elsewhere.

    Raises: ConfigError with one message for each option that is unknown, missing or wrong.
    """
    fields = {field.name: field for field in described(cls)}
    # All faults are gathered, so that one run shows all that a file needs.
    messages: list[str] = []
    helps: list[str] = []
    for name in options:
        if name not in fields:
            messages.append(f"{elsewhere.get(name, place)}.{name} is not an option of {owner}")
            helps.append(_meant(name, fields))
    values: dict[str, object] = {}
    for name, field in fields.items():
        if name in options:
            where = f"{elsewhere.get(name, place)}.{name}"
            try:
                values[_argument(field)] = _nested_or_checked(field, options[name], where, owner)
            except UnknownNameError as error:
                messages += error.messages
                helps += error.helps
            except ValueError as error:
                messages.append(f"{where}: found {shown(options[name])}, expected {wanted(field)}")
                helps.append(str(error))
        elif field.default is NOTHING:
            messages.append(f"{place}.{name}: found nothing, expected {wanted(field)}")
            helps.append("")
    if messages:
        raise UnknownNameError(*messages, helps=helps)
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        # Validators of single fields have passed, so this one checks several fields together.
        raise UnknownNameError(f"{place}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UnknownNameError(f"{place}: {cls.__name__} of {owner} raised {error_text(error)}") from error


def described(cls: type[object]) -> tuple["Attribute[Any]", ...]:
    """Return the fields of a plugin that are options, with their types; none for a class that is not an attrs class."""
    if not attrs.has(cls):
        return ()
    resolved = attrs.resolve_types(cls)
    return tuple(field for field in attrs.fields(resolved) if field.init)


def wanted(field: "Attribute[Any]") -> str:
    """Return in words which values an option allows: ``number, 0 or more, default 1``."""
    # A type and a validator may say the same, as a literal and a choice do.
    parts = list(dict.fromkeys([_type_words(field.type), *_validator_words(field.validator)]))
    is_plain = not isinstance(field.default, attrs.Factory) and not attrs.has(type(field.default))  # type: ignore[arg-type]  # Factory is a class; the stub calls it a function
    if field.default is not NOTHING and is_plain:
        parts.append(f"default {_shown(field.default)}")
    return ", ".join(part for part in parts if part)


def _meant(name: str, fields: Mapping[str, "Attribute[Any]"]) -> str:
    if not fields:
        return "it has no options"
    text = suggestion(name, list(fields))
    # Without a near name the suggestion lists all options, which need no types beside them.
    if not text.startswith("did you mean"):
        return text
    meant = text.removeprefix("did you mean ").removesuffix("?").split(" or ")[0]
    return f"did you mean {meant} ({wanted(fields[meant])})?"


def _argument(field: "Attribute[Any]") -> str:
    return field.alias or field.name


def _nested_or_checked(field: "Attribute[Any]", value: object, place: str, owner: str) -> object:
    """Return ``value`` in the type of the field; a nested options class is built like the outer one.

    Raises: ValueError for a wrong value, ConfigError for wrong ones inside.
    """
    kind: object = field.type
    if isinstance(kind, type) and attrs.has(kind) and isinstance(value, Mapping):
        return build(kind, value, place, owner)
    return _checked(field, value)


def _checked(field: "Attribute[Any]", value: object) -> object:
    """Return ``value`` in the type of the field, after its validators.

    Raises: ValueError.
    """
    origin = typing.get_origin(field.type)
    if isinstance(origin, type) and isinstance(value, str) and issubclass(origin, Collection):
        # Python iterates a text letter by letter, which no user means.
        raise ValueError  # noqa: TRY004 - every fault of a value gets the same error type
    try:
        read = _CONVERTER.structure(value, field.type) if field.type is not None else value
        # A validator may expect what the converter makes, which happens only once the class is built.
        if field.validator is not None and field.converter is None:
            field.validator(None, field, read)
    except (ValueError, TypeError, KeyError, AttributeError, cattrs.BaseValidationError):
        raise ValueError from None
    except cattrs.StructureHandlerNotFoundError:
        raise ValueError("a configuration cannot hold a value of this type; the plugin's class declares it") from None
    except Exception as error:
        raise ValueError(f"the validator of the option raised {error_text(error)}") from error
    return read


# ------------------------------------------------------------------------------------------------------------ words


def _type_words(kind: object) -> str:
    if kind in _WORDS:
        return _WORDS[kind]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return " or ".join("nothing" if part is type(None) else _type_words(part) for part in typing.get_args(kind))
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(str(choice) for choice in typing.get_args(kind))
    origin = typing.get_origin(kind) or kind
    if isinstance(origin, type):
        if issubclass(origin, Mapping):
            return _mapping_words(typing.get_args(kind))
        if issubclass(origin, tuple | list | frozenset | set):
            return _list_words(typing.get_args(kind))
        if attrs.has(origin):
            return f"mapping with {', '.join(each.name for each in described(origin))}"
        return origin.__name__
    return "value"


def _list_words(parts: tuple[object, ...]) -> str:
    """Return the name of a list's item type, if all its items have one type."""
    items = {part for part in parts if part is not Ellipsis}
    several = _SEVERAL.get(next(iter(items))) if len(items) == 1 else None
    return "list" if several is None else f"list of {several}"


def _mapping_words(parts: tuple[object, ...]) -> str:
    """Return the name of a mapping's value type, if it has one; its keys are names."""
    several = _SEVERAL.get(parts[1]) if len(parts) == 2 else None
    return "mapping" if several is None else f"mapping from names to {several}"


def _validator_words(validator: object) -> Iterator[str]:
    """Yield the conditions of attrs' own validators, read from their attributes; other validators yield nothing."""
    # attrs offers no other way to the parts of and_().
    for part in getattr(validator, "_validators", (validator,)):
        bound, operator = getattr(part, "bound", None), getattr(part, "compare_op", None)
        if operator in _BOUNDS:
            yield _BOUNDS[operator].format(_shown(bound))
        choices = getattr(part, "options", None)
        if choices is not None:
            yield "one of " + ", ".join(map(str, choices))


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else shown(value)


# -------------------------------------------------------------------------------------------------------- converter


def _boolean(value: object, _: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


def _whole(value: object, _: object) -> int:
    if is_whole(value):
        return value
    raise ValueError


def _number(value: object, _: object) -> float:
    if is_number(value) and abs(value) < float("inf"):
        return float(value)
    raise ValueError


def _switch_or_number(value: object, _: object) -> bool | float:
    return value if isinstance(value, bool) else _number(value, _)


def _text(value: object, _: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError


def _is_choice(kind: object) -> bool:
    return typing.get_origin(kind) is typing.Literal


def _chosen(value: object, kind: object) -> object:
    if value in typing.get_args(kind):
        return value
    raise ValueError


def _make_converter() -> cattrs.Converter:
    """Make the converter of options: strict, because a text silently converted to a number would change decisions."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(bool, _boolean)
    converter.register_structure_hook(int, _whole)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(bool | float, _switch_or_number)
    converter.register_structure_hook(str, _text)
    converter.register_structure_hook_func(_is_choice, _chosen)
    return converter


_CONVERTER = _make_converter()


# ------------------------------------------------------------------------------------------------- values from text


def from_text(field: "Attribute[Any]", text: str) -> object:
    """Return the value of a field for ``text``, because the peer's plugin arguments are all strings.

    Raises: ValueError if the text is no such value.
    """
    kind: object = field.type
    is_union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    kinds = typing.get_args(kind) if is_union else (kind,)
    stripped = text.strip()
    if bool in kinds:
        # Before numbers: an option may be a switch or a number, and neither text is a number.
        if stripped.lower() in {"true", "false"}:
            return stripped.lower() == "true"
        if float not in kinds:
            raise ValueError
    if float in kinds:
        return parsing.seconds(stripped) if field.name.endswith("_seconds") else float(stripped)
    if int in kinds:
        return int(stripped)
    if str in kinds or typing.get_origin(kind) is typing.Literal:
        return text
    return tuple(part.strip() for part in text.split(",") if part.strip())
