"""Pods that hold something on the account of a group that is gone.

A user who may write a namespace may delete its pod groups while their pods run. What these hold was granted on account
of a queue, and is charged to it until they are gone: a group of the name that their grants tell takes the place of the
one that is missing. It needs no pod, starts none, and can be taken back for others; nothing that the missing one said
is known.

Source: the peer counts such pods for no queue.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import attrs
import numpy as np

from kai.api import names
from kai.api.conventions.grants import bound_at
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.scheduling import pod_group as api_podgroup
from kai.intake.accounts import Accounts
from kai.intake.groups import GroupReader, GroupRecord
from kai.intake.held import Granted
from kai.intake.pods import PodRecord
from kai.intake.table import GroupColumns

_HELD: Final = "found no pod group of this name, expected one"
_STAND_IN: Final = "\0"
"""Behind the namespace by which a record is ordered, so that there may be a group of the name beside it."""


class _Missing(NamedTuple):
    """A group that is gone, as the pod that was bound for it first tells it."""

    name: str
    namespace: str
    account: int
    created: float | None


@attrs.define(eq=False)
class Orphans:
    """The groups that stand in for those that are gone."""

    accounts: Accounts
    pool_label: str
    _made: Mapping[_Missing, api_podgroup.PodGroup] = attrs.field(factory=dict)
    _ids: frozenset[int] = frozenset()

    def among(self, sources: Sequence[api_podgroup.PodGroup]) -> Sequence[api_podgroup.PodGroup]:
        """Return the pod groups that there are, and those that stand in."""
        return (*sources, *self._made.values()) if self._made else sources

    def reading(self, reader: GroupReader) -> Callable[[api_podgroup.PodGroup], GroupRecord]:
        """Return a function that reads groups, those included that stand in."""

        def read(source: api_podgroup.PodGroup) -> GroupRecord:
            if id(source) not in self._ids:
                return reader.read(source)
            metadata = source.metadata
            return reader.read_missing(source, (metadata.name, metadata.namespace + _STAND_IN), _HELD)

        return read

    def settle(self, groups: GroupColumns, granted: Granted) -> bool:
        """Take groups and pods as they are now; return whether other groups stand in than those that were ``among``.

        Cost: columns; a look at each pod whose group is gone.
        """
        pods, records, rows = granted.pods, granted.records, granted.rows
        if len(rows):
            exists = np.zeros(granted.group_keys, np.bool_)
            exists[groups.group_key[~groups.stands_in]] = True
            rows = rows[~exists[pods.group_key[rows]]]
        if not len(rows) and not self._made:
            return False
        first: dict[int, int] = {}
        for row in sorted(rows.tolist(), key=lambda row: (bound_at(records[row].source), row)):
            first.setdefault(int(pods.group_key[row]), row)
        wanted = [_missing(records[first[each]], int(pods.account[first[each]])) for each in sorted(first)]
        if self._made.keys() == set(wanted):
            return False
        self._made = {each: self._made.get(each) or self._stand_in(each) for each in wanted}
        self._ids = frozenset(map(id, self._made.values()))
        return True

    def _stand_in(self, missing: _Missing) -> api_podgroup.PodGroup:
        queue, pool = self.accounts[missing.account]
        labels = {self.pool_label: pool} if pool else {}
        metadata = ObjectMeta(
            name=missing.name, namespace=missing.namespace, labels=labels, creation_timestamp=missing.created
        )
        spec = api_podgroup.PodGroupSpec(queue=queue, min_member=0, preemptibility=names.PREEMPTIBLE)
        return api_podgroup.PodGroup(metadata=metadata, spec=spec)


def _missing(record: PodRecord, account: int) -> _Missing:
    return _Missing(record.pod.group, record.pod.namespace, account, record.source.metadata.creation_timestamp)
