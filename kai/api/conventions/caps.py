"""Caps on the size of pod specs and object metadata; the excess is dropped on arrival.

A pod may hold more than a megabyte of affinity, or request tens of thousands of resources. Decoded into objects that
takes ten times the memory for as long as the pod exists, and each cycle compares it with all nodes. No real workload
needs that many terms; an attack does. A pod beyond a cap is not scheduled: the webhook rejects it, and where there is
no webhook a condition says why. A pod that has a node already is counted there, with its containers and without its
affinity.

Labels, annotations, owners and finalizers are kept with every object as well. The `kubectl apply` annotation among them
repeats the manifest with its environment: no decision needs it, it takes memory and may hold secrets, so it is dropped.
For an object beyond a cap only the metadata that kai reads are kept. A pod group is then held, and its condition says
why. Any other object is used without the dropped metadata, since a claim that holds devices holds them whatever its
annotations are.
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
"""Containers; resources, ports, mounts and config maps over all containers; volumes, their sources, and pod claims."""
MOST_LABELS: Final = 1024
"""Labels of an object."""
MOST_ANNOTATIONS: Final = 65_536
"""Characters in all annotations of an object, keys included, less `APPLIED`."""
MOST_OWNERS: Final = 1024
"""Owners of an object, and finalizers."""
LONGEST_KEPT: Final = 4096
"""Characters in an annotation that is kept although its object exceeds `MOST_ANNOTATIONS`."""
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NAMESPACE_SHAPES: Final = 12
"""Default bound on the shapes of pending pods that a cycle considers in one namespace."""
NAMESPACE_PODS: Final = 4096
"""Default bound on the pending pods that a cycle considers in one namespace: few enough that a cycle ends in time, and
more than an array job of an honest user has."""
GATE: Final = "kai.scheduler/refused "
"""Prefix of the gate with which cycles see a pod beyond a cap; the exceeded cap follows."""
REFUSED: Final = "kai.scheduler/refused"
"""The annotation that names the cap which an object other than a pod exceeds. A value by a user is dropped."""

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
    """Return the cap that a pod spec exceeds, in words; "" for none, or if ``spec`` is not a mapping."""
    if not isinstance(spec, Mapping):
        return ""
    return _excess_of_terms(spec) or _excess_of_contents(spec)


def _excess_of_terms(spec: Mapping[str, object]) -> str:
    """Return the cap that a pod's selectors, affinity, tolerations and spread constraints exceed, in words."""
    affinity, spread = spec.get("affinity"), spec.get("topologySpreadConstraints")
    if affinity is None and spread is None and all(_count(spec.get(name)) <= MOST_TERMS for name in _LISTS):
        return ""  # a fast path, since each pod is checked and nearly all end here
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
    """Return the cap that the containers and volumes of a pod exceed, in words."""
    containers = [each for name in _CONTAINERS for each in _list(spec.get(name))]
    volumes, claims = _list(spec.get("volumes")), _count(spec.get("resourceClaims"))
    parts = [*map(_contents, containers), *map(_sources, volumes)]
    if len(containers) + len(volumes) + claims + sum(parts) <= MOST_PARTS:
        return ""  # a fast path, since each pod is checked and nearly all end here
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
    """Return a message for the first field whose count exceeds its cap; "" for none."""
    for field, what, found, most in counts:
        if found > most:
            return f"spec.{field}: found {found:,} {what}, expected at most {most:,}"
    return ""


def _contents(container: object) -> int:
    """Return a lower bound on the number of capped items in a container."""
    if not isinstance(container, dict):
        return 0
    return _resources(container) + sum([_count(container[name]) for name in _OF_CONTAINERS if name in container])


def _resources(container: object) -> int:
    """Return how many resources a container names in its requests or limits, whichever are more."""
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
    """Return the number of characters in a value, keys included. It may be nested to any depth."""
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
    """Return the cap that object metadata exceed, in words; "" for none, or if they are not a mapping."""
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
    """Return the manifest of a pod within the caps: the same object if it exceeds none, else without the excess.

    A pod without a node gets a gate that says why it is not scheduled. A pod with a node keeps its containers, since
    their requests count there.
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
    """Return the manifest of any object but a pod within the caps: the same object if it exceeds none.

    Else only the metadata that kai reads are kept, with an annotation that names the exceeded cap.
    """
    if not isinstance(manifest, Mapping):
        return manifest
    manifest, found = _described(manifest)
    if not found:
        return manifest
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata["annotations"], REFUSED: found}}}


def excess_of_selector(spec: object) -> str:
    """Return the cap that the selector of a spec, or its requests, exceed, in words; "" for none."""
    selector, wanted = _field(spec, "selector"), _count(_field(_field(spec, "resources"), "requests"))
    expressions = _list(_field(selector, "matchExpressions"))
    return _first(
        ("selector", "labels", _count(_field(selector, "matchLabels")), MOST_TERMS),
        ("selector", "expressions", len(expressions), MOST_TERMS),
        ("selector", "values", sum(_count(_field(each, "values")) for each in expressions), MOST_VALUES),
        ("resources", "resources", wanted, MOST_PARTS),
    )


def few(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return labels and annotations as they are if they are within the caps, else only the ones kai reads."""
    if not excess_of({"labels": labels, "annotations": annotations}):
        return labels, annotations
    return _trimmed(labels), _trimmed(annotations)


def _described(manifest: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return a manifest with its metadata within the caps, and the cap that they exceeded; "" for none."""
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
    """Return the number of characters in annotations, without those of `kubectl apply`."""
    texts = ((key, value) for key, value in annotations.items() if isinstance(key, str) and isinstance(value, str))
    return sum(len(key) + len(value) for key, value in texts if key != APPLIED)


def _trimmed(pairs: object) -> dict[str, str]:
    """Return the labels or annotations that kai reads, if they have a usual length."""
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
