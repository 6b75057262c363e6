"""JobSets and LeaderWorkerSets.

Source: the controllers and webhooks of JobSet 0.13.0-devel and LeaderWorkerSet 0.10.0: names, labels, owners,
affinities, and the order of start.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai.basics.parsing import list_of, mapping_of
from kai.manifests.workloads.making import (
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
    uid_of,
)
from kai.roles.podgrouper.groupers import sets as job_set_grouper
from kai.roles.podgrouper.groupers.sets import DEPENDS_ON
from kai.roles.podgrouper.groupers.sets import LEADER_WORKER_SET_EXCLUSIVE as OWN_ZONE
from kai.roles.podgrouper.resource import Fields, Resource

EXCLUSIVE, BY_NODE_LABEL = job_set_grouper.EXCLUSIVE
_NAMESPACED_JOB: Final = "alpha.jobset.sigs.k8s.io/namespaced-job"
_NO_SCHEDULE: Final = "alpha.jobset.sigs.k8s.io/no-schedule"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_JOB_SET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_TEMPLATE = ("spec", "leaderWorkerTemplate")


def job_set(workload: Resource) -> Iterator[Made]:
    """Yield the Jobs of a set; a Job that starts later comes with its condition.

    Replicated jobs that start in order wait until the previous one is ready, others for the jobs that they depend on.
    """
    fields = workload.fields
    jobs = fields.children("spec", "replicatedJobs")
    if not jobs:
        raise fields.error(("spec", "replicatedJobs"), None, "at least 1 replicated job")
    if is_set(fields, "spec", "suspend"):
        return
    in_order = fields.text("spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    total = 0
    for at, job in enumerate(jobs):
        conditions = list(_depended(workload, job))
        if in_order and at:
            conditions.append(_once(workload, str(jobs[at - 1].text("name")), Stage.READY))
        for index in range(count(job, "replicas", default=1)):
            yield later(_job(workload, job, index, total), *conditions)
            total += 1


def _depended(workload: Resource, job: Fields) -> Iterator[Condition]:
    for each in (job.children(DEPENDS_ON) or ()) if job.value.get(DEPENDS_ON) is not None else ():
        stage = Stage.COMPLETE if each.text("status") == "Complete" else Stage.READY
        yield _once(workload, str(each.text("name")), stage)


def _once(workload: Resource, job: str, stage: Stage) -> Condition:
    labels = {f"{_JOB_SET}jobset-name": workload.name, f"{_JOB_SET}replicatedjob-name": job}
    return Condition(stage=stage, labels=labels, subject=job)


def _job(workload: Resource, job: Fields, index: int, total: int) -> Made:
    name = job.text("name")
    if not name:
        raise job.error(("name",), name, "the name of the replicated job")
    template = job.child("template")
    spec = template.child("spec") if template is not None else None
    inner = spec.child("template") if spec is not None else None
    if template is None or spec is None or inner is None:
        raise job.error(("template", "spec", "template"), None, "a pod template")
    labels = {
        f"{_JOB_SET}jobset-name": workload.name,
        f"{_JOB_SET}jobset-uid": workload.uid,
        f"{_JOB_SET}replicatedjob-name": name,
        f"{_JOB_SET}replicatedjob-replicas": str(count(job, "replicas", default=1)),
        f"{_JOB_SET}job-index": str(index),
        f"{_JOB_SET}job-global-index": str(total),
    }
    outer, metadata = part(template, "metadata"), part(inner, "metadata")
    job_name = f"{workload.name}-{name}-{index}"
    key = {f"{_JOB_SET}job-key": uid_of("job-key", workload.namespace, job_name)}
    # Annotations of a replicated job override those of the set.
    alone = {at: {**workload.annotations, **_map(outer, "annotations")}.get(at) for at in (EXCLUSIVE, BY_NODE_LABEL)}
    zone = alone[EXCLUSIVE]
    chosen = {at: text for at, text in alone.items() if text is not None and zone}
    pod_template = {
        **inner.value,
        "spec": _in_own_zone(mapping_of(inner.value, "spec"), str(zone), key, workload, job_name, chosen),
        "metadata": {
            **(metadata.value if metadata else {}),
            "labels": {**_map(metadata, "labels"), **labels, **key},
            "annotations": {**_map(metadata, "annotations"), **labels, **key, **chosen},
        },
    }
    parallelism = count(spec, "parallelism", default=1)
    return child(
        workload,
        "batch/v1",
        "Job",
        job_name,
        {"completionMode": "Indexed", "completions": parallelism, **spec.value, "template": pod_template},
        labels={**_map(outer, "labels"), **labels},
        annotations={**_map(outer, "annotations"), **labels},
    )


def _in_own_zone(
    spec: Mapping[str, Any], zone: str, key: Mapping[str, str], workload: Resource, job: str, chosen: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the spec of the pods of a Job, with an exclusive zone if the Job wants one.

    Source: JobSet 0.13.0-devel. With node labels its controller adds a node selector and a toleration. Else a
    webhook gives the first pod affinities, and the others the first pod's zone; affinities on all of them are
    equivalent.
    """
    if EXCLUSIVE not in chosen:
        return spec
    if BY_NODE_LABEL in chosen:
        selector = {**mapping_of(spec, "nodeSelector"), _NAMESPACED_JOB: f"{workload.namespace}_{job}"}
        toleration = {"key": _NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"}
        return {**spec, "nodeSelector": selector, "tolerations": [*list_of(spec, "tolerations"), toleration]}
    return with_own_zone(spec, zone, *next(iter(key.items())))


def with_own_zone(spec: Mapping[str, Any], zone: str, label: str, value: str) -> dict[str, Any]:
    """Return the spec of pods that share a zone (a node label) among themselves, with no other pods of that label.

    These pods have ``label`` with ``value`` in common. Source: the webhooks of JobSet and LeaderWorkerSet.
    """
    mine = {"key": label, "operator": "In", "values": [value]}
    # NotIn also matches pods without the label, and those may share the zone: hence Exists.
    others = [{"key": label, "operator": "Exists"}, {"key": label, "operator": "NotIn", "values": [value]}]
    affinity = mapping_of(spec, "affinity")
    added = {"podAffinity": [mine], "podAntiAffinity": others}
    held = {name: list_of(affinity, name, _REQUIRED) for name in added}
    terms = {
        name: {
            **mapping_of(affinity, name),
            _REQUIRED: [
                *held[name],
                # The empty selector stands for all namespaces; without it only those of the pod's own namespace count.
                {"labelSelector": {"matchExpressions": expressions}, "topologyKey": zone, "namespaceSelector": {}},
            ],
        }
        for name, expressions in added.items()
    }
    return {**spec, "affinity": {**affinity, **terms}}


def leader_worker_set(workload: Resource) -> Iterator[Made]:
    """Yield leaders below a StatefulSet, and below each leader the StatefulSet of its workers.

    Workers may wait for their leader to be ready or, where a replica has an exclusive zone, to have a node.
    """
    fields = workload.fields
    replicas = count(fields, "spec", "replicas", default=1)
    size = count(fields, *_TEMPLATE, "size", default=1)
    template = leader_template(workload)
    leaders = child(workload, "apps/v1", "StatefulSet", workload.name, {"replicas": replicas})
    yield leaders
    workers = fields.child(*_TEMPLATE, "workerTemplate")
    is_waiting = fields.text("spec", "startupPolicy") == "LeaderReady"
    zone = workload.annotations.get(OWN_ZONE, "")
    stage = Stage.READY if is_waiting else Stage.PLACED if zone else None
    for index in range(replicas):
        name = f"{workload.name}-{index}"
        for leader in pods(Resource.of(leaders), template, [_identity(workload, name, index, 0, size)]):
            yield _with_zone(leader, zone)
            if size > 1:
                for made in _workers(workload, Resource.of(leader), workers, index, size):
                    yield later(_with_zone(made, zone), *([] if stage is None else [_leads(leader, stage)]))


def _leads(leader: Made, stage: Stage) -> Condition:
    labels = leader["metadata"]["labels"]
    selector = {f"{_LWS}{key}": labels[f"{_LWS}{key}"] for key in ("name", "group-index", "worker-index")}
    return Condition(stage=stage, labels=selector, subject=f"the leader {leader['metadata']['name']}")


def _with_zone(made: Made, zone: str) -> Made:
    """Return a pod of a replica with an exclusive zone; any other object unchanged."""
    if not zone or made["kind"] != "Pod":
        return made
    key = f"{_LWS}group-key"
    return {**made, "spec": with_own_zone(made["spec"], zone, key, made["metadata"]["labels"][key])}


def _workers(workload: Resource, leader: Resource, template: Fields | None, group: int, size: int) -> Iterator[Made]:
    # The size counts the leader.
    holder = child(leader, "apps/v1", "StatefulSet", leader.name, {"replicas": size - 1})
    yield holder
    identities = (_identity(workload, f"{leader.name}-{each}", group, each, size) for each in range(1, size))
    yield from pods(Resource.of(holder), template, identities)


def _identity(workload: Resource, name: str, group: int, worker: int, size: int) -> Identity:
    labels = {
        f"{_LWS}name": workload.name,
        f"{_LWS}group-index": str(group),
        f"{_LWS}worker-index": str(worker),
        f"{_LWS}group-key": f"{workload.name}-{group}",
    }
    return Identity(name=name, labels=labels, annotations={f"{_LWS}size": str(size)})


def leader_template(workload: Resource) -> Fields:
    """Return the template of leaders, which by default is that of workers.

    Raises: InputError when there is neither.
    """
    holder = workload.fields.child(*_TEMPLATE)
    if holder is None:
        raise workload.fields.error(_TEMPLATE, None, "the templates of a leader and its workers")
    for key in ("leaderTemplate", "workerTemplate"):
        if holder.value.get(key) is not None:
            found = holder.child(key)
            if found is not None:
                return found
    raise holder.error(("workerTemplate",), None, "the template of the workers")


def _map(holder: Fields | None, key: str) -> dict[str, object]:
    found = part(holder, key)
    return dict(found.value) if found is not None else {}
