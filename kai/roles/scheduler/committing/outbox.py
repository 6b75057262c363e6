"""The shell around committer and publisher: carries out their effects in the present term.

Binds and evictions have writers of their own, so a flood of explanations never delays a bind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import anyio
import attrs
import structlog
from anyio.lowlevel import checkpoint

from kai.api.plans import Emit, Patch, Reason, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.port import Api, Cluster, Store, Term
from kai.cluster.requests import NotLeading, Request
from kai.roles.scheduler import effects
from kai.roles.scheduler.committing.committer import Committer
from kai.roles.scheduler.committing.orders import create_bind_request
from kai.roles.scheduler.effects import (
    Answered,
    Assume,
    Carried,
    Carry,
    Forget,
    Overlay,
    Send,
    TermBegan,
    TermEnded,
    WakeAt,
    log_signal,
)
from kai.roles.scheduler.publishing import publisher as publications
from kai.roles.scheduler.publishing.publisher import Publisher
from kai.roles.scheduler.reporting.cycle_recorder import Hourly
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.roles.scheduler.settings import SchedulerSettings

_SENDERS: Final = 32
"""Count of concurrent binds and evictions."""
_MOST_EXPLANATIONS: Final = 50_000

HandOver: TypeAlias = Callable[[BindRequest], None]
"""Receives a bind request that the API server confirmed, to carry it out in this process."""

CarryOut: TypeAlias = Callable[[BindRequest, Callable[[str, bool], None]], bool]
"""Carries out a bind without a written bind request in this process, and calls back with the two facts of `Carried`.

Returns False if no binder of this process accepts binds at the moment; then there is no callback.
"""


@attrs.define
class Outbox:
    """Queues and sends the requests of the committer and the publisher."""

    cluster: Cluster
    settings: SchedulerSettings
    committer: Committer
    publisher: Publisher
    metrics: SchedulerMetrics
    hand_over: HandOver | None = None
    carry_out: CarryOut | None = None
    hourly: Hourly | None = None
    """Counts for the hourly log line."""
    _api: Api | None = None
    """Writes in the present term; None outside of a term."""
    _urgent: deque[Send] = attrs.field(factory=deque)
    _quiet: dict[str | int, Send] = attrs.field(factory=dict)
    """Explanations to write, by topic, or by a unique number if they have none."""
    _quiet_count: int = 0
    _left_out: deque[Send] = attrs.field(factory=deque)
    """Explanations dropped for lack of room, until their sender is notified."""
    _is_notifying: bool = False
    _on_the_way: set[str] = attrs.field(factory=set)
    """Topics with a write in flight."""
    _more_urgent: anyio.Event = attrs.field(factory=anyio.Event)
    _more_quiet: anyio.Event = attrs.field(factory=anyio.Event)
    _changed: anyio.Event = attrs.field(factory=anyio.Event)
    _evictions_ended: anyio.Event = attrs.field(factory=anyio.Event)
    _commit_due: float | None = None
    _publish_due: float | None = None

    # --- Terms and events ----------------------------------------------------------------------------------------

    def begin(self, term: Term) -> None:
        """Begin to write in a term."""
        self._api = self.cluster.api.fenced(term)
        self.commit(TermBegan(term))

    def end(self) -> None:
        """Stop all writes; drop the assumptions."""
        # First, so that nothing is put into the queues again by what the committer says to the end of its term.
        self._api = None
        self._urgent.clear()
        self._quiet.clear()
        self.commit(TermEnded())
        self._publish_due = None
        self.publisher.step(publications.Silenced(), self.cluster.clock.monotonic())

    def commit(self, event: effects.Event) -> None:
        """Pass an event to the committer and carry out the effects."""
        # Each step says anew when it is next due. A time of an earlier step would wake a machine that waits for
        # nothing.
        self._commit_due = None
        found = self.committer.step(event, self.cluster.clock.monotonic())
        for effect in found:
            if isinstance(effect, WakeAt):
                self._commit_due = effect.time
                self._changed.set()
            else:
                self._carry_out(effect)
        self._notify_left_out()
        self.metrics.under_way(self.committer.under_way)
        if not self.committer.is_evicting:
            self._evictions_ended.set()

    async def evictions_ended(self) -> None:
        """Wait until the outcome of every eviction is known."""
        if self.committer.is_evicting:
            self._evictions_ended = anyio.Event() if self._evictions_ended.is_set() else self._evictions_ended
            await self._evictions_ended.wait()

    def publish(self, event: publications.Event) -> None:
        """Pass an event to the publisher and carry out the effects."""
        self._publish_due = None
        for effect in self.publisher.step(event, self.cluster.clock.monotonic()):
            if isinstance(effect, WakeAt):
                self._publish_due = effect.time
                self._changed.set()
            else:
                self._carry_out(effect)
        self._notify_left_out()

    def _carry_out(self, effect: effects.Effect) -> None:
        match effect:
            case Send():
                self._put(effect)
            case Carry():
                self._carry(effect)
            case Assume():
                self.cluster.store.assume(effect.obj, effect.until)
            case Forget():
                self.cluster.store.forget(effect.cls, effect.key)
            case Overlay():
                self.cluster.store.overlay(effect.cls, effect.key, effect.annotations)
            case WakeAt():
                pass
            case _:
                log_signal(effect, may_be_away=self.cluster.connectivity.may_be_away)
                self.metrics.take(effect)
                if self.hourly is not None:
                    self.hourly.take(effect)

    def _put(self, send: Send) -> None:
        if self._api is None:
            return
        if isinstance(send.request, Patch | Emit):
            if len(self._quiet) >= _MOST_EXPLANATIONS:
                self._left_out.append(self._quiet.pop(next(iter(self._quiet))))
            self._quiet_count += 1
            # Replaces an unsent write of the same topic: only the latest state is worth a call.
            self._quiet[send.topic or self._quiet_count] = send
            self._more_quiet.set()
        else:
            self._urgent.append(send)
            self._more_urgent.set()

    def _notify_left_out(self) -> None:
        """Notify the senders of dropped requests that these were not written, so that they send them again later."""
        if self._is_notifying:  # the sender's reaction may be dropped as well: avoid recursion
            return
        self._is_notifying = True
        dropped = Refusal(reason=Reason.UNAVAILABLE, message="dropped, too much is to be written")
        try:
            while self._left_out:
                send = self._left_out.popleft()
                if send.topic:
                    self.publish(publications.Written(send.topic, send.request, dropped))
                elif send.ticket:
                    self.commit(Answered(send.ticket, dropped))
        finally:
            self._is_notifying = False

    def _carry(self, carry: Carry) -> None:
        def done(failure: str, is_gone: bool) -> None:  # noqa: FBT001 - the two facts of Carried, in order
            self.commit(Answered(carry.ticket, Carried(failure, is_gone)))

        if self._api is not None and not (self.carry_out is not None and self.carry_out(carry.request, done)):
            # No binder of this process takes it now, so it is written for the one that will.
            self._put(Send(create_bind_request(carry.request), carry.ticket))

    # --- Writers -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until cancelled."""
        self.cluster.connectivity.listen(self._go_on)
        try:
            await self._write_all()
        finally:
            self.cluster.connectivity.unlisten(self._go_on)

    def _go_on(self, _: bool) -> None:  # noqa: FBT001 - the signature of a listener
        self.committer.hurry(self.cluster.clock.monotonic())
        self.commit(effects.Tick())

    async def _write_all(self) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(_SENDERS):
                tasks.start_soon(self._write_urgent)
            for _ in range(max(1, self.settings.status_writers)):
                tasks.start_soon(self._write_quiet)
            tasks.start_soon(self._keep_time)

    async def _write_urgent(self) -> None:
        while True:
            while not self._urgent:
                # All writers wait for the same event: only one that was set may be replaced.
                self._more_urgent = anyio.Event() if self._more_urgent.is_set() else self._more_urgent
                await self._more_urgent.wait()
            await self._write(self._urgent.popleft())

    async def _write_quiet(self) -> None:
        while True:
            send = self._next_quiet()
            while send is None:
                self._more_quiet = anyio.Event() if self._more_quiet.is_set() else self._more_quiet
                await self._more_quiet.wait()
                send = self._next_quiet()
            await self._write_about(send)

    def _next_quiet(self) -> Send | None:
        """Remove and return the oldest write whose topic has none in flight."""
        for topic, send in self._quiet.items():
            if topic not in self._on_the_way:
                del self._quiet[topic]
                # The publisher paused for lack of room, and may go on from here.
                if len(self._quiet) == _MOST_EXPLANATIONS // 2:
                    self._changed.set()
                return send
        return None

    async def _write_about(self, send: Send) -> None:
        """Write a patch or an event, unless the store shows that the API server would refuse it."""
        reply: object = _objection(self.cluster.store, send.request)
        if not send.topic:
            if reply is None:
                await self._write(send)
            elif send.ticket:
                self.commit(Answered(send.ticket, reply))
            return
        self._on_the_way.add(send.topic)
        try:
            reply = await self._write(send) if reply is None else reply
        finally:
            self._on_the_way.discard(send.topic)
            # A writer may have passed over a newer write of this topic while this one was under way, and sleep now.
            self._more_quiet.set()
        again = self._quiet.get(send.topic)
        if again is not None and again.request == send.request and not isinstance(reply, Refusal):
            send = self._quiet.pop(send.topic)  # equal to the write that just succeeded: it needs no second one
        self.publish(publications.Written(send.topic, send.request, reply))

    async def _write(self, send: Send) -> object:
        api = self._api
        # The term may have ended while the write waited in the queue.
        reply: object = NotLeading() if api is None else await api.perform(send.request)
        if send.ticket:
            self.commit(Answered(send.ticket, reply))
            if isinstance(reply, BindRequest) and self.hand_over is not None:
                self.hand_over(reply)
        is_logged_here = not send.ticket or isinstance(send.request, Patch | Emit)  # the committer signals all others
        if is_logged_here and isinstance(reply, Refusal) and not isinstance(reply, NotLeading):
            what = type(send.request).__name__.lower()
            log = structlog.get_logger()
            # An object that changed or went needs no action, and an outage is logged elsewhere.
            is_usual = reply.reason in {Reason.NOT_FOUND, Reason.CONFLICT} or self.cluster.connectivity.may_be_away
            write = log.debug if is_usual else log.info
            write("not written", what=what, why=reply.why)
        return reply

    async def _keep_time(self) -> None:
        clock = self.cluster.clock
        while True:
            # Replaced before the times are read: a change from here on sets the new event, so that none is slept
            # through.
            self._changed = anyio.Event()
            now = clock.monotonic()
            if self._commit_due is not None and self._commit_due <= now:
                self.commit(effects.Tick())
            elif self._publish_due is not None and self._publish_due <= now and self._has_room:
                self.publish(publications.TimePassed())
                await checkpoint()  # the publisher works in steps and may be due again: let other tasks run in between
            else:
                await _wait(self._changed, (self._commit_due, self._publish_due if self._has_room else None), now)

    @property
    def _has_room(self) -> bool:
        """Whether the publisher may go on: writes that are dropped for lack of room would have to be repeated."""
        return len(self._quiet) <= _MOST_EXPLANATIONS // 2


def _objection(store: Store, request: Request) -> Refusal | None:
    """Return why the API server would refuse a patch, as far as the store knows: the object is gone or changed."""
    if not isinstance(request, Patch):
        return None
    metadata = request.patch.get("metadata", {})
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if not uid:
        return None
    found = store.get(request.ref.cls, request.ref.name, request.ref.namespace)
    if found is None or found.metadata.uid != uid:
        return Refusal(reason=Reason.NOT_FOUND, message=f"{request.ref}: gone before it was written")
    if version and found.metadata.resource_version != version:
        return Refusal(reason=Reason.CONFLICT, message=f"{request.ref}: changed before it was written")
    return None


async def _wait(event: anyio.Event, due: Iterable[float | None], now: float) -> None:
    """Wait for an event, or until the first of the times ``due``."""
    pauses = [max(0.0, time - now) for time in due if time is not None]
    with anyio.move_on_after(min(pauses) if pauses else None):
        await event.wait()
