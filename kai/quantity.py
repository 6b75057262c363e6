"""Kubernetes quantity text to and from integers in a declared unit, exactly.

A quantity is a decimal number with an SI suffix (``500m``, ``2Gi``), an exponent (``1e3``) or nothing. Readers say how
many parts of one unit they count in: `parts` is 1000 for millicores, 1 for bytes. No float is involved anywhere.
Manifests and plugins share it; ``kai.api.values.quantity`` says of a manifest's value what was found.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal

from kai.notation import shown

WANTED: Final = 'a quantity such as "1", "500m" or "2Gi"'
WANTED_SMALLER: Final = "a quantity that fits into 64 bits"

_LARGEST: Final = 2**63 - 1
_TEXT: Final = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_LONGEST: Final = 80
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_KIBI: Final = 1024
_KILO: Final = 1000
# Ten to any power beyond this is no 64-bit amount in any unit, whatever digits are in front of it.
_MOST_DIGITS: Final = 200

Style = Literal["decimal", "binary"]


class QuantityError(ValueError):
    """A text is no quantity, or one that is too large."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"found {shown(found[:_LONGEST])}, expected {wanted}")
        self.wanted = wanted


@functools.lru_cache(maxsize=1 << 16)
def amount(text: str, parts: int = 1) -> int:
    """Return a quantity as a number of parts of a unit, rounded away from zero.

    Units: `parts` parts make one unit of the quantity; 1000 gives milli-units.
    Raises: QuantityError if the text is not a quantity or the result does not fit into 64 bits.
    Source: Kubernetes resource.Quantity, whose Value and MilliValue round the same way. It caps what does not fit into
    64 bits; a wrong amount that looks right is worse than an error, so we refuse.
    """
    match = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(text, WANTED)
    sign, number, exponent, suffix = match.groups()
    whole, _, fraction = number.partition(".")
    digits = int(whole + fraction)
    power = -len(fraction)
    if exponent:
        power += int(exponent[1:])
    elif suffix in _BINARY:
        digits *= int(_KIBI ** _BINARY[suffix])
    elif suffix:
        power += _DECIMAL[suffix]
    result = _scaled(digits * parts, power)
    if result is None or result > _LARGEST:
        raise QuantityError(text, WANTED_SMALLER)
    return -result if sign == "-" else result


def _scaled(digits: int, power: int) -> int | None:
    """Return digits times ten to the power, rounded up; None if that is absurdly large."""
    if digits == 0:
        return 0
    if power >= 0:
        return digits * int(10**power) if power <= _MOST_DIGITS else None
    return -(-digits // int(10 ** min(-power, _MOST_DIGITS)))


def canonical(value: int, parts: int = 1, *, style: Style = "decimal") -> str:
    """Return the quantity text of an amount: no fraction, and the largest suffix that divides it.

    Units: `value` counts parts; `parts` must be a power of 1000 up to 10^9.
    Holds: ``amount(canonical(value, parts), parts) == value``.
    Source: the canonical form of Kubernetes resource.Quantity.
    """
    if value == 0:
        return "0"
    if style == "binary" and value % parts == 0 and abs(value // parts) >= _KIBI:
        return _largest_suffix(value // parts, _KIBI, ("", *_BINARY))
    suffixes = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
    first = {1: 3, 1000: 2, 10**6: 1, 10**9: 0}[parts]
    return _largest_suffix(value, _KILO, suffixes[first:])


def _largest_suffix(value: int, step: int, suffixes: tuple[str, ...]) -> str:
    place = 0
    while value % step == 0 and place < len(suffixes) - 1:
        value //= step
        place += 1
    return f"{value}{suffixes[place]}"
