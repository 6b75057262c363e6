"""Checks of the binder just before it writes, because the API server makes none of them.

A pods/binding request succeeds even if the node is full or does not exist. The scheduler decided on a snapshot; since
then the node may have gone, shrunk or filled, and the pod may be a new one of the same name. Each check is a pure
function from the known state to a reason against the bind, "" if there is none. So a deployment may add its own, for
example one that compares an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import attrs

from kai.api import names
from kai.api.conventions import binding
from kai.api.conventions.amounts import Amount, effective_requests, exact
from kai.api.kinds import title
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.roles.binder.claims import is_wanted, requested_by_claim, untolerated
from kai.roles.binder.sharers import portion_granted

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
