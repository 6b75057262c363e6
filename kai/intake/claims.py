"""Resource claims, read into the terms of the model, and what they request before they are allocated.

``ClaimedGpus`` has the number of GPUs that such claims request, and the parts of GPUs that they may get.

Source: the peer counts devices of classes with "gpu" in their names.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes import dra as api
from kai.api.kubernetes import node as api_selection
from kai.api.kubernetes.meta import OwnerReference
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.claim import (
    AllocatedDevice,
    Choice,
    Claim,
    ClaimCatalog,
    Device,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceToleration,
    backing_classes,
)
from kai.facts.model.partitions import Gpus, is_gpu
from kai.facts.model.pod import GpuKind, Node, Shape
from kai.facts.model.units import axis_name, mig_slices, packed, parts_of
from kai.intake import traits
from kai.intake.devices import Devices, amounts_of, config_of, expressions_of
from kai.intake.record_cache import in_order
from kai.intake.requests import MOST_DEVICES
from kai.intake.settings import IntakeSettings

# The expression language is imported only where devices are parts of GPUs.
if TYPE_CHECKING:
    from kai.facts.model.device_selectors import Selectors

_GPU = "gpu"
_WHOLE = (GPU_UNIT, GPU_UNIT)
KnownClaims = Mapping[int, Claim]
"""Claims that were read before, by the identity of their object."""


@attrs.frozen(kw_only=True)
class Wanted:
    """The GPUs that the requests of a claim amount to."""

    gpus: int
    """GPUs, the most of all alternatives; "all of a node" counts as one until it is allocated."""
    choices: tuple[Choice, ...] = ()
    """The alternatives of requests that may amount to GPUs."""
    all_gpus: tuple[str, ...] = ()
    """Requests, or ``request/alternative``, for all GPUs of a node."""
    not_had: tuple[int, int] = (0, 0)
    """Thousandths of GPUs that the claim does not get, since it gets parts of GPUs: at least, and at most."""


@attrs.frozen(kw_only=True, eq=False, slots=False)
class ClaimedGpus:
    """The GPUs in requests of claims, for given devices; memoized."""

    gpus: Gpus = attrs.field(factory=Gpus)
    classes: Mapping[str, DeviceClass] = attrs.field(factory=dict)
    _known: dict[DeviceRequest, tuple[int, int]] = attrs.field(factory=dict, init=False)

    def of(self, requests: Iterable[DeviceRequest]) -> Wanted:
        """Return the GPUs that ``requests`` amount to.

        Source: the peer's count of DRA GPUs; but it leaves alternatives out, so that a queue could exceed its limit.
        """
        gpus = surely = at_most = 0
        choices: list[Choice] = []
        every: list[str] = []
        for request in requests:
            ways = request.alternatives or (request,)
            counts = [self._count(way) for way in ways]
            parts = [self._parts(way) if count else _WHOLE for way, count in zip(ways, counts, strict=True)]
            most = max(counts)
            gpus += most
            # Against the alternative with the most GPUs, which is what is charged: an alternative that gets less leaves
            # the rest.
            surely += most * GPU_UNIT - max(n * high for n, (_, high) in zip(counts, parts, strict=True))
            at_most += most * GPU_UNIT - min(n * low for n, (low, _) in zip(counts, parts, strict=True))
            names = [f"{request.name}/{way.name}" if request.alternatives else request.name for way in ways]
            every += [name for name, way, n in zip(names, ways, counts, strict=True) if n and way.all_devices]
            if request.alternatives and most:
                choices.append(tuple(zip(names, counts, strict=True)))
        return Wanted(gpus=gpus, choices=tuple(choices), all_gpus=tuple(every), not_had=(surely, at_most))

    def _count(self, request: DeviceRequest) -> int:
        """Return the number of GPUs, clamped to more than any claim gets: any user can write any number."""
        if not (is_gpu(request.device_class) or request.device_class in self.classes_of_partitions):
            return 0
        # "All" is one here, since it is not known before which node is chosen.
        return 1 if request.all_devices else min(request.count, MOST_DEVICES)

    @cached_property
    def classes_of_partitions(self) -> frozenset[str]:
        """The classes that select partitions of GPUs without "gpu" in their names."""
        partitions = [each for each in self._devices if any(gpu.measures for gpu in self.gpus.of_device[each[0]])]
        return frozenset(
            each.name
            for each in self.classes.values()
            if not is_gpu(each.name)
            and any(self._selects(each.selectors, key[0], device) for key, device, _ in partitions)
        )

    @cached_property
    def parts_by_name(self) -> Mapping[str, tuple[int, int]]:
        """The resources that classes back with parts of GPUs, by the name under which containers request them.

        With each comes the smallest and the largest part, in thousandths.
        """
        if not self._devices:
            return {}
        asked = {name: DeviceRequest(name="", device_class=each.name) for name, each in self._backing.items()}
        found = {name: self._parts(request) for name, request in asked.items() if self._count(request)}
        return {name: parts for name, parts in found.items() if parts[0] < GPU_UNIT}

    @cached_property
    def _backing(self) -> Mapping[str, DeviceClass]:
        return backing_classes(self.classes)

    @cached_property
    def _devices(self) -> Sequence[tuple[tuple[str, str, str], Device, int]]:
        """The GPUs that claims may get, each with the part of a GPU that it is; empty where all of them are whole."""
        gpus = self.gpus
        return [(key, each, gpus.part(key)) for key, each in gpus.devices.items()] if gpus.are_divided else []

    @cached_property
    def _selectors(self) -> "Selectors":
        from kai.facts.model.device_selectors import Selectors  # noqa: PLC0415 - only clusters with partitions pay for it

        return Selectors()

    def _selects(self, expressions: Iterable[str], driver: str, device: Device) -> bool:
        return all(self._selectors.selects(each, driver, device) is True for each in expressions)

    def _parts(self, request: DeviceRequest) -> tuple[int, int]:
        """Return the smallest and the largest part of a GPU that a request may get, in thousandths."""
        device_class = self.classes.get(request.device_class)
        if device_class is None or request.all_devices or not self._devices:
            return _WHOLE
        found = self._known.get(request)
        if found is None:
            found = self._known[request] = self._asked((*device_class.selectors, *request.selectors), request.capacity)
        return found

    def _asked(self, expressions: Sequence[str], capacity: Sequence[tuple[str, int]]) -> tuple[int, int]:
        low = high = 0
        for key, device, whole in self._devices:
            part = _part_of(device, whole, capacity)
            # A device whose part lies between known parts changes nothing.
            if part and not (low and low <= part <= high) and self._selects(expressions, key[0], device):
                low, high = min(part, low or part), max(part, high)
        return (low, high) if low else _WHOLE


def with_parts_by_name(
    shapes: Sequence[Shape], nodes: Iterable[Node], parts: Mapping[str, tuple[int, int]]
) -> tuple[Shape, ...]:
    """Return ``shapes``, where what is requested by the names in ``parts`` counts as claims of parts of GPUs.

    Not by a name that a device plugin offers, too: which of both serves a pod depends on its node.
    """
    offered = {name for node in nodes for name in parts if node.plugs(name)} if parts else set[str]()
    left = {name: part for name, part in parts.items() if name not in offered}
    return tuple(_counted_as_claimed(each, left) for each in shapes) if left else tuple(shapes)


def _counted_as_claimed(shape: Shape, parts: Mapping[str, tuple[int, int]]) -> Shape:
    gpu, total = shape.gpu, dict(shape.request)
    for name, (low, high) in parts.items():
        count = shape.requested(name.__eq__) // parts_of(name)
        if not count:
            continue
        gpu = attrs.evolve(
            gpu,
            claimed=gpu.claimed + count,
            not_had=gpu.not_had + count * (GPU_UNIT - high),
            named=gpu.named + count,
            named_not_had=gpu.named_not_had + count * (GPU_UNIT - high),
            spared=gpu.spared + count * (GPU_UNIT - high),
            most_spared=gpu.most_spared + count * (GPU_UNIT - low),
        )
        if axis_name(name) != _GPU:
            total[_GPU] = total.get(_GPU, 0) + count * GPU_UNIT
        if mig_slices(name)[0]:
            total.pop(name, None)
    # Nothing was counted, so the very same shape goes back, and all that is memoized by it stays.
    if gpu is shape.gpu:
        return shape
    slices = any(mig_slices(name)[0] for name in total)
    if not slices and not gpu.shared and total.get(_GPU, 0) <= gpu.claimed * GPU_UNIT:
        gpu = attrs.evolve(gpu, kind=GpuKind.NONE)
    return attrs.evolve(shape, request=packed(total), gpu=gpu)


def _part_of(device: Device, whole: int, capacity: Sequence[tuple[str, int]]) -> int:
    """Return the part of a GPU that a request for ``capacity`` gets from a device that is ``whole``; 0 for none."""
    amounts = [
        (max(asked, policy.least) if (policy := device.policies.get(name)) else asked, device.capacity.get(name, 0))
        for name, asked in capacity
    ]
    if not all(0 < asked <= there for asked, there in amounts):
        return 0
    # Only a device that takes several claims is divided by amounts; any other is given as a whole.
    if not (amounts and device.multiple_allocations):
        return whole
    return max(1, *(whole * asked // there for asked, there in amounts))


def read_claims(
    objects: ClusterObjects, settings: IntakeSettings, devices: Devices, wanted: ClaimedGpus, known: KnownClaims
) -> ClaimCatalog:
    """Return claims, slices and classes; if there are any, the API counts as served.

    Claims in ``known`` are not read again: claims come and go with pods, so most stay the same.
    """
    claims = [known.get(id(source)) or _claim(source, settings, wanted) for source in in_order(objects.resource_claims)]
    return ClaimCatalog(
        claims={(claim.namespace, claim.name): claim for claim in claims},
        slices=devices.slices,
        classes=devices.classes,
        served=bool(claims or devices.classes or objects.resource_slices or objects.resource_claim_templates),
        kubernetes=settings.kubernetes,
    )


def gpus_wanted(spec: api.ResourceClaimSpec, wanted: ClaimedGpus) -> Wanted:
    """Return the GPUs that a claim with ``spec`` requests."""
    return wanted.of(map(_request, spec.devices.requests))


def _claim(source: api.ResourceClaim, settings: IntakeSettings, wanted: ClaimedGpus) -> Claim:
    metadata, devices, status = source.metadata, source.spec.devices, source.status
    requests = tuple(map(_request, devices.requests))
    asked = wanted.of(requests)
    claim = Claim(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid or metadata.name,
        requests=requests,
        constraints=tuple(_constraint(each) for each in devices.constraints),
        config=tuple(map(config_of, devices.config)),
        queue=metadata.labels.get(settings.queue_label_key),
        gpus=asked.gpus,
        choices=asked.choices,
        all_gpus=asked.all_gpus,
        not_had=asked.not_had,
        owner_pod=only_pod(metadata.owner_references),
        allocation=allocated(status.allocation) if status.allocation is not None else None,
        nodes=traits.node_terms(status.allocation.node_selector) if status.allocation is not None else None,
        reserved_for=tuple(each.uid for each in status.reserved_for),
        deleting=metadata.deletion_timestamp is not None,
        awaited=tuple(_awaited(status)),
        has_other_users=any(each.resource not in ("", "pods") for each in status.reserved_for),
    )
    # Once allocated, a claim counts what it got and no longer the most that it might get.
    return claim if claim.allocation is None else claim.settled(claim.allocation)


def only_pod(owners: Iterable[OwnerReference]) -> str:
    """Return the UID of the only owner if that is a pod, "" otherwise."""
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
            consumed=amounts_of(each.consumed_capacity),
            shared=bool(each.share_id),
            share=each.share_id or "",
        )
        for each in source.devices.results
    )


def _awaited(status: api.ResourceClaimStatus) -> Iterable[str]:
    """Yield the allocated devices that are not ready, with the conditions that block them.

    Source: Kubernetes' scheduler, which binds a pod once all binding conditions are true, and no failure condition is.
    """
    reported = {(each.driver, each.pool, each.device, each.share_id or ""): each.conditions for each in status.devices}
    for each in status.allocation.devices.results if status.allocation is not None else ():
        if not each.binding_conditions:
            continue
        conditions = reported.get((each.driver, each.pool, each.device, each.share_id or ""), ())
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
        selectors=expressions_of(source.selectors),
        capacity=amounts_of(source.capacity.requests) if source.capacity else (),
        admin_access=isinstance(source, api.ExactDeviceRequest) and bool(source.admin_access),
        tolerations=tuple(_toleration(each) for each in source.tolerations),
    )


def _toleration(source: api_selection.Toleration) -> DeviceToleration:
    return DeviceToleration(
        source.key, source.operator or "Equal", source.value, source.effect, source.toleration_seconds
    )


def _constraint(source: api.DeviceConstraint) -> DeviceConstraint:
    distinct = source.match_attribute is None
    attribute = source.distinct_attribute if distinct else source.match_attribute
    return DeviceConstraint(match=attribute or "", requests=source.requests, distinct=distinct)
