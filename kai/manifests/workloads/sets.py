"""JobSets and LeaderWorkerSets.

Source: their controllers: names, labels, owners, and what waits for something else to be ready.
"""

from collections.abc import Iterator

from kai.manifests.workloads.making import Identity, Made, child, count, is_set, part, pods
from kai.podgrouper.groupers.job_set import depends
from kai.podgrouper.resource import Fields, Resource

_JOB_SET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_TEMPLATE = ("spec", "leaderWorkerTemplate")


def job_set(workload: Resource) -> Iterator[Made]:
    """Yield the Jobs of a set; where they start in order, those of the first replicated job.

    A replicated job that depends on others comes when those are ready or complete.
    """
    fields = workload.fields
    jobs = fields.children("spec", "replicatedJobs")
    if not jobs:
        raise fields.error(("spec", "replicatedJobs"), None, "at least 1 replicated job")
    if is_set(fields, "spec", "suspend"):
        return
    in_order = fields.text("spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    total = 0
    for job in jobs[:1] if in_order else jobs:
        for index in range(count(job, "replicas", default=1)):
            if not depends(job):
                yield _job(workload, job, index, total)
            total += 1


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
    pod_template = {
        **inner.value,
        "metadata": {
            **(metadata.value if metadata else {}),
            "labels": {**_map(metadata, "labels"), **labels},
            "annotations": {**_map(metadata, "annotations"), **labels},
        },
    }
    parallelism = count(spec, "parallelism", default=1)
    return child(
        workload,
        "batch/v1",
        "Job",
        f"{workload.name}-{name}-{index}",
        {"completionMode": "Indexed", "completions": parallelism, **spec.value, "template": pod_template},
        labels={**_map(outer, "labels"), **labels},
        annotations={**_map(outer, "annotations"), **labels},
    )


def leader_worker_set(workload: Resource) -> Iterator[Made]:
    """Yield leaders below a StatefulSet, and below each leader the StatefulSet of its workers.

    Workers that wait for their leader to be ready are not there yet.
    """
    fields = workload.fields
    replicas = count(fields, "spec", "replicas", default=1)
    size = count(fields, *_TEMPLATE, "size", default=1)
    template = leader_template(workload)
    leaders = child(workload, "apps/v1", "StatefulSet", workload.name, {"replicas": replicas})
    yield leaders
    workers = fields.child(*_TEMPLATE, "workerTemplate")
    is_waiting = fields.text("spec", "startupPolicy") == "LeaderReady"
    for index in range(replicas):
        name = f"{workload.name}-{index}"
        for leader in pods(Resource.of(leaders), template, [_identity(workload, name, index, 0, size)]):
            yield leader
            if size > 1 and not is_waiting:
                yield from _workers(workload, Resource.of(leader), workers, index, size)


def _workers(workload: Resource, leader: Resource, template: Fields | None, group: int, size: int) -> Iterator[Made]:
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
    """Return the template of leaders, which is that of workers unless there is one.

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
