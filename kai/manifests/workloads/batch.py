"""Jobs and CronJobs.

Source: the Job controller: at most ``parallelism`` pods at a time, never more than are still to complete.
"""

from collections.abc import Iterator, Mapping

from kai.lenient import has_condition
from kai.manifests.workloads.making import Condition, Identity, Made, Stage, child, count, is_set, later, part, pods
from kai.manifests.workloads.sets import BY_NODE_LABEL, EXCLUSIVE
from kai.podgrouper.resource import Fields, Resource

_OTHERS = "another pod of it"
_INDEX = "batch.kubernetes.io/job-completion-index"


def job(workload: Resource) -> Iterator[Made]:
    """Yield the pods that a Job runs now, and later the rest: none for one that is suspended or over."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend") or has_condition(
        workload.manifest, "Complete", "Failed", "SuccessCriteriaMet"
    ):
        return
    parallelism = count(fields, "spec", "parallelism", default=1)
    completions = count(fields, "spec", "completions", default=-1)
    succeeded = count(fields, "status", "succeeded", default=0)
    remaining = parallelism if completions < 0 else max(0, completions - succeeded)
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
    for at, pod in enumerate(pods(workload, template, identities)):
        conditions = follows if at else ()
        if at >= wanted:
            turn = Condition(stage=Stage.COMPLETE, labels=labels, subject=_OTHERS, turn=at // wanted)
            conditions = (*conditions, turn)
        yield later(pod, *conditions)


def follow_first(template: Fields | None, labels: Mapping[str, str]) -> tuple[Condition, ...]:
    """Return what pods of a Job but the first wait for, where a JobSet has a zone for itself.

    Source: a webhook of JobSet refuses these pods until the first has a node.
    """
    annotations = part(part(template, "metadata"), "annotations")
    keys = annotations.value if annotations is not None else {}
    if EXCLUSIVE not in keys or BY_NODE_LABEL in keys:
        return ()
    subject = f"pod 0 of {labels['job-name']}"
    return (Condition(stage=Stage.PLACED, labels={**labels, _INDEX: "0"}, subject=subject),)


def cron_job(workload: Resource) -> Iterator[Made]:
    """Yield the Job of one run, as if its time had come now; a suspended CronJob starts none."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    template = fields.child("spec", "jobTemplate")
    if template is None:
        raise fields.error(("spec", "jobTemplate"), None, "the template of the Jobs")
    metadata = part(template, "metadata")
    more = {key: metadata.value[key] for key in ("labels", "annotations") if metadata and metadata.value.get(key)}
    yield child(workload, "batch/v1", "Job", f"{workload.name}-now", template.value.get("spec"), **more)
