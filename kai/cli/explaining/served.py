"""Explanations of the service: about jobs by name, about queues, and about all jobs that wait."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from kai.api import times
from kai.cli.explaining.subjects import NoSubjectError, named_jobs
from kai.cli.explaining.whyjobs import Asked, JobAnswer, WaitingAnswer
from kai.cli.explaining.whyqueue import QueueAnswer
from kai.cli.serving import Served
from kai.cli.sources import Source
from kai.cli.views import ServedView, View
from kai.documents.reading import entitlement, fold, folds, job_lines, read, waiting_jobs

_MOST = 20
"""So many replicas of one owner are asked about one by one."""


def jobs_named(source: Source, served: Served, name: str, asked: Asked) -> tuple[View, bool]:
    """Return why the jobs of a name wait, and whether they run.

    Raises: UnreachableError where the service does not answer; InputError for an unknown job.
    """
    known = read(served.ask("jobs", namespace=served.namespace), "JobList", job_lines)
    lines = named_jobs(name, known, source)
    if not lines:
        raise NoSubjectError(f"found no job {name} among those that you may list", "kai jobs lists them")
    documents: list[Mapping[str, Any]] = []
    told, settled = [], []
    for line in lines[:_MOST]:
        document = served.ask(f"jobs/{line.job.namespace}/{line.job.name}")
        documents.append(document)
        if document.get("reason") is None:
            settled.append(line)
        else:
            told.append(read(document, "Explanation", partial(fold, line=line)))
    now = read(documents[0], "Explanation", lambda found: times.instant(found["generatedAt"]))
    shown = JobAnswer(folds=tuple(told), settled=tuple(settled), now=now, detail=asked.detail)
    whole = documents[0] if len(documents) == 1 else {**documents[0], "kind": "ExplanationList", "items": documents}
    return ServedView(shown=shown, document=whole), all(line.job.runs for line in lines)


def queue_named(served: Served, name: str) -> tuple[View, bool]:
    """Return why a queue has its share.

    Raises: UnreachableError where the service does not answer.
    """
    document = served.ask(f"queues/{name}")
    found = read(document, "QueueExplanation", entitlement)
    waiting_here = read(document, "QueueExplanation", waiting_jobs)
    return ServedView(shown=QueueAnswer(found=found, waiting=waiting_here), document=document), True


def waiting(served: Served, asked: Asked) -> tuple[View, bool]:
    """Return all jobs that wait, by reason.

    Raises: UnreachableError where the service does not answer.
    """
    document = served.ask("waiting", namespace=served.namespace)
    found = read(document, "ExplanationList", folds)
    return ServedView(shown=WaitingAnswer(folds=found, detail=asked.detail), document=document), not found


__all__ = ["jobs_named", "queue_named", "waiting"]
