"""Kinds of operators whose workloads become Kubernetes pods in a simple way: one template for each role.

Source: the operators at the versions that ``docs/workloads/index.md`` names. Additions to pods that schedulers
ignore (variables, probes, volumes of their own) are left out.

SparkApplications have a driver, and executors that it creates once it runs; Spark 3.5 computes what its pods request.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from kai.basics.parsing import list_of, mapping_of, mappings_of, part_of, text_of
from kai.manifests.faults import exact_amount
from kai.manifests.workloads.making import (
    AbsentError,
    Condition,
    Identity,
    Made,
    Stage,
    child,
    count,
    is_set,
    later,
    part,
    pods,
)
from kai.roles.podgrouper.groupers.plain import SPARK_NAME, SPARK_SELECTOR
from kai.roles.podgrouper.resource import Fields, Resource

_VOLCANO: Final = "volcano.sh/"
_DASK: Final = "dask.org/"
_SPARK: Final = "sparkoperator.k8s.io/"
_FEW_TRIALS: Final = 3
"""Source: the default of Katib's parallelTrialCount."""


def app_wrapper(workload: Resource) -> Iterator[Made]:
    """Yield the objects that an AppWrapper wraps, unless it is suspended."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    for component in fields.children("spec", "components") or ():
        wrapped = component.child("template")
        if wrapped is None:
            raise component.error(("template",), None, "the object that is wrapped")
        yield _embedded(workload, wrapped, text_of(wrapped.value, "metadata", "name") or workload.name)


def _embedded(workload: Resource, held: Fields, name: str) -> Made:
    """Return an object that is embedded whole in its owner, under a name."""
    version, kind = held.text("apiVersion"), held.text("kind")
    if not version or not kind:
        raise held.error(("kind",), kind, "an object with apiVersion and kind")
    metadata = mapping_of(held.value, "metadata")
    more = {key: dict(mapping_of(metadata, key)) for key in ("labels", "annotations") if metadata.get(key)}
    return child(workload, version, kind, name, held.value.get("spec"), **more)


def experiment(workload: Resource) -> Iterator[Made]:
    """Yield the first trials of a Katib Experiment; parameters stay unresolved."""
    fields = workload.fields
    template = part(fields.child("spec"), "trialTemplate")
    if template is None:
        raise fields.error(("spec", "trialTemplate"), None, "the template of the trials")
    held = part(template, "trialSpec")
    if held is None:
        wanted = "the template of the trials in the input, as trialSpec: it describes the pods"
        raise AbsentError(*template.error(("trialSpec",), None, wanted).args)
    # Without a maximum Katib goes on until the objective is reached.
    most = count(fields, "spec", "maxTrialCount", default=1 << 16)
    for index in range(min(count(fields, "spec", "parallelTrialCount", default=_FEW_TRIALS), most)):
        name = f"{workload.name}-{index}"
        trial = child(workload, workload.kind.api_version, "Trial", name, {})
        yield trial
        yield _embedded(Resource.of(trial), held, name)


def volcano_job(workload: Resource) -> Iterator[Made]:
    """Yield the pods of all tasks; tasks that depend on others come when those are ready."""
    fields = workload.fields
    for number, task in enumerate(fields.children("spec", "tasks") or ()):
        name = task.text("name") or f"default{number}"
        labels = {f"{_VOLCANO}job-name": workload.name, f"{_VOLCANO}task-spec": name}
        template = part(task, "template")
        if template is not None:
            own = mapping_of(workload.manifest, "spec")
            shared = {key: own[key] for key in ("schedulerName", "priorityClassName") if own.get(key)}
            spec = {**shared, **mapping_of(template.value, "spec")}
            template = Fields({**template.value, "spec": spec}, template.subject, template.path)
        identities = (
            Identity(name=f"{workload.name}-{name}-{at}", labels={**labels, f"{_VOLCANO}task-index": str(at)})
            for at in range(count(task, "replicas", default=1))
        )
        conditions = [_ready(workload, each) for each in list_of(task.value, "dependsOn", "name")]
        for pod in pods(workload, template, identities):
            yield later(pod, *conditions)


def _ready(workload: Resource, task: object) -> Condition:
    labels = {f"{_VOLCANO}job-name": workload.name, f"{_VOLCANO}task-spec": str(task)}
    return Condition(stage=Stage.READY, labels=labels, subject=str(task))


def dask_cluster(workload: Resource) -> Iterator[Made]:
    """Yield the Deployment of the scheduler, and one for each worker of the default group."""
    worker = workload.fields.child("spec", "worker")
    for role, held in (("scheduler", workload.fields.child("spec", "scheduler")), ("worker", worker)):
        if held is None:
            raise workload.fields.error(("spec", role), None, f"the pods of the {role}")
        labels = {**workload.labels, f"{_DASK}cluster-name": workload.name, f"{_DASK}component": role}
        metadata = {"labels": labels, "annotations": dict(workload.annotations)}
        spec = {"replicas": 1, "template": {"metadata": metadata, "spec": mapping_of(held.value, "spec")}}
        if role == "scheduler":
            yield child(workload, "apps/v1", "Deployment", f"{workload.name}-scheduler", spec, **metadata)
            continue
        group = child(workload, workload.kind.api_version, "DaskWorkerGroup", f"{workload.name}-default", {})
        yield group
        for index in range(count(held, "replicas", default=1)):
            name = f"{workload.name}-default-worker-{index}"
            yield child(Resource.of(group), "apps/v1", "Deployment", name, spec, **metadata)


def nim_service(workload: Resource) -> Iterator[Made]:
    """Yield the Deployment of a NIMService, or the LeaderWorkerSet if a replica takes several nodes."""
    fields = workload.fields
    spec = mapping_of(workload.manifest, "spec")
    replicas = count(fields, "spec", "replicas", default=1)
    if is_set(fields, "spec", "scale", "enabled"):
        # The load is not known here, and an autoscaler never goes below its least.
        replicas = count(fields, "spec", "scale", "hpa", "minReplicas", default=1)
    kept = ("schedulerName", "priorityClassName", "nodeSelector", "tolerations", "affinity", "runtimeClassName")
    claims, named = [], []
    for index, each in enumerate(mappings_of(spec, "draResources")):
        sources = ("resourceClaimName", "resourceClaimTemplateName")
        claims.append({"name": f"claim-{index}", **{key: each[key] for key in sources if each.get(key)}})
        named.append({"name": f"claim-{index}"})
    resources = {**mapping_of(spec, "resources"), **({"claims": named} if named else {})}
    container = {"name": f"{workload.name}-ctr", "resources": resources}
    pod = {
        **{key: spec[key] for key in kept if spec.get(key)},
        **({"resourceClaims": claims} if claims else {}),
        "containers": [container],
    }
    metadata = {key: dict(mapping_of(spec, key)) for key in ("labels", "annotations")}
    template = {"metadata": metadata, "spec": pod}
    if spec.get("multiNode") is not None:
        size = count(fields, "spec", "multiNode", "parallelism", "pipeline", default=1)
        inner = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
        yield child(workload, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", f"{workload.name}-lws", inner)
        return
    yield child(workload, "apps/v1", "Deployment", workload.name, {"replicas": replicas, "template": template})


def inference_service(workload: Resource) -> Iterator[Made]:
    """Yield the Deployment of each component; a serving runtime's additions to the predictor are not known.

    Knative in place of Deployments, the other mode of KServe, creates the same pods.
    """
    spec = mapping_of(workload.manifest, "spec")
    metadata = {"labels": dict(workload.labels), "annotations": dict(workload.annotations)}
    for role in ("predictor", "transformer", "explainer"):
        held = workload.fields.child("spec")
        component = part(held, role)
        if component is None:
            continue
        own = mapping_of(spec, role)
        model = next((mapping_of(own, key) for key in own if key == "model" or _is_model(own[key])), {})
        containers = [*list_of(own, "containers")]
        if model:
            containers.insert(0, {"name": "kserve-container", "resources": mapping_of(model, "resources")})
        pod = {key: value for key, value in own.items() if key in _POD_FIELDS}
        more = {key: {**metadata[key], **mapping_of(own, key)} for key in ("labels", "annotations")}
        replicas = count(component, "minReplicas", default=1)
        template = {"metadata": more, "spec": {**pod, "containers": containers}}
        name = f"{workload.name}-{role}"
        yield child(workload, "apps/v1", "Deployment", name, {"replicas": replicas, "template": template}, **metadata)


_POD_FIELDS: Final = frozenset(
    (
        *("schedulerName", "priorityClassName", "nodeSelector", "tolerations", "affinity", "resourceClaims"),
        *("volumes", "initContainers", "topologySpreadConstraints", "runtimeClassName", "schedulingGates"),
    )
)


def _is_model(value: object) -> bool:
    """Return whether a field of a predictor describes a model of one framework, as ``sklearn`` does."""
    return isinstance(value, Mapping) and ("storageUri" in value or "protocolVersion" in value)


def llm_inference_service(workload: Resource) -> Iterator[Made]:
    """Yield a Deployment for the model, or a LeaderWorkerSet if it has workers, and the same for its prefill.

    Raises: AbsentError if the pods are described by configurations that the service is based on.
    """
    for role in ("", "prefill"):
        held = workload.fields.child("spec") if not role else part(workload.fields.child("spec"), role)
        if held is None:
            continue
        spec = held.value
        if not list_of(spec, "template", "containers"):
            wanted = "the containers of the pods in the input: a configuration in the cluster describes them"
            raise AbsentError(*held.error(("template", "containers"), None, wanted).args)
        metadata = {
            key: {**mapping_of(workload.manifest, "metadata", key), **mapping_of(spec, key)}
            for key in ("labels", "annotations")
        }
        leader = {"metadata": metadata, "spec": mapping_of(spec, "template")}
        replicas = count(held, "replicas", default=1)
        name = f"{workload.name}-kserve" + (f"-{role}" if role else "")
        if spec.get("worker") is None:
            yield child(workload, "apps/v1", "Deployment", name, {"replicas": replicas, "template": leader})
            continue
        worker = {"metadata": metadata, "spec": mapping_of(spec, "worker")}
        inner = {"size": _size(held), "leaderTemplate": leader, "workerTemplate": worker}
        sets = {"replicas": replicas, "leaderWorkerTemplate": inner}
        yield child(workload, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", f"{name}-mn", sets)


def _size(held: Fields) -> int:
    """Return the number of pods over which one replica of a model is spread."""
    data = count(held, "parallelism", "data", default=0)
    if data:
        return max(1, data // max(1, count(held, "parallelism", "dataLocal", default=1)))
    return max(1, count(held, "parallelism", "pipeline", default=1))


def disaggregated_set(workload: Resource) -> Iterator[Made]:
    """Yield a LeaderWorkerSet for each role of each slice."""
    fields = workload.fields
    for index in range(count(fields, "spec", "slices", default=1)):
        for role in fields.children("spec", "roles") or ():
            name = role.text("name")
            if not name:
                raise role.error(("name",), name, "the name of the role")
            metadata = mapping_of(role.value, "metadata")
            more = {key: dict(mapping_of(metadata, key)) for key in ("labels", "annotations") if metadata.get(key)}
            title = f"{workload.name}-{index}-{name}"
            yield child(
                workload, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", title, role.value.get("spec"), **more
            )


def mini_cluster(workload: Resource) -> Iterator[Made]:
    """Yield the indexed Job of a MiniCluster, with a pod for each broker."""
    spec = mapping_of(workload.manifest, "spec")
    held = mapping_of(spec, "pod")
    size = count(workload.fields, "spec", "size", default=1)
    labels = {**mapping_of(held, "labels"), "app.kubernetes.io/name": workload.name}
    kept = ("schedulerName", "nodeSelector", "tolerations", "runtimeClassName")
    containers = [
        {"name": each.get("name") or f"{workload.name}-{at}", "resources": mapping_of(each, "resources")}
        for at, each in enumerate(mappings_of(spec, "containers"))
    ]
    pod: dict[str, Any] = {**{key: held[key] for key in kept if held.get(key)}, "containers": containers}
    pod["restartPolicy"] = held.get("restartPolicy") or "OnFailure"
    metadata = {"labels": labels, "annotations": dict(mapping_of(held, "annotations"))}
    job = {
        "parallelism": size,
        "completions": size,
        "completionMode": "Indexed",
        "template": {"metadata": metadata, "spec": pod},
    }
    yield child(workload, "batch/v1", "Job", workload.name, job, labels=dict(mapping_of(spec, "jobLabels")))


_MEBIBYTE: Final = 1 << 20
_LEAST_OVERHEAD: Final = 384
"""MiB. Source: Spark's spark.kubernetes.memoryOverhead."""
# Python and R use memory outside of Java's heap.
_OVERHEADS: Final = {"Python": Fraction(2, 5), "R": Fraction(2, 5)}
_USUAL: Final = Fraction(1, 10)
_UNSTATED: Final = 2
"""Source: Spark's spark.executor.instances, which the operator leaves out for a SparkConnect without instances."""
_DEVICE: Final = re.compile(r"spark\.(driver|executor)\.resource\.([^.]+)\.amount")
_KEPT: Final = ("affinity", "tolerations", "nodeSelector", "priorityClassName", "schedulerName", "initContainers")
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
"""Spark's units are those of Java: powers of 1024."""


def spark_application(workload: Resource) -> Iterator[Made]:
    """Yield the driver, and later the executors; none if the application is suspended."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    # Spark's own id of an application has random characters.
    known = {SPARK_NAME: workload.name, SPARK_SELECTOR: f"spark-{workload.name}"}
    labels = {f"{_SPARK}app-name": workload.name, "spark-role": "driver", **known}
    name = text_of(workload.manifest, "spec", "driver", "podName") or f"{workload.name}-driver"
    (driver,) = pods(workload, _template(workload, "driver"), [Identity(name=name, labels=labels)])
    yield driver
    runs = Condition(stage=Stage.READY, labels=labels, subject="the driver")
    of_executor = {**labels, "spark-role": "executor"}
    identities = (
        Identity(name=f"{workload.name}-exec-{at + 1}", labels=of_executor) for at in range(_executors(workload))
    )
    for pod in pods(Resource.of(driver), _template(workload, "executor"), identities):
        yield later(pod, runs)


def spark_connect(workload: Resource) -> Iterator[Made]:
    """Yield the server, and later its executors; the operator copies labels of the workload to executors alone."""
    common = {f"{_SPARK}launched-by-spark-operator": "true", f"{_SPARK}connect-name": workload.name}
    labels = {**common, "spark-role": "connect-server"}
    held = mapping_of(workload.manifest, "spec", "server", "template")
    # The operator makes this pod itself: cores and memory are for Spark, and the pod requests what the template says.
    spec = {"containers": [{"name": "spark-kubernetes-driver"}], **mapping_of(held, "spec")}
    template = Fields({**held, "spec": spec}, f"{workload}", "spec.server.template")
    (server,) = pods(workload, template, [Identity(name=f"{workload.name}-server", labels=labels)])
    yield server
    runs = Condition(stage=Stage.READY, labels=labels, subject="the server")
    known = {"spark-role": "executor", SPARK_NAME: workload.name, SPARK_SELECTOR: f"spark-{workload.name}"}
    of_executor = {**mapping_of(workload.manifest, "metadata", "labels"), **common, **known}
    identities = (
        Identity(name=f"{workload.name}-exec-{at + 1}", labels=of_executor)
        for at in range(_executors(workload, usual=_UNSTATED))
    )
    for pod in pods(Resource.of(server), _template(workload, "executor"), identities):
        yield later(pod, runs)


def _executors(workload: Resource, usual: int = 1) -> int:
    """Return the initial number of executors, ``usual`` if the workload states none."""
    fields = workload.fields
    least = count(fields, "spec", "executor", "instances", default=usual)
    if not is_set(fields, "spec", "dynamicAllocation", "enabled"):
        return least
    asked = [count(fields, "spec", "dynamicAllocation", key, default=0) for key in ("initialExecutors", "minExecutors")]
    stated = part_of(workload.manifest, "spec", "executor", "instances") is not None
    return max(*asked, least if stated else 0)


def _template(workload: Resource, role: str) -> Fields:
    """Return the pod template of a role: an optional template, overridden by the role's fields."""
    spec = mapping_of(workload.manifest, "spec")
    own, held = mapping_of(spec, role), mapping_of(spec, role, "template")
    pod: dict[str, Any] = {**mapping_of(held, "spec")}
    shared = {"nodeSelector": spec.get("nodeSelector")}
    pod |= {key: own.get(key) or shared.get(key) for key in _KEPT if own.get(key) or shared.get(key)}
    first, *others = list_of(pod, "containers") or [{}]
    container = {"name": f"spark-kubernetes-{role}", **mapping_of(first)}
    resources = _resources(workload, own, mapping_of(container, "resources"))
    limits = {**resources["limits"], **_devices(mapping_of(spec, "sparkConf"), role)}
    container["resources"] = {**resources, "limits": limits}
    pod["containers"] = [container, *others, *list_of(own, "sidecars")]
    pod["restartPolicy"] = "Never"
    metadata = {key: {**mapping_of(held, "metadata", key), **mapping_of(own, key)} for key in ("labels", "annotations")}
    return Fields({"metadata": metadata, "spec": pod}, f"{workload}", f"spec.{role}")


def _resources(workload: Resource, own: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    # Spark's cores are whole threads; coreRequest is what Kubernetes reserves for them.
    cores = own.get("coreRequest") or str(own.get("cores") or 1)
    memory = _memory(workload, own)
    requests = {**mapping_of(held, "requests"), "cpu": cores, "memory": memory}
    limits = {**mapping_of(held, "limits"), "memory": own.get("memoryLimit") or memory}
    if own.get("coreLimit"):
        limits["cpu"] = own["coreLimit"]
    gpu = mapping_of(own, "gpu")
    if gpu.get("name"):
        limits[str(gpu["name"])] = gpu.get("quantity", 1)
    return {**held, "requests": requests, "limits": limits}


def _devices(settings: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the amounts of devices that Spark's own settings ask for, by the names that Kubernetes has for them."""
    found = {}
    for key, amount in settings.items():
        named = _DEVICE.fullmatch(str(key))
        vendor = settings.get(f"{str(key).removesuffix('amount')}vendor")
        if named and named[1] == role and vendor:
            found[f"{vendor}/{named[2]}"] = amount
    return found


def _memory(workload: Resource, own: Mapping[str, Any]) -> str:
    """Return the memory of a pod in MiB: that of the process, plus the overhead outside its heap."""
    base = _mebibytes(str(own.get("memory") or "1g"))
    stated = own.get("memoryOverhead")
    if stated:
        return f"{base + _mebibytes(str(stated))}Mi"
    spec = mapping_of(workload.manifest, "spec")
    factor = exact_amount(spec.get("memoryOverheadFactor")) or _OVERHEADS.get(str(spec.get("type")), _USUAL)
    return f"{base + max(int(base * factor), _LEAST_OVERHEAD)}Mi"


def _mebibytes(text: str) -> int:
    """Return an amount in Java's notation, ``2g`` or ``512m``, in MiB; a bare number is in MiB."""
    plain = text.strip().lower().removesuffix("b").removesuffix("i")
    number = exact_amount(plain.rstrip("".join(_UNITS)))
    return int((number or 0) * _UNITS.get(plain[-1:], _MEBIBYTE) / _MEBIBYTE)
