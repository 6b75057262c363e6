"""Answers of the service about one job, printed as they come.

This module imports little, so that ``kai why NAME`` answers quickly.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kai.api.values import instant
from kai.cli.console import Console
from kai.cli.explaining.subjectkinds import split_subject
from kai.cli.explaining.whyjobs import Asked, JobAnswer, WaitingAnswer
from kai.cli.views import ServedView, View

if TYPE_CHECKING:
    from kai.cli.serving import Served
    from kai.cli.sources import Source

Document = Mapping[str, Any]


def is_for_service(source: "Source", asked: Asked) -> bool:
    """Return whether the service and this command would give the same answer.

    The service tries changes under the configuration that it decides with, and keeps no texts of conditions.
    """
    is_plain = asked.verify and not (asked.detail or asked.everything or asked.evicted)
    is_usual = not (source.config or source.user or source.selector.requirements)
    return source.is_live and is_plain and is_usual and split_subject(asked.name)[0] in {"", "job"}


def explained_by_service(served: "Served", asked: Asked) -> tuple[View, bool]:
    """Return why the jobs of a name wait, and whether they run, from a service that sees the whole cluster.

    Raises: UnreachableError where the service does not answer, or answers in part.
    """
    from kai.answers.documents.asking import RefusedByServiceError
    from kai.answers.outcomes.job_states import RUNS

    document = served.ask("why", namespace=served.namespace, name=split_subject(asked.name)[1])
    if not served.origin.complete:
        raise RefusedByServiceError(f"{served.service.name}: found an answer that leaves something out")
    if document.get("untried"):  # the service tried no changes; this command does
        raise RefusedByServiceError(f"{served.service.name}: {document['untried']}")
    view = jobs_answer(document)
    return ServedView(shown=view, document=document), all(item["state"] in RUNS for item in view.items)


def jobs_answer(document: Document) -> JobAnswer:
    """Return the answer about jobs that a document holds.

    Raises: UnreachableError for an incomplete document.
    """
    from kai.answers.documents.asking import read

    kind = "ExplanationList" if document.get("kind") == "ExplanationList" else "Explanation"
    return read(document, kind, partial(_answer, kind))


def _answer(kind: str, document: Document) -> JobAnswer:
    found = JobAnswer(kind=kind, document=document, now=instant(document["generatedAt"]))
    _prove(found)
    return found


def waiting_answer(document: Document, items: Sequence[Mapping[str, Any]], *, detail: bool) -> WaitingAnswer:
    """Return the answer about all waiting jobs, from the ``items`` of a document.

    Raises: UnreachableError for an incomplete document.
    """
    from kai.answers.documents.asking import read

    def answer(_: Document) -> WaitingAnswer:
        found = WaitingAnswer(items=items, wire={} if detail else None)
        _prove(found)
        return found

    return read(document, "ExplanationList", answer)


def _prove(view: View) -> None:
    """Render a view once, so that a missing field is found before anything is written."""
    view.names()
    view.text(Console())
