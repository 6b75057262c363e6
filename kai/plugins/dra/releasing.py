"""Which claims are being released: they hold devices still, but every pod that uses them is terminating, ended or gone.

Kubernetes frees a claim a moment after its last user is gone, and a pod may take its time to terminate. Until then the
devices are as good as those of a pod that was evicted in this session: they are promised, and nothing is bound to them.
A terminating pod that is not expected to leave any more holds what it has, as it holds its place.
"""

from collections.abc import Iterable, Mapping

from kai.framework import PodRow, PodRows, SessionView, Status, status_mask, within
from kai.framework.claims import Claim, ClaimPlacement
from kai.plugins.dra.accounting import ClaimKey

_GOING = status_mask(Status.RELEASING, Status.SUCCEEDED, Status.FAILED)


def releasing_claims(
    view: SessionView, assigned: Mapping[PodRow, ClaimPlacement], concerned: PodRows
) -> frozenset[ClaimKey]:
    """Return the allocated claims whose users, at least one, are all on their way out or gone.

    ``assigned`` is what pods on nodes hold, ``concerned`` are all pods that refer to claims.

    Cost: a look at each claim; if some have no active user on a node, at each concerned pod; if they name pods that are
        none of these, at each pod.
    """
    status = view.snapshot.pod_status
    kept = {
        allocation.claim
        for pod, placement in assigned.items()
        if not within(int(status[pod]), _GOING)
        for allocation in placement.claims
    }
    users = {
        key: found
        for key, claim in view.snapshot.catalog.claims.claims.items()
        if claim.allocation is not None and key not in kept and not claim.has_other_users and (found := _users(claim))
    }
    if not users:
        return frozenset()
    staying = _staying(view, frozenset().union(*users.values()), concerned)
    return frozenset(key for key, uids in users.items() if uids.isdisjoint(staying))


def _users(claim: Claim) -> frozenset[str]:
    return frozenset(filter(None, (*claim.reserved_for, claim.owner_pod)))


def _staying(view: SessionView, uids: frozenset[str], concerned: PodRows) -> frozenset[str]:
    """Return those of the pods ``uids`` that exist and are not on their way out."""
    pods, status = view.snapshot.pods, view.snapshot.pod_status

    def among(rows: Iterable[int], wanted: frozenset[str]) -> Mapping[str, int]:
        return {uid: row for row in rows if (uid := pods[row].uid) in wanted}

    found = among(concerned.tolist(), uids)
    missing = uids - found.keys()
    if missing:
        found = {**found, **among(range(len(pods)), missing)}
    return frozenset(uid for uid, row in found.items() if not within(int(status[row]), _GOING))
