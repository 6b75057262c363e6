"""Selectors of labels and of nodes, as JSON has them."""

from collections.abc import Mapping
from typing import Any

from kai.model.constraints import NodeTerm, Requirement, Selector


def selector_of(written: Mapping[str, Any] | None) -> Selector | None:
    """Return a label selector, None for an absent one (which selects nothing)."""
    if written is None:
        return None
    found = [Requirement(key, "In", (value,)) for key, value in written.get("matchLabels", {}).items()]
    found += [
        Requirement(each["key"], each["operator"], tuple(sorted(each.get("values", ()))))
        for each in written.get("matchExpressions", ())
    ]
    return Selector(tuple(sorted(found, key=lambda each: (each.key, each.operator, each.values))))


def node_terms_of(written: Mapping[str, Any] | None) -> tuple[NodeTerm, ...] | None:
    """Return the terms of a node selector, one of which must hold; None when there is no selector."""
    if written is None:
        return None
    return tuple(
        NodeTerm(_requirements(term.get("matchExpressions", ())), _requirements(term.get("matchFields", ())))
        for term in written.get("nodeSelectorTerms", ())
    )


def _requirements(written: Any) -> tuple[Requirement, ...]:  # noqa: ANN401 - a list of JSON
    return tuple(Requirement(each["key"], each["operator"], tuple(each.get("values", ()))) for each in written)
