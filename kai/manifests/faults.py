"""What is wrong with one field of an object, and the rules that many fields share: names, labels, sets of words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from kai import notation
from kai.lenient import list_of
from kai.manifests.positions import Path
from kai.numerals import is_number

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
        yield Fault(path, notation.shown(key), f'a string: "{notation.shown(key)}"')
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
    return f'"{value}"' if isinstance(value, str) else notation.shown(value)


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
