"""A fault in one field of an object, and rules that many fields share: names, labels, sets of words, scalar types.

Scalar types are checked as an API server does, whether or not kai reads the field. An API server decodes into types: a
word where a number belongs is refused before any rule of the kind is applied. The value that YAML reads counts, so
``replicas: 5.0`` is five, and ``value: 5`` is not a string.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

import attrs

from kai.api import values
from kai.api.conventions.amounts import BILLION, exact
from kai.api.values import BadValue
from kai.basics import wording
from kai.basics.parsing import is_number, list_of
from kai.manifests.positions import Path


@attrs.frozen
class Scalar:
    """A scalar type: a description of its values, and a test for them."""

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
        values.instant(value)
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
    "time": Scalar(values.WANTED_TIME, _is_time),
    "int|str": Scalar("a whole number or a string", _is_number_or_text),
}
"""All types by their names in ``core_fields.json``."""
_LARGEST: Final = {"int32": (1 << 31) - 1, "int64": (1 << 63) - 1}


def scalar_fault(value: object, name: str) -> BadValue | None:
    """Return the fault of a value of a type; None if it is valid, or null, which counts as absent."""
    scalar = SCALARS[name]
    if value is None or scalar.takes(value):
        return None
    # With bool, which is an int in Python: what YAML reads as true or false needs quotes, too.
    if name == "str" and isinstance(value, int | float):
        return BadValue(value, f"{scalar.wanted} (in YAML, put it in quotes)")
    is_large = name in _LARGEST and isinstance(value, int | float) and value > _LARGEST[name]
    return BadValue(value, f"{scalar.wanted}, at most {_LARGEST[name]}" if is_large else scalar.wanted)


def exact_amount(value: object) -> Fraction | None:
    """Return an amount exactly, to a billionth, or less finely where it is very large; None if it is invalid."""
    try:
        return Fraction(exact(str(value)).billionths, BILLION)
    except BadValue:
        return None


_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST: Final = 253

Item = tuple[Path, Mapping[str, Any]]


@attrs.frozen
class Fault:
    """A field that an API server refuses: its path, the value found, and the expected form."""

    path: Path
    found: str
    expected: str
    code: str = "J024"


def is_label(text: str) -> bool:
    """Return whether a text is a DNS label, as names of containers are."""
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Return whether a text is a DNS subdomain, labels with dots between them, as names of objects are."""
    return len(text) <= _LONGEST and all(
        re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in text.split(".")
    )


def is_qualified(text: str) -> bool:
    """Return whether a text is a valid label key: a name, or a domain, a slash and a name."""
    domain, slash, name = text.rpartition("/")
    return _QUALIFIED.fullmatch(name) is not None and (not slash or is_subdomain(domain))


def key_fault(path: Path, key: object) -> Iterator[Fault]:
    """Yield a fault for an invalid label key."""
    if key is not None and not isinstance(key, str):
        yield Fault(path, wording.shown(key), f'a string: "{wording.shown(key)}"')
    elif key is None or not is_qualified(key):
        expected = "letters, digits, '-', '_' and '.', 63 characters at most, behind a domain and a slash or not"
        yield Fault(path, "nothing" if key is None else f'"{key}"', expected)


def value_fault(path: Path, value: object) -> Iterator[Fault]:
    """Yield a fault for an invalid label value; reading the object reports values of another type."""
    if isinstance(value, str) and value and not _QUALIFIED.fullmatch(value):
        shown = f'"{value}"' if len(value) <= 63 else f"{len(value)} characters"
        yield Fault(path, shown, "letters, digits, '-', '_' and '.', 63 characters at most")


def one_of(at: Path, fields: Mapping[str, Any], field: str, words: tuple[str, ...]) -> Iterator[Fault]:
    """Yield a fault for a field that is set to none of ``words``."""
    value = fields.get(field)
    if value is not None and value not in words:
        yield Fault((*at, field), shown(value), f"one of {', '.join(words)}")


def at_least(least: int, at: Path, fields: Mapping[str, Any], field: str) -> Iterator[Fault]:
    """Yield a fault for a number below ``least``; the check of types reports other values."""
    value = fields.get(field)
    if is_number(value) and value < least:
        yield Fault((*at, field), str(value), f"{least} or more")


def shown(value: object) -> str:
    """Return a value as it appears in a sentence."""
    if value is None or value == "":
        return "nothing"
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    return f'"{value}"' if isinstance(value, str) else wording.shown(value)


def items(fields: Mapping[str, Any], field: str, at: Path) -> list[Item]:
    """Return the objects of a list with their paths; values of another shape are ignored."""
    # Numbered before others are left out: paths must have the indexes of the file.
    found = enumerate(list_of(fields, field))
    return [((*at, field, index), each) for index, each in found if isinstance(each, Mapping)]


def repeated(found: Iterable[Item], field: str) -> Iterator[Fault]:
    """Yield a fault for a value of ``field`` that an earlier object has too."""
    seen: set[object] = set()
    for place, each in found:
        value = each.get(field)
        if isinstance(value, str) and value:
            if value in seen:
                yield Fault((*place, field), f'"{value}" twice', "another one")
            seen.add(value)
