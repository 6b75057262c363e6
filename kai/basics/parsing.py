"""Parsers of text and JSON: numbers, quantities, durations, and parts of JSON that may be missing.

Parts of JSON and YAML written by users: a part that is missing or has another shape than expected counts as absent.

Numbers and booleans in text are read as the peer's programs read them. Python's ``int`` and ``float`` accept more than
Go's ``strconv`` (blanks, digits of other scripts, ``1_0`` as an integer) and less (hexadecimal floats). A reader that
differs would admit pods that the peer refuses.

Kubernetes quantities are converted exactly to and from integers in a declared unit. A quantity is a decimal number with
an SI suffix (``500m``, ``2Gi``), an exponent (``1e3``) or nothing. Callers choose the unit: `parts` is 1000 for
millicores, 1 for bytes. No float is involved. Manifests and plugins share this code; ``kai.api.values`` adds the
messages about manifests.

Durations are written as Go and the peer write them: ``90s``, ``1h30m``, ``2d``. Manifests and configuration files share
this code.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal, TypeGuard
from urllib.parse import parse_qsl, urlsplit

from kai.basics.wording import shown

_HUGE: Final = 1e300
USUAL_TIMES: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Names of usual times, as the five fields of cron."""


def part_of(value: object, *path: str) -> Any:  # noqa: ANN401 - JSON from outside
    """Return the part of ``value`` at a path of keys; None if the path does not exist."""
    for key in path:
        # The class first: nearly all mappings are dicts, and asking an abstract class takes ten times as long.
        value = value.get(key) if type(value) is dict or isinstance(value, Mapping) else None
    return value


def mapping_of(value: object, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path; an empty one if there is none."""
    found = part_of(value, *path)
    return found if type(found) is dict or isinstance(found, Mapping) else {}


def list_of(value: object, *path: str) -> Sequence[Any]:
    """Return the list at a path; an empty one if there is none."""
    found = part_of(value, *path)
    return found if isinstance(found, list | tuple) else ()


def mappings_of(value: object, *path: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at a path."""
    return [each for each in list_of(value, *path) if isinstance(each, Mapping)]


def text_of(value: object, *path: str) -> str:
    """Return the text at a path; an empty one if there is none."""
    found = part_of(value, *path)
    return found if isinstance(found, str) else ""


def has_condition(manifest: object, *types: str) -> bool:
    """Return whether the status of an object has a true condition of one of these types."""
    conditions = mappings_of(manifest, "status", "conditions")
    return any(each.get("type") in types and each.get("status") == "True" for each in conditions)


def place_of(manifest: Mapping[str, Any], namespace: str = "default") -> tuple[str, str]:
    """Return namespace and name of a manifest; ``namespace`` is the one of objects that name none."""
    metadata = mapping_of(manifest, "metadata")
    return str(metadata.get("namespace") or namespace), str(metadata.get("name"))


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
# No 64-bit number is longer; Python would take seconds to convert the texts that are refused here.
_LONGEST_NUMBER: Final = 200


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer; booleans are not."""
    # To Python, true is the integer 1.
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_or(value: object, otherwise: float) -> float:
    """Return a number of a manifest that may be invalid; ``otherwise`` for what is none, or beyond all amounts."""
    # Integers of Python are unbounded, and converting a huge one to a float raises.
    return float(value) if is_number(value) and abs(value) < _HUGE else otherwise


def truth(text: str) -> bool | None:
    """Return a truth value; None if the text is none.

    Source: Go's strconv.ParseBool.
    """
    return _TRUTHS.get(text)


def unsigned(text: str, *, bits: int = 64) -> int | None:
    """Return a natural number written in decimal digits alone; None if the text is none, or does not fit into `bits`.

    Source: Go's strconv.ParseUint with base 10.
    """
    if len(text) > _LONGEST_NUMBER or _UNSIGNED.fullmatch(text) is None:
        return None
    value = int(text)
    return value if value < 1 << bits else None


def signed(text: str) -> int | None:
    """Return an integer of 64 bits written in decimal digits with an optional sign; None if the text is none.

    Source: Go's strconv.ParseInt with base 10.
    """
    if len(text) > _LONGEST_NUMBER or _SIGNED.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 63 else None


def floating(text: str) -> float | None:
    """Return a float, NaN and infinities included; None if the text is none, or a finite number beyond all floats.

    Source: Go's strconv.ParseFloat with 64 bits.
    """
    if len(text) > _LONGEST_NUMBER:
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
    # fromhex raises where float() returns infinity; Go reports a range error for both.
    except OverflowError:
        return None
    return None if value in {float("inf"), float("-inf")} else value


WANTED: Final = 'a quantity such as "1", "500m" or "2Gi"'
WANTED_SMALLER: Final = "a quantity that fits into 64 bits"

GPU_HOUR: Final = 3_600_000_000
"""GPU-microseconds in a GPU-hour, core-microseconds in a core-hour."""
_LARGEST: Final = 2**63 - 1
_TEXT: Final = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_LONGEST: Final = 80
_DECIMAL_AMOUNT: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_KIBI: Final = 1024
_KILO: Final = 1000
# Ten to a power beyond this is no 64-bit amount in any unit, whatever digits precede it.
_MOST_DIGITS: Final = 200

Style = Literal["decimal", "binary"]


class QuantityError(ValueError):
    """A text is no quantity, or the quantity is too large."""

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
        power += _DECIMAL_AMOUNT[suffix]
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
    # A smaller power would round up to the same 1.
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


DURATION_WANTED: Final = 'a duration such as "90s", "1h30m" or "2d"'
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
_LONGEST_DURATION: Final = 2**63 - 1
LONGEST: Final = _LONGEST_DURATION / SECOND
"""In seconds."""


class DurationError(ValueError):
    """A text is no duration, or the duration is too long."""

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
    # Go needs no unit for 0 alone.
    if unsigned == "0":
        return 0
    total = 0
    place = 0
    for match in _PART.finditer(unsigned) if len(text) <= _LONGEST_TEXT else ():
        whole, fraction, unit, bare_fraction, bare_unit = match.groups()
        scale = _NANOSECONDS.get(unit or bare_unit)
        # finditer skips what does not match, and a duration has no gaps.
        if match.start() != place or scale is None:
            break
        digits = fraction or bare_fraction or ""
        total += int((whole or "") + digits or "0") * scale // int(10 ** len(digits))
        place = match.end()
    if place == 0 or place != len(unsigned):
        raise DurationError(text, DURATION_WANTED)
    if total > _LONGEST_DURATION:
        raise DurationError(text, WANTED_SHORTER)
    return -total if text.startswith("-") else total


def seconds(text: str) -> float:
    """Return a duration in seconds.

    Raises: DurationError if the text is no duration.
    """
    return nanoseconds(text) / SECOND


def seconds_or(value: object, otherwise: float) -> float:
    """Return a duration of a manifest that may be invalid, in seconds; ``otherwise`` for what is none."""
    try:
        return seconds(value) if isinstance(value, str) else otherwise
    except DurationError:
        return otherwise


def text(duration: float) -> str:
    """Return a duration in seconds as Go prints it: ``1h30m0s``, ``1.5s``, ``250ms``.

    Raises: DurationError if it does not fit into 64 bits of nanoseconds.
    """
    if not abs(duration) * SECOND <= _LONGEST_DURATION:  # also refuses NaN
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


# ------------------------------------------------------------------------------------------------------- past usage

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
RECORDED_USAGE: Final = (SQLITE, POSTGRESQL)
"""The sources of past usage that kai writes itself, and that budgets need: clientType in usageDBConfig."""


# ---------------------------------------------------------------------------------------------- addresses of PostgreSQL

_POSTGRESQL: Final = ("postgresql://", "postgres://")
POSTGRESQL_SCHEMA: Final = "kai"
"""The schema of an address that names none."""
POSTGRESQL_WANTED: Final = "postgresql://USER@HOST:PORT/DATABASE?schema=NAME"
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def is_postgresql(place: str) -> bool:
    """Return whether a place is the address of a PostgreSQL server, not a file."""
    return place.startswith(_POSTGRESQL)


def postgresql_problem(place: str) -> str:
    """Return what is wrong with the address of a server; "" if it can be used. Nothing of the address is in it."""
    try:
        at = urlsplit(place)
        _ = at.port
        said = dict(parse_qsl(at.query, keep_blank_values=True, strict_parsing=bool(at.query)))
    except ValueError:
        return "an address that cannot be read"
    if not is_postgresql(place):
        return "another scheme"
    if not (at.hostname or said.get("host")):
        return "no host"
    if not at.path.strip("/"):
        return "no database"
    if not _SCHEMA_NAME.fullmatch(said.get("schema", POSTGRESQL_SCHEMA)):
        return "a schema with other signs than small letters, digits and _"
    return 'a "#"' if at.fragment else ""


def has_password(place: str) -> bool:
    """Return whether the address of a server holds a password."""
    at = urlsplit(place)
    return at.password is not None or "password" in dict(parse_qsl(at.query, keep_blank_values=True))


def place_text(place: str) -> str:
    """Return a place as messages name it: a file, or host, database and schema without user, password and options."""
    if not is_postgresql(place):
        return place
    if postgresql_problem(place):
        return "postgresql://"
    at = urlsplit(place)
    said = dict(parse_qsl(at.query))
    host = at.hostname or said.get("host", "")
    host = f"[{host}]" if ":" in host else host
    port = f":{at.port}" if at.port else ""
    return f"postgresql://{host}{port}{at.path}?schema={said.get('schema', POSTGRESQL_SCHEMA)}"


def with_schema(place: str, shard: str) -> str:
    """Return the address of a server with the schema of a shard, if it names none; other places as they are.

    Two shards in one schema would end each other's terms, so each has its own unless the address says otherwise.
    """
    if not is_postgresql(place) or not shard or postgresql_problem(place):
        return place
    at = urlsplit(place)
    if "schema" in dict(parse_qsl(at.query, keep_blank_values=True)):
        return place
    name = f"{POSTGRESQL_SCHEMA}_{re.sub('[^a-z0-9_]', '_', shard.lower())}"[:63]
    return at._replace(query="&".join(each for each in (at.query, f"schema={name}") if each)).geturl()
