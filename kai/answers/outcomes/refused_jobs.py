"""Workloads that a cluster would refuse, as jobs without a decision."""

from collections.abc import Iterable

from kai.answers.cases.refused import RefusedWorkload
from kai.answers.outcomes.job_lines import JobLine
from kai.answers.outcomes.job_states import State
from kai.answers.outcomes.overview import Job
from kai.facts.model.axis import GPU_UNIT


def refused_jobs(workloads: Iterable[RefusedWorkload]) -> tuple[Job, ...]:
    """Return a job for each workload; none of its pods is placed or waits."""
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
    """Return the same jobs as lines of a job list; their creation times are unknown."""
    return tuple(
        JobLine(job=job, uid="", labels={}, owner=None, since=None, position=None, keys=(), pods=())
        for job in refused_jobs(workloads)
    )
