"""The resources that pod groups hold, and the queues to which they are charged.

`pod_group_resources` turns the pods of a group, and for some of them nodes and resource claims, into three lists of
amounts; `status_patch` makes a patch of them, or none if nothing changed. A bound pod counts for the group for which it
was bound, with its granted share.

`Sums` keeps the sum of each queue. While pods start, a queue of thousands of groups is looked at once a second. So a
group that changes is subtracted as it was and added as it is, which is exact, since amounts are integers.

`Holdings` keeps the groups that are charged to another queue than the one that they name. A user who may write to a
namespace may name another queue in a pod group while its pods run, or delete the group. The pods' resources were
granted on the account of one queue and stay charged to it until the pods are gone, by the scheduler
(`kai.intake.held`) as in the statuses of queues.

Source: the peer's pod-group controller. We differ where it is plainly wrong: init containers, sidecars and overhead
count, a share of several devices is held on all of them, and a group that turns preemptible no longer shows its earlier
resources as non-preemptible. The peer also adds a group to the queue that it names, and drops pods whose group is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.conventions.amounts import Amount, add_up, effective_requests, exact, plus, same, texts
from kai.api.conventions.binding import account_of, grant_of, group_of, held_under
from kai.api.conventions.pod_amounts import Surroundings, count
from kai.api.kinds import Key, title
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup, PodGroupResources, PodGroupSpec
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.kubernetes_version import KubernetesVersion, newest
from kai.cluster.port import Change, Index, Store

if TYPE_CHECKING:
    from kai.api.kubernetes.meta import PriorityClass
    from kai.api.scheduling.queue import QueueStatus

_NOTHING: Final = PodGroupResources()


@attrs.frozen(kw_only=True)
class Sum:
    """The resources that several groups request and hold, by resource."""

    allocated: Mapping[str, Amount] = attrs.field(factory=dict)
    allocated_non_preemptible: Mapping[str, Amount] = attrs.field(factory=dict)
    requested: Mapping[str, Amount] = attrs.field(factory=dict)

    @classmethod
    def of(cls, *parts: PodGroupResources | QueueStatus) -> Sum:
        """Return the sum over the statuses of groups or queues.

        Raises: BadValue if an amount is not a quantity.
        """
        return cls(
            allocated=add_up(part.allocated for part in parts),
            allocated_non_preemptible=add_up(part.allocated_non_preemptible for part in parts),
            requested=add_up(part.requested for part in parts),
        )

    def __add__(self, other: Sum) -> Sum:
        """Return the sum of both."""
        return Sum(
            allocated=plus(self.allocated, other.allocated),
            allocated_non_preemptible=plus(self.allocated_non_preemptible, other.allocated_non_preemptible),
            requested=plus(self.requested, other.requested),
        )


def changed_lists(before: PodGroupResources | QueueStatus, after: PodGroupResources | QueueStatus) -> dict[str, Any]:
    """Return a merge patch of the lists whose amounts differ; another notation of the same amount is no change.

    Raises: BadValue if an amount is not a quantity.
    """
    changes: dict[str, Any] = {}
    for wire, old, new in (
        ("allocated", before.allocated, after.allocated),
        ("allocatedNonPreemptible", before.allocated_non_preemptible, after.allocated_non_preemptible),
        ("requested", before.requested, after.requested),
    ):
        if not same(old, new):
            # A merge patch merges maps: a resource that is only left out would stay, so each is named with null.
            gone = dict.fromkeys(name for name in old if name not in new)
            changes[wire] = {**gone, **new} if new else None
    return changes


@attrs.define
class _Total:
    """The total of one resource over many groups."""

    billionths: int = 0
    named: int = 0
    """How many groups name the resource; at 0 it is dropped."""
    binary: int = 0
    """How many of them use Ki, Mi, Gi for it."""


@attrs.define
class _Account:
    """The totals of one queue, by list and resource."""

    totals: dict[tuple[int, str], _Total] = attrs.field(factory=dict)
    unreadable: dict[Key, PodGroupResources] = attrs.field(factory=dict)
    """Resources of groups that cannot be added up."""

    def add(self, amounts: tuple[tuple[int, str, Amount], ...], sign: int) -> None:
        """Add amounts, or subtract them with ``sign`` -1."""
        for which, name, amount in amounts:
            total = self.totals.setdefault((which, name), _Total())
            total.billionths += sign * amount.billionths
            total.named += sign
            # Kept as a count: the last group that writes Gi may go, and the sum is written in the notation of the
            # others.
            total.binary += sign * (amount.binary and amount.billionths != 0)
            if not total.named:
                del self.totals[which, name]

    def total(self) -> Sum:
        """Return the totals as a sum."""
        lists: tuple[dict[str, Amount], ...] = ({}, {}, {})
        for (which, name), total in self.totals.items():
            lists[which][name] = Amount(total.billionths, total.binary > 0)
        return Sum(allocated=lists[0], allocated_non_preemptible=lists[1], requested=lists[2])


@attrs.define
class Sums:
    """The sum of each queue."""

    _parts: dict[Key, tuple[str, PodGroupResources]] = attrs.field(factory=dict)
    """The queue on which each group counts, and its resources."""
    _accounts: dict[str, _Account] = attrs.field(factory=dict)

    def put(self, key: Key, queue: str, resources: PodGroupResources) -> None:
        """Count a group on a queue with its present resources; on none, if the queue is ""."""
        before, said = self._parts.get(key, ("", _NOTHING))
        if (before, said) == (queue, resources):
            return
        self._take_out(key, before, said)
        self._parts.pop(key, None)
        if queue and resources != _NOTHING:
            self._parts[key] = (queue, resources)
            self._put_in(key, queue, resources)

    def of(self, queue: str) -> Sum:
        """Return the sum of a queue.

        Cost: a look at each resource, however many groups there are.
        Raises: BadValue if an amount in a group's status is not a quantity.
        """
        account = self._accounts.get(queue)
        if account is None:
            return Sum()
        # Adding it up once more raises the error that names the amount. A sum without it would be silently wrong.
        for key in sorted(account.unreadable):
            Sum.of(account.unreadable[key])
        return account.total()

    def _put_in(self, key: Key, queue: str, resources: PodGroupResources) -> None:
        account = self._accounts.setdefault(queue, _Account())
        try:
            account.add(tuple(_amounts(resources)), 1)
        except BadValue:
            account.unreadable[key] = resources

    def _take_out(self, key: Key, queue: str, resources: PodGroupResources) -> None:
        account = self._accounts.get(queue)
        if account is None or resources == _NOTHING:
            return
        # What could not be added must not be subtracted.
        if account.unreadable.pop(key, None) is None:
            account.add(tuple(_amounts(resources)), -1)
        if not (account.totals or account.unreadable):
            del self._accounts[queue]


def _amounts(resources: PodGroupResources) -> Iterator[tuple[int, str, Amount]]:
    """Yield list index, resource and amount. Raises: BadValue if an amount is not a quantity."""
    lists = (resources.allocated, resources.allocated_non_preemptible, resources.requested)
    for which, amounts in enumerate(lists):
        for name, text in amounts.items():
            yield which, name, exact(text)


def is_preemptible(group: PodGroup, classes: Iterable[PriorityClass]) -> bool:
    """Return whether a group may be preempted: by its own field, else by its priority.

    The priority is that of its class, else of the cluster's default class, else 50.
    """
    if group.spec.preemptibility:
        return group.spec.preemptibility == names.PREEMPTIBLE
    in_order = sorted(classes, key=lambda known: known.metadata.name)
    for known in in_order:
        if known.metadata.name == group.spec.priority_class_name:
            return known.value < names.NON_PREEMPTIBLE_PRIORITY
    for known in in_order:
        if known.global_default:
            return known.value < names.NON_PREEMPTIBLE_PRIORITY
    return names.DEFAULT_POD_GROUP_PRIORITY < names.NON_PREEMPTIBLE_PRIORITY


def pod_group_resources(group: PodGroup, pods: Iterable[Pod], around: Surroundings) -> PodGroupResources:
    """Return the resources that the pods of a group request and hold; pods of other groups among `pods` are ignored.

    Raises: BadValue that names a pod which cannot be counted. The controller then leaves the status as it is and
        tries again later.
    """
    requested: dict[str, Amount] = {}
    allocated: dict[str, Amount] = {}
    # In the order of names: of several pods that cannot be counted, the same one is named at each look.
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if not _belongs(pod, group):
            continue
        try:
            asked, held = count(pod, around)
        except BadValue as error:
            raise error.of(title(pod)) from None
        requested = plus(requested, asked)
        allocated = plus(allocated, held)
    preemptible = is_preemptible(group, around.priority_classes)
    return PodGroupResources(
        requested=texts(requested),
        allocated=texts(allocated),
        allocated_non_preemptible={} if preemptible else texts(allocated),
    )


def status_patch(group: PodGroup, resources: PodGroupResources) -> dict[str, Any] | None:
    """Return the merge patch of the group's status; None if no amount changed, however it is written."""
    changes = changed_lists(group.status.resources_status, resources)
    return {"status": {"resourcesStatus": changes}} if changes else None


def _belongs(pod: Pod, group: PodGroup) -> bool:
    return group_of(pod) == group.metadata.name and pod.metadata.namespace == group.metadata.namespace


def _group(pod: Pod) -> Iterable[str]:
    group = group_of(pod)
    return (f"{pod.metadata.namespace}/{group}",) if group else ()


def _queue(group: PodGroup) -> Iterable[str]:
    return (group.spec.queue,) if group.spec.queue else ()


MEMBERS: Final = Index(Pod, "controllers: group", _group)
"""Pods by ``namespace/name`` of their group."""
GROUPS: Final = Index(PodGroup, "controllers: queue", _queue)
"""Pod groups by the queue that they name."""


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
        # A group that exists is in the sums, on the queue that it is charged to. Only what a deleted one left behind is
        # counted here.
        gone = [key for key in sorted(self._keys.get(queue, ())) if self.store.get(PodGroup, key[1], key[0]) is None]
        return self._sums.of(queue) + Sum.of(*(self._stand_in(key, queue) for key in gone))

    def _stand_in(self, key: Key, queue: str) -> PodGroupResources:
        """Return the resources that the pods of a deleted group hold.

        A pod that cannot be counted, because a claim or a node is gone, counts its requests; it must not hide
        other pods.
        """
        metadata = ObjectMeta(namespace=key[0], name=key[1])
        # Preemptible, as the scheduler reads it (`kai.intake.held`): pods of a deleted group can be reclaimed.
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
