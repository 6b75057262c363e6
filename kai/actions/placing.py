"""Place one group: check its capacity, then walk the tree of sub-groups top down, then place pods.

A sub-group may have several node sets to try (domains). The first set in which all its pods fit wins; tries in the sets
before it are rolled back. The same code places for real and, with ``promise``, inside searches for victims.

Source: the peer's actions/common (AllocateJob, allocateSubGroupSet, allocatePodSet).
"""

import numpy as np

from kai.engine.descent import Descent, descend
from kai.engine.portion import Portion
from kai.engine.refusals import capacity_verdict, record_no_node
from kai.engine.session import Session
from kai.engine.statement import Statement
from kai.model.rows import GroupRow, NodeRows, PodRows, SubGroupRow


def place_group(session: Session, statement: Statement, portion: Portion, nodes: NodeRows, *, promise: bool) -> bool:
    """Place the next chunk of ``portion`` on ``nodes`` (ascending), all of it or nothing that stays.

    With ``promise`` it only promises places and records no refusals, because this is a simulation. The caller undoes
    what a failure left behind.
    """
    before = session.attend(portion.group)
    placed = _place_group(session, statement, portion, nodes, promise=promise)
    session.attend(before)
    return placed


def _place_group(session: Session, statement: Statement, portion: Portion, nodes: NodeRows, *, promise: bool) -> bool:
    session.subgroup_scores.clear()
    chunk = portion.chunk()
    if not len(chunk):
        return False
    verdict = capacity_verdict(session, portion, chunk)
    if not verdict:
        if not promise:
            session.refuse(portion.group, verdict)
        return False
    return descend(_Placer(session, statement, portion, promise=promise).place(portion.root, chunk, nodes))


class _Placer:
    """One attempt on one portion."""

    def __init__(self, session: Session, statement: Statement, portion: Portion, *, promise: bool) -> None:
        self._session = session
        self._statement = statement
        self._portion = portion
        self._promise = promise

    def place(self, subgroup: int, pods: PodRows, nodes: NodeRows) -> Descent[bool]:
        """Place ``pods``, all of them below ``subgroup``, in the first part of ``nodes`` where they fit."""
        for part in self._parts(subgroup, pods, nodes):
            mark = self._statement.mark()
            if (yield self._place_in(subgroup, pods, part)):
                return True
            self._statement.roll_back(mark)
        return False

    def _place_in(self, subgroup: int, pods: PodRows, nodes: NodeRows) -> Descent[bool]:
        if self._session.facts.groups.leaf[subgroup]:
            return self._place_leaf(subgroup, pods, nodes)
        children = self._session.children(subgroup)
        if len(children) == 1:
            placed: bool = yield self.place(children[0], pods, nodes)
            return placed
        below = self._by_child(subgroup, pods)
        for child in self._portion.in_order(children):
            if child in below and not (yield self.place(child, below[child], nodes)):
                return False
        return True

    def _by_child(self, subgroup: int, pods: PodRows) -> dict[int, PodRows]:
        """Return ``pods``, all of them below ``subgroup``, by the child that they are below."""
        groups = self._session.facts.groups
        leaves, which = np.unique(self._session.facts.pods.leaf[pods], return_inverse=True)
        children = leaves.copy()
        while (above := groups.parent[children] != subgroup).any():
            children[above] = groups.parent[children[above]]
        of_pod = children[which]
        order = np.argsort(of_pod, kind="stable")
        found, begins = np.unique(of_pod[order], return_index=True)
        return dict(zip(found.tolist(), np.split(pods[order], begins[1:]), strict=True))

    def _parts(self, subgroup: int, pods: PodRows, nodes: NodeRows) -> list[NodeRows]:
        parts = [nodes]
        group = GroupRow(self._portion.group)
        for domains in self._session.policy.splitting:
            out: list[NodeRows] = []
            for part in parts:
                partition = domains.partition(group, SubGroupRow(subgroup), pods, part)
                if partition is None:
                    out.append(part)
                    continue
                if partition.scores is not None:
                    self._session.subgroup_scores[subgroup] = partition.scores
                if not partition.verdict and not self._promise:
                    self._session.refuse(self._portion.group, partition.verdict)
                out += partition.parts
            parts = out
        return parts

    def _place_leaf(self, leaf: int, pods: PodRows, nodes: NodeRows) -> bool:
        extra = self._session.scores_below(leaf)
        placed = self._statement.place_pods(pods, nodes, extra, promise=self._promise)
        if placed == len(pods):
            return True
        if not self._promise:
            record_no_node(self._session, self._portion, leaf, int(pods[placed]), placed, nodes)
        return False


def must_wait(portion: Portion, session: Session) -> bool:
    """Return whether the gang of some leaf would start with pods that are only promised a place.

    If so, the whole group waits.
    """
    leaves = np.array(portion.leaves, np.int64)
    for leaf in leaves[session.columns.pipelined[leaves] > 0].tolist():
        if portion.active(leaf) - int(session.columns.pipelined[leaf]) < portion.minimum(leaf):
            return True
    return False
