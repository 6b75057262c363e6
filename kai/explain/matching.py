"""Which nodes could take the pods of a job if those were empty, and what keeps the pods from the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from kai.engine.policy import mask_of, texts_of
from kai.engine.session import Session
from kai.explain.empty_nodes import EmptyNodes
from kai.explain.phrases import Words, counted
from kai.framework.hooks import Dependence
from kai.kernels.fit import MIG_MIXED, MIG_SINGLE
from kai.model.pod import GpuKind
from kai.model.rows import Bools, Int64s, PodRow
from kai.state.kept import NodeColumns, node_columns
from kai.state.snapshot import Snapshot

Objections = Mapping[str, Sequence[int]]
"""Nodes by what they have against a pod, whatever is on them."""


class Matching:
    """Asks once for each shape of pods."""

    def __init__(self, snapshot: Snapshot, session: Callable[[], Session], empty: EmptyNodes) -> None:
        """Look at the nodes of ``snapshot``; ``session`` is made when plugins are asked."""
        self._snapshot = snapshot
        self._session = session
        self._empty = empty
        self._known: dict[int, tuple[Bools, Objections]] = {}

    def of(self, pod: int) -> tuple[Bools, Objections]:
        """Return the nodes that only amounts keep ``pod`` from, and the others by objection."""
        shape = int(self._snapshot.pod_shape[pod])
        if shape not in self._known:
            self._known[shape] = self._ask(pod, shape)
        return self._known[shape]

    def refusals(self, pods: Sequence[int], needed: int, required: str) -> Iterator[Words]:
        """Yield what keeps ``pods`` from every node, or from so many that too few of them could ever start.

        ``needed`` of them start at once, in one domain of the node label ``required`` ("": anywhere); 0 where others
        of their group have nodes already.
        """
        if not self._snapshot.nodes:
            return  # that there is none is said elsewhere
        shapes = {int(self._snapshot.pod_shape[pod]): pod for pod in reversed(pods)}
        for shape, pod in sorted(shapes.items(), key=lambda item: item[1]):
            accepted, refused = self.of(pod)
            room = np.where(accepted, self._empty.room(shape), 0)
            if not room.any():
                yield self._words("no node matches", shape, accepted, refused)
                return
            if len(shapes) == 1 and not accepted.all() and (text := self._too_few(room, needed, required)):
                yield self._words(text, shape, accepted, refused)

    def _too_few(self, room: Int64s, needed: int, required: str) -> str:
        """Return that ``room`` is too little for pods that start at once; "" if it is not."""
        total = int(room.sum())
        if total < needed:
            return f"its {needed} pods must start together, and only {total} would fit on empty nodes that match"
        if not required or not needed:
            return ""
        domains: dict[str, int] = {}
        for node, fits in zip(self._snapshot.nodes, room.tolist(), strict=True):
            if required in node.labels:
                domains[node.labels[required]] = domains.get(node.labels[required], 0) + fits
        best, level = max(domains.values(), default=0), required.rpartition("/")[2]
        if best >= needed:
            return ""
        if needed == 1:
            return f"its pod must stay in one {level}, and no node that matches is in any"
        return f"its {needed} pods must fit in one {level}, and nodes that match hold {best} of them in one at most"

    def _words(self, text: str, shape: int, accepted: Bools, refused: Objections) -> Words:
        """Return ``text`` with what excludes nodes: what they object to, and which of the others are too small."""
        found = {objection: list(nodes) for objection, nodes in refused.items()}
        for node in np.flatnonzero(accepted & (self._empty.room(shape) == 0)).tolist():
            found.setdefault(f"too small ({self._empty.too_small(shape, node)})", []).append(node)
        ordered = sorted(found.items(), key=lambda item: -len(item[1]))
        parts = ", ".join(counted(len(nodes), objection) for objection, nodes in ordered)
        objections = tuple((objection, tuple(nodes)) for objection, nodes in ordered)
        facts: dict[str, object] = {"objections": objections}
        if accepted.any():
            facts |= {"sized": True, **self._empty.most(shape, np.flatnonzero(accepted))}
        return Words("NoNodeMatches", f"{text}: {parts}", facts)

    def _ask(self, pod: int, shape: int) -> tuple[Bools, Objections]:
        session = self._session()
        accepted = np.array([node.ready for node in self._snapshot.nodes], np.bool_)
        found: dict[str, list[int]] = {}
        for node in np.flatnonzero(~accepted).tolist():
            found.setdefault(self._snapshot.nodes[node].closed, []).append(node)
        for node in np.flatnonzero(accepted).tolist():
            if text := self._gives(shape, node):
                found.setdefault(text, []).append(node)
                accepted[node] = False
        for plugin in session.policy.plugins:
            filters = plugin.node_filter
            if filters is None or filters.depends is not Dependence.SHAPE or not plugin.is_asked(shape):
                continue
            open_nodes = np.flatnonzero(accepted).astype(np.int64)
            refused = open_nodes[~mask_of(plugin, PodRow(pod), open_nodes)]
            for node, text in zip(refused, texts_of(plugin, PodRow(pod), refused), strict=True):
                found.setdefault(text, []).append(int(node))
            accepted[refused] = False
        return accepted, found

    def _gives(self, shape: int, node: int) -> str:
        """Return how a node gives its GPUs if that is another way than pods of ``shape`` ask for them, else ""."""
        gpu, nodes = self._snapshot.shapes[shape].gpu, self._nodes
        if gpu.legacy_mig:
            return "without MIG slices for annotations of pods"
        if gpu.kind is GpuKind.NONE and not gpu.claimed:
            return ""
        if gpu.shared and nodes.dra_gpus[node]:
            return "without parts of GPUs (claimed devices only)"
        if not nodes.mig_enabled[node]:
            return "without MIG slices" if gpu.sliced else ""
        if nodes.mig_strategy[node] == MIG_SINGLE and gpu.kind not in (GpuKind.WHOLE, GpuKind.NONE):
            return "with whole GPUs only (MIG strategy single)"
        return "with MIG slices only" if nodes.mig_strategy[node] == MIG_MIXED and not gpu.sliced else ""

    @cached_property
    def _nodes(self) -> NodeColumns:
        return node_columns(self._snapshot)
