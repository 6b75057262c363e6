"""The last cycle as readers see it, and a little of what came before: what just happened, and how long cycles took.

A cycle hands over what it has and goes on. A reader waits for a newer revision; what is between two looks is
skipped, however slow a reader is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import anyio
import attrs
from anyio import to_thread

from kai.api.fields import EMPTY
from kai.framework.decisions import Bind, Evict, Nominate
from kai.model.axis import GPU_UNIT
from kai.simulation.deciding.run import Outcome
from kai.simulation.outcomes.states import counted_on

_CYCLES: Final = 120
_HAPPENINGS: Final = 400
_MOST_OF_NAMESPACE: Final = 24
"""Of one namespace, apart from others: how much happens to others must not show in what is remembered of it."""
_MOST_PENDING: Final = 8
_MOST_NODES: Final = 8


@attrs.frozen(kw_only=True)
class EndedCycle:
    """A cycle that came to its end."""

    outcome: Outcome
    took: float
    """In seconds."""
    phases: Mapping[str, float] = EMPTY
    """How long each phase took, in seconds."""
    groups: Mapping[str, tuple[int, int]] = EMPTY
    """By action: how many groups it bound, and for how many it decided something."""
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
    """One cycle in a list of them."""

    number: int
    time: float
    took: float
    phases: Mapping[str, float]
    counts: Mapping[str, int]
    """What was decided, by kind."""


@attrs.frozen(kw_only=True)
class Happening:
    """What one cycle decided about one job."""

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
    """Of the job that gains by an eviction."""
    for_job: str = ""


@attrs.define(eq=False)
class Feed:
    """The last cycle, and what is remembered of those before."""

    cycle: EndedCycle | None = None
    revision: int = 0
    """Grows with every cycle."""
    cycles: deque[CycleLine] = attrs.field(factory=lambda: deque(maxlen=_CYCLES))
    happenings: deque[Happening] = attrs.field(factory=lambda: deque(maxlen=_HAPPENINGS))
    """The newest last."""
    by_namespace: dict[str, deque[Happening]] = attrs.field(factory=dict)
    """What happened to the jobs of each namespace within as many cycles, the newest last."""
    _pending: deque[EndedCycle] = attrs.field(factory=lambda: deque(maxlen=_MOST_PENDING))
    _news: anyio.Event = attrs.field(factory=anyio.Event)

    def show(self, cycle: EndedCycle) -> None:
        """Take a cycle. Cost: none that grows with the cluster."""
        outcome, last = cycle.outcome, cycle.outcome.last
        # Readers are answered in threads, while the cycles go on.
        shown = (*outcome.cycles[:-1], attrs.evolve(last, snapshot=last.snapshot.apart()))
        self.cycle = attrs.evolve(cycle, outcome=attrs.evolve(outcome, cycles=shown))
        self.revision += 1
        self._pending.append(self.cycle)
        news, self._news = self._news, anyio.Event()
        news.set()

    def hide(self) -> None:
        """Show nothing any more: another process decides now."""
        self.cycle = None
        self.revision += 1
        news, self._news = self._news, anyio.Event()
        news.set()

    async def newer(self, revision: int) -> int:
        """Wait until there is another cycle than the one of ``revision``, and return the revision."""
        while self.revision == revision:
            await self._news.wait()
        return self.revision

    async def run(self) -> None:
        """Keep the lists of cycles and of what happened, in a thread, until cancelled."""
        seen = 0
        while True:
            seen = await self.newer(seen)
            while self._pending:
                cycle = self._pending.popleft()
                line, found = await to_thread.run_sync(_summed_up, cycle)
                self.remember(line, found)

    def remember(self, line: CycleLine, happenings: Iterable[Happening]) -> None:
        """Take what is remembered of a cycle."""
        self.cycles.append(line)
        for each in happenings:
            self.happenings.append(each)
            self.by_namespace.setdefault(each.namespace, deque(maxlen=_MOST_OF_NAMESPACE)).append(each)
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
    """Yield what was decided about each job, one line for pods that share kind and cause."""
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
