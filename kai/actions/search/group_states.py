"""The states of all groups, updated between the searches of one action.

Each search fills heaps with thousands of groups, but only a handful have changed since the last search. So the state
and rank of a group are recomputed only after a status change of one of its pods.
"""

import numpy as np

from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import KEPT_HEAPS
from kai.facts.kernels.columns import KIND_FRACTION, KIND_MEMORY
from kai.facts.kernels.filling import Kept, Listing, fill_victims
from kai.facts.kernels.place import TransitionTable
from kai.facts.kernels.prefix import FirstProbe, Prefix
from kai.facts.kernels.trying import Aggressor, Trial
from kai.facts.kernels.victims import GroupState, list_all, look_again
from kai.facts.model.axis import Bools, Int64s

FEW = 64
"""The most changed groups that are moved to their new ranks one by one; with more, all are sorted again."""


def no_table(shapes: int) -> TransitionTable:
    """Return a table of states in which pods of no shape have an ask."""
    return TransitionTable(
        ask=np.full(shapes, -1, np.int64),
        left=np.zeros((0, 0), np.int64),
        taken=np.zeros((0, 0), np.int64),
        given=np.zeros((0, 0), np.int64),
        ratings=np.zeros((0, 0), np.float64),
        cells=np.zeros(2, np.int64),
        wanted=np.zeros((0, 2), np.int64),
        wants=np.zeros(1, np.int64),
    )


class GroupStates:
    """The current states of all groups. Shapes: G groups, N nodes."""

    def __init__(self, session: Session) -> None:
        """Begin with no group described."""
        self._session = session
        self._changed = np.zeros(1, np.int64)
        self._all_queues: Bools = np.ones(len(session.snapshot.queues), np.bool_)
        self._prefixes: dict[tuple[int, int], Prefix] = {}
        self.plain: Bools = self.plain_but(session.policy.dynamic)
        self.exact: Bools = self.plain & ~self._sharing()
        """[G] Plain groups for which the booked amounts are all that their pods request."""
        self.arrays: GroupState = self._make_arrays()
        self.trial: Trial = self._make_trial()
        self.probe: FirstProbe = self._make_probe()

    @property
    def placed(self) -> Bools:
        """[G] Groups that have a pod with a place."""
        return self.arrays.placed

    def refresh(self) -> None:
        """Update the groups that changed since the last call."""
        session = self._session
        look_again(session.facts, session.columns, session.policy.rules, self.arrays, FEW)
        self.complete()

    def complete(self) -> None:
        """Finish the update that a kernel left to its caller."""
        session, arrays = self._session, self.arrays
        _, unknown, changed = arrays.state.tolist()
        if changed > FEW:
            # Reversed, since `lexsort` takes its last row as the first key.
            ranked = np.lexsort(arrays.heap.keys.T[::-1])
            alike = not session.ranks_victims
            list_all(session.facts, arrays, ranked, ranked if alike else np.lexsort(arrays.victims.keys.T[::-1]))
        for group in arrays.unknown[:unknown].tolist() if unknown else ():
            arrays.heap.amounts[group] = arrays.wanting[group] = session.portion(group).amounts()

    def room_for(self, pods: Int64s) -> int:
        """Return the most changes that evicting ``pods`` and placing their groups again can make."""
        facts = self._session.facts
        groups = np.array(list(set(facts.pods.group[pods].tolist())), np.int64)
        starts = facts.groups.pod_start[facts.groups.first_subgroup]
        return 2 * (len(pods) + int((starts[groups + 1] - starts[groups]).sum()))

    def fill(self, member: Bools) -> None:
        """Fill the heap of victims with the whole groups in ``member`` [G]."""
        session, arrays = self._session, self.arrays
        if self._changed[0]:
            # Growing the last prefix replaced whole groups in the heap by parts of them.
            arrays.victims.amounts[:] = arrays.holding
            if session.policy.rules.elastic_key >= 0:
                arrays.victims.keys[:, session.policy.rules.elastic_key] = arrays.states
            self._changed[0] = 0
        fill_victims(
            session.facts,
            session.columns,
            session.policy.rules,
            arrays.victims,
            arrays.losing,
            arrays.by_age,
            self._all_queues,
            member,
        )

    def plain_but(self, asked: Bools) -> Bools:
        """Return bool[G]: groups with one leaf that no plugin judges, and no pods of the shapes ``asked`` [K]."""
        session = self._session
        facts = session.facts
        groups = np.arange(len(session.snapshot.groups), dtype=np.int64)
        plain = facts.groups.simple & session.policy.leaves_alone(groups)
        asking = np.flatnonzero(asked[facts.pods.shape] & (facts.pods.group >= 0))
        plain[facts.pods.group[asking]] = False
        return plain

    def _sharing(self) -> Bools:
        """Return bool[G]: groups with a pod that requests a part of a device."""
        facts = self._session.facts
        kinds = facts.shapes.kind[facts.pods.shape]
        parts = ((kinds == KIND_FRACTION) | (kinds == KIND_MEMORY)) & (facts.pods.group >= 0)
        sharing = np.zeros(len(self.plain), np.bool_)
        sharing[facts.pods.group[parts]] = True
        return sharing

    def _make_arrays(self) -> GroupState:
        session = self._session
        count = len(session.snapshot.groups)
        return GroupState(
            heap=GroupHeap(session, every_key=True).records,
            victims=GroupHeap(session, victims=True, every_key=True).records,
            queued=self._listing(),
            losing=self._listing(),
            by_age=np.argsort(session.group_keys[:, -1]).astype(np.int64),
            states=np.zeros(count, np.float64),
            wanting=np.zeros((count, 3), np.float64),
            holding=np.zeros((count, 3), np.float64),
            requested=session.requested,
            waits=np.zeros(count, np.bool_),
            placed=np.zeros(count, np.bool_),
            waiting=np.zeros(count, np.int64),
            unknown=np.zeros(count, np.int64),
            changed=np.zeros(count, np.int64),
            seen=np.full(count, -1, np.int64),
            chunk=self._room_for_a_group(),
            state=np.zeros(3, np.int64),
        )

    def _listing(self) -> Listing:
        facts = self._session.facts
        return Listing(
            items=np.zeros(int(self._session.heap_start[-1]), np.int64),
            length=np.zeros(len(facts.queues.leaf) + 1, np.int64),
            member=np.zeros(len(facts.groups.queue), np.bool_),
            changed=np.ones(len(facts.queues.leaf) + 1, np.bool_),
        )

    def _make_kept(self) -> Kept:
        session, start = self._session, self._session.heap_start
        parents = session.facts.queues.parent
        count, size = len(parents), int(start[-1])
        above = np.where(parents >= 0, parents, count)
        depth, up = np.zeros(count, np.int64), parents.copy()
        while (is_deeper := up >= 0).any():
            depth += is_deeper
            up = np.where(is_deeper, parents[up], -1)
        families = np.bincount(above, minlength=count + 1)
        rows = np.argsort(above, kind="stable")
        firsts = np.cumsum(families) - families
        children = np.zeros(size, np.int64)
        children[start[above[rows]] + np.arange(count) - firsts[above[rows]]] = rows
        return Kept(
            nodes=np.append(np.argsort(-depth, kind="stable"), count),
            children=children,
            count=families,
            oldest=np.full(count + 1, np.inf),
            times=np.zeros(size, np.float64),
            tops=np.zeros(size, np.int64),
            turns=np.zeros(count + 1, np.int64),
            known=np.zeros(count + 1, np.bool_),
            ranked=np.ones(count + 1, np.bool_),
            used=np.zeros((count, 3), np.int64),
            models=np.zeros_like(session.columns.queue_models),
            lives=session.takes(KEPT_HEAPS),
        )

    def _make_trial(self) -> Trial:
        session, arrays = self._session, self.arrays
        nodes, groups = len(session.all_nodes), len(session.snapshot.groups)
        return Trial(
            heap=arrays.heap,
            queued=arrays.queued,
            kept=self._make_kept(),
            age=np.ascontiguousarray(session.group_keys[:, -1]),
            states=arrays.states,
            wanting=arrays.wanting,
            requested=session.requested,
            limits=session.limit_amounts,
            prepared=session.policy.prepared,
            affected=np.zeros(groups, np.bool_),
            nodes=np.zeros(nodes, np.int64),
            extra=np.zeros(nodes, np.float64),
            chunk=self._room_for_a_group(),
            failed=np.zeros(groups, np.int64),
            state=np.zeros(2, np.int64),
            table=no_table(len(session.snapshot.shapes)),
        )

    def _make_probe(self) -> FirstProbe:
        nodes, pods = len(self._session.all_nodes), len(self._session.snapshot.pods)
        return FirstProbe(
            prefix=self.prefix(1, 1),
            aggressor=Aggressor(
                group=np.zeros(1, np.int64),
                pods=np.zeros(1, np.int64),
                elastic=np.zeros(1, np.float64),
                amounts=np.zeros(3, np.float64),
                feasible=np.zeros(nodes, np.bool_),
            ),
            exact=self.exact,
            plain=self.plain,
            prepared=self._session.policy.prepared,
            idle=np.zeros(nodes, np.int64),
            releasing=np.zeros(nodes, np.int64),
            seen=np.full(1, -1, np.int64),
            victims=np.zeros(pods, np.int64),
            start=np.zeros(pods + 1, np.int64),
            state=np.zeros(4, np.int64),
        )

    def _room_for_a_group(self) -> Int64s:
        # Made once for the action: a kernel would else allocate a chunk for each of thousands of groups.
        return np.zeros(int(np.diff(self._session.facts.groups.pod_start).max(initial=1)), np.int64)

    def prefix(self, wanted: int, masks: int) -> Prefix:
        """Return arrays for growing a victim set from the filled heap, for ``wanted`` waiting pods and ``masks``."""
        known = self._prefixes.get((wanted, masks))
        if known is None:
            pods, nodes = len(self._session.snapshot.pods), len(self._session.all_nodes)
            known = self._prefixes[wanted, masks] = Prefix(
                heap=self.arrays.victims,
                removed=np.zeros(pods, np.bool_),
                known=np.zeros(pods, np.bool_),
                pods=np.empty(pods, np.int64),
                start=np.empty(pods + 1, np.int64),
                capacity=np.zeros(nodes, np.int64),
                wanted=np.zeros(wanted, np.int64),
                masks=np.zeros(masks, np.int64),
                reached=np.zeros(masks, np.bool_),
                # One counter for all prefixes: all of them grow from the one heap that `fill` restores.
                changed=self._changed,
                before=np.zeros(nodes, np.int64),
                spread=np.zeros(nodes, np.bool_),
                useless=np.zeros(nodes, np.bool_),
                state=np.zeros(8, np.int64),
            )
        return known
