"""Readers of single JSON values, and interned strings.

Each reader returns the Python value or raises BadValue with the form that it expects. Readers are strict where
Kubernetes is (a string is no number), and lenient where YAML is (a bare number as a quantity, a recognised date as a
time). `kai.api.codec.converter` combines them for classes.

Equal strings that come with many objects are interned: queue names, owner kinds, label values.

Holds: the intern cache is bounded whatever the input: when the younger half is full, the older half is dropped.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from kai.api import values
from kai.api.values import BadValue
from kai.basics.parsing import is_number, is_whole

if TYPE_CHECKING:
    from kai.api.fields import Bounds, Json, Pattern

_MOST: Final = 1 << 10
_LONGEST: Final = 32
"""Longer strings, a UID for instance, hardly repeat."""
_young: Final[dict[str, str]] = {}
_old: Final[dict[str, str]] = {}

recent: Final = _young.get
"""Return the interned string from the younger half, None if it has none; a faster `same` for hot loops."""


def same(word: str) -> str:
    """Return the interned string equal to ``word``, else intern ``word``.

    Cost: 0.1 us. At most 2,048 strings of at most 32 characters are kept.
    """
    found = _young.get(word)
    if found is None:
        # Not kept: a long string would push out short ones that come again.
        if len(word) > _LONGEST:
            return word
        found = _old.get(word, word)
        if len(_young) >= _MOST:
            _old.clear()
            _old.update(_young)
            _young.clear()
        _young[found] = found
    return found


Reader: TypeAlias = Callable[[Any, Any], Any]
"""The converter's signature of a reader: the value found, and the target type, which most readers know already."""

_DEEPEST: Final = 64
_LARGEST: Final = 1e300
_GPU_PARTS: Final = 10**6
_WHOLE: Final = frozenset({"memory", "ephemeral-storage", "storage"})


def text(value: object, _: object = None) -> str:
    """Return a string."""
    if isinstance(value, str):
        return value
    if isinstance(value, dt.date):
        return values.instant_text(values.instant_of_date(value))
    raise BadValue(value, "a string")


def word(value: object, _: object = None) -> str:
    """Return an interned string."""
    return same(text(value))


def flag(value: object, _: object = None) -> bool:
    """Return a boolean."""
    if isinstance(value, bool):
        return value
    raise BadValue(value, "true or false")


def number(value: object, _: object = None) -> float:
    """Return a finite number."""
    if not is_number(value):
        raise BadValue(value, "a number")
    if -_LARGEST < value < _LARGEST:
        return float(value)
    raise BadValue(value, "a finite number")


def share(value: object, _: object = None) -> float:
    """Return -1, or a finite number that is not negative."""
    read = number(value)
    if read < 0 and read != -1:
        raise BadValue(value, "-1 (unlimited), 0 or a positive number")
    return read


def time(value: object, _: object = None) -> float:
    """Return an instant in seconds since the epoch."""
    if isinstance(value, str):
        return values.instant(value)
    if isinstance(value, dt.date):
        return values.instant_of_date(value)
    raise BadValue(value, values.WANTED_TIME)


def duration(value: object, _: object = None) -> float:
    """Return a duration in seconds; a bare whole number counts nanoseconds, as Go writes them."""
    if isinstance(value, str):
        return values.seconds(value)
    if is_whole(value):
        return values.seconds_of_nanoseconds(value)
    raise BadValue(value, values.WANTED_DURATION)


def number_or_text(value: object, _: object = None) -> int | str:
    """Return an amount or a percentage."""
    if isinstance(value, str) or is_whole(value):
        return value
    raise BadValue(value, 'a whole number or a percentage such as "50%"')


def quantity_text(value: object, _: object = None) -> str:
    """Return the text of a quantity that fits into 64 bits."""
    read = _as_quantity(value)
    values.amount(read)
    return read


def _as_quantity(value: object) -> str:
    if isinstance(value, str):
        return value
    if is_number(value) and -_LARGEST < value < _LARGEST:
        return repr(value)
    raise BadValue(value, values.WANTED)


def parts_of(resource: str) -> int:
    """Return how many parts to a unit an amount of a resource must have within 64 bits."""
    if resource.endswith("gpu"):
        return _GPU_PARTS
    if resource in _WHOLE or resource.startswith("hugepages-"):
        return 1
    return 1000


def amounts(value: object, _: object = None) -> Mapping[str, str]:
    """Return quantity texts by resource name."""
    if not isinstance(value, Mapping):
        raise BadValue(value, "an object of quantities by resource name")
    result: dict[str, str] = {}
    for name, found in value.items():
        if not isinstance(name, str):
            raise BadValue(name, "a resource name")
        try:
            read = _as_quantity(found)
            values.amount(read, parts_of(name))
        except BadValue as bad:
            bad.under(name)
            raise
        result[name] = read
    return result


def requests(value: object, _: object = None) -> Mapping[str, str]:
    """Return quantity texts by resource name, none of them negative."""
    result = amounts(value)
    for name, read in result.items():
        # The sign is looked at first: few amounts have one, and "-0" is allowed.
        if read[0] == "-" and values.amount(read, parts_of(name)) < 0:
            raise BadValue(read, "a quantity that is not negative", path=(name,))
    return result


def labels(value: object, _: object = None) -> Mapping[str, str]:
    """Return strings by key."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise BadValue(value, "an object of strings")
    result: dict[str, str] = {}
    for key, item in value.items():
        if type(item) is not str or type(key) is not str:
            return _mended_labels(value)
        result[key] = recent(item) or same(item)
    return result


def _mended_labels(value: Mapping[object, object]) -> Mapping[str, str]:
    result: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise BadValue(key, "a string as key (in YAML, put it in quotes)")
        if isinstance(item, bool | int | float | list | dict):
            raise BadValue(item, "a string (in YAML, put it in quotes)", path=(key,))
        # A key without a value is the empty label, as kubectl reads it.
        result[key] = "" if item is None else text(item)
    return result


def json_value(value: object, _: object = None) -> Json:
    """Return a copy of a piece of JSON."""
    return _json(value, 0)


def json_object(value: object, _: object = None) -> Mapping[str, Json]:
    """Return a copy of a JSON object."""
    if not isinstance(value, Mapping):
        raise BadValue(value, "an object")
    return cast("dict[str, Json]", _json(value, 0))


def _json(value: object, depth: int) -> Json:
    if depth > _DEEPEST:
        raise BadValue(None, f"nesting of at most {_DEEPEST} levels")
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {text(key): _json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item, depth + 1) for item in value]
    if isinstance(value, dt.date):
        return text(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise BadValue(value, "JSON")


def integers(bounds: Bounds) -> Reader:
    """Return a reader of whole numbers within bounds."""
    lowest, highest = bounds.lowest, bounds.highest

    def read(value: object, _: object = None) -> int:
        # YAML with an exponent, or a client that writes all numbers as floats: 1e3 is a whole number.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not is_whole(value):
            raise BadValue(value, "a whole number")
        if value < lowest:
            raise BadValue(value, "a whole number that is not negative" if lowest == 0 else f"at least {lowest}")
        if value > highest:
            raise BadValue(value, f"at most {highest}")
        return value

    return read


def patterned(pattern: Pattern) -> Reader:
    """Return a reader of strings that satisfy a pattern."""
    expression = re.compile(pattern.expression)

    def read(value: object, _: object = None) -> str:
        found = text(value)
        if len(found) < pattern.shortest or (pattern.expression and not expression.fullmatch(found)):
            raise BadValue(found, f"a name that matches {pattern.expression}")
        if pattern.longest is not None and len(found) > pattern.longest:
            raise BadValue(found, f"at most {pattern.longest} characters")
        return found

    return read


def one_of(choices: tuple[str, ...]) -> Reader:
    """Return a reader of strings out of ``choices``."""
    # The reader returns the choice, not its input: a million objects then share one string.
    allowed = {choice: choice for choice in choices}
    wanted = "one of " + ", ".join(f'"{choice}"' for choice in choices if choice)

    def read(value: object, _: object = None) -> str:
        chosen = allowed.get(value) if isinstance(value, str) else None
        if chosen is None:
            raise BadValue(value, wanted)
        return chosen

    return read
