"""The binder service: feeds watch events and the clock to `BindQueue`, and runs the plans that it starts.

Bind requests come from the watch, or from a scheduler in the same process by `BinderService.offer` as soon as they are
written. In both cases the bind request in the cluster counts, and is read before anything is done. One that the store
only assumes to be written is ignored.

While the API server is away no attempt begins. Interrupted attempts resume as soon as it is back. The log has one line
for the outage, and none for single binds.

Besides the sweeps that the queue starts, everything is swept at the start and from time to time, because a user may
have deleted a reservation pod. `Sweeping` runs these plans: it deletes leftovers, restores lost grants, and logs both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeAlias

import anyio
import anyio.abc
import attrs
import structlog

from kai.api import names
from kai.api.fields import EMPTY
from kai.api.kinds import ApiObject, key_of
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kai.api.plans import Emit, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.deadlines import doubling_pause
from kai.cluster.election.takeover import catch_up
from kai.cluster.port import Change, Cluster, Connectivity
from kai.cluster.signals import BindEnded, Observe, unobserved, warn
from kai.cluster.threads import pieces
from kai.cluster.work import Alarm
from kai.roles.binder.attempt import attempt, attempt_unwritten, give_back
from kai.roles.binder.bind import Binder
from kai.roles.binder.outcome import BindOutcome, BindVerdict, PlanRunner, log_outcome
from kai.roles.binder.queue import (
    AttemptEnded,
    AttemptWaits,
    BindQueue,
    Effect,
    Event,
    LeaderTerms,
    PodSeen,
    RequestGone,
    RequestSeen,
    ServerBack,
    StartAttempt,
    Started,
    StartSweep,
    SweepEnded,
    Tick,
    WakeAt,
)
from kai.roles.binder.sharers import BinderSettings, IndexedApi, swept_pods
from kai.roles.binder.steps import StepOptions, resolve_steps
from kai.roles.binder.sweep import restore_grants, sweep_everything, sweep_group, sweep_requests


@attrs.define(eq=False)
class Sweeping:
    """Runs the sweeps of one binder."""

    settings: BinderSettings
    plans: PlanRunner
    connectivity: Connectivity
    _lost: frozenset[str] = frozenset()
    """UIDs of the pods whose grants were found lost at the last look."""

    async def sweep(self, group: str) -> bool:
        """Sweep one GPU group, or everything if ``group`` is ""; return whether that succeeded."""
        if not group:
            await self._restore()
            await self._sweep_requests()
        plan = sweep_group(group, self.settings) if group else sweep_everything(self.settings)
        deleted = await self.plans.run(plan)
        if isinstance(deleted, str):
            warn(self.connectivity, "sweep failed", group=group, why=deleted)
        elif deleted:
            structlog.get_logger().info("swept", group=group, deleted=list(deleted))
        return not isinstance(deleted, str)

    async def _restore(self) -> None:
        """Restore lost grants, and log each pod once."""
        found = await self.plans.run(restore_grants(self.settings))
        if isinstance(found, str):
            structlog.get_logger().debug("grants not restored", why=found)
            return
        for each in found:
            if each.uid not in self._lost:
                structlog.get_logger().warning("grant lost", why=each.message, restored=each.is_restored)
        # Of this look alone, so that a grant that is lost again is logged again.
        self._lost = frozenset(each.uid for each in found)

    async def _sweep_requests(self) -> None:
        """Delete bind requests marked as bound whose pods have no node, so that these pods are scheduled again."""
        deleted = await self.plans.run(sweep_requests(self.settings))
        if isinstance(deleted, str):
            structlog.get_logger().debug("bind requests not swept", why=deleted)
        elif deleted:
            structlog.get_logger().warning("bind requests of pods without a node deleted", deleted=list(deleted))


_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_MOST_EVENTS: Final = 1 << 12
"""Limit of bind events that wait to be written; events of further binds are dropped."""

Traced: TypeAlias = Callable[[str, str], AbstractContextManager[Callable[[str], None]]]
"""Records a span of a given name in a trace; see `kai.cluster.process.tracing.Tracing.continued`."""

Done: TypeAlias = Callable[[str, bool], None]
"""Called with the error of a bind, "" for success, and with whether there is nothing to bind any more."""

WATCHED: Final[tuple[type[ApiObject], ...]] = (
    BindRequest,
    Pod,
    Node,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    ResourceClaim,
)
"""The kinds that the binder needs in its store; it reads config maps one by one, since it may not list them."""


@contextmanager
def untraced(_: str, __: str) -> Iterator[Callable[[str], None]]:
    """Record nothing."""
    yield lambda _: None


@attrs.define
class BinderService:
    """The binder of one process."""

    cluster: Cluster
    binder: Binder
    observe: Observe = unobserved
    traced: Traced = untraced
    sweep_seconds: float = 60.0
    """Interval between sweeps of everything."""
    _terms: LeaderTerms = attrs.field(factory=LeaderTerms)
    _queue: BindQueue = attrs.field(init=False)
    _plans: PlanRunner = attrs.field(init=False)
    _sweeping: Sweeping = attrs.field(init=False)
    _events_in_flight: int = 0
    _tasks: anyio.abc.TaskGroup | None = None
    _due: float | None = None
    _alarm: Alarm | None = None

    def __attrs_post_init__(self) -> None:
        """Create the parts that depend on others."""
        self.binder = attrs.evolve(self.binder, refuse_order=self._terms.refuse)
        self._queue = BindQueue(self.binder.settings)
        self._plans = PlanRunner(IndexedApi(self.cluster.api, self.cluster.store, swept_pods(self.binder.settings)))
        self._sweeping = Sweeping(self.binder.settings, self._plans, self.cluster.connectivity)

    def offer(self, request: BindRequest) -> None:
        """Take a bind request that this process has just written, without waiting for the watch.

        Call it on the event loop. While the binder does not run, nothing happens: it will find the request when it
        starts.
        """
        if self._tasks is not None:
            self._step(RequestSeen(request))

    def carry_out(self, request: BindRequest, done: Done) -> bool:
        """Carry out a bind of this process without a written bind request, and report the outcome to ``done``.

        Call it on the event loop. Returns False while the binder does not run: then nothing happens, and ``done`` is
        not called.
        """
        if self._tasks is None:
            return False
        self._tasks.start_soon(self._carry_out, request, done)
        return True

    async def run(self) -> None:
        """Carry out binds until cancelled."""
        # A binder that does not know all pods of a node would find room that is taken.
        await self.cluster.store.synced()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.cluster.connectivity.listen(self._go_on)
            try:
                self._alarm = Alarm(self.cluster.clock, tasks)
                tasks.start_soon(self._keep_time, self._alarm)
                tasks.start_soon(self._sweep_now_and_then)
                with self.cluster.store.changes(BindRequest, Pod) as changes:
                    async for batch in changes:
                        await self._take(batch)
            finally:
                self.cluster.connectivity.unlisten(self._go_on)
                self._tasks = self._alarm = None

    def _go_on(self, _: bool) -> None:  # noqa: FBT001 - the signature of a listener
        self._step(ServerBack())

    async def _take(self, batch: Sequence[Change[Any]]) -> None:
        for change in batch:
            if isinstance(change.after, BindRequest):
                self._terms.see(change.after)  # terms must be complete before any request of the batch is attempted
        async for piece in pieces(batch):
            for change in piece:
                self._take_change(change)

    def _take_change(self, change: Change[Any]) -> None:
        present = change.present
        if isinstance(present, Pod):
            self._step(PodSeen(change.before, change.after))
        elif change.after is None:
            self._step(RequestGone(present))
        # The write of an assumed request may still fail. `offer` or the watch brings it once it exists.
        elif not self.cluster.store.is_assumed(BindRequest, key_of(present)):
            self._step(RequestSeen(present))

    # --- The machine ---------------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        for effect in self._queue.step(event, self.cluster.clock.monotonic()):
            self._start(effect)

    def _start(self, effect: Effect) -> None:
        if isinstance(effect, WakeAt):
            self._due = effect.time
            if self._alarm is not None:
                self._alarm.set_for(self._due)
        elif self._tasks is None:
            return  # the service has ended; the next process finds the same state in the cluster
        elif isinstance(effect, StartAttempt):
            self._tasks.start_soon(self._attempt, effect)
        else:
            self._tasks.start_soon(self._sweep, effect)

    async def _keep_time(self, alarm: Alarm) -> None:
        while True:
            if self._due is not None and self._due <= self.cluster.clock.monotonic():
                self._due = None
                self._step(Tick())
            alarm.set_for(self._due)
            await alarm.wait()

    async def _sweep_now_and_then(self) -> None:
        while True:
            self._step(Started())
            await self.cluster.clock.sleep(self.sweep_seconds)

    # --- Plans ---------------------------------------------------------------------------------------------------

    async def _attempt(self, effect: StartAttempt) -> None:
        await self._ready()
        began = self.cluster.clock.monotonic()
        known = self.cluster.store.get(BindRequest, effect.ref.name, effect.ref.namespace)
        with self.traced("bind", _trace_of(known)) as ended:
            outcome, result = await self._tried(effect)
            ended(result.value)
        log_outcome(self.cluster.connectivity, effect.ref, outcome)
        self.observe(BindEnded(result=result.value, seconds=self.cluster.clock.monotonic() - began))
        self._step(AttemptEnded(effect.ref, outcome))
        if outcome.event is not None and self._tasks is not None and self._events_in_flight < _MOST_EVENTS:
            # Not part of the attempt: under load events may wait, while an attempt holds one of few slots.
            self._tasks.start_soon(self._write_event, outcome.event)

    async def _tried(self, effect: StartAttempt) -> tuple[BindOutcome, BindVerdict]:
        """Return the outcome of an attempt, and its verdict for metrics, which is BUG if a bug in kai ended it."""
        subject = str(effect.ref)

        def waits() -> None:
            self._step(AttemptWaits(effect.ref))

        found = await self._plans.run(attempt(self.binder, effect.ref, patient=effect.patient), subject, waits)
        if isinstance(found, BindOutcome):
            return found, found.verdict
        # With the undo first. If the undo is what fails, the request alone is marked, so that its pod is decided anew.
        for plainly in (False, True) if effect.is_last else ():
            plan = give_back(self.binder, effect.ref, f"an error of kai: {found}", plainly=plainly)
            given = await self._plans.run(plan, subject)
            if isinstance(given, BindOutcome):
                return given, BindVerdict.BUG
        return BindOutcome(verdict=BindVerdict.BUG, message=found), BindVerdict.BUG

    async def _ready(self) -> None:
        """Wait until the API server answers, and the store shows again what nodes hold."""
        await self.cluster.connectivity.opened()
        await catch_up(self.cluster.store)

    async def _write_event(self, event: Emit) -> None:
        self._events_in_flight += 1
        try:
            reply = await self.cluster.api.perform(event)
        finally:
            self._events_in_flight -= 1
        if isinstance(reply, Refusal):
            structlog.get_logger().debug("event not written", pod=str(event.ref), why=reply.message)

    async def _carry_out(self, request: BindRequest, done: Done) -> None:
        """Bind until that succeeds or fails; while the API server does not answer, retry."""
        began = self.cluster.clock.monotonic()
        count = 0
        while True:
            await self._ready()
            patient = count < self.binder.settings.patience
            with self.traced("bind", _trace_of(request)) as ended:
                plan = attempt_unwritten(self.binder, request, patient=patient)
                found = await self._plans.run(plan, str(Ref.to(request)))
                outcome = (
                    found if isinstance(found, BindOutcome) else BindOutcome(verdict=BindVerdict.FAILED, message=found)
                )
                result = outcome.verdict if isinstance(found, BindOutcome) else BindVerdict.BUG
                ended(result.value)
            if outcome.verdict is not BindVerdict.BOUND:  # the scheduler, which ordered it, logs a success
                log_outcome(self.cluster.connectivity, Ref.to(request), outcome)
            self.observe(BindEnded(result=result.value, seconds=self.cluster.clock.monotonic() - began))
            if outcome.verdict is not BindVerdict.INTERRUPTED:
                break
            count += 1
            await self._rest(max(outcome.delay or 0.0, doubling_pause(count, _FIRST_PAUSE, _LONGEST_PAUSE)))
        failure = "" if outcome.verdict is BindVerdict.BOUND else outcome.message or outcome.verdict.value
        done(failure, outcome.verdict is BindVerdict.GONE)

    async def _rest(self, seconds: float) -> None:
        """Wait for ``seconds``, or until the API server answers again."""
        clock, connectivity = self.cluster.clock, self.cluster.connectivity
        async with anyio.create_task_group() as tasks:
            alarm = Alarm(clock, tasks)

            def wake(_: bool) -> None:  # noqa: FBT001 - the signature of a listener
                alarm.ring()

            alarm.set_for(clock.monotonic() + seconds)
            connectivity.listen(wake)
            try:
                await alarm.wait()
            finally:
                connectivity.unlisten(wake)
            # The alarm has a task of its own, which would keep the group open until its time.
            tasks.cancel_scope.cancel()

    async def _sweep(self, effect: StartSweep) -> None:
        await self._ready()
        self._step(SweepEnded(effect.group, await self._sweeping.sweep(effect.group)))


def _trace_of(request: BindRequest | None) -> str:
    return "" if request is None else request.metadata.annotations.get(names.TRACE_PARENT, "")


def make_binder(
    cluster: Cluster,
    settings: BinderSettings,
    steps: Mapping[str, StepOptions] = EMPTY,
    *,
    observe: Observe = unobserved,
    traced: Traced = untraced,
) -> BinderService:
    """Return the binder of an opened cluster; `BinderService.run` runs it.

    Raises: ConfigError for an unknown step or argument.
    """

    def group_to_link(pod: Pod) -> str:
        """Return the group that a pod names, if the API server has it or will have it at once."""
        namespace, name = pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP, "")
        return "" if cluster.store.is_kept(PodGroup, (namespace, name)) else name

    binder = Binder(
        settings=settings, steps=resolve_steps(steps), kubernetes=cluster.kubernetes, group_to_link=group_to_link
    )
    return BinderService(cluster, binder, observe, traced)
