"""A fault in one field of an object, rules that many fields share, and the rules for containers.

Scalar types are checked as an API server does, whether or not kai reads the field. An API server decodes into types: a
word where a number belongs is refused before any rule of the kind is applied. The value that YAML reads counts, so
``replicas: 5.0`` is five, and ``value: 5`` is not a string.

Shared rules are those of names, labels, sets of words and scalar types. Containers are validated as an API server does
it: names, images, ports, mounts, and resource amounts.

Source: the validation of Kubernetes; see ``kai.manifests.refused``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

import attrs

from kai.api import names, values
from kai.api.conventions.amounts import BILLION, exact
from kai.api.values import BadValue
from kai.basics import wording
from kai.basics.parsing import is_number, is_whole, list_of, mapping_of
from kai.manifests.findings import Path


@attrs.frozen
class Scalar:
    """A scalar type: a description of its values, and a test for them."""

    wanted: str
    takes: Callable[[object], bool]


def _is_whole(bits: int) -> Callable[[object], bool]:
    most = 1 << (bits - 1)

    def takes(value: object) -> bool:
        return is_number(value) and -most <= value < most and value == int(value)

    return takes


def _is_time(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        values.instant(value)
    except BadValue:
        return False
    return True


def _is_number_or_text(value: object) -> bool:
    return isinstance(value, str) or _is_whole(32)(value)


SCALARS: Final[Mapping[str, Scalar]] = {
    "int32": Scalar("a whole number", _is_whole(32)),
    "int64": Scalar("a whole number", _is_whole(64)),
    "bool": Scalar("true or false", lambda value: isinstance(value, bool)),
    "str": Scalar("a string", lambda value: isinstance(value, str)),
    "time": Scalar(values.WANTED_TIME, _is_time),
    "int|str": Scalar("a whole number or a string", _is_number_or_text),
}
"""All types by their names in ``core_fields.json``."""
_LARGEST: Final = {"int32": (1 << 31) - 1, "int64": (1 << 63) - 1}


def scalar_fault(value: object, name: str) -> BadValue | None:
    """Return the fault of a value of a type; None if it is valid, or null, which counts as absent."""
    scalar = SCALARS[name]
    if value is None or scalar.takes(value):
        return None
    # With bool, which is an int in Python: what YAML reads as true or false needs quotes, too.
    if name == "str" and isinstance(value, int | float):
        return BadValue(value, f"{scalar.wanted} (in YAML, put it in quotes)")
    is_large = name in _LARGEST and isinstance(value, int | float) and value > _LARGEST[name]
    return BadValue(value, f"{scalar.wanted}, at most {_LARGEST[name]}" if is_large else scalar.wanted)


def exact_amount(value: object) -> Fraction | None:
    """Return an amount exactly, to a billionth, or less finely where it is very large; None if it is invalid."""
    try:
        return Fraction(exact(str(value)).billionths, BILLION)
    except BadValue:
        return None


_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST: Final = 253

Item = tuple[Path, Mapping[str, Any]]


@attrs.frozen
class Fault:
    """A field that an API server refuses: its path, the value found, and the expected form."""

    path: Path
    found: str
    expected: str
    code: str = "J024"


def is_label(text: str) -> bool:
    """Return whether a text is a DNS label, as names of containers are."""
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Return whether a text is a DNS subdomain, labels with dots between them, as names of objects are."""
    return len(text) <= _LONGEST and all(
        re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in text.split(".")
    )


def is_qualified(text: str) -> bool:
    """Return whether a text is a valid label key: a name, or a domain, a slash and a name."""
    domain, slash, name = text.rpartition("/")
    return _QUALIFIED.fullmatch(name) is not None and (not slash or is_subdomain(domain))


def key_fault(path: Path, key: object) -> Iterator[Fault]:
    """Yield a fault for an invalid label key."""
    if key is not None and not isinstance(key, str):
        yield Fault(path, wording.shown(key), f'a string: "{wording.shown(key)}"')
    elif key is None or not is_qualified(key):
        expected = "letters, digits, '-', '_' and '.', 63 characters at most, behind a domain and a slash or not"
        yield Fault(path, "nothing" if key is None else f'"{key}"', expected)


def value_fault(path: Path, value: object) -> Iterator[Fault]:
    """Yield a fault for an invalid label value; reading the object reports values of another type."""
    if isinstance(value, str) and value and not _QUALIFIED.fullmatch(value):
        shown = f'"{value}"' if len(value) <= 63 else f"{len(value)} characters"
        yield Fault(path, shown, "letters, digits, '-', '_' and '.', 63 characters at most")


def one_of(at: Path, fields: Mapping[str, Any], field: str, words: tuple[str, ...]) -> Iterator[Fault]:
    """Yield a fault for a field that is set to none of ``words``."""
    value = fields.get(field)
    if value is not None and value not in words:
        yield Fault((*at, field), shown(value), f"one of {', '.join(words)}")


def at_least(least: int, at: Path, fields: Mapping[str, Any], field: str) -> Iterator[Fault]:
    """Yield a fault for a number below ``least``; the check of types reports other values."""
    value = fields.get(field)
    if is_number(value) and value < least:
        yield Fault((*at, field), str(value), f"{least} or more")


def shown(value: object) -> str:
    """Return a value as it appears in a sentence."""
    if value is None or value == "":
        return "nothing"
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    return f'"{value}"' if isinstance(value, str) else wording.shown(value)


def items(fields: Mapping[str, Any], field: str, at: Path) -> list[Item]:
    """Return the objects of a list with their paths; values of another shape are ignored."""
    # Numbered before others are left out: paths must have the indexes of the file.
    found = enumerate(list_of(fields, field))
    return [((*at, field, index), each) for index, each in found if isinstance(each, Mapping)]


def repeated(found: Iterable[Item], field: str) -> Iterator[Fault]:
    """Yield a fault for a value of ``field`` that an earlier object has too."""
    seen: set[object] = set()
    for place, each in found:
        value = each.get(field)
        if isinstance(value, str) and value:
            if value in seen:
                yield Fault((*place, field), f'"{value}" twice', "another one")
            seen.add(value)


_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})
_HUGE: Final = "hugepages-"
_LAST_PORT: Final = 65_535


def faults_of_containers(
    spec: Mapping[str, Any], at: Path, *, is_own: bool, added: Collection[str] | None = ()
) -> Iterator[Fault]:
    """Yield the faults; ``is_own`` for Kubernetes' own kinds, whose controllers fill in no missing fields.

    ``added`` are the names of volumes that the controller adds; None if they are not known.
    """
    first, main = items(spec, "initContainers", at), items(spec, "containers", at)
    if is_own and spec.get("containers") in (None, []):
        yield Fault((*at, "containers"), "none", "at least one container")
    volumes = [volume.get("name") for _, volume in items(spec, "volumes", at)]
    claims = [claim.get("name") for _, claim in items(spec, "resourceClaims", at)]
    for place, container in (*first, *main):
        yield from _of_name(place, container, is_own=is_own)
        yield from _of_ports(place, container, on_host=bool(spec.get("hostNetwork")))
        yield from _of_mounts(place, container, None if added is None else [*volumes, *added])
        yield from _of_variables(place, container)
        yield from _of_resources((*place, "resources"), mapping_of(container, "resources"), claims)
    # One set of names: an API server lets no init container have the name of a container.
    yield from repeated((*main, *first), "name")
    yield from _host_ports(main)


def _of_name(place: Path, container: Mapping[str, Any], *, is_own: bool) -> Iterator[Fault]:
    name, image = container.get("name"), container.get("image")
    if isinstance(name, str) and name and not is_label(name):
        yield Fault((*place, "name"), f'"{name}"', "lower case letters, digits and '-', 63 characters at most")
    elif is_own and not name:
        yield Fault((*place, "name"), "nothing", "the name of the container")
    if isinstance(image, str) and image != image.strip():
        yield Fault((*place, "image"), f'"{image}"', "no space around it")
    elif is_own and not image:
        yield Fault((*place, "image"), "nothing", "the image of the container")
    yield from one_of(place, container, "imagePullPolicy", ("Always", "IfNotPresent", "Never"))


def _of_ports(place: Path, container: Mapping[str, Any], *, on_host: bool) -> Iterator[Fault]:
    ports = items(container, "ports", place)
    for where, port in ports:
        for field in ("containerPort", "hostPort"):
            number = port.get(field)
            # hostPort 0 means none; containerPort has no such value.
            is_missing = field == "containerPort" and number is None
            least = 1 if field == "containerPort" else 0
            if is_missing or (is_whole(number) and not least <= number <= _LAST_PORT):
                yield Fault((*where, field), "nothing" if is_missing else str(number), f"1 to {_LAST_PORT}")
        yield from one_of(where, port, "protocol", ("TCP", "UDP", "SCTP"))
        if on_host and port.get("hostPort") not in (None, 0, port.get("containerPort")):
            yield Fault((*where, "hostPort"), str(port["hostPort"]), "containerPort, as the pod has the node's network")
    yield from repeated(ports, "name")


def _host_ports(containers: list[Item]) -> Iterator[Fault]:
    """Yield a fault for a host port that two containers want."""
    seen: set[tuple[str, str, str]] = set()
    for place, container in containers:
        for where, port in items(container, "ports", place):
            if port.get("hostPort"):
                key = (str(port.get("protocol") or "TCP"), str(port.get("hostIP") or ""), str(port["hostPort"]))
                if key in seen:
                    yield Fault((*where, "hostPort"), f"{port['hostPort']} twice", "another one")
                seen.add(key)


def _of_mounts(place: Path, container: Mapping[str, Any], volumes: Collection[object] | None) -> Iterator[Fault]:
    mounts = items(container, "volumeMounts", place)
    for where, mount in mounts:
        name = mount.get("name")
        if isinstance(name, str) and volumes is not None and name not in volumes:
            yield Fault((*where, "name"), f'"{name}"', "the name of a volume of the pod")
    yield from repeated(mounts, "mountPath")


def _of_variables(place: Path, container: Mapping[str, Any]) -> Iterator[Fault]:
    for where, variable in items(container, "env", place):
        if not variable.get("name"):
            yield Fault((*where, "name"), "nothing", "the name of a variable")


def _of_resources(at: Path, resources: Mapping[str, Any], claims: list[Any]) -> Iterator[Fault]:
    limits, requests = mapping_of(resources, "limits"), mapping_of(resources, "requests")
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            yield from _of_amount((*at, part, str(name)), str(name), value)
    for name, value in requests.items():
        asked, most = exact_amount(value), exact_amount(limits.get(name))
        is_extended = _is_extended(str(name))
        if name not in limits and (is_extended or str(name).startswith(_HUGE)):
            yield Fault((*at, "requests", str(name)), f"no limit of {name}", "the same amount in limits")
        if asked is None or most is None or _is_gpu(str(name)):
            continue  # GPUs are reported separately
        if asked > most or (asked != most and (is_extended or str(name).startswith(_HUGE))):
            expected = f"the limit, {limits[name]}" if is_extended else f"at most the limit, {limits[name]}"
            yield Fault((*at, "requests", str(name)), str(value), expected)
    huge = [name for name in (*limits, *requests) if str(name).startswith(_HUGE)]
    if huge and not {"cpu", "memory"} & {*limits, *requests}:
        yield Fault(at, f"{huge[0]} alone", "cpu or memory beside it")
    for where, claim in items(resources, "claims", at):
        if claim.get("name") not in claims:
            yield Fault((*where, "name"), f'"{claim.get("name")}"', "the name of a claim in spec.resourceClaims")


def _of_amount(place: Path, name: str, value: object) -> Iterator[Fault]:
    number = exact_amount(value)
    known = name in _STANDARD or name.startswith(_HUGE)
    if not known and not ("/" in name and is_qualified(name) and not name.startswith("requests.")):
        yield Fault(
            place, f'"{name}"', "cpu, memory, ephemeral-storage, hugepages-SIZE, or a name as example.com/thing"
        )
    if number is None or _is_gpu(name):
        return  # the check of amounts reports invalid values
    if number < 0:
        yield Fault(place, str(value), "0 or more")
    elif _is_extended(name) and number.denominator != 1:
        yield Fault(place, str(value), "a whole number")
    page = exact_amount(name.removeprefix(_HUGE)) if name.startswith(_HUGE) else None
    if page and (number == 0 or (number / page).denominator != 1):
        yield Fault(place, str(value), f"a multiple of {name.removeprefix(_HUGE)}")


def _is_extended(name: str) -> bool:
    # Source: IsExtendedResourceName of Kubernetes, whose quotas put `requests.` in front of such names.
    domain, slash, _ = name.rpartition("/")
    return bool(slash) and not (domain.startswith("requests.") or "kubernetes.io" in domain)


def _is_gpu(name: str) -> bool:
    return name in names.GPU_RESOURCES or name.startswith(names.MIG_PREFIX)
