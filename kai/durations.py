"""Durations as Go and the peer write them: ``90s``, ``1h30m``, ``2d``. Manifests and configuration files share them."""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from typing import Final

from kai.notation import shown

WANTED: Final = 'a duration such as "90s", "1h30m" or "2d"'
WANTED_SHORTER: Final = "a duration of at most 292 years"
SECOND: Final = 10**9
"""In nanoseconds."""

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek mu
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86_400 * SECOND,
    "w": 7 * 86_400 * SECOND,
}
_PART: Final = re.compile(r"([0-9]+)(?:\.([0-9]*))?([a-zµμ]+)|\.([0-9]+)([a-zµμ]+)")
_LONGEST_TEXT: Final = 80
_LONGEST: Final = 2**63 - 1
LONGEST: Final = _LONGEST / SECOND
"""In seconds."""


class DurationError(ValueError):
    """A text is no duration, or one that is too long."""

    def __init__(self, found: object, wanted: str) -> None:
        super().__init__(f"found {shown(found)}, expected {wanted}")
        self.wanted = wanted


@functools.lru_cache(maxsize=1 << 12)
def nanoseconds(text: str) -> int:
    """Return a duration, which may also use days and weeks, in nanoseconds, cut off towards zero.

    Raises: DurationError if the text is no duration or the result does not fit into 64 bits.
    Source: Go's time.ParseDuration; the peer's plugin arguments add ``d`` and ``w``.
    """
    unsigned = text[1:] if text[:1] in {"-", "+"} else text
    if unsigned == "0":
        return 0
    total = 0
    place = 0
    for match in _PART.finditer(unsigned) if len(text) <= _LONGEST_TEXT else ():
        whole, fraction, unit, bare_fraction, bare_unit = match.groups()
        scale = _NANOSECONDS.get(unit or bare_unit)
        if match.start() != place or scale is None:
            break
        digits = fraction or bare_fraction or ""
        total += int((whole or "") + digits or "0") * scale // int(10 ** len(digits))
        place = match.end()
    if place == 0 or place != len(unsigned):
        raise DurationError(text, WANTED)
    if total > _LONGEST:
        raise DurationError(text, WANTED_SHORTER)
    return -total if text.startswith("-") else total


def seconds(text: str) -> float:
    """Return a duration in seconds.

    Raises: DurationError if the text is no duration.
    """
    return nanoseconds(text) / SECOND


def text(duration: float) -> str:
    """Return a duration in seconds as Go prints it: ``1h30m0s``, ``1.5s``, ``250ms``.

    Raises: DurationError if it does not fit into 64 bits of nanoseconds.
    """
    if not abs(duration) * SECOND <= _LONGEST:  # also refuses NaN
        raise DurationError(duration, WANTED_SHORTER)
    total = round(Fraction(duration) * SECOND)  # a float has not as many digits as nanoseconds have
    sign = "-" if total < 0 else ""
    total = abs(total)
    if total == 0:
        return "0s"
    if total < SECOND:
        unit = "ns" if total < 1000 else "µs" if total < 10**6 else "ms"
        return f"{sign}{_decimal(total, _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(total, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    lead = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{lead}{_decimal(rest, SECOND)}s"


def _decimal(value: int, scale: int) -> str:
    whole, rest = divmod(value, scale)
    if not rest:
        return str(whole)
    return f"{whole}.{str(scale + rest)[1:].rstrip('0')}"
