"""One bind: from a bind request to a pod on its node, and the undo.

The order: reservations of the node are swept; shared GPUs are reserved; volumes, claims and config maps are prepared.
Then, with a lock on the node so that no other bind takes the same room, everything that the API server does not check
is checked once more, and the pod is bound.

Holds: all writes are idempotent, so a plan that was cut off anywhere is simply run again. The binding itself cannot be
repeated. It names the pod's UID and version: a second one is refused, and the pod then shows that the first succeeded.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.conventions.binding import grant_of
from kai.api.kinds import title
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Fits, Plan, Reason, Ref, Refusal, RefusedError, every, find, find_for_sure, locked
from kai.api.scheduling.bind_request import BindRequest
from kai.basics.kubernetes_version import KubernetesVersion, newest
from kai.roles.binder.outcome import BindContext, BindFailureError, BindStep, WithdrawnError, order_for_sure
from kai.roles.binder.reservation import ATTEMPTS, group_key, holds_gpu, leave_groups, node_key, reserve_device
from kai.roles.binder.sharers import (
    BinderSettings,
    Check,
    Sight,
    granted,
    portion_used,
    refuse_node,
    refuse_overfull,
    refuse_pod,
    refuse_reservation,
    refuse_share,
)
from kai.roles.binder.steps import shares_gpu
from kai.roles.binder.sweep import sweep_node

# Annotations that the decision was based on; a change of others does not invalidate it.
_DECIDING: Final = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_DEVICES,
    names.GPU_FRACTION_CONTAINER,
    names.SHARED_GPU_CONFIG_MAP,
)

Reserve: TypeAlias = Callable[["Binder", BindContext, str], Plan[tuple[Pod, str]]]
"""Reserves the GPU of one group: from binder, bind and group to the changed pod and the GPU's identity."""


def reserve_group(binder: Binder, context: BindContext, group: str) -> Plan[tuple[Pod, str]]:
    """Add the pod to a GPU group, if the GPU has room for its portion; return the pod and the GPU's identity.

    Raises: BindFailureError; BadValue; RefusedError.
    """
    return (yield from locked(group_key(group), _reserve_held_group(binder, context, group)))


def _refuse_none(_: BindRequest) -> str:
    return ""


def _named_group(pod: Pod) -> str:
    return pod.metadata.annotations.get(names.POD_GROUP, "")


@attrs.frozen(kw_only=True)
class Binder:
    """How binds are carried out."""

    settings: BinderSettings
    steps: tuple[BindStep, ...]
    checks: tuple[Check, ...] = (refuse_node, refuse_overfull)
    refuse_order: Callable[[BindRequest], str] = _refuse_none
    """Returns why a bind request must not be carried out, whatever its pod and node; "" if it may."""
    reserve: Reserve = reserve_group
    kubernetes: Callable[[], KubernetesVersion] = newest
    """Returns the version of the API server, which decides how requests of pods are counted."""
    group_to_link: Callable[[Pod], str] = _named_group
    """Returns the group whose name the binding writes to the pod; "" for none."""


def bind(binder: Binder, request: BindRequest, pod: Pod, node: Node) -> Plan[Pod]:
    """Bind a pod to its node as requested, and return the pod as it was then.

    Raises: BindFailureError, InputError or RefusedError; then `undo` takes back the preparations.
    """
    context = BindContext(pod=pod, node=node, request=request)
    # First: a reservation without users would count as a GPU in use, and the node would seem full.
    yield from sweep_node(node.metadata.name, binder.settings)
    if shares_gpu(context):
        context = yield from _reserve_all(binder, context)
    for step in binder.steps:
        yield from step.prepare(context)
    # Preparations may take minutes, so only the checks and the write are done under the lock of the node.
    return (yield from locked(node_key(node.metadata.name), _take(binder, context)))


def undo(binder: Binder, request: BindRequest, pod: Pod, node: Node | None) -> Plan[tuple[str, ...]]:
    """Undo the preparations of a bind; return what could not be undone, as texts.

    Source: as in KAI-Scheduler, a step that cannot be undone does not stop the others.
    Raises: RefusedError only if the API server did not answer.
    """
    # The node may be gone by now. Steps undo by the pod and the request alone, so an empty one will do.
    context = BindContext(pod=pod, node=Node() if node is None else node, request=request)
    leftovers = []
    for plan in (*(step.undo(context) for step in binder.steps), *_leave(context)):
        try:
            yield from plan
        except RefusedError as error:
            if error.interrupts:
                raise
            leftovers.append(str(error))
    return tuple(leftovers)


def _leave(context: BindContext) -> tuple[Plan[object], ...]:
    return (leave_groups(context.pod),) if shares_gpu(context) else ()


def bind_annotations(request: BindRequest) -> dict[str, str]:
    """Return the annotations that a pod gets with its binding: its grant, and the predicted NUMA placement."""
    annotations: dict[str, str] = {
        names.RECEIVED_RESOURCE_TYPE: request.spec.received_resource_type,
        names.GRANTED: granted(request).text,
    }
    zones = request.spec.predicted_numa_zones
    if zones:
        placement = [{"zone": zone.zone, "amount": dict(sorted(zone.amount.items()))} for zone in zones]
        annotations[names.NUMA_PREDICTED] = json.dumps(placement, separators=(",", ":"))
    return annotations


# --- Shared GPUs ---------------------------------------------------------------------------------------------------


def _reserve_all(binder: Binder, context: BindContext) -> Plan[BindContext]:
    """Return the bind with the identities of all its GPUs, in the order of the request's groups."""
    if not context.request.spec.selected_gpu_groups:
        raise BindFailureError(f"{title(context.request)}: names no GPU groups for a shared GPU", retryable=False)
    devices = []
    for group in context.request.spec.selected_gpu_groups:
        # One lock at a time, and a group's before its node's: binds that share several GPUs cannot deadlock.
        pod, device = yield from binder.reserve(binder, context, group)
        context = attrs.evolve(context, pod=pod)
        devices.append(device)
    return attrs.evolve(context, devices=tuple(devices))


def _reserve_held_group(binder: Binder, context: BindContext, group: str) -> Plan[tuple[Pod, str]]:
    def gate() -> Plan[Fits]:
        def refuse(node: Node, others: Iterable[Pod]) -> str:
            return refuse_reservation(node, others, binder.kubernetes())

        _, _, fits = yield from _look(context, refuse)
        return fits

    # Before the pod gets the label of the group: from then on other binds count its portion.
    yield from _check_share(binder, context, group)
    node, settings = context.node.metadata.name, binder.settings.reservation
    return (yield from reserve_device(context.pod, node, group, settings, gate))


def _check_share(binder: Binder, context: BindContext, group: str) -> Plan[None]:
    found = yield from every(Pod, node=context.node.metadata.name)
    for devices in (1, 2):  # pods with a bind in flight already carry the label
        key, value = gpu_sharing.group_label(group, devices=devices)
        found += yield from every(Pod, labels={key: value})
    others = {pod.metadata.uid: pod for pod in found if pod.metadata.uid != context.pod.metadata.uid}
    portions = []
    for pod in others.values():
        grant, request = grant_of(pod), None
        if grant is None or not grant.is_whole:
            request = yield from find(Ref(BindRequest, pod.metadata.name, pod.metadata.namespace))
        portions.append(portion_used(pod, group, context.node, request, binder.settings))
    _refuse(refuse_share(_sight(binder, context, ()), group, portions))


# --- Taking the room -----------------------------------------------------------------------------------------------


def _take(binder: Binder, context: BindContext) -> Plan[Pod]:
    """Check once more and bind the pod, while no other bind of this process does so on the same node.

    Returns the pod as it was when it was bound.
    """
    # Each write to the pod, even of a condition, changes its version, so that a binding fails that would be right.
    for _ in range(ATTEMPTS):
        request = yield from _last_look(binder, context)
        reply = yield request
        if not isinstance(reply, Refusal):
            return context.pod
        error = RefusedError(reply, request)
        # Any other refusal had no effect. After these three the pod may be bound, changed or gone.
        if reply.reason not in {Reason.CONFLICT, Reason.NOT_FOUND, Reason.UNKNOWN}:
            raise error
        # A binding whose answer was lost is refused when it is repeated: the pod itself shows whether it is done.
        current = yield from find(Ref.to(context.pod), fresh=True)
        if _is_done(current, context):
            return context.pod
        if reply.reason is Reason.UNKNOWN:
            # The binding may still be in flight. Only the same binding may be retried, and nothing may be undone.
            raise error
        context = attrs.evolve(context, pod=_still_the_same(current, context))
    raise BindFailureError(f"{title(context.pod)}: keeps changing", retryable=True)


def _last_look(binder: Binder, context: BindContext) -> Plan[Bind]:
    """Return the binding of a pod if all checks still pass: the preparations may have taken minutes."""
    yield from _refuse_lost(context.pod)
    yield from _refuse_withdrawn(context)

    def objection(node: Node, others: tuple[Pod, ...]) -> str:
        return _objection(binder, _sight(binder, attrs.evolve(context, node=node), others))

    node, others, fits = yield from _look(context, objection)
    context = attrs.evolve(context, node=node)
    _refuse_unheld(binder, context, others)
    return _binding(binder, context, fits)


def _look(
    context: BindContext, objection: Callable[[Node, tuple[Pod, ...]], str]
) -> Plan[tuple[Node, tuple[Pod, ...], Fits]]:
    """Return the node and the other pods on it, and the same check as a function for the moment of the write.

    Sweeping, preparing and waiting for the lock may have taken minutes.
    Raises: BindFailureError if a check fails.
    """
    ref = Ref(Node, context.node.metadata.name)
    # The store first: each bind reads its node, and only a node that it lacks is worth a call.
    shown = yield from find(ref)
    node = shown if shown is not None else (yield from find(ref, fresh=True))
    if node is None:
        raise BindFailureError(f"{title(context.node)}: does not exist any more", retryable=False)
    others = _without((yield from every(Pod, node=ref.name)), context.pod)
    _refuse(objection(node, others))

    def fits(now: Node | None, pods: tuple[Pod, ...] | None) -> bool:
        beside = others if pods is None else _without(pods, context.pod)
        # The store returns the same objects while they do not change, so identity saves the check.
        if now is shown and len(beside) == len(others) and all(map(operator.is_, beside, others)):
            return True
        current = node if now is shown else now
        return current is not None and not objection(current, beside)

    return node, others, fits


def _without(pods: Iterable[Pod], pod: Pod) -> tuple[Pod, ...]:
    return tuple(each for each in pods if each.metadata.uid != pod.metadata.uid)


def _objection(binder: Binder, sight: Sight) -> str:
    """Return the objection of the first check that fails; "" if all pass."""
    return next((reason for check in binder.checks if (reason := check(sight))), "")


def _refuse_unheld(binder: Binder, context: BindContext, others: tuple[Pod, ...]) -> None:
    """Raise if a GPU has to be reserved again, because its reservation pod was deleted while this bind waited."""
    if not shares_gpu(context) or binder.reserve is not reserve_group:
        return
    namespace = binder.settings.reservation.namespace
    held = {pod.metadata.labels.get(names.GPU_GROUP) for pod in others if holds_gpu(pod, namespace)}
    for group in context.request.spec.selected_gpu_groups:
        if group not in held:
            raise BindFailureError(f"GPU group {group}: its reservation pod does not exist any more", retryable=True)


def _refuse_lost(pod: Pod) -> Plan[None]:
    found = yield from find_for_sure(Ref.to(pod))
    if found is None or found.metadata.uid != pod.metadata.uid:
        raise BindFailureError(f"{title(pod)}: does not exist any more", retryable=False)
    _refuse(refuse_pod(found))


def _refuse_withdrawn(context: BindContext) -> Plan[None]:
    """Raise if the bind request was withdrawn: its node or its queue was deleted, or a user deleted it."""
    if not context.request.metadata.uid:
        return  # an unwritten bind cannot be withdrawn; its attempt begins with a check of its queue
    # The store may lag behind, so after preparations, which may have taken minutes, the API server is read instead.
    found = yield from order_for_sure(Ref.to(context.request), fresh=shares_gpu(context))
    if found is None or found.metadata.uid != context.request.metadata.uid:
        raise WithdrawnError(f"{title(context.request)}: was withdrawn", retryable=False)


def _sight(binder: Binder, context: BindContext, others: tuple[Pod, ...]) -> Sight:
    return Sight(
        pod=context.pod,
        node=context.node,
        request=context.request,
        others=others,
        node_pool_label=binder.settings.node_pool_label,
        kubernetes=binder.kubernetes(),
    )


def _refuse(reason: str) -> None:
    """Raise if there is a reason: the scheduler then has to decide anew."""
    if reason:
        raise BindFailureError(reason, retryable=False)


def _binding(binder: Binder, context: BindContext, fits: Callable[[Node | None, tuple[Pod, ...] | None], bool]) -> Bind:
    pod = context.pod
    # The API server copies annotations of a Binding to the pod in the same write: no pod is bound without its grant.
    annotations = bind_annotations(context.request)
    group = binder.group_to_link(pod)
    if group:
        annotations[names.POD_GROUP] = group  # the store may only overlay it: then this write also persists it
    return Bind(
        ref=Ref.to(pod),
        node=context.node.metadata.name,
        uid=pod.metadata.uid,
        # Fences the binding: after any other write to the pod the API server refuses it.
        resource_version=pod.metadata.resource_version,
        annotations=annotations,
        fits=fits,
    )


def _is_done(current: Pod | None, context: BindContext) -> bool:
    return (
        current is not None
        and current.metadata.uid == context.pod.metadata.uid
        and current.spec.node_name == context.node.metadata.name
    )


def _still_the_same(current: Pod | None, context: BindContext) -> Pod:
    """Return the present pod, if the facts behind the decision are unchanged.

    Raises: BindFailureError if they changed.
    """
    known = context.pod
    if current is None:
        raise BindFailureError(f"{title(known)}: does not exist any more", retryable=False)
    if current.spec.node_name:
        raise BindFailureError(f"{title(known)}: is bound to node {current.spec.node_name} already", retryable=False)
    _refuse(refuse_pod(current))
    before, after = known.metadata, current.metadata
    if (
        before.uid != after.uid
        or current.spec != known.spec
        or dict(before.labels) != dict(after.labels)
        or any(before.annotations.get(key) != after.annotations.get(key) for key in _DECIDING)
        # A group that the store only overlays may be missing in a fresh read: that is no change.
        or after.annotations.get(names.POD_GROUP) not in {None, before.annotations.get(names.POD_GROUP)}
    ):
        raise BindFailureError(f"{title(known)}: was changed since it was decided where to run it", retryable=False)
    return current
