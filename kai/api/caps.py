"""How much a pod may say about where it wants to be: what is beyond that is neither kept nor obeyed.

A pod may hold more than a megabyte of affinity. As objects that is ten times as much for as long as the pod exists, and
each cycle compares it with all nodes. No workload needs that many terms; an attack does. A pod beyond a
cap is not scheduled, which the webhook says when it is created and a condition says where there is no webhook. One that
has a node already is counted there, without its terms.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

MOST_TERMS: Final = 1024
"""Terms of affinity, expressions in them, labels of a node selector, tolerations, or spread constraints."""
MOST_VALUES: Final = 16_384
"""Values in all expressions of affinity: names of nodes may be listed there."""
NAMESPACE_SHAPES: Final = 12
"""Shapes of pending pods of one namespace that a cycle considers, unless a flag says otherwise."""
GATE: Final = "kai.scheduler/refused "
"""How the gate begins that a pod beyond a cap is shown with; the rest says what is too much."""

_AFFINITY: Final = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_LISTS: Final = ("nodeSelector", "tolerations", "topologySpreadConstraints")
_PARTS: Final = ("affinity", *_LISTS)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def excess(spec: object) -> str:
    """Return which cap the spec of a pod exceeds, in words; "" if none. What is no spec exceeds none."""
    if not isinstance(spec, Mapping):
        return ""
    if spec.get("affinity") is None and all(_count(spec.get(name)) <= MOST_TERMS for name in _LISTS):
        return ""  # as nearly all pods are, and each is asked about
    terms = list(_terms(spec.get("affinity")))
    expressions = [each for term in terms for each in _expressions(term)]
    values = sum(_count(each.get("values")) for each in expressions if isinstance(each, Mapping))
    counts = (
        ("affinity", "terms", len(terms), MOST_TERMS),
        ("affinity", "expressions", len(expressions), MOST_TERMS),
        ("affinity", "values", values, MOST_VALUES),
        ("nodeSelector", "labels", _count(spec.get("nodeSelector")), MOST_TERMS),
        ("tolerations", "tolerations", _count(spec.get("tolerations")), MOST_TERMS),
        ("topologySpreadConstraints", "constraints", _count(spec.get("topologySpreadConstraints")), MOST_TERMS),
    )
    for field, what, found, most in counts:
        if found > most:
            return f"spec.{field}: found {found:,} {what}, expected at most {most:,}"
    return ""


def kept(manifest: Any) -> Any:  # noqa: ANN401 - JSON from outside
    """Return the manifest of a pod as it is kept: the same one if no cap is exceeded, else without its terms.

    One without a node gets a gate that says why: it is not scheduled.
    """
    spec = manifest.get("spec") if isinstance(manifest, Mapping) else None
    found = excess(spec)
    if not found or not isinstance(spec, Mapping):
        return manifest
    rest = {key: value for key, value in spec.items() if key not in _PARTS}
    if not rest.get("nodeName"):
        rest["schedulingGates"] = [{"name": f"{GATE}{found}"}]
    return {**manifest, "spec": rest}


def _terms(affinity: object) -> Iterator[object]:
    for name in _AFFINITY:
        kind = _field(affinity, name)
        required = _field(kind, _REQUIRED)
        yield from _list(_field(required, "nodeSelectorTerms") if isinstance(required, Mapping) else required)
        yield from _list(_field(kind, _PREFERRED))


def _expressions(term: object) -> Iterator[object]:
    """Yield the expressions of a term, whichever kind it is."""
    for inner in (term, _field(term, "preference"), _field(term, "podAffinityTerm")):
        for where in (inner, _field(inner, "labelSelector"), _field(inner, "namespaceSelector")):
            yield from _list(_field(where, "matchExpressions"))
            yield from _list(_field(where, "matchFields"))


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _count(value: object) -> int:
    return 0 if value is None else len(value) if isinstance(value, list | Mapping) else 0
