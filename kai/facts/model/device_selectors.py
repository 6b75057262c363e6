"""Which devices an expression selects: compiled once, evaluated once per device, memoized while devices stay.

Expressions see one variable, ``device``, with ``driver``, ``attributes`` and ``capacity`` by domain, and
``allowMultipleAllocations``. The functions that they may call are in `kai.facts.model.device_functions`.

Source: resource.k8s.io/v1, CELDeviceSelector.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs
from cel_expr_python import cel

from kai.facts.model.claim import CAPACITY_PARTS, Device, qualified
from kai.facts.model.device_functions import LACKING, environment

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
