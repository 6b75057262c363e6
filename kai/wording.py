"""Numbers with their nouns, lists that are cut short, and what a file turned out to be, as every message says them."""

import errno
from collections.abc import Sequence
from typing import Final

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
"""What was found, of the errors whose own text is a sentence: "found Is a directory" would be read twice."""


def number_text(number: float, digits: int = 6) -> str:
    """Return a number with so many significant digits, and in any case all before the point: without an exponent."""
    text = f"{number:.{digits}g}"
    if "e" not in text or abs(number) >= _HUGE:
        return text
    return f"{number:.0f}" if abs(number) >= 1 else f"{number:.{digits}f}".rstrip("0").rstrip(".")


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 pod``, ``2.5 GPUs``, ``7,250 jobs``."""
    shown = f"{int(number):,}" if number == int(number) else number_text(number)
    return f"{shown} {noun}" if number == 1 else f"{shown} {plural or noun + 's'}"


def first_of(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """Return the first ``most`` of some names, and how many more there are."""
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


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
    """Return what a system call found in place of what was wanted: ``a folder``, ``Permission denied``."""
    return _NOT_WANTED.get(error.errno or 0) or error.strerror or str(error)


__all__ = ["counted", "first_of", "found_by", "span_text"]
