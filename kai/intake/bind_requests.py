"""Bind requests in both directions: which are live, and placements in their wire form.

Live bind requests determine the nodes of their pods; expired ones are to be deleted.

Plugins record details of a placement, such as devices and NUMA zones. These records are converted to the fields of a
bind request and to annotations here, since intake is the boundary between objects and state.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import attrs

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.codec.structuring import unstructure
from kai.api.conventions.binding import ordered_grant
from kai.api.kinds import key_of
from kai.api.kubernetes import dra
from kai.api.kubernetes import node as node_selection
from kai.api.kubernetes.dra import AllocationResult
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ExtendedResourceMapping
from kai.api.kubernetes.pod import Pod as ApiPod
from kai.api.plans import Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.queue import Queue
from kai.basics.parsing import Style, canonical
from kai.facts.model.claim import CAPACITY_PARTS, AllocatedDevice, Claim, ClaimCatalog, DeviceRequest, DeviceToleration
from kai.facts.model.constraints import NodeTerm, Requirement
from kai.facts.model.placement import AllocatedConfig, ContainerMappings, DeviceAllocation, Quantities
from kai.facts.model.pod import Constraints, Pod
from kai.facts.model.units import Amounts, backed_name, parts_of
from kai.intake import traits
from kai.intake.claims import allocated
from kai.intake.nodes import is_wanted
from kai.intake.settings import IntakeSettings

_SHARES: Final = uuid.uuid5(uuid.NAMESPACE_URL, "kai.scheduler/device-shares")
_ZONES: Final = "predictedNUMAZones"
_EXACT: Final = "ExactCount"
_KIBI: Final = 1024


def fields(request: Mapping[str, object], pod: ApiPod | None = None) -> dict[str, object]:
    """Return the plugins' records of a placement of ``pod``, or of a node, as JSON fields.

    For a placement they are fields of the bind request's spec.
    """
    return {name: _written(value, pod) for name, value in request.items()}


def _written(value: object, pod: ApiPod | None) -> object:
    match value:
        case Quantities():
            return texts(value.amounts)
        case DeviceAllocation():
            return unstructure(allocation_result(value.devices, value.nodes, value.claim, value.config))
        case DeviceRequest():
            return unstructure(_request(value))
        case ContainerMappings() if pod is not None:
            return [unstructure(each) for each in _mappings(value, pod)]
        case Mapping():
            return fields(value, pod)
        case tuple() | list():
            return [_written(each, pod) for each in value]
        case _:
            return value


def annotations(request: Mapping[str, object], pod: ApiPod) -> dict[str, str]:
    """Return the annotations that the binder writes on ``pod`` for the plugins' records of its placement."""
    zones = _written(request.get(_ZONES, ()), pod)
    return {names.NUMA_PREDICTED: json.dumps(zones)} if zones else {}


def texts(amounts: Amounts) -> dict[str, str]:
    """Return amounts as quantity texts, by resource; GPUs under their most common name."""
    return {
        (names.NVIDIA_GPU if name == "gpu" else name): canonical(amount, parts_of(name)) for name, amount in amounts
    }


def allocation_result(
    devices: Iterable[AllocatedDevice],
    nodes: tuple[NodeTerm, ...] | None,
    claim: str,
    config: Iterable[AllocatedConfig] = (),
) -> dra.AllocationResult:
    """Return an allocation; ``claim`` makes the names of device shares unique."""
    return dra.AllocationResult(
        devices=dra.DeviceAllocationResult(
            results=tuple(_result(device, f"{claim}/{at}") for at, device in enumerate(devices)),
            config=tuple(map(_config, config)),
        ),
        node_selector=None
        if nodes is None
        else node_selection.NodeSelector(node_selector_terms=tuple(_term(term) for term in nodes)),
    )


def _result(device: AllocatedDevice, share: str) -> dra.DeviceRequestAllocationResult:
    # Derived and not random: a write that is repeated names the same share.
    named = device.share or (str(uuid.uuid5(_SHARES, "/".join((*device.key, share)))) if device.shared else "")
    return dra.DeviceRequestAllocationResult(
        request=device.request,
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        admin_access=True if device.admin_access else None,
        tolerations=tuple(map(_toleration, device.tolerations)),
        share_id=named or None,
        consumed_capacity={name: _quantity(amount) for name, amount in device.consumed},
    )


def _toleration(source: DeviceToleration) -> node_selection.Toleration:
    return node_selection.Toleration(
        key=source.key,
        operator=cast("node_selection.TolerationOperator", source.operator),
        value=source.value,
        effect=cast("node_selection.TaintEffect", source.effect),
        toleration_seconds=source.seconds,
    )


def _config(source: AllocatedConfig) -> dict[str, Any]:
    """Return a configuration as DRA drivers on the kubelet read it; without requests it applies to all of them."""
    applied = {"requests": list(source.config.requests)} if source.config.requests else {}
    return {"source": "FromClass" if source.of_class else "FromClaim", **applied, **json.loads(source.config.body)}


def _quantity(amount: int) -> str:
    """Return an amount in the API server's notation, so that its reply compares equal to the request."""
    style: Style = "decimal" if amount % (_KIBI * CAPACITY_PARTS) else "binary"
    return canonical(amount, CAPACITY_PARTS, style=style)


def _term(term: NodeTerm) -> node_selection.NodeSelectorTerm:
    return node_selection.NodeSelectorTerm(
        match_expressions=tuple(_requirement(each) for each in term.labels),
        match_fields=tuple(_requirement(each) for each in term.fields),
    )


def _requirement(source: Requirement) -> node_selection.NodeSelectorRequirement:
    operator = cast("node_selection.NodeOperator", source.operator)
    return node_selection.NodeSelectorRequirement(key=source.key, operator=operator, values=source.values)


def _request(source: DeviceRequest) -> dra.DeviceRequest:
    exactly = dra.ExactDeviceRequest(device_class_name=source.device_class, allocation_mode=_EXACT, count=source.count)
    return dra.DeviceRequest(name=source.name, exactly=exactly)


def _mappings(source: ContainerMappings, pod: ApiPod) -> Iterable[ExtendedResourceMapping]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for at, resource, request in source.containers:
        container = containers[at]
        named = [name for name in container.resources.requests if backed_name(name) == resource]
        for name in named:
            yield ExtendedResourceMapping(container_name=container.name, resource_name=name, request_name=request)


def has_failed(request: BindRequest) -> bool:
    """Return whether the binder gave up; below its back-off limit a failed request is tried again."""
    if request.status.phase != "Failed":
        return False
    limit = request.spec.backoff_limit
    return limit is None or request.status.failed_attempts >= limit


def _is_stale(request: BindRequest, nodes: Collection[str], settings: IntakeSettings) -> bool:
    """Return whether the request belongs to this scheduler and its node is gone.

    A request for another scheduler's node stays live, lest two schedulers bind one pod.
    """
    return request.spec.selected_node not in nodes and settings.owns(request.metadata.labels)


def live_bind_requests(
    requests: Collection[BindRequest], nodes: Collection[str], settings: IntakeSettings
) -> Sequence[BindRequest]:
    """Return the live requests by namespace and name; of several for one pod the last counts."""
    live = [each for each in requests if not has_failed(each) and not _is_stale(each, nodes, settings)]
    return sorted(live, key=key_of)


@attrs.frozen
class ExpiredRequest:
    """A bind request that should be deleted."""

    request: BindRequest
    lost: Ref[Node] | Ref[Queue] | None = None
    """The node or queue that it needs and that seems to be gone; None if the binder gave up."""


def expired_bind_requests(objects: ClusterObjects, settings: IntakeSettings) -> tuple[ExpiredRequest, ...]:
    """Return the expired requests: the binder gave up, the node is gone, or the queue went before the bind.

    Snapshots ignore a request that failed or whose node is gone. The caller should delete expired requests, once it has
    made sure that the missing object is gone.

    Source: the peer deletes requests of the first two kinds while it takes its snapshot. It carries out the request of
    a queue that was deleted since.
    """
    if not objects.bind_requests:
        return ()
    nodes = {node.metadata.name for node in objects.nodes if is_wanted(node, settings)}
    queues = {queue.metadata.name for queue in objects.queues}
    found = []
    for request in objects.bind_requests:
        if has_failed(request):
            found.append(ExpiredRequest(request))
        elif _is_stale(request, nodes, settings):
            found.append(ExpiredRequest(request, Ref(Node, request.spec.selected_node)))
        elif (queue := _awaited_queue(request, settings)) and queue not in queues:
            found.append(ExpiredRequest(request, Ref(Queue, queue)))
    return tuple(found)


def _awaited_queue(request: BindRequest, settings: IntakeSettings) -> str:
    """Return the queue whose account a pod is to be bound on; empty if the pod is bound, or the queue is not known."""
    if request.status.phase == "Succeeded" or not settings.owns(request.metadata.labels):
        return ""
    grant = ordered_grant(request)
    return "" if grant is None else grant.queue


def assumed_claims(claims: ClaimCatalog, requests: Iterable[tuple[Pod, Constraints, BindRequest]]) -> ClaimCatalog:
    """Return the catalog in which claims of pods that are being bound have the allocations of the bind requests.

    Source: the peer's dynamicresources plugin, which assumes them when a session opens.
    """
    changed: dict[tuple[str, str], Claim] = {}
    for pod, constraints, request in requests:
        given = {each.name: each.allocation for each in request.spec.resource_claim_allocations}
        for reference in constraints.claims:
            key, allocation = (pod.namespace, reference.claim), given.get(reference.name)
            claim = changed.get(key) or claims.claims.get(key)
            if claim is not None and allocation is not None:
                changed[key] = _assumed(claim, pod, allocation)
    return attrs.evolve(claims, claims={**claims.claims, **changed}) if changed else claims


def _assumed(claim: Claim, pod: Pod, allocation: AllocationResult) -> Claim:
    if pod.uid not in claim.reserved_for:
        claim = attrs.evolve(claim, reserved_for=(*claim.reserved_for, pod.uid))
    # The object says so by now: the binder writes the allocation before it binds the pod.
    if claim.allocation is not None:
        return claim
    return attrs.evolve(claim, allocation=allocated(allocation), nodes=traits.node_terms(allocation.node_selector))
