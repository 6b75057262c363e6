"""The scheduler at work: wake on a change or after a pause, decide, publish.

Terms come first: `kai.cluster.election.takeover.take_over` waits until this process leads, lists by quorum what
decisions rest upon and drops what was assumed before. Within a term a cycle follows a change of the store, a little
later, so that a gang that is created pod by pod is seen whole; it follows a pod that starts without others at once.
While pods wait it follows the mere passing of time as well, because some reasons to wait do. Nothing runs where nothing
changed and nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from kai.api.scheduling.pod_group import PodGroup
from kai.basics.deadlines import doubling_pause
from kai.cluster.election.takeover import catch_up, take_over
from kai.cluster.port import Cluster, Leadership, Term
from kai.cluster.threads import pieces
from kai.intake import expired_bind_requests
from kai.model.placement import Past
from kai.scheduler.committing.outbox import Outbox
from kai.scheduler.comparing.shadowing import SHADOW_PATH, Shadowing
from kai.scheduler.cycle.cycle_input import CycleInput
from kai.scheduler.cycle.cycling import Cycles, Done, Failure
from kai.scheduler.cycle.dump import JOB_ORDER_PATH, NOT_READY, archive, job_order
from kai.scheduler.cycle.past_usage import NONE, PastUsage
from kai.scheduler.cycle.stream import CycleObserver, Stream
from kai.scheduler.effects import Expired, Looked
from kai.scheduler.loop.kernel_warmup import Warming
from kai.scheduler.loop.wakeups import Rests, Seen, pause_after, prefetch
from kai.scheduler.publishing.deferred import recalled_starts
from kai.scheduler.publishing.publisher import CycleOver
from kai.scheduler.reporting.cycle_recorder import CycleRecorder, Hourly
from kai.scheduler.reporting.decision_log import DecisionLog
from kai.scheduler.reporting.metrics import SchedulerMetrics
from kai.scheduler.settings import SchedulerSettings
from kai.telemetry.connections import Response
from kai.telemetry.listener import Route
from kai.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from kai.api.kinds import ClusterObjects
    from kai.model.groups import Shares

_LONGEST_REST: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_REHEARSALS_APART: Final = 5.0
_LONGEST_DOUBT: Final = 1.0
_SHORTEST_PAUSE: Final = 5.0
"""How long a cycle waits at least, in whatever way the cluster changes, once several failed at no object."""
_LASTING: Final = 60.0
_NEVER_ENDING: Final = 600.0
"""After so long a cycle counts as one that fails; with the peer's search budgets one may last for minutes."""
_TAKEN_AT_ONCE: Final = 32
"""So many statements are taken before the loop may do something else: a few milliseconds."""
SNAPSHOT_PATH: Final = "/get-snapshot"


@attrs.define(eq=False)
class Scheduler:
    """The scheduler of one process."""

    cluster: Cluster
    settings: SchedulerSettings
    leadership: Leadership
    metrics: SchedulerMetrics
    tracing: Tracing
    outbox: Outbox
    cycles: Cycles
    hourly: Hourly
    kernels: Warming
    rests: Rests
    usage: PastUsage | None = None
    """Past usage of queues; None where it counts for nothing."""
    decisions: DecisionLog | None = None
    """Where decisions are written down; None for nowhere."""
    shadowing: Shadowing | None = None
    """What compares decisions with those of another scheduler; None where decisions are carried out."""
    number: int = 0
    """The number of the last cycle of this process."""
    onlooker: Callable[[Done | None, float], None] = lambda _, __: None
    """Is given each cycle that came to its end, with its seconds, or None once another process leads."""
    intake_in_use: anyio.Lock = attrs.field(factory=anyio.Lock)
    """Held by a cycle, by the task that reads ahead for the next cycle, and by what must not meet a cycle."""
    _failures: int = 0
    _failed_at: str = ""
    """What the last cycle failed at, if it failed."""
    _recorder: CycleRecorder = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: CycleRecorder(self.metrics, self.hourly, self.cycles), takes_self=True),
    )
    _is_ending: bool = False

    # --- Terms ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until cancelled."""
        if self.decisions is None:
            await self._schedule()
            return
        self.decisions.start()
        try:
            await self._schedule()
        finally:
            with anyio.CancelScope(shield=True):
                await self.cluster.cpu.run(self.decisions.close)

    async def _schedule(self) -> None:
        self._show_standby()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_for_the_end)
            tasks.start_soon(self.kernels.run)
            tasks.start_soon(self.outbox.run)
            if self.usage is not None:
                tasks.start_soon(self.usage.run)
                await self.usage.tried()
            while True:
                async with anyio.create_task_group() as waiting:
                    waiting.start_soon(self._stay_ready)
                    term = await take_over(self.cluster.store, self.leadership, self.cluster.clock)
                    waiting.cancel_scope.cancel()
                structlog.get_logger().info("leading", epoch=term.epoch)
                await self._lead(term)

    async def _stay_ready(self) -> None:
        """Keep the cluster read while another leads, so that our first cycle is as quick as any other."""
        store, clock, seen = self.cluster.store, self.cluster.clock, -1
        await store.synced()
        while True:
            if store.revision != seen:
                seen = store.revision
                async with self.intake_in_use:
                    objects, usage = store.cluster_objects(), self._past_usage()
                    await self.kernels.settle(objects)
                    version = self.cluster.kubernetes()
                    await self.cluster.cpu.run(self.cycles.rehearse, objects, clock.now(), usage, version)
            await clock.sleep(_REHEARSALS_APART)

    async def _watch_for_the_end(self) -> None:
        """Let a cycle that is under way know when we are cancelled: its thread would go on to its own end."""
        try:
            await anyio.sleep_forever()
        finally:
            self._is_ending = True
            self.kernels.end()

    async def _lead(self, term: Term) -> None:
        if self.shadowing is None:  # an outbox without a term writes nothing
            self.outbox.begin(term)
            self.metrics.leads(now=True)
        self.cycles.begin_term()
        try:
            if self.settings.direct_binds and self.shadowing is None:
                await self._recall_starts()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.rests.run)
                tasks.start_soon(self._decide_on, term)
                tasks.start_soon(self.hourly.run)
                if self.shadowing is not None:
                    tasks.start_soon(self.shadowing.run)
                tasks.start_soon(prefetch, self.cluster.store, self.cycles.read_ahead, self.intake_in_use)
                await self.leadership.ended(term)
                structlog.get_logger().warning("leading no more", epoch=term.epoch)
                self.outbox.end()
                tasks.cancel_scope.cancel()
        finally:
            self._show_standby()
            self.outbox.end()
            self.onlooker(None, 0.0)

    def _show_standby(self) -> None:
        """Show that others decide. A shadow says nothing of it: where it alone runs, no process of kai decides."""
        if self.shadowing is None:
            self.metrics.leads(now=False)
        self.metrics.no_more_decided()

    async def _recall_starts(self) -> None:
        """Show when groups of one pod started, before a cycle evicts what a minimum runtime protects."""
        store = self.cluster.store
        async for groups in pieces(store.all(PodGroup)):
            for start in recalled_starts(store, groups):
                store.overlay(start.cls, start.key, start.annotations)

    # --- Cycles --------------------------------------------------------------------------------------------------

    async def _decide_on(self, term: Term) -> None:
        clock, store = self.cluster.clock, self.cluster.store
        idle = 0
        while True:
            # What is decided without a server cannot be written, and is stale after.
            await self.cluster.connectivity.opened()
            await catch_up(store)
            await self._hear_of_evictions()
            seen, known = Seen.of(store), self.rests.pods.count
            since = clock.monotonic()
            outcome = await self._cycle(term)
            took = clock.monotonic() - since
            if outcome.again:
                continue
            if isinstance(outcome, Failure):
                self._failures, self._failed_at = self._failures + 1, f"{outcome.kind}: {outcome.message}"
                pause = doubling_pause(self._failures, self.settings.period_seconds, _LONGEST_PAUSE)
                await clock.sleep(min(pause, _SHORTEST_PAUSE))
                # What failed may have gone: a change is worth a look, however often cycles failed before.
                await self._wait(seen, max(0.0, pause - _SHORTEST_PAUSE))
                continue
            self._failures = 0
            idle = 0 if outcome.decisions and not self.outbox.committer.feedback.recent_binds.is_awaited else idle + 1
            # Half of a core at most: what follows a long cycle waits as long again, up to a second.
            rest = min(took, _LONGEST_REST)
            if await self._rest(seen, known, rest, partial(self._pause, outcome, idle)):
                idle = 0

    async def _hear_of_evictions(self) -> None:
        """Wait until the evictions of the last cycle were answered, for a second at most.

        A pod counts as gone from its queue once its eviction is sent, so that no second victim is looked for. Were
        others bound in its place before the API server agrees, and it did not, the queue would pass its limit.
        """
        with anyio.move_on_after(_LONGEST_DOUBT):
            await self.outbox.evictions_ended()

    async def _rest(self, seen: Seen, known: int, rest: float, pause: Callable[[], float | None]) -> bool:
        """Rest, then wait for a change or until the pause is over, and return whether there was a change.

        What changes is gathered, unless a pod came that starts without others; so many of these were ``known``.
        """
        clock, gathering, changed = self.cluster.clock, self.settings.coalescing_seconds, False
        await clock.sleep(rest)
        with self.rests.begun(known) as scope:
            await clock.sleep(gathering - rest)
            changed = await self._wait(seen, pause())
            if changed:
                await clock.sleep(gathering)
        return changed or scope.cancel_called

    def _pause(self, outcome: Done, idle: int) -> float | None:
        """Return after how long to decide again if nothing changes; None if only a change can matter."""
        now = self.cluster.clock.monotonic()
        feedback, cycles = self.outbox.committer.feedback, self.cycles
        undone = None if self.shadowing is None else self.shadowing.due
        dues = (feedback.next_due(now), undone, cycles.inquiry.due(), cycles.faults.due())
        due_in = [due - now for due in dues if due is not None]
        restless = outcome.restless and not feedback.recent_binds.is_awaited  # the same would be decided again
        return pause_after(self.settings, turns=outcome.turns, idle=idle, restless=restless, dues=due_in)

    async def _wait(self, seen: Seen, pause: float | None) -> bool:
        """Wait for a change, or for so long; return whether it was a change."""
        with anyio.move_on_after(pause):
            await seen.outdated(self.cluster.store, self.settings.period_seconds)
            return True
        return False

    async def _cycle(self, term: Term) -> Done | Failure:
        async with self.intake_in_use:
            await self.kernels.settle(self.cluster.store.cluster_objects())
            return await self._decide_once(term)

    async def _decide_once(self, term: Term) -> Done | Failure:
        self.number += 1
        clock = self.cluster.clock
        given = self._take_input()
        observer = CycleObserver.begin(self.tracing.tracer, clock.monotonic, self.number)
        stream = Stream(
            term=term,
            number=self.number,
            observer=observer,
            wake=lambda waking: self.cluster.cpu.post(self._take_some, waking),
            is_stopped=lambda: self._is_ending or not self.leadership.holds(term),
            log=self.decisions,
        )
        since = clock.monotonic()
        # Not abandoned when cancelled: the next cycle must not find this one still at work.
        self.metrics.cycle_is_under_way(now=True)
        try:
            outcome = await self.cluster.cpu.run(self.cycles.run, given, stream, self.kernels.part_seconds)
        finally:
            self.metrics.cycle_is_under_way(now=False)
        self._take_decisions(stream)
        self.cycles.judge_accused()
        seconds = clock.monotonic() - since
        self._recorder.record(self.number, outcome, seconds)
        if isinstance(outcome, Done):
            self._pass_on(outcome, seconds)
        if self.shadowing is not None and isinstance(outcome, Done) and not outcome.again:
            self.cycles.awaited = ()  # nothing was evicted, so no group waits for what it was promised
            await self.shadowing.look(outcome)
        return outcome

    def _take_input(self) -> CycleInput:
        """Return what the cycle that begins is given, and have bind requests deleted that are over."""
        objects = self.cluster.store.cluster_objects()
        self.outbox.commit(Looked())
        expired = expired_bind_requests(objects, self.settings.intake)
        if expired and self.shadowing is None:
            self.outbox.commit(Expired(expired))
        return self._input(objects)

    def _input(self, objects: ClusterObjects) -> CycleInput:
        """Return what a cycle on these objects would be given now."""
        clock = self.cluster.clock
        past = Past(awaited=self.cycles.awaited, usage=self._past_usage())
        version = self.cluster.kubernetes()
        given = CycleInput(objects=objects, now=clock.now(), cycle=self.number, past=past, kubernetes=version)
        return self.outbox.committer.feedback.applied(given, clock.monotonic())

    def _past_usage(self) -> Mapping[str, Shares]:
        return NONE if self.usage is None else self.usage.known

    def _take_some(self, stream: Stream) -> None:
        """Take decisions while their cycle goes on, and leave the loop to others now and then."""
        self._take_decisions(stream, _TAKEN_AT_ONCE)
        if stream.waiting:
            self.cluster.cpu.post(self._take_some, stream)

    def _take_decisions(self, stream: Stream, most: int | None = None) -> None:
        for event in stream.taken(most):
            if self.shadowing is not None:
                continue
            try:
                self.outbox.commit(event)
            except Exception as error:  # noqa: BLE001 - the boundary of a statement: it costs its own groups their places
                self.outbox.committer.abandon(event)
                self.cycles.accuse(error, event)

    def _pass_on(self, outcome: Done, seconds: float) -> None:
        """Pass on how groups and queues are to those who write it down and those who look."""
        if self.decisions is not None:
            self.decisions.refused(outcome.snapshot, outcome.report, self.number)
        if self.shadowing is None:
            self.outbox.publish(CycleOver(outcome.overall))
        if not outcome.again:
            self.onlooker(outcome, seconds)

    # --- For those who look --------------------------------------------------------------------------------------

    def problem(self) -> str:
        """Return in words why this role is not ready; "" if it is."""
        if not self.cluster.store.is_synced:
            return "the store is not complete yet"
        if waits_for := self.kernels.problem():
            return waits_for
        if self.cluster.store.age() > self.settings.stale_store_seconds:
            return "a watch is silent"
        if self.metrics.cycle_lasts() >= _NEVER_ENDING:
            return self._lasts()
        if self._failures <= 1:
            return ""
        return f"cycles fail: {self.cycles.faults.problem or self._failed_at}"

    def note(self) -> str:
        """Return in words what does not keep this role from its work, but should not go on; "" if there is nothing."""
        lasts = self._lasts() if self.metrics.cycle_lasts() >= _LASTING else ""
        return lasts or self.cycles.faults.note or self.kernels.note()

    def _lasts(self) -> str:
        return f'a cycle has not ended for {self.metrics.cycle_lasts():.0f} s: see "computing for long" in the log'

    def routes(self) -> dict[str, Route]:
        """Return the paths of the peer's plugins that serve something, for this machine only."""
        routes = {
            SNAPSHOT_PATH: Route(answer=self._snapshot, local=True),
            JOB_ORDER_PATH: Route(answer=self._job_order, local=True),
        }
        if self.shadowing is not None:
            routes[SHADOW_PATH] = Route(answer=self.shadowing.answer, local=True)
        return routes

    def _given(self) -> CycleInput:
        """Return what a cycle would be given now, less what is set aside."""
        aside = {each: record.gone for each, record in self.cycles.inquiry.records.copy().items()}
        return attrs.evolve(self._input(self.cluster.store.cluster_objects()), aside=aside)

    async def _job_order(self) -> Response:
        if not self.cluster.store.is_synced:
            return Response(status=503, body=NOT_READY)
        body = await self.cluster.cpu.run(job_order, self._given(), self.settings, self.cycles.profile)
        return Response(body=body, content_type="application/json")

    async def _snapshot(self) -> Response:
        body = await self.cluster.cpu.run(archive, self._given(), self.settings)
        headers = {"Content-Disposition": "attachment; filename=snapshot.zip"}
        return Response(body=body, content_type="application/zip", headers=headers)
