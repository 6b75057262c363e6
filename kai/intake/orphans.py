"""Pods that hold something on the account of a group that is gone.

Whoever may write a namespace may delete its pod groups while their pods run. What these hold was granted on the account
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
from kai.api import pod as api
from kai.api import podgroup as api_podgroup
from kai.api.meta import ObjectMeta
from kai.intake.accounts import Accounts
from kai.intake.groups import GroupCell, GroupReader, OneLeaf
from kai.intake.held import bound_at
from kai.intake.pods import PodCell
from kai.intake.shelf import Shelf
from kai.model.rows import NONE, Int64s
from kai.state.edition import Carrier

_LEAF: Final = OneLeaf()
_HELD: Final = "found no pod group of this name, expected one"
_STAND_IN: Final = "\0"
"""Behind the namespace by which a cell is ordered, so that there may be a group of the name beside it."""

_Groups = Shelf[api_podgroup.PodGroup, GroupCell]


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
    _rows: Carrier = attrs.field(factory=Carrier)

    def among(self, sources: Sequence[api_podgroup.PodGroup]) -> Sequence[api_podgroup.PodGroup]:
        """Return the pod groups that there are, and those that stand in."""
        return (*sources, *self._made.values()) if self._made else sources

    def reading(self, reader: GroupReader) -> Callable[[api_podgroup.PodGroup], GroupCell]:
        """Return what reads any of them."""

        def read(source: api_podgroup.PodGroup) -> GroupCell:
            cell = reader.read(source)
            if id(source) not in self._ids:
                return cell
            group = None if cell.group is None else attrs.evolve(cell.group, held=_HELD)
            name, namespace = cell.order
            return attrs.evolve(cell, order=(name, namespace + _STAND_IN), group=group, leaves=_LEAF, stands_in=True)

        return read

    def settle(self, groups: _Groups, pods: Shelf[api.Pod, PodCell], places: int) -> bool:
        """Take groups and pods as they are now; return whether other groups stand in than those that were ``among``.

        Cost: columns; a look at each pod whose group is gone.
        """
        place, account = self._rows.columns("pods", pods.edition, len(pods.cells), lambda rows: _granted(pods, rows))
        (there,) = self._rows.columns("groups", groups.edition, len(groups.cells), lambda rows: _there(groups, rows))
        exists = np.zeros(places, np.bool_)
        exists[there[there >= 0]] = True
        rows = np.flatnonzero(account >= 0)
        rows = rows[~exists[place[rows]]]
        if not len(rows) and not self._made:
            return False
        first: dict[int, PodCell] = {}
        for row in sorted(rows.tolist(), key=lambda row: (bound_at(pods.cells[row].source), row)):
            first.setdefault(int(place[row]), pods.cells[row])
        wanted = [_missing(first[each]) for each in sorted(first)]
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


def _missing(cell: PodCell) -> _Missing:
    return _Missing(cell.pod.group, cell.pod.namespace, cell.account, cell.source.metadata.creation_timestamp)


def _granted(pods: Shelf[api.Pod, PodCell], rows: Sequence[int]) -> tuple[Int64s, Int64s]:
    cells = [pods.cells[row] for row in rows]
    accounts = [cell.account if cell.pod.group else NONE for cell in cells]
    return np.array([cell.place for cell in cells], np.int64), np.array(accounts, np.int64)


def _there(groups: _Groups, rows: Sequence[int]) -> tuple[Int64s]:
    cells = [groups.cells[row] for row in rows]
    return (np.array([NONE if cell.stands_in else cell.place for cell in cells], np.int64),)
