"""Sends calls through the window: in order, again where that is safe, and not at all after a term.

It is safe to repeat a call that the server throttled or never received, and any read. A write whose answer was lost is
not repeated: that is an outcome of its own. While the server is away nothing is sent, and a call waits a little for it
to come back. A write that is refused for lack of rights is retried for some seconds, since a server that just started
refuses everything.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from kai.cluster.port import Clock, Draw
from kai.cluster.requesting.window import Window
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Transport, always, is_throttled, wait_of, wants_rest
from kai.cluster.transport.reachability import Reachability, Rights, why_forbidden

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

PATIENCE: Final = 60.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_READ_ATTEMPTS: Final = 4
_AWAY: Final = 15.0
"""How long a call waits for a server that is away; then its caller may check whether it still makes sense.

Units: seconds.
"""
_RIGHTS_PAUSES: Final = (1.5, 3.0, 6.0)


@attrs.frozen
class Label:
    """The labels under which a call is counted."""

    verb: str
    what: str
    """The plural of a kind, with a subresource after a slash."""


_FOREIGN: Final = Label("get", "foreign")
"""For refused reads of objects that tenants named: tenants determine their number, so no alert must depend on it."""


@attrs.frozen
class Withheld:
    """A call that was not sent, because the term of its decision is over."""


@attrs.define
class _End:
    """How a call ended that had a place in the window."""

    number: int
    failed: bool = False
    is_throttled: bool = False
    """Whether it ended while the server asked for a delay."""


@attrs.define
class Sender:
    """Sends the calls of a process, except for watches and the lease, which have connections of their own."""

    transport: Transport
    clock: Clock
    draw: Draw
    window: Window
    reachability: Reachability
    rights: Rights
    sent: Counter[tuple[str, str, int, str]] = attrs.field(factory=Counter)
    """Count of answers by verb, resource, HTTP status (0: no answer) and, for 403, the cause of the refusal."""
    _turns: dict[int, anyio.Event] = attrs.field(factory=dict)
    """Events of calls that wait for their turn."""
    _admitted: set[int] = attrs.field(factory=set)
    """Calls whose turn it is, until they end or are throttled."""
    _bounded: dict[int, tuple[Call, anyio.CancelScope]] = attrs.field(factory=dict)
    """Calls in flight that may be sent only within a term."""

    async def send(
        self,
        call: Call,
        label: Label,
        key: Hashable,
        *,
        may_send: Callable[[], bool] = always,
        urgent: bool = True,
    ) -> Answer | NoAnswer | Withheld:
        """Return the answer to a call; calls with the same key are sent one after the other, in order.

        ``may_send`` is checked when the call's turn comes, and by the transport again just before the first byte. If it
        turns false while the call is in flight, `cut` gives up the call together with its connection.
        """
        if may_send is not always:
            call = attrs.evolve(call, may_send=may_send)
        # A read has no effect, so it may be repeated whatever became of the first one.
        is_read = call.method == "GET"
        started, attempt, refused = self.clock.monotonic(), 0, 0
        with self._offered(key, urgent=urgent) as end:
            while True:
                await self._turn(end.number)
                away = await self._away()
                if away is not None:
                    return away
                if not may_send():
                    return Withheld()
                answer = await self._exchange(call)
                attempt += 1
                # The term ended before the first byte: unlike a lost answer, this certainly had no effect.
                if isinstance(answer, NoAnswer) and not answer.was_sent and not may_send():
                    return Withheld()
                self._count(_FOREIGN if _is_foreign_refusal(call, answer) else label, answer)
                now = self.clock.monotonic()
                is_late = now - started > PATIENCE
                if is_throttled(answer):
                    wait = wait_of(answer, self.clock.now()) if isinstance(answer, Answer) else None
                    self._throttled(end.number, wait, alone=isinstance(answer, Answer) and not wants_rest(answer))
                    if now - started + (wait or 0.0) > PATIENCE:
                        end.is_throttled = True
                        return answer
                    continue
                if not is_read and refused < len(_RIGHTS_PAUSES) and self._may_be_allowed(answer):
                    await self.clock.sleep(_RIGHTS_PAUSES[refused])
                    refused += 1
                    continue
                if is_late or not _may_repeat(answer, attempt, is_read=is_read):
                    end.failed = not isinstance(answer, Answer) or answer.status >= 500
                    return answer
                await self.clock.sleep(self._pause(attempt))

    def cut(self) -> None:
        """Give up calls in flight that may no longer be sent: their connections are closed, their outcomes unknown."""
        for call, scope in self._bounded.values():
            # `cancel` only marks the scope: its entry leaves the dictionary later, not during this loop.
            if not call.may_send():
                scope.cancel()

    async def _exchange(self, call: Call) -> Answer | NoAnswer:
        if call.may_send is always:
            return await self.transport.request(call)
        with anyio.CancelScope() as scope:
            self._bounded[id(call)] = (call, scope)
            try:
                return await self.transport.request(call)
            finally:
                del self._bounded[id(call)]
        # Some bytes may have left: only a read can tell whether the write took effect.
        return NoAnswer(was_sent=True, message="the term ended before the answer came")

    async def _away(self) -> NoAnswer | None:
        """Wait until the server can be reached, for a limited time."""
        if self.reachability.away_since is None:
            return None
        with anyio.move_on_after(_AWAY):
            await self.reachability.opened()
            return None
        return NoAnswer(was_sent=False, message=self.reachability.problem)

    def _may_be_allowed(self, answer: Answer | NoAnswer) -> bool:
        return isinstance(answer, Answer) and answer.status == 403 and self.rights.may_come(answer)

    @contextmanager
    def _offered(self, key: Hashable, *, urgent: bool) -> Iterator[_End]:
        """Hold a place in the window from the offer to the end, however the call ends."""
        number = self.window.offer(key, self.clock.monotonic(), urgent=urgent)
        end = _End(number)
        done = False
        try:
            yield end
            done = True
        finally:
            self._admitted.discard(number)
            if done and not end.is_throttled:
                self.window.answered(number, self.clock.monotonic(), failed=end.failed)
            else:
                self.window.withdraw(number)
            self._admit()

    async def _turn(self, number: int) -> None:
        """Wait until a call may be sent."""
        self._admit()
        try:
            while number not in self._admitted:
                turn = self._turns[number] = anyio.Event()
                now = self.clock.monotonic()
                due = self.window.next_due(number, now)
                if due is None:
                    await turn.wait()
                else:
                    with anyio.move_on_after(due - now + 0.001):
                        await turn.wait()
                    self._admit()
        finally:
            self._turns.pop(number, None)

    def _admit(self) -> None:
        for number in self.window.take(self.clock.monotonic()):
            self._admitted.add(number)
            if number in self._turns:
                self._turns[number].set()

    def _throttled(self, number: int, wait: float | None, *, alone: bool = False) -> None:
        self._admitted.discard(number)
        # Slightly later than the server asked, with jitter: calls that waited together must not return together.
        jitter = self.draw() * _FIRST_PAUSE
        rest = None if wait is None else wait + jitter
        self.window.throttled(number, self.clock.monotonic(), rest, alone=alone)
        if not alone:
            # The others now wait for a point in time. This call may give up before it, so wake them to wait by
            # themselves.
            for turn in self._turns.values():
                turn.set()

    def _pause(self, attempt: int) -> float:
        longest = min(_FIRST_PAUSE * 2.0**attempt, _LONGEST_PAUSE)
        return longest * (0.5 + 0.5 * self.draw())

    def _count(self, label: Label, answer: Answer | NoAnswer) -> None:
        status = answer.status if isinstance(answer, Answer) else 0
        why = why_forbidden(answer) if isinstance(answer, Answer) and status == 403 else ""
        self.sent[label.verb, label.what, status, why] += 1


def _is_foreign_refusal(call: Call, answer: Answer | NoAnswer) -> bool:
    """Return whether the server refuses to let us read an object that a tenant named."""
    return call.is_foreign and isinstance(answer, Answer) and answer.status == 403


def _may_repeat(answer: Answer | NoAnswer, attempt: int, *, is_read: bool) -> bool:
    """Return whether a call may be repeated at once: it had no effect, or cannot have one."""
    if attempt >= _READ_ATTEMPTS:
        return False
    if isinstance(answer, NoAnswer):
        return is_read or not answer.was_sent
    return is_read and answer.status >= 500
