"""Inference services of several roles: RoleBasedGroup of SGLang, and DynamoGraphDeployment of NVIDIA Dynamo.

Source: RoleBasedGroup 0.8.0-alpha.5. Each role is a RoleInstanceSet, or the kind that an annotation names. Dynamo's
operator at 003d1ee5, in a cluster with Grove: the graph is one PodCliqueSet, and a component that takes several nodes
a scaling group of it. Additions to pods that schedulers ignore are left out. So are the affinities of a RoleBasedGroup
with an exclusive topology: they select a label that the operator puts on no pod.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai.api import names
from kai.basics.parsing import list_of, mapping_of, mappings_of, text_of
from kai.manifests.grouping import Index
from kai.manifests.workloads.making import Condition, Identity, Made, Stage, child, count, later, part, pods
from kai.manifests.workloads.trainer import merged
from kai.roles.podgrouper.resource import Fields, Resource

_RBG: Final = "rbg.workloads.x-k8s.io/"
_ROLES: Final = "workloads.x-k8s.io/v1alpha2"
_USUAL: Final = {"v1alpha1": "apps/v1/StatefulSet"}
"""The kind of a role that names none, by version; else a RoleInstanceSet."""
_UID: Final = f"{_RBG}group-uid"
_PATTERNS: Final = ("standalonePattern", "leaderWorkerPattern", "leaderWorkerSet")
_PATCHES: Final = {
    "leader": ("leaderTemplatePatch", "patchLeaderTemplate"),
    "worker": ("workerTemplatePatch", "patchWorkerTemplate"),
}
"""Names of the patches in v1alpha2 and in v1alpha1."""


def role_based_group(workload: Resource) -> Iterator[Made]:
    """Yield the workload of each role; roles with dependencies come when those are ready.

    Raises: InputError for a role without a name or a pod template, or of a kind that its operator does not know.
    """
    for role in workload.fields.children("spec", "roles") or ():
        name = role.text("name")
        if not name:
            raise role.error(("name",), name, "the name of the role")
        labels = {f"{_RBG}group-name": workload.name, f"{_RBG}role-name": name, _UID: workload.uid}
        made = _role(workload, role, f"{workload.name}-{name}", labels)
        yield later(made, *(_role_ready(workload, each) for each in list_of(role.value, "dependencies")))


def _role_ready(workload: Resource, role: object) -> Condition:
    labels = {f"{_RBG}group-name": workload.name, f"{_RBG}role-name": str(role)}
    return Condition(stage=Stage.READY, labels=labels, subject=str(role))


def _role(workload: Resource, role: Fields, name: str, labels: Mapping[str, str]) -> Made:
    """Return the object that has the pods of a role."""
    stated = mapping_of(role.value, "workload")
    asked = text_of(role.value, "annotations", f"{_RBG}role-workload-type")
    if not asked:
        usual = _USUAL.get(workload.kind.version, f"{_ROLES}/RoleInstanceSet")
        # The annotation, where there is one, goes before the field.
        asked = f"{stated.get('apiVersion')}/{stated.get('kind')}" if stated.get("kind") else usual
    version, _, kind = asked.rpartition("/")
    replicas = count(role, "replicas", default=1)
    parts = _components(workload, role, labels)
    metadata = {
        "labels": {**mapping_of(role.value, "labels"), **labels},
        "annotations": dict(mapping_of(role.value, "annotations")),
    }
    first = parts[0]["template"]
    if kind in {"Deployment", "StatefulSet"}:
        return child(workload, version, kind, name, {"replicas": replicas, "template": first}, **metadata)
    if kind == "LeaderWorkerSet":
        size = sum(each["size"] for each in parts)
        inner = {"size": size, "leaderTemplate": first, "workerTemplate": parts[-1]["template"]}
        return child(workload, version, kind, name, {"replicas": replicas, "leaderWorkerTemplate": inner}, **metadata)
    if kind in {"RoleInstanceSet", "InstanceSet"}:
        spec = {"replicas": replicas, "roleInstanceTemplate": {"components": parts}}
        return child(workload, _ROLES, "RoleInstanceSet", name, spec, **metadata)
    wanted = "RoleInstanceSet, LeaderWorkerSet, StatefulSet or Deployment"
    raise role.error(("annotations", f"{_RBG}role-workload-type"), asked, wanted)


def _components(workload: Resource, role: Fields, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the components of one instance of a role: name, size and pod template of each.

    Raises: InputError for a role without a pod template.
    """
    custom = part(role, "customComponentsPattern") or role
    if custom.value.get("components"):
        return [
            {
                "name": each.text("name") or "",
                "size": count(each, "size", default=1),
                "template": _pod_template(mapping_of(each.value, "template"), each.value, labels),
            }
            for each in custom.children("components") or ()
        ]
    pattern = next((key for key in _PATTERNS if role.value.get(key) is not None), None)
    holder = (part(role, pattern) if pattern else None) or role
    base = _base_template(workload, holder if _names_template(holder) else role)
    if pattern in {None, "standalonePattern"}:
        return [{"name": role.text("name"), "size": 1, "template": _pod_template(base, {}, labels)}]
    # The size of a group includes its leader.
    sizes = {"leader": 1, "worker": count(holder, "size", default=1) - 1}
    return [
        {"name": each, "size": size, "template": _pod_template(_patched(base, holder, each), {}, labels)}
        for each, size in sizes.items()
        if size > 0
    ]


def _names_template(holder: Fields) -> bool:
    return any(holder.value.get(key) is not None for key in ("template", "templateRef"))


def _patched(base: Mapping[str, Any], holder: Fields, role: str) -> Mapping[str, Any]:
    for key in _PATCHES[role]:
        base = merged(base, mapping_of(holder.value, key))
    return base


def _base_template(workload: Resource, holder: Fields) -> Mapping[str, Any]:
    """Return the pod template of a role: its own, or a named one of the group with a patch."""
    if holder.value.get("template") is not None:
        return mapping_of(holder.value, "template")
    name = text_of(holder.value, "templateRef", "name")
    shared = {each.get("name"): each for each in mappings_of(workload.manifest, "spec", "roleTemplates")}
    if not name:
        raise holder.error(("template",), None, "the template of the pods")
    if name not in shared:
        raise holder.error(("templateRef", "name"), name, f"one of the role templates: {', '.join(map(str, shared))}")
    found = merged(mapping_of(shared[name], "template"), mapping_of(holder.value, "templateRef", "patch"))
    return mapping_of(merged(found, mapping_of(holder.value, "templatePatch")))


def _pod_template(template: Mapping[str, Any], own: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = {
        key: {**mapping_of(template, "metadata", key), **mapping_of(own, key)} for key in ("labels", "annotations")
    }
    return {
        "metadata": {**metadata, "labels": {**metadata["labels"], **labels}},
        "spec": mapping_of(template, "spec"),
    }


def role_instance_set(workload: Resource) -> Iterator[Made]:
    """Yield the instances of a role."""
    fields = workload.fields
    template = mapping_of(workload.manifest, "spec", "roleInstanceTemplate")
    for index in range(count(fields, "spec", "replicas", default=1)):
        labels = {**workload.labels, f"{_RBG}role-instance-index": str(index)}
        name = f"{workload.name}-{index}"
        yield child(workload, workload.kind.api_version, "RoleInstance", name, template, labels=labels)


def role_instance(workload: Resource) -> Iterator[Made]:
    """Yield the pods of all components."""
    components = workload.fields.children("spec", "components") or ()
    number = 0
    for component in components:
        name = component.text("name") or ""
        size = count(component, "size", default=1)
        # Its operator numbers these through, and names pods of other components by their component.
        is_numbered = name in {"leader", "worker"}
        labels = {f"{_RBG}role-instance-name": workload.name, f"{_RBG}component-name": name}
        identities = []
        for at in range(size):
            title = f"{workload.name}-{number}" if is_numbered else f"{workload.name}-{name}-{at}"
            title = workload.name if len(components) == size == 1 and not is_numbered else title
            identities.append(Identity(name=title, labels={**labels, f"{_RBG}component-id": str(at)}))
            number += 1
        yield from pods(workload, component.child("template"), identities)


DYNAMO_QUEUE: Final = "nvidia.com/kai-scheduler-queue"
"""The annotation that names the queue of a graph; labels do not count."""
_USUAL_QUEUE: Final = "dynamo"
_MAIN: Final = "main"
_RESOURCES: Final = {"cpu": "cpu", "memory": "memory"}
_GPU: Final = "nvidia.com/gpu"


def dynamo_graph(workload: Resource, _: Index) -> Iterator[Made]:
    """Yield the PodCliqueSet of a graph: a clique for each component, two in a scaling group if it takes several nodes.

    In a cluster with kai the operator names scheduler and queue in each clique, unless that names another scheduler.

    Raises: InputError for a component without a name.
    """
    cliques: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    for component in _graph_components(workload):
        name = component.text("name")
        if not name:
            raise component.error(("name",), name, "the name of the component")
        # Names of components may have capitals; those of cliques become names of pods, which have none.
        parts = _parts(component, name.lower())
        replicas = count(component, "replicas", default=1)
        if len(parts) > 1:
            least = count(component, "minAvailable", default=1)
            names_of_parts = [each for each, _ in parts]
            group = {"name": name.lower(), "cliqueNames": names_of_parts, "replicas": replicas, "minAvailable": least}
            groups.append({**group, **_packed(component.value)})
        for each, size in parts:
            alone = len(parts) == 1
            pod = {"replicas": replicas if alone else size, "minAvailable": size}
            packed = _packed(component.value) if alone else {}
            cliques.append({**_clique(workload, component, each, pod), **packed})
    template = {"cliques": cliques, "podCliqueScalingGroups": groups, **_packed(mapping_of(workload.manifest, "spec"))}
    metadata = {"labels": dict(workload.labels), "annotations": dict(workload.annotations)}
    spec = {"replicas": 1, "template": template}
    yield child(workload, "grove.io/v1alpha1", "PodCliqueSet", workload.name, spec, **metadata)


def _graph_components(workload: Resource) -> list[Fields]:
    """Return the components of a graph in the form of v1beta1; those of v1alpha1 are a map by name."""
    fields = workload.fields
    services = part(fields.child("spec"), "services")
    if services is None:
        return list(fields.children("spec", "components") or ())
    found = []
    # Sorted, so that equal graphs expand equally, in whatever order they are written.
    for name, held in sorted(services.value.items()):
        own = mapping_of(held)
        pod = mapping_of(own, "extraPodSpec")
        container = {"name": _MAIN, **mapping_of(pod, "mainContainer")}
        if own.get("resources"):
            container["resources"] = _amounts(mapping_of(own, "resources"))
        spec = {key: value for key, value in pod.items() if key not in {"mainContainer", "containers"}}
        metadata = {
            key: {**mapping_of(own, key), **mapping_of(own, "extraPodMetadata", key)}
            for key in ("labels", "annotations")
        }
        template = {"metadata": metadata, "spec": {**spec, "containers": [container, *list_of(pod, "containers")]}}
        path = f"{services.path}.{name}"
        found.append(Fields({**own, "name": name, "podTemplate": template}, services.subject, path))
    return found


def _amounts(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources of v1alpha1 as those of a container."""
    found: dict[str, Any] = {}
    for kind in ("requests", "limits"):
        own = mapping_of(stated, kind)
        amounts = {known: own[key] for key, known in _RESOURCES.items() if own.get(key)}
        if own.get("gpu"):
            amounts[str(own.get("gpuType") or _GPU)] = own["gpu"]
        found[kind] = {**amounts, **mapping_of(own, "custom")}
    return found


def _parts(component: Fields, name: str) -> list[tuple[str, int]]:
    """Return the cliques of a component, with the number of pods that start together in each."""
    nodes = 1
    multinode = part(component, "multinode")
    if multinode is not None:
        nodes = count(multinode, "nodeCount", default=1)
    if nodes <= 1:
        return [(name, count(component, "minAvailable", default=1))]
    return [(f"{name}-ldr", 1), (f"{name}-wkr", nodes - 1)]


def _packed(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topology constraint of a graph or a component, as Grove writes it."""
    stated = mapping_of(holder, "topologyConstraint")
    domain, name = stated.get("packDomain"), stated.get("clusterTopologyName")
    found = {"packDomain": domain, **({"topologyName": name} if name else {})}
    return {"topologyConstraint": found} if domain else {}


def _clique(workload: Resource, component: Fields, name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    spec = mapping_of(workload.manifest, "spec")
    template = mapping_of(component.value, "podTemplate")
    metadata = {
        key: {**mapping_of(spec, key), **mapping_of(template, "metadata", key)} for key in ("labels", "annotations")
    }
    pod_spec = dict(mapping_of(template, "spec"))
    # Cliques for another scheduler get no queue: it means nothing there.
    if pod_spec.setdefault("schedulerName", names.SCHEDULER_NAME) == names.SCHEDULER_NAME:
        queue = str(workload.annotations.get(DYNAMO_QUEUE) or "").strip()
        metadata["labels"][names.QUEUE] = queue or _USUAL_QUEUE
    return {"name": name, **metadata, "spec": {"roleName": name, **pod, "podSpec": pod_spec}}
