"""Pod groups as their members were granted them, and as those that have succeeded left them.

A pod group says to which queue and node pool it belongs, and may be edited at any time. What its running pods hold was
granted on the account of one queue in one pool, and stays there until they are gone; pods that follow go by it as well.
So a group whose members hold something that was granted is read as if it still said what it said then. Where members
were granted on different accounts, the one that was bound first decides, of several the first by name.

A gang may be started in part: binds are refused one by one, after all of them were decided. When the members that
started have succeeded, those that are left cannot be as many as the group says. They were to start beside them, so the
gang is complete: it is read as if it asked for as many as are left. So it is where a member failed or was evicted when
others had succeeded, and its owner made it anew: all members of the gang are there, and these are the last of them.

An owner may also run one round of pods after another. Pods that were created after those of an earlier round were
bound wait for their own gang: they and those that have succeeded are more than the gang has members.

Source: the peer counts no pod that has succeeded, so that what is left of such a gang never starts.

Pods that hold something on the account of a group that is gone.

A user who may write a namespace may delete its pod groups while their pods run. What these hold was granted on account
of a queue, and is charged to it until they are gone: a group of the name that their grants tell takes the place of the
one that is missing. It needs no pod, starts none, and can be taken back for others; nothing that the missing one said
is known.

Source: the peer counts such pods for no queue.
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
from kai.intake.groups import GroupReader, GroupRecord
from kai.intake.membership import Accounts
from kai.intake.pods import PodRecord
from kai.intake.record_cache import RecordCache
from kai.intake.table import GroupColumns, PodColumns
from kai.model.axis import NONE, Int64s
from kai.model.groups import DEFAULT_SUBGROUP
from kai.model.pod import ACTIVE_ALLOCATED, Status, status_mask, within
from kai.state.memory import Memory
from kai.state.table_version import TableVersion

Minima: TypeAlias = tuple[tuple[str, int], ...]
"""How many pods sub-groups need that need fewer than they say."""

_WAITING: Final = status_mask(Status.PENDING, Status.GATED)


@attrs.frozen
class _Differing:
    """How a group differs from what it says."""

    account: int = NONE
    """The account that its members are held on; -1: the one that it says."""
    minima: Minima = ()


@attrs.frozen
class _Held:
    """A group that is read as if it said something else."""

    said: GroupRecord
    differing: _Differing
    record: GroupRecord


@attrs.define(eq=False)
class HeldGroups:
    """The records of all groups, each as its members were granted and left it."""

    accounts: Accounts
    records: Sequence[GroupRecord] = ()
    version: TableVersion = attrs.field(factory=TableVersion)
    _base: TableVersion = attrs.field(factory=TableVersion)
    """Of the records as the groups say; it is ``version`` itself while no group is read otherwise."""
    _held: dict[int, _Held] = attrs.field(factory=dict)
    """By row."""

    def settle(
        self,
        groups: RecordCache[api_podgroup.PodGroup, GroupRecord],
        columns: GroupColumns,
        granted: "Granted",
        reader: GroupReader,
    ) -> None:
        """Take groups and what pods were granted, as they are now; ``columns`` are those of the groups.

        Cost: columns; a look at each group that is read otherwise than it says, and a copy of the list while there are
            any; a look at each pod of a gang of which some pods have succeeded and some wait.
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
            before = known.get(id(said[row]))
            if before is not None and before.differing == differing:
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
        """Return the version of the records with those that are ``held``; None if it is the last one."""
        is_same = base.mark is self._base.mark
        if not is_same and base.before is not self._base.mark:
            return TableVersion()
        source = None if is_same else base.source
        fresh = set[int]() if is_same else set(base.fresh.tolist())
        rows = list(self._held) if source is None else np.flatnonzero(np.isin(source, list(self._held))).tolist()
        for row in {*rows, *held} - fresh:
            before = self._held.get(row if source is None else int(source[row]))
            now = held.get(row)
            if before is not now and (before is None or now is None or before.record is not now.record):
                fresh.add(row)
        if is_same and not fresh:
            return None
        changed = np.array(sorted(fresh), np.int64)
        if source is not None:
            source = source.copy()
            source[changed] = NONE
        return TableVersion(before=self.version.mark, source=source, fresh=changed)


@attrs.frozen(eq=False)
class Granted:
    """The pods with the places and accounts that they were bound for."""

    pods: PodColumns
    records: Sequence[PodRecord]
    group_keys: int
    """How many keys of groups there are."""
    rows: Int64s
    """The pods that hold something on an account that is known."""

    @classmethod
    def of(cls, pods: PodColumns, records: Sequence[PodRecord], group_keys: int, memory: Memory) -> "Granted":
        """Return what ``pods`` were granted. Cost: nothing while each has the account that it had."""
        account = pods.account
        rows = memory.once("pods with accounts", (account,), lambda: np.flatnonzero(account >= 0))
        return cls(pods, records, group_keys, rows)

    def differing(self, groups: GroupColumns) -> dict[int, int]:
        """Return the accounts on which groups are held that say another one, by row."""
        group_key, account = self.pods.group_key, self.pods.account
        granted = self.rows
        if not len(granted):
            return {}
        held = np.full(self.group_keys, NONE, np.int64)
        held[group_key[granted]] = account[granted]
        at_odds = granted[held[group_key[granted]] != account[granted]]
        if len(at_odds):
            members = granted[np.isin(group_key[granted], group_key[at_odds])]
            for row in sorted(members.tolist(), key=self._by_age, reverse=True):
                held[group_key[row]] = account[row]
        wanted = held[groups.group_key]
        return {row: int(wanted[row]) for row in np.flatnonzero((wanted >= 0) & (wanted != groups.account)).tolist()}

    def _by_age(self, row: int) -> tuple[float, int]:
        return bound_at(self.records[row].source), row

    def left_of_gangs(self, groups: GroupColumns, said: Sequence[GroupRecord]) -> dict[int, Minima]:
        """Return the gangs of which members that have succeeded left fewer pods than the group asks for, by row."""
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
        """Yield how many pods sub-groups of a gang need, where members that have succeeded make that fewer."""
        records, alive = self.records, defaultdict[str, int](int)
        beside, ended = defaultdict[str, int](int), defaultdict[str, int](int)
        states = [(int(self.pods.status[pod]), records[pod]) for pod in pods]
        oldest = min((each.pod.created for status, each in states if within(status, _WAITING)), default=inf)
        for status, each in states:
            if within(status, ACTIVE_ALLOCATED | _WAITING):
                alive[each.pod.subgroup] += 1
            elif status == Status.SUCCEEDED:
                ended[each.pod.subgroup] += 1
                beside[each.pod.subgroup] += _bound(each) >= oldest
        for name, minimum in _leaves(gang):
            left = alive[name]
            if left < minimum and (minimum <= left + beside[name] or minimum == left + ended[name]):
                yield name, left


def with_minima(source: api_podgroup.PodGroup, minima: Mapping[str, int]) -> api_podgroup.PodGroup:
    """Return a group as if its sub-groups asked for so many pods; those that ``minima`` does not name stay."""
    spec = source.spec
    if not spec.sub_groups:
        return attrs.evolve(source, spec=attrs.evolve(spec, min_member=minima[DEFAULT_SUBGROUP]))
    parts = [attrs.evolve(each, min_member=minima.get(each.name, each.min_member)) for each in spec.sub_groups]
    return attrs.evolve(source, spec=attrs.evolve(spec, sub_groups=tuple(parts)))


def _is_gang(record: GroupRecord) -> bool:
    return any(minimum > 1 for _, minimum in _leaves(record))


def _leaves(record: GroupRecord) -> Iterator[tuple[str, int]]:
    """Yield the leaves of a group that may be tried, and how many pods each needs."""
    group = record.group
    if group is not None and not group.tree_error and not group.held:
        yield from ((each.name, each.minimum or 0) for each in group.subgroups if each.leaf)


def _bound(record: PodRecord) -> float:
    """Return when a pod got its node; when it was created, where that is not told."""
    when = bound_at(record.source)
    return record.pod.created if when == inf else when


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
