"""Which devices an expression selects: compiled once, evaluated once per device, memoized while devices stay.

Expressions see one variable, ``device``, with ``driver``, ``attributes`` and ``capacity`` by domain, and
``allowMultipleAllocations``. They may call functions beyond CEL's own, which `environment` adds.

Quantities are integers in base units in these functions. Versions, IP addresses and CIDRs are texts, addresses in the
canonical form, so that equal ones are equal. Not offered: ``find`` and ``findAll``, which need RE2, because Python's
regular expressions can take forever; sums of durations, URLs, formats, ``sortBy`` and macros with two variables.

Source: resource.k8s.io/v1, CELDeviceSelector, and the CEL environment that Kubernetes gives to DRA: its libraries for
quantities, versions, lists, IP addresses and CIDRs, and those of CEL for strings, sets, lists, bindings and optional
values.
"""

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from itertools import pairwise
from typing import Any, Final

import attrs
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from kai.basics.parsing import amount
from kai.facts.model.claim import CAPACITY_PARTS, Device, qualified

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


_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_DOMAIN_TEST = re.compile(r"\bin(\s+)device\.(attributes|capacity)\b(?!\s*[.\[])")
_UNKNOWN = re.compile(r"undeclared reference to '(\w+)'")
_PLACE = re.compile(r"^(?:ERROR: <input>:-?\d+:-?\d+: )?")
_CODE = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$| \(in container ''\)")
_SHOWN = 100
"""The number of characters of an expression that error messages show."""
_MANY = 1 << 18
_MOST_COMPILED = 1 << 12


@attrs.frozen
class Fault:
    """An expression that does not compile or fails on a device; nothing may be allocated by it."""

    text: str


@attrs.frozen
class _Compiled:
    program: Any
    domains: tuple[str, ...]
    """Texts in the expression. A look-up of one as a missing domain yields an empty map, no error."""


def rewritten(expression: str) -> str:
    """Return ``expression`` with tests for a domain (``"x" in device.attributes``) redirected to the real domains.

    A look-up of a missing domain yields no attributes rather than an error, so look-ups use a map with added empty
    domains; a test for a domain must not see those.
    """
    parts: list[str] = []
    at = 0
    for literal in _LITERAL.finditer(expression):
        parts += [_DOMAIN_TEST.sub(r"in\1device.\2Domains", expression[at : literal.start()]), literal[0]]
        at = literal.end()
    return "".join(parts) + _DOMAIN_TEST.sub(r"in\1device.\2Domains", expression[at:])


def _by_domain(values: Mapping[str, str | int | bool] | Mapping[str, int]) -> dict[str, dict[str, str | int | bool]]:
    out: dict[str, dict[str, str | int | bool]] = {}
    for whole, value in values.items():
        domain, _, name = whole.rpartition("/")
        # The library takes plain texts only, and functions on versions take texts.
        out.setdefault(domain, {})[name] = str(value) if isinstance(value, str) else value
    return out


def variable(driver: str, device: Device, domains: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the variable ``device`` of an expression; missing ``domains`` are added as empty maps."""
    attributes = _by_domain(device.attributes)
    amounts = {qualified(name, driver): -(-amount // CAPACITY_PARTS) for name, amount in device.capacity.items()}
    capacity = _by_domain(amounts)
    empty: dict[str, dict[str, str | int | bool]] = {domain: {} for domain in domains}
    return {
        "driver": driver,
        "attributes": empty | attributes,
        "attributesDomains": sorted(attributes),
        "capacity": empty | capacity,
        "capacityDomains": sorted(capacity),
        "allowMultipleAllocations": device.multiple_allocations,
    }


class Selectors:
    """Compiled expressions with memoized results per device. Results depend on the arguments only."""

    def __init__(self) -> None:
        """Begin with an empty cache; the environment is made for the first expression."""
        self._environment: Any = None
        self._compiled: dict[str, _Compiled | Fault] = {}
        self._known: dict[str, dict[int, tuple[Device, bool | Fault]]] = {}
        self._count = 0

    def selects(self, expression: str, driver: str, device: Device) -> bool | Fault:
        """Return whether ``expression`` holds for ``device``; a fault if it yields anything but true or false."""
        known = self._known.setdefault(expression, {})
        found = known.get(id(device))
        if found is None:
            if self._count >= _MANY:
                self._known, self._count = {}, 0
                known = self._known.setdefault(expression, {})
            # The cache keeps the device alive, so that its id is not reused.
            found = known[id(device)] = (device, self._ask(expression, driver, device))
            self._count += 1
        return found[1]

    def _ask(self, expression: str, driver: str, device: Device) -> bool | Fault:
        compiled = self._compile(expression)
        if isinstance(compiled, Fault):
            return compiled
        try:
            value = compiled.program.eval(data={"device": variable(driver, device, compiled.domains)})
        except RuntimeError as error:  # it goes through too many values: the API server lets more pass than the library
            return _fault(expression, str(error), device.name)
        if value.type() == cel.Type.BOOL:
            return bool(value.value())
        return _fault(expression, str(_shown(value)), device.name)

    def _compile(self, expression: str) -> _Compiled | Fault:
        found = self._compiled.get(expression)
        if found is None:
            if len(self._compiled) >= _MOST_COMPILED:  # bound the cache: users write the expressions
                self._compiled = {}
            found = self._compiled[expression] = self._compile_anew(expression)
        return found

    def _compile_anew(self, expression: str) -> _Compiled | Fault:
        if self._environment is None:
            self._environment = environment()
        try:
            program = self._environment.compile(rewritten(expression))
        except RuntimeError as error:
            return _fault(expression, str(error))
        return _Compiled(program, tuple(sorted({literal[1:-1] for literal in _LITERAL.findall(expression)})))


def _fault(expression: str, error: str, device: str = "") -> Fault:
    """Return a fault in one line: the first message of the library, and the functions that kai lacks."""
    lacking = sorted(LACKING.intersection(_UNKNOWN.findall(error)))
    said = f"{lacking[0]} is not offered by kai" if lacking else _PLACE.sub("", _CODE.sub("", error)).partition("\n")[0]
    short = expression if len(expression) <= _SHOWN else f"{expression[:_SHOWN]}..."
    return Fault(f"selector {' '.join(short.split())!r}{f' on device {device}' if device else ''}: {said}")


def _shown(value: Any) -> object:  # noqa: ANN401 - of a library without types
    """Return a printable form of an expression's result, in words if Python has no such value."""
    try:
        found: object = value.value()
    except TypeError:  # an optional value, for one
        return "found a value of another type, expected true or false"
    return found
