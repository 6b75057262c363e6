"""Answers of ``kai why`` that the service gives: about jobs by name, queues, nodes, evictions, and all waiting jobs."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kai.answers.documents.asking import RefusedByServiceError, read
from kai.answers.documents.evictions import evictions_of, past_evictions_of
from kai.answers.documents.jobs import job_lines, owners_of_jobs
from kai.answers.documents.nodes import occupancy
from kai.answers.documents.queues import entitlement, waiting_jobs
from kai.cli.arguments import split_subject
from kai.cli.explaining.subjects import NoSubjectError, named_jobs, unknown_job
from kai.cli.explaining.whyevicted import EvictionAnswer, Record, logged
from kai.cli.explaining.whyjobs import Asked, jobs_answer, waiting_answer
from kai.cli.explaining.whyqueue import NodeAnswer, QueueAnswer
from kai.cli.serving import Served
from kai.cli.sources import Source
from kai.cli.views import HEAD, ServedView, View

if TYPE_CHECKING:
    from kai.answers.outcomes.job_lines import JobLine
    from kai.answers.outcomes.owners import Above

_OF_LISTS = frozenset({"evicted", "assumptions", "untried"})

_MOST = 20
"""The most replicas of one owner to request an explanation for; each takes a request."""


def jobs_named(source: Source, served: Served, name: str) -> tuple[View, bool]:
    """Return why the jobs called ``name`` wait, and whether they run.

    Raises: UnreachableError where the service does not answer; InputError for an unknown job.
    """
    listed, owners = _listed(source, served)
    lines = named_jobs(name, listed, source, owners)
    if not lines:
        raise unknown_job(name, "the jobs that you may list", listed, owners, source)
    documents = [served.ask(f"jobs/{line.job.namespace}/{line.job.name}") for line in lines[:_MOST]]
    whole = documents[0] if len(documents) == 1 else _joined(documents)
    return ServedView(shown=jobs_answer(whole), document=whole), all(line.job.runs for line in lines)


def _joined(documents: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Join explanations into one list document."""
    first = documents[0]
    return {
        **{name: first.get(name) for name in HEAD},
        "kind": "ExplanationList",
        "items": [_item_of(each) for each in documents],
        "evicted": [one for each in documents for one in each.get("evicted") or ()],
        "assumptions": list(first.get("assumptions") or ()),
        "untried": first.get("untried"),
    }


def _item_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an explanation as an item of a list, without its envelope and the fields that belong to a list."""
    return {name: value for name, value in document.items() if name not in HEAD | _OF_LISTS}


def queue_named(served: Served, name: str) -> tuple[View, bool]:
    """Return why a queue has its share.

    Raises: UnreachableError where the service does not answer.
    """
    document = served.ask(f"queues/{name}")
    found = read(document, "QueueExplanation", entitlement)
    waiting_here = read(document, "QueueExplanation", waiting_jobs)
    return ServedView(shown=QueueAnswer(found=found, waiting=waiting_here), document=document), True


def node_named(served: Served, name: str) -> tuple[View, bool]:
    """Return why a node is empty or full.

    Raises: UnreachableError where the service does not answer.
    """
    document = served.ask(f"nodes/{quote(name, safe='')}")
    return ServedView(shown=NodeAnswer(found=read(document, "NodeExplanation", occupancy)), document=document), True


def named(source: Source, served: Served, name: str) -> tuple[View, bool]:
    """Return the answer about a bare name: about jobs, else about a queue, else about a node of that name.

    Raises: UnreachableError where the service does not answer; InputError for an unknown name.
    """
    try:
        return jobs_named(source, served, name)
    except NoSubjectError:
        for ask in (queue_named, node_named):
            with suppress(RefusedByServiceError):
                return ask(served, name)
        raise


def evictions(source: Source, served: Served, asked: Asked) -> tuple[View, bool]:
    """Return the evictions that the jobs in question suffer or benefit from.

    Raises: UnreachableError where the service does not answer; InputError for an unknown job.
    """
    document = served.ask("evictions", namespace=served.namespace)
    now, past = read(document, "EvictionList", evictions_of), read(document, "EvictionList", past_evictions_of)
    where = tuple(document.get("lookedAt") or ())
    if asked.log:
        from kai.answers.why.past_evictions import LOG, joined

        found = logged(asked, served.namespace)
        found = found if served.origin.complete else tuple(each.masked() for each in found)
        past, where = joined(found, past), (*where, LOG)
    record = Record(evictions=past, looked_at=where)
    runs = True
    if asked.name or source.selector.requirements:
        lines, owners = _listed(source, served)
        name = split_subject(asked.name)[1]
        chosen = named_jobs(asked.name, lines, source, owners) if name else lines
        keys = {line.job.key for line in chosen} or record.jobs_named(name)
        if not keys and name:
            raise unknown_job(asked.name, "the jobs that you may list", lines, owners, source)
        now = tuple(each for each in now if keys & {each.job, each.beneficiary})
        record, runs = record.about(keys), all(line.job.runs for line in chosen)
    titles = {key: key.rpartition("/")[2] for each in now for key in (each.job, each.beneficiary) if key}
    unused = tuple(document.get("unusedEvictions") or ()) if now else ()
    shown = EvictionAnswer(evictions=now, unused=unused, titles=titles, record=record, detail=asked.detail)
    return ServedView(shown=shown, document={**document, **shown.fields()}), runs


def _listed(source: Source, served: Served) -> "tuple[tuple[JobLine, ...], Mapping[str, tuple[Above, ...]]]":
    """Return the service's jobs that match the selector, and the owners of jobs.

    Owners include pods, so the name of a pod finds its job.
    """
    document = served.ask("jobs", namespace=served.namespace, pods="true")
    lines = tuple(line for line in read(document, "JobList", job_lines) if source.selector.matches(line.labels))
    return lines, read(document, "JobList", owners_of_jobs)


def waiting(source: Source, served: Served, asked: Asked) -> tuple[View, bool]:
    """Return all waiting jobs, by reason.

    Raises: UnreachableError where the service does not answer.
    """
    document = served.ask("waiting", namespace=served.namespace)
    if source.selector.requirements:
        keys = {line.job.key for line in _listed(source, served)[0]}
        items = [kept for item in document["items"] if (kept := _chosen(item, keys, served)) is not None]
        document = {**document, "items": items}
    found = waiting_answer(document, detail=asked.detail)
    return ServedView(shown=found, document=document), not found.items


def _chosen(item: Mapping[str, Any], keys: Collection[str], served: Served) -> Mapping[str, Any] | None:
    """Return a reason with only the jobs in ``keys``; None if none of them waits for it."""
    members = [item["subject"], *item["alike"]]
    chosen = [each for each in members if f"{each['namespace']}/{each['name']}" in keys]
    if not chosen:
        return None
    first, *rest = chosen
    # The text describes the first job. If the selector drops that one, request the explanation of the new first job.
    if first is not item["subject"]:
        item = _item_of(served.ask(f"jobs/{first['namespace']}/{first['name']}"))
    return {**item, "alike": rest}
