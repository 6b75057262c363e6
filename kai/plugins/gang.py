"""Room for a gang: victims on as few nodes as the gang needs, then on more.

That a gang is placed whole or not at all is the engine's; this plugin finds whole gangs a place by taking whole
batches on several nodes at once.

Source: the peer's plugins/multinodegang.
"""

from collections.abc import Iterator

import attrs

from kai.framework.hooks import Hooks
from kai.framework.scenario import Outer, Scenario
from kai.framework.view import SessionView


@attrs.frozen(kw_only=True)
class Gang:
    """Propose the batches on the K nodes that are cheapest to free, K growing 1, 2, 4, 8 ...

    From the least that could do.
    """

    def open(self, session: SessionView) -> Hooks:
        """Return the generator."""
        del session
        return Hooks(propose=propose, proposer="MultiNodeGang")


def propose(outers: Iterator[Outer]) -> Iterator[Scenario]:
    """Yield scenarios with growing sets of nodes."""
    for outer in outers:
        if not outer.batches:
            yield outer.scenario(())
            continue
        nodes, capacity = _capacities(outer)
        smallest = min(outer.wanted, default=0)
        usable = sorted((n for n in nodes if smallest == 0 or capacity[n] >= smallest), key=lambda n: capacity[n])
        count = _fewest(outer, nodes, usable, capacity)
        if count is None:
            continue
        step = 1
        while True:
            chosen = set(usable[:count])
            yield outer.scenario(
                [batch for batch in outer.batches if any(outer.node_of(pod) in chosen for pod in batch)]
            )
            if count >= len(usable):
                break
            count = min(len(usable), count + step)
            step *= 2


def _capacities(outer: Outer) -> tuple[list[int], dict[int, int]]:
    """Return the nodes with potential victims in order of their first one, and what each could give."""
    nodes = list(dict.fromkeys(outer.node_of(pod) for batch in outer.batches for pod in batch))
    nodes = [node for node in nodes if node >= 0]
    capacity = {node: int(outer.free[node]) for node in nodes}
    for batch in outer.recorded + outer.batches:
        for pod in batch:
            if outer.node_of(pod) in capacity:
                capacity[outer.node_of(pod)] += outer.gpus_of(pod)
    return nodes, capacity


def _fewest(outer: Outer, nodes: list[int], usable: list[int], capacity: dict[int, int]) -> int | None:
    """Return how many of the ``usable`` nodes are needed at least, besides what is free elsewhere.

    None if all are too few.
    """
    elsewhere = sum(int(outer.free[node]) for node in outer.feasible if int(node) not in capacity)
    elsewhere += sum(
        outer.gpus_of(pod) for batch in outer.recorded for pod in batch if outer.node_of(pod) not in capacity
    )
    need = max(0, sum(outer.wanted) - elsewhere)
    if need == 0:
        return 0
    for count, node in enumerate(usable, start=1):
        need -= capacity[node]
        if need <= 0:
            return count
    del nodes
    return None
