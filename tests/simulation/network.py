"""The way of one process to the API server: how long it takes, and what goes wrong on it."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from kai.cluster.transport.calls import Answer, Call, NoAnswer, Stream
from tests.doubles.rest_server.replies import NO_SUCH_PATH
from tests.doubles.rest_server.server import Server
from tests.doubles.rest_server.watch import Watch

if TYPE_CHECKING:
    from tests.doubles.rest_server.storage import Change

_BOOKMARKS: Final = 55.0
_DONE: Final = 0.7
"""How often a write was done whose answer is lost."""


@attrs.define(eq=False)
class Weather:
    """What happens to the calls of one process; all at rest where nothing is wrong.

    Probabilities are for each call. `late` is how often the server does a write only after its client has given up.
    """

    latency: float = 0.004
    errors: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    throttled: float = 0.0
    cuts: float = 0.0
    lag: float = 0.004
    doubles: float = 0.0
    forbidden: float = 0.0
    expiries: float = 0.0
    """How often a watch is told, after a bookmark, that it is too old."""
    behind: str = ""
    """The plural of a kind whose changes show much later than those of all others."""
    is_leaseless: bool = False
    """Whether nothing is heard of the lease, and nothing is done about it."""
    is_away: bool = False
    is_silent: bool = False
    is_dead: bool = False
    """Whether the process was killed: what it would still send never leaves it."""


@attrs.define(eq=False)
class Wire:
    """What all processes share: the server, and the watches that are open."""

    server: Server
    draw: random.Random
    streams: dict[Any, list[_Stream]] = attrs.field(factory=dict)
    is_down: bool = False
    is_headless: bool = False
    """Whether the servers of etcd have no leader: nothing is written, and what is read comes from caches."""
    traps: list[Callable[[str, str, str, int], None]] = attrs.field(factory=list)
    """Are told of each call (process, method, path) before it is sent (0), once it is done (1) and answered (2)."""
    failing: str = ""
    """A part of the paths whose writes the server fails to do, as if one kind's storage were broken."""
    unserved: str = ""
    """The plural of a kind that is not served, as if its definition were missing."""
    sent: float = 0.0
    """When the call that the server does now was sent, by the clock of the loop."""
    on_send: Callable[[str, Call], None] = lambda *_: None
    on_answer: Callable[[str, Call, Answer], None] = lambda *_: None
    on_outcome: Callable[[str, Call, Answer | NoAnswer | None], None] = lambda *_: None
    """Is told how a call ended for its process; None for one that it gave up."""

    def __attrs_post_init__(self) -> None:
        self.server.storage.listeners.append(self._changed)

    def _changed(self, change: Change) -> None:
        for stream in tuple(self.streams.get(change.served, ())):
            stream.notice()

    def restart(self) -> None:
        """Cut all streams, as the end of a server does."""
        for streams in self.streams.values():
            for stream in tuple(streams):
                stream.cut()

    def forsake(self, weather: Weather) -> None:
        """Let the connections of a process stand, and bring nothing any more."""
        for streams in self.streams.values():
            for stream in streams:
                stream.forsake(weather)


@attrs.define(eq=False)
class Line:
    """The transport of one process; see `kai.cluster.transport.calls.Transport`."""

    process: str
    wire: Wire
    weather: Weather
    outside: contextvars.Context = attrs.field(factory=contextvars.Context)
    """What happens on the server's side is in no process that could be frozen."""

    async def request(self, call: Call) -> Answer | NoAnswer:
        """Send a request and return the response."""
        if self._is_gone() or not call.may_send():
            return NoAnswer(was_sent=False, message="not sent")
        self._spring(call, 0)
        if self._is_gone():  # that was a trap
            return NoAnswer(was_sent=False, message="not sent")
        self.wire.on_send(self.process, call)
        outcome = None
        try:
            outcome = await self._exchange(call)
        finally:
            self.wire.on_outcome(self.process, call, outcome)
        self._spring(call, 2)
        return outcome

    def _is_gone(self) -> bool:
        return self.weather.is_dead

    def _spring(self, call: Call, when: int) -> None:
        for trap in tuple(self.wire.traps):
            trap(self.process, call.method, call.path, when)

    async def _exchange(self, call: Call) -> Answer | NoAnswer:
        weather, draw, loop = self.weather, self.wire.draw, asyncio.get_running_loop()
        if weather.is_away or self.wire.is_down:
            await asyncio.sleep(self._latency())
            return NoAnswer(was_sent=False, message="connection refused")
        if weather.is_leaseless and "/leases" in call.path:
            await asyncio.sleep(call.timeout)
            return NoAnswer(was_sent=True, message=f"no answer for {call.timeout:g} s")
        is_write = call.method != "GET"
        there = self._latency()
        if is_write and draw.random() < weather.late:
            there += draw.uniform(5.0, 40.0)
        arrived: asyncio.Future[Answer | None] = loop.create_future()
        is_lost, is_done = is_write and draw.random() < weather.lost, draw.random() < _DONE
        if is_done or not is_lost:
            loop.call_later(there, self._deliver, call, arrived, loop.time(), context=self.outside)
        else:
            loop.call_later(there, _settle, arrived, None, context=self.outside)
        try:
            async with asyncio.timeout(call.timeout):
                answer = await arrived
        except TimeoutError:
            return NoAnswer(was_sent=True, message=f"no answer for {call.timeout:g} s")
        if answer is None or is_lost:
            return NoAnswer(was_sent=True, message="the connection was cut")
        return answer

    def _deliver(self, call: Call, arrived: asyncio.Future[Answer | None], sent: float) -> None:
        """Let the server do what is asked, whether its client still waits or not."""
        answer = self._spoilt(call)
        if answer is None and not self.wire.is_down:
            self.wire.sent = sent
            answer = self.wire.server.answer(call, self.process)
            self.wire.on_answer(self.process, call, answer)
            self._spring(call, 1)
        loop = asyncio.get_running_loop()
        loop.call_later(self._latency(), _settle, arrived, answer, context=self.outside)

    def _spoilt(self, call: Call) -> Answer | None:
        """Return an answer that does not come from the server's memory; None if the server works."""
        weather, draw = self.weather, self.wire.draw
        if draw.random() < weather.errors:
            return _refusal(draw.choice((500, 503)), "InternalError")
        if draw.random() < weather.throttled:
            # In plain words, as priority and fairness has it: a Status would be about the one request.
            words = b"Too many requests, please try again later.\n"
            return Answer(status=429, body=words, retry_after=str(draw.randint(1, 3)))
        if call.method != "GET" and draw.random() < weather.forbidden:
            return _refusal(403, "Forbidden")
        if call.method != "GET" and self.wire.is_headless:
            return _refusal(500, "InternalError", "etcdserver: no leader")
        if call.method != "GET" and self.wire.failing and self.wire.failing in call.path:
            return _refusal(500, "InternalError", "etcdserver: request timed out")
        if self.wire.unserved and f"/{self.wire.unserved}" in call.path:
            return _refusal(404, "NotFound", "the server could not find the requested resource")
        return None

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream | Answer | NoAnswer]:
        """Open a watch."""
        if self.weather.is_dead or self.weather.is_away or self.wire.is_down:
            await asyncio.sleep(self._latency())
            yield NoAnswer(was_sent=False, message="connection refused")
            return
        await asyncio.sleep(self._latency())
        spoilt = self._spoilt(call)
        watch = Watch.begin(self.wire.server, call)
        if spoilt is not None or watch is None:
            yield spoilt or NO_SUCH_PATH
            return
        stream = _Stream(self, watch, asyncio.get_running_loop().time() + float(dict(call.query)["timeoutSeconds"]))
        streams = self.wire.streams.setdefault(watch.served, [])
        streams.append(stream)
        try:
            stream.notice()
            yield stream
        finally:
            stream.close()
            streams.remove(stream)

    def _latency(self) -> float:
        return self.weather.latency * (0.5 + self.wire.draw.random())


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _refusal(status: int, reason: str, message: str = "") -> Answer:
    text = message or reason.lower()
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": text}
    return Answer(status=status, body=msgspec.json.encode({**body, "code": status}))


class _Stream:
    """An open watch: a change shows after the lag of its process, and never before an earlier one."""

    def __init__(self, line: Line, watch: Watch, ends_at: float) -> None:
        self._line = line
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._ends_at = ends_at
        self._shown = watch.version
        """Up to which version changes may be shown."""
        self._noticed = watch.version
        self._visible_at = 0.0
        self._bookmark_at = self._loop.time() + _BOOKMARKS * (0.5 + 0.5 * line.wire.draw.random())
        self._wake: asyncio.Future[None] | None = None
        self._is_cut = False
        self._is_lifeless = False
        """Whether nothing comes any more, although the connection stands."""
        self._is_closed = False
        self._is_expired = watch.is_expired
        self._timers: list[asyncio.TimerHandle] = []
        for when in (self._bookmark_at, ends_at):
            self._timers.append(self._loop.call_at(when, self._ring, context=line.outside))

    def close(self) -> None:
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()

    def notice(self) -> None:
        """Let what the server has by now show after the lag."""
        version = self._line.wire.server.storage.version
        if version <= self._noticed or self._is_closed:
            return
        self._noticed = version
        weather, draw = self._line.weather, self._line.wire.draw
        lag = weather.lag * (0.2 + 1.6 * draw.random())
        if weather.behind == self._watch.served.plural:
            lag += 10.0 * draw.random()
        self._visible_at = max(self._visible_at, self._loop.time() + lag)
        self._loop.call_at(self._visible_at, self._show, version, context=self._line.outside)

    def cut(self) -> None:
        self._is_cut = True
        self._ring()

    def forsake(self, weather: Weather) -> None:
        """Bring nothing any more, not even an end, if this is a stream of that process."""
        self._is_lifeless = self._is_lifeless or self._line.weather is weather

    def _show(self, version: int) -> None:
        self._shown = max(self._shown, version)
        self._ring()

    def _ring(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def read(self) -> bytes | NoAnswer:
        """Return what has arrived."""
        while True:
            found = self._arrived()
            if found is not None:
                return found
            self._wake = self._loop.create_future()
            await self._wake

    def _arrived(self) -> bytes | NoAnswer | None:
        watch, weather = self._watch, self._line.weather
        if weather.is_dead or (self._is_cut and not self._is_lifeless):
            return NoAnswer(was_sent=True, message="the stream was cut")
        if self._is_lifeless or weather.is_silent:
            return None
        if self._loop.time() >= self._ends_at or watch.is_over:
            return b""
        if self._is_expired:
            return watch.expiry()
        changes = [each for each in watch.pending() if each.version <= self._shown]
        return self._changed(changes) if changes else self._bookmark(self._loop.time())

    def _changed(self, changes: list[Change]) -> bytes | NoAnswer:
        """Return changes as lines, whole and once if nothing is wrong."""
        watch, weather, draw = self._watch, self._line.weather, self._line.wire.draw
        data = watch.take(changes)
        if draw.random() < weather.cuts:
            self._is_cut = True
            return data[: int(len(data) * draw.random())] or NoAnswer(was_sent=True, message="the stream was cut")
        return data + data if draw.random() < weather.doubles else data

    def _bookmark(self, now: float) -> bytes | None:
        draw = self._line.wire.draw
        if now < self._bookmark_at:
            return None
        if draw.random() < self._line.weather.expiries:
            self._is_expired = True  # which the next read tells
            self._loop.call_soon(self._ring, context=self._line.outside)
        self._bookmark_at = now + _BOOKMARKS
        self._timers.append(self._loop.call_at(self._bookmark_at, self._ring, context=self._line.outside))
        newest = self._line.wire.server.storage.version
        return self._watch.bookmark(self._shown if self._watch.pending() else newest)
