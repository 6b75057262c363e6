"""Decides whether the API server can be reached, for all connections of a process, and tracks missing rights.

`Reachability`: failed calls raise a doubt, and a probe decides. While the server is away, only the prober calls it, and
everything else waits at `opened`. So the server meets one connection when it comes back, not hundreds, and the waiting
calls continue at once. The log says once that the server is away, repeats it from time to time, and says once that it
is back. After each doubt the server's version is requested as well, because an upgrade cuts connections.

Holds: waiting calls continue within `_LONGEST_PAUSE` and the time of one probe after the server came back, however long
it was away. A server that answers is reachable, whatever the answer, except for a gateway without a server behind it.

`Rights`: an API server that just started refuses everything with 403 until it has read its roles. So a right counts as
missing only if it is refused again after a while. Then the log names it, and calls that need it fail at once.

Holds: each missing right is logged once, up to a limit of rights. A right that is granted later is noticed, because
calls that need it are still made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import anyio
import attrs
import structlog

from kai.basics import parsing
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.cluster.port import Clock, Draw, Listener
from kai.cluster.transport.calls import (
    VERSION_CALL,
    Answer,
    Call,
    NoAnswer,
    Stream,
    Transport,
    ends_with_namespace,
    status_of,
    version_said,
)

_PERSISTS: Final = 3.0
"""Time after which a second refusal means that a right is missing.

Units: seconds.
"""
_SETTLING: Final = 10.0
"""Time after the first refusal in which a write is retried.

Units: seconds.
"""
_FORGOTTEN: Final = 300.0
"""Refusals further apart than this are unrelated.

Units: seconds.
"""
_SHOWN: Final = 600.0
"""Time after its last refusal in which a right is shown as missing.

Units: seconds.
"""
_REMEMBERED: Final = 1000
_QUOTA: Final = re.compile(r"is forbidden: (exceeded quota|failed quota): ")
_RIGHT_PATH: Final = re.compile(r'User "[^"]{0,300}" cannot [a-z]{1,40} path ')
_WORDS: Final = re.compile(
    r'User "(?P<account>[^"]{0,300})" cannot (?P<verb>[a-z]{1,40}) resource "(?P<resource>[^"]{1,200})" '
    r'in API group "(?P<group>[^"]{0,200})" '
    r'(?:at the cluster scope|in the namespace "(?P<namespace>[^"]{1,100})")'
)


@attrs.frozen(kw_only=True)
class Right:
    """A right that an account lacks, in the words of the API server; ``namespace`` is "" for the whole cluster."""

    verb: str
    resource: str
    group: str
    namespace: str
    account: str


@attrs.define
class _Refusals:
    """First and last refusal of a right."""

    first: float
    last: float
    is_said: bool = False


@attrs.define
class Rights:
    """The rights that were refused recently."""

    clock: Clock
    _refusals: dict[Right, _Refusals] = attrs.field(factory=dict)

    def refused(self, answer: Answer) -> None:
        """Record a refusal; log the right once it is sure to be missing."""
        right = right_of(answer)
        if right is None:
            return
        now = self.clock.monotonic()
        # Inserted anew below, so that the limit drops the right that was refused longest ago.
        known = self._refusals.pop(right, None)
        if known is None or now - known.last > _FORGOTTEN:
            known = _Refusals(now, now, is_said=known is not None and known.is_said)
        known.last = now
        self._refusals[right] = known
        while len(self._refusals) > _REMEMBERED:
            del self._refusals[next(iter(self._refusals))]
        if now - known.first >= _PERSISTS and not known.is_said:
            known.is_said = True
            facts = attrs.asdict(right)
            structlog.get_logger().error("right is missing", **facts, instead="a role that allows it")

    def missing(self) -> Mapping[tuple[str, str], int]:
        """Return the count of missing rights by verb and resource, as of late. Callable in any thread."""
        now = self.clock.monotonic()
        lately = [
            (right.verb, right.resource)
            for right, known in tuple(self._refusals.items())
            if known.last - known.first >= _PERSISTS and now - known.last < _SHOWN
        ]
        return Counter(lately)

    def may_come(self, answer: Answer) -> bool:
        """Return whether the server may allow the same soon, because it has refused it only for seconds."""
        right = right_of(answer) if answer.status == 403 else None
        known = self._refusals.get(right) if right is not None else None
        return known is not None and self.clock.monotonic() - known.first < _SETTLING


def why_forbidden(answer: Answer) -> str:
    """Return the cause of a 403: ``namespace``, ``quota``, ``rights`` or ``admission``.

    ``namespace``: the namespace is terminating. ``admission``: any other rule on what is written. An answer that no API
    server gives counts as ``rights``: a proxy may know no roles, but keeps us out as well.
    """
    status = status_of(answer.body)
    if ends_with_namespace(status):
        return "namespace"
    if status.get("kind") != "Status" or right_of(answer) is not None:
        return "rights"
    message = status.get("message")
    text = message if isinstance(message, str) else ""
    if _QUOTA.search(text):
        return "quota"
    return "rights" if _RIGHT_PATH.search(text) else "admission"


def right_of(answer: Answer) -> Right | None:
    """Return the right that a refusal names; None if it has another cause."""
    status = status_of(answer.body)
    details = status.get("details")
    message = status.get("message")
    # The pattern matches the server's quoted words; names before it may contain anything.
    found = _WORDS.search(message) if isinstance(message, str) else None
    if found is None or (details is not None and not isinstance(details, Mapping)):
        return None
    words = {name: text or "" for name, text in found.groupdict().items()}
    return Right(**words)


_PATH: Final = "/livez"
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 2.0
_DOUBTING: Final = 8.0
"""Timeout of a first probe; long, because a slow server is not away.

Units: seconds.
"""
_KNOCKING: Final = 4.0
_BETWEEN_DOUBTS: Final = 1.0
_REMINDER: Final = 180.0
_BETWEEN_NEWS: Final = 1.0
_GATEWAY: Final = frozenset({502, 503, 504})


@attrs.define(eq=False)
class Reachability:
    """The state of the API server for a whole process, and the tasks that wait for it."""

    transport: Transport
    clock: Clock
    draw: Draw
    server: Callable[[], str] = lambda: ""
    away_since: float | None = None
    """Since when the server cannot be reached; None while it can."""
    why: str = ""
    kubernetes: KubernetesVersion = NEWEST
    """The version that the server reported last."""
    _said_at: float = 0.0
    _doubted: anyio.Event = attrs.field(factory=anyio.Event)
    _back: anyio.Event = attrs.field(factory=anyio.Event)
    _news_at: float = float("-inf")
    _listeners: list[Listener] = attrs.field(factory=list)

    @property
    def problem(self) -> str:
        """Text that the server cannot be reached; "" while it can."""
        if self.away_since is None:
            return ""
        lasting = parsing.text(round(self.clock.monotonic() - self.away_since))
        return f"the API server {self.server()} cannot be reached for {lasting}: {self.why}"

    @property
    def may_be_away(self) -> bool:
        """Whether the server is away, or a failed call waits for the next probe."""
        return self.away_since is not None or self._doubted.is_set()

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` whenever requests may continue."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        self._listeners.remove(listener)

    def improved(self) -> None:
        """Record that something works again: other pauses may end as well."""
        now = self.clock.monotonic()
        if now - self._news_at >= _BETWEEN_NEWS:
            self._news_at = now
            self._notify(was_away=False)

    def note(self, answer: Answer | NoAnswer | None) -> None:
        """Record how a call ended; None for a stream that opened."""
        # Any other answer comes from the server itself, even a refusal, and ends the outage.
        if isinstance(answer, NoAnswer) or (answer is not None and answer.status in _GATEWAY):
            self._doubted.set()
        elif self.away_since is not None:
            self._come_back()

    async def opened(self) -> None:
        """Wait until the server can be reached."""
        while self.away_since is not None:
            await self._back.wait()

    async def run(self) -> None:
        """Probe at the start and after each doubt, until cancelled."""
        while True:
            why = await self._probe(_DOUBTING)
            if why:
                await self._knock(why)
            # The outage may have been an upgrade of the server.
            await self._ask_version()
            self._doubted = anyio.Event()
            # When a server goes, hundreds of calls fail at once; one probe a second answers for all.
            await self.clock.sleep(_BETWEEN_DOUBTS)
            await self._doubted.wait()

    async def _ask_version(self) -> None:
        """Request the server's version; keep the old one without an answer."""
        self.kubernetes = version_said(await self.transport.request(VERSION_CALL)) or self.kubernetes

    async def _knock(self, why: str) -> None:
        """Probe until the server answers."""
        self._go_away(why)
        pause = _FIRST_PAUSE
        while self.away_since is not None:
            # At random, so that the processes of a cluster do not knock at one instant.
            await self.clock.sleep(pause * (0.5 + 0.5 * self.draw()))
            pause = min(pause * 2.0, _LONGEST_PAUSE)
            why = await self._probe(_KNOCKING)
            if not why:
                self._come_back()
            elif self.away_since is not None:
                self.why = why
                self._remind()

    async def _probe(self, seconds: float) -> str:
        """Return why the server cannot be reached; "" if it answers."""
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
            lasting = parsing.text(round(now - self.away_since))
            structlog.get_logger().error(
                "API server still cannot be reached", server=self.server(), lasting=lasting, why=self.why
            )

    def _come_back(self) -> None:
        if self.away_since is None:
            return
        after = parsing.text(round(self.clock.monotonic() - self.away_since))
        structlog.get_logger().info("API server reachable again", server=self.server(), after=after)
        self.away_since, self.why = None, ""
        self._back.set()
        self._back = anyio.Event()
        self._notify(was_away=True)

    def _notify(self, *, was_away: bool) -> None:
        for listener in tuple(self._listeners):
            listener(was_away)


@attrs.frozen
class Observed(Transport):
    """A transport that reports its answers to `Reachability` and `Rights`."""

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
