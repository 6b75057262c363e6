"""What a reader sees of one moment: jobs, queues, nodes and explanations, each computed when it is asked for.

Everything here computes, for seconds in a large cluster, and belongs in a thread, where `kai.dashboard.answer_cache`
runs it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from kai.dashboard.feed import EndedCycle, Happening
from kai.dashboard.scope import (
    EVERYTHING,
    FOREIGN_JOB,
    FOREIGN_NAMESPACE,
    FOREIGN_NODE,
    FOREIGN_QUEUE,
    Scope,
    known_queues,
    masked,
)
from kai.documents.envelope import enveloped
from kai.explain.codes import BY_CODE
from kai.explain.phrases import Words
from kai.simulation.cases.origin import Origin
from kai.simulation.deciding.run import Outcome
from kai.simulation.explaining.claim_changes import ATTACH_LIMIT, DEVICE_CLASS
from kai.simulation.explaining.evictions import Eviction, Evictions
from kai.simulation.explaining.explanation import Explained, Explainer, Fold, JobExplanation, explained_jobs
from kai.simulation.explaining.suggestions import Suggestions
from kai.simulation.explaining.trials import ChangeTrial
from kai.simulation.outcomes.entitlement import Entitlement, entitlement
from kai.simulation.outcomes.gpu_slots import NodeSlots, node_slots
from kai.simulation.outcomes.job_lines import JobLine, PodLine, job_lines
from kai.simulation.outcomes.node_occupancy import Occupancy, Tenant, occupancy, spare
from kai.simulation.outcomes.overview import Overview, overview
from kai.simulation.outcomes.queue_lines import QueueLine

_MOST_DECISIONS = 40
_SEARCH_SECONDS = 1.0
"""For about so long changes are searched that would help: as many decisions as a cycle's own time allows."""


@attrs.define(eq=False, slots=False)
class Look:
    """One moment, within a scope."""

    cycle: EndedCycle
    scope: Scope = EVERYTHING
    whole: Look | None = None
    """The same moment without a limit, where this one has some."""
    kept: dict[Hashable, Any] = attrs.field(factory=dict)
    """What was computed for readers of this look."""

    def within(self, scope: Scope) -> Look:
        """Return the same moment as a reader with less rights sees it."""
        return self if scope == self.scope else Look(cycle=self.cycle, scope=scope, whole=self)

    @cached_property
    def outcome(self) -> Outcome:
        """The outcome, without the names that the reader may not know."""
        return masked(self.cycle.outcome, self.scope)

    @cached_property
    def seen(self) -> Overview:
        """Jobs and queues, those that the reader may not see among them, nameless."""
        return overview(self.outcome)

    @cached_property
    def lines(self) -> tuple[JobLine, ...]:
        """The jobs that the reader may see."""
        if self.whole is None:
            return job_lines(self.outcome, self.seen)
        # Places in line are those among all jobs.
        own = {job.key: job for job in self.seen.jobs}
        return tuple(
            attrs.evolve(line, job=own[line.job.key], pods=self._pods(line))
            for line in self.whole.lines
            if self.scope.sees(line.job.namespace) and line.job.key in own
        )

    def _pods(self, line: JobLine) -> tuple[PodLine, ...]:
        if self.scope.nodes:
            return line.pods
        return tuple(attrs.evolve(each, node=FOREIGN_NODE) if each.node else each for each in line.pods)

    @cached_property
    def queues(self) -> tuple[QueueLine, ...]:
        """The queues that the reader may read, parents before their children."""
        return tuple(line for line in self.seen.queues if self.scope.reads(line.name))

    @cached_property
    def known_queues(self) -> frozenset[str]:
        """The queues whose names the reader may know."""
        return known_queues(self.cycle.outcome.last.snapshot, self.scope)

    @cached_property
    def nodes(self) -> tuple[NodeSlots, ...]:
        """The nodes, none where the reader may not list them."""
        return node_slots(self.outcome) if self.scope.nodes else ()

    def occupancy(self, node: str) -> Occupancy | None:
        """Return what is on a node, and what keeps which of the reader's jobs away; None for one that is not shown."""
        if not self.scope.nodes or node not in self.outcome.last.snapshot.node_rows:
            return None
        if self.whole is None:
            return occupancy(self.outcome, self.seen, node)
        # Foreign jobs have one name in what is masked, so the whole is looked at and its names go afterwards.
        own = attrs.evolve(self.whole.seen, jobs=tuple(line.job for line in self.lines))
        found = occupancy(self.whole.outcome, own, node)
        return attrs.evolve(found, tenants=tuple(map(self._tenant, found.tenants)))

    def spare(self, node: str) -> tuple[str, ...]:
        """Return what a node that is shown has free besides GPUs, in words."""
        return spare(self.outcome, node)

    def _tenant(self, tenant: Tenant) -> Tenant:
        if self.scope.sees(tenant.job.partition("/")[0]):
            return tenant
        queue = tenant.queue if tenant.queue in self.known_queues or not tenant.queue else FOREIGN_QUEUE
        return attrs.evolve(tenant, job=f"{FOREIGN_NAMESPACE}/{FOREIGN_JOB}", title=FOREIGN_JOB, queue=queue)

    @cached_property
    def evictions(self) -> tuple[Eviction, ...]:
        """The pods that have to go; whose they are and for whom, as far as the reader may know."""
        return Evictions(self.outcome.last).all()

    def unused(self) -> tuple[str, ...]:
        """Return where more is vacated than jobs are promised, for readers who may see all of it."""
        return tuple(Evictions(self.outcome.last).unused()) if self.whole is None and self.evictions else ()

    def own(self, each: Happening) -> Happening | None:
        """Return what happened, without foreign names; None where it happened to others only."""
        sees = self.scope.sees(each.namespace)
        gains = bool(each.for_job) and self.scope.sees(each.for_namespace)
        if not sees and not gains:
            return None
        out = each
        if not sees:
            queue = each.queue if each.queue in self.known_queues else FOREIGN_QUEUE
            out = attrs.evolve(out, namespace="", job=FOREIGN_JOB, queue=queue)
        if each.for_job and not gains:
            out = attrs.evolve(out, for_namespace="", for_job=FOREIGN_JOB)
        return out if self.scope.nodes else attrs.evolve(out, nodes=())

    # --- Explanations --------------------------------------------------------------------------------------------

    @cached_property
    def _explainer(self) -> Explainer:
        most = 0 if self.whole is not None else int(_SEARCH_SECONDS / max(0.001, self.cycle.took))
        return Explainer(self.outcome, self.seen, lines=self.lines, most=min(_MOST_DECISIONS, most))

    def find(self, namespace: str, name: str) -> JobLine | None:
        """Return one job that the reader may see."""
        found = (line for line in self.lines if line.job.name == name and line.job.namespace == namespace)
        return next(found, None)

    def explain(self, line: JobLine) -> JobExplanation | None:
        """Return why a job waits, and which changes would help; None for a job that does not wait."""
        if not line.waits:
            return None
        own = self._explainer.explain(line.job, verify=self.whole is None)
        if self.whole is None:
            return own
        told = self.whole.find(line.job.namespace, line.job.name)
        full = None if told is None else self.whole.explain(told)
        if full is None:
            return own
        kept = tuple(each for trial in full.suggestions.told if (each := self._own(trial)) is not None)
        return attrs.evolve(own, suggestions=Suggestions(told=kept, all_tried=full.suggestions.all_tried), eta=full.eta)

    def told(self, lines: Sequence[JobLine]) -> Explained:
        """Return what a command would find out about jobs, by as many decisions; for readers of everything."""
        return explained_jobs(self.outcome, Explainer(self.outcome, self.seen, lines=self.lines), lines)

    def folds(self, namespace: str = "") -> tuple[Fold, ...]:
        """Return the reasons why jobs wait, each with the first job in line and those that wait for the same."""
        chosen = [line.job for line in self.lines if line.waits and namespace in {"", line.job.namespace}]
        waiting = self._explainer.in_line(chosen)
        return tuple(self._explainer.folded(waiting, Explainer.reasons, verify=False)) if waiting else ()

    def entitlement(self, queue: str) -> Entitlement | None:
        """Return how the share of a queue came about; None for one that the reader may not read."""
        if not self.scope.reads(queue) or queue not in self.cycle.outcome.last.snapshot.queue_rows:
            return None
        return entitlement(self.outcome, self.seen, queue)

    def _own(self, trial: ChangeTrial) -> ChangeTrial | None:
        """Return a change and what it leads to, without foreign names; None for one that is about such a name."""
        if trial.change.field == "queue" and trial.change.new not in self.known_queues:
            return None
        # What nodes attach, and which classes of devices there are beside those that the job names.
        if trial.change.field in (ATTACH_LIMIT, DEVICE_CLASS) and not self.scope.nodes:
            return None
        return attrs.evolve(
            trial,
            reason=None if trial.reason is None else _general(trial.reason),
            placement=trial.placement if self.scope.nodes else tuple((pod, FOREIGN_NODE) for pod, _ in trial.placement),
            losses=tuple(
                each
                if self.scope.sees(each.namespace)
                else attrs.evolve(each, name=FOREIGN_JOB, namespace=FOREIGN_NAMESPACE)
                for each in trial.losses
            ),
        )

    # --- Documents -----------------------------------------------------------------------------------------------

    def document(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document of this moment."""
        origin = Origin(type="service", revision=str(self.cycle.number), complete=self.scope.is_whole)
        return enveloped(kind, fields, origin)


def _general(words: Words) -> Words:
    """Return what a reason means in general: its own text may name others."""
    known = BY_CODE.get(words.code)
    return Words(words.code, words.code if known is None else known.means.rstrip("."))
