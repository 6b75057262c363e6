"""What the binder looks at itself, last thing before it writes, because the API server looks at none of it.

A pods/binding request puts a pod on a node that is full, or that does not exist, and is answered with success. The
scheduler decided on a snapshot; since then the node may have gone, shrunk or filled, the pod may be another of the same
name. Each check is a function from what is known now to a reason against the bind, empty if there is none. They are
pure, so a deployment may add its own, for example one that compares an epoch.
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
from kai.binder.claims import is_wanted, requested_by_claim, untolerated
from kai.binder.sharers import portion_granted

# Portions are written with two places, so each may be half a hundredth more than what was meant; and they are floats.
_ROUNDING: Final = 0.005 + 1e-9


@attrs.frozen(kw_only=True)
class Sight:
    """What is known of a bind at the moment of writing."""

    pod: Pod
    node: Node
    request: BindRequest
    others: tuple[Pod, ...] = ()
    """The other pods on the node."""
    node_pool_label: str = names.NODE_POOL
    kubernetes: KubernetesVersion = NEWEST


Check: TypeAlias = Callable[[Sight], str]


def refuse_pod(pod: Pod) -> str:
    """Return why a pod must not be bound at all, to whatever node; empty if it may."""
    if pod.metadata.deletion_timestamp is not None:
        return f"{title(pod)} is being deleted"
    if pod.status.phase in ENDED:
        return f"{title(pod)} has ended ({pod.status.phase})"
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return f"{title(pod)} is held back by scheduling gates ({gates})"
    return ""


def refuse_node(sight: Sight) -> str:
    """Return why the node takes no such pod, however empty it is."""
    node = sight.node
    if node.metadata.deletion_timestamp is not None:
        return f"{title(node)} is being deleted"
    pool = sight.request.metadata.labels.get(sight.node_pool_label)
    found = node.metadata.labels.get(sight.node_pool_label)
    if pool is not None and found != pool:
        return f"{title(node)} is not in node pool {pool}"
    if pool is None and found is not None:
        # As the scheduler reads it: an order without a pool is of the one whose nodes have no such label.
        return f"{title(node)} is in node pool {found} now, and the order is for none"
    taint = untolerated(sight.pod, node)
    if taint is not None:
        return f"{title(node)} has taint {taint.key}:{taint.effect}, which the pod does not tolerate"
    if not is_wanted(sight.pod, node):
        return f"{title(node)} no longer satisfies the node affinity of the pod"
    return ""


def refuse_overfull(sight: Sight) -> str:
    """Return which resource of the node the pod would over-fill; empty if none.

    Only what the pod itself asks for is compared: a node that others have over-filled in something else is not its
    concern.
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
    """Return why no whole GPU of the node can be reserved for sharing; empty if one can."""
    wanted = {names.NVIDIA_GPU: _one()}
    held = _held(others, wanted, kubernetes)[names.NVIDIA_GPU]
    if exact(node.status.allocatable.get(names.NVIDIA_GPU, "0")).billionths - held.billionths < _one().billionths:
        return binding.no_gpu_to_share(title(node))
    return ""


def refuse_share(sight: Sight, group: str, portions: Iterable[float]) -> str:
    """Return why the GPU of a group cannot take the pod's portion too; empty if it can.

    `portions` are those of the other pods that use it.
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
    """Return what pods hold of the wanted resources; each that has not ended holds one place."""
    held = {name: Amount() for name in wanted}
    for pod in pods:
        if pod.status.phase in ENDED:
            continue
        requests = {**effective_requests(pod, kubernetes), names.PODS: _one()}
        for name in held:
            if name in requests:
                held[name] += requests[name]
    return held


def _one() -> Amount:
    return Amount(10**9)
