"""Answers of ``kai why`` about jobs: why they wait, run or are evicted; computed here, or read from the service.

This module imports little, so that ``kai why NAME`` answers quickly where a service runs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from kai.answers.documents.document import as_json, read_json, span
from kai.api.values import instant
from kai.basics.progress import report
from kai.basics.wording import counted, first_of
from kai.cli.arguments import split_subject
from kai.cli.console import Console
from kai.cli.explaining.explanations import assumed, block, change_lines, evicted, sized, wire_texts
from kai.cli.tables import columns, wrapped
from kai.cli.views import ServedView, View

if TYPE_CHECKING:
    from kai.answers.documents.explanations import Explanation, ExplanationItem, ExplanationList, Fate
    from kai.answers.offline.run import Outcome
    from kai.answers.outcomes.job_lines import JobLine
    from kai.answers.outcomes.overview import Job, Overview
    from kai.answers.why.explanation import Fold
    from kai.cli.serving import Served
    from kai.cli.sources import Source


_MOST_NAMED = 6


@attrs.frozen(kw_only=True)
class Asked:
    """The question of a ``kai why`` command line, and how thoroughly to answer it."""

    name: str = ""
    everything: bool = False
    evicted: bool = False
    log: str | None = None
    """The decision log of a service."""
    detail: bool = False
    verify: bool = True
    notes: list[str] = attrs.field(factory=list, eq=False, repr=False)
    """Remarks found on the way that belong to no answer: `kai why` writes each once, on standard error."""


@attrs.frozen(kw_only=True)
class JobAnswer:
    """The answer about one job, or about the replicas of one owner."""

    document: "Explanation | ExplanationList"
    """What is written in every form: JSON, text and names."""
    now: float
    wire: Mapping[str, Sequence[tuple[str, str]]] | None = None
    """Texts of conditions by job; None without ``--detail``."""

    @classmethod
    def of(cls, outcome: "Outcome", seen: "Overview", lines: "Sequence[JobLine]", asked: Asked) -> "JobAnswer":
        """Explain the jobs of ``lines``."""
        from kai.answers.documents.explanations import jobs_document
        from kai.answers.why.explanation import Explainer, explained_jobs

        explainer = Explainer(outcome, seen, lines=lines, on_progress=report)
        found = explained_jobs(outcome, explainer, lines, verify=asked.verify)
        wire = _wire(found.folds) if asked.detail else None
        return cls(document=jobs_document(found), now=outcome.case.now, wire=wire)

    @classmethod
    def of_own(cls, folds: "Sequence[Fold]", settled: "Sequence[JobLine]", now: float, *, detail: bool) -> "JobAnswer":
        """Build the answer from the conditions of jobs, without a decision."""
        from kai.answers.documents.explanations import jobs_document
        from kai.answers.why.explanation import Explained

        document = jobs_document(Explained(folds=tuple(folds), settled=tuple(settled)))
        return cls(document=document, now=now, wire=_wire(folds) if detail else None)

    @classmethod
    def of_fate(cls, fate: "Fate", now: float) -> "JobAnswer":
        """Report the outcome of a job that has no pods at the chosen moment of a run over virtual time."""
        from kai.answers.documents.explanations import Explanation

        return cls(document=Explanation.of_fate(fate), now=now)

    @property
    def kind(self) -> str:
        """The kind of the document."""
        return type(self.document).__name__

    @property
    def items(self) -> "Sequence[ExplanationItem]":
        """The explanations; waiting jobs come first."""
        from kai.answers.documents.explanations import ExplanationList

        return self.document.items if isinstance(self.document, ExplanationList) else (self.document,)

    def fields(self) -> dict[str, Any]:
        """Return the explanation, or ``items``."""
        return as_json(self.document)

    def names(self) -> list[str]:
        """Return the names of the pod groups, as ``-o name`` writes them."""
        return [name for item in self.items for name in _names(item)]

    def text(self, console: Console) -> str:
        """Return a block for each reason, a line for each job that does not wait, and the evictions."""
        parts = [block(each, console, wire=_wire_of(each, self.wire)) for each in self.items if each.reason]
        parts += ["\n".join(self._lines(each, console)) for each in self.items if not each.reason]
        gone = self.document.evicted or ()
        parts += evicted(gone, (), _titles(key for each in gone for key in (each.job, each.beneficiary)), console)
        return "\n\n".join([*parts, *assumed(self.document.assumptions)])

    def _lines(self, item: "ExplanationItem", console: Console) -> Iterator[str]:
        yield console.styled(wrapped(item.summary, console.width, indent="  "), bold=True)
        parts = [item.state, f"queue {item.queue}", sized([item])]
        if item.since is not None and self.now - instant(item.since) >= 1:
            parts.append(f"for {span(self.now - instant(item.since))}")
        yield " · ".join(parts)


def _names(item: "ExplanationItem") -> list[str]:
    subjects = (item.subject, *item.alike)
    return [f"podgroup.scheduling.run.ai/{each.name}" for each in subjects]


def _titles(keys: Iterable[str | None]) -> Mapping[str, str]:
    """Return the titles of jobs: their names, with the namespace where two jobs have the same name."""
    short = {key: key.rpartition("/")[2] for key in keys if key}
    count = Counter(short.values())
    return {key: name if count[name] == 1 else key for key, name in short.items()}


def _wire(folds: "Iterable[Fold]") -> dict[str, list[tuple[str, str]]]:
    return {fold.explanation.job.key: wire_texts(fold.explanation.job) for fold in folds}


def _wire_of(
    item: "ExplanationItem", wire: Mapping[str, Sequence[tuple[str, str]]] | None
) -> Sequence[tuple[str, str]] | None:
    """Return the condition texts of one job; None without ``--detail``."""
    if wire is None:
        return None
    return wire.get(f"{item.subject.namespace}/{item.subject.name}", ())


# ------------------------------------------------------------------------------------------------------------ all jobs


@attrs.frozen(kw_only=True)
class WaitingAnswer:
    """The answer of ``--all``: all waiting jobs, by reason."""

    items: "Sequence[ExplanationItem]" = ()
    assumptions: tuple[str, ...] = ()
    wire: Mapping[str, Sequence[tuple[str, str]]] | None = None
    """Texts of conditions by job; None without ``--detail``."""
    kind: str = "ExplanationList"

    @classmethod
    def of(cls, outcome: "Outcome", seen: "Overview", jobs: "Sequence[Job]", asked: Asked) -> "WaitingAnswer":
        """Explain the waiting jobs among ``jobs``: for each queue and reason, the first job in line."""
        from kai.answers.why.explanation import Explainer
        from kai.answers.why.facts import assumptions
        from kai.deciding.explain.codes import stage_of

        explainer = Explainer(outcome, seen, on_progress=report)
        waiting = explainer.in_line([job for job in jobs if job.waiting_reason is not None])
        folds = list(explainer.folded(waiting, explainer.reasons, verify=asked.verify)) if waiting else []
        folds.sort(key=lambda fold: (stage_of(fold.explanation.reason.code), -len(fold.alike)))
        return cls.of_folds(folds, assumptions(outcome.case.objects, {job.queue for job in jobs}), detail=asked.detail)

    @classmethod
    def of_folds(cls, folds: "Sequence[Fold]", assumptions: tuple[str, ...] = (), *, detail: bool) -> "WaitingAnswer":
        """Build the answer from finished explanations."""
        from kai.answers.documents.explanations import ExplanationItem

        return cls(
            items=tuple(map(ExplanationItem.of, folds)), assumptions=assumptions, wire=_wire(folds) if detail else None
        )

    def fields(self) -> dict[str, Any]:
        """Return ``items``: one for each reason, with the jobs that share it."""
        from kai.answers.documents.explanations import ExplanationList

        return as_json(ExplanationList(items=tuple(self.items), assumptions=self.assumptions))

    def names(self) -> list[str]:
        """Return the names of the pod groups, as ``-o name`` writes them."""
        return [name for item in self.items for name in _names(item)]

    def text(self, console: Console) -> str:
        """Return a few lines for each reason; with ``--detail`` the full explanation of its first job."""
        if not self.items:
            return "no job waits"
        if self.wire is not None:
            parts = [block(each, console, wire=_wire_of(each, self.wire)) for each in self.items]
        else:
            parts = ["\n".join(_short(each, console)) for each in self.items]
        jobs = sum(1 + len(each.alike) for each in self.items)
        count = counted(jobs, "job waits", "jobs wait")
        reasons = counted(len({_code(item) for item in self.items}), "reason")
        return "\n\n".join([f"{count}, for {reasons}", *parts, *assumed(self.assumptions)])


def _code(item: "ExplanationItem") -> str:
    return "" if item.reason is None else item.reason.code


def _short(item: "ExplanationItem", console: Console) -> Iterator[str]:
    """Yield how many jobs wait for a reason, its text for the first of them, and what would start that one."""
    alike = item.alike
    count = f"{1 + len(alike)} jobs, " if alike else ""
    size = sized([item, *alike])
    head = f"{_code(item)} · queue {item.queue} · {count}{size}"
    yield console.styled(wrapped(head, console.width, indent="  ", between=" · "), bold=True)
    rows = [["  first" if alike else "  job", item.summary]]
    if alike:
        rows.append(["  then", first_of([each.title for each in alike], _MOST_NAMED)])
    best = next(iter(change_lines(item, console)), None)
    rows.append(["  change", "   ".join(best)] if best is not None else ["  wait", item.waiting or ""])
    yield columns(rows, width=console.width)


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
    return ServedView(shown=view, document=document), all(item.state in RUNS for item in view.items)


def jobs_answer(document: Document) -> JobAnswer:
    """Return the answer about jobs that a document holds.

    Raises: UnreachableError for an incomplete document.
    """
    from kai.answers.documents.asking import read
    from kai.answers.documents.explanations import Explanation, ExplanationList

    cls: type[Explanation | ExplanationList]
    cls = ExplanationList if document.get("kind") == ExplanationList.__name__ else Explanation

    def answer(values: Document) -> JobAnswer:
        found = JobAnswer(document=read_json(cls, values), now=instant(values["generatedAt"]))
        _prove(found)
        return found

    return read(document, cls.__name__, answer)


def waiting_answer(document: Document, *, detail: bool) -> WaitingAnswer:
    """Return the answer about all waiting jobs that a document holds.

    Raises: UnreachableError for an incomplete document.
    """
    from kai.answers.documents.asking import read
    from kai.answers.documents.explanations import ExplanationList

    def answer(values: Document) -> WaitingAnswer:
        found = WaitingAnswer(items=read_json(ExplanationList, values).items, wire={} if detail else None)
        _prove(found)
        return found

    return read(document, "ExplanationList", answer)


def _prove(view: View) -> None:
    """Render a view once, so that a value of a wrong type is found before anything is written."""
    view.names()
    view.text(Console())
