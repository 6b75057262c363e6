"""Pod groups that are charged to another queue than the one that they name.

A user who may write to a namespace may name another queue in a pod group while its pods run, or delete the group. The
pods' resources were granted on the account of one queue and stay charged to it until the pods are gone, by the
scheduler (`kai.intake.held`) as in the statuses of queues. This module keeps the groups that differ, and the sum of
each queue (`kai.roles.controllers.sums`).

Source: the peer adds a group to the queue that it names, and drops pods whose group is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import attrs

from kai.api import names
from kai.api.conventions.amounts import add_up, effective_requests, texts
from kai.api.conventions.binding import account_of, grant_of, group_of, held_under
from kai.api.conventions.pod_amounts import Surroundings
from kai.api.kinds import Key
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup, PodGroupResources, PodGroupSpec
from kai.basics.errors import InputError
from kai.basics.kubernetes_version import KubernetesVersion, newest
from kai.cluster.port import Change, Index, Store
from kai.roles.controllers.podgroup import pod_group_resources
from kai.roles.controllers.sums import Sum, Sums


def _group(pod: Pod) -> Iterable[str]:
    group = group_of(pod)
    return (f"{pod.metadata.namespace}/{group}",) if group else ()


def _queue(group: PodGroup) -> Iterable[str]:
    return (group.spec.queue,) if group.spec.queue else ()


MEMBERS: Final = Index(Pod, "controllers: group", _group)
"""Pods by ``namespace/name`` of their group."""
GROUPS: Final = Index(PodGroup, "controllers: queue", _queue)
"""Pod groups by the queue that they name."""
_NOTHING: Final = PodGroupResources()


@attrs.define
class Holdings:
    """The resources charged to each queue, and the groups that are charged to another queue than the one they name."""

    store: Store
    kubernetes: Callable[[], KubernetesVersion] = newest
    _sums: Sums = attrs.field(factory=Sums)
    """The sums of the groups that exist."""
    _queues: dict[Key, str] = attrs.field(factory=dict)
    """The queue to which a group is charged, for groups that name another one."""
    _keys: dict[str, set[Key]] = attrs.field(factory=dict)
    """These groups by queue."""

    def settle(self, key: Key) -> set[str]:
        """Update a group from its present pods; return the queues that it counts for now, or did before.

        Cost: a look at each of its pods.
        """
        group = self.store.get(PodGroup, key[1], key[0])
        said = group.spec.queue if group is not None else ""
        account = account_of(self.store.find(MEMBERS, "/".join(key)))
        held = account.queue if account is not None else said
        self._sums.put(key, held if group is not None else "", group.status.resources_status if group else _NOTHING)
        before = self._queues.pop(key, said)
        if before in self._keys:
            self._keys[before].discard(key)
            if not self._keys[before]:
                del self._keys[before]
        if held != said:
            self._queues[key] = held
            self._keys.setdefault(held, set()).add(key)
        return {said, before, held} - {""}

    def total(self, queue: str) -> Sum:
        """Return the resources charged to a queue, including pods of deleted groups.

        Cost: a look at each group that is charged to another queue than it names.
        Raises: BadValue if an amount in a group's status is not a quantity.
        """
        gone = [key for key in sorted(self._keys.get(queue, ())) if self.store.get(PodGroup, key[1], key[0]) is None]
        return self._sums.of(queue) + Sum.of(*(self._stand_in(key, queue) for key in gone))

    def _stand_in(self, key: Key, queue: str) -> PodGroupResources:
        """Return the resources that the pods of a deleted group hold.

        A pod that cannot be counted, because a claim or a node is gone, counts its requests; it must not hide
        other pods.
        """
        metadata = ObjectMeta(namespace=key[0], name=key[1])
        spec = PodGroupSpec(queue=queue, preemptibility=names.PREEMPTIBLE)
        group, parts = PodGroup(metadata=metadata, spec=spec), list[PodGroupResources]()
        around = Surroundings(
            node=lambda node: self.store.get(Node, node),
            claim=lambda place, claim: self.store.get(ResourceClaim, claim, place),
            kubernetes=self.kubernetes(),
        )
        for pod in self.store.find(MEMBERS, "/".join(key)):
            if held_under(pod) is not None:
                try:
                    parts.append(pod_group_resources(group, [pod], around))
                except InputError:
                    amounts = texts(effective_requests(pod, around.kubernetes))
                    parts.append(PodGroupResources(allocated=amounts, requested=amounts))
        return PodGroupResources(
            allocated=texts(add_up(part.allocated for part in parts)),
            requested=texts(add_up(part.requested for part in parts)),
        )


def held_by(change: Change[Pod]) -> set[Key]:
    """Return the groups whose account a change of a pod may affect.

    Cost: next to nothing for pods without a grant, or if no relevant field changed.
    """
    before, after = change.before, change.after
    sides = [side for side in (before, after) if side is not None and grant_of(side) is not None]
    if not sides or (before is not None and after is not None and _what_counts(before) == _what_counts(after)):
        return set()
    return {(side.metadata.namespace, group_of(side)) for side in sides if group_of(side)}


def _what_counts(pod: Pod) -> object:
    return grant_of(pod), group_of(pod), pod.status.phase, pod.status.conditions, pod.spec
