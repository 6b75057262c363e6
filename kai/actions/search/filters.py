"""Necessary conditions: cheap tests that refuse a set of victims before anything is simulated.

Each may only refuse what a simulation would refuse too. (The test of domains also counts running pods of the aggressor,
as the peer's does; see docs/differences.md.)

Source: the peer's actions/common/solvers/accumulated_scenario_filters.
"""

from collections.abc import Sequence

import numpy as np

from kai.engine.portion import Portion
from kai.engine.session import Session
from kai.kernels.booking import requested_gpu
from kai.kernels.victims import add_held
from kai.model.rows import Bools, GroupRow, Int64s, SubGroupRow


def held_by(session: Session, pods: Sequence[int] | Int64s) -> Int64s:
    """Return int64[N]: thousandths of GPUs that ``pods`` hold on each node."""
    out = np.zeros(len(session.all_nodes), np.int64)
    add_held(session.facts, session.columns, np.asarray(pods, np.int64), out)
    return out


def wanted_by(session: Session, pods: Sequence[int]) -> tuple[int, ...]:
    """Return the thousandths of GPUs that each pod asks for; a request by memory counts nothing without a node."""
    return tuple(int(requested_gpu(session.facts, int(session.facts.pods.shape[pod]))) for pod in pods)


def fits_greedily(wanted: Sequence[int], capacities: Sequence[int], *, stop_at_zero: bool = False) -> bool:
    """Return whether each amount finds a holder, largest first into the largest with enough left.

    ``stop_at_zero``: an amount of nothing ends the test, everything after it is nothing too.

    Cost: a look at each holder for each amount that differs from the one before, besides sorting.
    """
    left = sorted(capacities, reverse=True)
    at, before = 0, -1
    for amount in sorted(wanted, reverse=True):
        if stop_at_zero and amount == 0:
            return True
        if amount != before:  # holders that had too little for an equal amount have no more now
            at, before = 0, amount
        while at < len(left) and left[at] < amount:
            at += 1
        if at == len(left):
            return False
        left[at] -= amount
    return True


class Filters:
    """The tests for one aggressor. What does not depend on the victims is prepared once."""

    def __init__(
        self, session: Session, aggressor: Portion, waiting: Sequence[int], free: Int64s, feasible: Int64s
    ) -> None:
        """Prepare the aggressor's requirements; ``free`` [N] is what nodes have without taking anything."""
        self._session = session
        self._free = free
        self.wanted = wanted_by(session, waiting)
        """What each waiting pod asks for."""
        self._open = np.zeros(len(free), np.bool_)
        self._open[feasible] = True
        session.policy.prepare_all(np.array(waiting, np.int64), session.all_nodes)
        self._masks = {row: mask for row, mask in self._static_masks(waiting).items() if not mask.all()}
        self._domains = self._requirements(aggressor)

    def accept(self, victims: Int64s, held: Int64s) -> bool:
        """Return whether the aggressor might fit with all ``victims`` gone; ``held`` [N] is what they hold."""
        capacity = self._free + held
        return self._some_node_matches(victims) and self.domains_can_hold(capacity) and self._nodes_can_hold(capacity)

    def unmatched(self) -> Int64s:
        """Return the rows of the static masks that no node with room satisfies, without taking anything."""
        return np.array([row for row, mask in self._masks.items() if not (mask & self._open).any()], np.int64)

    def _static_masks(self, waiting: Sequence[int]) -> dict[int, Bools]:
        rows = self._session.facts.shapes.mask[self._session.facts.pods.shape[list(waiting)]].tolist()
        return {row: self._session.policy.vectors.masks[row] for row in sorted(set(rows))}

    def _some_node_matches(self, victims: Int64s) -> bool:
        if not self._masks:
            return True
        reachable = self._open.copy()
        nodes = self._session.columns.node[victims]
        reachable[nodes[nodes >= 0]] = True
        return all(bool((mask & reachable).any()) for mask in self._masks.values())

    def _requirements(self, aggressor: Portion) -> list[tuple[Int64s, list[int]]]:
        """Return, for each level that inner sub-groups require, every node's domain and the amounts to be held."""
        session = self._session
        group = session.snapshot.groups[aggressor.group]
        wanted: dict[tuple[str, str], list[int]] = {}
        for at, subgroup in enumerate(group.subgroups):
            row = SubGroupRow(aggressor.root + at)
            asked = [] if subgroup.leaf else session.policy.together(GroupRow(aggressor.group), row)
            for tree, level in [(each.tree, each.level) for each in asked if each.level]:
                amount = sum(wanted_by(session, [int(pod) for pod in aggressor.pods(row)]))
                wanted.setdefault((tree, level), []).append(amount)
        return [(session.view.label_codes(level), amounts) for (_, level), amounts in wanted.items()]

    def domains_can_hold(self, capacity: Int64s) -> bool:
        """Return whether the domains of each required level can hold what must be in one; ``capacity`` [N] by node."""
        for codes, amounts in self._domains:
            sums = np.bincount(codes, weights=capacity)[1:]
            if not fits_greedily(amounts, [int(c) for c in sums]):
                return False
        return True

    def _nodes_can_hold(self, capacity: Int64s) -> bool:
        largest = np.sort(capacity)[::-1][: max(1, len(self.wanted))]
        return fits_greedily(self.wanted, [int(c) for c in largest], stop_at_zero=True)
