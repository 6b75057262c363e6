"""Changes of what waiting pods claim: volumes with ReadWriteOncePod, attach limits of nodes, and devices."""

from collections.abc import Callable
from typing import Final, TypeVar

import attrs

from kai.answers.why.changes import Change, Site, capped, with_pods
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
from kai.api.kubernetes.pod import Pod
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
