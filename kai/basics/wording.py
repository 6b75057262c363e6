"""The form of messages: how they quote values, count things with their nouns, and truncate lists.

A value is quoted in the notation of the file that the user wrote.
"""

import errno
import json
import re
import reprlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import islice
from math import isfinite
from typing import Final

_LONGEST: Final = 240
_LONGEST_TEXT: Final = 80
_MOST_ITEMS: Final = 6
_DEEPEST: Final = 4
_PLAIN: Final = re.compile(r"(?!(?:true|false|yes|no|on|off|y|n|null)$)[a-z_][a-z0-9_./-]*", re.ASCII | re.IGNORECASE)
_SHORTENER: Final = reprlib.Repr()
_SHORTENER.maxother = _SHORTENER.maxlong = _LONGEST_TEXT


def shown(found: object) -> str:
    """Return ``found`` on one line of bounded length, whatever it is, and ``nothing`` for an absent value.

    It is written in YAML flow style, because users write YAML or JSON. A value that these cannot express, such as an
    object of a plugin, is written as in Python. A key without a value is read as None, like an absent key, so None is
    called nothing; only inside a list or a mapping it is ``null``.
    """
    text = "nothing" if found is None else _written(found, _DEEPEST)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def as_text(found: object) -> str:
    """Return the text that a user meant by a value that YAML does not read as text, such as the label ``true``.

    A key without a value has the empty text, as in Kubernetes.
    """
    if isinstance(found, bool) or found is None:
        return "" if found is None else _scalar(found)
    return str(found)


def _written(found: object, depth: int) -> str:
    if not isinstance(found, Mapping | list | tuple):
        return _scalar(found)
    if isinstance(found, Mapping):
        pairs = islice(found.items(), _MOST_ITEMS if depth else 0)
        items = [f"{_key(key, depth - 1)}: {_written(value, depth - 1)}" for key, value in pairs]
        return f"{{{_listed(items, len(found))}}}"
    items = [_written(each, depth - 1) for each in found[: _MOST_ITEMS if depth else 0]]
    return f"[{_listed(items, len(found))}]"


def _scalar(found: object) -> str:
    match found:
        case None:
            return "null"
        case bool():
            return "true" if found else "false"
        case str():
            return _quoted(found)
        case bytes():
            return f"!!binary {_quoted(b64encode(found[:_LONGEST]).decode())}"
        case date():
            return found.isoformat()  # which YAML reads where a text looks like one
        case float() if not isfinite(found):
            return f"{found:g}".replace("inf", ".inf").replace("nan", ".nan")
        case _:
            return _in_python(found)


def _key(key: object, depth: int) -> str:
    """Return a key, without quotes where YAML reads it as a text without them."""
    return key if isinstance(key, str) and _PLAIN.fullmatch(key) and len(key) <= _LONGEST_TEXT else _written(key, depth)


def _in_python(found: object) -> str:
    try:
        return _SHORTENER.repr(found)
    except ValueError:  # Python refuses to write out an integer of thousands of digits
        return f"a value of type {type(found).__name__} too large to show"


def _listed(items: list[str], there_are: int) -> str:
    return ", ".join(items if there_are <= len(items) else [*items, "..."])


def _quoted(text: str) -> str:
    """Return a text between quotes; of one that is long, how it begins and how it ends."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[: _LONGEST_TEXT // 2]}...{text[-_LONGEST_TEXT // 2 + 3 :]}"
    if text.isprintable() and "'" not in text:
        return f"'{text}'"  # between these YAML knows no escapes
    escaped = json.dumps(str(text), ensure_ascii=False)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in escaped)


_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_HUGE: Final = 1e15
_NOT_WANTED: Final = {
    errno.ENOENT: "no such file or folder",
    errno.EISDIR: "a folder",
    errno.ENOTDIR: "a file where a folder belongs",
    errno.EEXIST: "a file of that name",
}
"""What was found, for errors whose own text is a sentence: "found Is a directory" would be no English."""


def number_text(number: float, digits: int = 6) -> str:
    """Return a number with ``digits`` significant digits, at least all before the point; without an exponent."""
    text = f"{number:.{digits}g}"
    if "e" not in text or abs(number) >= _HUGE:
        return text
    return f"{number:.0f}" if abs(number) >= 1 else f"{number:.{digits}f}".rstrip("0").rstrip(".")


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 pod``, ``2.5 GPUs``, ``7,250 jobs``."""
    shown = f"{int(number):,}" if number == int(number) else number_text(number)
    return f"{shown} {noun}" if number == 1 else f"{shown} {plural or noun + 's'}"


def first_of(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """Return the first ``most`` of ``names``, and how many more there are."""
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def cut(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def span_text(seconds: float) -> str:
    """Return a duration in its two largest units: ``30s``, ``38m``, ``4h10m``, ``2d3h``."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m" + (f"{whole % _MINUTE}s" if whole < 10 * _MINUTE and whole % _MINUTE else "")
    large, small, names = (_HOUR, _MINUTE, "hm") if whole < _DAY else (_DAY, _HOUR, "dh")
    rest = whole % large // small
    return f"{whole // large}{names[0]}" + (f"{rest}{names[1]}" if rest else "")


def found_by(error: OSError) -> str:
    """Return what a system call found instead of what it needed: ``a folder``, ``Permission denied``."""
    return _NOT_WANTED.get(error.errno or 0) or error.strerror or str(error)
