"""Bind requests: which of them still stand, and by that where their pods are going."""

from collections.abc import Collection, Iterable, Sequence

import attrs

from kai.api.bindrequest import BindRequest
from kai.api.dra import AllocationResult
from kai.api.objects import ClusterObjects
from kai.intake import selection
from kai.intake.claims import allocated
from kai.intake.nodes import is_wanted
from kai.intake.settings import IntakeSettings
from kai.model.claim import Claim, ClaimCatalog
from kai.model.pod import Constraints, Pod


def has_failed(request: BindRequest) -> bool:
    """Say whether the binder gave up; below its limit a failed request is tried again."""
    if request.status.phase != "Failed":
        return False
    limit = request.spec.backoff_limit
    return limit is None or request.status.failed_attempts >= limit


def _is_stale(request: BindRequest, nodes: Collection[str], settings: IntakeSettings) -> bool:
    """Say whether the request is ours and its node is gone.

    One for another scheduler's node stands, lest two bind one pod.
    """
    return request.spec.selected_node not in nodes and settings.owns(request.metadata.labels)


def live_bind_requests(
    requests: Collection[BindRequest], nodes: Collection[str], settings: IntakeSettings
) -> Sequence[BindRequest]:
    """Return the requests that stand, by namespace and name; of several for one pod the last counts."""
    live = [each for each in requests if not has_failed(each) and not _is_stale(each, nodes, settings)]
    return sorted(live, key=lambda each: (each.metadata.namespace, each.metadata.name))


def expired_bind_requests(objects: ClusterObjects, settings: IntakeSettings) -> tuple[BindRequest, ...]:
    """Return the requests that no snapshot counts any more, because they failed or their node is gone.

    The caller should delete them.

    Source: the peer deletes both while it takes its snapshot.
    """
    if not objects.bind_requests:
        return ()
    nodes = {node.metadata.name for node in objects.nodes if is_wanted(node, settings)}
    return tuple(
        request for request in objects.bind_requests if has_failed(request) or _is_stale(request, nodes, settings)
    )


def assumed_claims(claims: ClaimCatalog, requests: Iterable[tuple[Pod, Constraints, BindRequest]]) -> ClaimCatalog:
    """Return the catalog in which the claims of pods that are being bound have what the pod's bind request gives them.

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
    if claim.allocation is not None:
        return claim
    return attrs.evolve(claim, allocation=allocated(allocation), nodes=selection.node_terms(allocation.node_selector))
