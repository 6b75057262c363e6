"""What searches of one action know of all groups, kept up to date between them.

Each search fills heaps with thousands of groups of which a handful changed since the last one. What describes a group,
and where it ranks, is worked out again only when one of its pods changed its status.
"""

import numpy as np

from kai.framework.heaps import GroupHeap
from kai.framework.session import Session
from kai.kernels.columns import KIND_FRACTION, KIND_MEMORY
from kai.kernels.filling import rank_again
from kai.kernels.groups import describe_holding, describe_waiting, find_plain, find_waiting
from kai.kernels.growth import Growth
from kai.kernels.order import Heap
from kai.kernels.trying import Trial
from kai.kernels.victims import select
from kai.model.rows import Bools, Float64s, GroupRows, Int64s

FEW = 64
"""Groups that are moved one by one to where they rank; with more, all are sorted again."""


class Standing:
    """All groups as they stand. Shapes: G groups, N nodes."""

    def __init__(self, session: Session) -> None:
        """Describe nobody yet."""
        self._session = session
        count = len(session.snapshot.groups)
        self.by_age: GroupRows = np.argsort(session.group_keys[:, -1]).astype(np.int64)
        self.states: Float64s = np.zeros(count, np.float64)
        self.wanting: Float64s = np.zeros((count, 3), np.float64)
        self.holding: Float64s = np.zeros((count, 3), np.float64)
        self.waits: Bools = np.zeros(count, np.bool_)
        self.ranked: GroupRows = np.arange(count, dtype=np.int64)
        self.plain: Bools = self._plain()
        self.exact: Bools = self.plain & ~self._sharing()
        """[G] plain, and what is booked for their pods is all that they ask for."""
        self.victims: Heap = GroupHeap(session, victims=True).records
        self._growths: dict[tuple[int, int], Growth] = {}
        self._waiting: GroupRows = np.zeros(0, np.int64)
        self._heap: Heap = GroupHeap(session).records
        self._seen = np.full(count, -1, np.int64)
        self.trial: Trial = self._make_trial()

    def refresh(self) -> None:
        """Describe the groups that changed since the last time."""
        session = self._session
        epoch = session.columns.epoch
        stale = np.flatnonzero(epoch != self._seen).astype(np.int64)
        if not len(stale):
            return
        self._seen[:] = epoch
        before = self.states[stale]
        describe_holding(session.facts, session.columns, stale, self.states, self.holding)
        self.victims.amounts[stale] = self.holding[stale]
        self._rank(stale[self.states[stale] != before], everybody=len(stale) == len(epoch))
        find_waiting(session.facts, session.columns, self.waits)
        self._waiting = self.in_order_of_age(self.waits)
        self._describe_waiting(stale[self.waits[stale]])

    def in_order_of_age(self, member: Bools) -> GroupRows:
        """Return the groups in the mask ``member`` [G], oldest first."""
        out = np.empty(len(member), np.int64)
        return out[: select(self.by_age, member, out)]

    def others(self, group: int) -> GroupRows:
        """Return the groups that wait besides ``group``, oldest first."""
        others: GroupRows = self._waiting[self._waiting != group]
        return others

    def room_for(self, pods: Int64s) -> int:
        """Return how many changes evicting ``pods`` and placing their groups again can make at most."""
        facts = self._session.facts
        groups = np.array(list(set(facts.pods.group[pods].tolist())), np.int64)
        starts = facts.groups.pod_start[facts.groups.first_subgroup]
        return 2 * (len(pods) + int((starts[groups + 1] - starts[groups]).sum()))

    def restore(self) -> None:
        """Let the heap of victims describe whole groups again."""
        self.victims.amounts[:] = self.holding
        elastic = self._session.policy.rules.elastic_key
        if elastic >= 0:
            self.victims.keys[:, elastic] = self.states

    # ------------------------------------------------------------------ keeping up

    def _rank(self, changed: GroupRows, *, everybody: bool) -> None:
        elastic = self._session.policy.rules.elastic_key
        if elastic >= 0:
            self.victims.keys[changed, elastic] = self.states[changed]
            self._heap.keys[changed, elastic] = self.states[changed]
        if everybody or (elastic >= 0 and len(changed) > FEW):
            self.ranked[:] = np.lexsort(self._heap.keys.T[::-1])
        elif elastic >= 0 and len(changed):
            rank_again(self._heap.keys, self.ranked, changed)

    def _describe_waiting(self, groups: GroupRows) -> None:
        if not len(groups):
            return
        session = self._session
        described = np.ones(len(groups), np.bool_)
        describe_waiting(session.facts, session.columns, session.requested, groups, self.states, self.wanting)
        find_plain(session.facts, session.columns, groups, described)
        for group in map(int, groups[~described]):
            self.wanting[group] = session.portion(group).amounts()
        self._heap.amounts[groups] = self.wanting[groups]

    def _plain(self) -> Bools:
        """Return bool[G]: one leaf, no pod that plugins must be asked about, and no plugin that judges the group."""
        session = self._session
        facts = session.facts
        groups = np.arange(len(session.snapshot.groups), dtype=np.int64)
        plain = facts.groups.simple & session.policy.leaves_alone(groups)
        asking = np.flatnonzero(session.policy.dynamic[facts.pods.shape] & (facts.pods.group >= 0))
        plain[facts.pods.group[asking]] = False
        return plain

    def _sharing(self) -> Bools:
        """Return bool[G]: some pod takes a part of a device."""
        facts = self._session.facts
        kinds = facts.shapes.kind[facts.pods.shape]
        parts = ((kinds == KIND_FRACTION) | (kinds == KIND_MEMORY)) & (facts.pods.group >= 0)
        sharing = np.zeros(len(self.plain), np.bool_)
        sharing[facts.pods.group[parts]] = True
        return sharing

    def _make_trial(self) -> Trial:
        session = self._session
        nodes, groups = len(session.all_nodes), len(session.snapshot.groups)
        longest = int(np.diff(session.facts.groups.pod_start).max(initial=1))
        return Trial(
            heap=self._heap,
            ranked=self.ranked,
            age=np.ascontiguousarray(session.group_keys[:, -1]),
            states=self.states,
            wanting=self.wanting,
            requested=session.requested,
            limits=session.limit_amounts,
            prepared=session.policy.prepared,
            waits=self.waits,
            affected=np.zeros(groups, np.bool_),
            nodes=np.zeros(nodes, np.int64),
            extra=np.zeros(nodes, np.float64),
            chunk=np.zeros(longest, np.int64),
            failed=np.zeros(groups, np.int64),
            state=np.zeros(2, np.int64),
        )

    def growth(self, wanted: int, masks: int) -> Growth:
        """Return room for growing a set of victims of ``wanted`` pods with ``masks``; the same each time."""
        known = self._growths.get((wanted, masks))
        if known is None:
            pods, nodes = len(self._session.snapshot.pods), len(self._session.all_nodes)
            known = self._growths[wanted, masks] = Growth(
                heap=self.victims,
                removed=np.zeros(pods, np.bool_),
                known=np.zeros(pods, np.bool_),
                pods=np.empty(pods, np.int64),
                start=np.empty(pods + 1, np.int64),
                capacity=np.zeros(nodes, np.int64),
                wanted=np.zeros(wanted, np.int64),
                masks=np.zeros(masks, np.int64),
                reached=np.zeros(masks, np.bool_),
                state=np.zeros(5, np.int64),
            )
        return known
