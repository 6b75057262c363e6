"""Pod groups as their running members were granted them.

A pod group says to which queue and node pool it belongs, and may be edited at any time. What its running pods hold was
granted on the account of one queue in one pool, and stays there until they are gone; pods that follow go by it as well.
So a group whose members hold something that was granted is read as if it still said what it said then. Where members
were granted on different accounts, the one that was bound first decides, of several the first by name.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.api.conventions.grants import bound_at
from kai.api.scheduling import pod_group as api_podgroup
from kai.intake.accounts import Accounts
from kai.intake.groups import GroupReader, GroupRecord
from kai.intake.pods import PodRecord
from kai.intake.record_cache import RecordCache
from kai.intake.table import GroupColumns, PodColumns
from kai.model.rows import NONE, Int64s
from kai.state.memory import Memory
from kai.state.table_version import TableVersion


@attrs.frozen
class _Held:
    """A group that says another account than the one that its members are held on."""

    said: GroupRecord
    account: int
    record: GroupRecord


@attrs.define(eq=False)
class HeldGroups:
    """The records of all groups, each as its running members were granted it."""

    accounts: Accounts
    records: Sequence[GroupRecord] = ()
    version: TableVersion = attrs.field(factory=TableVersion)
    _base: TableVersion = attrs.field(factory=TableVersion)
    """Of the records as the groups say; it is ``version`` itself while all of them say what was granted."""
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

        Cost: columns; a look at each group that says another account, and a copy of the list while there are any.
        """
        rows = granted.differing(columns)
        said, base = groups.records, groups.version
        if not rows and not self._held:
            self.records, self.version, self._base = said, base, base
            return
        known = {id(each.said): each for each in self._held.values()}
        held: dict[int, _Held] = {}
        for row, account in rows.items():
            before = known.get(id(said[row]))
            if before is not None and before.account == account:
                held[row] = before
            else:
                held[row] = _Held(said[row], account, reader.read_as(said[row].source, *self.accounts[account]))
        version = self._version(base, held)
        if version is not None:
            self.records = list(said)
            for row, each in held.items():
                self.records[row] = each.record
            self.version = version
        self._base, self._held = base, held

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
