"""Whether a node, or a volume, is what a selector asks for.

Source: the semantics are those of Kubernetes' node selectors, label selectors and taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kai.api.meta import LabelSelector, LabelSelectorRequirement
from kai.api.node import Node, Taint
from kai.api.numerals import signed
from kai.api.pod import Pod
from kai.api.selection import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration

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
        if taint.effect in _KEEPS_AWAY and not _is_tolerated(taint, pod.spec.tolerations):
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
    return all(_requirement_holds(requirement, labels) for requirement in selector.match_expressions)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_requirement_holds(r, node.metadata.labels) for r in term.match_expressions) and all(
        _requirement_holds(r, fields) for r in term.match_fields
    )


def _requirement_holds(
    requirement: NodeSelectorRequirement | LabelSelectorRequirement,
    labels: Mapping[str, str],
) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(value, requirement.operator, requirement.values)


def _compares(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    have = signed(value) if value is not None else None
    bound = signed(values[0]) if len(values) == 1 else None
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def _is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case _:
            return _compares(taint.value, toleration.operator, (toleration.value,))
