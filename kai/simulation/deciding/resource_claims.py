"""Resource claims between cycles: what was allocated is written down, and stands until the last user is gone."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from kai.api import names
from kai.api.codec.structuring import structure_as
from kai.api.conventions.device_claims import consumer_of, extended_claim
from kai.api.kinds import key_of
from kai.api.kubernetes.dra import AllocationResult, ResourceClaim, ResourceClaimConsumer
from kai.api.kubernetes.pod import Pod as ApiPod
from kai.api.kubernetes.pod import claim_behind
from kai.api.scheduling.bind_request import BindRequestSpec
from kai.engine.report import CycleReport
from kai.intake.details import allocation_result, fields
from kai.model.placement import ClaimPlacement
from kai.model.pod import Pod
from kai.model.status import ACTIVE_ALLOCATED, Status, within
from kai.state.snapshot import Snapshot

ClaimKey = tuple[str, str]
"""Namespace and name."""
_WRITTEN = ("resourceClaimAllocations", "extendedResourceClaimAllocation")
"""What a bind request says of claims."""


def bound_claims(
    pod: ApiPod, request: Mapping[str, object], claims: Mapping[ClaimKey, ResourceClaim]
) -> Sequence[ResourceClaim]:
    """Return those of ``claims`` that a bind of ``pod`` changes, and the one that it makes, as the binder leaves them.

    ``request`` is what the bind request says of them.
    """
    told = fields({key: request[key] for key in _WRITTEN if key in request}, pod)
    if not told:
        return ()
    spec = structure_as(BindRequestSpec, told)
    allocations = {each.name: each.allocation for each in spec.resource_claim_allocations}
    found: dict[ClaimKey, ResourceClaim] = {}
    for reference in pod.spec.resource_claims:
        key = (pod.metadata.namespace, claim_behind(pod, reference) or "")
        claim = found.get(key) or claims.get(key)
        if reference.name in allocations and claim is not None:
            found[key] = _reserved(claim, pod, allocations[reference.name])
    extended = spec.extended_resource_claim_allocation
    if extended is not None:
        made = extended_claim(pod, extended.device_requests)
        found[key_of(made)] = _reserved(made, pod, extended.allocation)
    return tuple(found.values())


def without_user(claim: ResourceClaim, user: str) -> ResourceClaim:
    """Return a claim that the consumer of a UID uses no more; without users it gives its devices back."""
    status = claim.status
    kept = tuple(each for each in status.reserved_for if each.uid != user)
    allocation = status.allocation if kept else None
    if kept == status.reserved_for:
        return claim
    return attrs.evolve(claim, status=attrs.evolve(status, reserved_for=kept, allocation=allocation))


def _reserved(claim: ResourceClaim, pod: ApiPod, allocation: AllocationResult | None) -> ResourceClaim:
    status, consumer = claim.status, consumer_of(pod)
    others = tuple(each for each in status.reserved_for if each.uid != consumer.uid)
    return attrs.evolve(
        claim,
        status=attrs.evolve(status, reserved_for=(*others, consumer), allocation=status.allocation or allocation),
    )


def claims_after(
    claims: Iterable[ResourceClaim], snapshot: Snapshot, report: CycleReport, made: Iterable[ResourceClaim] = ()
) -> tuple[ResourceClaim, ...]:
    """Return the claims as the next cycle finds them, with those that were ``made`` for extended resources.

    They are reserved for pods that were bound, or stay where they are, and for pods that the snapshot lacks. What
    promised pods were to get is forgotten.
    """
    given: dict[ClaimKey, AllocationResult] = {}
    users: dict[ClaimKey, list[Pod]] = {}
    gone: set[str] = set()
    for row, pod in enumerate(snapshot.pods):
        status = int(report.status[row])
        if not within(status, ACTIVE_ALLOCATED) or status == Status.PIPELINED:
            gone.add(pod.uid)
            continue
        placement = report.details.get(row, {}).get("claims")
        if isinstance(placement, ClaimPlacement):
            for each in placement.claims:
                given[each.claim] = allocation_result(each.devices, each.nodes, "/".join(each.claim))
                users.setdefault(each.claim, []).append(pod)
    found = {key_of(claim): _after(claim, given, users, gone) for claim in claims}
    found |= {key_of(claim): claim for claim in made}
    return tuple(claim for claim in found.values() if claim.status.reserved_for or not _is_extended(claim))


def _is_extended(claim: ResourceClaim) -> bool:
    """Return whether a claim was made for extended resources: it ends with its pod."""
    return claim.metadata.annotations.get(names.EXTENDED_RESOURCE_CLAIM) == "true"


def _after(
    claim: ResourceClaim,
    given: Mapping[ClaimKey, AllocationResult],
    users: Mapping[ClaimKey, list[Pod]],
    gone: set[str],
) -> ResourceClaim:
    key = key_of(claim)
    status = claim.status
    kept = tuple(user for user in status.reserved_for if user.uid not in gone)
    known = {user.uid for user in kept}
    added = tuple(_consumer(pod) for pod in users.get(key, ()) if pod.uid not in known)
    reserved = kept + added
    allocation = (status.allocation or given.get(key)) if reserved else None
    if kept != status.reserved_for and key in given:
        # All its users may have gone, and others come: then it is what they were given.
        allocation = given[key]
    if reserved == status.reserved_for and allocation == status.allocation:
        return claim
    return attrs.evolve(claim, status=attrs.evolve(status, reserved_for=reserved, allocation=allocation))


def _consumer(pod: Pod) -> ResourceClaimConsumer:
    return ResourceClaimConsumer(resource="pods", name=pod.name, uid=pod.uid)
