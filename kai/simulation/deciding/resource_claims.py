"""Resource claims between cycles: what was allocated is written down, and stands until the last user is gone."""

from collections.abc import Mapping

import attrs

from kai.api.kinds import key_of
from kai.api.kubernetes.dra import AllocationResult, ResourceClaim, ResourceClaimConsumer
from kai.engine.report import CycleReport
from kai.intake.details import allocation_result
from kai.model.placement import ClaimPlacement
from kai.model.pod import Pod
from kai.model.status import ACTIVE_ALLOCATED, Status, within
from kai.state.snapshot import Snapshot

ClaimKey = tuple[str, str]
"""Namespace and name."""


def claims_after(
    claims: tuple[ResourceClaim, ...], snapshot: Snapshot, report: CycleReport
) -> tuple[ResourceClaim, ...]:
    """Return the claims as the next cycle finds them.

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
    return tuple(_after(claim, given, users, gone) for claim in claims)


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
