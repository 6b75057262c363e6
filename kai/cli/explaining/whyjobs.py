"""Why jobs wait, run or have to go: the answers of ``kai why`` about jobs."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from kai.cli.console import Console
from kai.cli.explaining.explanations import assumed, block, change_lines, evicted, sized
from kai.cli.tables import columns
from kai.documents.explanations import eviction, explanation, settled, settled_values
from kai.documents.spans import span
from kai.wording import counted, first_of

if TYPE_CHECKING:
    from kai.simulation.evictions import Eviction
    from kai.simulation.explanation import Fold
    from kai.simulation.jobs import JobLine
    from kai.simulation.overview import Job, Overview
    from kai.simulation.run import Outcome

_MOST_NAMED = 6


@attrs.frozen(kw_only=True)
class Asked:
    """What is asked, and how thoroughly."""

    name: str = ""
    everything: bool = False
    evicted: bool = False
    log: str | None = None
    """The decision log of a service."""
    detail: bool = False
    verify: bool = True


@attrs.frozen(kw_only=True)
class JobAnswer:
    """What there is to say about one job, or about the replicas of one owner."""

    folds: "tuple[Fold, ...]"
    """Jobs that wait."""
    settled: "tuple[JobLine, ...]"
    """Jobs of which no pod waits."""
    now: float
    evictions: "tuple[Eviction, ...]" = ()
    """Pods of these jobs that have to go."""
    seen: "Overview | None" = None
    """All jobs, whose titles are needed where pods have to go."""
    assumptions: tuple[str, ...] = ()
    detail: bool = False

    @classmethod
    def of(cls, outcome: "Outcome", seen: "Overview", lines: "Sequence[JobLine]", asked: Asked) -> "JobAnswer":
        """Explain the jobs of ``lines``."""
        from kai.simulation.assumptions import assumptions
        from kai.simulation.evictions import Evictions
        from kai.simulation.explanation import Explainer

        waiting = [line.job for line in lines if line.waits]
        explainer = Explainer(outcome, seen, lines=lines)
        mine = {line.job.key for line in lines}
        return cls(
            folds=tuple(explainer.folded(waiting, explainer.twins, verify=asked.verify)) if waiting else (),
            settled=tuple(line for line in lines if not line.waits),
            evictions=tuple(each for each in Evictions(outcome.last).all() if each.job in mine),
            seen=seen,
            now=outcome.case.now,
            assumptions=assumptions(outcome.case.objects),
            detail=asked.detail,
        )

    @property
    def kind(self) -> str:
        """One explanation, or a list."""
        return "Explanation" if len(self.folds) + len(self.settled) == 1 else "ExplanationList"

    def fields(self) -> dict[str, Any]:
        """Return the explanation, or ``items``."""
        items = [explanation(fold) for fold in self.folds] + [settled_values(line.job) for line in self.settled]
        more = {"evicted": [eviction(each) for each in self.evictions], "assumptions": list(self.assumptions)}
        return {**items[0], **more} if len(items) == 1 else {"items": items, **more}

    def names(self) -> list[str]:
        """Return the pod groups."""
        jobs = [job for fold in self.folds for job in (fold.explanation.job, *fold.alike)]
        return [_name(job) for job in (*jobs, *(line.job for line in self.settled))]

    def text(self, console: Console) -> str:
        """Return a block for each reason, one line for each job that does not wait, and who has to go."""
        parts = [block(fold, console, detail=self.detail) for fold in self.folds]
        parts += ["\n".join(self._lines(line, console)) for line in self.settled]
        if self.seen is not None:
            parts += evicted(self.evictions, (), self.seen.titles, console)
        return "\n\n".join([*parts, *assumed(self.assumptions)])

    def _lines(self, line: "JobLine", console: Console) -> Iterator[str]:
        job = line.job
        yield console.styled(settled(job), bold=True)
        parts = [str(job.state), f"queue {job.queue}", sized(job.wanted, job.gpus)]
        if line.since is not None and self.now - line.since >= 1:
            parts.append(f"for {span(self.now - line.since)}")
        yield " · ".join(parts)


def _name(job: "Job") -> str:
    return f"podgroup.scheduling.run.ai/{job.name}"


# ------------------------------------------------------------------------------------------------------------ all jobs


@attrs.frozen(kw_only=True)
class WaitingAnswer:
    """All jobs that wait, by reason."""

    folds: "tuple[Fold, ...]" = ()
    assumptions: tuple[str, ...] = ()
    detail: bool = False
    kind: str = "ExplanationList"

    @classmethod
    def nothing(cls) -> "WaitingAnswer":
        """Return the answer about a source without jobs."""
        return cls()

    @classmethod
    def of(cls, outcome: "Outcome", seen: "Overview", jobs: "Sequence[Job]", asked: Asked) -> "WaitingAnswer":
        """Explain those of ``jobs`` that wait: for each reason in each queue the first in line."""
        from kai.explain.codes import stage_of
        from kai.simulation.assumptions import assumptions
        from kai.simulation.explanation import Explainer

        explainer = Explainer(outcome, seen)
        waiting = explainer.in_line([job for job in jobs if job.words is not None])
        folds = list(explainer.folded(waiting, explainer.reasons, verify=asked.verify)) if waiting else []
        folds.sort(key=lambda fold: (stage_of(fold.explanation.reason.code), -len(fold.alike)))
        return cls(folds=tuple(folds), assumptions=assumptions(outcome.case.objects), detail=asked.detail)

    def fields(self) -> dict[str, Any]:
        """Return ``items``: one for each reason, with the jobs that share it."""
        return {"items": [explanation(fold) for fold in self.folds], "assumptions": list(self.assumptions)}

    def names(self) -> list[str]:
        """Return the pod groups."""
        return [_name(job) for fold in self.folds for job in (fold.explanation.job, *fold.alike)]

    def text(self, console: Console) -> str:
        """Return a few lines for each reason; with ``detail`` everything about the first of its jobs."""
        if not self.folds:
            return "no job waits"
        if self.detail:
            parts = [block(fold, console, detail=True) for fold in self.folds]
        else:
            parts = ["\n".join(_short(fold, console)) for fold in self.folds]
        jobs = sum(1 + len(fold.alike) for fold in self.folds)
        count = counted(jobs, "job waits", "jobs wait")
        reasons = counted(len(self.folds), "reason")
        return "\n\n".join([f"{count}, for {reasons}", *parts, *assumed(self.assumptions)])


def _short(fold: "Fold", console: Console) -> Iterator[str]:
    """Yield how many jobs wait for a reason, what it is for the first of them, and what would start that one."""
    each = fold.explanation
    jobs = (each.job, *fold.alike)
    size = sized(sum(job.wanted for job in jobs), sum(job.gpus for job in jobs))
    count = f"{len(jobs)} jobs, " if len(jobs) > 1 else ""
    yield console.styled(f"{each.reason.code} · queue {each.job.queue} · {count}{size}", bold=True)
    rows = [["  first" if fold.alike else "  job", each.summary]]
    if fold.alike:
        rows.append(["  then", first_of([job.title for job in fold.alike], _MOST_NAMED)])
    best = next(iter(change_lines(each, console)), None)
    rows.append(["  change", "   ".join(best)] if best is not None else ["  wait", each.waiting])
    yield columns(rows, width=console.width)


__all__ = ["Asked", "JobAnswer", "WaitingAnswer"]
