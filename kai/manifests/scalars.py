"""Values of the types of Kubernetes that have no fields: what an API server takes, whether kai reads the field or not.

An API server decodes into types: a word where a number belongs is refused before any rule of the kind is looked at.
What YAML makes of a value counts, so ``replicas: 5.0`` is five, and ``value: 5`` is no string.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

import attrs

from kai.api.values import quantity, times
from kai.api.values.bad_value import BadValue
from kai.numerals import is_number


@attrs.frozen
class Scalar:
    """A type: what its values are called, and which they are."""

    wanted: str
    takes: Callable[[object], bool]


def _is_whole(bits: int) -> Callable[[object], bool]:
    most = 1 << (bits - 1)

    def takes(value: object) -> bool:
        return is_number(value) and -most <= value < most and value == int(value)

    return takes


def _is_time(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        times.instant(value)
    except BadValue:
        return False
    return True


def _is_number_or_text(value: object) -> bool:
    return isinstance(value, str) or _is_whole(32)(value)


SCALARS: Final[Mapping[str, Scalar]] = {
    "int32": Scalar("a whole number", _is_whole(32)),
    "int64": Scalar("a whole number", _is_whole(64)),
    "bool": Scalar("true or false", lambda value: isinstance(value, bool)),
    "str": Scalar("a string", lambda value: isinstance(value, str)),
    "time": Scalar(times.WANTED_TIME, _is_time),
    "int|str": Scalar("a whole number or a string", _is_number_or_text),
}
"""All types by their names in ``core_fields.json``."""
_LARGEST: Final = {"int32": (1 << 31) - 1, "int64": (1 << 63) - 1}


def scalar_fault(value: object, name: str) -> BadValue | None:
    """Return what is wrong with a value of a type; None if nothing is, and of null, which counts as absent."""
    scalar = SCALARS[name]
    if value is None or scalar.takes(value):
        return None
    if name == "str" and isinstance(value, int | float):
        return BadValue(value, f"{scalar.wanted} (in YAML, put it in quotes)")
    is_large = name in _LARGEST and isinstance(value, int | float) and value > _LARGEST[name]
    return BadValue(value, f"{scalar.wanted}, at most {_LARGEST[name]}" if is_large else scalar.wanted)


def exact_amount(value: object) -> Fraction | None:
    """Return an amount exactly, to a billionth; None for what is none."""
    try:
        return Fraction(quantity.amount(str(value), 10**9), 10**9)
    except BadValue:
        return None
