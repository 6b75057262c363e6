"""The view of one reader on one moment: jobs, queues, nodes and explanations, each computed lazily.

Pages and documents are made from a `Look`. A reader who may see everything has a `WholeLook`; others have a
`kai.dashboard.own.OwnLook`, which holds only what their rights show.

All of this is CPU-bound, for seconds in a large cluster, and must run in a worker thread: see
`kai.dashboard.answer_cache`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from kai.answers.cases.origin import Origin
from kai.answers.documents.document import Document, as_json, enveloped
from kai.answers.outcomes.entitlement import Entitlement, entitlement
from kai.answers.outcomes.gpu_slots import NodeSlots, node_slots
from kai.answers.outcomes.job_lines import JobLine, RunLimit, job_lines, run_limit
from kai.answers.outcomes.node_occupancy import Occupancy, occupancy, spare
from kai.answers.outcomes.overview import Job, Overview, overview
from kai.answers.outcomes.owners import Above, owners_in
from kai.answers.outcomes.queue_lines import weeks_of
from kai.answers.why.evictions import Eviction, Evictions
from kai.answers.why.explanation import Explained, Explainer, Fold, JobExplanation, explained_jobs, unproved
from kai.answers.why.facts import assumptions
from kai.api.fields import EMPTY
from kai.basics.trees import colors_of
from kai.dashboard.access import EVERYTHING, Scope
from kai.dashboard.feed import CycleLine, EndedCycle, Happening, Past
from kai.facts.model.axis import GPU

if TYPE_CHECKING:
    from kai.answers.outcomes.queue_lines import QueueLine, QueueWeek
    from kai.facts.model.groups import Queue

_MOST_DECISIONS = 40
_SEARCH_SECONDS = 1.0
"""About how long to search for helpful changes: as many decisions as fit into the time that a cycle may take."""
_MOST_DECIDED_ON = 10_000
"""The most pods and nodes of a cluster on which changes are tried for readers.

A second snapshot and the search on it take 4 KB for each: with 22,000 the process would need a quarter more memory for
one answer, which would come after seven cycles.
"""


@attrs.frozen(kw_only=True)
class Capacity:
    """The capacity of the cluster, used or not. Units: those of the axis."""

    nodes: int
    totals: tuple[int, int, int]
    """CPU, memory and GPUs."""

    @property
    def gpus(self) -> int:
        """GPUs of all nodes, in thousandths; MIG slices count as GPUs."""
        return self.totals[GPU]


@attrs.frozen(kw_only=True)
class History:
    """The remembered past cycles, and the health of the process."""

    cycles: tuple[CycleLine, ...] = ()
    happenings: tuple[Happening, ...] = ()
    """The newest last."""
    by_namespace: Mapping[str, Sequence[Happening]] = EMPTY
    """Happenings of the jobs of each namespace, kept longer than the common list when other namespaces are busy."""
    facts: tuple[tuple[str, str, bool], ...] = ()
    past: Past | None = None
    """The history of usage; None where pages have none."""

    @property
    def newest(self) -> int:
        """The number of the last remembered cycle; 0 for none."""
        return self.cycles[-1].number if self.cycles else 0


@attrs.define(eq=False, slots=False, kw_only=True)
class Look(ABC):
    """One moment, within the rights of a reader."""

    number: int
    """The number of the cycle."""
    time: float
    failing: tuple[str, ...]
    """Names of failing plugins."""
    groups: Mapping[str, tuple[int, int]] = EMPTY
    """By action: how many groups it bound, and for how many it decided anything."""
    scope: Scope = EVERYTHING
    kept: dict[Hashable, Any] = attrs.field(factory=dict)
    """Answers computed for readers of this look."""

    # --- What there is ---------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def capacity(self) -> Capacity:
        """The capacity of the cluster: figures that every reader may see."""

    @property
    @abstractmethod
    def lines(self) -> Sequence[JobLine]:
        """The jobs that the reader may see; waiting jobs come last."""

    @property
    @abstractmethod
    def queues(self) -> Sequence[QueueLine]:
        """The queues that the reader may get, parents before their children."""

    @property
    @abstractmethod
    def nodes(self) -> Sequence[NodeSlots]:
        """The nodes; none if the reader may not list them."""

    @property
    @abstractmethod
    def evictions(self) -> Sequence[Eviction]:
        """The pending evictions of the reader's pods."""

    @abstractmethod
    def history(self, history: History) -> History:
        """Return the remembered cycles, within the reader's rights."""

    @abstractmethod
    def occupancy(self, node: str) -> Occupancy | None:
        """Return the tenants of a node, and what keeps the reader's jobs away; None for a node that is not visible."""

    @abstractmethod
    def spare(self, node: str) -> Sequence[str]:
        """Return the free resources of a visible node besides GPUs, as text."""

    @abstractmethod
    def entitlement(self, queue: str) -> Entitlement | None:
        """Return how the share of a queue came about; None for a queue that the reader may not get."""

    @abstractmethod
    def explain(self, line: JobLine) -> JobExplanation | None:
        """Return why a job waits, and which changes would help; None for a job that does not wait."""

    @abstractmethod
    def assumptions(self, line: JobLine) -> Sequence[str]:
        """Return the assumptions behind statements about a job."""

    @property
    @abstractmethod
    def tries(self) -> bool:
        """Whether helpful changes are tried, by further decisions on the cluster."""

    @property
    def untried(self) -> str | None:
        """Return why no change is tried, and which command does; None where changes are tried."""
        if self.tries:
            return None
        size = f"the cluster has more than {_MOST_DECIDED_ON:,} pods and nodes, so no change is tried here"
        return f"{size}; kai why JOB tries changes on the machine where it runs, which needs get and list everywhere"

    @property
    @abstractmethod
    def unused(self) -> Sequence[str]:
        """Texts about resources vacated beyond what jobs were promised, for readers who may see all of it."""

    @property
    @abstractmethod
    def owners(self) -> Mapping[str, Sequence[Above]]:
        """The owners of jobs, by ``namespace/name``."""

    @abstractmethod
    def queue_facts(self) -> Iterable[Queue]:
        """Return the queues that the reader may get, as the cycle read them."""

    @abstractmethod
    def queue_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of the queues that the reader may get, by name."""

    @abstractmethod
    def queue_uids(self) -> Mapping[str, str]:
        """Return by name how the history knows the queues that the reader may get."""

    @abstractmethod
    def run_limit(self, line: JobLine) -> RunLimit | None:
        """Return how long a job may run; None where nothing limits it."""

    @abstractmethod
    def week(self, queue: str) -> QueueWeek | None:
        """Return the week of a queue whose quota follows the clock; None for others that the reader may not get."""

    # --- What is made of it ----------------------------------------------------------------------------------------

    @cached_property
    def colors(self) -> Mapping[str, str]:
        """The colours of queues, by name."""
        return colors_of(self.queues)

    @cached_property
    def tops(self) -> Sequence[QueueLine]:
        """The topmost queues that the reader may get; their usage does not overlap."""
        names = {line.name for line in self.queues}
        return [line for line in self.queues if line.parent not in names]

    def below(self, queue: str) -> frozenset[str]:
        """Return the names of a queue and of the visible queues below it."""
        found = {queue}
        # Parents come before their children, so one pass finds all.
        for line in self.queues:
            if line.parent in found:
                found.add(line.name)
        return frozenset(found)

    def find(self, namespace: str, name: str) -> JobLine | None:
        """Return one job that the reader may see."""
        return self._by_key.get((namespace, name))

    @cached_property
    def _by_key(self) -> Mapping[tuple[str, str], JobLine]:
        return {(line.job.namespace, line.job.name): line for line in self.lines}

    def folds(self, namespace: str = "") -> tuple[Fold, ...]:
        """Return the reasons for waiting, each with the first job in line and the others with the same reason.

        With thousands of jobs this uses only the results of the cycle; evidence and helpful changes are found for one
        job at a time (`explain`).
        """
        chosen = [line for line in self.lines if line.waits and namespace in {"", line.job.namespace}]
        last = len(chosen) + 1
        chosen.sort(key=lambda line: (line.position or last, line.job.key))
        alike: dict[tuple[str, str], list[JobLine]] = {}
        for line in chosen:
            alike.setdefault(
                ("" if line.job.waiting_reason is None else line.job.waiting_reason.code, line.job.queue), []
            ).append(line)
        return tuple(
            Fold(explanation=unproved(first, self.time), alike=tuple(line.job for line in others))
            for first, *others in alike.values()
        )

    def document(self, document: Document) -> dict[str, Any]:
        """Return a document about this moment as JSON values, with its envelope."""
        origin = Origin(type="service", revision=str(self.number), complete=self.scope.is_whole)
        return enveloped(type(document).__name__, as_json(document), origin)


@attrs.define(eq=False, slots=False, kw_only=True)
class WholeLook(Look):
    """One moment, for a reader who may see everything; the other readers' looks are made from it."""

    cycle: EndedCycle

    @classmethod
    def of(cls, cycle: EndedCycle) -> WholeLook:
        """Return the look at a cycle."""
        return cls(
            cycle=cycle, number=cycle.number, time=cycle.time, failing=cycle.plugins_failing, groups=cycle.groups
        )

    @cached_property
    def seen(self) -> Overview:
        """All jobs and queues."""
        return overview(self.cycle.outcome)

    @cached_property
    def capacity(self) -> Capacity:
        """The capacity of the cluster."""
        return Capacity(nodes=self.seen.nodes, totals=self.seen.totals)

    @cached_property
    def lines(self) -> tuple[JobLine, ...]:
        """All jobs."""
        return job_lines(self.cycle.outcome, self.seen)

    @cached_property
    def lines_by_namespace(self) -> Mapping[str, Sequence[JobLine]]:
        """All jobs, by their namespace."""
        found: dict[str, list[JobLine]] = {}
        for line in self.lines:
            found.setdefault(line.job.namespace, []).append(line)
        return found

    @property
    def queues(self) -> tuple[QueueLine, ...]:
        """All queues."""
        return self.seen.queues

    @cached_property
    def nodes(self) -> tuple[NodeSlots, ...]:
        """All nodes."""
        return node_slots(self.cycle.outcome)

    @cached_property
    def evictions(self) -> tuple[Eviction, ...]:
        """All pending evictions."""
        return Evictions(self.cycle.outcome.last).all()

    @cached_property
    def unused(self) -> tuple[str, ...]:
        """Texts about resources vacated beyond what jobs were promised."""
        return tuple(Evictions(self.cycle.outcome.last).unused()) if self.evictions else ()

    def history(self, history: History) -> History:
        """Return the whole history."""
        return history

    def has_node(self, node: str) -> bool:
        """Return whether the node exists."""
        return node in self.cycle.outcome.last.snapshot.node_rows

    def occupancy(self, node: str, jobs: Sequence[Job] | None = None) -> Occupancy | None:
        """Return the tenants of a node, and what keeps jobs away: all jobs, or ``jobs``."""
        if not self.has_node(node):
            return None
        seen = self.seen if jobs is None else self.seen.among(jobs)
        return occupancy(self.cycle.outcome, seen, node)

    def spare(self, node: str) -> tuple[str, ...]:
        """Return the free resources of a node besides GPUs, as text."""
        return spare(self.cycle.outcome, node)

    def entitlement(self, queue: str) -> Entitlement | None:
        """Return how the share of a queue came about."""
        if queue not in self.cycle.outcome.last.snapshot.queue_rows:
            return None
        return entitlement(self.cycle.outcome, self.seen, queue)

    @property
    def tries(self) -> bool:
        """Whether the cluster is small enough for further decisions."""
        snapshot = self.cycle.outcome.last.snapshot
        return len(snapshot.pods) + len(snapshot.nodes) <= _MOST_DECIDED_ON

    @cached_property
    def _explainer(self) -> Explainer:
        # The last cycle tells how long one decision takes in this cluster.
        most = int(_SEARCH_SECONDS / max(0.001, self.cycle.took)) if self.tries else 0
        return Explainer(self.cycle.outcome, self.seen, lines=self.lines, most=min(_MOST_DECISIONS, most))

    def explain(self, line: JobLine) -> JobExplanation | None:
        """Return why a job waits, and which changes would help."""
        return self._explainer.explain(line.job) if line.waits else None

    def explained(self, lines: Sequence[JobLine]) -> Explained:
        """Explain jobs as thoroughly as a command, with as many decisions; without any in a large cluster."""
        explainer = Explainer(self.cycle.outcome, self.seen, lines=self.lines) if self.tries else self._explainer
        return explained_jobs(self.cycle.outcome, explainer, lines, verify=self.tries)

    def assumptions(self, line: JobLine) -> tuple[str, ...]:
        """Return the assumptions behind statements about a job."""
        return assumptions(self.cycle.outcome.case.objects, {line.job.queue})

    @cached_property
    def owners(self) -> Mapping[str, tuple[Above, ...]]:
        """The owners of all jobs."""
        objects = self.cycle.outcome.case.objects
        return owners_in(objects.pods, objects.pod_groups)

    def queue_facts(self) -> Iterable[Queue]:
        """Return all queues."""
        return self.cycle.outcome.last.snapshot.queues

    def week(self, queue: str) -> QueueWeek | None:
        """Return the week of a queue whose quota follows the clock; None for others."""
        case = self.cycle.outcome.case
        found = weeks_of((each for each in case.objects.queues if each.metadata.name == queue), case.now)
        return found[0] if found else None

    @cached_property
    def _uids(self) -> Mapping[str, str]:
        queues = self.cycle.outcome.case.objects.queues
        return {each.metadata.name: each.metadata.uid or each.metadata.name for each in queues}

    def queue_uids(self) -> Mapping[str, str]:
        """Return how the history knows all queues, by name."""
        return self._uids

    def run_limit(self, line: JobLine) -> RunLimit | None:
        """Return how long a job may run; None where nothing limits it."""
        return run_limit(self.cycle.outcome, line)

    def queue_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of all queues."""
        return {each.metadata.name: each.metadata.labels for each in self.cycle.outcome.case.objects.queues}
