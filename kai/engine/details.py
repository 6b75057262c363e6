"""What plugins chose for the placements of one world, beyond a node.

Details belong to a placement, not to a pod: undoing a statement takes the placement back, and its details with it.
"""

from collections.abc import Mapping

import numpy as np

from kai.engine.world import World
from kai.kernels import booking, columns
from kai.model.rows import Bools, Int64s, PodRow


class Details:
    """The details of placements, by kind: the name of the plugin, or another that it gives."""

    def __init__(self, world: World) -> None:
        """Begin with none but those on record."""
        self._world = world
        self._chosen: dict[int, dict[str, object]] = {}

    def attach(self, pod: int, details: dict[str, object]) -> None:
        """Keep ``details`` with the placement that ``pod`` was just given."""
        world = self._world
        placement = int(world.columns.placement[pod])
        if placement == 0:
            placement = booking.new_placement(world.columns, world.ledger.offsets)
            columns.add(world.columns, world.ledger.offsets.placement + pod, placement)
        self._chosen[placement] = details

    def forget_undone(self) -> None:
        """Forget the details of placements that were taken back: the next placements get their numbers."""
        chosen = self._chosen
        if not chosen:
            return
        made = int(self._world.columns.counters[1])
        # Placements are numbered as they are made, so those that were taken back are the last.
        while chosen and next(reversed(chosen)) > made:
            chosen.popitem()

    def of(self, pod: int) -> Mapping[str, object]:
        """Return what plugins chose for the placement of ``pod``, by kind; nothing if it stood there before."""
        return self._chosen.get(int(self._world.columns.placement[pod]), {})

    def any_of(self, placements: Int64s) -> Bools:
        """Return bool[n]: for which ``placements`` plugins chose anything."""
        if not self._chosen:
            return np.zeros(len(placements), np.bool_)
        return np.array([placement in self._chosen for placement in placements.tolist()], np.bool_)

    def of_eviction(self, pod: int) -> Mapping[str, object]:
        """Return the details of the placement that the open statement took from ``pod``."""
        world = self._world
        known = self._chosen.get(int(world.columns.evicted_placement[pod]))
        if known is not None:
            return known
        recorded: dict[str, object] = {}
        for plugin in world.policy.asking(int(world.facts.pods.shape[pod])):
            if plugin.placement is not None and plugin.placement.recorded is not None:
                recorded[plugin.kind] = plugin.placement.recorded(PodRow(pod))
        return recorded

    def of_pods(self) -> dict[int, dict[str, object]]:
        """Return the details of all pods that have any, chosen in this cycle or on record, by pod."""
        world = self._world
        # Of a shape for which nodes are only filtered and rated nothing is on record, and nothing was chosen.
        asked = world.policy.dynamic & ~world.policy.scored
        pods = np.flatnonzero(asked[world.facts.pods.shape]) if asked.any() else ()
        found = {int(pod): {**self._recorded(int(pod)), **self.of(int(pod))} for pod in pods}
        return {pod: details for pod, details in found.items() if details}

    def of_nodes(self) -> dict[int, dict[str, object]]:
        """Return what plugins report about nodes, by node and plugin."""
        out: dict[int, dict[str, object]] = {}
        for plugin in self._world.policy.plugins:
            if plugin.placement is not None and plugin.placement.report is not None:
                for node, detail in plugin.placement.report().items():
                    out.setdefault(node, {})[plugin.kind] = detail
        return out

    def _recorded(self, pod: int) -> dict[str, object]:
        """Return what is on record for a pod that stood somewhere when the session opened and is still there."""
        world = self._world
        if world.snapshot.pod_node[pod] < 0 or world.columns.node[pod] != world.snapshot.pod_node[pod]:
            return {}
        found: dict[str, object] = {}
        for plugin in world.policy.asking(int(world.facts.pods.shape[pod])):
            if plugin.placement is not None and plugin.placement.recorded is not None:
                detail = plugin.placement.recorded(PodRow(pod))
                if detail is not None:
                    found[plugin.kind] = detail
        return found
