"""What plugins chose for the placements of one session, beyond a node: devices of claims, NUMA zones.

Details hang on a placement, not on a pod: a statement that is undone takes the placement back, and its details with it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kai.kernels import booking, columns
from kai.model.rows import Bools, Int64s, PodRow

if TYPE_CHECKING:
    from kai.framework.session import Session


class Details:
    """The details of placements, by kind: the name of the plugin, or another that it gives."""

    def __init__(self, session: "Session") -> None:
        """Begin with none but those on record."""
        self._session = session
        self._chosen: dict[int, dict[str, object]] = {}

    def attach(self, pod: int, details: dict[str, object]) -> None:
        """Keep ``details`` with the placement that ``pod`` was just given."""
        session = self._session
        placement = int(session.columns.placement[pod])
        if placement == 0:
            placement = booking.new_placement(session.columns, session.ledger.places)
            columns.add(session.columns, session.ledger.places.placement + pod, placement)
        self._chosen[placement] = details

    def of(self, pod: int) -> Mapping[str, object]:
        """Return what plugins chose for the placement of ``pod``, by kind; nothing if it stood there before."""
        return self._chosen.get(int(self._session.columns.placement[pod]), {})

    def any_of(self, placements: Int64s) -> Bools:
        """Return bool[n]: for which ``placements`` plugins chose anything."""
        if not self._chosen:
            return np.zeros(len(placements), np.bool_)
        return np.array([placement in self._chosen for placement in placements.tolist()], np.bool_)

    def of_eviction(self, pod: int) -> Mapping[str, object]:
        """Return the details of the placement that the open statement took from ``pod``."""
        session = self._session
        known = self._chosen.get(int(session.columns.evicted_placement[pod]))
        if known is not None:
            return known
        recorded: dict[str, object] = {}
        for plugin in session.policy.asking(int(session.facts.pods.shape[pod])):
            if plugin.hooks.recorded is not None:
                recorded[plugin.hooks.detail or plugin.name] = plugin.hooks.recorded(PodRow(pod))
        return recorded

    def of_pods(self) -> dict[int, dict[str, object]]:
        """Return the details of all pods that have any, chosen in this cycle or on record, by pod."""
        session = self._session
        # Of a shape for which nodes are only filtered and rated nothing is on record, and nothing was chosen.
        asked = session.policy.dynamic & ~session.policy.scored
        pods = np.flatnonzero(asked[session.facts.pods.shape]) if len(session.snapshot.pods) else ()
        found = {int(pod): {**self._recorded(int(pod)), **self.of(int(pod))} for pod in pods}
        return {pod: details for pod, details in found.items() if details}

    def of_nodes(self) -> dict[int, dict[str, object]]:
        """Return what plugins report about nodes, by node and plugin."""
        out: dict[int, dict[str, object]] = {}
        for plugin in self._session.policy.plugins:
            if plugin.hooks.report_nodes is not None:
                for node, detail in plugin.hooks.report_nodes().items():
                    out.setdefault(node, {})[plugin.hooks.detail or plugin.name] = detail
        return out

    def _recorded(self, pod: int) -> dict[str, object]:
        """Return what is on record for a pod that stood somewhere when the session opened and is still there."""
        session = self._session
        if session.snapshot.pod_node[pod] < 0 or session.columns.node[pod] != session.snapshot.pod_node[pod]:
            return {}
        asking = [p for p in session.policy.asking(int(session.facts.pods.shape[pod])) if p.hooks.recorded is not None]
        found = {p.hooks.detail or p.name: p.hooks.recorded(PodRow(pod)) for p in asking if p.hooks.recorded}
        return {kind: detail for kind, detail in found.items() if detail is not None}
