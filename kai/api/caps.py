"""How much a pod may say about where it wants to be, and about itself: what is beyond that is neither kept nor obeyed.

A pod may hold more than a megabyte of affinity. As objects that is ten times as much for as long as the pod exists, and
each cycle compares it with all nodes. No workload needs that many terms; an attack does. A pod beyond a
cap is not scheduled, which the webhook says when it is created and a condition says where there is no webhook. One that
has a node already is counted there, without its terms.

Labels and annotations are kept with every pod as well. What `kubectl apply` notes among them repeats the manifest with
its environment: it decides nothing, takes memory and may be secret, so it is not kept.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai.api import names

MOST_TERMS: Final = 1024
"""Terms of affinity, expressions in them, labels of a node selector, tolerations, or spread constraints."""
MOST_VALUES: Final = 16_384
"""Values in all expressions of affinity: names of nodes may be listed there."""
MOST_LABELS: Final = 1024
"""Labels of a pod."""
MOST_ANNOTATIONS: Final = 65_536
"""Characters in all annotations of a pod, keys included, less `APPLIED`."""
LONGEST_KEPT: Final = 4096
"""Characters in an annotation that is kept of a pod beyond that."""
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NAMESPACE_SHAPES: Final = 12
"""Shapes of pending pods of one namespace that a cycle considers, unless a flag says otherwise."""
NAMESPACE_PODS: Final = 4096
"""Pending pods of one namespace that a cycle considers, unless a flag says otherwise: few enough that a cycle ends in
time, and more than the array of jobs of an honest user brings."""
GATE: Final = "kai.scheduler/refused "
"""How the gate begins that a pod beyond a cap is shown with; the rest says what is too much."""

_READ: Final = frozenset(value for value in vars(names).values() if isinstance(value, str) and value)
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


def excess_of(metadata: object) -> str:
    """Return which cap the metadata of a pod exceed, in words; "" if none. What are no metadata exceed none."""
    labels, annotations = _count(_field(metadata, "labels")), _field(metadata, "annotations")
    if labels > MOST_LABELS:
        return f"metadata.labels: found {labels:,} labels, expected at most {MOST_LABELS:,}"
    size = _size(annotations) if isinstance(annotations, Mapping) else 0
    if size > MOST_ANNOTATIONS:
        return f"metadata.annotations: found {size:,} characters, expected at most {MOST_ANNOTATIONS:,}"
    return ""


def kept(manifest: Any) -> Any:  # noqa: ANN401 - JSON from outside
    """Return the manifest of a pod as it is kept: the same one if no cap is exceeded, else without what exceeds it.

    One without a node gets a gate that says why: it is not scheduled.
    """
    if not isinstance(manifest, Mapping):
        return manifest
    spec, metadata = manifest.get("spec"), manifest.get("metadata")
    annotations = _field(metadata, "annotations")
    if isinstance(annotations, Mapping) and isinstance(metadata, Mapping) and APPLIED in annotations:
        annotations = {key: value for key, value in annotations.items() if key != APPLIED}
        metadata = {**metadata, "annotations": annotations}
        manifest = {**manifest, "metadata": metadata}
    found = excess_of(metadata)
    if found and isinstance(metadata, Mapping):
        trimmed = {field: _trimmed(_field(metadata, field)) for field in ("labels", "annotations")}
        manifest = {**manifest, "metadata": {**metadata, **trimmed}}
    found = excess(spec) or found
    if not found or not isinstance(spec, Mapping):
        return manifest
    rest = {key: value for key, value in spec.items() if key not in _PARTS}
    if not rest.get("nodeName"):
        rest["schedulingGates"] = [{"name": f"{GATE}{found}"}]
    return {**manifest, "spec": rest}


def _size(annotations: Mapping[object, object]) -> int:
    """Return how many characters there are in annotations, less what `kubectl apply` notes."""
    texts = ((key, value) for key, value in annotations.items() if isinstance(key, str) and isinstance(value, str))
    return sum(len(key) + len(value) for key, value in texts if key != APPLIED)


def _trimmed(pairs: object) -> dict[str, str]:
    """Return those labels or annotations that kai reads, if they are of a usual length."""
    found = pairs if isinstance(pairs, Mapping) else {}
    return {
        key: text for key, text in found.items() if key in _READ and isinstance(text, str) and len(text) <= LONGEST_KEPT
    }


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
