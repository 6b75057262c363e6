"""Semantic versions, as expressions about devices use them."""

import re

_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_NUMBERS = 3
"""So many has a version before its pre-release."""

Version = tuple[int, int, int, tuple[tuple[int, int, str], ...]]
"""Major, minor, patch, and what orders pre-releases; tuples compare as versions do."""

_RELEASE: tuple[tuple[int, int, str], ...] = ((2, 0, ""),)


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


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    bare = part.lstrip("0")
    return bare if "0" <= bare[:1] <= "9" else f"0{bare}"
