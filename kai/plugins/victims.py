"""Which victims a search tries first: those on as few nodes as a gang needs, and those of one node.

For a gang: victims on as few nodes as the gang needs, then on more. The engine places a gang as a whole or not at all;
this plugin makes room for whole gangs by taking whole batches on several nodes at once.

For a pod that needs room on one node: victims node by node, which is the cheapest way.

Source: the peer's plugins/multinodegang and plugins/nodelocalgreedy.
"""

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from kai.framework import Batches, Bools, Extension, Int64s, NodeRows, Outer, Scenario, SessionView, VictimProposals


@attrs.frozen(kw_only=True)
class Gang:
    """Propose the batches on the K nodes that are cheapest to free, with growing K.

    K begins with the least that could do, and grows by 1, 2, 4, 8 ...
    """

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the generator."""
        del session
        return (VictimProposals(propose_nodes_together, name="MultiNodeGang", begins_with_recorded=True),)


def propose_nodes_together(outers: Iterator[Outer]) -> Iterator[Scenario]:
    """Yield scenarios with growing sets of nodes."""
    for outer in outers:
        if not len(outer.batches):
            yield outer.scenario()
            continue
        nodes, capacity = _capacities(outer)
        smallest = min(outer.wanted, default=0)
        enough = nodes[(capacity[nodes] >= smallest) | (smallest == 0)]
        usable = enough[np.argsort(capacity[enough], kind="stable")]
        count = _fewest(outer, nodes, usable, capacity)
        if count is None:
            continue
        step = 1
        while True:
            yield outer.scenario(_touching(outer, usable[:count]))
            if count >= len(usable):
                break
            count = min(len(usable), count + step)
            # Doubled: each proposal is simulated, and thousands of nodes would take as many simulations one by one.
            step *= 2


def _touching(outer: Outer, nodes: NodeRows) -> Batches:
    """Return the batches that have a pod on one of ``nodes``."""
    batches = outer.batches
    there = _is_among(nodes, outer)[outer.view.columns.node[batches.pods]]
    return batches.chosen(np.flatnonzero(np.add.reduceat(there, batches.start[:-1])))


def _is_among(nodes: NodeRows, outer: Outer) -> Bools:
    """Return bool[N + 1]: which nodes are among ``nodes``; the last cell, which is also at -1, is for no node."""
    among = np.zeros(len(outer.free) + 1, np.bool_)
    among[nodes] = True
    return among


def _capacities(outer: Outer) -> tuple[NodeRows, Int64s]:
    """Return the nodes with potential victims in order of their first one, and the yield of each node, [N]."""
    where = outer.view.columns.node[_last_first(outer.batches)]
    nodes, first = np.unique(where, return_index=True)
    nodes = nodes[np.argsort(first)]
    capacity = outer.free + outer.held(outer.recorded.pods) + outer.held(outer.batches.pods)
    return nodes[nodes >= 0], capacity


def _last_first(batches: Batches) -> Int64s:
    """Return the pods batch by batch, each batch from its end: a group gives up its last pod first."""
    start = batches.start
    ends = np.repeat(start[:-1] + start[1:] - 1, np.diff(start))
    mirrored: Int64s = batches.pods[ends - np.arange(len(ends))]
    return mirrored


def _fewest(outer: Outer, nodes: NodeRows, usable: NodeRows, capacity: Int64s) -> int | None:
    """Return the least number of ``usable`` nodes that is needed, besides what is free elsewhere.

    None if all of them are too few.
    """
    among = _is_among(nodes, outer)
    elsewhere = int(outer.free[outer.feasible[~among[outer.feasible]]].sum())
    stays = outer.recorded.pods[~among[outer.view.columns.node[outer.recorded.pods]]]
    elsewhere += sum(map(outer.gpus_of, stays.tolist()))
    need = max(0, sum(outer.wanted) - elsewhere)
    if need == 0:
        return 0
    found = np.flatnonzero(np.cumsum(capacity[usable]) >= need)
    return int(found[0]) + 1 if len(found) else None


@attrs.frozen(kw_only=True)
class NodeLocalVictims:
    """Propose, for each node of the group added last, all batches of all groups that would lose a pod there."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the generator."""
        del session
        return (
            VictimProposals(
                propose_node_by_node,
                name="NodeLocalGreedy",
                begins_with_recorded=True,
                proposes_by_node=True,
                only_by_node=True,
            ),
        )


def propose_node_by_node(outers: Iterator[Outer]) -> Iterator[Scenario]:
    """Yield scenarios node by node, nodes in name order."""
    for outer in outers:
        if not len(outer.batches):
            if len(outer.recorded):
                yield outer.scenario()
            continue
        tried: set[bytes] = set()
        nodes = outer.nodes_of_group(outer.group_of(int(outer.batches.pods[-1])))
        for node in nodes:
            potential = outer.losing_on(node)
            if not len(potential):
                continue
            # Victims on two nodes are the same set if a gang holds both: it was simulated already.
            if len(nodes) > 1:
                victims = np.unique(potential.pods).tobytes()
                if victims in tried:
                    continue
                tried.add(victims)
            yield outer.scenario(potential)
