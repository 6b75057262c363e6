"""Keeps reservations and their users consistent after a crash, a deleted pod or a lost request, and restores grants.

There are three kinds of leftovers. A reservation pod without users blocks a GPU; it is deleted, unless an unfinished
bind request still claims it. A running pod whose reservation is gone uses a GPU that the cluster considers free; it is
deleted, so that its owner creates another. A bind request marks a pod without a node as bound, as after a restore of
etcd from a backup; it is deleted, because while it exists the scheduler does not decide on the pod.

Deletions are destructive, so the store only gives a suspicion. Before a deletion the API server is read with a quorum,
and the deletion names the UID that was read. To leave a group alone the store is enough, and takes no lock: each bind
sweeps its node, and would wait there for all binds that are getting a GPU of that node.

Source: KAI-Scheduler decides on its cache, and finds the groups of a finished pod on several devices by a label that
such pods never carry. It also counts each pod with the label as a user, wherever it runs, and no pod that lost it.

A grant is an annotation of the pod, which its owner may edit. With the admission policies only kai may write it;
without them the owner may delete or replace it. `restore_grants` then writes it again from the bind request, while
that exists, so that all readers of the pod agree. A pod that was bound without a bind request has no second record: it
is read by its labels. That gives no GPU away, since it has whole ones or none, and those are in its spec.

Source: KAI-Scheduler has no grants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.conventions.binding import Grant, ordered_grant, shared_gpus
from kai.api.kinds import key_of, title
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.plans import Plan, Ref, RefusedError, delete, every, find, locked, patch
from kai.api.scheduling.bind_request import CLOSED, BindRequest, is_for
from kai.api.values import BadValue
from kai.roles.binder.reservation import group_key
from kai.roles.binder.sharers import (
    SHARING,
    UNBOUND,
    UNGRANTED,
    BinderSettings,
    granted,
    groups_used,
    has_bound,
    misses_grant,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


def sweep_everything(settings: BinderSettings) -> Plan[tuple[str, ...]]:
    """Delete mismatched reservations and users everywhere, and return the names of the deleted pods.

    Raises: RefusedError.
    """
    pods = yield from every(Pod, among=SHARING)
    return (yield from _sweep_groups(pods, settings))


def sweep_requests(settings: BinderSettings) -> Plan[tuple[str, ...]]:
    """Delete bind requests that are marked as bound although their pod has no node, and return their names.

    Cost: a pass over the waiting pods and the requests; two reads for each suspected request.
    Raises: RefusedError.
    """
    pods = yield from every(Pod, among=UNBOUND)
    waiting = {
        key_of(pod) for pod in pods if not pod.spec.node_name and pod.spec.scheduler_name == settings.scheduler_name
    }
    if not waiting:
        return ()
    requests = yield from every(BindRequest)
    deleted = []
    for request in requests:
        where = (request.metadata.namespace, request.spec.pod_name)
        if request.status.phase != "Succeeded" or where not in waiting:
            continue
        # Read the request first: it is closed after its pod is bound, so a pod read later without a node was never
        # bound.
        known = yield from find(Ref.to(request), fresh=True)
        pod = yield from find(Ref(Pod, request.spec.pod_name, request.metadata.namespace), fresh=True)
        if known is None or known.status.phase != "Succeeded" or pod is None or pod.spec.node_name:
            continue
        if not is_for(known, pod.metadata.uid):
            continue  # it belongs to an earlier pod of this name, and does not block the scheduler
        if (yield from delete(Ref.to(known), uid=known.metadata.uid)):
            deleted.append(f"{known.metadata.namespace}/{known.metadata.name}")
    return tuple(deleted)


def sweep_node(node: str, settings: BinderSettings) -> Plan[tuple[str, ...]]:
    """Delete mismatched reservations and users on a node, and return the names of the deleted pods.

    Raises: RefusedError.
    """
    pods = yield from every(Pod, node=node)
    return (yield from _sweep_groups(pods, settings))


def sweep_group(group: str, settings: BinderSettings, nodes: Iterable[str] = ()) -> Plan[tuple[str, ...]]:
    """Delete mismatched reservations and users of a group, and return the names of the deleted pods.

    Users are looked up on the node of the reservation, and on ``nodes``.

    Raises: RefusedError.
    """
    where = frozenset(nodes)
    if not (yield from _is_suspected(group, settings, where)):
        return ()
    return (yield from locked(group_key(group), _sweep_held_group(group, settings, where)))


def _is_suspected(group: str, settings: BinderSettings, nodes: frozenset[str]) -> Plan[bool]:
    """Return whether a pod would be deleted if the store were current."""
    members = yield from _members(group, settings, nodes, fresh=False)
    if members.unreserved:
        return True
    return bool(members.unused) and not (yield from _is_awaited(group, fresh=False))


def _sweep_held_group(group: str, settings: BinderSettings, nodes: frozenset[str]) -> Plan[tuple[str, ...]]:
    if not (yield from _is_suspected(group, settings, nodes)):
        return ()  # a bind or another sweep that held the lock has repaired it
    # Read the requests first: a pod whose request has finished by then shows its node in the later read.
    spared = yield from _is_awaited(group, fresh=True)
    members = yield from _members(group, settings, nodes, fresh=True)
    if members.unreserved:
        return (yield from _delete_all(members.unreserved))
    return () if spared else (yield from _delete_all(members.unused, grace_seconds=0))


@attrs.frozen(kw_only=True)
class _Members:
    """The reservation pods and the living users of a group."""

    reservations: tuple[Pod, ...]
    users: tuple[Pod, ...]

    @property
    def unreserved(self) -> tuple[Pod, ...]:
        """The running users, if no reservation pod holds their GPU; a pod that has ended holds none."""
        # A terminating reservation pod counts: the device plugin gets the GPU back only when its container has ended.
        if any(pod.status.phase not in ENDED for pod in self.reservations):
            return ()
        return tuple(user for user in self.users if user.status.phase == "Running")

    @property
    def unused(self) -> tuple[Pod, ...]:
        """The reservation pods without users on their nodes."""
        # By node: a user on another node does not use the GPU that this pod holds.
        used = {user.spec.node_name for user in self.users}
        return tuple(pod for pod in self.reservations if pod.spec.node_name not in used)


def _members(group: str, settings: BinderSettings, nodes: frozenset[str], *, fresh: bool) -> Plan[_Members]:
    namespace, (key, value) = settings.reservation.namespace, gpu_sharing.group_label(group, devices=1)
    reservations = yield from every(Pod, namespace=namespace, labels={key: value}, fresh=fresh)
    where = nodes | {pod.spec.node_name for pod in reservations}
    if not reservations:
        labelled = yield from every(Pod, labels={key: value})
        several_key, several = gpu_sharing.group_label(group, devices=2)
        labelled += yield from every(Pod, labels={several_key: several})
        where |= {pod.spec.node_name for pod in labelled}
    users: list[Pod] = []
    for node in sorted(where - {""}):
        found = yield from every(Pod, node=node, fresh=fresh)
        for pod in found:
            request = (yield from _request_of(pod, fresh=fresh)) if misses_grant(pod, settings) else None
            if group in groups_used(pod, settings, request):
                users.append(pod)
    return _Members(reservations=reservations, users=tuple(users))


def _request_of(pod: Pod, *, fresh: bool) -> Plan[BindRequest | None]:
    return (yield from find(Ref(BindRequest, pod.metadata.name, pod.metadata.namespace), fresh=fresh))


def _is_awaited(group: str, *, fresh: bool) -> Plan[bool]:
    """Return whether an unfinished bind request claims the group.

    A failed request in back-off does not count: meanwhile others may have the GPU. When it is retried, its pod becomes
    a member of the group, until the attempt is undone.
    """
    requests = yield from every(BindRequest, fresh=fresh)
    for request in requests:
        if group in request.spec.selected_gpu_groups:
            if request.status.phase not in CLOSED:
                return True
            if request.status.phase == "Failed" and (yield from _is_tried_again(request, group, fresh=fresh)):
                return True
    return False


def _is_tried_again(request: BindRequest, group: str, *, fresh: bool) -> Plan[bool]:
    pod = yield from find(Ref(Pod, request.spec.pod_name, request.metadata.namespace), fresh=fresh)
    if pod is None or not is_for(request, pod.metadata.uid) or pod.spec.node_name:
        return False
    return group in gpu_sharing.gpu_groups(pod.metadata.labels)


def _sweep_groups(pods: Iterable[Pod], settings: BinderSettings) -> Plan[tuple[str, ...]]:
    nodes: dict[str, set[str]] = {}
    for pod in pods:
        if pod.metadata.namespace == settings.reservation.namespace:
            groups = gpu_sharing.gpu_groups(pod.metadata.labels)
        else:
            groups = groups_used(pod, settings)
        for group in groups:
            nodes.setdefault(group, set()).add(pod.spec.node_name)
    deleted: tuple[str, ...] = ()
    for group in sorted(nodes):
        deleted += yield from sweep_group(group, settings, nodes[group])
    return deleted


def _delete_all(pods: Iterable[Pod], grace_seconds: int | None = None) -> Plan[tuple[str, ...]]:
    deleted = []
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        if (yield from delete(Ref.to(pod), uid=pod.metadata.uid, grace_seconds=grace_seconds)):
            deleted.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return tuple(deleted)


def groups_to_sweep(before: Pod | None, after: Pod | None, scheduler_name: str) -> tuple[str, ...]:
    """Return the GPU groups that may have lost a user with the change of a pod: it ended, or was deleted.

    A side is None where the pod did not exist.
    """
    pod = after or before
    if pod is None or pod.spec.scheduler_name != scheduler_name:
        return ()
    ended = after is None or after.status.phase in ENDED
    was_alive = before is None or before.status.phase not in ENDED
    if not ended or (after is not None and not was_alive):
        return ()
    sides = [side for side in (before, after) if side is not None]
    labelled = {group for side in sides for group in gpu_sharing.gpu_groups(side.metadata.labels)}
    return tuple(sorted(labelled.union(*(shared_gpus(side, scheduler_name) for side in sides))))


@attrs.frozen(kw_only=True)
class Lost:
    """A pod whose grant was lost."""

    uid: str
    message: str
    """The pod, the value found and the value expected."""
    is_restored: bool


def restore_grants(settings: BinderSettings) -> Plan[tuple[Lost, ...]]:
    """Restore lost grants as far as they are known, and return the running pods that had lost theirs."""
    found = []
    for pod in (yield from every(Pod, among=UNGRANTED)):
        if misses_grant(pod, settings):
            lost = yield from _restored(pod)
            if lost is not None:
                found.append(lost)
    return tuple(found)


def _restored(pod: Pod) -> Plan[Lost | None]:
    metadata = pod.metadata
    text = metadata.annotations.get(names.GRANTED)
    request = yield from find(Ref(BindRequest, metadata.name, metadata.namespace))
    record = None
    if request is not None and has_bound(request, pod) and ordered_grant(request) is not None:
        record = granted(request)
    if text is None and record is None:
        return None  # KAI-Scheduler bound it, or a version of kai without grants
    is_restored = record is not None and (yield from _is_written(pod, record))
    wanted = "what was granted when the pod was bound"
    message = str(BadValue(text, wanted, path=("metadata", "annotations", names.GRANTED)).of(title(pod)))
    return Lost(uid=metadata.uid, message=message, is_restored=is_restored)


def _is_written(pod: Pod, grant: Grant) -> Plan[bool]:
    """Write a grant; return whether that succeeded, because a pod that cannot be written must not block the others."""
    body = {"metadata": {"annotations": {names.GRANTED: grant.text}}}
    try:
        yield from patch(Ref.to(pod), body, uid=pod.metadata.uid)
    except RefusedError:
        return False
    return True
