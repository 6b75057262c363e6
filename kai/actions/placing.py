"""Place one group: check its capacity, walk its tree of sub-groups top down, and place the pods of each leaf.

A sub-group may have several node sets (domains) to try. The first set in which all its pods fit wins; tries in the sets
before it are rolled back. The same code places for real and, with ``promise``, in simulations of a victim search.

With nested sub-groups, each set of the parent is split into sets for the child, so their number multiplies from level
to level. A failed try is not repeated while nothing has changed, and the number of tries is bounded, because the tree
is user input.

Source: the peer's actions/common (AllocateJob, allocateSubGroupSet, allocatePodSet).
"""

from hashlib import blake2b
from itertools import count

import numpy as np

from kai.basics.trees import Descent, descend
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.refusals import capacity_verdict, record_no_node
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import SAME_TRY
from kai.deciding.engine.statement import Statement
from kai.facts.model.axis import GroupRow, NodeRows, PodRows, SubGroupRow
from kai.framework.verdict import Code, Reason, Verdict

MOST_TRIES = 16_384
"""The most node sets to try for all sub-groups of one group; a group that needs more waits."""


def place_group(
    session: Session,
    statement: Statement,
    portion: Portion,
    nodes: NodeRows,
    *,
    promise: bool,
    records: bool | None = None,
) -> bool:
    """Place the next chunk of ``portion`` on ``nodes`` (ascending): all of it, or return False.

    ``promise`` marks a simulation, which only promises places. ``records``: whether to record refusals; None: record
    them unless this is a simulation. The caller undoes the changes of a failed attempt.
    """
    before = session.attend(portion.group)
    placed = _place_group(
        session, statement, portion, nodes, promise=promise, records=not promise if records is None else records
    )
    session.attend(before)
    return placed


def place_waiting_group(session: Session, statement: Statement, portion: Portion, nodes: NodeRows) -> bool:
    """Place the next chunk of ``portion`` on ``nodes``, preferably where it can start now.

    A node on which a plugin makes pods wait (`NodeWait`) may have the best score, but a wait is a disadvantage. So such
    nodes are used only if the group finds no place without them.
    """
    mark = statement.mark()
    # The first try allows all nodes, because usually no plugin makes pods wait and one try is enough.
    if not place_group(session, statement, portion, nodes, promise=False):
        return False
    if statement.has_waited:
        statement.roll_back(mark)
        statement.may_wait = False
        # Without records: the group gets a place in any case, so a refusal of this try would be a reason that does not
        # hold.
        placed = place_group(session, statement, portion, nodes, promise=False, records=False)
        statement.may_wait = True
        if not placed:
            statement.roll_back(mark)
            # The ledger is as it was before the first try, so the same try gives the same places.
            return place_group(session, statement, portion, nodes, promise=False, records=False)
    return True


def _place_group(
    session: Session, statement: Statement, portion: Portion, nodes: NodeRows, *, promise: bool, records: bool
) -> bool:
    # Scores of partitions hold for one attempt, and the last one may have been of another group.
    session.subgroup_scores.clear()
    chunk = portion.chunk()
    if not len(chunk):
        return False
    # Before any node is looked at: a full queue refuses the chunk wherever its pods would go.
    verdict = capacity_verdict(session, portion, chunk)
    if not verdict:
        if records:
            session.refuse(portion.group, verdict)
        return False
    placer = _Placer(session, statement, portion, promise=promise, records=records)
    if session.facts.groups.simple[portion.group] and session.policy.leaves_one_alone(portion.group):
        return placer.place_leaf(portion.root + 1, chunk, nodes)  # the tree is one leaf, and it has all nodes
    return descend(placer.place(portion.root, chunk, nodes))


class _Placer:
    """One attempt to place a portion."""

    def __init__(
        self, session: Session, statement: Statement, portion: Portion, *, promise: bool, records: bool
    ) -> None:
        self._session = session
        self._statement = statement
        self._portion = portion
        self._promise = promise
        self._records = records
        self._is_split = not session.policy.leaves_one_alone(portion.group)
        self._tries = 0
        self._states = count()
        self._state = next(self._states)
        """A number for the present state of the ledger, unique among all states of this attempt."""
        self._refusals: dict[int, Reason] = {}
        """The refusals of the current try, the last one for each pod."""
        self._failed: dict[bytes, dict[int, Reason]] = {}
        """The refusals of failed tries, by a digest of everything that the try depends on."""

    def place(self, subgroup: int, pods: PodRows, nodes: NodeRows) -> Descent[bool]:
        """Place ``pods``, all below ``subgroup``, in the first part of ``nodes`` in which they fit."""
        for part in self._parts(subgroup, pods, nodes):
            failed = self._failed.get(self._key(subgroup, part)) if self._failed else None
            if failed is not None:
                self._record_again(failed)
            elif self._tries == MOST_TRIES:
                if self._records:
                    self._session.refuse(self._portion.group, Verdict.refused(Code.TRIES_SPENT, tries=MOST_TRIES))
                return False
            elif (yield self._try(subgroup, pods, part)):
                return True
        return False

    def _key(self, subgroup: int, part: NodeRows) -> bytes:
        """Return a digest of all that a try depends on, so that tries with the same digest have the same outcome."""
        digest = blake2b(b"%d %d %d " % (subgroup, self._state, len(part)), digest_size=16)
        digest.update(part.tobytes())
        # Scores of the partitions above decide which nodes come first, so the outcome depends on them, too.
        digest.update(self._session.scores_below(subgroup)[part].tobytes())
        return digest.digest()

    def _try(self, subgroup: int, pods: PodRows, part: NodeRows) -> Descent[bool]:
        """Place ``pods`` in ``part``, or undo that and remember the failure."""
        self._tries += 1
        mark, state, before, self._refusals = self._statement.mark(), self._state, self._refusals, {}
        placed: bool = yield self._place_in(subgroup, pods, part)
        refusals, self._refusals = self._refusals, before
        self._refusals |= refusals
        if not placed:
            self._statement.roll_back(mark)
            # A rollback restores the ledger, so failures that were recorded in this state count again.
            self._state = state
            if self._is_split and self._session.takes(SAME_TRY):
                self._failed[self._key(subgroup, part)] = refusals
        return placed

    def _record_again(self, refusals: dict[int, Reason]) -> None:
        """Record the refusals of a memoized failed try again."""
        self._refusals |= refusals
        if self._records:
            self._session.record(self._portion.group).pods.update(refusals)

    def _place_in(self, subgroup: int, pods: PodRows, nodes: NodeRows) -> Descent[bool]:
        if self._session.facts.groups.leaf[subgroup]:
            return self.place_leaf(subgroup, pods, nodes)
        children = self._session.children(subgroup)
        if len(children) == 1:
            placed: bool = yield self.place(children[0], pods, nodes)
            return placed
        below = self._by_child(subgroup, pods)
        # All or none: where one child fails, the caller rolls back to its mark what the others got.
        for child in self._portion.in_order(children):
            if child in below and not (yield self.place(child, below[child], nodes)):
                return False
        return True

    def _by_child(self, subgroup: int, pods: PodRows) -> dict[int, PodRows]:
        """Return ``pods``, all below ``subgroup``, by the child that they are below."""
        groups = self._session.facts.groups
        leaves, which = np.unique(self._session.facts.pods.leaf[pods], return_inverse=True)
        children = leaves.copy()
        while (above := groups.parent[children] != subgroup).any():
            children[above] = groups.parent[children[above]]
        of_pod = children[which]
        # Stable: below each child the pods keep the order in which they are served.
        order = np.argsort(of_pod, kind="stable")
        found, begins = np.unique(of_pod[order], return_index=True)
        return dict(zip(found.tolist(), np.split(pods[order], begins[1:]), strict=True))

    def _parts(self, subgroup: int, pods: PodRows, nodes: NodeRows) -> list[NodeRows]:
        parts = [nodes]
        group = GroupRow(self._portion.group)
        # Each plugin splits what the one before it left, so a part lies in one domain of every plugin.
        for domains in self._session.policy.splitting:
            out: list[NodeRows] = []
            for part in parts:
                partition = domains.partition(group, SubGroupRow(subgroup), pods, part)
                if partition is None:
                    out.append(part)
                    continue
                if partition.scores is not None:
                    self._session.subgroup_scores[subgroup] = partition.scores
                if not partition.verdict and self._records:
                    self._session.refuse(self._portion.group, partition.verdict)
                out += partition.parts
            parts = out
        return parts

    def place_leaf(self, leaf: int, pods: PodRows, nodes: NodeRows) -> bool:
        """Place all ``pods`` of ``leaf`` on ``nodes``, or return False."""
        extra = self._session.scores_below(leaf)
        placed = self._statement.place_pods(pods, nodes, extra, promise=self._promise)
        # Pods on nodes are a new state: failures that were recorded before do not hold in it.
        if placed == len(pods):
            self._state = next(self._states)
            return True
        if self._records:
            pod = int(pods[placed])
            self._refusals[pod] = record_no_node(self._session, self._portion, leaf, pod, placed, nodes)
        return False


def must_wait(portion: Portion, session: Session) -> bool:
    """Return whether some leaf can reach its minimum only with pods that are promised a place.

    If so, the whole group waits.
    """
    if session.facts.groups.simple[portion.group] and not session.columns.pipelined[portion.root + 1]:
        return False
    leaves = np.array(portion.leaves, np.int64)
    for leaf in leaves[session.columns.pipelined[leaves] > 0].tolist():
        if portion.active(leaf) - int(session.columns.pipelined[leaf]) < portion.minimum(leaf):
            return True
    return False
