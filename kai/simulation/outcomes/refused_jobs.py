"""Workloads that a cluster would not take, as jobs beside those that were decided on."""

from collections.abc import Iterable

from kai.model.axis import GPU_UNIT
from kai.simulation.cases.refused import RefusedWorkload
from kai.simulation.outcomes.job_lines import JobLine
from kai.simulation.outcomes.overview import Job
from kai.simulation.outcomes.states import State


def refused_jobs(workloads: Iterable[RefusedWorkload]) -> tuple[Job, ...]:
    """Return a job for each workload; no pod of it is placed, and none waits."""
    return tuple(
        Job(
            name=each.name,
            namespace=each.namespace,
            title=each.name,
            state=State.REFUSED,
            queue=each.queue,
            wanted=each.pods,
            gpus=round(each.gpus * GPU_UNIT),
            refusal=(each.findings[0].code, each.text),
        )
        for each in workloads
    )


def refused_lines(workloads: Iterable[RefusedWorkload]) -> tuple[JobLine, ...]:
    """Return the same as lines of a list of jobs: nothing is known of when they were made."""
    return tuple(
        JobLine(job=job, uid="", labels={}, owner=None, since=None, position=None, keys=(), pods=())
        for job in refused_jobs(workloads)
    )
