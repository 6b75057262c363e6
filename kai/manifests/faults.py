"""What is wrong with one field of an object, and the rules that many fields share: names, labels, sets of words.

Values of the types of Kubernetes that have no fields: what an API server takes, whether kai reads the field or not.

An API server decodes into types: a word where a number belongs is refused before any rule of the kind is looked at.
What YAML makes of a value counts, so ``replicas: 5.0`` is five, and ``value: 5`` is no string.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

import attrs

from kai.api import values
from kai.api.values import BadValue
from kai.basics import wording
from kai.basics.parsing import is_number, list_of
from kai.manifests.positions import Path


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
        return Fraction(values.amount(str(value), 10**9), 10**9)
    except BadValue:
        return None


_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST: Final = 253

Item = tuple[Path, Mapping[str, Any]]


@attrs.frozen
class Fault:
    """A field that an API server refuses: where it is, what stands there, what could."""

    path: Path
    found: str
    expected: str
    code: str = "J024"


def is_label(text: str) -> bool:
    """Return whether a text is a label of DNS, as names of containers are."""
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Return whether a text is labels of DNS with dots between them, as names of objects are."""
    return len(text) <= _LONGEST and all(
        re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in text.split(".")
    )


def is_qualified(text: str) -> bool:
    """Return whether a text may be the key of a label: a name, or a name behind a domain and a slash."""
    domain, slash, name = text.rpartition("/")
    return _QUALIFIED.fullmatch(name) is not None and (not slash or is_subdomain(domain))


def key_fault(path: Path, key: object) -> Iterator[Fault]:
    """Yield a key of labels that can be none."""
    if key is not None and not isinstance(key, str):
        yield Fault(path, wording.shown(key), f'a string: "{wording.shown(key)}"')
    elif key is None or not is_qualified(key):
        expected = "letters, digits, '-', '_' and '.', 63 characters at most, behind a domain and a slash or not"
        yield Fault(path, "nothing" if key is None else f'"{key}"', expected)


def value_fault(path: Path, value: object) -> Iterator[Fault]:
    """Yield a value of a label that can be none; another type is said where objects are read."""
    if isinstance(value, str) and value and not _QUALIFIED.fullmatch(value):
        shown = f'"{value}"' if len(value) <= 63 else f"{len(value)} characters"
        yield Fault(path, shown, "letters, digits, '-', '_' and '.', 63 characters at most")


def one_of(at: Path, fields: Mapping[str, Any], field: str, words: tuple[str, ...]) -> Iterator[Fault]:
    """Yield a field that is given and is none of some words."""
    value = fields.get(field)
    if value is not None and value not in words:
        yield Fault((*at, field), shown(value), f"one of {', '.join(words)}")


def at_least(least: int, at: Path, fields: Mapping[str, Any], field: str) -> Iterator[Fault]:
    """Yield a number that is too small; what is no number is said where types are."""
    value = fields.get(field)
    if is_number(value) and value < least:
        yield Fault((*at, field), str(value), f"{least} or more")


def shown(value: object) -> str:
    """Return a value as a sentence has it."""
    if value is None or value == "":
        return "nothing"
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    return f'"{value}"' if isinstance(value, str) else wording.shown(value)


def items(fields: Mapping[str, Any], field: str, at: Path) -> list[Item]:
    """Return the objects of a list with their places; what has another shape is passed over."""
    found = enumerate(list_of(fields, field))
    return [((*at, field, index), each) for index, each in found if isinstance(each, Mapping)]


def repeated(found: Iterable[Item], field: str) -> Iterator[Fault]:
    """Yield a value of a field that an object before has too."""
    seen: set[object] = set()
    for place, each in found:
        value = each.get(field)
        if isinstance(value, str) and value:
            if value in seen:
                yield Fault((*place, field), f'"{value}" twice', "another one")
            seen.add(value)
