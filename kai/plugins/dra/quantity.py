"""Quantities and semantic versions, as far as expressions about devices use them."""

import re
from fractions import Fraction

_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u)?)")
_LONGEST = 80
_MOST_DIGITS = 200
"""Ten to more is no amount; working it out for nine characters of a claim that any user wrote would take all memory."""
_FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_NUMBERS = 3
"""So many has a version before its pre-release."""

Version = tuple[int, int, int, tuple[tuple[int, int, str], ...]]
"""Major, minor, patch, and what orders pre-releases; tuples compare as versions do."""

_RELEASE: tuple[tuple[int, int, str], ...] = ((2, 0, ""),)


def base_units(text: str) -> int:
    """Return a quantity in base units, a part of one rounded up, as device capacities are in a snapshot.

    Raises: ValueError for a text that is no quantity.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"found {text[:_LONGEST]!r}, expected a quantity such as 40Gi")
    sign, digits, exponent, suffix = match.groups()
    power = int(exponent[1:] if exponent else 0)
    if power > _MOST_DIGITS:
        raise ValueError(f"found {text!r}, expected a quantity that fits into 64 bits")
    value = Fraction(digits) * Fraction(10) ** max(power, -_MOST_DIGITS) * _FACTORS.get(suffix, Fraction(1))
    return -int(value // 1) if sign == "-" else -int(-value // 1)


def is_quantity(text: str) -> bool:
    """Say whether ``text`` is a quantity."""
    return len(text) <= _LONGEST and _QUANTITY.fullmatch(text) is not None


def version(text: str) -> Version:
    """Return what orders semantic versions; build metadata does not count.

    Raises: ValueError for a text that is no semantic version.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"found {text!r}, expected a semantic version such as 1.2.3")
    major, minor, patch, pre = match.groups()
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre.split(".")) if pre else _RELEASE
    return int(major), int(minor), int(patch), parts


def normalized(text: str) -> str:
    """Return a semantic version for a text that is nearly one: with a ``v``, zeros in front, less than three numbers.

    Raises: ValueError for a text that does not become one.
    Source: the Kubernetes CEL library for versions, since Kubernetes 1.33.
    """
    parts = text.removeprefix("v").split(".", 2)
    if len(parts) < _NUMBERS and re.search("[+-]", parts[-1]):
        raise ValueError(f"found {text!r}, expected three numbers in a version with a pre-release or build")
    parts = [_without_zeros(part) for part in parts] + ["0"] * (_NUMBERS - len(parts))
    found = ".".join(parts)
    version(found)
    return found


def is_nearly_version(text: str) -> bool:
    """Return whether a text is a semantic version once it is normalized."""
    try:
        normalized(text)
    except ValueError:
        return False
    return True


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    bare = part.lstrip("0")
    return bare if "0" <= bare[:1] <= "9" else f"0{bare}"


def is_version(text: str) -> bool:
    """Say whether ``text`` is a semantic version."""
    return _VERSION.fullmatch(text) is not None
