"""How many requests are on the way at once, and which may go next: a machine that adapts to what the server bears.

The window widens while answers come quickly and narrows when the server throttles, fails or slows down: additive
increase, multiplicative decrease. It keeps a width of eight, because a far server is slow without being busy, and a
server that is busy says for how long it wants to be left alone. Requests with the same key go one after the other, in
the order in which they were offered.

In a peak of load, when urgent requests come thick and fast or are answered slowly, deferrable requests stand back: a
bind would wait while the server works on a report. The longer deferrable requests have waited, the more of them go
anyway, and while urgent requests queue, an eighth of the window goes to those before them.

Holds: at most `widest` requests are on the way, half of them at most deferrable ones; no request is sent again before
the time that the server asked for, and none at all for up to 30 seconds of it where the server wants to be left alone.
Where it is only about a request that it asks for patience, those with the same key wait as well, and no others.
Whatever was offered is sent at last, however long a peak of load lasts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from typing import Final

import attrs

from kai.basics.deadlines import Deadlines

_CUT_THROTTLED: Final = 0.5
_CUT_FAILED: Final = 0.7
_CUT_SLOW: Final = 0.8
_FLOOR: Final = 8.0
"""No cut makes the window narrower than this: 2 s for each answer still leave four binds a second."""
_QUICK: Final = 0.05
_SLOW_FACTOR: Final = 6.0
_FORGETTING: Final = 1.02
_PAUSE: Final = 1.0
_LONGEST_HOLD: Final = 30.0
"""Seconds for which nothing at all is sent; then another request finds out whether the server bears more."""
_HALF_LIFE: Final = 0.5
_PEAK: Final = 16.0
"""So many urgent requests, each half as much after every half-life, are a peak of load: about 22 a second."""
_BUSY: Final = 4
"""So many urgent requests on the way are a peak of load as well: the server does not keep up with them."""
_AGAIN: Final = 0.25
_HELD_BACK: Final = 4.0
"""How long one deferrable request stands back, and how much longer each further one beside it."""
_OVERDUE_PART: Final = 8
"""Urgent requests that queue leave this part of the window to deferrable ones that have waited for too long."""


@attrs.define
class _Ticket:
    """A request that was offered."""

    number: int
    key: Hashable
    urgent: bool
    offered_at: float = 0.0
    sent_at: float = -1.0


@attrs.define
class Window:
    """The requests that wait and those on the way.

    Units: times in seconds of a clock that does not go back.
    """

    widest: int = 64
    width: float = 16.0
    in_flight: int = 0
    _tickets: dict[int, _Ticket] = attrs.field(factory=dict)
    _urgent: deque[_Ticket] = attrs.field(factory=deque)
    _deferrable: deque[_Ticket] = attrs.field(factory=deque)
    _behind: dict[Hashable, deque[_Ticket]] = attrs.field(factory=dict)
    """Who waits for an earlier request with the same key; a key that is there is taken."""
    _resting: Deadlines[int] = attrs.field(factory=Deadlines)
    """Who was throttled and is in no lane until its time has come: before that the server does not want it again."""
    _deferrable_in_flight: int = 0
    _load: float = 0.0
    """Urgent requests that were sent, as they count at `_loaded_at`."""
    _loaded_at: float = 0.0
    _hold_until: float = 0.0
    _cut_at: float = -1.0
    _usual: float = 0.0
    """The latency of quick answers."""
    _next: int = 0

    def offer(self, key: Hashable, now: float, *, urgent: bool = True) -> int:
        """Queue a request and return its number."""
        ticket = _Ticket(self._next, key, urgent, now)
        self._next += 1
        self._tickets[ticket.number] = ticket
        behind = self._behind.get(key)
        if behind is None:
            self._behind[key] = deque()
            self._lane(ticket).append(ticket)
        else:
            behind.append(ticket)
        return ticket.number

    def take(self, now: float) -> tuple[int, ...]:
        """Return the requests that are to be sent now."""
        if now < self._hold_until:
            return ()
        self._wake(now)
        taken: list[int] = []
        width = max(1, int(self.width))
        while self.in_flight < width:
            if self._urgent and not self._is_overdue(now):
                ticket = self._urgent.popleft()
                self._warm(now)
            elif self._deferrable and (self._urgent or self._deferrable_in_flight < self._deferrable_width(now)):
                ticket = self._deferrable.popleft()
                self._deferrable_in_flight += 1
            else:
                break
            ticket.sent_at = now
            self.in_flight += 1
            taken.append(ticket.number)
        return tuple(taken)

    def next_due(self, number: int, now: float) -> float | None:
        """Return when to call `take` again while request `number` waits, if no other request begins or ends before.

        None if only the beginning or the end of another request can let it go.
        """
        if now < self._hold_until:
            return self._hold_until
        if number in self._resting:
            return self._resting[number]
        if self._tickets[number].urgent or not self._deferrable:
            return None
        width = max(1, int(self.width))
        has_room = self.in_flight < width and self._deferrable_in_flight < max(1, width // 2) and not self._is_busy
        calm = self._loaded_at + _HALF_LIFE * math.log2(max(1.0, self._load / _PEAK))
        turn = self._turn_of_deferrable
        return max(now if has_room else now + _AGAIN, min(calm, turn))

    @property
    def waiting(self) -> int:
        """Return how many requests were offered and are not on the way."""
        return len(self._tickets) - self.in_flight

    def answered(self, number: int, now: float, *, failed: bool = False) -> None:
        """Take the end of a request, whatever came of it, except for throttling.

        `failed` says that the server could not do its work: an answer of 500 or more, or none at all.
        """
        ticket = self._land(number)
        self._finish(ticket)
        if failed:
            self._cut(_CUT_FAILED, ticket.sent_at, now)
        else:
            self._adapt(now - ticket.sent_at, ticket.sent_at, now)

    def throttled(self, number: int, now: float, retry_after: float | None, *, alone: bool = False) -> None:
        """Take it that the server did nothing and asks for patience; the request goes again before all others.

        ``alone``: it asks for it with this request only, and may bear any other.
        """
        ticket = self._land(number)
        wait = _PAUSE if retry_after is None else retry_after
        if not alone:
            self._cut(_CUT_THROTTLED, ticket.sent_at, now)
            self._hold_until = max(self._hold_until, now + min(wait, _LONGEST_HOLD))
        ticket.sent_at = -1.0
        self._resting[number] = now + wait

    def withdraw(self, number: int) -> None:
        """Forget a request, sent or not: its caller does not wait any more."""
        ticket = self._tickets[number]
        if ticket.sent_at >= 0:
            self._land(number)
            self._finish(ticket)
            return
        lane, behind = self._lane(ticket), self._behind[ticket.key]
        if ticket in behind:
            behind.remove(ticket)
            del self._tickets[number]
        elif self._resting.pop(number, None) is not None:
            self._finish(ticket)
        else:
            lane.remove(ticket)
            self._finish(ticket)

    def _wake(self, now: float) -> None:
        """Let those go again, before all others, whose time has come."""
        for number in reversed(tuple(self._resting.take(now))):
            ticket = self._tickets[number]
            self._lane(ticket).appendleft(ticket)

    def _warm(self, now: float) -> None:
        self._load = self._load_at(now) + 1.0
        self._loaded_at = now

    def _load_at(self, now: float) -> float:
        return self._load * math.exp2(-max(0.0, now - self._loaded_at) / _HALF_LIFE)

    @property
    def _is_busy(self) -> bool:
        return self.in_flight - self._deferrable_in_flight >= _BUSY

    @property
    def _turn_of_deferrable(self) -> float:
        """Return when the first deferrable request goes in a peak of load."""
        return self._deferrable[0].offered_at + _HELD_BACK * (self._deferrable_in_flight + 1)

    def _is_overdue(self, now: float) -> bool:
        """Return whether a deferrable request goes before urgent ones."""
        most = max(1, int(self.width) // _OVERDUE_PART)
        return bool(self._deferrable) and self._deferrable_in_flight < most and now >= self._turn_of_deferrable

    def _deferrable_width(self, now: float) -> int:
        """Return how many deferrable requests may be on the way."""
        half = max(1, int(self.width) // 2)
        if self._load_at(now) <= _PEAK and not self._is_busy:
            return half
        return min(half, int((now - self._deferrable[0].offered_at) / _HELD_BACK))

    def _lane(self, ticket: _Ticket) -> deque[_Ticket]:
        return self._urgent if ticket.urgent else self._deferrable

    def _land(self, number: int) -> _Ticket:
        ticket = self._tickets[number]
        self.in_flight -= 1
        if not ticket.urgent:
            self._deferrable_in_flight -= 1
        return ticket

    def _finish(self, ticket: _Ticket) -> None:
        del self._tickets[ticket.number]
        behind = self._behind[ticket.key]
        if behind:
            following = behind.popleft()
            self._lane(following).append(following)
        else:
            del self._behind[ticket.key]

    def _adapt(self, latency: float, sent_at: float, now: float) -> None:
        self._usual = latency if not self._usual else min(self._usual * _FORGETTING, latency)
        if latency > max(_QUICK, self._usual * _SLOW_FACTOR):
            self._cut(_CUT_SLOW, sent_at, now)
        elif self._urgent or self._deferrable:  # a window that is not used tells nothing about a wider one
            step = 1.0 if self._cut_at < 0 else 1.0 / self.width
            self.width = min(float(self.widest), self.width + step)

    def _cut(self, factor: float, sent_at: float, now: float) -> None:
        """Narrow the window, once for all requests that were on the way together."""
        if sent_at >= self._cut_at:
            self.width = max(min(_FLOOR, self.width), self.width * factor)
            self._cut_at = now
