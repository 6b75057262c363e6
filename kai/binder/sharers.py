"""Which pods use a shared GPU, and how much of it.

A user of a GPU group is a pod that was bound to the node of the group's reservation and has not ended: one whose grant
names the group. Where a pod has no grant, or none that can be read, the bind request by which it was bound tells it,
which the owner of the pod may not write; only where that is gone as well, and the pod is of our scheduler, its labels
do. What labels say of any other pod counts for nothing, since every owner of a pod can write them.

What an administrator decides about the binder, with the defaults of the peer's flags.

Reads of the binder that its store answers by an index instead of walking over all pods of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec.structs import replace

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.conventions.binding import Grant, grant_of, ordered_grant, shared_gpus
from kai.api.fields import EMPTY, JsonObject
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.plans import Bind, Create, List
from kai.api.scheduling.bind_request import BindRequest, is_for
from kai.basics.parsing import floating, signed
from kai.cluster.port import Api, Index, Store, Term

if TYPE_CHECKING:
    from kai.api.kubernetes.node import Node
    from kai.cluster.requests import Request


@attrs.frozen(kw_only=True)
class PodResources:
    """CPU and memory of reservation pods; what is said about GPUs here is passed over."""

    requests: Mapping[str, str] = EMPTY
    limits: Mapping[str, str] = EMPTY


@attrs.frozen(kw_only=True)
class ReservationSettings:
    """Where and how GPUs that are shared are held by reservation pods."""

    namespace: str = names.RESERVATION_NAMESPACE
    service_account: str = names.RESERVATION_APP
    app_label: str = names.RESERVATION_APP
    image: str = ""
    args: tuple[str, ...] = ()
    """What is given to the image, where it can do other things as well."""
    runtime_class: str = ""
    timeout_seconds: float = 40.0
    fake_gpu_nodes: bool = False
    """Nodes without real GPUs, in tests: the pod only sleeps, and something else names its device."""
    resources: PodResources = PodResources()
    pod_security_context: JsonObject = EMPTY
    container_security_context: JsonObject = EMPTY


@attrs.frozen(kw_only=True)
class BinderSettings:
    """How binds are carried out."""

    scheduler_name: str = names.SCHEDULER_NAME
    node_pool_label: str = names.NODE_POOL
    reservation: ReservationSettings = ReservationSettings()
    concurrency: int = 10
    """Binds under way at once, those not counted that wait for others."""
    first_delay_seconds: float = 1.0
    """The pause after the first attempt at a bind that failed; it doubles with each further one."""
    longest_delay_seconds: float = 300.0
    """The longest pause between two attempts at the same bind."""
    patience: int = 8
    """How often an attempt that was interrupted is started again before it counts as failed."""


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


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _gpu_labels(pod: Pod) -> Iterable[str]:
    labels = pod.metadata.labels
    return tuple(f"{key}={labels[key]}" for key in gpu_sharing.group_labels(labels))


def _namespace(pod: Pod) -> Iterable[str]:
    return (pod.metadata.namespace,)


SHARING: Final = "pods that may use or hold shared GPUs"
UNGRANTED: Final = "pods of ours that run without a grant"
UNBOUND: Final = "pods of ours without a node"


def swept_pods(settings: BinderSettings) -> Index[Pod]:
    """Return an index of the pods that sweeps look at: a few, among those of other schedulers."""

    def keys(pod: Pod) -> Iterable[str]:
        grant = grant_of(pod)
        if (grant is not None and grant.gpus) or gpu_sharing.group_labels(pod.metadata.labels):
            yield SHARING
        if misses_grant(pod, settings):
            yield UNGRANTED
        if pod.spec.scheduler_name == settings.scheduler_name and not pod.spec.node_name:
            yield UNBOUND

    return Index(Pod, f"binder: sweeps for {settings.scheduler_name}", keys)


NODES: Final = Index(Pod, "binder: node", _node)
GPU_GROUPS: Final = Index(Pod, "binder: label of a GPU group", _gpu_labels)
NAMESPACES: Final = Index(Pod, "binder: namespace", _namespace)


@attrs.frozen
class IndexedApi:
    """An `Api` that answers lists of pods on a node, of a GPU group, in a namespace or for a sweep from the store.

    What takes room on a node is sent only if it still fits the pods that the store shows on the node then.
    """

    inner: Api
    store: Store
    swept: Index[Pod]
    """The pods that sweeps look at (`swept_pods`)."""

    def fenced(self, term: Term) -> IndexedApi:
        """Return this, refusing writes once the term is over."""
        return IndexedApi(self.inner.fenced(term), self.store, self.swept)

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - what each request is answered with, it says
        """Return the reply to a request, or a `Refusal`."""
        if isinstance(request, List) and request.cls is Pod and not request.fresh:
            found = self._found(request)
            if found is not None:
                return tuple(pod for pod in found if _matches(request, pod))
        if isinstance(request, Bind | Create) and request.node:
            fits, node = request.fits, request.node
            request = attrs.evolve(request, fits=lambda now, _: fits(now, self.store.find(NODES, node)))
        return await self.inner.perform(request)

    def _found(self, request: List) -> tuple[Pod, ...] | None:
        if request.among:
            return self.store.find(self.swept, request.among)
        if request.node:
            return self.store.find(NODES, request.node)
        for key, value in sorted(request.labels.items()):
            if gpu_sharing.group_labels({key: value}):
                return self.store.find(GPU_GROUPS, f"{key}={value}")
        return self.store.find(NAMESPACES, request.namespace) if request.namespace else None


def _matches(request: List, pod: Pod) -> bool:
    labels = pod.metadata.labels
    return (
        request.namespace in {"", pod.metadata.namespace}
        and request.node in {"", pod.spec.node_name}
        and all(labels.get(key) == value for key, value in request.labels.items())
    )
