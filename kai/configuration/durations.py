"""Durations as the peer writes them in its configuration: ``90s``, ``1h30m``, ``2d``.

The core may not see ``kai.api``, which reads the same notation in manifests; what configuration needs of it is these
few lines.
"""

import re
from fractions import Fraction

_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w)")
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 604_800 * 10**9,
}
_SECOND = 10**9
_LONGEST = 2**63
WANTED = 'a duration such as "90s", "1h30m" or "2d"'


def seconds(text: str) -> float:
    """Return a duration in seconds.

    Raises: ValueError for text that is none, or that is longer than 292 years.
    Source: Go's time.ParseDuration; the peer's plugin arguments add days and weeks.
    """
    sign = -1 if text.startswith("-") else 1
    unsigned = text[1:] if text[:1] in {"-", "+"} else text
    if unsigned == "0":
        return 0.0
    total, end = Fraction(0), 0
    for part in _PART.finditer(unsigned):
        if part.start() != end:
            break
        total += Fraction(part[1]) * _NANOSECONDS[part[2]]
        end = part.end()
    if end == 0 or end != len(unsigned) or total >= _LONGEST:
        raise ValueError(f"found {text!r}, expected {WANTED}")
    return sign * int(total) / _SECOND


def text(duration: float) -> str:
    """Return a duration in seconds as the peer prints it in messages: ``1h30m0s``, ``1.5s``, ``250ms``."""
    total = round(abs(duration) * _SECOND)
    sign = "-" if duration < 0 and total else ""
    if total == 0:
        return "0s"
    if total < _SECOND:
        unit = "ns" if total < 1_000 else "µs" if total < 10**6 else "ms"
        return f"{sign}{_decimal(total, _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(total, _NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    lead = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{lead}{_decimal(rest, _SECOND)}s"


def _decimal(value: int, scale: int) -> str:
    whole, rest = divmod(value, scale)
    return str(whole) if not rest else f"{whole}.{str(scale + rest)[1:].rstrip('0')}"
