"""Whether the API server can be reached: one opinion for all connections of a process, and one prober for all of them.

Calls that fail raise a suspicion; a call of the prober decides. While the server is away, only the prober knocks, and
everything else waits at `opened`: so the server meets one connection of ours when it comes back, not hundreds, and
what waited goes on at once. The log says once that it is away, reminds now and then, and says once that it is back.

Whenever the server was asked whether it is there, it is asked for its version too: one that was upgraded had cut its
connections.

Holds: what waited is let go within `_LONGEST_PAUSE` and the time of one probe after the server came back, however long
it was away. A server that answers is reachable, whatever it answers, except for a gateway without a server behind it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import anyio
import attrs
import structlog

from kai import durations
from kai.cluster.port import Clock, Draw, Listener
from kai.cluster.transport.answers import version_said
from kai.cluster.transport.calls import VERSION_CALL, Answer, Call, NoAnswer, Stream, Transport
from kai.cluster.transport.rights import Rights
from kai.kubernetes_version import NEWEST, KubernetesVersion

_PATH: Final = "/livez"
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 2.0
_DOUBTING: Final = 8.0
"""A first probe waits for so long, because a server that is slow is not away."""
_KNOCKING: Final = 4.0
_BETWEEN_DOUBTS: Final = 1.0
_REMINDER: Final = 180.0
_BETWEEN_NEWS: Final = 1.0
_GATEWAY: Final = frozenset({502, 503, 504})


@attrs.define(eq=False)
class Reachability:
    """The one opinion of a process on the API server, and the tasks that wait for a better one."""

    transport: Transport
    clock: Clock
    draw: Draw
    server: Callable[[], str] = lambda: ""
    away_since: float | None = None
    """Since when the server cannot be reached; None while it can."""
    why: str = ""
    kubernetes: KubernetesVersion = NEWEST
    """The version that the server said last."""
    _said_at: float = 0.0
    _doubted: anyio.Event = attrs.field(factory=anyio.Event)
    _back: anyio.Event = attrs.field(factory=anyio.Event)
    _news_at: float = float("-inf")
    _listeners: list[Listener] = attrs.field(factory=list)

    @property
    def problem(self) -> str:
        """Return in words that the server cannot be reached; empty while it can."""
        if self.away_since is None:
            return ""
        lasting = durations.text(round(self.clock.monotonic() - self.away_since))
        return f"the API server {self.server()} cannot be reached for {lasting}: {self.why}"

    @property
    def may_be_away(self) -> bool:
        """Whether the server is away, or a call ended in a way that the next probe looks into."""
        return self.away_since is not None or self._doubted.is_set()

    def listen(self, listener: Listener) -> None:
        """Tell a listener when others can go on again."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Tell a listener nothing any more."""
        self._listeners.remove(listener)

    def improved(self) -> None:
        """Note that something works again that did not: it may be so for others too."""
        now = self.clock.monotonic()
        if now - self._news_at >= _BETWEEN_NEWS:
            self._news_at = now
            self._tell(was_away=False)

    def note(self, answer: Answer | NoAnswer | None) -> None:
        """Note how a call ended; None for a stream that opened."""
        if isinstance(answer, NoAnswer) or (answer is not None and answer.status in _GATEWAY):
            self._doubted.set()
        elif self.away_since is not None:
            self._come_back()

    async def opened(self) -> None:
        """Wait until the server can be reached."""
        while self.away_since is not None:
            await self._back.wait()

    async def run(self) -> None:
        """Probe whenever there is a doubt, the first time at once, until cancelled."""
        while True:
            why = await self._probe(_DOUBTING)
            if why:
                await self._knock(why)
            await self._ask_version()
            self._doubted = anyio.Event()
            await self.clock.sleep(_BETWEEN_DOUBTS)
            await self._doubted.wait()

    async def _ask_version(self) -> None:
        """Ask for the version; what is no answer changes nothing."""
        self.kubernetes = version_said(await self.transport.request(VERSION_CALL)) or self.kubernetes

    async def _knock(self, why: str) -> None:
        """Probe until the server answers."""
        self._go_away(why)
        pause = _FIRST_PAUSE
        while self.away_since is not None:
            await self.clock.sleep(pause * (0.5 + 0.5 * self.draw()))
            pause = min(pause * 2.0, _LONGEST_PAUSE)
            why = await self._probe(_KNOCKING)
            if not why:
                self._come_back()
            elif self.away_since is not None:
                self.why = why
                self._remind()

    async def _probe(self, seconds: float) -> str:
        """Return why the server cannot be reached; empty if it answers."""
        answer: Answer | NoAnswer = NoAnswer(was_sent=True, message=f"no answer for {seconds:g} s")
        with anyio.move_on_after(seconds):
            answer = await self.transport.request(Call(method="GET", path=_PATH, timeout=seconds))
        if isinstance(answer, NoAnswer):
            return answer.message.removeprefix(f"GET {_PATH}: ") or "no answer"
        return f"the gateway answers with {answer.status}" if answer.status in _GATEWAY else ""

    def _go_away(self, why: str) -> None:
        self.away_since, self.why = self.clock.monotonic(), why
        self._said_at = self.away_since
        structlog.get_logger().error("API server cannot be reached", server=self.server(), why=why)

    def _remind(self) -> None:
        now = self.clock.monotonic()
        if self.away_since is not None and now - self._said_at >= _REMINDER:
            self._said_at = now
            lasting = durations.text(round(now - self.away_since))
            structlog.get_logger().error(
                "API server still cannot be reached", server=self.server(), lasting=lasting, why=self.why
            )

    def _come_back(self) -> None:
        if self.away_since is None:
            return
        after = durations.text(round(self.clock.monotonic() - self.away_since))
        structlog.get_logger().info("API server reachable again", server=self.server(), after=after)
        self.away_since, self.why = None, ""
        self._back.set()
        self._back = anyio.Event()
        self._tell(was_away=True)

    def _tell(self, *, was_away: bool) -> None:
        for listener in tuple(self._listeners):
            listener(was_away)


@attrs.frozen
class Observed(Transport):
    """A way to the server whose answers are noted."""

    inner: Transport
    reachability: Reachability
    rights: Rights

    async def request(self, call: Call) -> Answer | NoAnswer:
        """Send a request and return the response."""
        answer = await self.inner.request(call)
        self._note(call, answer)
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream | Answer | NoAnswer]:
        """Send a request and return the body as it arrives, or the response that refuses it."""
        entered: AbstractAsyncContextManager[Stream | Answer | NoAnswer] = self.inner.stream(call)
        async with entered as stream:
            self._note(call, stream if isinstance(stream, Answer | NoAnswer) else None)
            yield stream

    def _note(self, call: Call, answer: Answer | NoAnswer | None) -> None:
        self.reachability.note(answer)
        if isinstance(answer, Answer) and answer.status == 403 and not call.is_foreign:
            self.rights.refused(answer)
