"""Work queues of controllers, and the execution of plans.

`WorkQueue` decides which key a controller works on next, as a state machine without clock, randomness or tasks.
`Workers` is the thin loop around it. A controller is level-triggered: an event only says that an object may have
changed, and the controller looks at the object itself. So the queue holds each key once, however often it was added.

Holds: one task at a time works on a key; a key added in the meantime is worked on once more afterwards. Failed work is
retried after a doubling back-off, shortened at random so that retries spread out. A new event ends the back-off, and
so does the return of the API server. The queue never holds more keys than there are objects. While the API server is
away, no work begins.

`carry_out` executes a plan: it performs the requests, and locks keys in a `KeyRing`. A plan may wait for an object to
reach a state, or for a key that another plan holds. Its caller can be notified, and let another plan run in the
meantime.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

import anyio
import anyio.abc
import attrs
import structlog
from anyio.lowlevel import checkpoint

from kai.api.plans import Await, Lock, Plan, Reason, Refusal, Unlock
from kai.basics.deadlines import Deadlines, doubling_pause
from kai.basics.errors import places
from kai.cluster.port import AlwaysOpen, Api, Change, Clock, Cluster, Connectivity, Draw, Store
from kai.cluster.signals import Observe, WorkEnded, unobserved, warn
from kai.cluster.threads import AT_ONCE, pieces_of

if TYPE_CHECKING:
    from kai.api.kinds import ApiObject

R = TypeVar("R")


@attrs.define
class KeyRing:
    """Locks by key for the plans of a process, each held by one plan at a time, first come first served."""

    _locks: dict[str, anyio.Semaphore] = attrs.field(factory=dict)
    _wanted: dict[str, int] = attrs.field(factory=dict)

    async def hold(self, key: str) -> None:
        """Wait until a key is free, and lock it."""
        lock = self._locks.setdefault(key, anyio.Semaphore(1))
        self._wanted[key] = self._wanted.get(key, 0) + 1
        try:
            await lock.acquire()
        except BaseException:  # a cancelled plan must not leave the key marked as wanted
            self._forget(key)
            raise

    def is_held(self, key: str) -> bool:
        """Return whether a plan holds or awaits a key."""
        return key in self._wanted

    def free(self, key: str) -> None:
        """Release a key."""
        self._locks[key].release()
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._wanted[key] -= 1
        # Keys that no plan wants go: names of pods and nodes come without an end.
        if not self._wanted[key]:
            del self._wanted[key], self._locks[key]


def do_nothing() -> None:
    """Do nothing."""


async def carry_out(plan: Plan[R], api: Api, keys: KeyRing, waits: Callable[[], None] = do_nothing) -> R:
    """Return the result of a plan; however it ends, all its keys are released.

    ``waits`` is called each time before the plan waits for a key or an object.

    Raises: what the plan raises.
    """
    held: list[str] = []
    reply: object = None
    steps = count(1)
    try:
        while True:
            if next(steps) % AT_ONCE == 0:  # replies from the store come without a switch to other tasks
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
    """How a queue paces work.

    Units: seconds.
    """

    concurrency: int = 10
    """Count of concurrent work items."""
    gather: float = 0.0
    """Debounce: how long to collect events for an object before work on it begins."""
    first_pause: float = 1.0
    longest_pause: float = 60.0


DEFAULT_OPTIONS: Final = QueueOptions()
"""Options of a controller without its own."""


@attrs.frozen(kw_only=True)
class Ended:
    """The end of a work item: a success if ``failure`` is empty."""

    failure: str = ""
    after: float | None = None
    """Seconds until the next work on this key: a minimum after a failure; exact after a success, None for none."""
    unwritten: str = ""
    """Object whose write failed, for the log; "" if there is nothing left to log."""


DONE: Final = Ended()


def ended_by(reply: object, subject: str) -> Ended:
    """Return the end of a work item by the reply to its last write; an object that is gone counts as done."""
    if not isinstance(reply, Refusal) or reply.reason is Reason.NOT_FOUND:
        return DONE
    # A conflict only means that the object changed: it is read and handled again, without a log line.
    unwritten = "" if reply.reason is Reason.CONFLICT else subject
    return Ended(failure=reply.why, after=reply.retry_after, unwritten=unwritten)


@attrs.frozen
class Look(Generic[K]):
    """A work item that begins. An object read at ``since`` or later is new enough for it."""

    key: K
    since: float


@attrs.define
class _Item:
    since: float
    failures: int = 0
    running: bool = False
    again: float | None = None
    """When the key was first added during the present work on it."""


@attrs.define
class WorkQueue(Generic[K]):
    """The keys that wait for work, and those in work."""

    options: QueueOptions
    draw: Draw
    _items: dict[K, _Item] = attrs.field(factory=dict)
    _dues: Deadlines[K] = attrs.field(factory=Deadlines)
    """When the next work on each waiting key is due."""
    _running: int = 0

    def want(self, key: K, now: float) -> None:
        """Add a key."""
        item = self._items.setdefault(key, _Item(now))
        if item.running:
            # The first event counts: later ones must not defer the next work again and again.
            item.again = now if item.again is None else item.again
        else:
            item.since = now
            self._dues.hasten(key, now + self.options.gather)

    def take(self, now: float) -> tuple[Look[K], ...]:
        """Return the work items that begin now, the longest overdue first."""
        looks: list[Look[K]] = []
        for key in islice(self._dues.take(now), self.options.concurrency - self._running):
            item = self._items[key]
            item.running = True
            self._running += 1
            looks.append(Look(key, item.since))
        return tuple(looks)

    def end(self, key: K, now: float, ended: Ended = DONE) -> None:
        """Record the end of a work item."""
        item = self._items.pop(key)
        self._running -= 1
        if ended.failure:
            item.failures += 1
            due = now + max(self._pause(item.failures), ended.after or 0.0)
            if item.again is not None:
                # A new event ends the back-off, but not a delay that the API server asked for.
                due = min(due, now + max(self.options.gather, ended.after or 0.0))
            self._put_back(key, due, item.failures)
        elif item.again is not None:
            # The work may have read the object before that event, so it is done once more.
            self._put_back(key, max(now, item.again + self.options.gather), 0, since=item.again)
        elif ended.after is not None:
            self._put_back(key, now + ended.after, 0)

    def hurry(self, now: float) -> None:
        """Retry all failed keys within a second: the cause of the failure may be gone."""
        for key, item in self._items.items():
            # Spread over a second: a server that has just come back must not get all of them at once.
            soon = now + self.draw()
            if item.failures and not item.running:
                self._dues.hasten(key, soon)

    @property
    def next_due(self) -> float | None:
        """When the next work is due; None without any, or while all workers are busy."""
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
    """Wakes one loop: at once with `ring`, or at set times.

    A set time cannot be cancelled, so the loop may wake up without need. That is cheap; to cancel a sleep and begin
    another with each change is not.
    """

    clock: Clock
    tasks: anyio.abc.TaskGroup
    _event: anyio.Event = attrs.field(factory=anyio.Event)
    _set_for: list[float] = attrs.field(factory=list)
    """Set times, latest first."""

    def ring(self) -> None:
        """Wake the loop now."""
        self._event.set()

    def set_for(self, time: float | None) -> None:
        """Wake the loop at ``time`` at the latest; None for never."""
        # Only an earlier time needs a sleep of its own: at a later one the loop is awake already.
        if time is not None and (not self._set_for or time < self._set_for[-1]):
            self._set_for.append(time)
            self.tasks.start_soon(self._sleep, time)

    async def wait(self) -> None:
        """Wait for the next ring, or return at once if one came since the last wait."""
        await self._event.wait()
        self._event = anyio.Event()

    async def _sleep(self, time: float) -> None:
        await self.clock.sleep(max(0.0, time - self.clock.monotonic()))
        self._set_for.remove(time)
        self.ring()


@attrs.define
class Workers(Generic[K]):
    """Works on keys concurrently until `run` is cancelled."""

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
        """Return workers for a service of a cluster, with a queue of their own."""
        return cls(name, WorkQueue(options, cluster.draw), look, cluster.clock, observe, cluster.connectivity)

    def want(self, key: K) -> None:
        """Add a key."""
        self.queue.want(key, self.clock.monotonic())
        self._go()

    async def follow(
        self,
        store: Store,
        kinds: Iterable[type[ApiObject]],
        concerned: Callable[[Sequence[Change[Any]]], Iterable[K]],
    ) -> None:
        """Add the keys that changes of these kinds concern, those of all present objects first, until cancelled."""
        with store.changes(*kinds) as changes:
            async for piece in pieces_of(changes):
                for key in concerned(piece):
                    self.want(key)

    async def run(self) -> None:
        """Work on keys as they become due."""
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
                    # A task started in a cancelled group whose other tasks have ended may never be cancelled, and never
                    # end.
                    self._alarm = self._tasks = None
        finally:
            self.connectivity.unlisten(self._go_on)

    def _go_on(self, _: bool) -> None:  # noqa: FBT001 - the signature of a listener
        self.queue.hurry(self.clock.monotonic())
        if self._alarm is not None:
            self._alarm.ring()

    def _go(self) -> None:
        """Start the work that is due now; wake the loop only if it has to wait for the API server.

        A pod waits for this work, so it should not wait for an event-loop iteration as well. Most keys are debounced,
        and due later.
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
        """Carry out a look, and then others that are due: a task for each would cost as much as many looks do."""
        await self._carry_out_one(look)
        while (following := self._following()) is not None:
            await checkpoint()
            await self._carry_out_one(following)

    def _following(self) -> Look[K] | None:
        """Return the next look for a task that has ended one; start others that are due as well."""
        if self._alarm is None or self._tasks is None:
            return None
        if self.connectivity.may_be_away:
            self._alarm.ring()
            return None
        following, *others = self.queue.take(self.clock.monotonic()) or (None,)
        for look in others:
            self._tasks.start_soon(self._carry_out, look)
        self._alarm.set_for(self.queue.next_due)
        return following

    async def _carry_out_one(self, look: Look[K]) -> None:
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
        self.observe(
            WorkEnded(work=self.name, failed=bool(ended.failure), seconds=now - began, waited=now - look.since),
        )


def place_of(error: BaseException) -> list[str]:
    """Return the places of an error, innermost last, without source lines, which a traceback would read from files."""
    return places(traceback.walk_tb(error.__traceback__))
