"""Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs and Knative Services.

Deployments, ReplicaSets and StatefulSets have a pod for each replica.
Source: the controllers of Kubernetes. Pods of a ReplicaSet are numbered here, where Kubernetes generates random names.

Jobs run at most ``parallelism`` pods at a time, never more than are still to complete.
Source: the Job controller.

DaemonSets have a pod for each node that the pod may run on.
Source: the DaemonSet controller: each pod is bound to its node by an affinity to the node's name, and tolerates
the taints that follow from the state of a node.

Knative Services have a revision of the template, and below it a Deployment at its initial scale.
Source: Knative Serving: names, labels, and the scale before there are requests: the larger of the initial scale (by
annotation, else 1) and the minimum.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kai.basics.parsing import has_condition, list_of, mapping_of, mappings_of, part_of, signed
from kai.manifests.grouping import Index, Manifest
from kai.manifests.workloads.making import Condition, Identity, Made, Stage, child, count, is_set, later, part, pods
from kai.manifests.workloads.sets import BY_NODE_LABEL, EXCLUSIVE
from kai.roles.podgrouper.groupers.knative import MIN_SCALE, REVISION, REVISION_LABEL
from kai.roles.podgrouper.lookup import Absent, Many
from kai.roles.podgrouper.resource import Fields, Kind, Resource


def deployment(workload: Resource) -> Iterator[Made]:
    """Yield the ReplicaSet of the newest template."""
    replicas = count(workload.fields, "spec", "replicas", default=1)
    inner = {"replicas": replicas, "template": _template(workload)}
    yield child(workload, "apps/v1", "ReplicaSet", workload.name, inner, labels=dict(workload.labels))


def replica_set(workload: Resource) -> Iterator[Made]:
    """Yield a pod for each replica."""
    replicas = count(workload.fields, "spec", "replicas", default=1)
    identities = (Identity(name=f"{workload.name}-{index}") for index in range(replicas))
    yield from pods(workload, workload.fields.child("spec", "template"), identities)


def stateful_set(workload: Resource) -> Iterator[Made]:
    """Yield a pod for each replica, with its index.

    All of them exist at once: a controller that waits for each to be ready only takes longer.
    """
    replicas = count(workload.fields, "spec", "replicas", default=1)
    start = count(workload.fields, "spec", "ordinals", "start", default=0)
    identities = (
        Identity(
            name=f"{workload.name}-{index}",
            labels={
                "apps.kubernetes.io/pod-index": str(index),
                "statefulset.kubernetes.io/pod-name": f"{workload.name}-{index}",
            },
        )
        for index in range(start, start + replicas)
    )
    yield from pods(workload, workload.fields.child("spec", "template"), identities)


def notebook(workload: Resource) -> Iterator[Made]:
    """Yield the StatefulSet of a notebook: one pod, unless the notebook is stopped."""
    replicas = 0 if "kubeflow-resource-stopped" in workload.annotations else 1
    inner = {"replicas": replicas, "template": _template(workload)}
    yield child(workload, "apps/v1", "StatefulSet", workload.name, inner, labels=dict(workload.labels))


def _template(workload: Resource) -> Mapping[str, object]:
    template = workload.fields.child("spec", "template")
    if template is None:
        raise workload.error("spec.template", None, "a pod template")
    return template.value


_OTHERS = "another pod of it"
_INDEX = "batch.kubernetes.io/job-completion-index"


def job(workload: Resource) -> Iterator[Made]:
    """Yield the pods that a Job runs now, and later the rest; none if it is suspended or finished."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend") or has_condition(
        workload.manifest, "Complete", "Failed", "SuccessCriteriaMet"
    ):
        return
    parallelism = count(fields, "spec", "parallelism", default=1)
    completions = count(fields, "spec", "completions", default=-1)
    succeeded = count(fields, "status", "succeeded", default=0)
    # Without completions a Job is a work queue: it runs `parallelism` pods until one of them succeeds.
    remaining = parallelism if completions < 0 else max(0, completions - succeeded)
    # The Job controller never starts more pods than are still to complete.
    wanted = min(parallelism, remaining)
    spec = fields.child("spec")
    is_indexed = spec is not None and spec.value.get("completionMode") == "Indexed"
    if is_indexed and completions < 0 and spec is not None and spec.value.get("parallelism") is not None:
        raise fields.error(("spec", "completions"), None, "a number of completions for an Indexed Job")
    labels = {"job-name": workload.name, "batch.kubernetes.io/job-name": workload.name}
    identities = (
        Identity(
            name=f"{workload.name}-{index}",
            labels={**labels, _INDEX: str(index)} if is_indexed else labels,
            annotations={_INDEX: str(index)} if is_indexed else {},
        )
        for index in range(remaining if wanted else 0)
    )
    template = fields.child("spec", "template")
    follows = follow_first(template, labels)
    # Pods beyond the parallelism come in turns, each when the turn before is complete.
    for at, pod in enumerate(pods(workload, template, identities)):
        conditions = follows if at else ()
        if at >= wanted:
            turn = Condition(stage=Stage.COMPLETE, labels=labels, subject=_OTHERS, turn=at // wanted)
            conditions = (*conditions, turn)
        yield later(pod, *conditions)


def follow_first(template: Fields | None, labels: Mapping[str, str]) -> tuple[Condition, ...]:
    """Return the conditions of a Job's pods other than the first, where a JobSet has an exclusive zone.

    Source: a webhook of JobSet refuses these pods until the first has a node.
    """
    annotations = part(part(template, "metadata"), "annotations")
    keys = annotations.value if annotations is not None else {}
    if EXCLUSIVE not in keys or BY_NODE_LABEL in keys:
        return ()
    subject = f"pod 0 of {labels['job-name']}"
    return (Condition(stage=Stage.PLACED, labels={**labels, _INDEX: "0"}, subject=subject),)


def cron_job(workload: Resource) -> Iterator[Made]:
    """Yield the Job of one run, as if it were due now; none if the CronJob is suspended."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    template = fields.child("spec", "jobTemplate")
    if template is None:
        raise fields.error(("spec", "jobTemplate"), None, "the template of the Jobs")
    metadata = part(template, "metadata")
    more = {key: metadata.value[key] for key in ("labels", "annotations") if metadata and metadata.value.get(key)}
    # A real Job has the minute of its run in its name; this name is the same in every expansion.
    yield child(workload, "batch/v1", "Job", f"{workload.name}-now", template.value.get("spec"), **more)


NODE: Final = Kind("", "v1", "Node")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_CONDITIONS: Final = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
_TOLERATED: Final = tuple({"key": f"node.kubernetes.io/{name}", "operator": "Exists"} for name in _CONDITIONS)


def daemon_set(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield a pod for each node of the input that the template matches."""
    template = workload.fields.child("spec", "template")
    spec = mapping_of(template.value, "spec") if template is not None else {}
    found = index.many(Many(NODE, ""))
    nodes = () if isinstance(found, Absent) else found
    names = [str(part_of(each, "metadata", "name")) for each in nodes if _may_run_on(spec, each)]
    made = pods(workload, template, [Identity(name=f"{workload.name}-{name}") for name in names])
    for name, pod in zip(names, made, strict=True):
        yield {**pod, "spec": _bound_to(name, mapping_of(pod["spec"]))}


def _bound_to(node: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = mapping_of(spec, "affinity")
    # In place of the terms that the template requires, as the controller does: the node was found to meet them.
    on_node = {**mapping_of(affinity, "nodeAffinity"), _REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    return {
        **spec,
        "affinity": {**affinity, "nodeAffinity": on_node},
        "tolerations": [*list_of(spec, "tolerations"), *_TOLERATED],
    }


def _may_run_on(spec: Mapping[str, Any], node: Manifest) -> bool:
    labels = mapping_of(node, "metadata", "labels")
    selector = mapping_of(spec, "nodeSelector")
    # As texts: YAML reads an unquoted "true" or "1" as another type.
    if any(str(labels.get(key)) != str(value) for key, value in selector.items()):
        return False
    affinity = mapping_of(spec, "affinity", "nodeAffinity", _REQUIRED)
    terms = [mapping_of(each) for each in list_of(affinity, "nodeSelectorTerms")]
    if terms and not any(_holds_all(list_of(term, "matchExpressions"), labels) for term in terms):
        return False
    tolerations = [*mappings_of(spec, "tolerations"), *_TOLERATED]
    taints = mappings_of(node, "spec", "taints")
    return all(
        taint.get("effect") == "PreferNoSchedule" or any(_tolerates(each, taint) for each in tolerations)
        for taint in taints
    )


def _holds_all(requirements: Iterable[object], labels: Mapping[str, Any]) -> bool:
    return all(_holds(mapping_of(each), labels) for each in requirements)


def _holds(requirement: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = str(requirement.get("key")), [str(each) for each in list_of(requirement, "values")]
    has, value = key in labels, str(labels.get(key))
    match requirement.get("operator"):
        case "In":
            return has and value in values
        case "NotIn":
            return not has or value not in values
        case "Exists":
            return has
        case "DoesNotExist":
            return not has
        case _:  # Gt and Lt: the scheduler checks the value of the label
            return has


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    # Without a key, Exists tolerates every taint.
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, "", taint.get("key")}
    return (toleration.get("key"), toleration.get("value") or "") == (taint.get("key"), taint.get("value") or "")


INITIAL_SCALE = "autoscaling.knative.dev/initial-scale"
_SERVING = "serving.knative.dev/"


def service(workload: Resource) -> Iterator[Made]:
    """Yield the first revision of a Service, and the objects between it and its pods."""
    template = workload.fields.child("spec", "template")
    if template is None:
        raise workload.error("spec.template", None, "the template of a revision")
    spec = template.child("spec")
    if spec is None:
        raise template.error(("spec",), None, "the spec of the pods")
    metadata = mapping_of(template.value, "metadata")
    # Knative numbers revisions by the generation of the Service, and a new one has generation 1.
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
    """Return the pod spec without the fields that a revision has besides."""
    own = {"containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds", "idleTimeoutSeconds"}
    return {key: value for key, value in spec.value.items() if key not in own}
