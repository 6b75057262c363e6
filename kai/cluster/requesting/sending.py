"""Sending calls through the window: in turn, again where that is safe, and not at all once a term is over.

Safe to send again is what the server throttled or never received; a read is always. A write whose answer was lost is
not: that is an answer of its own. While the server is away nothing is sent: a call waits a little for it to come back.
A write that our rights do not allow is sent again for some seconds, since a server that has just started refuses
everything.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from kai.cluster.port import Clock, Draw
from kai.cluster.requesting.window import Window
from kai.cluster.transport.answers import is_throttled, wait_of, wants_rest
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Transport, always
from kai.cluster.transport.reachability import Reachability, Rights, why_forbidden

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

PATIENCE: Final = 60.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_READ_ATTEMPTS: Final = 4
_AWAY: Final = 15.0
"""How long a call waits for a server that is away; then its caller may check whether it still makes sense."""
_RIGHTS_PAUSES: Final = (1.5, 3.0, 6.0)


@attrs.frozen
class Label:
    """How a call is counted."""

    verb: str
    what: str
    """The plural of a kind, with a subresource behind a slash."""


_FOREIGN: Final = Label("get", "foreign")
"""Reads that were refused and that others had asked for: how many there are is theirs to choose, and no alert."""


@attrs.frozen
class Withheld:
    """A call that was not sent, because the term in which it was decided is over."""


@attrs.define
class _End:
    """How a call in the window ended."""

    number: int
    failed: bool = False
    is_throttled: bool = False
    """Whether it ended while the server wanted it to wait."""


@attrs.define
class Sender:
    """Sends the calls of a process, except for watches and the lease, which have their own ways."""

    transport: Transport
    clock: Clock
    draw: Draw
    window: Window
    reachability: Reachability
    rights: Rights
    sent: Counter[tuple[str, str, int, str]] = attrs.field(factory=Counter)
    """How many calls were answered, by verb, what, HTTP status (0: no answer), and for 403 by what refused them."""
    _turns: dict[int, anyio.Event] = attrs.field(factory=dict)
    """Calls that wait for their turn."""
    _admitted: set[int] = attrs.field(factory=set)
    """Calls whose turn it is, until they end or are throttled."""
    _bounded: dict[int, tuple[Call, anyio.CancelScope]] = attrs.field(factory=dict)
    """Calls under way that may be sent for a time only."""

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

        ``may_send`` is asked when it is a call's turn, and by the transport again in the moment of sending. A call that
        is under way when its time is over (`cut`) is given up together with its connection.
        """
        if may_send is not always:
            call = attrs.evolve(call, may_send=may_send)
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
        """Give up the calls under way whose time is over: their connections are closed, their outcome is unknown."""
        for call, scope in self._bounded.values():
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
        return NoAnswer(was_sent=True, message="the term ended before the answer came")

    async def _away(self) -> NoAnswer | None:
        """Wait until the server can be reached, but not for long."""
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
        """Hold a place in the window from the offer to the end, whatever that end is."""
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
        # A little later than asked, each by another bit, so that what waited together does not come back together.
        jitter = self.draw() * _FIRST_PAUSE
        rest = None if wait is None else wait + jitter
        self.window.throttled(number, self.clock.monotonic(), rest, alone=alone)
        if not alone:
            # By now they wait for a time: this call may give up before it, and then no other reminds them.
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
    """Return whether the server refuses to let us read what others pointed at."""
    return call.is_foreign and isinstance(answer, Answer) and answer.status == 403


def _may_repeat(answer: Answer | NoAnswer, attempt: int, *, is_read: bool) -> bool:
    """Return whether a call may be sent again at once: nothing was done by it, or nothing can be."""
    if attempt >= _READ_ATTEMPTS:
        return False
    if isinstance(answer, NoAnswer):
        return is_read or not answer.was_sent
    return is_read and answer.status >= 500
