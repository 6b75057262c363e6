"""What is done to valid samples: values of the wrong type, in the wrong place, too large, too deep, twice, not at all.

All that is drawn comes from one `random.Random`, so that a number says which object it was.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

NUMBERS: Final = (-1, 0, 1, 2, 7, 0.1, 0.5, 1.5, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 10**30, 1e308, -0.0)
NO_NUMBERS: Final = (float("nan"), float("inf"), float("-inf"))
"""Some JSON decoders take them."""
TEXTS: Final = (
    *(
        "",
        " ",
        "x",
        "true",
        "null",
        "NaN",
        "Infinity",
        "-1",
        "0",
        "1",
        "0.5",
        "1.5",
        "9" * 400,
        "9" * 5000,
        "1_0",
        "٣",
        "²",
        " 4 ",
    ),
    *(
        "1e9999999",
        "1e999999999",
        "1e-9999999",
        "1e400",
        "-5Gi",
        "500m",
        "1n",
        "9223372036854775807",
        "9223372036854775808",
        "1Ei",
    ),
    *("0x10", "1e3", "1k", "16E", "-0", "+1", ".5", "5.", "1h", "-1s", "1h30m", "9999999h", "1d", "0s", "*/5 * * * *"),
    *("a/b/c", "/", "..", "node0", "default", "\u00ff", "\x00", "\ud800", "\U0001f600", "\u202e", "a\nb", "a" * 300),
    *("{", "[]", "{}", '{"a":', "[[[", "a,b,,c", "a=b", "a in (b)", "!a", "<none>", "%s", "{0}", "nvidia.com/gpu"),
    *("2026-99-99T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00+14:00", "GPU-0"),
)
EXTREMES: Final = (
    *(
        "0",
        "-1",
        "1",
        "7Ei",
        "4Ei",
        "8Pi",
        "9223372036854775807",
        "9223372036854775806",
        "9223372036854775",
        "1n",
        "1m",
    ),
    *("9223372036854", "4611686018427387904", "2147483647", "2147483648", "65535", "65536", "1000000", "1023", "0.001"),
    *("0.999999999", "-9223372036854775808", "1e18", "1e15", "1e-9", "999999999999999999"),
)
"""What a number or a quantity may be and seldom is."""
SHAPES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    [],
    {},
    [None],
    {"": None},
    [[]],
    [{}],
    {"a": {"b": [1]}},
    [1, "a"],
)
_AMOUNT: Final = re.compile(r"-?[0-9.]+[A-Za-z]{0,2}")
_DEEPEST: Final = 60
_LONGEST: Final = 200


def mutated(draw: Random, sample: Any) -> Any:
    """Return a copy of a JSON value with one to four things about it changed."""
    holder = {"": copy.deepcopy(sample)}
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 4))):
        if not (found := places(holder)):
            break
        inner, key = draw.choice(found)
        draw.choice(_CHANGES)(draw, inner, key)
    return holder.get("")


def mutated_within(draw: Random, sample: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a copy of a sample with something changed beneath a key; what is a manifest there stays one."""
    inner = sample[key]
    if not isinstance(inner, list):
        return {**sample, key: mutated(draw, inner)}
    at = draw.randrange(len(inner)) if inner else 0
    changed = [mutated(draw, each) for each in inner[at : at + 1]]
    return {**sample, key: [*inner[:at], *(named(each, inner[at]) for each in changed), *inner[at + 1 :]]}


def named(value: Any, like: dict[str, Any]) -> dict[str, Any]:
    """Return a value as an API server would give it out: as an object, of the kind and the name of another."""
    known = value if isinstance(value, dict) else {}
    given = known.get("metadata")
    told = {key: like["metadata"][key] for key in ("name", "namespace", "uid") if key in like["metadata"]}
    head = {key: like[key] for key in ("apiVersion", "kind") if key in like}
    return {**known, **head, "metadata": {**(given if isinstance(given, dict) else {}), **told}}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place within a value, as what holds it and the key or the index in that."""
    found: list[tuple[Any, Any]] = []
    waiting = [value] if isinstance(value, dict | list) else []
    while waiting:
        each = waiting.pop()
        keys: Sequence[Any] = list(each) if isinstance(each, dict) else range(len(each))
        for key in keys:
            found.append((each, key))
            if isinstance(each[key], dict | list):
                waiting.append(each[key])
    return found


def _replaced(draw: Random, inner: Any, key: Any) -> None:
    pools = (NUMBERS, TEXTS, TEXTS, SHAPES, NO_NUMBERS)
    inner[key] = copy.deepcopy(draw.choice(draw.choice(pools)))


def _driven(draw: Random, inner: Any, key: Any) -> None:
    """Drive numbers and quantities that stand here or beneath to an extreme; most samples have several."""
    amounts = [place for place in ((inner, key), *places(inner[key])) if _AMOUNT.fullmatch(str(place[0][place[1]]))]
    for holder, name in draw.sample(amounts, min(len(amounts), draw.choice((1, 1, 2, 8)))):
        extreme = draw.choice(EXTREMES)
        is_number = isinstance(holder[name], int) and extreme.lstrip("-").isdecimal()
        holder[name] = int(extreme) if is_number else extreme


def _bent(draw: Random, inner: Any, key: Any) -> None:
    """Change a value to one that looks like it."""
    value = inner[key]
    if isinstance(value, str):
        at = draw.randrange(len(value) + 1)
        other = draw.choice((*TEXTS, *"-+.0129eEmKi/,:=_ \t*"))
        inner[key] = draw.choice((value[:at] + other + value[at:], value[:at], value[at:], value * 2, value.upper()))
    elif isinstance(value, bool) or value is None:
        inner[key] = draw.choice((str(value), 0, 1, not value))
    elif isinstance(value, int | float):
        inner[key] = draw.choice((-value, value + 1, value * 1000, value / 3, str(value), 10**18 + 1))
    else:
        inner[key] = draw.choice(([value], {"value": value}, len(value), list(value)))


def _dropped(_: Random, inner: Any, key: Any) -> None:
    if isinstance(inner, dict):
        del inner[key]
    else:
        inner.pop(key)


def _repeated(draw: Random, inner: Any, key: Any) -> None:
    """Say a thing again, once or many times: an element of a list, a key under another name."""
    times = draw.choice((1, 1, 2, _LONGEST))
    if isinstance(inner, list):
        inner[key:key] = [copy.deepcopy(inner[key]) for _ in range(times)]
    elif isinstance(inner[key], list) and inner[key]:
        inner[key] = [copy.deepcopy(each) for each in inner[key][:4] for _ in range(times + 1)]
    else:
        inner[f"{key}{draw.choice(TEXTS)}"] = copy.deepcopy(inner[key])


def _deepened(draw: Random, inner: Any, key: Any) -> None:
    value = inner[key]
    for _ in range(draw.choice((1, 3, _DEEPEST))):
        value = [value] if draw.random() < 0.5 else {str(key): value}
    inner[key] = value


def _swapped(draw: Random, inner: Any, key: Any) -> None:
    """Put what stands elsewhere in the same holder into this place."""
    others = list(inner) if isinstance(inner, dict) else range(len(inner))
    inner[key] = copy.deepcopy(inner[draw.choice(list(others))])


_CHANGES: Final[tuple[Callable[[Random, Any, Any], None], ...]] = (
    *(_replaced, _replaced, _replaced),
    *(_bent, _bent, _bent),
    *(_driven, _driven, _driven, _driven),
    *(_dropped, _repeated, _deepened, _swapped),
)


def mutated_bytes(draw: Random, sample: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return a sample with some of its bytes changed, cut, repeated, or joined with another's."""
    value = bytearray(sample)
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        at = draw.randrange(len(value) + 1)
        until = min(len(value), at + draw.choice((1, 1, 2, 8, 64)))
        match draw.randrange(8):
            case 7:
                value[:] = draw.choice(TEXTS).encode("utf-8", "surrogatepass")
            case 0:
                value[at:until] = b""
            case 1:
                value[at:at] = draw.choice(TEXTS).encode("utf-8", "surrogatepass")
            case 2:
                value[at:until] = draw.randbytes(until - at)
            case 3:
                value[at:at] = bytes(value[at:until]) * draw.choice((1, 2, 100))
            case 4:
                del value[at:]
            case 5 if others:
                other = draw.choice(others)
                value[at:] = other[draw.randrange(len(other) + 1) :]
            case _:
                value[at:until] = bytes(
                    draw.choice(b"-+.0129eEmKi/,:=_ \t*()[]{}|\"'\\\n\r#!?@$%&~^<>") for _ in range(until - at)
                )
    return bytes(value)
