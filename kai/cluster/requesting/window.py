"""The congestion window: how many requests are in flight, and which goes next. A state machine.

The window widens while answers come quickly, and narrows when the server throttles, fails or slows down: additive
increase, multiplicative decrease. Its minimum is eight, because a distant server is slow without being busy, and a busy
server says how long it wants no requests. Requests with the same key are sent one after the other, in the order in
which they were offered.

There is a peak of load as long as several urgent requests wait or are in flight together, and for some tenths of a
second afterwards. In a peak deferrable requests stand back: otherwise a bind would wait while the server handles a
status report. The longer deferrable requests have waited, the more of them are sent anyway, and while urgent requests
queue, an eighth of the window goes to overdue ones first.

Holds: at most ``widest`` requests are in flight, at most half of them deferrable. No request is repeated before the
time that the server asked for. If the server asks for a pause as a whole, nothing is sent for up to 30 seconds of it;
if it asks for a pause with one request, only those with the same key wait as well. Every offered request is sent in the
end, however long a peak of load lasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

import attrs

from kai.basics.deadlines import Deadlines

_CUT_THROTTLED: Final = 0.5
_CUT_FAILED: Final = 0.7
_CUT_SLOW: Final = 0.8
_FLOOR: Final = 8.0
"""Minimum width: with answers after 2 s it still allows four binds a second."""
_QUICK: Final = 0.05
_SLOW_FACTOR: Final = 6.0
_FORGETTING: Final = 1.02
_PAUSE: Final = 1.0
_LONGEST_HOLD: Final = 30.0
"""Limit of a pause of everything; then one request finds out whether the server accepts more.

Units: seconds.
"""
_BUSY: Final = 4
"""Count of urgent requests, waiting or in flight, that makes a peak: the server does not keep up with them."""
_CALM: Final = 0.3
"""How long a peak lasts beyond its last moment: under load the next binds come with the next cycle.

Units: seconds.
"""
_HELD_BACK: Final = 4.0
"""How long one deferrable request stands back in a peak, and how much longer each further one in flight.

Units: seconds.
"""
_OVERDUE_PART: Final = 8
"""Fraction of the window for overdue deferrable requests while urgent ones queue: one part in eight."""


@attrs.define
class _Ticket:
    """A request in the window."""

    number: int
    key: Hashable
    urgent: bool
    offered_at: float = 0.0
    sent_at: float = -1.0


@attrs.define
class Window:
    """The requests that wait and those in flight.

    Units: times in seconds of a monotonic clock.
    """

    widest: int = 64
    width: float = 16.0
    in_flight: int = 0
    _tickets: dict[int, _Ticket] = attrs.field(factory=dict)
    _urgent: deque[_Ticket] = attrs.field(factory=deque)
    _deferrable: deque[_Ticket] = attrs.field(factory=deque)
    _behind: dict[Hashable, deque[_Ticket]] = attrs.field(factory=dict)
    """Requests that wait for an earlier one with the same key; a present key is in use."""
    _resting: Deadlines[int] = attrs.field(factory=Deadlines)
    """Throttled requests, with the time until which the server does not want them again."""
    _deferrable_in_flight: int = 0
    _peak_until: float = 0.0
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
        """Return the requests to send now."""
        if now < self._hold_until:
            return ()
        self._wake(now)
        self._note_peak(now)
        taken: list[int] = []
        width = max(1, int(self.width))
        while self.in_flight < width:
            if self._urgent and not self._is_overdue(now):
                ticket = self._urgent.popleft()
            elif self._deferrable and (self._urgent or self._deferrable_in_flight < self._deferrable_width(now)):
                # While urgent requests wait, this branch is reached only for an overdue one, whose limit was checked.
                ticket = self._deferrable.popleft()
                self._deferrable_in_flight += 1
            else:
                break
            ticket.sent_at = now
            self.in_flight += 1
            taken.append(ticket.number)
        return tuple(taken)

    def next_due(self, number: int, now: float) -> float | None:
        """Return when to call `take` again while request ``number`` waits, if no other request begins or ends before.

        None if only the begin or end of another request can release it.
        """
        if now < self._hold_until:
            return self._hold_until
        if number in self._resting:
            return self._resting[number]
        if self._tickets[number].urgent or not self._deferrable:
            return None
        width = max(1, int(self.width))
        has_room = self.in_flight < width and self._deferrable_in_flight < max(1, width // 2)
        # Without room, the end of a request that makes some may prolong the peak, and so release nothing.
        return max(now if has_room else now + _CALM, min(self._peak_until, self._turn_of_deferrable))

    @property
    def waiting(self) -> int:
        """Count of requests that are not in flight."""
        return len(self._tickets) - self.in_flight

    def answered(self, number: int, now: float, *, failed: bool = False) -> None:
        """Record the end of a request other than by throttling.

        ``failed``: the server could not do its work: a status of 500 or more, or no answer.
        """
        self._note_peak(now)
        ticket = self._land(number)
        self._finish(ticket)
        if failed:
            self._cut(_CUT_FAILED, ticket.sent_at, now)
        else:
            self._adapt(now - ticket.sent_at, ticket.sent_at, now)

    def throttled(self, number: int, now: float, retry_after: float | None, *, alone: bool = False) -> None:
        """Record that the server did nothing and asked for a delay; the request is sent again before all others.

        ``alone``: the delay concerns this request only, and others may be sent.
        """
        ticket = self._land(number)
        wait = _PAUSE if retry_after is None else retry_after
        if not alone:
            self._cut(_CUT_THROTTLED, ticket.sent_at, now)
            self._hold_until = max(self._hold_until, now + min(wait, _LONGEST_HOLD))
        # As if not sent, so that the latency of its answer counts from the second time.
        ticket.sent_at = -1.0
        self._resting[number] = now + wait

    def withdraw(self, number: int) -> None:
        """Remove a request, sent or not, because its caller no longer waits."""
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
        """Put throttled requests whose time has come in front of all others."""
        # Each goes to the front, so the one that is due first goes there last.
        for number in reversed(tuple(self._resting.take(now))):
            ticket = self._tickets[number]
            self._lane(ticket).appendleft(ticket)

    def _note_peak(self, now: float) -> None:
        if len(self._urgent) + self.in_flight - self._deferrable_in_flight >= _BUSY:
            self._peak_until = now + _CALM

    @property
    def _turn_of_deferrable(self) -> float:
        """When the first deferrable request is sent in spite of a peak."""
        return self._deferrable[0].offered_at + _HELD_BACK * (self._deferrable_in_flight + 1)

    def _is_overdue(self, now: float) -> bool:
        """Return whether a deferrable request is sent before urgent ones."""
        most = max(1, int(self.width) // _OVERDUE_PART)
        return bool(self._deferrable) and self._deferrable_in_flight < most and now >= self._turn_of_deferrable

    def _deferrable_width(self, now: float) -> int:
        """Return how many deferrable requests may be in flight."""
        half = max(1, int(self.width) // 2)
        if now >= self._peak_until:
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
        # The usual latency rises by 2 % with each answer, so a server that stays slower is accepted in the end.
        self._usual = latency if not self._usual else min(self._usual * _FORGETTING, latency)
        if latency > max(_QUICK, self._usual * _SLOW_FACTOR):
            self._cut(_CUT_SLOW, sent_at, now)
        elif self._urgent or self._deferrable:  # a window that is not full says nothing about a wider one
            step = 1.0 if self._cut_at < 0 else 1.0 / self.width
            self.width = min(float(self.widest), self.width + step)

    def _cut(self, factor: float, sent_at: float, now: float) -> None:
        """Narrow the window, once for all requests that were in flight together."""
        if sent_at >= self._cut_at:
            # A window that was set narrower than the floor must not grow by a cut.
            self.width = max(min(_FLOOR, self.width), self.width * factor)
            self._cut_at = now
