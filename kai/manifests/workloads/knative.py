"""Knative Services: a revision of the template, and below it a Deployment of its first scale.

Source: Knative Serving: names, labels, and the scale before there are requests: 1, the initial scale that is annotated,
or the least one, whichever is more.
"""

from collections.abc import Iterator
from typing import Any

from kai.lenient import mapping_of
from kai.manifests.workloads.making import Made, child
from kai.numerals import signed
from kai.podgrouper.groupers.knative import MIN_SCALE, REVISION, REVISION_LABEL
from kai.podgrouper.resource import Fields, Resource

INITIAL_SCALE = "autoscaling.knative.dev/initial-scale"
_SERVING = "serving.knative.dev/"


def service(workload: Resource) -> Iterator[Made]:
    """Yield the first revision of a Service, with what stands between it and its pods."""
    template = workload.fields.child("spec", "template")
    if template is None:
        raise workload.error("spec.template", None, "the template of a revision")
    spec = template.child("spec")
    if spec is None:
        raise template.error(("spec",), None, "the spec of the pods")
    metadata = mapping_of(template.value, "metadata")
    name = str(metadata.get("name") or f"{workload.name}-00001")
    labels = {**mapping_of(metadata, "labels"), f"{_SERVING}service": workload.name}
    annotations = mapping_of(metadata, "annotations")
    configuration = child(workload, REVISION.api_version, "Configuration", workload.name, {})
    yield configuration
    revision = child(
        Resource.of(configuration),
        *(REVISION.api_version, REVISION.kind, name, spec.value),
        labels=labels,
        annotations=annotations,
    )
    yield revision
    pod = {
        "metadata": {"labels": {**labels, REVISION_LABEL: name}, "annotations": annotations},
        "spec": _pod_spec(spec),
    }
    inner = {"replicas": _scale(annotations), "template": pod}
    yield child(Resource.of(revision), "apps/v1", "Deployment", f"{name}-deployment", inner)


def _scale(annotations: Any) -> int:  # noqa: ANN401 - a part of a manifest
    least, first = (signed(str(annotations.get(key) or "")) for key in (MIN_SCALE, INITIAL_SCALE))
    return max(0 if least is None else least, 1 if first is None else first)


def _pod_spec(spec: Fields) -> dict[str, Any]:
    """Return the spec of the pods: a revision has fields of its own beside theirs."""
    own = {"containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds", "idleTimeoutSeconds"}
    return {key: value for key, value in spec.value.items() if key not in own}
