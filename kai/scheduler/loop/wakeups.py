"""When the next cycle begins: after a change, after a pause, or at once for a pod that starts alone.

`Rhythm` is the token bucket that lets a cycle follow a change at once; the virtual cluster uses it as well.

When a cycle follows a change, in the service and in virtual time.

Changes are gathered before they are decided on, for a gang is created pod by pod. A pod that starts without others
gains nothing by that: it is decided on at once, as long as such cycles do not become the rule.

Pods that begin to wait and start without others: a cycle follows them at once.

Rests between cycles, which end early for pods that start without others.

One task ends them for as long as a term lasts. A task for each rest, cancelled with it, would be a cycle of objects:
four times a second its frames and its traceback would be left to Python's collector, which comes by every two minutes
or later, and the process would grow by so much.

How long the scheduler rests after a cycle if nothing changes.

It rests as long as another cycle could not decide anything new: until something is due. While pods wait, a cycle tries
again after a period, and ever more rarely. While groups wait for their turn, the next turn follows at once: each is as
new as a change.

What changes in other node pools: other schedulers decide there, so it hurries no cycle here.

Reading ahead: what arrives is read at once, in small portions, so that the next cycle finds it read.

All of it happens on the event loop. What is made of objects is interned in tables that a cycle, in its thread, uses as
well; a reader of the tables holds one lock, so nothing is read ahead while a cycle is at work.
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
    from kai.scheduler.settings import SchedulerSettings

AT_ONCE: Final = 5
"""So many cycles follow pods at once, then one for each time that one is earned."""


@attrs.frozen(kw_only=True)
class Rhythm:
    """How soon a cycle follows a change.

    Units: seconds.
    """

    apart: float = 0.1
    """From one cycle to the next one, at least: as far as two cycles of an idle service are apart."""
    after: float = 0.0
    """From the first change to its cycle: what changes meanwhile is decided with it."""
    hurries: bool = False
    """Whether a cycle follows at once when a pod comes that starts without others."""

    @classmethod
    def of_service(cls, settings: SchedulerSettings) -> Self:
        """Return the rhythm of the service where deciding itself takes no time.

        It rests after a cycle, then waits for a change and then for those that come with it.
        """
        gathering = settings.coalescing_seconds
        return cls(apart=2 * gathering, after=gathering, hurries=True)

    def haste(self) -> Haste:
        """Return what counts the cycles that follow at once."""
        return Haste(self.apart / 2)


@attrs.define
class Haste:
    """How many cycles may follow at once: each takes one of a few, and one is earned in so many seconds."""

    seconds: float
    _earned: float = -inf
    """When all are earned again."""

    def due(self, now: float) -> float:
        """Return when the next one may follow."""
        return max(now, self._earned - (AT_ONCE - 1) * self.seconds)

    def take(self, now: float) -> None:
        """Take note of a cycle that follows at once."""
        self._earned = max(self._earned, now) + self.seconds


def starts_alone(group: PodGroup) -> bool:
    """Return whether a pod of a group may start without any other of them."""
    spec = group.spec
    return spec.minimum <= 1 and not spec.min_sub_group and not spec.sub_groups


@attrs.define(eq=False)
class IndependentPods:
    """Counts them, as the store shows them."""

    store: Store
    scheduler: str
    """The name of the scheduler that they ask for."""
    owns: Callable[[Mapping[str, str]], bool] = lambda _: True
    """Returns whether a group with these labels is decided on here."""
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
        """Wait until there were more than so many."""
        while self.count <= count:
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
    """Ends the present rest once a pod came that starts without others, as often as haste allows."""

    pods: IndependentPods
    haste: Haste
    clock: Clock
    _present: anyio.CancelScope | None = None
    _known: int = 0
    _begun: anyio.Event = attrs.field(factory=anyio.Event)

    @contextmanager
    def begun(self, known: int) -> Iterator[anyio.CancelScope]:
        """Return a scope that is cancelled when more than the ``known`` pods came."""
        with anyio.CancelScope() as scope:
            self._present, self._known = scope, known
            self._begun.set()
            try:
                yield scope
            finally:
                self._present = None

    async def run(self) -> None:
        """Count pods, and end rests, until cancelled."""
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
            if scope is not None and scope is self._present:
                self.haste.take(due)
                scope.cancel()
                self._present = None


MOST_PERIODS: Final = 5
"""So many periods pass at most between two cycles while something waits."""


@attrs.frozen
class Seen:
    """How far the store was when a cycle began."""

    revision: int
    substance: int

    @classmethod
    def of(cls, store: Store) -> Self:
        """Return how far the store is."""
        return cls(store.revision, store.substance)

    async def outdated(self, store: Store, seconds: float) -> None:
        """Wait until another cycle may decide something else.

        What only tells people more comes thick and fast when many pods were bound, and most of it is our own: it is
        gathered for some seconds.
        """
        await store.newer(self.revision)
        with anyio.move_on_after(seconds):
            await store.more_substantial(self.substance)


def pause_after(
    settings: SchedulerSettings, *, turns: int, idle: int, restless: bool, dues: Iterable[float]
) -> float | None:
    """Return after how many seconds to decide again if nothing changes; None if only a change can matter.

    ``idle`` is how many cycles decided nothing since something changed, ``turns`` after how many all groups were
    considered, ``restless`` whether something waits, and ``dues`` in how many seconds something is due.
    """
    if idle < turns and turns > 1:  # not all groups were considered since something changed
        return settings.coalescing_seconds
    pauses = [max(0.0, due) for due in dues]
    if restless:
        pauses.append(settings.period_seconds * min(MOST_PERIODS, max(1, idle // turns)))
    return min(pauses, default=None)


@attrs.frozen
class OtherPools:
    """Tells changes in other pools from those that matter here."""

    store: Store
    intake: IntakeSettings

    def hold(self, change: Change[Any]) -> bool:
        """Return whether an object is of other pools alone, before and after; False where the store leaves a doubt.

        A pod that has neither a group nor a node is of no pool: what gives it one is a change of its own.
        Cost: 1 us; two objects are looked up for a pod.
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
"""Objects that are read before the loop may do something else: about a millisecond."""


async def prefetch(store: Store, read: Callable[[Iterable[ApiObject]], None], in_use: anyio.Lock) -> None:
    """Give pods and groups to ``read`` as they arrive, holding ``in_use`` meanwhile; until cancelled."""
    with store.arrivals(Pod, PodGroup) as arrivals:
        while True:
            await arrivals.wait()
            async with in_use:
                read(arrivals.take(_AT_ONCE))
