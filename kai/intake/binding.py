"""Bind requests: which of them still stand, and by that where their pods are going."""

from collections.abc import Collection, Iterable, Sequence

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.grants import ordered_grant
from kai.api.kinds import key_of
from kai.api.kubernetes.dra import AllocationResult
from kai.api.kubernetes.node import Node
from kai.api.plans import Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.queue import Queue
from kai.intake import selection
from kai.intake.claims import allocated
from kai.intake.nodes import is_wanted
from kai.intake.settings import IntakeSettings
from kai.model.claim import Claim, ClaimCatalog
from kai.model.pod import Constraints, Pod


def has_failed(request: BindRequest) -> bool:
    """Return whether the binder gave up; below its limit a failed request is tried again."""
    if request.status.phase != "Failed":
        return False
    limit = request.spec.backoff_limit
    return limit is None or request.status.failed_attempts >= limit


def _is_stale(request: BindRequest, nodes: Collection[str], settings: IntakeSettings) -> bool:
    """Return whether the request is ours and its node is gone.

    One for another scheduler's node stands, lest two bind one pod.
    """
    return request.spec.selected_node not in nodes and settings.owns(request.metadata.labels)


def live_bind_requests(
    requests: Collection[BindRequest], nodes: Collection[str], settings: IntakeSettings
) -> Sequence[BindRequest]:
    """Return the requests that stand, by namespace and name; of several for one pod the last counts."""
    live = [each for each in requests if not has_failed(each) and not _is_stale(each, nodes, settings)]
    return sorted(live, key=key_of)


@attrs.frozen
class ExpiredRequest:
    """A bind request that is to be deleted."""

    request: BindRequest
    lost: Ref[Node] | Ref[Queue] | None = None
    """What it needs and seems to be gone: its node, or its queue; None if the binder gave up."""


def expired_bind_requests(objects: ClusterObjects, settings: IntakeSettings) -> tuple[ExpiredRequest, ...]:
    """Return the requests that are over: the binder gave up, the node is gone, or, before the bind, the queue is.

    No snapshot counts one that failed or whose node is gone. The caller should delete them, once it is sure that what
    seems to be gone is.

    Source: the peer deletes those of the first two kinds while it takes its snapshot. It carries out an order of a
    queue that was deleted since.
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
    """Return the queue on whose account a pod is to be bound; empty if the pod is bound, or the queue is not told."""
    if request.status.phase == "Succeeded" or not settings.owns(request.metadata.labels):
        return ""
    told = ordered_grant(request)
    return "" if told is None else told.queue


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
