"""What a reader sees of one moment: jobs, queues, nodes and explanations, each computed when it is asked for.

`Look` is what pages and documents are made of. A reader of everything has a `WholeLook`, others have a
`kai.dashboard.own.OwnLook`, which is made of what their rights show and holds nothing else.

Everything here computes, for seconds in a large cluster, and belongs in a thread, where `kai.dashboard.answer_cache`
runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from kai.api.fields import EMPTY
from kai.basics.trees import colors_of
from kai.dashboard.access import EVERYTHING, Scope
from kai.dashboard.feed import CycleLine, EndedCycle, Happening
from kai.documents.envelope import enveloped
from kai.model.axis import GPU
from kai.simulation.cases.origin import Origin
from kai.simulation.explaining.assumptions import assumptions
from kai.simulation.explaining.evictions import Eviction, Evictions
from kai.simulation.explaining.explanation import (
    Explained,
    Explainer,
    Fold,
    JobExplanation,
    explained_jobs,
    unproved,
)
from kai.simulation.outcomes.entitlement import Entitlement, entitlement
from kai.simulation.outcomes.gpu_slots import NodeSlots, node_slots
from kai.simulation.outcomes.job_lines import JobLine, job_lines
from kai.simulation.outcomes.node_occupancy import Occupancy, occupancy, spare
from kai.simulation.outcomes.overview import Job, Overview, overview
from kai.simulation.outcomes.owners import Above, owners_in

if TYPE_CHECKING:
    from kai.model.groups import Queue
    from kai.simulation.outcomes.queue_lines import QueueLine

_MOST_DECISIONS = 40
_SEARCH_SECONDS = 1.0
"""For about so long changes are searched that would help: as many decisions as a cycle's own time allows."""
_MOST_DECIDED_ON = 10_000
"""Pods and nodes of a cluster that is decided on again for readers.

A second snapshot and what is searched on it take 4 KB for each of them: with 22,000 the process would have a quarter
more memory for the sake of one answer, and this answer would come after seven cycles.
"""


@attrs.frozen(kw_only=True)
class Capacity:
    """What the cluster has, used or not. Units: those of the axis."""

    nodes: int
    totals: tuple[int, int, int]
    """CPU, memory and GPUs."""

    @property
    def gpus(self) -> int:
        """GPUs of all nodes, in thousandths; MIG slices count as GPUs."""
        return self.totals[GPU]


@attrs.frozen(kw_only=True)
class History:
    """What is remembered of cycles before, and how the process is."""

    cycles: tuple[CycleLine, ...] = ()
    happenings: tuple[Happening, ...] = ()
    """The newest last."""
    by_namespace: Mapping[str, Sequence[Happening]] = EMPTY
    """What happened to the jobs of each namespace, which is remembered for longer where much happens to others."""
    facts: tuple[tuple[str, str, bool], ...] = ()

    @property
    def newest(self) -> int:
        """The number of the last cycle that is remembered; 0 for none."""
        return self.cycles[-1].number if self.cycles else 0


@attrs.define(eq=False, slots=False, kw_only=True)
class Look(ABC):
    """One moment, as far as a reader may see it."""

    number: int
    """Of the cycle."""
    time: float
    failing: tuple[str, ...]
    """Plugins that fail."""
    groups: Mapping[str, tuple[int, int]] = EMPTY
    """By action: how many groups it bound, and for how many it decided something."""
    scope: Scope = EVERYTHING
    kept: dict[Hashable, Any] = attrs.field(factory=dict)
    """What was computed for readers of this look."""

    # --- What there is ---------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def capacity(self) -> Capacity:
        """What the cluster has: its own figures, which every reader is shown."""

    @property
    @abstractmethod
    def lines(self) -> Sequence[JobLine]:
        """The jobs that the reader may see, those that wait last."""

    @property
    @abstractmethod
    def queues(self) -> Sequence[QueueLine]:
        """The queues that the reader may read, parents before their children."""

    @property
    @abstractmethod
    def nodes(self) -> Sequence[NodeSlots]:
        """The nodes, none where the reader may not list them."""

    @property
    @abstractmethod
    def evictions(self) -> Sequence[Eviction]:
        """The pods of the reader's jobs that have to go."""

    @abstractmethod
    def history(self, history: History) -> History:
        """Return what is remembered, as far as the reader may see it."""

    @abstractmethod
    def occupancy(self, node: str) -> Occupancy | None:
        """Return what is on a node, and what keeps which of the reader's jobs away; None for one that is not shown."""

    @abstractmethod
    def spare(self, node: str) -> Sequence[str]:
        """Return what a node that is shown has free besides GPUs, in words."""

    @abstractmethod
    def entitlement(self, queue: str) -> Entitlement | None:
        """Return how the share of a queue came about; None for one that the reader may not read."""

    @abstractmethod
    def explain(self, line: JobLine) -> JobExplanation | None:
        """Return why a job waits, and which changes would help; None for a job that does not wait."""

    @abstractmethod
    def assumptions(self, line: JobLine) -> Sequence[str]:
        """Return what is taken for granted in what is said of a job."""

    @property
    @abstractmethod
    def tries(self) -> bool:
        """Whether changes are tried that would help a job: the cluster is decided on again for that."""

    @property
    def untried(self) -> str | None:
        """Return why no change is tried, and who tries some; None where changes are tried."""
        if self.tries:
            return None
        size = f"the cluster has more than {_MOST_DECIDED_ON:,} pods and nodes, so no change is tried here"
        return f"{size}; kai why JOB tries changes on the machine where it runs, which needs get and list everywhere"

    @property
    @abstractmethod
    def unused(self) -> Sequence[str]:
        """Where more is vacated than jobs are promised, for readers who may see all of it."""

    @property
    @abstractmethod
    def owners(self) -> Mapping[str, Sequence[Above]]:
        """What the jobs belong to, by ``namespace/name``."""

    @abstractmethod
    def queue_facts(self) -> Iterable[Queue]:
        """Return the queues that the reader may read, as they take part."""

    @abstractmethod
    def queue_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of the queues that the reader may read, by name."""

    # --- What is made of it ----------------------------------------------------------------------------------------

    @cached_property
    def colors(self) -> Mapping[str, str]:
        """The colours of queues, by name."""
        return colors_of(self.queues)

    @cached_property
    def tops(self) -> Sequence[QueueLine]:
        """The queues above which the reader may read none: what they use is in no other one of these."""
        names = {line.name for line in self.queues}
        return [line for line in self.queues if line.parent not in names]

    def below(self, queue: str) -> frozenset[str]:
        """Return the names of a queue and of those below it that the reader may read."""
        found = {queue}
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
        """Return the reasons why jobs wait, each with the first job in line and those that wait for the same.

        A page of 4,000 jobs is made of what the cycle said of each: what proves a reason, and what would help, is found
        out for one job at a time.
        """
        chosen = [line for line in self.lines if line.waits and namespace in {"", line.job.namespace}]
        last = len(chosen) + 1
        chosen.sort(key=lambda line: (line.position or last, line.job.key))
        alike: dict[tuple[str, str], list[JobLine]] = {}
        for line in chosen:
            alike.setdefault(("" if line.job.words is None else line.job.words.code, line.job.queue), []).append(line)
        return tuple(
            Fold(explanation=unproved(first, self.time), alike=tuple(line.job for line in others))
            for first, *others in alike.values()
        )

    def document(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document of this moment."""
        origin = Origin(type="service", revision=str(self.number), complete=self.scope.is_whole)
        return enveloped(kind, fields, origin)


@attrs.define(eq=False, slots=False, kw_only=True)
class WholeLook(Look):
    """One moment, for a reader who may see everything; what others see is made of it."""

    cycle: EndedCycle

    @classmethod
    def of(cls, cycle: EndedCycle) -> WholeLook:
        """Return what there is to see of a cycle."""
        return cls(
            cycle=cycle, number=cycle.number, time=cycle.time, failing=cycle.plugins_failing, groups=cycle.groups
        )

    @cached_property
    def seen(self) -> Overview:
        """All jobs and queues."""
        return overview(self.cycle.outcome)

    @cached_property
    def capacity(self) -> Capacity:
        """What the cluster has."""
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
        """All pods that have to go."""
        return Evictions(self.cycle.outcome.last).all()

    @cached_property
    def unused(self) -> tuple[str, ...]:
        """Where more is vacated than jobs are promised."""
        return tuple(Evictions(self.cycle.outcome.last).unused()) if self.evictions else ()

    def history(self, history: History) -> History:
        """Return all of it."""
        return history

    def has_node(self, node: str) -> bool:
        """Return whether there is such a node."""
        return node in self.cycle.outcome.last.snapshot.node_rows

    def occupancy(self, node: str, jobs: Sequence[Job] | None = None) -> Occupancy | None:
        """Return what is on a node, and what keeps jobs away: all, or these."""
        if not self.has_node(node):
            return None
        seen = self.seen if jobs is None else attrs.evolve(self.seen, jobs=tuple(jobs))
        return occupancy(self.cycle.outcome, seen, node)

    def spare(self, node: str) -> tuple[str, ...]:
        """Return what a node has free besides GPUs, in words."""
        return spare(self.cycle.outcome, node)

    def entitlement(self, queue: str) -> Entitlement | None:
        """Return how the share of a queue came about."""
        if queue not in self.cycle.outcome.last.snapshot.queue_rows:
            return None
        return entitlement(self.cycle.outcome, self.seen, queue)

    @property
    def tries(self) -> bool:
        """Whether the cluster is small enough to be decided on again."""
        snapshot = self.cycle.outcome.last.snapshot
        return len(snapshot.pods) + len(snapshot.nodes) <= _MOST_DECIDED_ON

    @cached_property
    def _explainer(self) -> Explainer:
        most = int(_SEARCH_SECONDS / max(0.001, self.cycle.took)) if self.tries else 0
        return Explainer(self.cycle.outcome, self.seen, lines=self.lines, most=min(_MOST_DECISIONS, most))

    def explain(self, line: JobLine) -> JobExplanation | None:
        """Return why a job waits, and which changes would help."""
        return self._explainer.explain(line.job) if line.waits else None

    def told(self, lines: Sequence[JobLine]) -> Explained:
        """Return what a command would find out about jobs, by as many decisions; by none in a large cluster."""
        explainer = Explainer(self.cycle.outcome, self.seen, lines=self.lines) if self.tries else self._explainer
        return explained_jobs(self.cycle.outcome, explainer, lines, verify=self.tries)

    def assumptions(self, line: JobLine) -> tuple[str, ...]:
        """Return what is taken for granted in what is said of a job."""
        return assumptions(self.cycle.outcome.case.objects, {line.job.queue})

    @cached_property
    def owners(self) -> Mapping[str, tuple[Above, ...]]:
        """What all jobs belong to."""
        objects = self.cycle.outcome.case.objects
        return owners_in(objects.pods, objects.pod_groups)

    def queue_facts(self) -> Iterable[Queue]:
        """Return all queues."""
        return self.cycle.outcome.last.snapshot.queues

    def queue_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of all queues."""
        return {each.metadata.name: each.metadata.labels for each in self.cycle.outcome.case.objects.queues}
