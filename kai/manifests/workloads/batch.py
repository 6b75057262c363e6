"""Jobs and CronJobs.

Source: the Job controller: at most ``parallelism`` pods at a time, never more than are still to complete.
"""

from collections.abc import Iterator

from kai.lenient import has_condition
from kai.manifests.workloads.making import Identity, Made, child, count, is_set, part, pods
from kai.podgrouper.resource import Resource

_INDEX = "batch.kubernetes.io/job-completion-index"


def job(workload: Resource) -> Iterator[Made]:
    """Yield the pods that a Job runs now: none for one that is suspended or over."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend") or has_condition(
        workload.manifest, "Complete", "Failed", "SuccessCriteriaMet"
    ):
        return
    parallelism = count(fields, "spec", "parallelism", default=1)
    completions = count(fields, "spec", "completions", default=-1)
    succeeded = count(fields, "status", "succeeded", default=0)
    wanted = parallelism if completions < 0 else max(0, min(parallelism, completions - succeeded))
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
        for index in range(wanted)
    )
    yield from pods(workload, fields.child("spec", "template"), identities)


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
