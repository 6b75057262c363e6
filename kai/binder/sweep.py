"""Keeping reservations and their users in step: what a crash, a deleted pod or a lost request left behind.

Two things can be left over. A reservation pod without users holds a GPU for nobody; it goes, unless a bind request that
is not finished still means to use it. A running pod whose reservation is gone uses a GPU that the cluster believes is
free; it is deleted, so that its owner makes another.

Both are destructive, so what a local store shows is only a suspicion. Before anything is deleted the API server is
asked by quorum, and the deletion names the UID that was seen.

Source: the peer decides on its cache, and finds the groups of a finished pod on several devices by a label that such
pods never carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from kai.api import sharing
from kai.api.bindrequest import BindRequest
from kai.api.plans import Plan, delete, every, holding
from kai.api.pod import Pod
from kai.binder.reservation import group_key, pod_ref
from kai.binder.settings import ReservationSettings

_LIVING: Final = frozenset({"Pending", "Running"})
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def sweep_everything(settings: ReservationSettings) -> Plan[tuple[str, ...]]:
    """Return the names of the pods that were deleted because reservations and users did not match, anywhere.

    Raises: RefusedError.
    """
    pods = yield from every(Pod)
    return (yield from _sweep_groups(pods, settings))


def sweep_node(node: str, settings: ReservationSettings) -> Plan[tuple[str, ...]]:
    """Return the names of the pods that were deleted because reservations and users did not match on a node.

    Raises: RefusedError.
    """
    pods = yield from every(Pod, node=node)
    return (yield from _sweep_groups(pods, settings))


def sweep_group(group: str, settings: ReservationSettings) -> Plan[tuple[str, ...]]:
    """Return the names of the pods that were deleted because the reservation and the users of a group did not match.

    Raises: RefusedError.
    """
    return (yield from holding(group_key(group), sweep_held_group(group, settings)))


def sweep_held_group(group: str, settings: ReservationSettings) -> Plan[tuple[str, ...]]:
    """Do what `sweep_group` does, for a caller who holds the group already.

    Raises: RefusedError.
    """
    suspected = yield from _members(group, settings, fresh=False)
    if not suspected.unreserved and not suspected.unused:
        return ()
    members = yield from _members(group, settings, fresh=True)
    if members.unreserved:
        return (yield from _delete_all(members.unreserved))
    if not members.unused or (yield from _is_awaited(group)):
        return ()
    return (yield from _delete_all(members.unused, grace_seconds=0))


@attrs.frozen(kw_only=True)
class _Members:
    """The reservation pods and the living users of a group."""

    reservations: tuple[Pod, ...]
    users: tuple[Pod, ...]

    @property
    def unreserved(self) -> tuple[Pod, ...]:
        """The running users, if nothing holds their GPU: a reservation pod that has ended holds none."""
        if any(pod.status.phase not in _FINISHED for pod in self.reservations):
            return ()
        return tuple(user for user in self.users if user.status.phase == "Running")

    @property
    def unused(self) -> tuple[Pod, ...]:
        """The reservation pods, if they have no users."""
        return () if self.users else self.reservations


def _members(group: str, settings: ReservationSettings, *, fresh: bool) -> Plan[_Members]:
    alone_key, alone = sharing.group_label(group, devices=1)
    several_key, several = sharing.group_label(group, devices=2)
    found = yield from every(Pod, labels={alone_key: alone}, fresh=fresh)
    found += yield from every(Pod, labels={several_key: several}, fresh=fresh)
    pods = {(pod.metadata.namespace, pod.metadata.name): pod for pod in found}
    members = [pods[key] for key in sorted(pods)]
    return _Members(
        reservations=tuple(pod for pod in members if pod.metadata.namespace == settings.namespace),
        users=tuple(
            pod for pod in members if pod.metadata.namespace != settings.namespace and pod.status.phase in _LIVING
        ),
    )


def _is_awaited(group: str) -> Plan[bool]:
    """Return whether a bind request that is not finished means to use the group.

    A request that failed and will be tried again does not count: while it waits, others may have the GPU.
    """
    requests = yield from every(BindRequest, fresh=True)
    return any(
        group in request.spec.selected_gpu_groups and request.status.phase not in _FINISHED for request in requests
    )


def _sweep_groups(pods: Iterable[Pod], settings: ReservationSettings) -> Plan[tuple[str, ...]]:
    groups = {group for pod in pods for group in sharing.gpu_groups(pod.metadata.labels)}
    deleted: tuple[str, ...] = ()
    for group in sorted(groups):
        deleted += yield from sweep_group(group, settings)
    return deleted


def _delete_all(pods: Iterable[Pod], grace_seconds: int | None = None) -> Plan[tuple[str, ...]]:
    deleted = []
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        if (yield from delete(pod_ref(pod), uid=pod.metadata.uid, grace_seconds=grace_seconds)):
            deleted.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return tuple(deleted)


def groups_to_sweep(before: Pod | None, after: Pod | None, scheduler_name: str) -> tuple[str, ...]:
    """Return the GPU groups that a change of a pod may have left without users: it ended, or it is gone.

    Either side is None where the pod was created or is gone.
    """
    pod = after or before
    if pod is None or pod.spec.scheduler_name != scheduler_name:
        return ()
    ended = after is None or after.status.phase in _FINISHED
    was_alive = before is None or before.status.phase not in _FINISHED
    if not ended or (after is not None and not was_alive):
        return ()
    return sharing.gpu_groups(pod.metadata.labels)
