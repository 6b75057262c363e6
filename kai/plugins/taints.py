"""Keep pods off nodes whose taints they do not tolerate.

Only ``NoSchedule`` and ``NoExecute`` repel; ``PreferNoSchedule`` is not scored, as in the peer. A cordoned node is
refused before its ``node.kubernetes.io/unschedulable`` taint is looked at, so tolerating that taint does not help.

Source: the peer's plugins/predicates, which runs kube-scheduler's TaintToleration filter.
"""

from collections.abc import Iterable, Sequence
from functools import cache

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Dependence,
    Extension,
    Int64s,
    Node,
    NodeFilter,
    NodeRows,
    PodRow,
    SessionView,
    Taint,
    Toleration,
    tolerates,
)

REPELLING = ("NoSchedule", "NoExecute")
NO_TAINT = 0
"""The number that stands for no taint at all."""


@attrs.frozen(kw_only=True)
class Taints:
    """Refuse nodes with a repelling taint that a pod does not tolerate."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter; nothing if no node repels pods."""
        nodes = session.snapshot.nodes
        tainted = session.once("taints", (nodes,), lambda: Tainted(nodes))
        if len(tainted.taints) == 1:
            return ()
        covered = cache(tainted.covered)
        answers: dict[tuple[Toleration, ...], Int64s] = {}

        def offending(pod: PodRow) -> Int64s:
            tolerations = session.snapshot.shapes[session.shape_of(pod)].constraints.tolerations
            if tolerations not in answers:
                answers[tolerations] = tainted.first_of([covered(each) for each in tolerations])
            return answers[tolerations]

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            mask: Bools = (offending(pod) == NO_TAINT)[tainted.kind_of[nodes]]
            return mask

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            return [_refusal(tainted.taints[taint]) for taint in offending(pod)[tainted.kind_of[nodes]].tolist()]

        return (NodeFilter(filter_nodes, depends=Dependence.SHAPE, explain=explain_nodes),)


class Tainted:
    """Which nodes are tainted alike, and with which taints: mostly few kinds of nodes, but each may be of its own.

    Shapes: M kinds, T taints, the first of which is none.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        kinds: dict[tuple[Taint, ...], int] = {}
        kind_of = [
            kinds.setdefault(tuple(taint for taint in node.taints if taint.effect in REPELLING), len(kinds))
            for node in nodes
        ]
        self.kind_of = np.array(kind_of, np.int64)
        numbers: dict[Taint | None, int] = {None: NO_TAINT}
        # Each kind ends with the taint that is none, so that each has a first one that is not tolerated.
        self._of_kinds = np.array(
            [numbers.setdefault(taint, len(numbers)) for kind in kinds for taint in (*kind, None)], np.int64
        )
        self._starts = np.cumsum([0, *(len(kind) + 1 for kind in kinds)], dtype=np.int64)[:-1]
        self.taints = tuple(numbers)
        self._by_key: dict[str, list[tuple[int, Taint]]] = {}
        for taint, number in numbers.items():
            if taint is not None:
                self._by_key.setdefault(taint.key, []).append((number, taint))

    def covered(self, toleration: Toleration) -> Sequence[int]:
        """Return the numbers of the taints that ``toleration`` covers. Cost: a look at those of its key."""
        found = [self._by_key.get(toleration.key, [])] if toleration.key else self._by_key.values()
        return [number for some in found for number, taint in some if tolerates(toleration, taint)]

    def first_of(self, covered: Iterable[Sequence[int]]) -> Int64s:
        """Return int64[M]: the first taint of each kind that is not ``covered``, ``NO_TAINT`` if all are.

        Cost: O(taints of all kinds) in columns.
        """
        repels = np.ones(len(self.taints), np.bool_)
        for some in covered:
            repels[some] = False
        at = np.where(repels[self._of_kinds], np.arange(len(self._of_kinds)), len(self._of_kinds))
        return self._of_kinds[np.minimum.reduceat(at, self._starts)]


def _refusal(taint: Taint | None) -> str:
    return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}" if taint else ""
