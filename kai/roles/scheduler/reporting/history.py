"""Records the history of usage, beside the cycles: the changes of the store go to a database, in a thread.

Cycles never wait for it. If the database fails, scheduling goes on, and a new record begins after a pause: what was
still held by then was held meanwhile, what ended counts up to the last record (`kai.history.database`).

Only the process that leads records. A process whose term is over is refused by the database, whatever it believes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog
from anyio import to_thread

from kai.basics.deadlines import doubling_pause
from kai.basics.parsing import place_text
from kai.cluster.port import Cluster, Leadership
from kai.deciding.configuration.past_usage import SQLITE
from kai.framework.decisions import Decision, Evict
from kai.history.database import Author, Writer
from kai.history.facts import BY_ACTION, DeposedError, Ended, HistoryError
from kai.history.recording import WATCHED, Recording
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
        writer.write(round(now * 1000), *recording.taken())

    def _see(self, recording: Recording, batch: Iterable[Change[Any]]) -> None:
        for change in batch:
            recording.see(change.before, change.after)
        recording.note_devices(self._devices)


async def _next(changes: Changes[Any]) -> tuple[Change[Any], ...]:
    """Return the next changes; none if there are none for a while."""
    with anyio.move_on_after(_HEARTBEAT):
        return await anext(changes)
    return ()
