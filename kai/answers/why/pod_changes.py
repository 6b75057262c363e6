"""Changes of what waiting pods require of nodes and of nearby pods, and of what they claim.

They claim volumes with ReadWriteOncePod, places for volumes on nodes, and devices.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import attrs

from kai.answers.why.changes import Change, Site, capped, with_pods, with_spec
from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.api.kubernetes.dra import (
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from kai.api.kubernetes.node import Affinity, Taint, Toleration, TopologySpreadConstraint
from kai.api.kubernetes.pod import Container, ContainerPort, Pod, PodSpec
from kai.api.kubernetes.storage import CsiNode, CsiNodeDriver, PersistentVolumeClaim
from kai.basics.wording import counted
from kai.deciding.explain.phrases import listed

ATTACH_LIMIT = "allocatable of CSINode"
DEVICE_CLASS = "deviceClassName"
"""The field of that change. It reveals node hardware, which not every reader may see."""
_ONE_POD = "ReadWriteOncePod"
_MANY = "ReadWriteMany"
_ALL: Final = "All"
_EXACT: Final = "ExactCount"
_Asked = TypeVar("_Asked", ExactDeviceRequest, DeviceSubRequest)


# -------------------------------------------------------------------------------------------------------------- volumes


def shared_claims(site: Site) -> Change:
    """Let several pods use the claims that are ReadWriteOncePod.

    The new mode is ReadWriteMany: with ReadWriteOnce, pods on other nodes would still wait.
    """
    mine = {id(each): each.metadata.name for each in claims_for_one_pod(site)}

    def shared(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        modes = tuple(_MANY if mode == _ONE_POD else mode for mode in claim.spec.access_modes)
        return attrs.evolve(claim, spec=attrs.evolve(claim.spec, access_modes=modes))

    claims = site.objects.persistent_volume_claims
    return Change(
        field="accessModes",
        old=_ONE_POD,
        new=_MANY,
        text=f"claim {listed(sorted(mine.values()))} {_MANY}, not {_ONE_POD}",
        objects=attrs.evolve(
            site.objects,
            persistent_volume_claims=tuple(shared(each) if id(each) in mine else each for each in claims),
        ),
    )


def claims_for_one_pod(site: Site) -> list[PersistentVolumeClaim]:
    """Return the ReadWriteOncePod claims of the waiting pods."""
    named = {
        (pod.metadata.namespace, volume.persistent_volume_claim.claim_name)
        for pod in site.waiting
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    }
    return [
        each
        for each in site.objects.persistent_volume_claims
        if _ONE_POD in each.spec.access_modes and key_of(each) in named
    ]


def attach_limit(site: Site, driver: str, more: int) -> Change:
    """Raise the attach limit for a driver by ``more`` on each node that has one."""
    limits = attach_limits(site, driver)
    old, new = _range(limits), _range([each + more for each in limits])

    def raised(each: CsiNodeDriver) -> CsiNodeDriver:
        if each.name != driver or each.allocatable is None or each.allocatable.count is None:
            return each
        return attrs.evolve(each, allocatable=attrs.evolve(each.allocatable, count=each.allocatable.count + more))

    def node(each: CsiNode) -> CsiNode:
        drivers = tuple(map(raised, each.spec.drivers))
        return (
            each if drivers == each.spec.drivers else attrs.evolve(each, spec=attrs.evolve(each.spec, drivers=drivers))
        )

    return Change(
        field=ATTACH_LIMIT,
        old=old,
        new=new,
        text=f"attach limit of driver {driver} {old} -> {new}",
        objects=attrs.evolve(site.objects, csi_nodes=tuple(map(node, site.objects.csi_nodes))),
    )


def attach_limits(site: Site, driver: str) -> list[int]:
    """Return the attach limits of nodes for a driver, where they have one."""
    return [
        each.allocatable.count
        for node in site.objects.csi_nodes
        for each in node.spec.drivers
        if each.name == driver and each.allocatable is not None and each.allocatable.count is not None
    ]


def _range(limits: list[int]) -> str:
    least, most = min(limits), max(limits)
    return str(least) if least == most else f"{least} to {most}"


# -------------------------------------------------------------------------------------------------------------- devices


def fewer_devices(site: Site, device_class: str, most: int) -> Change:
    """Lower all requests for devices of a class to at most ``most``."""
    old = str(asked_devices(site)[device_class] or "all")

    def smaller(asked: _Asked) -> _Asked:
        is_all = asked.allocation_mode == _ALL
        if asked.device_class_name != device_class or not (is_all or asked.count > most):
            return asked
        return attrs.evolve(asked, count=most, allocation_mode=_EXACT if is_all else asked.allocation_mode)

    return Change(
        field=f"count of {device_class}",
        old=old,
        new=str(most),
        text=f"{counted(most, 'device')} of class {device_class}, not {old}",
        objects=_with_requests(site, smaller, smaller),
    )


def of_class(site: Site, old: str, new: str) -> Change:
    """Request devices of another class."""

    def other(asked: _Asked) -> _Asked:
        return attrs.evolve(asked, device_class_name=new) if asked.device_class_name == old else asked

    return Change(
        field=DEVICE_CLASS,
        old=old,
        new=new,
        text=f"device class {old} -> {new}",
        objects=_with_requests(site, other, other),
    )


def of_any_kind(site: Site) -> Change:
    """Drop the selectors of requests, so that any device of the class fits."""

    def unselective(asked: _Asked) -> _Asked:
        return attrs.evolve(asked, selectors=()) if asked.selectors else asked

    claims = sorted(each.metadata.name for each in device_claims(site) if selects(each))
    return Change(
        field="selectors",
        old="",
        new="",
        text=f"no selectors in claim {listed(claims)}",
        objects=_with_requests(site, unselective, unselective),
    )


def fewer_of(site: Site, resource: str, old: int, most: int) -> Change:
    """Lower the request of each container for a resource to at most ``most``."""
    return Change(
        field=f"{resource} of each pod",
        old=str(old),
        new=str(most),
        text=f"{most} {resource} a pod, not {old}",
        objects=with_pods(site, lambda pod: capped(pod, resource, str(most))),
    )


def device_claims(site: Site) -> list[ResourceClaim]:
    """Return the resource claims of the waiting pods that are not allocated."""
    named = {(pod.metadata.namespace, name) for pod in site.waiting for name in _claim_names(pod)}
    return [each for each in site.objects.resource_claims if each.status.allocation is None and key_of(each) in named]


def _claim_names(pod: Pod) -> set[str]:
    found = {each.resource_claim_name for each in pod.spec.resource_claims}
    found |= {each.resource_claim_name for each in pod.status.resource_claim_statuses}
    return {name for name in found if name}


def asked_devices(site: Site) -> dict[str, int]:
    """Return the greatest device count of a request, by class; 0: all devices."""
    found: dict[str, int] = {}
    for claim in device_claims(site):
        for asked in _requests(claim):
            count = 0 if asked.allocation_mode == _ALL else max(asked.count, 1)
            known = found.get(asked.device_class_name, 1)
            found[asked.device_class_name] = 0 if not (count and known) else max(count, known)
    return found


def selects(claim: ResourceClaim) -> bool:
    """Return whether a request of a claim selects among the devices of its class."""
    return any(asked.selectors for asked in _requests(claim))


def _requests(claim: ResourceClaim) -> list[ExactDeviceRequest | DeviceSubRequest]:
    out: list[ExactDeviceRequest | DeviceSubRequest] = []
    for request in claim.spec.devices.requests:
        out += [request.exactly] if request.exactly is not None else []
        out += request.first_available
    return out


def _with_requests(
    site: Site,
    exactly: Callable[[ExactDeviceRequest], ExactDeviceRequest],
    sub: Callable[[DeviceSubRequest], DeviceSubRequest],
) -> ClusterObjects:
    """Return the cluster with changed requests in the claims and in the claim templates."""

    def request(each: DeviceRequest) -> DeviceRequest:
        changed = None if each.exactly is None else exactly(each.exactly)
        return attrs.evolve(each, exactly=changed, first_available=tuple(map(sub, each.first_available)))

    def devices(each: DeviceClaim) -> DeviceClaim:
        return attrs.evolve(each, requests=tuple(map(request, each.requests)))

    def claim(each: ResourceClaim) -> ResourceClaim:
        return attrs.evolve(each, spec=attrs.evolve(each.spec, devices=devices(each.spec.devices)))

    def template(each: ResourceClaimTemplate) -> ResourceClaimTemplate:
        spec = attrs.evolve(each.spec.spec, devices=devices(each.spec.spec.devices))
        return attrs.evolve(each, spec=attrs.evolve(each.spec, spec=spec))

    mine = {id(each) for each in device_claims(site)}
    named = {
        (pod.metadata.namespace, each.resource_claim_template_name)
        for pod in site.waiting
        for each in pod.spec.resource_claims
    }
    return attrs.evolve(
        site.objects,
        resource_claims=tuple(claim(each) if id(each) in mine else each for each in site.objects.resource_claims),
        resource_claim_templates=tuple(
            template(each) if key_of(each) in named else each for each in site.objects.resource_claim_templates
        ),
    )


_DEMANDED = "DoNotSchedule"
_WISHED = "ScheduleAnyway"
_AFFINITIES = {
    "node_affinity": ("nodeAffinity", "node affinity"),
    "pod_affinity": ("podAffinity", "pod affinity"),
    "pod_anti_affinity": ("podAntiAffinity", "pod anti-affinity"),
}


def tolerating(site: Site, taint: Taint) -> Change:
    """Let every pod tolerate a taint."""
    more = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
    name = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
    return Change(
        field="tolerations",
        old="",
        new=name,
        text=f"toleration for {name}",
        objects=with_spec(site, lambda pod: attrs.evolve(pod.spec, tolerations=(*pod.spec.tolerations, more))),
    )


def selecting(site: Site, key: str, value: str | None) -> Change:
    """Let every pod select nodes with another value of a label, or with any value (None)."""
    old = site.waiting[0].spec.node_selector.get(key, "")

    def selector(pod: Pod) -> dict[str, str]:
        rest = {each: found for each, found in pod.spec.node_selector.items() if each != key}
        return rest if value is None or key not in pod.spec.node_selector else {**rest, key: value}

    return Change(
        field=f"nodeSelector[{key}]",
        old=old,
        new=value or "",
        text=f"no selector for {key}" if value is None else f"selector {key} {old} -> {value}",
        objects=with_spec(site, lambda pod: attrs.evolve(pod.spec, node_selector=selector(pod))),
    )


def without_affinity(site: Site, kind: str) -> Change:
    """Drop the required affinity of every pod to nodes or pods: ``kind`` is a field of Affinity."""
    field, title = _AFFINITIES[kind]

    def affinity(pod: Pod) -> Affinity | None:
        found = pod.spec.affinity
        part = getattr(found, kind) if found else None
        if found is None or part is None:
            return found
        return attrs.evolve(found, **{kind: attrs.evolve(part, required=None if kind == "node_affinity" else ())})

    return Change(
        field=f"affinity.{field}",
        old="required",
        new="",
        text=f"no required {title}",
        objects=with_spec(site, lambda pod: attrs.evolve(pod.spec, affinity=affinity(pod))),
    )


def ungated(site: Site) -> Change:
    """Remove the scheduling gates of every pod."""
    gates = sorted({gate.name for pod in site.waiting for gate in pod.spec.scheduling_gates})
    return Change(
        field="schedulingGates",
        old=", ".join(gates),
        new="",
        text=f"open the gates {', '.join(gates)}" if len(gates) > 1 else f"open the gate {''.join(gates)}",
        objects=with_spec(site, lambda pod: attrs.evolve(pod.spec, scheduling_gates=())),
    )


def spread_within(site: Site, key: str, skew: int) -> Change:
    """Raise maxSkew over a label to ``skew`` where it is less."""
    old = min(each.max_skew for each in demanded_spreads(site) if each.topology_key == key)
    return Change(
        field=f"topologySpreadConstraints[{key}].maxSkew",
        old=str(old),
        new=str(skew),
        text=f"maxSkew of {key} {old} -> {skew}",
        objects=_with_spreads(site, key, lambda each: attrs.evolve(each, max_skew=max(each.max_skew, skew))),
    )


def spread_if_possible(site: Site, key: str) -> Change:
    """Make the required spread over a label a preference."""
    return Change(
        field=f"topologySpreadConstraints[{key}].whenUnsatisfiable",
        old=_DEMANDED,
        new=_WISHED,
        text=f"spread over {key} preferred, not required",
        objects=_with_spreads(site, key, lambda each: attrs.evolve(each, when_unsatisfiable=_WISHED)),
    )


def demanded_spreads(site: Site) -> list[TopologySpreadConstraint]:
    """Return the required spread constraints of the waiting pods."""
    found = dict.fromkeys(each for pod in site.waiting for each in pod.spec.topology_spread_constraints)
    return [each for each in found if each.when_unsatisfiable == _DEMANDED]


def _with_spreads(
    site: Site, key: str, edit: Callable[[TopologySpreadConstraint], TopologySpreadConstraint]
) -> ClusterObjects:
    def spec(pod: Pod) -> PodSpec:
        changed = tuple(
            edit(each) if each.topology_key == key and each.when_unsatisfiable == _DEMANDED else each
            for each in pod.spec.topology_spread_constraints
        )
        return attrs.evolve(pod.spec, topology_spread_constraints=changed)

    return with_spec(site, spec)


def without_host_ports(site: Site) -> Change:
    """Remove the host ports from the containers of every pod."""
    ports = [str(port) for port in host_ports(site)]

    def closed(container: Container) -> Container:
        return attrs.evolve(container, ports=tuple(map(_of_pod_alone, container.ports)))

    def spec(pod: Pod) -> PodSpec:
        return attrs.evolve(
            pod.spec,
            containers=tuple(map(closed, pod.spec.containers)),
            init_containers=tuple(map(closed, pod.spec.init_containers)),
        )

    return Change(
        field="hostPort",
        old=", ".join(ports),
        new="",
        text=f"no {counted(len(ports), 'host port').partition(' ')[2]} {listed(ports)}",
        objects=with_spec(site, spec),
    )


def host_ports(site: Site) -> list[int]:
    """Return the host ports of the waiting pods, each once."""
    containers = (each for pod in site.waiting for each in (*pod.spec.containers, *pod.spec.init_containers))
    return sorted({port.host_port for each in containers for port in each.ports if port.host_port})


def _of_pod_alone(port: ContainerPort) -> ContainerPort:
    return attrs.evolve(port, host_port=0, host_ip="")
