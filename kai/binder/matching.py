"""Whether a node, or a volume, is what a selector asks for.

Source: the semantics are those of Kubernetes' node selectors, label selectors and taints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kai.api.kubernetes.meta import LabelSelector
from kai.api.kubernetes.node import Node, Taint
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.selection import NodeSelector, NodeSelectorTerm
from kai.model.matching import holds, tolerates

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def is_wanted(pod: Pod, node: Node) -> bool:
    """Return whether a node satisfies the node selector and the required node affinity of a pod."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return required is None or node_selector_matches(required, node)


def untolerated(pod: Pod, node: Node) -> Taint | None:
    """Return a taint of the node that keeps the pod away; None if there is none."""
    taints = [*node.spec.taints, *([_UNSCHEDULABLE] if node.spec.unschedulable else [])]
    for taint in taints:
        if taint.effect in _KEEPS_AWAY and not any(tolerates(each, taint) for each in pod.spec.tolerations):
            return taint
    return None


def node_selector_matches(selector: NodeSelector, node: Node) -> bool:
    """Return whether one of the terms matches the node; a term without conditions matches none."""
    return any(_term_matches(term, node) for term in selector.node_selector_terms)


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels are what a selector asks for; no selector asks for nothing."""
    if selector is None:
        return True
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(holds(requirement, labels) for requirement in selector.match_expressions)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(holds(r, node.metadata.labels) for r in term.match_expressions) and all(
        holds(r, fields) for r in term.match_fields
    )
