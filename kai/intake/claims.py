"""Resource claims and the devices that can satisfy them, in the terms of the model."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import is_

from kai.api.cluster_objects import ClusterObjects
from kai.api.fields import JsonObject
from kai.api.kubernetes import dra as api
from kai.api.kubernetes import selection as api_selection
from kai.api.kubernetes.meta import OwnerReference
from kai.api.values import quantity
from kai.api.values.bad_value import BadValue
from kai.intake import selection
from kai.intake.record_cache import in_order
from kai.intake.requests import MOST_DEVICES
from kai.intake.settings import IntakeSettings
from kai.lenient import list_of
from kai.model.claim import (
    CAPACITY_PARTS,
    AllocatedDevice,
    Choice,
    Claim,
    ClaimCatalog,
    Device,
    DeviceClass,
    DeviceConfig,
    DeviceConstraint,
    DeviceRequest,
    DeviceSlice,
    DeviceToleration,
    SharePolicy,
    VersionText,
    qualified,
)
from kai.model.constraints import Taint

_GPU = "gpu"
_LARGEST = 2**63 - 1


def read_claims(
    objects: ClusterObjects, settings: IntakeSettings, then: ClusterObjects, known: ClaimCatalog
) -> ClaimCatalog:
    """Return claims, slices and classes as the objects have them; with any of them the API counts as served.

    ``known`` was read of the objects ``then``. What was read of the very same objects is not read again: claims come
    and go with pods, and what follows from devices is kept for as long as their slices are.
    """
    read = dict(zip(map(id, in_order(then.resource_claims)), known.claims.values(), strict=True))
    claims = [read.get(id(source)) or _claim(source, settings) for source in in_order(objects.resource_claims)]
    slices, classes = known.slices, known.classes
    if not (
        are_same(objects.resource_slices, then.resource_slices)
        and are_same(objects.device_taint_rules, then.device_taint_rules)
    ):
        slices = _slices(newest(in_order(objects.resource_slices)), in_order(objects.device_taint_rules))
    if not are_same(objects.device_classes, then.device_classes):
        classes = {each.name: each for each in map(_class, in_order(objects.device_classes))}
    return ClaimCatalog(
        claims={(claim.namespace, claim.name): claim for claim in claims},
        slices=slices,
        classes=classes,
        served=bool(claims or classes or objects.resource_slices or objects.resource_claim_templates),
        kubernetes=settings.kubernetes,
    )


def are_same(objects: Sequence[object], before: Sequence[object]) -> bool:
    """Return whether both have the very same objects in the same order."""
    return len(objects) == len(before) and all(map(is_, objects, before))


def newest(slices: Iterable[api.ResourceSlice]) -> list[api.ResourceSlice]:
    """Return the slices of the newest generation of each pool; older ones describe devices that may be gone."""
    ordered = list(slices)
    generations: dict[tuple[str, str], int] = {}
    for source in ordered:
        key = _pool(source)
        generations[key] = max(generations.get(key, 0), source.spec.pool.generation)
    return [source for source in ordered if source.spec.pool.generation == generations[_pool(source)]]


def _slices(sources: Sequence[api.ResourceSlice], rules: Sequence[api.DeviceTaintRule]) -> tuple[DeviceSlice, ...]:
    """Return slices, and of which pools not all are there; a pool that says no number of slices is finished.

    Devices have the taints that ``rules`` put on them beside their own.

    A driver that publishes a pool anew writes slice by slice. What is allocated from the first of them may have gone to
    a device that a later one describes otherwise.

    Source: Kubernetes' allocator, which takes no device of an incomplete pool.
    """
    there = Counter(map(_pool, sources))
    return tuple(
        _slice(each, rules, unfinished=each.spec.pool.resource_slice_count not in (0, there[_pool(each)]))
        for each in sources
    )


def _pool(source: api.ResourceSlice) -> tuple[str, str]:
    return (source.spec.driver, source.spec.pool.name)


def is_gpu(name: str) -> bool:
    """Return whether a driver or a device class is about GPUs.

    Source: the peer looks for the word in the name.
    """
    return _GPU in name.lower()


def gpus_of_nodes(slices: Iterable[api.ResourceSlice]) -> Mapping[str, int]:
    """Return how many GPUs drivers offer on each node, by the node's name.

    Partitions count as well: a class may give them out as GPUs, and the node must have room for each that is taken.

    Source: the peer counts the devices of slices that belong to one node.
    """
    found: dict[str, int] = {}
    for source in newest(slices):
        node = source.spec.node_name
        if node and is_gpu(source.spec.driver) and source.spec.devices:
            found[node] = found.get(node, 0) + len(source.spec.devices)
    return found


def parts_of_claim(claim: Claim, slices: Iterable[DeviceSlice]) -> int:
    """Return thousandths of GPUs that a claim which is not allocated yet will not have of those that it asks for.

    A request for capacities gets a share of a device that may be allocated many times: at most the largest share that
    one of the GPUs gives. Nothing comes off where a device that is had as a whole may serve it, too.
    """
    off = 0
    for request in claim.requests:
        if is_gpu(request.device_class) and request.capacity and not (request.alternatives or request.all_devices):
            shares = [share for each in slices for share in _shares_of(request, each)]
            off += (1000 - max(shares)) * request.count if shares else 0
    return off


def _shares_of(request: DeviceRequest, source: DeviceSlice) -> Iterable[int]:
    """Yield which part of each GPU of a slice a request would get, in thousandths."""
    for device in source.devices if is_gpu(source.driver) else ():
        amounts = [
            (max(asked, policy.least) if (policy := device.policies.get(name)) else asked, device.capacity.get(name))
            for name, asked in request.capacity
        ]
        if all(whole is not None and 0 < asked <= whole for asked, whole in amounts):
            parts = [asked * 1000 // whole for asked, whole in amounts if whole]
            yield max(1, *parts) if device.multiple_allocations else 1000


def gpus_of_claim(spec: api.ResourceClaimSpec) -> int:
    """Return how many GPUs a claim asks for, of alternatives the most.

    "All of a node" is one until it is allocated.

    Source: the peer's count of DRA GPUs, which leaves alternatives out: a queue would pass its limit by them.
    """
    exact = sum(_gpus(request.exactly) for request in spec.devices.requests if request.exactly is not None)
    return exact + sum(max(gpus for _, gpus in each) for each in choices_of_claim(spec))


def choices_of_claim(spec: api.ResourceClaimSpec) -> tuple[Choice, ...]:
    """Return the alternatives of those requests that may come to GPUs."""
    found = [
        tuple((f"{request.name}/{each.name}", _gpus(each)) for each in request.first_available)
        for request in spec.devices.requests
    ]
    return tuple(each for each in found if any(gpus for _, gpus in each))


def _all_gpus(spec: api.ResourceClaimSpec) -> Iterable[str]:
    """Yield the names of requests, or ``request/alternative``, for all GPUs of a node."""
    for request in spec.devices.requests:
        if request.exactly is not None and _is_all_gpus(request.exactly):
            yield request.name
        yield from (f"{request.name}/{each.name}" for each in request.first_available if _is_all_gpus(each))


def _is_all_gpus(request: api.ExactDeviceRequest | api.DeviceSubRequest) -> bool:
    return request.allocation_mode == "All" and is_gpu(request.device_class_name)


def _gpus(request: api.ExactDeviceRequest | api.DeviceSubRequest) -> int:
    return _count(request) if is_gpu(request.device_class_name) else 0


def _count(request: api.ExactDeviceRequest | api.DeviceSubRequest) -> int:
    """Return how many devices are asked for, cut to more than any claim gets: any user can write any number."""
    return 1 if request.allocation_mode == "All" else min(max(request.count, 1), MOST_DEVICES)


def _claim(source: api.ResourceClaim, settings: IntakeSettings) -> Claim:
    metadata, devices, status = source.metadata, source.spec.devices, source.status
    claim = Claim(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid or metadata.name,
        requests=tuple(_request(each) for each in devices.requests),
        constraints=tuple(_constraint(each) for each in devices.constraints),
        config=tuple(map(_config, devices.config)),
        queue=metadata.labels.get(settings.queue_label_key),
        gpus=gpus_of_claim(source.spec),
        choices=choices_of_claim(source.spec),
        all_gpus=tuple(_all_gpus(source.spec)),
        owner_pod=only_pod(metadata.owner_references),
        allocation=allocated(status.allocation) if status.allocation is not None else None,
        nodes=selection.node_terms(status.allocation.node_selector) if status.allocation is not None else None,
        reserved_for=tuple(each.uid for each in status.reserved_for),
        deleting=metadata.deletion_timestamp is not None,
        awaited=tuple(_awaited(status)),
        has_other_users=any(each.resource not in ("", "pods") for each in status.reserved_for),
    )
    return claim if claim.allocation is None else claim.settled(claim.allocation)


def only_pod(owners: Iterable[OwnerReference]) -> str:
    """Return the uid of the only owner if that is a pod, "" otherwise."""
    found = list(owners)
    return found[0].uid if len(found) == 1 and found[0].kind == "Pod" else ""


def allocated(source: api.AllocationResult) -> tuple[AllocatedDevice, ...]:
    """Return the devices of an allocation."""
    return tuple(
        AllocatedDevice(
            request=each.request,
            driver=each.driver,
            pool=each.pool,
            device=each.device,
            admin_access=bool(each.admin_access),
            tolerations=tuple(map(_toleration, each.tolerations)),
            consumed=_amounts(each.consumed_capacity),
            shared=bool(each.share_id),
            share=each.share_id or "",
        )
        for each in source.devices.results
    )


def _awaited(status: api.ResourceClaimStatus) -> Iterable[str]:
    """Yield the allocated devices that are not ready, with the conditions that stand in the way.

    Source: Kubernetes' scheduler, which binds a pod once all binding conditions are true, and no failure condition is.
    """
    told = {(each.driver, each.pool, each.device, each.share_id or ""): each.conditions for each in status.devices}
    for each in status.allocation.devices.results if status.allocation is not None else ():
        if not each.binding_conditions:
            continue
        conditions = told.get((each.driver, each.pool, each.device, each.share_id or ""), ())
        true = {condition.type for condition in conditions if condition.status == "True"}
        unmet = [f"{name} is not true" for name in each.binding_conditions if name not in true]
        failed = [f"{name} is true" for name in each.binding_failure_conditions if name in true]
        if unmet or failed:
            yield f"{each.driver}/{each.pool}/{each.device} ({', '.join((*failed, *unmet))})"


def _request(source: api.DeviceRequest) -> DeviceRequest:
    if source.exactly is not None:
        return _exact(source.name, source.exactly)
    alternatives = tuple(_exact(each.name, each) for each in source.first_available)
    return DeviceRequest(name=source.name, device_class="", alternatives=alternatives)


def _exact(name: str, source: api.ExactDeviceRequest | api.DeviceSubRequest) -> DeviceRequest:
    return DeviceRequest(
        name=name,
        device_class=source.device_class_name,
        count=max(source.count, 1),
        all_devices=source.allocation_mode == "All",
        selectors=_expressions(source.selectors),
        capacity=_amounts(source.capacity.requests) if source.capacity else (),
        admin_access=isinstance(source, api.ExactDeviceRequest) and bool(source.admin_access),
        tolerations=tuple(_toleration(each) for each in source.tolerations),
    )


def _toleration(source: api_selection.Toleration) -> DeviceToleration:
    return DeviceToleration(
        source.key, source.operator or "Equal", source.value, source.effect, source.toleration_seconds
    )


def _config(source: JsonObject) -> DeviceConfig:
    body = {key: value for key, value in source.items() if key != "requests"}
    return DeviceConfig(
        body=json.dumps(body, sort_keys=True, default=dict),
        requests=tuple(map(str, list_of(source, "requests"))),
    )


def _expressions(selectors: Iterable[api.DeviceSelector]) -> tuple[str, ...]:
    return tuple(each.cel.expression for each in selectors if each.cel is not None)


def _constraint(source: api.DeviceConstraint) -> DeviceConstraint:
    distinct = source.match_attribute is None
    attribute = source.distinct_attribute if distinct else source.match_attribute
    return DeviceConstraint(match=attribute or "", requests=source.requests, distinct=distinct)


def _class(source: api.DeviceClass) -> DeviceClass:
    return DeviceClass(
        name=source.metadata.name,
        selectors=_expressions(source.spec.selectors),
        config=tuple(map(_config, source.spec.config)),
        extended_resource=source.spec.extended_resource_name or "",
        created=source.metadata.creation_timestamp or 0.0,
    )


def _slice(source: api.ResourceSlice, rules: Iterable[api.DeviceTaintRule], *, unfinished: bool) -> DeviceSlice:
    spec, tainting = source.spec, _tainting(source, rules)
    return DeviceSlice(
        name=source.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        devices=tuple(_device(device, spec.driver, tainting) for device in spec.devices),
        node=spec.node_name or "",
        all_nodes=bool(spec.all_nodes),
        nodes=selection.node_terms(spec.node_selector),
        counters=tuple(
            (group.name, name, _parts(counter.value))
            for group in spec.shared_counters
            for name, counter in sorted(group.counters.items())
        ),
        unfinished=unfinished,
    )


def _tainting(
    source: api.ResourceSlice, rules: Iterable[api.DeviceTaintRule]
) -> Sequence[tuple[str | None, api.DeviceTaint]]:
    """Return the taints that ``rules`` put on devices of a slice, each with the name of its device (None: on all)."""
    driver, pool = _pool(source)
    return [
        (by.device, rule.spec.taint)
        for rule in rules
        if (by := rule.spec.device_selector) is not None and by.driver in (None, driver) and by.pool in (None, pool)
    ]


def _device(source: api.Device, driver: str, tainting: Sequence[tuple[str | None, api.DeviceTaint]]) -> Device:
    taints = (*source.taints, *(taint for name, taint in tainting if name in (None, source.name)))
    return Device(
        name=source.name,
        attributes={
            qualified(name, driver): value
            for name, each in source.attributes.items()
            if (value := _attribute(each)) is not None
        },
        capacity={name: _parts(each.value) for name, each in source.capacity.items()},
        policies={
            name: _policy(each.request_policy)
            for name, each in source.capacity.items()
            if each.request_policy is not None
        },
        node=source.node_name or "",
        all_nodes=bool(source.all_nodes),
        nodes=selection.node_terms(source.node_selector),
        counters=tuple(
            (group.counter_set, name, _parts(counter.value))
            for group in source.consumes_counters
            for name, counter in sorted(group.counters.items())
        ),
        multiple_allocations=bool(source.allow_multiple_allocations),
        taints=tuple(Taint(each.key, each.value, each.effect) for each in taints if each.effect != "None"),
        binds_to_node=bool(source.binds_to_node),
        attached_later=bool(source.binding_conditions),
    )


def _policy(source: api.CapacityRequestPolicy) -> SharePolicy:
    bounds = source.valid_range or api.CapacityRequestPolicyRange()
    return SharePolicy(
        default=_amount(source.default),
        values=tuple(map(_parts, source.valid_values)),
        ranged=source.valid_range is not None,
        least=_amount(bounds.min) or 0,
        most=_amount(bounds.max),
        step=_amount(bounds.step) or 0,
    )


def _amount(source: str | None) -> int | None:
    return None if source is None else _parts(source)


def _parts(text: str) -> int:
    """Return a quantity in thousandths of its unit, cut to what 64 bits hold.

    Raises: BadValue if the text is not a quantity, or one that does not fit into 64 bits in whole units.
    """
    whole = quantity.amount(text)
    return quantity.amount(text, CAPACITY_PARTS) if whole <= _LARGEST // CAPACITY_PARTS else _LARGEST


def _attribute(source: api.DeviceAttribute) -> str | int | bool | None:
    """Return the value of an attribute, None for one of a kind that we do not know: devices do not agree in it."""
    version = None if source.version is None else VersionText(source.version)
    values = (source.int_, source.bool_, source.string, version)
    return next((value for value in values if value is not None), None)


def _amounts(source: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
    """Return amounts by name out of loosely kept JSON; what is no quantity is left out."""
    found: list[tuple[str, int]] = []
    for name, text in sorted(source.items()):
        try:
            found.append((name, _parts(str(text))))
        except BadValue:
            continue
    return tuple(found)
