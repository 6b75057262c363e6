"""Records the history of usage beside the cycles, and reads from it what budgets used.

`HistoryRecorder` writes the changes of the store to a database, in a thread; `Spending` reads before each cycle.

Cycles never wait for the recorder. If the database fails, scheduling goes on, and a new record begins after a pause:
what was still held by then was held meanwhile, what ended counts up to the last record (`kai.history.database`).

Only the process that leads records. A process whose term is over is refused by the database, whatever it believes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog
from anyio import to_thread

from kai.api.scheduling.queue import Queue
from kai.basics.deadlines import doubling_pause
from kai.basics.parsing import SQLITE, is_postgresql, place_text
from kai.cluster.port import Clock, Cluster, Leadership
from kai.deciding.configuration.past_usage import UsageSettings
from kai.facts.model.budgets import Key, Spent
from kai.framework.decisions import Decision, Evict
from kai.history.database import Author, Writer, heard_until, reading
from kai.history.facts import BY_ACTION, DeposedError, Ended, HistoryError
from kai.history.recording import WATCHED, Recording
from kai.history.spending import Meter
from kai.history.sums import Tally
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics

if TYPE_CHECKING:
    from kai.cluster.port import Change, Changes, Term
    from kai.facts.state.snapshot import Snapshot

_APART: Final = 0.25
"""Time between two writes: changes that come meanwhile are written together.

Units: seconds.
"""
_HEARTBEAT: Final = 10.0
"""Time between two writes while nothing changes. An end that no scheduler sees is dated to the last write before it.

Units: seconds.
"""
_LONGEST_PAUSE: Final = 60.0


@attrs.define(eq=False)
class HistoryRecorder:
    """Writes who holds what while a term lasts."""

    path: str
    retention_seconds: float
    half_life_seconds: float
    cluster: Cluster
    leadership: Leadership
    scheduler_name: str
    owns: Callable[[Mapping[str, str]], bool]
    metrics: SchedulerMetrics
    client: str = SQLITE
    """What kind of database it is, for metrics."""
    problem: str = ""
    """Why history is not recorded at present; "" while it is."""
    spending: Spending | None = None
    """What reads the budgets of the same database, and hands over what it added up."""
    _evicted: dict[str, Ended] = attrs.field(factory=dict)
    _nodes: object = None
    """The nodes of the last cycle."""
    _devices: Mapping[str, int] = attrs.field(factory=dict)
    """GPUs that DRA drivers offer, by node."""

    async def run(self, term: Term) -> None:
        """Record until the term ends."""
        failures = 0
        while True:
            try:
                await self._record(term)
            except DeposedError as error:
                self._tell(error)
                # An epoch that is not after that of the file came from a lease that was made anew.
                self.leadership.outgrow(error.epoch)
                return
            except HistoryError as error:
                self._tell(error)
                failures += 1
                await self.cluster.clock.sleep(doubling_pause(failures, 1.0, _LONGEST_PAUSE))

    def note(self, snapshot: Snapshot, decided: Iterable[Decision]) -> None:
        """Note why a cycle evicts pods, and which GPUs come from drivers: the objects do not say."""
        for each in decided:
            if isinstance(each, Evict):
                self._evicted[snapshot.pods[each.pod].uid] = BY_ACTION.get(each.cause.name, Ended.EVICTED)
        if snapshot.nodes is not self._nodes:
            self._nodes = snapshot.nodes
            self._devices = {node.name: node.dra_gpus for node in snapshot.nodes if node.dra_gpus}

    def _tell(self, error: HistoryError) -> None:
        self.problem = f"history is not recorded: {error}"
        self.metrics.history_recorded(recorded=False, client=self.client)
        structlog.get_logger().warning("history is not recorded", why=str(error))

    async def _record(self, term: Term) -> None:
        store, clock = self.cluster.store, self.cluster.clock
        recording = Recording(self.scheduler_name, self.owns, self.cluster.kubernetes, evicted=self._evicted)
        kinds = [each for each in WATCHED if store.watches(each)]
        with store.changes(*kinds) as changes:
            first = await anext(changes)
            writer = await to_thread.run_sync(self._begin, term, recording, first, clock.now())
            try:
                self.problem = ""
                self.metrics.history_recorded(recorded=True, client=self.client)
                structlog.get_logger().info("history is recorded", place=place_text(self.path), epoch=writer.epoch)
                while True:
                    await clock.sleep(_APART)
                    batch = await _next(changes)
                    await to_thread.run_sync(self._write, writer, recording, batch, clock.now())
                    self.metrics.history_written()
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(writer.close)

    def _begin(self, term: Term, recording: Recording, first: Iterable[Change[Any]], now: float) -> Writer:
        self._see(recording, first)
        held, nodes = recording.everything()
        author = Author(epoch=term.epoch if term.lease else None, identity=term.identity)
        return Writer.begin(
            self.path,
            author,
            round(now * 1000),
            held,
            nodes,
            retention=round(self.retention_seconds * 1000),
            half_life=round(self.half_life_seconds * 1000),
        )

    def _write(self, writer: Writer, recording: Recording, batch: Iterable[Change[Any]], now: float) -> None:
        self._see(recording, batch)
        tally = None if self.spending is None else self.spending.taken()
        writer.write(round(now * 1000), *recording.taken(), tally)

    def _see(self, recording: Recording, batch: Iterable[Change[Any]]) -> None:
        for change in batch:
            recording.see(change.before, change.after)
        recording.note_devices(self._devices)


async def _next(changes: Changes[Any]) -> tuple[Change[Any], ...]:
    """Return the next changes; none if there are none for a while."""
    with anyio.move_on_after(_HEARTBEAT):
        return await anext(changes)
    return ()


# ------------------------------------------------------------------------------------------------ what budgets used

NO_SPENDING: Final[Mapping[Key, Spent]] = MappingProxyType({})
_STAYS: Final = 60.0
"""How long a reading of what budgets used counts; what is held goes on to be counted from it.

Units: seconds.
"""
_PAUSE: Final = 1.0
"""Seconds between two readings from a server: each is a connection, and what is held is counted on meanwhile."""
_PATIENCE: Final = 0.2
"""Seconds that a cycle waits for a server; a reading that takes longer counts for a later cycle."""
_PATIENCE_FOR_FILES: Final = 1.0
"""The same for a file. Only a first reading takes longer: of a month without a tally, seconds."""


@attrs.define(eq=False)
class Spending:
    """What was used of the budgets of queues, read from kai's own database before each cycle.

    Where it cannot be read for a minute, or nothing was recorded for that long, nothing is known: work under a budget
    does not start then.
    """

    path: str
    clock: Clock
    known: Mapping[Key, Spent] = NO_SPENDING
    problem: str = ""
    """Why it is not known; "" while it is."""
    _read_at: float | None = None
    _meter: Meter = attrs.field(factory=Meter)
    _file: tuple[int, int] = (0, 0)
    """Which file the meter has read."""
    _asked: _Asked | None = None
    """The question to a server that is not answered yet."""
    _asked_at: float = -math.inf
    _tally: Tally | None = None
    """What the meter added up, until the recorder takes it."""

    async def refresh(self, queues: Iterable[Queue]) -> None:
        """Read what was used by now; nothing where no queue has a budget.

        Cost: that of what is held and what ended since the last reading, however long the periods are.
        """
        budgeted = [each for each in queues if each.spec.budgets]
        if not budgeted:
            self.known, self.problem, self._read_at = NO_SPENDING, "", None
        elif is_postgresql(self.path):
            await self._ask(budgeted, _PATIENCE, _PAUSE)
        else:
            was_late = self._asked is not None
            await self._ask(budgeted, _PATIENCE_FOR_FILES, 0.0)
            if was_late and self._asked is None:
                # What came is of an earlier cycle. The meter has read the period now, and is quick from here on.
                await self._ask(budgeted, _PATIENCE_FOR_FILES, 0.0)

    async def _ask(self, budgeted: Sequence[Queue], patience: float, apart: float) -> None:
        """Ask, and wait for a moment: a server that is away, or a long period, must not hold up cycles."""
        asked, now = self._asked, self.clock.monotonic()
        if asked is None and now - self._asked_at >= apart:
            asked = self._asked = _Asked(self._spent, budgeted, self.clock.now())
            self._asked_at = now
            with anyio.move_on_after(patience):
                # The thread goes on, and ends by itself: the driver bounds the time of each answer.
                await to_thread.run_sync(asked.answer, abandon_on_cancel=True)
            if not asked.has_begun:  # all threads are busy: nothing may ever answer
                self._asked, self._meter = None, Meter()
        if asked is not None and asked.is_answered:
            self._asked = None
            if asked.problem:
                # A server that was away may come back with an older state.
                self._meter = Meter()
                self._fail(asked.problem)
            else:
                self._take(asked.known, self._asked_at)
        elif self._read_at is None or now - self._read_at >= _STAYS:
            self._fail("found no answer yet, expected one")

    def _take(self, known: Mapping[Key, Spent], read_at: float) -> None:
        self.known, self._read_at = known, read_at
        if self.problem:
            structlog.get_logger().info("budgets are known again")
            self.problem = ""

    def _fail(self, why: str) -> None:
        if self._read_at is not None and self.clock.monotonic() - self._read_at < _STAYS:
            return
        self.known = NO_SPENDING
        problem = f"what budgets used is not known: {why}"
        if problem != self.problem:
            structlog.get_logger().warning("budgets are not known", why=why)
        self.problem = problem

    def _spent(self, queues: Sequence[Queue], now: float) -> Mapping[Key, Spent]:
        at = round(now * 1000)
        # Before it is opened: a file that takes its place meanwhile is noticed by the next reading.
        found = _identity(self.path)
        if found != self._file:
            # What is remembered of a file that was deleted or restored says nothing of the one in its place.
            self._meter, self._file, self._tally = Meter(), found, None
        with reading(self.path) as connection:
            heard = heard_until(connection)
            if heard is None or at - heard > _STAYS * 1000:
                why = "found no record of the last minute, expected one each ten seconds"
                raise HistoryError(f"history {place_text(self.path)}: {why}")
            known = self._meter.read(connection, queues, at)
            tally = self._meter.tally()
            if tally is not None:
                self._tally = tally
            return known

    def taken(self) -> Tally | None:
        """Return what was added up for the recorder to write; None if nothing is new."""
        tally, self._tally = self._tally, None
        return tally


def _identity(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return 0, 0  # the reading says what is wrong
    return found.st_dev, found.st_ino


@attrs.define(eq=False)
class _Asked:
    """One question to a server, and its answer."""

    read: Callable[[Sequence[Queue], float], Mapping[Key, Spent]]
    queues: Sequence[Queue]
    now: float
    known: Mapping[Key, Spent] = NO_SPENDING
    problem: str = ""
    has_begun: bool = False
    is_answered: bool = False

    def answer(self) -> None:
        """Ask, in a thread."""
        self.has_begun = True
        try:
            self.known = self.read(self.queues, self.now)
        except HistoryError as error:
            self.problem = str(error)
        self.is_answered = True


def spending(settings: UsageSettings | None, address: str, clock: Clock) -> Spending | None:
    """Return the reader of what budgets used; None where kai records no history."""
    if settings is None or not settings.is_recorded:
        return None
    return Spending(address or settings.address, clock)
