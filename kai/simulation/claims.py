"""Resource claims between cycles: what is allocated stays so until the last pod that uses it is gone."""

import attrs

from kai.api.dra import ResourceClaim
from kai.framework.cycle import CycleReport
from kai.model.status import ACTIVE_ALLOCATED, within
from kai.state.snapshot import Snapshot


def claims_after(
    claims: tuple[ResourceClaim, ...], snapshot: Snapshot, report: CycleReport
) -> tuple[ResourceClaim, ...]:
    """Return the claims as the next cycle finds them: reserved only for pods that stay where they are."""
    staying = {pod.uid for row, pod in enumerate(snapshot.pods) if within(int(report.status[row]), ACTIVE_ALLOCATED)}
    return tuple(_after(claim, staying) for claim in claims)


def _after(claim: ResourceClaim, staying: set[str]) -> ResourceClaim:
    kept = tuple(user for user in claim.status.reserved_for if user.uid in staying)
    if kept == claim.status.reserved_for:
        return claim
    allocation = claim.status.allocation if kept else None
    return attrs.evolve(claim, status=attrs.evolve(claim.status, reserved_for=kept, allocation=allocation))
