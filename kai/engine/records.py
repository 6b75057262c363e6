"""Records say why groups wait. Groups that wait for one reason share one note, which is written out when read."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np

from kai.framework.verdict import Fact, Reason
from kai.kernels.columns import GroupFacts
from kai.model.podgroup import DEFAULT_SUBGROUP
from kai.model.rows import Bools, GroupRows, Int64s, PodRows
from kai.state.snapshot import Snapshot


@attrs.define
class GroupRecord:
    """What became of a group in this cycle besides decisions: why it waits."""

    reasons: list[Reason] = attrs.field(factory=list)
    notes: list[Reason] = attrs.field(factory=list)
    """What the peer does not report but explains more, e.g. why a group may not reclaim."""
    pods: dict[int, Reason] = attrs.field(factory=dict)


class Records(Mapping[int, GroupRecord]):
    """The records of a cycle, by group row, ascending."""

    def __init__(self, snapshot: Snapshot, groups: GroupFacts) -> None:
        """Begin with no record."""
        self._snapshot = snapshot
        self._groups = groups
        self._written: dict[int, GroupRecord] = {}
        self._known: Bools = np.zeros(len(snapshot.groups), np.bool_)
        self._shared: list[tuple[Reason, ...]] = [()]
        """Reasons that several groups have in common; the columns below hold positions in this list."""

    # Most cycles refuse no groups together, so that memory for all groups is only taken by those that do.

    @cached_property
    def _refusal(self) -> Int64s:
        return np.zeros(len(self._known), np.int64)

    @cached_property
    def _pod(self) -> Int64s:
        return np.zeros(len(self._known), np.int64)

    @cached_property
    def _satisfied(self) -> Bools:
        return np.zeros(len(self._known), np.bool_)

    @cached_property
    def _notes(self) -> Int64s:
        return np.zeros(len(self._known), np.int64)

    def __getitem__(self, group: int) -> GroupRecord:
        """Return the record of ``group``.

        Raises: KeyError when nothing is known about it.
        """
        record = self._written.get(group)
        if record is not None:
            return record
        if not 0 <= group < len(self._known) or not self._known[group]:
            raise KeyError(group)
        return self._write(group)

    def __len__(self) -> int:
        return int(self._known.sum())

    def __iter__(self) -> Iterator[int]:
        yield from np.flatnonzero(self._known).tolist()

    def of(self, group: int) -> GroupRecord:
        """Return the record of ``group`` to be added to; an empty one if nothing is known about it yet."""
        self._known[group] = True
        return self._written.get(group) or self._write(group)

    def refuse(self, group: int, reasons: Sequence[Reason]) -> None:
        """Add ``reasons`` to those for which ``group`` waits; one that is known already is not repeated."""
        known = self.of(group).reasons
        known.extend(reason for reason in reasons if reason not in known)

    def refuse_alike(self, groups: GroupRows, pods: PodRows, satisfied: Bools, reason: Reason) -> None:
        """Note that each of ``groups`` [n] is refused for what the ``reason`` given to another says.

        ``pods`` [n] are the pods that no node takes (-1: the reason is about no pod), ``satisfied`` [n] says whether
        the groups have what they need without them.
        """
        fresh = ~self._known[groups]
        mine = groups[fresh]
        self._shared.append((reason,))
        self._refusal[mine] = len(self._shared) - 1
        self._pod[mine] = pods[fresh]
        self._satisfied[mine] = satisfied[fresh]
        self._known[mine] = True
        for group, pod, enough in zip(groups[~fresh], pods[~fresh], satisfied[~fresh], strict=True):
            self._add(int(group), self._own(int(group), int(pod), reason, satisfied=bool(enough)), int(pod))

    def note_alike(self, groups: GroupRows, notes: Sequence[Reason]) -> None:
        """Replace the notes on each of ``groups``."""
        self._shared.append(tuple(notes))
        self._notes[groups] = len(self._shared) - 1
        self._known[groups] = True
        if self._written:
            for group in groups.tolist():
                if group in self._written:
                    self._written[group].notes = list(notes)

    # ------------------------------------------------------------------ writing out

    def _write(self, group: int) -> GroupRecord:
        record = self._written[group] = GroupRecord(notes=list(self._shared[self._notes[group]]))
        for reason in self._shared[self._refusal[group]]:
            pod = int(self._pod[group])
            self._add(group, self._own(group, pod, reason, satisfied=bool(self._satisfied[group])), pod)
        return record

    def _add(self, group: int, reason: Reason, pod: int) -> None:
        self.refuse(group, (reason,))
        if pod >= 0:
            self._written[group].pods[pod] = reason

    def _own(self, group: int, pod: int, reason: Reason, *, satisfied: bool) -> Reason:
        """Return ``reason`` with the names and numbers of ``group``, which is one leaf, and of its ``pod``."""
        if pod < 0:
            return reason
        leaf = self._snapshot.groups[group].subgroups[1].name
        minimum = int(self._groups.minimum[self._groups.first_subgroup[group] + 1])
        facts: dict[str, Fact] = {
            **reason.facts,
            "placed": 0,
            "minimum": minimum,
            "subgroup": leaf,
            "gang": minimum > 1,
            "single_leaf": leaf == DEFAULT_SUBGROUP,
            "satisfied": satisfied,
            "pod": self._snapshot.pods[pod].key,
            "pod_row": pod,
        }
        return attrs.evolve(reason, facts=facts)
