"""The shell of the watch of one kind: carries out the effects of the state machine, and fills the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from kai.api.kinds import BY_CLASS
from kai.api.memory import growing, paused
from kai.cluster.caching.raw import (
    Line,
    NamesPage,
    Page,
    known_in,
    line_of,
    manifest_of,
    names_page_of,
    page_of,
    take,
)
from kai.cluster.caching.store import Watched, WatchedStore
from kai.cluster.caching.tombstones import Peek, peek, version_of
from kai.cluster.caching.watch import (
    AskVersion,
    Effect,
    Ended,
    Event,
    Failed,
    Heard,
    KeepReading,
    ListWatch,
    Opened,
    OpenStream,
    PageCame,
    Pause,
    ReadPage,
    RefreshWanted,
    Refused,
    Started,
    TimeCame,
    Vanish,
    VersionCame,
)
from kai.cluster.port import Clock
from kai.cluster.transport.calls import (
    JSON,
    LARGEST_PAGE,
    METADATA,
    METADATA_LIST,
    Answer,
    Call,
    LineSplitter,
    NoAnswer,
    Query,
    Stream,
    Transport,
    said,
    status_of,
    wait_of,
)
from kai.cluster.transport.encoding import ServedVersions, collection, page_query
from kai.cluster.transport.reachability import Reachability

if TYPE_CHECKING:
    from kai.cluster.caching.assume_cache import Asked

_PAGE_TIMEOUT: Final = 60.0
_GRACE: Final = 15.0
_NOT_IN_THIS_FORM: Final = 406
_MORE_NAMES: Final = 10
"""Factor of names to whole objects in a page: small pages of names cost the server twice as much."""


@attrs.define(eq=False)
class Watcher:
    """Keeps one kind of a store current."""

    watched: Watched
    machine: ListWatch
    store: WatchedStore
    transport: Transport
    clock: Clock
    served: ServedVersions
    reachability: Reachability
    _wake: anyio.CancelScope | None = None
    _is_streaming: bool = False
    _is_pausing: bool = False
    _wants_list: bool = False
    _is_outdated: bool = False
    """Whether the open stream began before an outage."""
    _is_said: bool = False
    _expects_news: bool = False
    """Whether the last page of a list had objects in an unknown version."""

    @property
    def problem(self) -> str:
        """Why this kind is not current, as text; "" if it is."""
        plural = BY_CLASS[self.watched.cls].plural
        return f"{plural}: {self.machine.problem}" if self.machine.problem else ""

    async def run(self) -> None:
        """Watch until cancelled."""
        self.store.on_refresh(self.watched.cls, self._ask)
        self.reachability.listen(self._go_on)
        effects = self._step(Started())
        while True:
            effects = await self._do(effects)

    def _ask(self) -> int:
        """Request a list that begins from now on; return its number."""
        self._wants_list = True
        if self._wake is not None and (self._is_streaming or self.machine.is_absent):
            self._wake.cancel()
        # A list in progress may have been requested before what the caller wants to see, so only the next one counts.
        return self.machine.started + 1

    def _go_on(self, was_away: bool) -> None:  # noqa: FBT001 - the signature of a listener
        """Try again at once; after an outage the server may know nothing of the stream's version.

        It may even be another server, restored from a backup, whose versions have reached the known ones again. Only a
        list can tell, and it also confirms at once that the cache is current.
        """
        if was_away:
            self._is_outdated = self._is_streaming
            self._wants_list = True
            self.store.outlived(self.watched.cls, self.machine.started + 1)
        if self._wake is not None and (self._is_outdated or self._is_pausing):
            self._wake.cancel()

    def _step(self, event: Event) -> tuple[Effect, ...]:
        now = self.clock.monotonic()
        if self._wants_list:
            self._wants_list = False
            self.machine.step(RefreshWanted(), now)
        before = self.machine.problem
        effects = self.machine.step(event, now)
        if before and not self.machine.problem:
            self.reachability.improved()
        self._say()
        return effects

    def _say(self) -> None:
        """Log once that a kind cannot be watched; a problem of the whole server is logged elsewhere."""
        lasts = self.machine.is_failing and self.reachability.away_since is None
        plural = BY_CLASS[self.watched.cls].plural
        if lasts and not self._is_said:
            self._is_said = True
            structlog.get_logger().warning("cannot be watched", resource=plural, why=self.machine.problem)
        elif self._is_said and not self.machine.problem:
            self._is_said = False
            structlog.get_logger().info("watched again", resource=plural)

    async def _do(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        for effect in effects:
            match effect:
                case Vanish():
                    self._vanish()
                case ReadPage():
                    await self.reachability.opened()
                    return self._step(await self._read_page(effect))
                case AskVersion():
                    await self.reachability.opened()
                    return self._step(await self._ask_version(effect))
                case OpenStream():
                    await self.reachability.opened()
                    return await self._stream(effect)
                case Pause():
                    await self._sleep(effect)
                    return self._step(TimeCame())
        raise AssertionError("the machine has nothing to do")

    async def _sleep(self, pause: Pause) -> None:
        self._is_pausing = not (pause.is_asked_for or self.machine.is_absent)
        with anyio.CancelScope() as self._wake:
            await self.clock.sleep(pause.until - self.clock.monotonic())
        self._wake, self._is_pausing = None, False

    # --- Lists -----------------------------------------------------------------------------------------------------

    async def _read_page(self, effect: ReadPage) -> Event:
        cache = self.store.cache(self.watched.cls)
        # Before the request: answers and events that arrive while it is in flight may be newer than the list.
        asked = cache.ask()
        names = await self._names(effect)
        if isinstance(names, Refused):
            return names
        known = None if names is None else known_in(cache, names)
        self._expects_news = known is None
        page = await self._page(effect.variant, effect.limit, effect.rest) if names is None or known is None else names
        if isinstance(page, Refused):
            return page
        self._take_page(effect, page, known, asked)
        return PageCame(version=page.metadata.version, rest=page.metadata.token)

    async def _names(self, effect: ReadPage) -> NamesPage | Refused | None:
        """Return a page of names and versions; it is enough if the cache has each of its objects in that version.

        A new leader lists kinds that it has been watching all the time, and must not decide before. With whole objects
        the server takes eight times as long: seconds in a large cluster. None: read the page whole.
        """
        if self.watched.metadata_only or not self.machine.completed:
            return None
        limit = effect.limit if self._expects_news and not effect.is_first else effect.limit * _MORE_NAMES
        answer = await self._answer(effect.variant, limit, effect.rest, METADATA_LIST)
        if isinstance(answer, Answer) and answer.is_good:
            return names_page_of(answer.body)
        refused = self._refused(answer)
        # An aggregated API server need not know the metadata form; then the page is read whole.
        return None if refused.status == _NOT_IN_THIS_FORM else refused

    async def _ask_version(self, effect: AskVersion) -> Event:
        page = await self._page(effect.variant, 1, "")
        return page if isinstance(page, Refused) else VersionCame(version=version_of(page.metadata.version))

    async def _page(self, variant: int, limit: int, rest: str) -> Page | Refused:
        answer = await self._answer(variant, limit, rest, self._form(METADATA_LIST))
        page = page_of(answer.body) if isinstance(answer, Answer) and answer.is_good else None
        return self._refused(answer) if page is None else page

    async def _answer(self, variant: int, limit: int, rest: str, form: str) -> Answer | NoAnswer:
        call = Call(
            method="GET",
            path=self._path(variant),
            query=(*self._selectors(), *page_query(limit, rest)),
            accept=form,
            timeout=_PAGE_TIMEOUT,
            largest=LARGEST_PAGE,
        )
        return await self.transport.request(call)

    def _take_page(self, effect: ReadPage, page: Page | NamesPage, known: list[Peek] | None, asked: Asked) -> None:
        cls = self.watched.cls
        cache = self.store.cache(cls)
        version, is_last = version_of(page.metadata.version), not page.metadata.token
        with self.store.taking(), paused() if self.store.is_synced else growing():
            if effect.is_first:
                cache.begin_list(version, asked)
            for seen in known or ():
                cache.see_known(seen)
            for item in page.items or () if isinstance(page, Page) else ():
                take(cache, item, is_listed=True)
            if is_last:
                cache.end_list(version)
        self.store.heard(cls)
        if is_last:
            # Writes go to the version that was listed: the server serves it.
            self.served.settle(cls, BY_CLASS[cls].api_versions[effect.variant])
            self.store.listed(cls, self.machine.started)

    def _vanish(self) -> None:
        cls = self.watched.cls
        with self.store.taking():
            self.store.cache(cls).clear()
        self.store.listed(cls, self.machine.started)

    # --- Streams ---------------------------------------------------------------------------------------------------

    async def _stream(self, effect: OpenStream) -> tuple[Effect, ...]:
        query = (
            *self._selectors(),
            ("watch", "true"),
            # Bookmarks prove that a quiet stream is alive, and advance the version at which it resumes.
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", effect.version),
            ("timeoutSeconds", str(int(effect.seconds))),
        )
        call = Call(
            method="GET", path=self._path(effect.variant), query=query, accept=self._form(METADATA), timeout=_GRACE
        )
        async with self.transport.stream(call) as stream:
            if isinstance(stream, Answer | NoAnswer):
                return self._step(self._refused(stream))
            effects = self._step(Opened())
            lines = LineSplitter()
            while effects == (KeepReading(),):
                effects = self._step(await self._read(stream, lines))
            return effects

    async def _read(self, stream: Stream, lines: LineSplitter) -> Event:
        data: bytes | NoAnswer | None = None
        deadline = anyio.current_time() + max(0.0, self.machine.deadline() - self.clock.monotonic())
        with anyio.CancelScope(deadline=deadline) as self._wake:
            self._is_streaming = True
            data = await stream.read()
        self._wake, self._is_streaming = None, False
        # The data came from before the outage, maybe from another server; a list follows anyway.
        if self._is_outdated:
            self._is_outdated = False
            return Ended(message="the stream is older than an outage")
        if data is None:
            return TimeCame()
        if isinstance(data, NoAnswer):
            return Ended(message=data.message)
        if not data:
            return Ended()
        try:
            return self._take_lines(lines.feed(data))
        except ValueError as error:
            return Failed(code=0, message=str(error))

    def _take_lines(self, lines: tuple[bytes, ...]) -> Event:
        """Put a batch of events into the cache, up to the first error."""
        version = ""
        self.store.heard(self.watched.cls)
        with self.store.taking():
            for line in lines:
                event = line_of(line)
                if event is None:
                    # The events before it stay: the reopened stream repeats them, and known versions are passed over.
                    return Failed(code=0, message="a line of the stream is no event")
                if event.type == "ERROR":
                    return _failure(event)
                version = self._take_event(event) or version
        return Heard(version=version)

    def _take_event(self, event: Line) -> str:
        """Put an event into the cache, and return its version."""
        cache = self.store.cache(self.watched.cls)
        if event.type == "BOOKMARK":
            manifest = manifest_of(event.object, self.watched.cls)
            metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
            return str(metadata.get("resourceVersion") or "") if isinstance(metadata, Mapping) else ""
        if event.type in {"ADDED", "MODIFIED"}:
            head = take(cache, event.object)
        else:
            manifest = manifest_of(event.object, self.watched.cls)
            head = peek(manifest)
            if event.type == "DELETED":
                cache.remove(manifest)
        return "" if head is None or head.version < 0 else str(head.version)

    # --- Calls -----------------------------------------------------------------------------------------------------

    def _path(self, variant: int) -> str:
        kind = BY_CLASS[self.watched.cls]
        return collection(kind.api_versions[variant], kind.plural, self.watched.namespace)

    def _selectors(self) -> Query:
        return (("fieldSelector", self.watched.field_selector),) if self.watched.field_selector else ()

    def _form(self, metadata: str) -> str:
        return metadata if self.watched.metadata_only else JSON

    def _refused(self, answer: Answer | NoAnswer) -> Refused:
        if isinstance(answer, NoAnswer):
            return Refused(status=0, message=answer.message)
        if answer.is_good:
            return Refused(status=0, message="the answer is no list")
        return Refused(status=answer.status, retry_after=wait_of(answer, self.clock.now()), message=said(answer))


def _failure(event: Line) -> Failed:
    """Return the error within a stream."""
    status = status_of(bytes(event.object))
    code = status.get("code")
    return Failed(code=code if isinstance(code, int) else 0, message=str(status.get("message") or ""))
