"""Assumptions of a decision where the input is silent."""

from collections.abc import Collection, Iterator

from kai.api.cluster_objects import ClusterObjects
from kai.deciding.explain.phrases import listed
from kai.intake.traits import trait_key


def assumptions(objects: ClusterObjects, queues: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the assumptions about pods without a node, and about queues that are being deleted.

    ``queues``: the queues of the explained jobs; None: of all jobs.
    """
    return (*_config_maps(objects), *_leaving_queues(objects, queues))


def _leaving_queues(objects: ClusterObjects, queues: Collection[str] | None) -> Iterator[str]:
    """Yield the queues that are being deleted while they or their children have jobs.

    An API server refuses new objects in a namespace that is being deleted. No scheduler does so for a queue. A
    finalizer keeps the queue; until it is removed, the jobs keep their shares.
    """
    used = {each.spec.queue for each in objects.pod_groups} if queues is None else {*queues}
    known = {each.metadata.name: each for each in objects.queues}
    above: dict[str, None] = {}
    for name in sorted(used):
        at = name
        while at in known and at not in above:
            above[at] = None
            at = known[at].spec.parent_queue
    for name in sorted(above):
        if known[name].metadata.deletion_timestamp is not None:
            yield f"queue {name}, which is being deleted, stays a while: once it is gone, no more of its jobs start"


def _config_maps(objects: ClusterObjects) -> Iterator[str]:
    """Yield the config maps that pods need, where the input has none at all."""
    if objects.config_maps:
        return
    needed = {
        f"{pod.metadata.namespace}/{name}"
        for pod in objects.pods
        if not pod.spec.node_name
        for name in trait_key(pod, finished=False).config_maps
    }
    if needed:
        yield f"config maps exist that pods need, because the input holds no config map: {listed(sorted(needed))}"


__all__ = ["assumptions"]
