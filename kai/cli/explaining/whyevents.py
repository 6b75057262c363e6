"""The latest events about the jobs in question, as evidence beside the answer of ``kai why``."""

from typing import TYPE_CHECKING, Any

import attrs

from kai.basics.errors import UnreachableError
from kai.cli.explaining.explanations import Item
from kai.cli.explaining.whyjobs import JobAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai.answers.outcomes.job_lines import JobLine
    from kai.cli.sources import Source

_MOST_JOBS = 3
"""Read no events for more jobs than this: each job takes requests of its own."""


def with_events(found: JobAnswer, lines: "Sequence[JobLine]", source: "Source") -> JobAnswer:
    """Return the answer with the latest events about each waiting job, as evidence.

    A user without the right to list events gets the same answer without them.
    """
    waiting = {line.job.key: line for line in lines if line.waits}
    if len(waiting) > _MOST_JOBS:
        return found
    try:
        items = [_with_events(item, waiting, source, found.now) for item in found.items]
    except UnreachableError:
        return found
    document: dict[str, Any] = (
        {**found.document, **items[0]} if found.kind == "Explanation" else {**found.document, "items": items}
    )
    return attrs.evolve(found, document=document)


def _with_events(item: Item, waiting: "dict[str, JobLine]", source: "Source", now: float) -> dict[str, Any]:
    from kai.answers.documents.explanations import evidence_values
    from kai.answers.why.podless import latest_events

    subject = item["subject"]
    line = waiting.get(f"{subject['namespace']}/{subject['name']}")
    if line is None:
        return dict(item)
    pods = [pod.name for pod in line.pods if not pod.node]
    found = latest_events(source.access, subject["namespace"], subject["name"], pods, now)
    return {**item, "evidence": [*item["evidence"], *map(evidence_values, found)]}
