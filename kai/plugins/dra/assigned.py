"""What pods that stand on nodes when a session opens hold through their claims."""

from collections.abc import Iterable, Mapping

from kai.framework import ACTIVE_USED, PodRow, PodRows, SessionView, within
from kai.framework.claims import Claim, ClaimAllocation, ClaimPlacement, ClaimReference
from kai.plugins.dra.accounting import Holding


def assigned_placements(view: SessionView, pods: PodRows) -> Mapping[PodRow, ClaimPlacement]:
    """Return what those of ``pods`` that occupy a node hold."""
    snapshot = view.snapshot
    status, node = snapshot.pod_status, snapshot.pod_node
    present = [PodRow(int(pod)) for pod in pods if within(int(status[pod]), ACTIVE_USED) and node[pod] >= 0]
    owned = _owned(snapshot.catalog.claims.claims.values())
    return {pod: _held(view, pod, owned) for pod in present}


def _held(view: SessionView, pod: PodRow, owned: Mapping[str, list[Claim]]) -> ClaimPlacement:
    """Return the allocated claims of ``pod``: those it refers to, and the one made for its extended resources."""
    snapshot = view.snapshot
    facts, shape = snapshot.pods[pod], snapshot.shapes[snapshot.pod_shape[pod]]
    references = list(shape.constraints.claims)
    named = {reference.claim for reference in references}
    made = [each.name for each in owned.get(facts.uid, ()) if each.name not in named]
    references += [ClaimReference(name="", claim=name) for name in made]
    found: list[ClaimAllocation] = []
    for reference in references:
        claim = snapshot.catalog.claims.claims.get((facts.namespace, reference.claim))
        if claim is not None and claim.allocation is not None:
            found.append(allocation_of(reference, facts.namespace, Holding(claim.allocation, claim.nodes)))
    return ClaimPlacement(claims=tuple(found))


def _owned(claims: Iterable[Claim]) -> Mapping[str, list[Claim]]:
    """Return the claims that were made for each pod, by its uid."""
    out: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.owner_pod:
            out.setdefault(claim.owner_pod, []).append(claim)
    return out


def allocation_of(reference: ClaimReference, namespace: str, holding: Holding) -> ClaimAllocation:
    """Return what a claim of a pod in ``namespace`` holds."""
    claim = (namespace, reference.claim)
    return ClaimAllocation(reference=reference.name, claim=claim, devices=holding.devices, nodes=holding.nodes)
