"""Answers of ``kai why --evicted``: past and present evictions, their beneficiaries, and the rules that allow them."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kai.basics.errors import UnreachableError
from kai.basics.wording import counted, number_text
from kai.cli.arguments import split_subject
from kai.cli.console import Console
from kai.cli.explaining.explanations import evicted
from kai.cli.explaining.subjects import NoSubjectError, find_subject
from kai.cli.tables import columns, wrapped

if TYPE_CHECKING:
    from kai.answers.outcomes.overview import Overview
    from kai.answers.why.evictions import Eviction
    from kai.answers.why.own_jobs import OwnJobs
    from kai.answers.why.past_evictions import PastEviction
    from kai.cli.explaining.whyjobs import Asked
    from kai.cli.sources import Source
    from kai.lab.request import Result

_MOST_ROWS = 20
_MOST_NUMBERS = 4
_LIFE = "events are kept for an hour by default; --decision-log goes back further"


@attrs.frozen(kw_only=True)
class Record:
    """Evictions of past cycles, from events and decision logs."""

    evictions: "tuple[PastEviction, ...]" = ()
    looked_at: tuple[str, ...] = ()
    """The sources that were read: events, a decision log; none for a file, which has neither."""
    missing: str = ""
    """Why events were not read; "" if they were, or if the source has none."""

    def about(self, keys: Collection[str]) -> "Record":
        """Return the evictions in which the jobs ``keys`` (``namespace/name``) lost pods or gained by it."""
        chosen = tuple(each for each in self.evictions if each.job in keys or each.gainer in keys)
        return attrs.evolve(self, evictions=chosen)

    def jobs_named(self, name: str) -> set[str]:
        """Return the jobs on record whose own name, or that of one of their pods, is ``name``."""
        return {each.job for each in self.evictions if name in _names_of(each.job) | _names_of(each.pod)}


def _names_of(key: str) -> set[str]:
    return {key, key.rpartition("/")[2]}


@attrs.frozen(kw_only=True)
class EvictionAnswer:
    """The answer: present and past evictions, their beneficiaries, and the rules that allow them."""

    evictions: "tuple[Eviction, ...]" = ()
    """The evictions of the present cycle."""
    unused: tuple[str, ...] = ()
    titles: "Mapping[str, str] | None" = None
    """Titles of the jobs of present evictions by ``namespace/name``; None without a present cycle."""
    record: Record = attrs.field(factory=Record)
    detail: bool = False
    kind: str = "EvictionList"

    def fields(self) -> dict[str, Any]:
        """Return ``items``, one for each pod to be evicted now, and ``past``, one for each past eviction."""
        from kai.answers.documents.document import as_json
        from kai.answers.documents.evictions import EvictionItem, EvictionList, PastEvictionItem

        document = EvictionList(
            items=tuple(map(EvictionItem.of, self.evictions)),
            unused_evictions=self.unused,
            past=tuple(map(PastEvictionItem.of, self.record.evictions)),
            looked_at=self.record.looked_at,
        )
        return as_json(document)

    def names(self) -> list[str]:
        """Return the names of the pods, as ``-o name`` writes them."""
        pods = [each.pod for each in self.record.evictions if each.pod] + [each.pod for each in self.evictions]
        return [f"pod/{pod.rpartition('/')[2]}" for pod in dict.fromkeys(pods)]

    def text(self, console: Console) -> str:
        """Return a row for each moment, job, cause and rule; the present cycle comes last."""
        from kai.answers.documents.evictions import EvictionItem

        parts = []
        if self.record.evictions:
            parts.append("\n".join(self._before(console)))
        if self.titles is not None:
            gone = tuple(map(EvictionItem.of, self.evictions))
            parts += evicted(gone, self.unused, self.titles, console)
        if not parts:
            past = " and no eviction is on record" if self.record.looked_at else ""
            parts.append(f"no pod has to go{past}")
        if self.record.missing:
            parts.append(f"events were not looked at: {self.record.missing}")
        elif self.record.looked_at == ("events",):
            parts.append(wrapped(_LIFE, console.width, indent="  "))
        return "\n\n".join(parts)

    def _before(self, console: Console) -> Iterable[str]:
        yield console.styled("Evicted before", bold=True)
        groups: dict[tuple[str, ...], list[PastEviction]] = {}
        for each in self.record.evictions:
            key = (f"{each.time[:19]}Z", each.job, each.queue, each.cause, self._gainer(each), each.rule)
            groups.setdefault(key, []).append(each)
        rows = [["  TIME", "JOB", "QUEUE", "PODS", "GPUS", "CAUSE", "FOR", "RULE"]]
        shown = list(groups.items()) if console.wide else list(groups.items())[-_MOST_ROWS:]
        for (time, job, queue, cause, gainer, rule), members in shown:
            amounts = [each.gpus for each in members]
            gpus = "-" if None in amounts else number_text(sum(filter(None, amounts)))
            rows.append([f"  {time}", job, queue or "-", str(len(members)), gpus, cause or "-", gainer, rule or "-"])
        if len(shown) < len(groups):
            yield f"  {counted(len(groups) - len(shown), 'earlier row')} not shown (-o wide)"
        yield columns(rows, right={3, 4}, width=console.width)
        numbers = dict.fromkeys(
            each.because for _, members in shown for each in members if each.because and self._tells(each)
        )
        for text in list(numbers)[-_MOST_NUMBERS:]:
            yield columns([["", text]], width=console.width)

    def _tells(self, each: "PastEviction") -> bool:
        """Return whether to show the figures of an eviction: texts of events are long, so they need ``--detail``."""
        return self.detail or each.source != "events"

    def _gainer(self, each: "PastEviction") -> str:
        queue = f" (queue {each.gainer_queue})" if each.gainer_queue else ""
        return f"{each.gainer}{queue}" if each.gainer else "-"


# ------------------------------------------------------------------------------------------------------------- looking


def evictions_of(source: "Source", result: "Result", asked: "Asked") -> tuple[EvictionAnswer, bool]:
    """Return the evictions of the jobs in question, and whether all these jobs run.

    Raises: NoSubjectError for a name that is neither in the source nor on record.
    """
    from kai.answers.why.evictions import Evictions

    outcome, seen = result.outcome, result.overview
    if outcome is None or seen is None:
        return EvictionAnswer(), True
    namespace = source.namespace_of(source.case_of(result))
    record = _with_queues(_record(source, asked, namespace), seen)
    jobs = [job for job in seen.jobs if namespace in {"", job.namespace}]
    wanted = {job.key for job in jobs}
    if asked.name:
        asked_for = asked.name if "/" in asked.name else f"job/{asked.name}"
        try:
            wanted = {line.job.key for line in find_subject(asked_for, source, result).lines}
        except NoSubjectError:
            wanted = record.jobs_named(_bare(asked.name))
            if not wanted:
                raise
        record = record.about(wanted)
    found = Evictions(outcome.last)
    chosen = tuple(each for each in found.all() if wanted & {each.job, each.beneficiary})
    answer = EvictionAnswer(
        evictions=chosen,
        unused=tuple(found.unused()) if chosen else (),
        titles=seen.titles,
        record=record,
        detail=asked.detail,
    )
    return answer, not asked.name or all(job.runs for job in jobs if job.key in wanted)


def own_evictions(source: "Source", own: "OwnJobs", asked: "Asked") -> EvictionAnswer:
    """Return the evictions for a user restricted to one namespace; beneficiaries in other namespaces stay unnamed.

    Raises: UnreachableError where the user may see no record.
    """
    namespace = "" if source.everywhere else source.namespace or own.origin.namespace
    record = _record(source, asked, namespace)
    if not record.looked_at:
        raise own.refused
    record = attrs.evolve(record, evictions=tuple(each.masked() for each in record.evictions))
    return EvictionAnswer(record=_named(record, asked), detail=asked.detail)


def logged_evictions(source: "Source", asked: "Asked") -> EvictionAnswer:
    """Return the answer from a decision log alone, for a cluster that does not answer.

    Raises: InputError for a log that cannot be read, NoSubjectError for a job that it does not name.
    """
    from kai.answers.why.past_evictions import LOG

    found = logged(asked, "" if source.everywhere else source.namespace)
    return EvictionAnswer(record=_named(Record(evictions=found, looked_at=(LOG,)), asked), detail=asked.detail)


def logged(asked: "Asked", namespace: str) -> "tuple[PastEviction, ...]":
    """Return the evictions in the decision log for ``namespace``, "" for all; empty if no log is given.

    Raises: InputError for a log that cannot be read.
    """
    from kai.answers.why.past_evictions import from_log
    from kai.cluster.process.decisions import PassedOver

    if not asked.log:
        return ()
    passed = PassedOver()
    found = from_log(asked.log, lambda each: namespace in {"", each}, passed)
    if passed.count:
        asked.notes.append(str(passed))
    return found


def _named(record: Record, asked: "Asked") -> Record:
    """Return the record of the job in question, or the whole record if no job is named.

    Raises: NoSubjectError for a job that is not on record.
    """
    if not asked.name:
        return record
    wanted = record.jobs_named(_bare(asked.name))
    if not wanted:
        raise NoSubjectError(f"found no eviction of {asked.name} on record", help="kai why --evicted shows all of them")
    return record.about(wanted)


def _record(source: "Source", asked: "Asked", namespace: str) -> Record:
    """Return the record from the decision log and the events of a running cluster."""
    from kai.answers.why.past_evictions import EVENTS, LOG, from_events, joined

    found = logged(asked, namespace)
    where = [LOG] if asked.log else []
    if not source.is_live:
        return Record(evictions=found, looked_at=tuple(where))
    try:
        in_events = from_events(source.access, namespace)
    except UnreachableError as error:
        missing = f"cannot {error.missing}" if error.missing else str(error)
        return Record(evictions=found, looked_at=tuple(where), missing=missing)
    return Record(evictions=joined(found, in_events), looked_at=(EVENTS, *where))


def _with_queues(record: Record, seen: "Overview") -> Record:
    """Return the record with missing queues filled in from jobs that still exist."""
    queues = {job.key: job.queue for job in seen.jobs}
    evictions = tuple(
        attrs.evolve(
            each,
            queue=each.queue or queues.get(each.job, ""),
            gainer_queue=each.gainer_queue or queues.get(each.gainer, ""),
        )
        for each in record.evictions
    )
    return attrs.evolve(record, evictions=evictions)


def _bare(name: str) -> str:
    """Return a name without the kind before it."""
    return split_subject(name)[1]
