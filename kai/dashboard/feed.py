"""The last cycle for readers, and a short history of events and durations of cycles.

A cycle publishes its outcome and goes on. A reader waits for a newer revision and skips those in between, so a slow
reader costs nothing. What is older comes from the history of usage (`Past`), a file.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import anyio
import attrs
from anyio import to_thread

from kai.answers.offline.run import Outcome
from kai.answers.outcomes.states import counted_on
from kai.api.fields import EMPTY
from kai.cluster.port import Clock
from kai.facts.model.axis import GPU_UNIT
from kai.framework.decisions import Bind, Evict, Nominate
from kai.history import reports
from kai.history.database import reading
from kai.history.facts import Connection, HistoryError

_CYCLES: Final = 120
_HAPPENINGS: Final = 400
_MOST_OF_NAMESPACE: Final = 24
"""The most happenings of one namespace.

They are kept apart, so that the history of one namespace does not reveal how busy others are.
"""
_MOST_PENDING: Final = 8
_MOST_NODES: Final = 8
KEPT_SECONDS: Final = 30.0
"""Seconds for which an answer from the history of usage is kept."""
_MOST_KEPT: Final = 64

R = TypeVar("R")


@attrs.frozen(kw_only=True)
class EndedCycle:
    """A cycle that has ended."""

    outcome: Outcome
    took: float
    """Duration in seconds."""
    phases: Mapping[str, float] = EMPTY
    """Duration of each phase, in seconds."""
    groups: Mapping[str, tuple[int, int]] = EMPTY
    """By action: how many groups it bound, and for how many it decided anything."""
    plugins_failing: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """The number of the cycle."""
        return self.outcome.last.number

    @property
    def time(self) -> float:
        """When it was decided, in seconds since the epoch."""
        return self.outcome.last.snapshot.now


@attrs.frozen(kw_only=True)
class CycleLine:
    """The line of one cycle in the history."""

    number: int
    time: float
    took: float
    phases: Mapping[str, float]
    counts: Mapping[str, int]
    """Number of decisions, by kind."""


@attrs.frozen(kw_only=True)
class Happening:
    """The decision of one cycle about one job."""

    number: int
    time: float
    kind: str
    """One of started, held, evicted, moved."""
    namespace: str
    job: str
    queue: str
    pods: int
    gpus: float
    nodes: tuple[str, ...]
    cause: str = ""
    for_namespace: str = ""
    """The namespace of the job that gains by an eviction."""
    for_job: str = ""


@attrs.define(eq=False)
class Feed:
    """The last cycle, and the history of earlier ones."""

    cycle: EndedCycle | None = None
    revision: int = 0
    """Grows with every cycle."""
    cycles: deque[CycleLine] = attrs.field(factory=lambda: deque(maxlen=_CYCLES))
    happenings: deque[Happening] = attrs.field(factory=lambda: deque(maxlen=_HAPPENINGS))
    """The newest last."""
    by_namespace: dict[str, deque[Happening]] = attrs.field(factory=dict)
    """Happenings of each namespace over the same cycles, the newest last."""
    _pending: deque[EndedCycle] = attrs.field(factory=lambda: deque(maxlen=_MOST_PENDING))
    _news: anyio.Event = attrs.field(factory=anyio.Event)

    def show(self, cycle: EndedCycle) -> None:
        """Publish a cycle. Cost: independent of the size of the cluster."""
        outcome, last = cycle.outcome, cycle.outcome.last
        # Detach the snapshot: readers use it in threads while the next cycles run.
        shown = (*outcome.cycles[:-1], attrs.evolve(last, snapshot=last.snapshot.apart()))
        self.cycle = attrs.evolve(cycle, outcome=attrs.evolve(outcome, cycles=shown))
        self.revision += 1
        self._pending.append(self.cycle)
        news, self._news = self._news, anyio.Event()
        news.set()

    def hide(self) -> None:
        """Show nothing any more: another process leads now."""
        self.cycle = None
        self.revision += 1
        news, self._news = self._news, anyio.Event()
        news.set()

    async def newer(self, revision: int) -> int:
        """Wait for a revision other than ``revision``, and return it."""
        while self.revision == revision:
            await self._news.wait()
        return self.revision

    async def run(self) -> None:
        """Update the history in a thread after each cycle, until cancelled."""
        seen = 0
        while True:
            seen = await self.newer(seen)
            while self._pending:
                cycle = self._pending.popleft()
                line, found = await to_thread.run_sync(_summed_up, cycle)
                self.remember(line, found)

    def remember(self, line: CycleLine, happenings: Iterable[Happening]) -> None:
        """Add one cycle to the history."""
        self.cycles.append(line)
        for each in happenings:
            self.happenings.append(each)
            self.by_namespace.setdefault(each.namespace, deque(maxlen=_MOST_OF_NAMESPACE)).append(each)
        # Namespaces without news in all these cycles go: names of past tenants would add up.
        if len(self.cycles) == _CYCLES:
            first = self.cycles[0].number
            for name in [name for name, found in self.by_namespace.items() if found[-1].number < first]:
                del self.by_namespace[name]


def _summed_up(cycle: EndedCycle) -> tuple[CycleLine, list[Happening]]:
    last = cycle.outcome.last
    kinds: Counter[str] = Counter()
    for each in last.decisions:
        kinds[_kind(each)] += 1
    line = CycleLine(number=cycle.number, time=cycle.time, took=cycle.took, phases=cycle.phases, counts=dict(kinds))
    return line, list(_happenings(cycle))


def _kind(decision: Bind | Nominate | Evict) -> str:
    if isinstance(decision, Bind):
        return "started"
    if isinstance(decision, Nominate):
        return "held"
    return "moved" if decision.moved_to >= 0 else "evicted"


def _happenings(cycle: EndedCycle) -> Iterator[Happening]:
    """Yield the decisions about each job, merging pods with the same kind and cause."""
    snapshot, details = cycle.outcome.last.snapshot, cycle.outcome.last.report.details
    pods: Counter[tuple[str, int, str, int]] = Counter()
    gpus: Counter[tuple[str, int, str, int]] = Counter()
    nodes: dict[tuple[str, int, str, int], dict[int, None]] = {}
    for each in cycle.outcome.last.decisions:
        if isinstance(each, Evict):
            cause, gains, node = str(each.cause), each.aggressor, int(snapshot.pod_node[each.pod])
        else:
            cause, gains, node = "", -1, each.node
        key = (_kind(each), int(snapshot.pod_group[each.pod]), cause, gains)
        pods[key] += 1
        gpus[key] += counted_on(snapshot, each.pod, node, details)
        if node >= 0:
            nodes.setdefault(key, {})[node] = None
    for key, count in pods.items():
        kind, group, cause, gains = key
        if group < 0:
            continue
        facts = snapshot.groups[group]
        winner = snapshot.groups[gains] if gains >= 0 else None
        yield Happening(
            number=cycle.number,
            time=cycle.time,
            kind=kind,
            namespace=facts.namespace,
            job=facts.name,
            queue=facts.queue,
            pods=count,
            gpus=gpus[key] / GPU_UNIT,
            nodes=tuple(snapshot.nodes[row].name for row in list(nodes.get(key, ()))[:_MOST_NODES]),
            cause=cause,
            for_namespace="" if winner is None else winner.namespace,
            for_job="" if winner is None else winner.name,
        )


# --- The long past ---------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Past:
    """Reads the file with the history of usage, in worker threads; an answer is kept for all who may see the same."""

    path: str
    """"" where no history is recorded."""
    clock: Clock
    _kept: dict[tuple[int, Hashable], Any] = attrs.field(factory=dict)

    @property
    def tick(self) -> int:
        """A number that changes when answers are read anew."""
        return int(self.clock.monotonic() / KEPT_SECONDS)

    def ask(self, question: Hashable, read: Callable[[Connection], R]) -> R:
        """Return an answer from the file, read at most once in `KEPT_SECONDS`.

        Raises: HistoryError.
        """
        place = (self.tick, question)
        if place not in self._kept:
            with reading(self.path) as connection:
                found = read(connection)
            # Two threads may do this at once, so the table is replaced and never changed.
            kept = {key: each for key, each in self._kept.items() if key[0] == place[0]}
            while len(kept) >= _MOST_KEPT:
                del kept[next(iter(kept))]
            self._kept = {**kept, place: found}
            return found
        result: R = self._kept[place]
        return result

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces of all jobs that are recorded; none where the file cannot be read."""
        try:
            return self.ask("namespaces", reports.namespaces) if self.path else frozenset()
        except HistoryError:
            return frozenset()
