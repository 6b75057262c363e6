"""The resources that the pod groups of each queue request and hold, as running sums.

While pods start, a queue of thousands of groups is looked at once a second. So the sums are kept: a group that changes
is subtracted as it was and added as it is, which is exact, since amounts are integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.conventions.amounts import Amount, add_up, exact, plus, same
from kai.api.kinds import Key
from kai.api.scheduling.pod_group import PodGroupResources
from kai.api.values import BadValue

if TYPE_CHECKING:
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
