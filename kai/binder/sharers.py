"""Which pods use a shared GPU, and how much of it.

A user of a GPU group is a pod that was bound to the node of the group's reservation and has not ended: one whose grant
names the group. Where a pod has no grant, or none that can be read, the bind request by which it was bound tells it,
which the owner of the pod may not write; only where that is gone as well, and the pod is of our scheduler, its labels
do. What labels say of any other pod counts for nothing, since every owner of a pod can write them.
"""

from __future__ import annotations

from msgspec.structs import replace

from kai.api import names
from kai.api.conventions.grants import Grant, grant_of, ordered_grant, shared_gpus
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.bind_request import BindRequest, is_for
from kai.binder.settings import BinderSettings
from kai.numerals import floating, signed


def groups_used(pod: Pod, settings: BinderSettings, request: BindRequest | None = None) -> tuple[str, ...]:
    """Return the GPU groups that a pod uses on its node, sorted; none for a reservation pod, which holds a group.

    ``request`` is the bind request of the pod's name; only a pod that `misses_grant` needs it.
    """
    if not pod.spec.node_name or pod.status.phase in ENDED or pod.metadata.namespace == settings.reservation.namespace:
        return ()
    if request is not None and grant_of(pod) is None and has_bound(request, pod):
        return tuple(sorted(set(request.spec.selected_gpu_groups)))
    return shared_gpus(pod, settings.scheduler_name)


def misses_grant(pod: Pod, settings: BinderSettings) -> bool:
    """Return whether a pod of ours runs without a grant that can be read: it was lost, or never written."""
    return (
        bool(pod.spec.node_name)
        and pod.spec.scheduler_name == settings.scheduler_name
        and pod.status.phase not in ENDED
        and grant_of(pod) is None
    )


def has_bound(request: BindRequest, pod: Pod) -> bool:
    """Return whether it is by a request that a pod has its node."""
    return is_for(request, pod.metadata.uid) and request.spec.selected_node == pod.spec.node_name


def granted(request: BindRequest) -> Grant:
    """Return what a request grants: the account that it tells, if it does, and the devices that it names."""
    spec = request.spec
    told = ordered_grant(request) or Grant()
    account = Grant(queue=told.queue, pool=told.pool, group=told.group)
    if spec.received_resource_type != names.FRACTION:
        return account
    portion, memory = told.portion, told.memory
    if portion is None and memory is None:
        portion = portion_granted(request) or None
    return replace(account, gpus=spec.selected_gpu_groups, portion=portion, memory=memory)


def portion_used(pod: Pod, group: str, node: Node, request: BindRequest | None, settings: BinderSettings) -> float:
    """Return which portion of the GPU of a group on a node a pod uses, or will once the bind under way has ended.

    ``request`` is the bind request of the pod's name. Annotations are asked only where neither a grant nor a request
    says what the pod was given.
    """
    if request is not None and not is_for(request, pod.metadata.uid):
        request = None
    if not pod.spec.node_name:
        return _portion_awaited(pod, group, request)
    if pod.spec.node_name != node.metadata.name or group not in groups_used(pod, settings, request):
        return 0.0
    grant = grant_of(pod)
    if grant is not None and grant.portion is not None:
        return grant.portion
    if grant is not None and grant.memory is not None:
        return _of_memory(grant.memory, node)
    portion = portion_granted(request) if request is not None else None
    return _wished(pod, node) if portion is None else portion


def _portion_awaited(pod: Pod, group: str, request: BindRequest | None) -> float:
    if request is None or request.status.phase == "Failed" or pod.status.phase in ENDED:
        return 0.0
    return portion_granted(request) or 0.0 if group in request.spec.selected_gpu_groups else 0.0


def portion_granted(request: BindRequest) -> float | None:
    """Return the portion of each GPU that a request grants."""
    received = request.spec.received_gpu
    portion = floating(received.portion) if received is not None else None
    return portion if portion is not None and 0 <= portion <= 1 else None


def _wished(pod: Pod, node: Node) -> float:
    """Return the portion of a GPU that a pod asks for by its annotations; 0 if it does not say."""
    annotations = pod.metadata.annotations
    portion = floating(annotations.get(names.GPU_FRACTION, ""))
    if portion is not None and 0 <= portion <= 1:
        return portion
    memory = signed(annotations.get(names.GPU_MEMORY, ""))
    return _of_memory(memory, node) if memory is not None else 0.0


def _of_memory(memory: int, node: Node) -> float:
    size = signed(node.metadata.labels.get(names.NODE_GPU_MEMORY, ""))
    return min(1.0, memory / size) if size and memory > 0 and size > 0 else 0.0
