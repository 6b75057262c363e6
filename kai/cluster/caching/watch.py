"""Lists and watches one kind: a state machine that decides the next call and its time, and never makes it.

`ListWatch.step` takes an event and returns the next effect. Objects do not pass through it: the shell
(`kai.cluster.caching.watching`) puts them into the cache, and reports the version that the stream has reached.

How a real API server behaves, and what follows:

- A version that is too old is answered with 410, as a status or as an ``ERROR`` event within a 200: list again.
- A version from the future (a server restored from a backup) is answered with silence. After `silence` seconds without
  a bookmark the stream is dropped, and a quorum list shows the older version. When the server's versions catch up,
  the silence ends, but the events until then are lost. So an interrupted stream is opened again only after the server
  reports a version that is not below the known one.
- A stream may end at once, again and again: one that brought nothing within a second counts as a failure.
- A kind may not be served, in one of its versions or at all, now or ever: then it is empty, and is requested again now
  and then. A kind that had objects keeps them for `absent_pause` seconds: a server restored from a backup may lack its
  definitions for a moment, and a scheduler without bind requests would give away what they reserve.
- A right may be missing: the watch waits for it. A dispensable kind that was never listed counts as not served after
  `absent_pause` seconds, because a server that just started refuses everything until it has read its roles.

Holds: no call is made before the delay that the server asked for. Successive failures wait longer and longer, up to
`longest_pause`, with jitter.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import attrs

from kai.basics.deadlines import doubling_pause
from kai.cluster.port import Draw

_FIRST_PAUSE: Final = 0.25
_SHORT: Final = 1.0
_PATIENCE: Final = 3
"""Count of successive errors within streams, or failed lists of a present kind, that do not change the state yet."""


# --- Events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Started:
    """The watch begins."""


@attrs.frozen(kw_only=True)
class PageCame:
    """A page of the list was put into the cache; ``rest`` is the token of the next one."""

    version: str
    rest: str = ""


@attrs.frozen(kw_only=True)
class VersionCame:
    """The server reported its version."""

    version: int


@attrs.frozen(kw_only=True)
class Refused:
    """A list or a watch failed with a status, or got no answer (status 0)."""

    status: int
    retry_after: float | None = None
    message: str = ""


@attrs.frozen
class Opened:
    """The stream is open."""


@attrs.frozen(kw_only=True)
class Heard:
    """The stream delivered something; ``version`` is the last version in it."""

    version: str = ""


@attrs.frozen(kw_only=True)
class Failed:
    """The stream delivered an error."""

    code: int
    message: str = ""


@attrs.frozen(kw_only=True)
class Ended:
    """The stream ended; ``message`` says how it was interrupted, if it was."""

    message: str = ""


@attrs.frozen
class TimeCame:
    """The time named by `Pause` or `OpenStream` has come."""


@attrs.frozen
class RefreshWanted:
    """A caller wants a list that begins from now on; the next other event starts it."""


Event: TypeAlias = (
    Started | PageCame | VersionCame | Refused | Opened | Heard | Failed | Ended | TimeCame | RefreshWanted
)


# --- Effects -------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ReadPage:
    """Read a page of the list with a quorum; ``is_first`` begins a new list."""

    variant: int
    limit: int
    rest: str = ""
    is_first: bool = True


@attrs.frozen(kw_only=True)
class AskVersion:
    """Ask the server for its version with a quorum read."""

    variant: int


@attrs.frozen(kw_only=True)
class OpenStream:
    """Watch from a version."""

    variant: int
    version: str
    seconds: float


@attrs.frozen
class KeepReading:
    """Read on from the stream."""


@attrs.frozen(kw_only=True)
class Pause:
    """Do nothing until ``until``; close an open stream."""

    until: float
    is_asked_for: bool = False
    """Whether the server asked for the pause; any other pause may end early once the server answers again."""


@attrs.frozen
class Vanish:
    """The kind is not served: its cache becomes complete and empty; then go on with the next effect."""


Effect: TypeAlias = ReadPage | AskVersion | OpenStream | KeepReading | Pause | Vanish


@attrs.frozen(kw_only=True)
class WatchSettings:
    """How patiently a kind is watched.

    Units: seconds; ``page`` in objects.
    """

    page: int = 500
    silence: float = 75.0
    shortest_stream: float = 300.0
    """The server is asked to end a stream after this time, or up to twice that."""
    longest_pause: float = 30.0
    absent_pause: float = 30.0
    unreachable_pause: float = 5.0
    """Pause if there is no answer at all; `reachability` probes the server once for all kinds."""


class _Phase(enum.Enum):
    LISTING = "listing"
    OPENING = "opening"
    STREAMING = "streaming"


@attrs.define
class ListWatch:
    """The progress of the watch of one kind.

    ``variants`` is the count of API versions in which the kind may be served, best first.
    """

    settings: WatchSettings
    draw: Draw
    variants: int = 1
    is_dispensable: bool = False
    """Whether to go on without the kind if it may not be read."""
    variant: int = 0
    version: str = ""
    started: int = 0
    """Number of the last list that was begun; lists are counted from 1."""
    completed: int = 0
    """Number of the last complete list."""
    problem: str = ""
    """Why the watch cannot go on, as text; "" if it can."""
    is_absent: bool = False
    """Whether the server serves the kind in no version."""
    _phase: _Phase = _Phase.LISTING
    _token: str = ""
    _failures: int = 0
    _expired: int = 0
    """Count of successive times that the version was too old, without a lasting stream in between."""
    _stream_errors: int = 0
    _is_forbidden: bool = False
    """Whether a version of a dispensable kind was refused for lack of rights since the first version was tried."""
    _missing: int = 0
    _missing_since: float = 0.0
    _opened_at: float = 0.0
    _heard_at: float = 0.0
    _brought: bool = False
    _wants_list: bool = False
    _was_cut: bool = False
    """Whether a stream was cut or a call got no answer since the server last reported its version."""

    def step(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Handle an event and return the next effects.

        Units: ``now`` in seconds of a monotonic clock.
        """
        match event:
            case PageCame():
                return self._take_page(event)
            case VersionCame():
                return self._take_version(event)
            case Refused():
                return self._take_refusal(event, now)
            case Opened():
                self._phase = _Phase.STREAMING
                self._opened_at = self._heard_at = now
                self._brought, self.problem = False, ""
            case Heard():
                self._hear(event.version, now)
            case Failed():
                return self._take_error(event, now)
            case Ended():
                return self._take_end(event, now)
            case RefreshWanted():
                self._wants_list = True
                return ()
            case Started() | TimeCame():
                return self._resume(now)
        return self._go_on(now)

    @property
    def is_failing(self) -> bool:
        """Whether the watch failed at least three times in a row, so that it is worth a log line."""
        return bool(self.problem) and self._failures >= _PATIENCE

    def deadline(self) -> float:
        """Return how long the open stream may stay silent."""
        return self._heard_at + self.settings.silence

    # --- Listing ---------------------------------------------------------------------------------------------------

    def _list(self) -> tuple[Effect, ...]:
        self._phase, self._token, self._wants_list = _Phase.LISTING, "", False
        self.started += 1
        return (ReadPage(variant=self.variant, limit=self.settings.page),)

    def _take_page(self, event: PageCame) -> tuple[Effect, ...]:
        self._missing, self.is_absent, self._is_forbidden = 0, False, False
        self._token = event.rest
        if event.rest:
            limit = self.settings.page
            return (ReadPage(variant=self.variant, limit=limit, rest=event.rest, is_first=False),)
        # All pages of a list are as of one version: a stream from there misses nothing.
        self.version = event.version
        self.completed = self.started
        self.problem, self._was_cut = "", False
        if self._wants_list:
            return self._list()
        return self._open()

    def _take_refusal(self, event: Refused, now: float) -> tuple[Effect, ...]:
        self.problem = event.message or f"HTTP status {event.status}"
        # No answer at all: another server, restored from a backup, may answer next.
        self._was_cut |= event.status == 0
        if event.status == 410:
            return self._expire(now, event.retry_after)
        is_done_without = event.status == 403 and self.is_dispensable and not self.version
        self._is_forbidden |= is_done_without
        if event.status == 404 or is_done_without:
            return self._take_absence(now)
        self._failures += 1
        # A continue token lasts only until etcd compacts its version, so begin again with the first page.
        if self._phase is _Phase.LISTING:
            self._token = ""
        longest = self.settings.longest_pause if event.status else self.settings.unreachable_pause
        return self._pause(now, event.retry_after, longest)

    def _expire(self, now: float, retry_after: float | None) -> tuple[Effect, ...]:
        """List again, because the version is too old.

        The first time is ordinary expiry, or follows an outage; after a second one the server gets a pause. Earlier
        failures for other reasons do not count.
        """
        self._phase, self._token, self._stream_errors = _Phase.LISTING, "", 0
        self._expired += 1
        if self._expired == 1:
            return self._list()
        self._failures = max(self._failures, self._expired - 1)
        return self._pause(now, retry_after)

    def _take_absence(self, now: float) -> tuple[Effect, ...]:
        """Try the next API version; a kind that is served in none is empty.

        A kind that had objects, or that may not be read, gets some more tries before it counts as gone.
        """
        self._phase, self._token = _Phase.LISTING, ""
        self.variant += 1
        if self.variant < self.variants:
            return self._list()
        self.variant = 0
        if not self._missing:
            self._missing_since = now
        self._missing += 1
        is_doubtful, self._is_forbidden = bool(self.version) or self._is_forbidden, False
        is_new = self._missing < _PATIENCE or now - self._missing_since < self.settings.absent_pause
        if is_doubtful and is_new:
            self._failures += 1
            return self._pause(now, None)
        self._failures = 0
        self.version = self.problem = ""
        self.is_absent = True
        self.completed = self.started
        pause = self.settings.absent_pause
        return Vanish(), Pause(until=now + pause * (0.5 + self.draw()))

    # --- Streaming -------------------------------------------------------------------------------------------------

    def _open(self) -> tuple[Effect, ...]:
        self._phase = _Phase.OPENING
        if self._was_cut:
            return (AskVersion(variant=self.variant),)
        # Spread over as long again: streams that were opened together must not all be reopened together.
        seconds = self.settings.shortest_stream * (1.0 + self.draw())
        return (OpenStream(variant=self.variant, version=self.version, seconds=seconds),)

    def _take_version(self, event: VersionCame) -> tuple[Effect, ...]:
        self._was_cut = False
        # A server below our version would stay silent, and then skip the events until it has caught up.
        if self._wants_list or not self.version.isdecimal() or event.version < int(self.version):
            return self._list()
        return self._open()

    def _hear(self, version: str, now: float) -> None:
        self._heard_at = now
        # A bookmark counts like an event: the server only sends it when it has delivered everything before.
        if version and version != self.version:
            self.version = version
            self._brought = True
            self._failures = self._stream_errors = self._expired = 0

    def _go_on(self, now: float) -> tuple[Effect, ...]:
        """Keep reading, unless the stream was silent for too long or a list is wanted."""
        if self._phase is not _Phase.STREAMING:
            return ()
        if self._wants_list:
            return self._list()
        if now >= self.deadline():
            self._failures += 1
            self.problem = f"the stream was silent for {self.settings.silence:g} s"
            return self._list()
        return (KeepReading(),)

    def _take_error(self, event: Failed, now: float) -> tuple[Effect, ...]:
        self.problem = event.message or f"error {event.code} inside of the stream"
        if now - self._opened_at >= _SHORT:
            self._failures = self._expired = 0
        if event.code == 410:
            return self._expire(now, None)
        self._failures += 1
        # Other errors say nothing about the version: reopen from there, and list only if that keeps failing.
        self._stream_errors += 1
        self._phase = _Phase.OPENING
        if self._stream_errors >= _PATIENCE:
            self._phase, self._token, self._stream_errors = _Phase.LISTING, "", 0
        return self._pause(now, None)

    def _take_end(self, event: Ended, now: float) -> tuple[Effect, ...]:
        self._was_cut |= bool(event.message)
        if self._wants_list:
            return self._list()
        if self._brought or now - self._opened_at >= _SHORT:
            self._failures = self._expired = 0
            return self._open()
        self._failures += 1
        self.problem = event.message or "the stream ended at once"
        self._phase = _Phase.OPENING
        return self._pause(now, None)

    # --- Pausing ---------------------------------------------------------------------------------------------------

    def _resume(self, now: float) -> tuple[Effect, ...]:
        if self._phase is _Phase.LISTING or self._wants_list:
            return self._list()
        return self._open() if self._phase is _Phase.OPENING else self._go_on(now)

    def _pause(self, now: float, retry_after: float | None, longest: float | None = None) -> tuple[Effect, ...]:
        wait = doubling_pause(self._failures, _FIRST_PAUSE, self.settings.longest_pause if longest is None else longest)
        # Between half and all of the pause, after the delay that the server asked for: clients must not return all at
        # once.
        until = now + (retry_after or 0.0) + wait * (0.5 + 0.5 * self.draw())
        return (Pause(until=until, is_asked_for=bool(retry_after)),)
