"""Numbers and truth values: what is a number, and those in text, read as the peer's programs read them.

Python's ``int`` and ``float`` accept more than Go's ``strconv`` (blanks, digits of other scripts, ``1_0`` as an
integer) and less (hexadecimal floats). A reader with a different idea admits pods that the peer refuses.
"""

from __future__ import annotations

import re
from typing import Final, TypeGuard

_TRUTHS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_UNSIGNED: Final = re.compile(r"[0-9]+")
_SIGNED: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS: Final = "[0-9]+(?:_[0-9]+)*"
_HEX_DIGITS: Final = "[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
_DECIMAL: Final = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEXADECIMAL: Final = re.compile(
    rf"[+-]?0[xX]_?(?:{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}",
)
_NAMED: Final = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
# No number of 64 bits takes more; Python would work for seconds on the texts that are refused here.
_LONGEST: Final = 200


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number, which true and false are not here."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number, which true and false are not here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def truth(text: str) -> bool | None:
    """Return a truth value; None if the text is none.

    Source: Go's strconv.ParseBool.
    """
    return _TRUTHS.get(text)


def unsigned(text: str, *, bits: int = 64) -> int | None:
    """Return a natural number written in decimal digits alone; None if the text is none, or does not fit into `bits`.

    Source: Go's strconv.ParseUint with base 10.
    """
    if len(text) > _LONGEST or _UNSIGNED.fullmatch(text) is None:
        return None
    value = int(text)
    return value if value < 1 << bits else None


def signed(text: str) -> int | None:
    """Return an integer of 64 bits written in decimal digits with an optional sign; None if the text is none.

    Source: Go's strconv.ParseInt with base 10.
    """
    if len(text) > _LONGEST or _SIGNED.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 63 else None


def floating(text: str) -> float | None:
    """Return a float, NaN and infinities included; None if the text is none, or a finite number beyond all floats.

    Source: Go's strconv.ParseFloat with 64 bits.
    """
    if len(text) > _LONGEST:
        return None
    if _NAMED.fullmatch(text):
        return float(text)
    plain = text.replace("_", "")
    try:
        if _DECIMAL.fullmatch(text):
            value = float(plain)
        elif _HEXADECIMAL.fullmatch(text):
            value = float.fromhex(plain)
        else:
            return None
    except OverflowError:
        return None
    return None if value in {float("inf"), float("-inf")} else value
