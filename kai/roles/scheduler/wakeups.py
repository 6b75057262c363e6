"""When the next cycle begins: after a change, after a pause, or at once for a pod that starts alone.

Changes are debounced, because a gang is created pod by pod. A pod that starts without others gains nothing by that: a
cycle follows it at once, as long as such cycles stay rare. `Rhythm` holds these times, for the service and for virtual
time, and `Haste` is the token bucket for immediate cycles.

`IndependentPods` counts pods that begin to wait and start alone. `Rests` ends the rest between two cycles for them. One
task does this for a whole term: a task for each rest, cancelled with it, would be a reference cycle. Four times a
second its frames and traceback would be left to the garbage collector, which runs every two minutes or more rarely, and
the process would grow.

`pause_after` says how long to rest if nothing changes: until another cycle could decide something new, because
something is due. While pods wait, a cycle tries again after a period, with growing pauses. While groups wait for their
turn, the next cycle follows at once, because each turn considers new groups.

`OtherPools` recognizes changes in other node pools. Other schedulers decide there, so these changes start no cycle
here.

`prefetch` parses objects as they arrive, in small batches on the event loop, so that the next cycle finds them parsed.
Parsed objects are interned in tables that a cycle uses in its thread. Each reader of the tables holds one lock, so
nothing is parsed ahead while a cycle runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import attrs

from kai.api import names
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.port import Change, Clock, Store
from kai.intake import IntakeSettings

if TYPE_CHECKING:
    from kai.api.kinds import ApiObject
    from kai.roles.scheduler.settings import SchedulerSettings

AT_ONCE: Final = 5
"""Capacity of the token bucket: this many cycles may follow pods at once."""


@attrs.frozen(kw_only=True)
class Rhythm:
    """How soon a cycle follows a change.

    Units: seconds.
    """

    apart: float = 0.1
    """Minimum distance of two cycles: that of two cycles of an idle service."""
    after: float = 0.0
    """Debounce from the first change to its cycle; later changes in this time are decided with it."""
    hurries: bool = False
    """Whether a cycle follows at once when a pod comes that starts alone."""

    @classmethod
    def of_service(cls, settings: SchedulerSettings) -> Self:
        """Return the rhythm of the service if deciding itself took no time.

        The service rests after a cycle, waits for a change, and then for the changes that follow it.
        """
        gathering = settings.coalescing_seconds
        return cls(apart=2 * gathering, after=gathering, hurries=True)

    def haste(self) -> Haste:
        """Return the token bucket for immediate cycles."""
        return Haste(self.apart / 2)


@attrs.define
class Haste:
    """A token bucket for immediate cycles: each takes a token, and one token is added every ``seconds``."""

    seconds: float
    _earned: float = -inf
    """When the bucket will be full."""

    def due(self, now: float) -> float:
        """Return when the next immediate cycle may follow."""
        # The bucket is kept as one instant, that at which it is full again (the generic cell rate algorithm): nothing
        # has to be refilled as time passes.
        return max(now, self._earned - (AT_ONCE - 1) * self.seconds)

    def take(self, now: float) -> None:
        """Take a token for an immediate cycle."""
        self._earned = max(self._earned, now) + self.seconds


def starts_alone(group: PodGroup) -> bool:
    """Return whether a pod of a group may start without the others."""
    spec = group.spec
    return spec.minimum <= 1 and not spec.min_sub_group and not spec.sub_groups


@attrs.define(eq=False)
class IndependentPods:
    """Counts pods that begin to wait and start alone, as the store shows them."""

    store: Store
    scheduler: str
    """Name of the scheduler that the pods ask for."""
    owns: Callable[[Mapping[str, str]], bool] = lambda _: True
    """Returns whether this process decides on a group with these labels."""
    count: int = 0
    _more: anyio.Event = attrs.field(factory=anyio.Event)

    async def run(self) -> None:
        """Count until cancelled."""
        with self.store.changes(Pod) as changes:
            async for batch in changes:
                found = sum(map(self._begins, batch))
                if found:
                    self.count += found
                    self._more.set()

    async def more(self, count: int) -> None:
        """Wait until the count exceeds ``count``."""
        while self.count <= count:
            # An event cannot be cleared: one that was set is replaced.
            self._more = anyio.Event() if self._more.is_set() else self._more
            await self._more.wait()

    def _begins(self, change: Change[Pod]) -> bool:
        before, after = change.before, change.after
        if after is None or not self._waits(after) or (before is not None and self._waits(before)):
            return False
        name = after.metadata.annotations[names.POD_GROUP]
        group = self.store.get(PodGroup, name, after.metadata.namespace)
        return group is not None and starts_alone(group) and self.owns(group.metadata.labels)

    def _waits(self, pod: Pod) -> bool:
        spec, metadata = pod.spec, pod.metadata
        return (
            not spec.node_name
            and spec.scheduler_name == self.scheduler
            and not spec.scheduling_gates
            and names.POD_GROUP in metadata.annotations
            and metadata.deletion_timestamp is None
        )


@attrs.define(eq=False)
class Rests:
    """Ends the present rest when a pod comes that starts alone, as often as the token bucket permits."""

    pods: IndependentPods
    haste: Haste
    clock: Clock
    _present: anyio.CancelScope | None = None
    _known: int = 0
    _begun: anyio.Event = attrs.field(factory=anyio.Event)

    @contextmanager
    def begun(self, known: int) -> Iterator[anyio.CancelScope]:
        """Return a scope that is cancelled when the count of pods exceeds ``known``."""
        with anyio.CancelScope() as scope:
            self._present, self._known = scope, known
            self._begun.set()
            try:
                yield scope
            finally:
                self._present = None

    async def run(self) -> None:
        """Count pods and end rests, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.pods.run)
            await self._end_rests()

    async def _end_rests(self) -> None:
        while True:
            if self._present is None:
                self._begun = anyio.Event()
                await self._begun.wait()
            scope = self._present
            await self.pods.more(self._known)
            now = self.clock.monotonic()
            due = self.haste.due(now)
            if due > now:
                await self.clock.sleep(due - now)
            # The rest may have ended by itself meanwhile: the token is kept for a later one.
            if scope is not None and scope is self._present:
                self.haste.take(due)
                scope.cancel()
                self._present = None


MOST_PERIODS: Final = 5
"""Limit of the growing pause between two cycles while something waits, in periods."""


@attrs.frozen
class Seen:
    """The revision of the store when a cycle began."""

    revision: int
    substance: int

    @classmethod
    def of(cls, store: Store) -> Self:
        """Return the present revision of a store."""
        return cls(store.revision, store.substance)

    async def outdated(self, store: Store, seconds: float) -> None:
        """Wait until another cycle may decide something else.

        Changes of conditions and the like come in floods after many binds, and most of them are our own writes: they
        are debounced for ``seconds``.
        """
        await store.newer(self.revision)
        with anyio.move_on_after(seconds):
            await store.more_substantial(self.substance)


def pause_after(
    settings: SchedulerSettings, *, turns: int, idle: int, restless: bool, dues: Iterable[float]
) -> float | None:
    """Return how many seconds to wait for the next cycle if nothing changes; None if only a change can matter.

    ``idle``: count of cycles since the last change that decided nothing. ``turns``: count of cycles until all groups
    are considered. ``restless``: whether something waits. ``dues``: in how many seconds each timed event is due.
    """
    if idle < turns and turns > 1:  # not all groups were considered since something changed
        return settings.coalescing_seconds
    pauses = [max(0.0, due) for due in dues]
    if restless:
        pauses.append(settings.period_seconds * min(MOST_PERIODS, max(1, idle // turns)))
    return min(pauses, default=None)


@attrs.frozen
class OtherPools:
    """Recognizes changes that concern other pools only."""

    store: Store
    intake: IntakeSettings

    def hold(self, change: Change[Any]) -> bool:
        """Return whether an object belongs to other pools only, before and after; False if the store leaves a doubt.

        A pod without group and node belongs to no pool: a later change gives it one.
        Cost: 1 us; for a pod two objects are looked up.
        """
        return all(self._has(side) for side in (change.before, change.after) if side is not None)

    def _has(self, side: object) -> bool:
        match side:
            case Pod():
                return self._has_pod(side)
            case Node() | PodGroup() | BindRequest():
                return not self.intake.owns(side.metadata.labels)
        return False

    def _has_pod(self, pod: Pod) -> bool:
        where: list[Node | PodGroup | None] = []
        if pod.spec.node_name:
            where.append(self.store.get(Node, pod.spec.node_name))
        group = pod.metadata.annotations.get(names.POD_GROUP)
        if group:
            where.append(self.store.get(PodGroup, group, pod.metadata.namespace))
        return all(each is not None and not self.intake.owns(each.metadata.labels) for each in where)


_AT_ONCE: Final = 100
"""Count of objects that are parsed before the event loop may run other tasks: about a millisecond."""


async def prefetch(store: Store, read: Callable[[Iterable[ApiObject]], None], in_use: anyio.Lock) -> None:
    """Pass pods and groups to ``read`` as they arrive, holding ``in_use`` meanwhile; until cancelled."""
    with store.arrivals(Pod, PodGroup) as arrivals:
        while True:
            await arrivals.wait()
            async with in_use:
                read(arrivals.take(_AT_ONCE))
