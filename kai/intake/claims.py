"""Resource claims, read into the terms of the model."""

from collections.abc import Iterable, Mapping

from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes import dra as api
from kai.api.kubernetes import node as api_selection
from kai.api.kubernetes.meta import OwnerReference
from kai.facts.model.claim import (
    AllocatedDevice,
    Claim,
    ClaimCatalog,
    DeviceConstraint,
    DeviceRequest,
    DeviceToleration,
)
from kai.intake import traits
from kai.intake.claimed_gpus import ClaimedGpus, Wanted
from kai.intake.devices import Devices, amounts_of, config_of, expressions_of
from kai.intake.record_cache import in_order
from kai.intake.settings import IntakeSettings

KnownClaims = Mapping[int, Claim]
"""Claims that were read before, by the identity of their object."""


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
