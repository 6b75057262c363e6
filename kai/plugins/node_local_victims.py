"""Victims on one node at a time: the cheapest way to make room for a pod that needs a node of its own.

Source: the peer's plugins/nodelocalgreedy.
"""

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from kai.framework import Extension, Outer, Scenario, SessionView, VictimProposals


@attrs.frozen(kw_only=True)
class NodeLocalVictims:
    """Propose, for each node of the group added last, all batches of all groups that would lose a pod there."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the generator."""
        del session
        return (VictimProposals(propose, name="NodeLocalGreedy", begins_with_recorded=True, proposes_by_node=True),)


def propose(outers: Iterator[Outer]) -> Iterator[Scenario]:
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
            if len(nodes) > 1:
                victims = np.unique(potential.pods).tobytes()
                if victims in tried:
                    continue
                tried.add(victims)
            yield outer.scenario(potential)
