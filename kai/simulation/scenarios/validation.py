"""Reading what people wrote by hand: every mistake is an error that names the key, what was found and what would do."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kai.api.values import times
from kai.api.values.bad_value import BadValue
from kai.configuration.registry import suggestion
from kai.errors import InputError
from kai.notation import shown
from kai.numerals import is_whole, unsigned

_MOST = 100_000
"""More nodes or pods than this are no longer written by hand."""
_RANGE = re.compile(r"(.*?)(\d+)\.\.(.*?)(\d+)")

Values = Mapping[str, Any]


def fields(value: object, keys: Sequence[str], place: str) -> Values:
    """Return a mapping whose keys are all among ``keys``; nothing is an empty one.

    Raises: InputError.
    """
    values = mapping(value, place)
    for key in values:
        if key not in keys:
            raise InputError(f"{place}: found key {shown(key)}; {suggestion(key, list(keys))}")
    return values


def texts(value: object, place: str) -> Sequence[str]:
    """Return a list of texts; nothing is an empty one.

    Raises: InputError.
    """
    if value is None:
        return ()
    if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
        return value
    raise InputError(f"{place}: found {shown(value)}, expected a list of texts")


def mapping(value: object, place: str) -> Values:
    """Return a mapping with text keys; nothing is an empty one.

    Raises: InputError.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{place}: found {shown(value)}, expected a mapping with names as keys")
    return value


def whole(values: Values, key: str, default: int, place: str) -> int:
    """Return a whole number that is not negative.

    Raises: InputError.
    """
    value = values.get(key, default)
    if is_whole(value) and 0 <= value <= _MOST:
        return value
    raise InputError(f"{place}.{key}: found {shown(value)}, expected a whole number from 0 to {_MOST}")


def boolean(values: Values, key: str, place: str, *, default: bool) -> bool:
    """Return true or false; a text such as "false" is neither.

    Raises: InputError.
    """
    value = values.get(key, default)
    if isinstance(value, bool):
        return value
    raise InputError(f"{place}.{key}: found {shown(value)}, expected true or false")


def seconds(value: object, place: str) -> float:
    """Return a duration in seconds.

    Raises: InputError.
    """
    try:
        return times.seconds(str(value))
    except BadValue as bad:
        raise InputError(f"{place}: found {shown(value)}, expected {bad.wanted}") from None


def spread(name: str, place: str) -> Iterator[str]:
    """Yield the names that ``n1..n4`` stands for, or the name itself.

    Raises: InputError.
    """
    match = _RANGE.fullmatch(name)
    if match is None or match[1] != match[3]:
        yield name
        return
    first, last = unsigned(match[2]), unsigned(match[4])
    if first is None or last is None or not 0 <= last - first < _MOST:
        raise InputError(f"{place}: found {shown(name)}, expected a range of at most {_MOST} nodes, in ascending order")
    width = len(match[2]) if match[2].startswith("0") else 0
    for number in range(first, last + 1):
        yield f"{match[1]}{number:0{width}d}"
