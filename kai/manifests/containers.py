"""An API server's validation of the containers of a pod: names, images, ports, mounts, and resource amounts.

Source: the validation of Kubernetes; see ``kai.manifests.refused``.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kai.api import names
from kai.basics.parsing import is_whole, mapping_of
from kai.manifests.faults import Fault, Item, exact_amount, is_label, is_qualified, items, one_of, repeated
from kai.manifests.positions import Path

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
