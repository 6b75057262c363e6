"""Necessary conditions: cheap tests that refuse a set of victims before anything is simulated.

Each may only refuse what a simulation would refuse too. (The topology test also counts running pods of the aggressor,
as the peer's does; see docs/differences.md.)

Source: the peer's actions/common/solvers/accumulated_scenario_filters.
"""

from collections.abc import Sequence

import numpy as np

from kai.framework.portion import Portion
from kai.framework.session import Session
from kai.kernels.booking import accepted_gpu, requested_gpu
from kai.model.rows import Int64s


def held_by(session: Session, pods: Sequence[int]) -> Int64s:
    """Return int64[N]: thousandths of GPUs that ``pods`` hold on each node."""
    out = np.zeros(len(session.all_nodes), np.int64)
    for pod in pods:
        node = int(session.columns.node[pod])
        if node >= 0:
            out[node] += accepted_gpu(session.facts, int(session.facts.pods.shape[pod]), node)
    return out


def wanted_by(session: Session, pods: Sequence[int]) -> tuple[int, ...]:
    """Return the thousandths of GPUs that each pod asks for; a request by memory counts nothing without a node."""
    return tuple(int(requested_gpu(session.facts, int(session.facts.pods.shape[pod]))) for pod in pods)


def fits_greedily(wanted: Sequence[int], capacities: Sequence[int], *, stop_at_zero: bool = False) -> bool:
    """Say whether each amount finds a holder, largest first into the largest with enough left.

    ``stop_at_zero``: an amount of nothing ends the test, everything after it is nothing too.
    """
    sizes = sorted(capacities, reverse=True)
    left = list(sizes)
    for amount in sorted(wanted, reverse=True):
        if stop_at_zero and amount == 0:
            return True
        for at, size in enumerate(sizes):
            if size < amount:
                return False
            if left[at] >= amount:
                left[at] -= amount
                break
        else:
            return False
    return True


class Filters:
    """The tests for one aggressor. What does not depend on the victims is prepared once."""

    def __init__(
        self, session: Session, aggressor: Portion, waiting: Sequence[int], free: Int64s, feasible: Int64s
    ) -> None:
        """Prepare the aggressor's requirements; ``free`` [N] is what nodes have without taking anything."""
        self._session = session
        self._free = free
        self._wanted = wanted_by(session, waiting)
        self._open = np.zeros(len(free), np.bool_)
        self._open[feasible] = True
        session.policy.prepare_all(np.array(waiting, np.int64), session.all_nodes)
        self._masks = [mask for mask in self._static_masks(waiting) if not mask.all()]
        self._domains = self._topology_requirements(aggressor)

    def accept(self, victims: Sequence[int], held: Int64s) -> bool:
        """Say whether the aggressor might fit with all ``victims`` gone; ``held`` [N] is what they hold."""
        return self._some_node_matches(victims) and self._domains_can_hold(held) and self._nodes_can_hold(held)

    def _static_masks(self, waiting: Sequence[int]) -> list["np.ndarray[tuple[int], np.dtype[np.bool_]]"]:
        rows = dict.fromkeys(
            int(self._session.facts.shapes.mask[self._session.facts.pods.shape[pod]]) for pod in waiting
        )
        return [self._session.policy.vectors.masks[row] for row in rows]

    def _some_node_matches(self, victims: Sequence[int]) -> bool:
        if not self._masks:
            return True
        reachable = self._open.copy()
        nodes = self._session.columns.node[list(victims)]
        reachable[nodes[nodes >= 0]] = True
        return all(bool((mask & reachable).any()) for mask in self._masks)

    def _topology_requirements(self, aggressor: Portion) -> list[tuple[Int64s, list[int]]]:
        """Return, for each level that inner sub-groups require, every node's domain and the amounts to be held."""
        session = self._session
        group = session.snapshot.groups[aggressor.group]
        wanted: dict[tuple[str, str], list[int]] = {}
        for at, subgroup in enumerate(group.subgroups):
            if not subgroup.leaf and subgroup.constraint and subgroup.constraint.required:
                amount = sum(wanted_by(session, [int(pod) for pod in aggressor.pods(aggressor.root + at)]))
                wanted.setdefault((subgroup.constraint.topology, subgroup.constraint.required), []).append(amount)
        return [(session.view.label_codes(level), amounts) for (_, level), amounts in wanted.items()]

    def _domains_can_hold(self, held: Int64s) -> bool:
        for codes, amounts in self._domains:
            capacity = np.bincount(codes, weights=self._free + held)[1:]
            if not fits_greedily(amounts, [int(c) for c in capacity]):
                return False
        return True

    def _nodes_can_hold(self, held: Int64s) -> bool:
        capacity = np.sort(self._free + held)[::-1][: max(1, len(self._wanted))]
        return fits_greedily(self._wanted, [int(c) for c in capacity], stop_at_zero=True)
