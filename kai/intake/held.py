"""Pod groups as their pods hold resources: by granted account, after members succeeded, and after deletion.

A pod group names its queue and node pool, and may be edited at any time. Its running pods were granted their resources
on the account of one queue in one pool, and stay charged to it until they are gone; later pods of the group are charged
to it as well. So a group whose members hold a grant is read as if it still named the granted account. Where members
hold grants on different accounts, the one that was bound first decides; among several, the first by name.

A gang may start in part: binds fail one by one, after all of them were decided. When the members that started have
succeeded, the remaining members are fewer than the minimum of the group. They were to run beside the succeeded ones, so
the gang is complete: it is read with a minimum of the members that remain. The same holds where a member failed or
was evicted after others had succeeded, and its owner recreated it: all members of the gang exist, and these are the
last of them.

An owner may also run one round of pods after another. Pods that were created after the pods of an earlier round were
bound wait for their own gang: together with the succeeded pods they are more than the minimum.

Source: the peer does not count succeeded pods, so that the rest of such a gang never starts.

Orphans are pods that are charged to the account of a deleted group. A user who may write to a namespace may delete its
pod groups while their pods run. These pods stay charged to a queue until they are gone: a stand-in group, with the name
in their grants, takes the place of the deleted one. It needs no pod and starts none, and its pods can be reclaimed.
Nothing else about the deleted group is known.

Source: the peer charges such pods to no queue.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, TypeAlias

import attrs
import numpy as np

from kai.api import names
from kai.api.conventions.binding import bound_at
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.scheduling import pod_group as api_podgroup
from kai.facts.model.axis import NONE, Int64s
from kai.facts.model.groups import DEFAULT_SUBGROUP
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status, status_mask, within
from kai.facts.state.memory import Memory
from kai.facts.state.table_version import TableVersion
from kai.intake.groups import GroupReader, GroupRecord
from kai.intake.membership import Accounts
from kai.intake.pods import PodRecord
from kai.intake.record_cache import RecordCache
from kai.intake.table import GroupColumns, PodColumns

Minima: TypeAlias = tuple[tuple[str, int], ...]
"""Lowered minima of sub-groups, by name."""

_WAITING: Final = status_mask(Status.PENDING, Status.GATED)


@attrs.frozen
class _Differing:
    """The differences between a group as it is read and its object."""

    account: int = NONE
    """The account that its members are charged to; -1: the one that the object names."""
    minima: Minima = ()


@attrs.frozen
class _Held:
    """A group that is read differently from its object."""

    said: GroupRecord
    differing: _Differing
    record: GroupRecord


@attrs.define(eq=False)
class HeldGroups:
    """The records of all groups, each adjusted to the grants and to the success of its members."""

    accounts: Accounts
    records: Sequence[GroupRecord] = ()
    version: TableVersion = attrs.field(factory=TableVersion)
    _base: TableVersion = attrs.field(factory=TableVersion)
    """The version of the unadjusted records; it is ``version`` itself while no group is adjusted."""
    _held: dict[int, _Held] = attrs.field(factory=dict)
    """Adjusted groups by row."""

    def settle(
        self,
        groups: RecordCache[api_podgroup.PodGroup, GroupRecord],
        columns: GroupColumns,
        granted: "Granted",
        reader: GroupReader,
    ) -> None:
        """Adjust the records to the present groups and grants; ``columns`` are those of the groups.

        Cost: columns; a look at each adjusted group, and a copy of the list while there are any; a look at each pod of
            a gang with succeeded and waiting pods.
        """
        said, base = groups.records, groups.version
        accounts, minima = granted.differing(columns), granted.left_of_gangs(columns, said)
        rows = {
            row: _Differing(accounts.get(row, NONE), minima.get(row, ())) for row in (accounts.keys() | minima.keys())
        }
        if not rows and not self._held:
            self.records, self.version, self._base = said, base, base
            return
        known = {id(each.said): each for each in self._held.values()}
        held: dict[int, _Held] = {}
        for row, differing in rows.items():
            # By identity of the unadjusted record, not by row: rows move when groups come and go. The former list keeps
            # these records alive, so no identity is used twice.
            before = known.get(id(said[row]))
            if before is not None and before.differing == differing:
                # The same record object as before, so that no column of the group is read anew.
                held[row] = before
            else:
                held[row] = _Held(said[row], differing, self._read(said[row].source, differing, reader))
        version = self._version(base, held)
        if version is not None:
            self.records = list(said)
            for row, each in held.items():
                self.records[row] = each.record
            self.version = version
        self._base, self._held = base, held

    def _read(self, source: api_podgroup.PodGroup, differing: _Differing, reader: GroupReader) -> GroupRecord:
        if differing.minima:
            source = with_minima(source, dict(differing.minima))
        if differing.account == NONE:
            return reader.read(source)
        return reader.read_as(source, *self.accounts[differing.account])

    def _version(self, base: TableVersion, held: dict[int, _Held]) -> TableVersion | None:
        """Return the version of the records with the ``held`` ones replaced; None if it is the last version."""
        is_same = base.mark is self._base.mark
        # A version in between was not seen, so which rows differ is not known.
        if not is_same and base.before is not self._base.mark:
            return TableVersion()
        source = None if is_same else base.source
        fresh = set[int]() if is_same else set(base.fresh.tolist())
        rows = list(self._held) if source is None else np.flatnonzero(np.isin(source, list(self._held))).tolist()
        # A group that is no longer adjusted is fresh too: it is back to the record of its object.
        for row in {*rows, *held} - fresh:
            before = self._held.get(row if source is None else int(source[row]))
            now = held.get(row)
            if before is not now and (before is None or now is None or before.record is not now.record):
                fresh.add(row)
        if is_same and not fresh:
            return None
        changed = np.array(sorted(fresh), np.int64)
        if source is not None:
            # The array belongs to the version of the unadjusted records.
            source = source.copy()
            source[changed] = NONE
        return TableVersion(before=self.version.mark, source=source, fresh=changed)


@attrs.frozen(eq=False)
class Granted:
    """The pods with the nodes and accounts that they were bound to."""

    pods: PodColumns
    records: Sequence[PodRecord]
    group_keys: int
    """The number of group keys."""
    rows: Int64s
    """The rows of pods that hold something on a known account."""

    @classmethod
    def of(cls, pods: PodColumns, records: Sequence[PodRecord], group_keys: int, memory: Memory) -> "Granted":
        """Return the grants of ``pods``. Cost: nothing while each has the account that it had."""
        account = pods.account
        rows = memory.once("pods with accounts", (account,), lambda: np.flatnonzero(account >= 0))
        return cls(pods, records, group_keys, rows)

    def differing(self, groups: GroupColumns) -> dict[int, int]:
        """Return the account to which the members of a group are charged, by row, where the group names another one."""
        group_key, account = self.pods.group_key, self.pods.account
        granted = self.rows
        if not len(granted):
            return {}
        held = np.full(self.group_keys, NONE, np.int64)
        # The account of some member; only groups whose members disagree are sorted below.
        held[group_key[granted]] = account[granted]
        # Whichever account was written last, each other one of the group differs from it, so no disagreement is missed.
        at_odds = granted[held[group_key[granted]] != account[granted]]
        if len(at_odds):
            members = granted[np.isin(group_key[granted], group_key[at_odds])]
            for row in sorted(members.tolist(), key=self._by_age, reverse=True):
                # In reverse order of age, so that the pod that was bound first is the last to write.
                held[group_key[row]] = account[row]
        wanted = held[groups.group_key]
        return {row: int(wanted[row]) for row in np.flatnonzero((wanted >= 0) & (wanted != groups.account)).tolist()}

    def _by_age(self, row: int) -> tuple[float, int]:
        return bound_at(self.records[row].source), row

    def left_of_gangs(self, groups: GroupColumns, said: Sequence[GroupRecord]) -> dict[int, Minima]:
        """Return the lowered minima of gangs that lost members by success, by row."""
        status, group_key = self.pods.status, self.pods.group_key
        ended = np.flatnonzero(status == Status.SUCCEEDED)
        if not len(ended):
            return {}
        has_ended = np.zeros(self.group_keys, np.bool_)
        has_ended[group_key[ended]] = True
        waiting = np.flatnonzero((status == Status.PENDING) | (status == Status.GATED))
        of_some = np.zeros(self.group_keys, np.bool_)
        of_some[group_key[waiting]] = True
        rows = np.flatnonzero((has_ended & of_some)[groups.group_key] & groups.wanted & ~groups.stands_in)
        gangs = {int(groups.group_key[row]): row for row in rows.tolist() if _is_gang(said[row])}
        if not gangs:
            return {}
        members = defaultdict[int, list[int]](list)
        for pod in np.flatnonzero(np.isin(group_key, list(gangs))).tolist():
            members[gangs[int(group_key[pod])]].append(pod)
        left = {row: tuple(self._left(said[row], pods)) for row, pods in members.items()}
        return {row: minima for row, minima in left.items() if minima}

    def _left(self, gang: GroupRecord, pods: Iterable[int]) -> Iterator[tuple[str, int]]:
        """Yield the lowered minimum of each sub-group of a gang that lost members by success."""
        records, alive = self.records, defaultdict[str, int](int)
        beside, ended = defaultdict[str, int](int), defaultdict[str, int](int)
        states = [(int(self.pods.status[pod]), records[pod]) for pod in pods]
        # The first of the pods that wait. Members that were bound after it was created ran beside it; those bound
        # before are of an earlier round.
        oldest = min((each.pod.created for status, each in states if within(status, _WAITING)), default=inf)
        for status, each in states:
            if within(status, ACTIVE_ALLOCATED | _WAITING):
                alive[each.pod.subgroup] += 1
            elif status == Status.SUCCEEDED:
                ended[each.pod.subgroup] += 1
                beside[each.pod.subgroup] += _bound(each) >= oldest
        for name, minimum in _leaves(gang):
            left = alive[name]
            # The second case is a recreated member, which is younger than its gang. Only the exact number counts there:
            # more ended pods are those of several rounds.
            if left < minimum and (minimum <= left + beside[name] or minimum == left + ended[name]):
                yield name, left


def with_minima(source: api_podgroup.PodGroup, minima: Mapping[str, int]) -> api_podgroup.PodGroup:
    """Return a group with the minima of its sub-groups replaced; sub-groups that ``minima`` does not name stay."""
    spec = source.spec
    if not spec.sub_groups:
        return attrs.evolve(source, spec=attrs.evolve(spec, min_member=minima[DEFAULT_SUBGROUP]))
    parts = [attrs.evolve(each, min_member=minima.get(each.name, each.min_member)) for each in spec.sub_groups]
    return attrs.evolve(source, spec=attrs.evolve(spec, sub_groups=tuple(parts)))


def _is_gang(record: GroupRecord) -> bool:
    return any(minimum > 1 for _, minimum in _leaves(record))


def _leaves(record: GroupRecord) -> Iterator[tuple[str, int]]:
    """Yield name and minimum of each leaf, if the group may be tried."""
    group = record.group
    if group is not None and not group.tree_error and not group.held:
        yield from ((each.name, each.minimum or 0) for each in group.subgroups if each.leaf)


def _bound(record: PodRecord) -> float:
    """Return when a pod was bound; when it was created, if that is not known."""
    when = bound_at(record.source)
    return record.pod.created if when == inf else when


_HELD: Final = "found no pod group of this name, expected one"
_STAND_IN: Final = "\0"
"""Appended to the namespace in a stand-in's sort key, so that a group of the same name can exist beside it."""


class _Missing(NamedTuple):
    """A deleted group, by the pod that was bound for it first."""

    name: str
    namespace: str
    account: int
    created: float | None


@attrs.define(eq=False)
class Orphans:
    """The stand-ins for deleted groups."""

    accounts: Accounts
    pool_label: str
    _made: Mapping[_Missing, api_podgroup.PodGroup] = attrs.field(factory=dict)
    _ids: frozenset[int] = frozenset()

    def among(self, sources: Sequence[api_podgroup.PodGroup]) -> Sequence[api_podgroup.PodGroup]:
        """Return the pod groups and their stand-ins."""
        return (*sources, *self._made.values()) if self._made else sources

    def reading(self, reader: GroupReader) -> Callable[[api_podgroup.PodGroup], GroupRecord]:
        """Return a function that reads groups, stand-ins included."""

        def read(source: api_podgroup.PodGroup) -> GroupRecord:
            if id(source) not in self._ids:
                return reader.read(source)
            metadata = source.metadata
            return reader.read_missing(source, (metadata.name, metadata.namespace + _STAND_IN), _HELD)

        return read

    def settle(self, groups: GroupColumns, granted: Granted) -> bool:
        """Take the present groups and pods; return whether the stand-ins changed since ``among``.

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
        # By the pod bound first, as for groups that exist: the account does not change because the group was deleted.
        for row in sorted(rows.tolist(), key=lambda row: (bound_at(records[row].source), row)):
            first.setdefault(int(pods.group_key[row]), row)
        wanted = [_missing(records[first[each]], int(pods.account[first[each]])) for each in sorted(first)]
        # The same objects as long as the same groups are missing, so that their records are not read anew.
        if self._made.keys() == set(wanted):
            return False
        self._made = {each: self._made.get(each) or self._stand_in(each) for each in wanted}
        # Stand-ins are recognized by identity: a user could write any mark that an object can bear.
        self._ids = frozenset(map(id, self._made.values()))
        return True

    def _stand_in(self, missing: _Missing) -> api_podgroup.PodGroup:
        queue, pool = self.accounts[missing.account]
        labels = {self.pool_label: pool} if pool else {}
        metadata = ObjectMeta(
            name=missing.name, namespace=missing.namespace, labels=labels, creation_timestamp=missing.created
        )
        # A minimum of 0: nothing of it waits, and any single pod may be reclaimed without a gang that would be broken
        # by it.
        spec = api_podgroup.PodGroupSpec(queue=queue, min_member=0, preemptibility=names.PREEMPTIBLE)
        return api_podgroup.PodGroup(metadata=metadata, spec=spec)


def _missing(record: PodRecord, account: int) -> _Missing:
    return _Missing(record.pod.group, record.pod.namespace, account, record.source.metadata.creation_timestamp)
