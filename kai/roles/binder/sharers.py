"""The users of shared GPUs, the settings and indexes of the binder, and its checks just before it writes.

A user of a GPU group is a pod on the node of the group's reservation that has not ended and whose grant names the
group. For a pod without a readable grant the bind request counts, which the owner of the pod may not write. Only if
that is gone as well, and the pod belongs to our scheduler, its labels count. Labels of other pods count for nothing,
since every owner of a pod can write them.

`BinderSettings` holds the settings of the administrator, with the defaults of KAI-Scheduler's flags.

`IndexedApi` answers the binder's lists of pods from an index of the store, without a scan of all pods.

A check is a pure function from the known state (`Sight`) to a reason against the bind, "" if there is none. So a
deployment may add its own, for example one that compares an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from msgspec.structs import replace

from kai.api import names
from kai.api.conventions import binding, gpu_sharing
from kai.api.conventions.amounts import Amount, effective_requests, exact
from kai.api.conventions.binding import Grant, grant_of, ordered_grant, shared_gpus
from kai.api.fields import EMPTY, JsonObject
from kai.api.kinds import title
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.plans import Bind, Create, List
from kai.api.scheduling.bind_request import BindRequest, is_for
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.basics.parsing import floating, signed
from kai.cluster.port import Api, Index, Store, Term
from kai.roles.binder.claims import is_wanted, requested_by_claim, untolerated

if TYPE_CHECKING:
    from kai.cluster.requests import Request


@attrs.frozen(kw_only=True)
class PodResources:
    """CPU and memory of reservation pods; GPUs in here are ignored."""

    requests: Mapping[str, str] = EMPTY
    limits: Mapping[str, str] = EMPTY


@attrs.frozen(kw_only=True)
class ReservationSettings:
    """Where and how reservation pods hold shared GPUs."""

    namespace: str = names.RESERVATION_NAMESPACE
    service_account: str = names.RESERVATION_APP
    app_label: str = names.RESERVATION_APP
    image: str = ""
    args: tuple[str, ...] = ()
    """Arguments for an image that has other functions as well."""
    runtime_class: str = ""
    timeout_seconds: float = 40.0
    fake_gpu_nodes: bool = False
    """For tests on nodes without real GPUs: the pod only sleeps, and something else sets its device."""
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
    """Limit of concurrent binds; binds that wait for others do not count."""
    first_delay_seconds: float = 1.0
    """Back-off after the first failed attempt at a bind; it doubles with each further one."""
    longest_delay_seconds: float = 300.0
    """Limit of the back-off."""
    patience: int = 8
    """How often an interrupted attempt is repeated before it counts as failed."""


def groups_used(pod: Pod, settings: BinderSettings, request: BindRequest | None = None) -> tuple[str, ...]:
    """Return the GPU groups that a pod uses on its node, sorted; () for a reservation pod, which holds a group.

    ``request`` is the bind request of the pod's name; only a pod that `misses_grant` needs it.
    """
    if not pod.spec.node_name or pod.status.phase in ENDED or pod.metadata.namespace == settings.reservation.namespace:
        return ()
    if request is not None and grant_of(pod) is None and has_bound(request, pod):
        return tuple(sorted(set(request.spec.selected_gpu_groups)))
    return shared_gpus(pod, settings.scheduler_name)


def misses_grant(pod: Pod, settings: BinderSettings) -> bool:
    """Return whether a pod of our scheduler runs without a readable grant: it was lost, or never written."""
    return (
        bool(pod.spec.node_name)
        and pod.spec.scheduler_name == settings.scheduler_name
        and pod.status.phase not in ENDED
        and grant_of(pod) is None
    )


def has_bound(request: BindRequest, pod: Pod) -> bool:
    """Return whether a pod was bound by this request."""
    return is_for(request, pod.metadata.uid) and request.spec.selected_node == pod.spec.node_name


def granted(request: BindRequest) -> Grant:
    """Return the grant of a request: its queue, pool and group, if it names them, and its devices."""
    spec = request.spec
    grant = ordered_grant(request) or Grant()
    account = Grant(queue=grant.queue, pool=grant.pool, group=grant.group)
    if spec.received_resource_type != names.FRACTION:
        return account
    portion, memory = grant.portion, grant.memory
    if portion is None and memory is None:
        portion = portion_granted(request) or None
    return replace(account, gpus=spec.selected_gpu_groups, portion=portion, memory=memory)


def portion_used(pod: Pod, group: str, node: Node, request: BindRequest | None, settings: BinderSettings) -> float:
    """Return the portion of a group's GPU that a pod uses on ``node``, or will use when its bind in flight is done.

    ``request`` is the bind request of the pod's name. The pod's own annotations count only without a grant and a
    request.
    """
    # It is that of an earlier pod of this name.
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
    # During the back-off of a failed request other pods may have the GPU; it is checked again at the retry.
    if request is None or request.status.phase == "Failed" or pod.status.phase in ENDED:
        return 0.0
    return portion_granted(request) or 0.0 if group in request.spec.selected_gpu_groups else 0.0


def portion_granted(request: BindRequest) -> float | None:
    """Return the portion of each GPU that a request grants; None if it is invalid."""
    received = request.spec.received_gpu
    portion = floating(received.portion) if received is not None else None
    return portion if portion is not None and 0 <= portion <= 1 else None


def _wished(pod: Pod, node: Node) -> float:
    """Return the portion of a GPU that a pod requests by annotations; 0 without them."""
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
    """Return an index of the pods that sweeps look at: few among those of other schedulers."""

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

    A write that takes room on a node is sent only if it still fits the pods on the node in the store at that moment.
    """

    inner: Api
    store: Store
    swept: Index[Pod]
    """Index of the pods that sweeps look at (`swept_pods`)."""

    def fenced(self, term: Term) -> IndexedApi:
        """Return an `Api` that refuses writes once the term is over."""
        return IndexedApi(self.inner.fenced(term), self.store, self.swept)

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - the type of the reply depends on the request
        """Return the reply to a request, or a `Refusal`."""
        # A fresh list is asked for where something is to be deleted: it must come from the API server.
        if isinstance(request, List) and request.cls is Pod and not request.fresh:
            found = self._found(request)
            if found is not None:
                return tuple(pod for pod in found if _matches(request, pod))
        if isinstance(request, Bind | Create) and request.node:
            fits, node = request.fits, request.node
            # The request may wait in the window: the pods of the node are read again when its turn comes.
            request = attrs.evolve(request, fits=lambda now, _: fits(now, self.store.find(NODES, node)))
        return await self.inner.perform(request)

    def _found(self, request: List) -> tuple[Pod, ...] | None:
        if request.among:
            return self.store.find(self.swept, request.among)
        if request.node:
            return self.store.find(NODES, request.node)
        # Only labels of GPU groups have an index; by another label the pods of the namespace are filtered.
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


# Portions have two decimal places, so each may be rounded up by half a hundredth; and they are floats.
_ROUNDING: Final = 0.005 + 1e-9


@attrs.frozen(kw_only=True)
class Sight:
    """The known state of a bind at the moment of writing."""

    pod: Pod
    node: Node
    request: BindRequest
    others: tuple[Pod, ...] = ()
    """The other pods on the node."""
    node_pool_label: str = names.NODE_POOL
    kubernetes: KubernetesVersion = NEWEST


Check: TypeAlias = Callable[[Sight], str]


def refuse_pod(pod: Pod) -> str:
    """Return why a pod must not be bound to any node; "" if it may."""
    if pod.metadata.deletion_timestamp is not None:
        return f"{title(pod)} is being deleted"
    if pod.status.phase in ENDED:
        return f"{title(pod)} has ended ({pod.status.phase})"
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return f"{title(pod)} is held back by scheduling gates ({gates})"
    return ""


def refuse_node(sight: Sight) -> str:
    """Return why the node does not accept the pod, however empty it is; "" if it does."""
    node = sight.node
    if node.metadata.deletion_timestamp is not None:
        return f"{title(node)} is being deleted"
    pool = sight.request.metadata.labels.get(sight.node_pool_label)
    found = node.metadata.labels.get(sight.node_pool_label)
    if pool is not None and found != pool:
        return f"{title(node)} is not in node pool {pool}"
    if pool is None and found is not None:
        # As in the scheduler: a request without a pool belongs to the pool whose nodes lack this label.
        return f"{title(node)} is in node pool {found} now, and the bind request is for none"
    taint = untolerated(sight.pod, node)
    if taint is not None:
        return f"{title(node)} has taint {taint.key}:{taint.effect}, which the pod does not tolerate"
    if not is_wanted(sight.pod, node):
        return f"{title(node)} no longer satisfies the node affinity of the pod"
    return ""


def refuse_overfull(sight: Sight) -> str:
    """Return the resource of the node that the pod would over-commit, as text; "" if none.

    Only resources that the pod requests are compared: an over-commitment of another resource does not concern it.
    """
    wanted = {
        name: amount
        for name, amount in effective_requests(sight.pod, sight.kubernetes).items()
        if amount.billionths > 0 and name not in requested_by_claim(sight.request)
    }
    allocatable = sight.node.status.allocatable
    if names.PODS in allocatable:
        # A node has a limit of pods as well, and no pod requests that resource by itself.
        wanted[names.PODS] = _one()
    if not wanted:
        return ""
    held = _held(sight.others, wanted, sight.kubernetes)
    for name in sorted(wanted):
        left = exact(allocatable.get(name, "0")).billionths - held[name].billionths
        if wanted[name].billionths > left:
            free = Amount(max(left, 0), wanted[name].binary).text
            return binding.short_of(title(sight.node), name, free=free, wanted=wanted[name].text)
    return ""


def refuse_reservation(node: Node, others: Iterable[Pod], kubernetes: KubernetesVersion = NEWEST) -> str:
    """Return why no whole GPU of the node can be reserved for sharing; "" if one can."""
    wanted = {names.NVIDIA_GPU: _one()}
    held = _held(others, wanted, kubernetes)[names.NVIDIA_GPU]
    if exact(node.status.allocatable.get(names.NVIDIA_GPU, "0")).billionths - held.billionths < _one().billionths:
        return binding.no_gpu_to_share(title(node))
    return ""


def refuse_share(sight: Sight, group: str, portions: Iterable[float]) -> str:
    """Return why the GPU of a group has no room for the pod's portion; "" if it has.

    ``portions`` are those of the other pods on the GPU.
    """
    own = portion_granted(sight.request)
    if own is None:
        return ""
    held = [portion for portion in portions if portion]
    total = own + sum(held)
    if total > 1 + _ROUNDING * (1 + len(held)):
        return binding.device_overfull(group, title(sight.node), total)
    return ""


def _held(pods: Iterable[Pod], wanted: Mapping[str, Amount], kubernetes: KubernetesVersion) -> dict[str, Amount]:
    """Return how much of the ``wanted`` resources pods hold; each pod that has not ended holds one pod slot."""
    held = {name: Amount() for name in wanted}
    for pod in pods:
        if pod.status.phase in ENDED:
            continue
        # Terminating pods count: the kubelet admits no successor before their containers have ended.
        requests = {**effective_requests(pod, kubernetes), names.PODS: _one()}
        for name in held:
            if name in requests:
                held[name] += requests[name]
    return held


def _one() -> Amount:
    return Amount(10**9)
