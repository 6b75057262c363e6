"""Answers the cases of kind `status`: one look of the pod-group or queue controller at one object."""

from collections.abc import Callable
from typing import Any

from kai.api.codec.structuring import kind_of, structure
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import PriorityClass
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.basics.errors import InputError
from kai.roles.controllers import holdings, queue_service
from kai.roles.controllers.holdings import Sum
from tests.doubles.merge_patch import merged


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return the status of the target after the look, unchanged where the look failed."""
    target = case["target"]
    manifest = next(
        manifest
        for manifest in case["objects"]
        if manifest["kind"] == target["kind"]
        and manifest["metadata"]["name"] == target["name"]
        and manifest["metadata"].get("namespace", "") == target.get("namespace", "")
    )
    status = manifest.get("status") or {}
    try:
        objects = [structure(other) for other in case["objects"] if kind_of(other) is not None]
        found = structure(manifest)
        patch = _look(found, lambda cls: [other for other in objects if isinstance(other, cls)])
    except InputError as error:
        return {"status": status, "failed": True, "message": str(error)}
    return {"status": merged(status, patch["status"]) if patch else status}


def _look(target: object, every: Callable[[type[Any]], list[Any]]) -> dict[str, Any] | None:
    if isinstance(target, Queue):
        mine = [each.status.resources_status for each in every(PodGroup) if each.spec.queue == target.metadata.name]
        return queue_service.status_patch(target, queue_service.queue_totals(target, every(Queue), Sum.of(*mine)))
    assert isinstance(target, PodGroup)
    nodes = {node.metadata.name: node for node in every(Node)}
    claims = {(claim.metadata.namespace, claim.metadata.name): claim for claim in every(ResourceClaim)}
    around = holdings.Surroundings(
        node=nodes.get,
        claim=lambda namespace, name: claims.get((namespace, name)),
        priority_classes=tuple(every(PriorityClass)),
    )
    return holdings.status_patch(target, holdings.pod_group_resources(target, every(Pod), around))
