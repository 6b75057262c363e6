"""Keep pods off nodes whose taints they do not tolerate.

Only ``NoSchedule`` and ``NoExecute`` repel; ``PreferNoSchedule`` is not scored, as in the peer. A cordoned node is
refused before its ``node.kubernetes.io/unschedulable`` taint is looked at, so tolerating that taint does not help.

Source: the peer's plugins/predicates, which runs kube-scheduler's TaintToleration filter.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Dependence,
    Extension,
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


@attrs.frozen(kw_only=True)
class Taints:
    """Refuse nodes with a repelling taint that a pod does not tolerate."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter; nothing if no node repels pods."""
        nodes = session.snapshot.nodes
        tainted = session.once("taints", (nodes,), lambda: _Tainted(nodes))
        if len(tainted.kinds) == 1 and not tainted.kinds[0]:
            return ()
        answers: dict[tuple[Toleration, ...], tuple[Taint | None, ...]] = {}

        def offending(pod: PodRow) -> tuple[Taint | None, ...]:
            tolerations = session.snapshot.shapes[session.shape_of(pod)].constraints.tolerations
            if tolerations not in answers:
                answers[tolerations] = tuple(first_untolerated(kind, tolerations) for kind in tainted.kinds)
            return answers[tolerations]

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            accepted = np.array([taint is None for taint in offending(pod)], np.bool_)
            mask: Bools = accepted[tainted.kind_of[nodes]]
            return mask

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            taints = offending(pod)
            return [_refusal(taints[kind]) for kind in tainted.kind_of[nodes]]

        return (NodeFilter(filter_nodes, depends=Dependence.SHAPE, explain=explain_nodes),)


class _Tainted:
    """Which nodes are tainted alike: a cluster has few kinds of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        numbers: dict[tuple[Taint, ...], int] = {}
        kind_of = [
            numbers.setdefault(tuple(taint for taint in node.taints if taint.effect in REPELLING), len(numbers))
            for node in nodes
        ]
        self.kind_of = np.array(kind_of, np.int64)
        self.kinds = tuple(numbers) or ((),)


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first of ``taints`` that none of ``tolerations`` covers, None if all are covered."""
    return next((taint for taint in taints if not any(tolerates(each, taint) for each in tolerations)), None)


def _refusal(taint: Taint | None) -> str:
    return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}" if taint else ""
