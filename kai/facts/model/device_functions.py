"""The functions that expressions about devices may call beyond CEL's own, and semantic versions for them.

Quantities are integers in base units here. Versions, IP addresses and CIDRs are texts, addresses in the canonical form,
so that equal ones are equal. Not offered: ``find`` and ``findAll``, which need RE2, because Python's regular
expressions can take forever; sums of durations, URLs, formats, ``sortBy`` and macros with two variables.

Source: the CEL environment that Kubernetes gives to DRA: its libraries for quantities, versions, lists, IP addresses
and CIDRs, and those of CEL for strings, sets, lists, bindings and optional values.
"""

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from itertools import pairwise
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from kai.basics.parsing import amount

_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_NUMBERS = 3
"""The number of numbers in a version before its pre-release."""

Version = tuple[int, int, int, tuple[tuple[int, int, str], ...]]
"""Major, minor, patch, and the sort key of pre-releases; tuples compare as versions do."""

_RELEASE: tuple[tuple[int, int, str], ...] = ((2, 0, ""),)


def version(text: str) -> Version:
    """Return the sort key of a semantic version; build metadata does not count.

    Raises: ValueError for a text that is no semantic version.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"found {text!r}, expected a semantic version such as 1.2.3")
    major, minor, patch, pre = match.groups()
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre.split(".")) if pre else _RELEASE
    return int(major), int(minor), int(patch), parts


def normalized(text: str) -> str:
    """Return a semantic version for a similar text: with a ``v``, leading zeros, or less than three numbers.

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


LACKING: Final = frozenset(
    {
        *("find", "findAll", "url", "isURL", "format", "sortBy", "authorizer"),
        *("transformList", "transformMap", "transformMapEntry"),
    }
)
"""Functions that Kubernetes offers beyond these; the error of an expression that calls one says so."""

Row = tuple[Any, list[Any], Callable[..., Any]]
"""Result type, parameter types, and the implementation."""

_NUMBER, _TEXT, _TRUTH, _ANY = cel.Type.INT, cel.Type.STRING, cel.Type.BOOL, cel.Type.DYN
_LIST: Final = cel.Type.List(_ANY)
_BITS: Final = re.compile(r"0|[1-9]\d{0,2}", re.ASCII)


def environment() -> Any:  # noqa: ANN401 - the library ships stubs without a typing marker
    """Return the environment in which expressions about devices are compiled."""
    own = cel.CelExtension("kubernetes", [*_QUANTITIES, *_COMPARISONS, *_VERSIONS, *_SETS, *_LISTS, *_ADDRESSES])
    extensions = [ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings(), own]
    return cel.NewEnv(variables={"device": _ANY}, extensions=extensions)


def _function(name: str, *rows: Row, of: tuple[Row, ...] = ()) -> Any:  # noqa: ANN401 - as above
    """Return a function with its overloads; those ``of`` a value are called on their first parameter."""
    return cel.FunctionDecl(
        name,
        [
            cel.Overload(f"kubernetes_{name}_{at}", result, parameters, at >= len(rows), call)
            for at, (result, parameters, call) in enumerate((*rows, *of))
        ],
    )


def _of(name: str, *rows: Row) -> Any:  # noqa: ANN401 - as above
    return _function(name, of=rows)


def _takes(parse: Callable[..., Any]) -> Callable[..., bool]:
    """Return a predicate: whether the parser accepts a text."""

    def takes(*arguments: Any) -> bool:  # noqa: ANN401 - as the parser takes them
        try:
            parse(*arguments)
        except ValueError:
            return False
        return True

    return takes


def _compared(left: Any, right: Any) -> int:  # noqa: ANN401 - integers or versions, whatever the overload says
    return int(left > right) - int(left < right)


def _checked_version(text: str, normalize: bool = False) -> str:  # noqa: FBT001, FBT002 - as expressions call it
    if normalize:
        return normalized(text)
    version(text)
    return text


# --- Sets and lists --------------------------------------------------------------------------------------------------


def _key(value: Any) -> Any:  # noqa: ANN401 - any value of CEL
    """Return a hashable key that is equal for equal values; in Python True == 1, in CEL it is not."""
    return tuple(map(_key, value)) if isinstance(value, list) else (isinstance(value, bool), value)


def _set(values: list[Any]) -> frozenset[Any]:
    return frozenset(map(_key, values))


def _index(values: list[Any], value: Any) -> int:  # noqa: ANN401 - as above
    keys = [*map(_key, values), _key(value)]
    found = keys.index(keys[-1])
    return found if found < len(values) else -1


def _last_index(values: list[Any], value: Any) -> int:  # noqa: ANN401 - as above
    found = _index(values[::-1], value)
    return len(values) - 1 - found if found >= 0 else -1


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(values):
        raise ValueError(f"slice: found {start} to {end}, expected a part of {len(values)} values")
    return values[start:end]


# --- IP addresses and CIDRs ------------------------------------------------------------------------------------------


def _address(text: str) -> IPv4Address | IPv6Address:
    found = ip_address(text)
    if isinstance(found, IPv6Address) and (found.scope_id or found.ipv4_mapped):
        raise ValueError(f"found {text!r}, expected an IP address without a zone, and not IPv4 in IPv6")
    return found


def _cidr(text: str) -> IPv4Interface | IPv6Interface:
    base, _, bits = text.partition("/")
    if not _BITS.fullmatch(bits):
        raise ValueError(f"found {text!r}, expected a CIDR such as 10.0.0.0/8")
    return ip_interface((str(_address(base)), int(bits)))


def _contains_cidr(outer: str, inner: str) -> bool:
    left, right = _cidr(outer).network, _cidr(inner).network
    return right.network_address in left and left.prefixlen <= right.prefixlen


def _is_link_local_multicast(text: str) -> bool:
    found = _address(text)
    if found.version == 4:
        return found.packed[:3] == b"\xe0\x00\x00"
    return found.packed[0] == 0xFF and found.packed[1] & 0xF == 2


def _is_global_unicast(text: str) -> bool:
    found = _address(text)
    is_special = found.is_unspecified or found.is_loopback or found.is_multicast or found.is_link_local
    return not is_special and found.packed != b"\xff\xff\xff\xff"


# --- What is offered -------------------------------------------------------------------------------------------------

_QUANTITIES: Final = (
    _function("quantity", (_NUMBER, [_TEXT], amount)),
    _function("isQuantity", (_TRUTH, [_TEXT], _takes(amount))),
    _of("asInteger", (_NUMBER, [_NUMBER], int)),
    _of("isInteger", (_TRUTH, [_NUMBER], lambda _: True)),
    _of("asApproximateFloat", (cel.Type.DOUBLE, [_NUMBER], float)),
    _of("sign", (_NUMBER, [_NUMBER], lambda value: _compared(value, 0))),
    _of("add", (_NUMBER, [_NUMBER, _NUMBER], lambda left, right: left + right)),
    _of("sub", (_NUMBER, [_NUMBER, _NUMBER], lambda left, right: left - right)),
)
_COMPARISONS: Final = tuple(
    _of(
        name,
        (result, [_NUMBER, _NUMBER], compare),
        (result, [_TEXT, _TEXT], lambda left, right, compare=compare: compare(version(left), version(right))),
    )
    for name, result, compare in (
        ("compareTo", _NUMBER, _compared),
        ("isGreaterThan", _TRUTH, lambda left, right: left > right),
        ("isLessThan", _TRUTH, lambda left, right: left < right),
    )
)
_VERSIONS: Final = (
    _function("semver", (_TEXT, [_TEXT], _checked_version), (_TEXT, [_TEXT, _TRUTH], _checked_version)),
    _function(
        "isSemver", (_TRUTH, [_TEXT], _takes(_checked_version)), (_TRUTH, [_TEXT, _TRUTH], _takes(_checked_version))
    ),
    _of("major", (_NUMBER, [_TEXT], lambda text: version(text)[0])),
    _of("minor", (_NUMBER, [_TEXT], lambda text: version(text)[1])),
    _of("patch", (_NUMBER, [_TEXT], lambda text: version(text)[2])),
)
_SETS: Final = (
    _function("sets.contains", (_TRUTH, [_LIST, _LIST], lambda left, right: _set(right) <= _set(left))),
    _function("sets.equivalent", (_TRUTH, [_LIST, _LIST], lambda left, right: _set(left) == _set(right))),
    _function("sets.intersects", (_TRUTH, [_LIST, _LIST], lambda left, right: not _set(left).isdisjoint(_set(right)))),
)
_LISTS: Final = (
    _of("isSorted", (_TRUTH, [_LIST], lambda values: all(a <= b for a, b in pairwise(values)))),
    _of("sum", (_ANY, [_LIST], sum)),
    _of("min", (_ANY, [_LIST], min)),
    _of("max", (_ANY, [_LIST], max)),
    _of("indexOf", (_NUMBER, [_LIST, _ANY], _index)),
    _of("lastIndexOf", (_NUMBER, [_LIST, _ANY], _last_index)),
    _of("slice", (_LIST, [_LIST, _NUMBER, _NUMBER], _slice)),
    _of("sort", (_LIST, [_LIST], sorted)),
    _of("reverse", (_LIST, [_LIST], lambda values: values[::-1])),
    _of("distinct", (_LIST, [_LIST], lambda values: list({_key(each): each for each in values[::-1]}.values())[::-1])),
)
_ADDRESSES: Final = (
    _function(
        "ip",
        (_TEXT, [_TEXT], lambda text: str(_address(text))),
        of=((_TEXT, [_TEXT], lambda text: str(_cidr(text).ip)),),
    ),
    _function("isIP", (_TRUTH, [_TEXT], _takes(_address))),
    _function("ip.isCanonical", (_TRUTH, [_TEXT], lambda text: str(_address(text)) == text)),
    _of("family", (_NUMBER, [_TEXT], lambda text: _address(text).version)),
    _of("isUnspecified", (_TRUTH, [_TEXT], lambda text: _address(text).is_unspecified)),
    _of("isLoopback", (_TRUTH, [_TEXT], lambda text: _address(text).is_loopback)),
    _of("isLinkLocalUnicast", (_TRUTH, [_TEXT], lambda text: _address(text).is_link_local)),
    _of("isLinkLocalMulticast", (_TRUTH, [_TEXT], _is_link_local_multicast)),
    _of("isGlobalUnicast", (_TRUTH, [_TEXT], _is_global_unicast)),
    _function("cidr", (_TEXT, [_TEXT], lambda text: str(_cidr(text)))),
    _function("isCIDR", (_TRUTH, [_TEXT], _takes(_cidr))),
    _of("containsIP", (_TRUTH, [_TEXT, _TEXT], lambda outer, text: _address(text) in _cidr(outer).network)),
    _of("containsCIDR", (_TRUTH, [_TEXT, _TEXT], _contains_cidr)),
    _of("masked", (_TEXT, [_TEXT], lambda text: str(_cidr(text).network))),
    _of("prefixLength", (_NUMBER, [_TEXT], lambda text: _cidr(text).network.prefixlen)),
)
