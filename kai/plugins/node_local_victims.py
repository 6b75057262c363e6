"""Victims on one node at a time: the cheapest way to make room for a pod that needs a node of its own.

Source: the peer's plugins/nodelocalgreedy.
"""

from collections.abc import Iterator

import attrs

from kai.framework.hooks import Hooks
from kai.framework.scenario import Batch, Outer, Scenario
from kai.framework.view import SessionView


@attrs.frozen(kw_only=True)
class NodeLocalVictims:
    """Propose, for each node of the group added last, all batches of all groups that would lose a pod there."""

    def open(self, session: SessionView) -> Hooks:
        """Return the generator."""
        del session
        return Hooks(propose=propose, proposer="NodeLocalGreedy")


def propose(outers: Iterator[Outer]) -> Iterator[Scenario]:
    """Yield scenarios node by node, nodes in name order."""
    for outer in outers:
        if not outer.batches:
            if outer.recorded:
                yield outer.scenario(())
            continue
        tried: set[frozenset[int]] = set()
        for node in outer.nodes_of_group(outer.group_of(outer.batches[-1][0])):
            losing = {outer.group_of(pod) for batch in outer.batches for pod in batch if outer.node_of(pod) == node}
            by_group: dict[int, list[int]] = {}
            for batch in outer.recorded + outer.batches:
                for pod in batch:
                    if outer.group_of(pod) in losing:
                        by_group.setdefault(outer.group_of(pod), []).append(pod)
            potential: list[Batch] = [tuple(pods) for pods in by_group.values()]
            victims = frozenset(pod for batch in potential for pod in batch)
            if victims and victims not in tried:
                tried.add(victims)
                yield outer.scenario(potential)
