"""Reservation pods hold shared GPUs: one pod that requests one whole GPU, for each shared GPU.

The scheduler names a shared GPU by a GPU group, an opaque text, before it is known which device that is. The first bind
into a group creates a reservation pod on the node. The device plugin gives it a GPU, its program writes the identity of
the GPU into an annotation, and from then on the group stands for that GPU. Pods of the group carry its label.

Holds: a group has one reservation pod, because the pod's name derives from node and group, and names are unique in the
API server. Binds into one group are serialized within the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.conventions import gpu_sharing
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.plans import (
    Fits,
    Plan,
    Reason,
    Ref,
    RefusedError,
    create,
    delete,
    every,
    find,
    locked,
    patch,
    wait_until,
)
from kai.roles.binder.outcome import BindFailureError

if TYPE_CHECKING:
    from kai.api.kubernetes.meta import ObjectMeta
    from kai.api.kubernetes.node import Toleration
    from kai.roles.binder.sharers import PodResources, ReservationSettings

_NAME_PREFIX: Final = "gpu-reservation"
_CONTAINER: Final = "resource-reservation"

Gate: TypeAlias = Callable[[], Plan[Fits]]
"""Checks that the node has an unreserved GPU, and returns the same check for the moment of the write; called under the
lock of the node. Raises BindFailureError if there is none."""

ATTEMPTS: Final = 5
"""How often a write that takes room on a node is tried while the objects that it depends on keep changing."""


def group_key(group: str) -> str:
    """Return the key of the lock on a group's members and reservation."""
    return f"gpu group {group}"


def node_key(node: str) -> str:
    """Return the key of the lock on a node from the check of its room to the write that takes it."""
    return f"node {node}"


def reservation_name(node: str, group: str) -> str:
    """Return the name of the reservation pod of a group on a node."""
    # Derived and not drawn: a second create after a lost answer meets the first pod. A digest, since node and group may
    # be longer than a name.
    return f"{_NAME_PREFIX}-{hashlib.sha256(f'{node}/{group}'.encode()).hexdigest()[:16]}"


def holds_gpu(pod: Pod, namespace: str) -> bool:
    """Return whether a pod is a reservation pod, which are all in ``namespace``, and holds its GPU."""
    return pod.metadata.namespace == namespace and _holds_device(pod)


def reservation_pod(
    settings: ReservationSettings,
    *,
    node: str,
    group: str,
    tolerations: Iterable[Toleration] = (),
) -> dict[str, Any]:
    """Return the manifest of a reservation pod, with its node already set, so that no scheduler handles it.

    ``tolerations`` are those of the pod that it is created for.
    """
    container: dict[str, Any] = {
        "name": _CONTAINER,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "env": [_from_field("POD_NAME", "metadata.name"), _from_field("POD_NAMESPACE", "metadata.namespace")],
        "resources": gpu_resources(settings.resources),
    }
    if settings.args:
        container["args"] = list(settings.args)
    if settings.container_security_context:
        container["securityContext"] = dict(settings.container_security_context)
    if settings.fake_gpu_nodes:
        container |= {"image": "ubuntu", "args": ["sleep", "infinity"]}
    spec: dict[str, Any] = {
        "nodeName": node,
        "serviceAccountName": settings.service_account,
        "containers": [container],
        "tolerations": [unstructure(toleration) for toleration in tolerations],
        "runtimeClassName": settings.runtime_class,
        "securityContext": dict(settings.pod_security_context),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": reservation_name(node, group),
            "namespace": settings.namespace,
            "labels": {names.APP: settings.app_label, names.GPU_GROUP: group},
            # An evicted reservation costs its users their pods: a sweep deletes pods on a GPU that nothing holds.
            "annotations": {names.KARPENTER_DO_NOT_DISRUPT: "true"},
        },
        # A node in the spec needs no binding, so no scheduler takes up this pod.
        "spec": {key: value for key, value in spec.items() if value},
        "status": {"conditions": [{"type": names.POD_SCHEDULED_CONDITION, "status": "True"}]},
    }


def gpu_resources(more: PodResources) -> dict[str, dict[str, str]]:
    """Return the resources of a reservation pod: one GPU, whatever ``more`` has for GPUs."""
    return {
        "limits": {**more.limits, names.NVIDIA_GPU: "1"},
        "requests": {**more.requests, names.NVIDIA_GPU: "1"},
    }


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


# --- Reserving -----------------------------------------------------------------------------------------------------


def reserve_device(
    pod: Pod,
    node: str,
    group: str,
    settings: ReservationSettings,
    gate: Gate | None = None,
) -> Plan[tuple[Pod, str]]:
    """Return the pod, now a member of a GPU group, and the identity of the group's GPU.

    Creates the reservation pod if there is none, and waits until it reports its GPU. The caller holds the group's lock.

    Raises: BindFailureError if no GPU is available; BadValue if the pod's count of devices is invalid; RefusedError.
    """
    devices = gpu_sharing.device_count(pod.metadata.annotations)
    device = yield from _device_of(pod, node, group, settings, gate)
    key, value = gpu_sharing.group_label(group, devices=devices)
    if pod.metadata.labels.get(key) != value:
        labelled = {"metadata": {"labels": {key: value}}}
        # The pod returns with its new version, which the binding has to name.
        pod = yield from patch(Ref.to(pod), labelled, uid=pod.metadata.uid)
    return pod, device


def leave_groups(pod: Pod) -> Plan[Pod]:
    """Remove a pod from all GPU groups, and return it.

    Raises: RefusedError.
    """
    keys = gpu_sharing.group_labels(pod.metadata.labels)
    if not keys:
        return pod
    # Null in a merge patch removes a label.
    body = {"metadata": {"labels": dict.fromkeys(keys)}}
    return (yield from patch(Ref.to(pod), body, uid=pod.metadata.uid))


def _device_of(
    pod: Pod,
    node: str,
    group: str,
    settings: ReservationSettings,
    gate: Gate | None,
) -> Plan[str]:
    labels = {names.GPU_GROUP: group}
    existing = yield from every(Pod, namespace=settings.namespace, labels=labels)
    usable = [known for known in existing if _holds_device(known)]
    # The store may still show a deleted pod. A pod bound to a GPU without a reservation would be deleted by a sweep.
    held = (yield from find(Ref.to(usable[0]), fresh=True)) if usable else None
    if held is not None and _holds_device(held):
        return (yield from _device_of_existing(held, node, group, settings))
    made = yield from _make(pod, node, group, settings, gate)
    device = yield from _reported_device(made, settings)
    if device is None:
        # Without an identity the GPU serves no pod; the next bind into the group creates a new reservation pod.
        yield from delete(Ref.to(made), uid=made.metadata.uid, grace_seconds=0)
        raise _unreported(made)
    return device


def _device_of_existing(reservation: Pod, node: str, group: str, settings: ReservationSettings) -> Plan[str]:
    """Return the GPU of a group whose reservation pod exists, perhaps only just."""
    where = reservation.spec.node_name
    if where and where != node:
        raise BindFailureError(f"GPU group {group} is on node {where}, not on {node}", retryable=False)
    device = yield from _reported_device(reservation, settings)
    if device is None:
        raise _unreported(reservation)
    return device


def _make(
    pod: Pod,
    node: str,
    group: str,
    settings: ReservationSettings,
    gate: Gate | None,
) -> Plan[Pod]:
    """Create the reservation pod of a group, and return it.

    It may exist although no list shows it: because of a lagging store, or an attempt whose answer was lost.
    """
    manifest = reservation_pod(settings, node=node, group=group, tolerations=pod.spec.tolerations)
    ref = Ref(Pod, manifest["metadata"]["name"], settings.namespace)
    if gate is None:
        made = yield from create(ref, manifest)
    else:
        made = yield from locked(node_key(node), _make_if(gate, ref, node, manifest))
    if made is not None:
        return made
    existing = yield from find(ref, fresh=True)
    if existing is not None and _holds_device(existing):
        return existing
    # A pod that has ended still occupies the name that the next reservation of this group needs.
    if existing is not None and not _is_ending(existing.metadata):
        yield from delete(ref, uid=existing.metadata.uid, grace_seconds=0)
    raise BindFailureError(f"reservation pod {settings.namespace}/{ref.name} is going away", retryable=True)


def _make_if(gate: Gate, ref: Ref[Pod], node: str, manifest: Mapping[str, Any]) -> Plan[Pod | None]:
    """Return the created pod, or None if one of its name exists; called under the lock of the node.

    If the create was held back because the node changed, another process may have created the pod; if not, the gate
    checks again. If the answer was lost, the pod is read before the lock is released, so that the next bind counts it.
    """
    attempts = 0
    while True:
        fits = yield from gate()
        try:
            return (yield from create(ref, manifest, node=node, fits=fits))
        except RefusedError as error:
            attempts += 1
            if error.reason is Reason.CONFLICT:
                if (yield from find(ref)) is not None:
                    return None
                if attempts < ATTEMPTS:
                    continue
            found = (yield from find(ref, fresh=True)) if error.is_unknown else None
            if found is None:
                raise
            return found


def _reported_device(reservation: Pod, settings: ReservationSettings) -> Plan[str | None]:
    """Return the GPU of a reservation pod, after waiting for its report; None if it reports none."""
    known: Pod | None = reservation
    if not _has_settled(reservation):
        known = yield from wait_until(Ref.to(reservation), _has_settled, seconds=settings.timeout_seconds)
        if known is not None and _holds_device(known):
            # The report came by the watch, which may lag: the pod may be gone by now.
            known = yield from find(Ref.to(reservation), fresh=True)
    if known is None or not _holds_device(known):
        return None
    return known.metadata.annotations.get(names.RESERVED_GPU) or None


def _has_settled(reservation: Pod) -> bool:
    """Return whether the wait for a reservation pod is over: it has reported its GPU, or never will."""
    return bool(reservation.metadata.annotations.get(names.RESERVED_GPU)) or not _holds_device(reservation)


def _holds_device(reservation: Pod) -> bool:
    """Return whether a reservation pod has its GPU, or will get one."""
    return reservation.status.phase not in ENDED and not _is_ending(reservation.metadata)


def _is_ending(metadata: ObjectMeta) -> bool:
    return metadata.deletion_timestamp is not None


def _unreported(reservation: Pod) -> BindFailureError:
    where = f"{reservation.metadata.namespace}/{reservation.metadata.name}"
    message = f"failed waiting for GPU reservation pod to allocate: {where} has not reported its GPU"
    return BindFailureError(message, retryable=True)
