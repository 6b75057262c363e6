"""The scheduler service: wake on a change or after a pause, decide, publish.

A term begins with `kai.cluster.election.takeover.take_over`: it waits until this process leads, lists the objects that
decisions depend on with a quorum read, and drops all assumptions. Within a term a cycle follows a change of the store
after a debounce, so that it sees a gang complete although its pods are created one by one. A pod that starts alone gets
its cycle at once. While pods wait, cycles also follow the passing of time, because some reasons to wait end by time
alone. If nothing changed and nothing waits, nothing runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from kai.api.scheduling.pod_group import PodGroup
from kai.basics.deadlines import doubling_pause
from kai.cluster.election.takeover import catch_up, take_over
from kai.cluster.port import Cluster, Leadership, Term
from kai.cluster.process.connections import Response
from kai.cluster.process.listener import Route
from kai.cluster.process.tracing import Tracing
from kai.cluster.threads import pieces
from kai.facts.model.placement import Past
from kai.facts.state.facts import next_quota_change
from kai.intake import expired_bind_requests
from kai.roles.scheduler.committing.outbox import Outbox
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.cycle.cycling import Cycles, Done, Failure
from kai.roles.scheduler.cycle.dump import JOB_ORDER_PATH, NOT_READY, archive, job_order
from kai.roles.scheduler.cycle.past_usage import NONE, PastUsage
from kai.roles.scheduler.cycle.stream import CycleObserver, Stream
from kai.roles.scheduler.effects import Expired, Looked
from kai.roles.scheduler.kernel_warmup import Warming
from kai.roles.scheduler.publishing.deferred import recalled_starts
from kai.roles.scheduler.publishing.publisher import CycleOver
from kai.roles.scheduler.reporting.cycle_recorder import SHADOW_PATH, CycleRecorder, Hourly, Shadowing
from kai.roles.scheduler.reporting.decision_log import DecisionLog
from kai.roles.scheduler.reporting.history import NO_SPENDING, HistoryRecorder, Spending
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.roles.scheduler.settings import SchedulerSettings
from kai.roles.scheduler.wakeups import Rests, Seen, pause_after, prefetch

if TYPE_CHECKING:
    from kai.api.cluster_objects import ClusterObjects
    from kai.facts.model.groups import Shares

_LONGEST_REST: Final = 1.0
_LOOK_AGAIN: Final = 5.0
"""How long until the history is asked again for what budgets used, where it was not known.

Units: seconds.
"""
_SAY_AGAIN: Final = 300.0
"""After how many seconds at rest the service says again what budgets used, while work uses them."""
_LONGEST_PAUSE: Final = 60.0
_REHEARSALS_APART: Final = 5.0
_LONGEST_PASS: Final = 120.0
"""How long a new leader waits for groups that are not written; without decisions, no pod would start at all."""
_LONGEST_DOUBT: Final = 1.0
_SHORTEST_PAUSE: Final = 5.0
"""How long to wait at least, whatever changes, after several cycles failed without a suspected object.

Units: seconds.
"""
_LASTING: Final = 60.0
_NEVER_ENDING: Final = 600.0
"""Duration after which a cycle counts as failing; with KAI-Scheduler's search budgets a cycle may last for minutes.

Units: seconds.
"""
_TAKEN_AT_ONCE: Final = 32
"""Count of statements that are taken before the event loop may run other tasks: a few milliseconds."""
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
    """Past usage of queues; None where it is not configured."""
    spending: Spending | None = None
    """What budgets used; None where kai records no history, so that it is not known."""
    history: HistoryRecorder | None = None
    """Records who holds what; None where that is not configured."""
    decisions: DecisionLog | None = None
    """Where decisions are logged; None for nowhere."""
    shadowing: Shadowing | None = None
    """Compares decisions with those of another scheduler; None where decisions are carried out."""
    grouped: Callable[[], Awaitable[None]] | None = None
    """Waits until the store shows the groups that only this process has; None where it has none."""
    number: int = 0
    """The number of the last cycle of this process."""
    onlooker: Callable[[Done | None, float], None] = lambda _, __: None
    """Called with each successful cycle and its duration in seconds, or with None when the term ends."""
    intake_in_use: anyio.Lock = attrs.field(factory=anyio.Lock)
    """Held by a cycle, by `prefetch`, and by all else that must not run during a cycle."""
    _failures: int = 0
    _failed_at: str = ""
    """Error of the last cycle, if it failed."""
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
            # Shielded: this task is being cancelled, and the decisions in the queue of the writer would be lost.
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
        """Keep the intake current while another process leads, so that our first cycle is as fast as any other."""
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
        """Stop the running cycle when this task is cancelled: else its thread would finish the cycle first."""
        try:
            await anyio.sleep_forever()
        finally:
            self._is_ending = True
            self.kernels.end()

    async def _lead(self, term: Term) -> None:
        if self.shadowing is None:  # a shadow must not write, and an outbox without a term writes nothing
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
                if self.history is not None:
                    tasks.start_soon(self.history.run, term)
                tasks.start_soon(prefetch, self.cluster.store, self.cycles.read_ahead, self.intake_in_use)
                await self.leadership.ended(term)
                structlog.get_logger().warning("leading no more", epoch=term.epoch)
                # Stop all writes first: the cancellation waits for the thread of a running cycle.
                self.outbox.end()
                tasks.cancel_scope.cancel()
        finally:
            self._show_standby()
            # Once more: the task may have been cancelled before it saw the end of the term.
            self.outbox.end()
            self.onlooker(None, 0.0)

    def _show_standby(self) -> None:
        """Show that others decide. A shadow shows nothing: if it runs alone, no process of kai decides."""
        if self.shadowing is None:
            self.metrics.leads(now=False)
        self.metrics.no_more_decided()

    async def _recall_starts(self) -> None:
        """Overlay the start of groups of a single pod, before a cycle evicts pods that a minimum runtime protects."""
        store = self.cluster.store
        async for groups in pieces(store.all(PodGroup)):
            for start in recalled_starts(store, groups):
                store.overlay(start.cls, start.key, start.annotations)

    # --- Cycles --------------------------------------------------------------------------------------------------

    async def _decide_on(self, term: Term) -> None:
        clock, store = self.cluster.clock, self.cluster.store
        await self._see_groups()
        idle = 0
        while True:
            # Decisions made without an API server could not be written, and would be stale afterwards.
            await self.cluster.connectivity.opened()
            # After an outage the lists come first. An API server restored from a backup has pods that the store knows
            # as deleted.
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
                # The cause of the failure may be gone: retry on a change, however often cycles failed before.
                await self._wait(seen, max(0.0, pause - _SHORTEST_PAUSE))
                continue
            self._failures = 0
            idle = 0 if outcome.decisions and not self.outbox.committer.feedback.recent_binds.is_awaited else idle + 1
            # At most half of a core: the rest after a long cycle is as long as the cycle, up to a second.
            rest = min(took, _LONGEST_REST)
            if await self._rest(seen, known, rest, partial(self._pause, outcome, idle)):
                idle = 0

    async def _see_groups(self) -> None:
        """Wait for the groups that only this process has: without them a cycle may evict what they protect."""
        if self.grouped is not None:
            with anyio.move_on_after(_LONGEST_PASS) as scope:
                await self.grouped()
            if scope.cancelled_caught:
                structlog.get_logger().warning("pods are not grouped yet", seconds=_LONGEST_PASS)

    async def _hear_of_evictions(self) -> None:
        """Wait for the answers to the evictions of the last cycle, for a second at most."""
        # A pod counts as gone from its queue once its eviction is sent, so that no second victim is chosen. If others
        # were bound in its place and the API server then refused the eviction, the queue would exceed its limit.
        with anyio.move_on_after(_LONGEST_DOUBT):
            await self.outbox.evictions_ended()

    async def _rest(self, seen: Seen, known: int, rest: float, pause: Callable[[], float | None]) -> bool:
        """Rest, then wait for a change or the end of the pause; return whether there was a change.

        Changes are debounced, unless a pod came that starts alone; ``known``: their count when the cycle began.
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
        """Return how long to wait for the next cycle if nothing changes; None if only a change can matter."""
        now = self.cluster.clock.monotonic()
        feedback, cycles = self.outbox.committer.feedback, self.cycles
        undone = None if self.shadowing is None else self.shadowing.due
        dues = (feedback.next_due(now), undone, cycles.inquiry.due(), cycles.faults.due())
        due_in = [due - now for due in dues if due is not None]
        if (edge := next_quota_change(outcome.snapshot)) < inf:
            due_in.append(edge - self.cluster.clock.now())
        if self.spending is not None and self.spending.problem:
            due_in.append(_LOOK_AGAIN)
        table = outcome.snapshot.budgets
        if table is not None and any(each.pace for each in table.budgets):
            due_in.append(_SAY_AGAIN)
        restless = outcome.restless and not feedback.recent_binds.is_awaited  # else the same is rejected again
        return pause_after(self.settings, turns=outcome.turns, idle=idle, restless=restless, dues=due_in)

    async def _wait(self, seen: Seen, pause: float | None) -> bool:
        """Wait for a change, for at most ``pause`` seconds; return whether there was one."""
        with anyio.move_on_after(pause):
            await seen.outdated(self.cluster.store, self.settings.period_seconds)
            return True
        return False

    async def _cycle(self, term: Term) -> Done | Failure:
        async with self.intake_in_use:
            objects = self.cluster.store.cluster_objects()
            await self.kernels.settle(objects)
            if self.spending is not None:
                await self.spending.refresh(objects.queues)
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
            # Asked in the thread of the cycle. A cancelled task cannot stop a thread, so the cycle has to look by
            # itself.
            is_stopped=lambda: self._is_ending or not self.leadership.holds(term),
            log=self.decisions,
        )
        since = clock.monotonic()
        # Shielded from cancellation: the next cycle must not start while this one still runs in its thread.
        self.metrics.cycle_is_under_way(now=True)
        try:
            outcome = await self.cluster.cpu.run(self.cycles.run, given, stream, self.kernels.part_seconds)
        finally:
            self.metrics.cycle_is_under_way(now=False)
        # A cycle may end before the loop has taken all of its statements.
        self._take_decisions(stream)
        self.cycles.judge_accused()
        seconds = clock.monotonic() - since
        self._recorder.record(self.number, outcome, seconds)
        if isinstance(outcome, Done):
            self._pass_on(outcome, seconds)
        if self.shadowing is not None and isinstance(outcome, Done) and not outcome.again:
            self.cycles.awaited = ()  # a shadow evicts nothing, so no group waits for a promised place
            await self.shadowing.look(outcome)
        return outcome

    def _take_input(self) -> CycleInput:
        """Return the input of the cycle that begins, and start to delete bind requests that are over."""
        objects = self.cluster.store.cluster_objects()
        self.outbox.commit(Looked())
        expired = expired_bind_requests(objects, self.settings.intake)
        if expired and self.shadowing is None:
            self.outbox.commit(Expired(expired))
        return self._input(objects)

    def _input(self, objects: ClusterObjects) -> CycleInput:
        """Return the input that a cycle on these objects would get now."""
        clock = self.cluster.clock
        spent = NO_SPENDING if self.spending is None else self.spending.known
        past = Past(awaited=self.cycles.awaited, usage=self._past_usage(), spent=spent)
        version = self.cluster.kubernetes()
        given = CycleInput(objects=objects, now=clock.now(), cycle=self.number, past=past, kubernetes=version)
        return self.outbox.committer.feedback.applied(given, clock.monotonic())

    def _past_usage(self) -> Mapping[str, Shares]:
        return NONE if self.usage is None else self.usage.known

    def _take_some(self, stream: Stream) -> None:
        """Take a batch of decisions while their cycle runs, then let the event loop run other tasks."""
        # Posted again in place of a loop: thousands of statements at once would hold up the event loop, and with it the
        # renewal of the lease.
        self._take_decisions(stream, _TAKEN_AT_ONCE)
        if stream.waiting:
            self.cluster.cpu.post(self._take_some, stream)

    def _take_decisions(self, stream: Stream, most: int | None = None) -> None:
        for event in stream.taken(most):
            if self.shadowing is not None:
                continue
            try:
                self.outbox.commit(event)
            except Exception as error:  # noqa: BLE001 - it costs only the groups of this statement their places
                self.outbox.committer.abandon(event)
                self.cycles.accuse(error, event)

    def _pass_on(self, outcome: Done, seconds: float) -> None:
        """Pass the outcome of a cycle to the decision log, the publisher and the onlooker."""
        if self.decisions is not None:
            self.decisions.refused(outcome.snapshot, outcome.report, self.number)
        if self.history is not None:
            self.history.note(outcome.snapshot, outcome.decided)
        if self.shadowing is None:
            self.outbox.publish(CycleOver(outcome.overall))
        if not outcome.again:
            self.onlooker(outcome, seconds)

    # --- Readiness and debugging -------------------------------------------------------------------------------------

    def problem(self) -> str:
        """Return why this role is not ready, as text; "" if it is."""
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
        """Return a condition that needs attention but does not stop the role, as text; "" if there is none."""
        lasts = self._lasts() if self.metrics.cycle_lasts() >= _LASTING else ""
        unrecorded = "" if self.history is None else self.history.problem
        unknown = "" if self.spending is None else self.spending.problem
        return lasts or self.cycles.faults.note or self.kernels.note() or unrecorded or unknown

    def _lasts(self) -> str:
        return f'a cycle has not ended for {self.metrics.cycle_lasts():.0f} s: see "computing for long" in the log'

    def routes(self) -> dict[str, Route]:
        """Return the paths of KAI-Scheduler's plugins that serve data, for this machine only."""
        routes = {
            SNAPSHOT_PATH: Route(answer=self._snapshot, local=True),
            JOB_ORDER_PATH: Route(answer=self._job_order, local=True),
        }
        if self.shadowing is not None:
            routes[SHADOW_PATH] = Route(answer=self.shadowing.answer, local=True)
        return routes

    def _given(self) -> CycleInput:
        """Return the input that a cycle would get now, less the objects set aside."""
        # Copied in one step: a cycle in its thread may add a record meanwhile.
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
