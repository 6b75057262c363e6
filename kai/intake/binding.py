"""Bind requests: which of them still stand, and by that where their pods are going."""

from collections.abc import Collection, Mapping

from kai.api.bindrequest import BindRequest
from kai.api.objects import ClusterObjects
from kai.intake.settings import IntakeSettings


def has_failed(request: BindRequest) -> bool:
    """Say whether the binder gave up; below its limit a failed request is tried again."""
    if request.status.phase != "Failed":
        return False
    limit = request.spec.backoff_limit
    return limit is None or request.status.failed_attempts >= limit


def _is_stale(request: BindRequest, nodes: Collection[str], settings: IntakeSettings) -> bool:
    """Say whether the request is ours and its node is gone. One for another scheduler's node stands, lest two bind one pod."""
    return request.spec.selected_node not in nodes and settings.owns(request.metadata.labels)


def live_bind_requests(
    requests: Collection[BindRequest], nodes: Collection[str], settings: IntakeSettings
) -> Mapping[tuple[str, str], BindRequest]:
    """Return the requests that stand, by namespace and name of their pod. Of several for one pod the last by name counts."""
    live: dict[tuple[str, str], BindRequest] = {}
    for request in sorted(requests, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        if not has_failed(request) and not _is_stale(request, nodes, settings):
            live[request.metadata.namespace, request.spec.pod_name or request.metadata.name] = request
    return live


def expired_bind_requests(objects: ClusterObjects, settings: IntakeSettings) -> tuple[BindRequest, ...]:
    """Return the requests that no snapshot counts any more, because they failed or their node is gone; they should be deleted.

    Source: the peer deletes both while it takes its snapshot.
    """
    nodes = {node.metadata.name for node in objects.nodes if settings.owns(node.metadata.labels)}
    return tuple(
        request for request in objects.bind_requests if has_failed(request) or _is_stale(request, nodes, settings)
    )
