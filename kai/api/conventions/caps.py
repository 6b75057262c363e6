"""How much a tenant's object may say about itself, and a pod about where it wants to be; what is beyond is not kept.

A pod may hold more than a megabyte of affinity, or ask for tens of thousands of resources. As objects that is ten times
as much for as long as the pod exists, and each cycle compares it with all nodes. No workload needs that many terms; an
attack does. A pod beyond a cap is not scheduled, which the webhook says when it is created and a condition says where
there is no webhook. One that has a node already is counted there, with its containers and without its terms.

Labels, annotations, owners and finalizers are kept with every object as well. What `kubectl apply` notes among them
repeats the manifest with its environment: it decides nothing, takes memory and may be secret, so it is not kept. Of an
object beyond a cap those are kept that kai reads. A pod group is then held, and its condition says why; anything else
goes on with what is left, since a claim that holds devices holds them whatever its annotations say.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai.api import names

MOST_TERMS: Final = 1024
"""Terms of affinity, expressions in them, labels of a node selector, tolerations, or spread constraints."""
MOST_VALUES: Final = 16_384
"""Values in all expressions of affinity, and labels and namespaces in its terms: nodes may be listed there by name."""
MOST_TEXT: Final = 262_144
"""Characters in affinity and spread constraints: values may be long."""
MOST_PARTS: Final = 1024
"""Containers; resources, ports, mounts and config maps of all of them; volumes, their sources, and claims of a pod."""
MOST_LABELS: Final = 1024
"""Labels of an object."""
MOST_ANNOTATIONS: Final = 65_536
"""Characters in all annotations of an object, keys included, less `APPLIED`."""
MOST_OWNERS: Final = 1024
"""Owners of an object, and finalizers."""
LONGEST_KEPT: Final = 4096
"""Characters in an annotation that is kept of an object beyond that."""
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NAMESPACE_SHAPES: Final = 12
"""Shapes of pending pods of one namespace that a cycle considers, unless a flag says otherwise."""
NAMESPACE_PODS: Final = 4096
"""Pending pods of one namespace that a cycle considers, unless a flag says otherwise: few enough that a cycle ends in
time, and more than the array of jobs of an honest user brings."""
GATE: Final = "kai.scheduler/refused "
"""How the gate begins that a pod beyond a cap is shown with; the rest says what is too much."""
REFUSED: Final = "kai.scheduler/refused"
"""The annotation that says of another object which cap it is beyond. What a user writes there is left out."""

_NOT_KEPT: Final = frozenset((APPLIED, REFUSED))
_READ: Final = frozenset(value for value in vars(names).values() if isinstance(value, str) and value)
_AFFINITY: Final = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_LISTS: Final = ("nodeSelector", "tolerations", "topologySpreadConstraints")
_TERMS: Final = ("affinity", *_LISTS)
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_OF_CONTAINERS: Final = ("ports", "volumeMounts", "env", "envFrom")
_CONTENTS: Final = (*_CONTAINERS, "volumes", "resourceClaims")
_OF_METADATA: Final = {"ownerReferences": "owners", "finalizers": "finalizers"}
_SIZED: Final = (list, dict)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def excess(spec: object) -> str:
    """Return which cap the spec of a pod exceeds, in words; "" if none. What is no spec exceeds none."""
    if not isinstance(spec, Mapping):
        return ""
    return _excess_of_terms(spec) or _excess_of_contents(spec)


def _excess_of_terms(spec: Mapping[str, object]) -> str:
    """Return which cap is exceeded by what a pod says about where it wants to be."""
    affinity, spread = spec.get("affinity"), spec.get("topologySpreadConstraints")
    if affinity is None and spread is None and all(_count(spec.get(name)) <= MOST_TERMS for name in _LISTS):
        return ""  # as nearly all pods are, and each is asked about
    terms = list(_terms(affinity))
    expressions = [each for term in terms for each in _expressions(term)]
    values = sum(_count(each.get("values")) for each in expressions if isinstance(each, Mapping))
    values += sum(map(_named, terms))
    return _first(
        ("affinity", "terms", len(terms), MOST_TERMS),
        ("affinity", "expressions", len(expressions), MOST_TERMS),
        ("affinity", "values", values, MOST_VALUES),
        ("nodeSelector", "labels", _count(spec.get("nodeSelector")), MOST_TERMS),
        ("tolerations", "tolerations", _count(spec.get("tolerations")), MOST_TERMS),
        ("topologySpreadConstraints", "constraints", _count(spread), MOST_TERMS),
        ("affinity", "characters", _letters(affinity), MOST_TEXT),
        ("topologySpreadConstraints", "characters", _letters(spread), MOST_TEXT),
    )


def _excess_of_contents(spec: Mapping[str, object]) -> str:
    """Return which cap is exceeded by the containers and volumes of a pod."""
    containers = [each for name in _CONTAINERS for each in _list(spec.get(name))]
    volumes, claims = _list(spec.get("volumes")), _count(spec.get("resourceClaims"))
    parts = [*map(_contents, containers), *map(_sources, volumes)]
    if len(containers) + len(volumes) + claims + sum(parts) <= MOST_PARTS:
        return ""  # as nearly all pods are, and each is asked about
    of = {name: sum(_count(_field(each, name)) for each in containers) for name in ("ports", "volumeMounts", "envFrom")}
    variables = [each for container in containers for each in _list(_field(container, "env"))]
    keys = sum(_field(_field(each, "valueFrom"), "configMapKeyRef") is not None for each in variables)
    return _first(
        ("containers", "containers", len(containers), MOST_PARTS),
        ("containers", "resources", sum(map(_resources, containers)), MOST_PARTS),
        ("containers", "ports", of["ports"], MOST_PARTS),
        ("containers", "mounts", of["volumeMounts"], MOST_PARTS),
        ("containers", "config maps", of["envFrom"] + keys, MOST_PARTS),
        ("volumes", "volumes", len(volumes), MOST_PARTS),
        ("volumes", "sources", sum(map(_sources, volumes)), MOST_PARTS),
        ("resourceClaims", "claims", claims, MOST_PARTS),
    )


def _first(*counts: tuple[str, str, int, int]) -> str:
    """Return the first of some fields, what they have, and how much at most, that has too much; "" if none has."""
    for field, what, found, most in counts:
        if found > most:
            return f"spec.{field}: found {found:,} {what}, expected at most {most:,}"
    return ""


def _contents(container: object) -> int:
    """Return at least how much of everything that is bounded a container has."""
    if not isinstance(container, dict):
        return 0
    return _resources(container) + sum([_count(container[name]) for name in _OF_CONTAINERS if name in container])


def _resources(container: object) -> int:
    """Return how many resources a container asks for, or may use at most."""
    resources = _field(container, "resources")
    return max(_count(_field(resources, "requests")), _count(_field(resources, "limits")))


def _sources(volume: object) -> int:
    return _count(_field(_field(volume, "projected"), "sources"))


def _named(term: object) -> int:
    """Return how many labels and namespaces a term of affinity names."""
    inner = _field(term, "podAffinityTerm") or term
    labels = sum(_count(_field(_field(inner, name), "matchLabels")) for name in ("labelSelector", "namespaceSelector"))
    return labels + sum(_count(_field(inner, name)) for name in ("namespaces", "matchLabelKeys", "mismatchLabelKeys"))


def _letters(value: object) -> int:
    """Return how many characters there are in a value, in its keys as well. It may be nested to any depth."""
    found, pending = 0, [value]
    while pending:
        match pending.pop():
            case str(text):
                found += len(text)
            case Mapping() as part:
                pending += [*part.keys(), *part.values()]
            case list() as part:
                pending += part
    return found


def excess_of(metadata: object) -> str:
    """Return which cap the metadata of an object exceed, in words; "" if none. What are no metadata exceed none."""
    labels, annotations = _count(_field(metadata, "labels")), _field(metadata, "annotations")
    if labels > MOST_LABELS:
        return f"metadata.labels: found {labels:,} labels, expected at most {MOST_LABELS:,}"
    for field, what in _OF_METADATA.items():
        found = _count(_field(metadata, field))
        if found > MOST_OWNERS:
            return f"metadata.{field}: found {found:,} {what}, expected at most {MOST_OWNERS:,}"
    size = _size(annotations) if isinstance(annotations, Mapping) else 0
    if size > MOST_ANNOTATIONS:
        return f"metadata.annotations: found {size:,} characters, expected at most {MOST_ANNOTATIONS:,}"
    return ""


def kept(manifest: Any) -> Any:  # noqa: ANN401 - JSON from outside
    """Return the manifest of a pod as it is kept: the same one if no cap is exceeded, else without what exceeds it.

    One without a node gets a gate that says why: it is not scheduled. One with a node keeps its containers: they count.
    """
    if not isinstance(manifest, Mapping):
        return manifest
    spec = manifest.get("spec")
    manifest, found = _described(manifest)
    found = excess(spec) or found
    if not found or not isinstance(spec, Mapping):
        return manifest
    left_out = _TERMS if spec.get("nodeName") or not _excess_of_contents(spec) else (*_TERMS, *_CONTENTS)
    rest = {key: value for key, value in spec.items() if key not in left_out}
    if not rest.get("nodeName"):
        rest["schedulingGates"] = [{"name": f"{GATE}{found}"}]
    return {**manifest, "spec": rest}


def bounded(manifest: Any) -> Any:  # noqa: ANN401 - JSON from outside
    """Return the manifest of an object that is no pod as it is kept: the same one if no cap is exceeded.

    Else its metadata are those that kai reads, with an annotation that says what is too much.
    """
    if not isinstance(manifest, Mapping):
        return manifest
    manifest, found = _described(manifest)
    if not found:
        return manifest
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata["annotations"], REFUSED: found}}}


def excess_of_selector(spec: object) -> str:
    """Return which cap the label selector of a spec exceeds, or what it asks for, in words; "" if none."""
    selector, wanted = _field(spec, "selector"), _count(_field(_field(spec, "resources"), "requests"))
    expressions = _list(_field(selector, "matchExpressions"))
    return _first(
        ("selector", "labels", _count(_field(selector, "matchLabels")), MOST_TERMS),
        ("selector", "expressions", len(expressions), MOST_TERMS),
        ("selector", "values", sum(_count(_field(each, "values")) for each in expressions), MOST_VALUES),
        ("resources", "resources", wanted, MOST_PARTS),
    )


def few(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return labels and annotations if an object may have so many, else those of them that kai reads."""
    if not excess_of({"labels": labels, "annotations": annotations}):
        return labels, annotations
    return _trimmed(labels), _trimmed(annotations)


def _described(manifest: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return a manifest with metadata within the caps, and which cap they exceeded; "" if none."""
    metadata = manifest.get("metadata")
    annotations = _field(metadata, "annotations")
    if isinstance(annotations, dict) and isinstance(metadata, dict) and not annotations.keys().isdisjoint(_NOT_KEPT):
        annotations = {key: value for key, value in annotations.items() if key not in _NOT_KEPT}
        metadata = {**metadata, "annotations": annotations}
        manifest = {**manifest, "metadata": metadata}
    found = excess_of(metadata)
    if not found or not isinstance(metadata, Mapping):
        return manifest, ""
    kept_ones: dict[str, object] = {field: _trimmed(_field(metadata, field)) for field in ("labels", "annotations")}
    kept_ones |= {field: _list(metadata.get(field))[:MOST_OWNERS] for field in _OF_METADATA if field in metadata}
    return {**manifest, "metadata": {**metadata, **kept_ones}}, found


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
    return value.get(name) if isinstance(value, dict) else None  # far cheaper to ask than Mapping


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _count(value: object) -> int:
    return len(value) if isinstance(value, _SIZED) else 0
