"""DaemonSets: a pod for each node that the pod may run on.

Source: the DaemonSet controller: each pod is bound to its node by an affinity to the name of the node, and tolerates
what comes and goes with the state of a node.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kai.lenient import list_of, mapping_of, mappings_of, part_of
from kai.manifests.index import Index, Manifest
from kai.manifests.workloads.making import Identity, Made, pods
from kai.podgrouper.lookup import Absent, Many
from kai.podgrouper.resource import Kind, Resource

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
    on_node = {**mapping_of(affinity, "nodeAffinity"), _REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    return {
        **spec,
        "affinity": {**affinity, "nodeAffinity": on_node},
        "tolerations": [*list_of(spec, "tolerations"), *_TOLERATED],
    }


def _may_run_on(spec: Mapping[str, Any], node: Manifest) -> bool:
    labels = mapping_of(node, "metadata", "labels")
    selector = mapping_of(spec, "nodeSelector")
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
        case _:  # Gt and Lt: whether the node is large enough is for the scheduler to say
            return has


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, "", taint.get("key")}
    return (toleration.get("key"), toleration.get("value") or "") == (taint.get("key"), taint.get("value") or "")
