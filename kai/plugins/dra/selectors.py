"""Which devices an expression selects: compiled once, asked once for each device, remembered while devices stay.

Expressions see one variable, ``device``, with ``driver``, ``attributes`` and ``capacity`` by domain, and
``allowMultipleAllocations``. Quantities are integers in base units, semantic versions are texts.

Source: resource.k8s.io/v1, CELDeviceSelector; functions of the Kubernetes CEL libraries for quantities and versions.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from kai.framework.claims import Device
from kai.plugins.dra.quantity import base_units, is_nearly_version, is_quantity, is_version, normalized, version

Row = tuple[Any, list[Any], bool, Callable[..., Any]]
"""Result type, parameter types, whether it is called on its first parameter, and what computes it."""

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_DOMAIN_TEST = re.compile(r"\bin(\s+)device\.(attributes|capacity)\b(?!\s*[.\[])")
_MANY = 1 << 18
_MOST_COMPILED = 1 << 12


@attrs.frozen
class Fault:
    """An expression that does not compile, or that fails on a device: then nothing may be allocated by it."""

    text: str


def _compared(left: Any, right: Any) -> int:  # noqa: ANN401 - integers or versions, whatever the overload says
    return int(left > right) - int(left < right)


def _checked_version(text: str, normalize: bool = False) -> str:  # noqa: FBT001, FBT002 - as expressions call it
    if normalize:
        return normalized(text)
    version(text)
    return text


def _is_version(text: str, normalize: bool) -> bool:  # noqa: FBT001 - as expressions call it
    return is_nearly_version(text) if normalize else is_version(text)


def _overloads(name: str, *rows: Row) -> Any:  # noqa: ANN401 - the library ships stubs without a typing marker
    return cel.FunctionDecl(
        name,
        [
            cel.Overload(f"{name}_{at}", result, parameters, member, call)
            for at, (result, parameters, member, call) in enumerate(rows)
        ],
    )


def _environment() -> Any:  # noqa: ANN401 - as above
    kind = cel.Type
    number, text, truth = kind.INT, kind.STRING, kind.BOOL
    return cel.NewEnv(
        variables={"device": kind.DYN},
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()],
        functions=[
            _overloads("quantity", (number, [text], False, base_units)),
            _overloads("isQuantity", (truth, [text], False, is_quantity)),
            _overloads("asInteger", (number, [number], True, int)),
            _overloads("isInteger", (truth, [number], True, lambda _: True)),
            _overloads("asApproximateFloat", (kind.DOUBLE, [number], True, float)),
            _overloads("sign", (number, [number], True, lambda value: _compared(value, 0))),
            _overloads("add", (number, [number, number], True, lambda left, right: left + right)),
            _overloads("sub", (number, [number, number], True, lambda left, right: left - right)),
            _overloads(
                "semver",
                (text, [text], False, _checked_version),
                (text, [text, truth], False, _checked_version),
            ),
            _overloads(
                "isSemver",
                (truth, [text], False, is_version),
                (truth, [text, truth], False, _is_version),
            ),
            _overloads("major", (number, [text], True, lambda value: version(value)[0])),
            _overloads("minor", (number, [text], True, lambda value: version(value)[1])),
            _overloads("patch", (number, [text], True, lambda value: version(value)[2])),
            _overloads(
                "compareTo",
                (number, [number, number], True, _compared),
                (number, [text, text], True, lambda left, right: _compared(version(left), version(right))),
            ),
            _overloads(
                "isGreaterThan",
                (truth, [number, number], True, lambda left, right: left > right),
                (truth, [text, text], True, lambda left, right: version(left) > version(right)),
            ),
            _overloads(
                "isLessThan",
                (truth, [number, number], True, lambda left, right: left < right),
                (truth, [text, text], True, lambda left, right: version(left) < version(right)),
            ),
        ],
    )


@attrs.frozen
class _Compiled:
    program: Any
    domains: tuple[str, ...]
    """Texts in the expression: a domain among them that a device does not have is an empty one, not an error."""


def rewritten(expression: str) -> str:
    """Return ``expression`` with tests for a domain (``"x" in device.attributes``) made against the domains there are.

    A lookup of a domain that a device lacks yields no attributes rather than an error, so lookups get a map with empty
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
    for qualified, value in values.items():
        domain, _, name = qualified.rpartition("/")
        out.setdefault(domain, {})[name] = value
    return out


def variable(driver: str, device: Device, domains: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what an expression sees of ``device``; ``domains`` that it does not have are empty."""
    attributes, capacity = _by_domain(device.attributes), _by_domain(device.capacity)
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
    """Compiled expressions and what they said about devices. Answers depend on the arguments only."""

    def __init__(self) -> None:
        """Know nothing yet; the environment is made for the first expression."""
        self._environment: Any = None
        self._compiled: dict[str, _Compiled | Fault] = {}
        self._known: dict[str, dict[int, tuple[Device, bool | Fault]]] = {}
        self._count = 0

    def selects(self, expression: str, driver: str, device: Device) -> bool | Fault:
        """Say whether ``expression`` holds for ``device``; a fault if it yields anything but true or false."""
        known = self._known.setdefault(expression, {})
        found = known.get(id(device))
        if found is None:
            if self._count >= _MANY:
                self._known, self._count = {}, 0
                known = self._known.setdefault(expression, {})
            # The device is kept beside its answer, so that its identity stays its own.
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
            return Fault(f"selector {expression!r} on device {device.name!r}: {error}")
        if value.type() == cel.Type.BOOL:
            return bool(value.value())
        return Fault(f"selector {expression!r} on device {device.name!r}: {_shown(value)}")

    def _compile(self, expression: str) -> _Compiled | Fault:
        found = self._compiled.get(expression)
        if found is None:
            if len(self._compiled) >= _MOST_COMPILED:  # users write expressions, and a claim may be gone by now
                self._compiled = {}
            found = self._compiled[expression] = self._compile_anew(expression)
        return found

    def _compile_anew(self, expression: str) -> _Compiled | Fault:
        if self._environment is None:
            self._environment = _environment()
        try:
            program = self._environment.compile(rewritten(expression))
        except RuntimeError as error:
            return Fault(f"selector {expression!r}: {error}")
        return _Compiled(program, tuple(sorted({literal[1:-1] for literal in _LITERAL.findall(expression)})))


def _shown(value: Any) -> object:  # noqa: ANN401 - of a library without types
    """Return what an expression yielded, in words where Python has no such value."""
    try:
        found: object = value.value()
    except TypeError:  # an optional value, for one
        return "found a value of another type, expected true or false"
    return found
