"""Work by key: what a controller looks at next, and the loop that does it.

A controller is told that something about an object may have changed, and looks at the object; it never works off
events. So what waits is a key, once, however often it was asked for. `WorkQueue` decides which key is due: it is a
plain machine without clock, randomness or tasks. `Workers` is the thin loop around it.

Holds: one key is looked at by one task at a time; what is asked for during a look is looked at once more after it. A
look that failed is repeated after a pause that doubles, shortened at random so that many do not come back at once; an
event in between ends the pause, and so does the return of the API server. As many keys wait as there are objects, never
more. While the API server is away, no look begins.

Carrying out plans: the loop that performs their requests, and the keys that plans hold.

A plan may wait for others: for an object to become something, or for a key that another plan holds. Its caller can be
told, and give the place of the plan to one that has work to do.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Hashable
from itertools import count, islice
from typing import Any, Final, Generic, Self, TypeVar, cast

import anyio
import anyio.abc
import attrs
import structlog
from anyio.lowlevel import checkpoint

from kai.api.plans import Await, Lock, Plan, Reason, Refusal, Unlock
from kai.basics.deadlines import Deadlines, doubling_pause
from kai.cluster.port import AlwaysOpen, Api, Clock, Cluster, Connectivity, Draw
from kai.cluster.signals import Observe, WorkEnded, unobserved, warn
from kai.cluster.threads import AT_ONCE
from kai.errors import places

R = TypeVar("R")


@attrs.define
class KeyRing:
    """The keys that plans of a process hold, each held by one plan at a time, in the order of asking."""

    _locks: dict[str, anyio.Semaphore] = attrs.field(factory=dict)
    _wanted: dict[str, int] = attrs.field(factory=dict)

    async def hold(self, key: str) -> None:
        """Wait until a key is free, and hold it."""
        lock = self._locks.setdefault(key, anyio.Semaphore(1))
        self._wanted[key] = self._wanted.get(key, 0) + 1
        try:
            await lock.acquire()
        except BaseException:
            self._forget(key)
            raise

    def is_held(self, key: str) -> bool:
        """Return whether a plan holds a key."""
        return key in self._wanted

    def free(self, key: str) -> None:
        """Let go of a key."""
        self._locks[key].release()
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._wanted[key] -= 1
        if not self._wanted[key]:
            del self._wanted[key], self._locks[key]


def untold() -> None:
    """Take no notice."""


async def carry_out(plan: Plan[R], api: Api, keys: KeyRing, waits: Callable[[], None] = untold) -> R:
    """Return the result of a plan; however it ends, all keys that it holds are let go of.

    ``waits`` is called each time before the plan waits for others.

    Raises: what the plan raises.
    """
    held: list[str] = []
    reply: object = None
    steps = count(1)
    try:
        while True:
            if next(steps) % AT_ONCE == 0:  # no other task has its turn while the store answers
                await checkpoint()
            try:
                request = plan.send(reply)
            except StopIteration as stop:
                return cast("R", stop.value)
            match request:
                case Lock():
                    if keys.is_held(request.key):
                        waits()
                    await keys.hold(request.key)
                    held.append(request.key)
                    reply = None
                case Unlock():
                    held.remove(request.key)
                    keys.free(request.key)
                    reply = None
                case _:
                    if isinstance(request, Await):
                        waits()
                    reply = cast("Any", await api.perform(request))
    finally:
        for key in held:
            keys.free(key)
        plan.close()


K = TypeVar("K", bound=Hashable)

_JITTER: Final = 0.25


@attrs.frozen(kw_only=True)
class QueueOptions:
    """How fast a queue hands out work.

    Units: seconds.
    """

    concurrency: int = 10
    """Looks under way at once."""
    gather: float = 0.0
    """How long events about an object are gathered before it is looked at."""
    first_pause: float = 1.0
    longest_pause: float = 60.0


DEFAULT_OPTIONS: Final = QueueOptions()
"""Those of a controller that is not asked for others."""


@attrs.frozen(kw_only=True)
class Ended:
    """How a look ended: well if there is no `failure`."""

    failure: str = ""
    after: float | None = None
    """Seconds until the next look: at least, after a failure; exactly, otherwise, and None for none."""
    unwritten: str = ""
    """The object that could not be written, for the log; "" if the look has said what there is to say."""


DONE: Final = Ended()


def ended_by(reply: object, subject: str) -> Ended:
    """Return how a look ends whose last write was answered with this; an object that is gone needs no more."""
    if not isinstance(reply, Refusal) or reply.reason is Reason.NOT_FOUND:
        return DONE
    # An object that changed meanwhile is read and looked at again: that is no news.
    unwritten = "" if reply.reason is Reason.CONFLICT else subject
    return Ended(failure=reply.why, after=reply.retry_after, unwritten=unwritten)


@attrs.frozen
class Look(Generic[K]):
    """A look that is to begin. What is read from `since` on is new enough for it."""

    key: K
    since: float


@attrs.define
class _Item:
    since: float
    failures: int = 0
    running: bool = False
    again: float | None = None
    """When it was first asked for during the present look."""


@attrs.define
class WorkQueue(Generic[K]):
    """The keys that wait to be looked at, and those that are."""

    options: QueueOptions
    draw: Draw
    _items: dict[K, _Item] = attrs.field(factory=dict)
    _dues: Deadlines[K] = attrs.field(factory=Deadlines)
    """When the next look at each key is due that is not looked at now."""
    _running: int = 0

    def want(self, key: K, now: float) -> None:
        """Ask for a look at a key."""
        item = self._items.setdefault(key, _Item(now))
        if item.running:
            item.again = now if item.again is None else item.again
        else:
            item.since = now
            self._dues.hasten(key, now + self.options.gather)

    def take(self, now: float) -> tuple[Look[K], ...]:
        """Return the looks that begin now, those first that have been due longest."""
        looks: list[Look[K]] = []
        for key in islice(self._dues.take(now), self.options.concurrency - self._running):
            item = self._items[key]
            item.running = True
            self._running += 1
            looks.append(Look(key, item.since))
        return tuple(looks)

    def end(self, key: K, now: float, ended: Ended = DONE) -> None:
        """Take note that a look ended."""
        item = self._items.pop(key)
        self._running -= 1
        if ended.failure:
            item.failures += 1
            due = now + max(self._pause(item.failures), ended.after or 0.0)
            if item.again is not None:
                due = min(due, now + max(self.options.gather, ended.after or 0.0))
            self._put_back(key, due, item.failures)
        elif item.again is not None:
            self._put_back(key, max(now, item.again + self.options.gather), 0, since=item.again)
        elif ended.after is not None:
            self._put_back(key, now + ended.after, 0)

    def hurry(self, now: float) -> None:
        """Repeat what failed within a second: what was in its way may be gone."""
        for key, item in self._items.items():
            soon = now + self.draw()
            if item.failures and not item.running:
                self._dues.hasten(key, soon)

    @property
    def next_due(self) -> float | None:
        """Return when the next look is due; None while there is none, or no place for it."""
        return self._dues.first() if self._running < self.options.concurrency else None

    def _put_back(self, key: K, due: float, failures: int, since: float | None = None) -> None:
        self._items[key] = _Item(since=due if since is None else since, failures=failures)
        self._dues[key] = due

    def _pause(self, failures: int) -> float:
        whole = doubling_pause(failures, self.options.first_pause, self.options.longest_pause)
        return whole * (1.0 - _JITTER * self.draw())


# --- The loop ------------------------------------------------------------------------------------------------------


@attrs.define
class Alarm:
    """Wakes one loop: at once when rung, and at times that it is set for.

    A time that was set is not taken back, so a loop may wake up for nothing. That is cheap; to cancel a sleep and begin
    another for whatever happens in between is not.
    """

    clock: Clock
    tasks: anyio.abc.TaskGroup
    _event: anyio.Event = attrs.field(factory=anyio.Event)
    _set_for: list[float] = attrs.field(factory=list)
    """Latest first."""

    def ring(self) -> None:
        """Wake the loop."""
        self._event.set()

    def set_for(self, time: float | None) -> None:
        """Wake the loop then, or before; None is never."""
        if time is not None and (not self._set_for or time < self._set_for[-1]):
            self._set_for.append(time)
            self.tasks.start_soon(self._sleep, time)

    async def wait(self) -> None:
        """Wait for the next ring. One that came since the last wait is not lost."""
        await self._event.wait()
        self._event = anyio.Event()

    async def _sleep(self, time: float) -> None:
        await self.clock.sleep(max(0.0, time - self.clock.monotonic()))
        self._set_for.remove(time)
        self.ring()


@attrs.define
class Workers(Generic[K]):
    """Looks at keys, several at a time, for as long as `run` is not cancelled."""

    name: str
    queue: WorkQueue[K]
    look: Callable[[Look[K]], Awaitable[Ended]]
    clock: Clock
    observe: Observe = unobserved
    connectivity: Connectivity = attrs.field(factory=AlwaysOpen)
    _alarm: Alarm | None = None
    _tasks: anyio.abc.TaskGroup | None = None

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        name: str,
        look: Callable[[Look[K]], Awaitable[Ended]],
        options: QueueOptions,
        observe: Observe,
    ) -> Self:
        """Return the workers of a service of a cluster, with a queue of their own."""
        return cls(name, WorkQueue(options, cluster.draw), look, cluster.clock, observe, cluster.connectivity)

    def want(self, key: K) -> None:
        """Ask for a look at a key."""
        self.queue.want(key, self.clock.monotonic())
        self._go()

    async def run(self) -> None:
        """Look at whatever is due."""
        self.connectivity.listen(self._go_on)
        try:
            async with anyio.create_task_group() as tasks:
                alarm = Alarm(self.clock, tasks)
                self._alarm, self._tasks = alarm, tasks
                try:
                    while True:
                        await self.connectivity.opened()
                        self._begin(alarm, tasks)
                        await alarm.wait()
                finally:
                    # What begins in a cancelled group whose other tasks are over is never told so and may never end.
                    self._alarm = self._tasks = None
        finally:
            self.connectivity.unlisten(self._go_on)

    def _go_on(self, _: bool) -> None:  # noqa: FBT001 - the only thing that a listener is told
        self.queue.hurry(self.clock.monotonic())
        if self._alarm is not None:
            self._alarm.ring()

    def _go(self) -> None:
        """Begin what is due now, and wake the loop only where it has to wait for the API server.

        A pod waits for its look, so it does not wait for a turn of the loop before it; and most of what is asked for is
        gathered, and due later.
        """
        if self._alarm is None or self._tasks is None:
            return
        if self.connectivity.may_be_away:
            self._alarm.ring()
        else:
            self._begin(self._alarm, self._tasks)

    def _begin(self, alarm: Alarm, tasks: anyio.abc.TaskGroup) -> None:
        for look in self.queue.take(self.clock.monotonic()):
            tasks.start_soon(self._carry_out, look)
        alarm.set_for(self.queue.next_due)

    async def _carry_out(self, look: Look[K]) -> None:
        began = self.clock.monotonic()
        try:
            ended = await self.look(look)
        except Exception as error:  # noqa: BLE001 - the boundary of one work item: a bug costs one object, not all
            ended = Ended(failure=f"{type(error).__name__}: {error}")
            structlog.get_logger().error(
                "work failed", work=self.name, key=look.key, why=ended.failure, at=place_of(error)
            )
        if ended.unwritten:
            warn(self.connectivity, "not written", subject=ended.unwritten, why=ended.failure)
        now = self.clock.monotonic()
        self.queue.end(look.key, now, ended)
        self._go()
        self.observe(
            WorkEnded(work=self.name, failed=bool(ended.failure), seconds=now - began, waited=now - look.since),
        )


def place_of(error: BaseException) -> list[str]:
    """Return where an error came from, innermost last, without what a traceback would read from files for it."""
    return places(traceback.walk_tb(error.__traceback__))
