"""Server-rendered HTML pages, in sections that a stream can update one by one.

A page works without JavaScript. With it, one event stream sends each section whose text changed, at most once a second;
a slow reader skips states and gets the newest one when ready.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import anyio
import attrs
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kai.answers.documents.document import span
from kai.basics.wording import counted, number_text
from kai.cluster.port import Clock
from kai.cluster.process.connections import Request, Response
from kai.cluster.requesting.reviews import ReviewError
from kai.dashboard.access import RECHECKED, Access, Reader
from kai.dashboard.answer_cache import DECIDING, PAST, READING, AnswerCache
from kai.dashboard.feed import Past
from kai.dashboard.look import History, Look
from kai.dashboard.past import moment_text
from kai.dashboard.views import MAKERS, TITLES
from kai.facts.model.axis import GPU_UNIT

BEAT: Final = 15.0
"""Seconds between two heartbeats of a stream."""
MOST_STREAMS: Final = 200
_FOLDER: Final = Path(__file__).parent
_FILES: Final = {
    "/static/kai.css": "text/css; charset=utf-8",
    "/static/kai.js": "text/javascript; charset=utf-8",
    "/static/kai.svg": "image/svg+xml",
}
_EVENTS: Final = "/events"
_DEEPEST: Final = {"queues": 1, "jobs": 2, "nodes": 1}
"""Path parts behind the name of a page: the page of one queue, of one job, and of one node."""
_HTML: Final = "text/html; charset=utf-8"
_WITH_FACTS: Final = frozenset({"", "cycles"})
"""Pages that show the health of the process, which changes every second."""
PATIENCE: Final = 20.0
"""Seconds after which a stream sends a heartbeat, even while a section is still being computed."""
_FINISHED: Final = "finished"
_WITH_PAST: Final = frozenset({"", "queues", _FINISHED})
"""Pages that show the history of usage, which goes on while no cycle ends."""
_STILL: Final = ("search",)
"""Sections that are not replaced: a reader may be typing there."""
_NOTHING_YET: Final = "No cycle has ended yet in this process, or another replica leads."

HealthChecks = Callable[[], Sequence[tuple[str, str, bool]]]
"""Returns the health of the process as rows: subject, state, and whether it is good."""


@attrs.define(eq=False)
class HtmlPages:
    """Renders the pages and their streams."""

    answers: AnswerCache
    access: Access
    clock: Clock
    facts: HealthChecks
    templates: Environment
    files: Mapping[str, bytes]
    """Styles, script and icon, by path."""
    past: Past | None = None
    """The history of usage."""
    streams: int = 0
    """Number of open streams."""

    def is_open(self, path: str) -> bool:
        """Return whether a path needs no token: styles and the script, which hold no data."""
        return path in _FILES

    def knows(self, path: str) -> bool:
        """Return whether a path exists."""
        name, *rest = _parts(path)
        return path in _FILES or path == _EVENTS or (name in MAKERS and len(rest) <= _DEEPEST.get(name, 0))

    async def answer(self, request: Request, reader: Reader, look: Look | None) -> Response:
        """Return a page, a file or a stream."""
        if request.path in _FILES:
            body = self.files[request.path]
            return Response(body=body, content_type=_FILES[request.path], headers={"Cache-Control": "max-age=3600"})
        if request.path == _EVENTS:
            return self._stream(request, reader)
        name, *rest = _parts(request.path)
        page = Address(name=name, parts=tuple(rest), query=tuple(sorted(request.query.items())))
        if look is None:
            nothing = self._section("nothing", {"why": _NOTHING_YET}, page)
            body = self._whole(page, reader, None, "Nothing to show yet", [("nothing", nothing)])
            return Response(status=200, body=body, content_type=_HTML)
        made = await self._rendered(look, page)
        body = self._whole(page, reader, look, made.title, made.sections)
        return Response(status=200 if made.is_found else 404, body=body, content_type=_HTML)

    def sign_in(self, request: Request, why: str, status: int) -> Response:
        """Return the form for a token, or the error where a token does not help."""
        page = Address(name=_parts(request.path)[0], parts=tuple(_parts(request.path)[1:]))
        text = self.templates.get_template("refused.html").render(
            **self._common(page, Reader()),
            title="Who are you?" if status == 401 else "This is not shown",
            why=why,
            asks=status == 401 and self.access.asks_for_tokens,
        )
        return Response(status=status, body=text.encode(), content_type=_HTML)

    # --- Rendering -----------------------------------------------------------------------------------------------

    def history(self) -> History:
        """Return the remembered cycles and the health of the process."""
        feed = self.answers.feed
        return History(
            cycles=tuple(feed.cycles),
            happenings=tuple(feed.happenings),
            by_namespace={name: tuple(found) for name, found in feed.by_namespace.items()},
            facts=tuple(self.facts()),
            past=self.past,
        )

    async def look_for(self, reader: Reader, name: str, parts: Sequence[str]) -> Look | None:
        """Return what a reader may see of the present moment, for a page; None before the first cycle.

        Raises: ReviewError.
        """
        past = self.past.namespaces if name == _FINISHED and self.past is not None else None
        return await self.answers.look_for(self.access, reader, queue=_queue_of(name, parts), past=past)

    async def _rendered(self, look: Look, page: Address) -> Rendered:
        history = self.history()

        def make(seen: Look) -> Rendered:
            view = MAKERS[page.name](seen, seen.history(history), page.parts, dict(page.query))
            sections = [(name, self._section(name, values, page)) for name, values in view.sections.items()]
            return Rendered(title=view.title, is_found=view.is_found, sections=tuple(sections))

        key = ("page", page, history.newest, history.facts if page.name in _WITH_FACTS else (), self._tick(page))
        lane = DECIDING if page.name == "jobs" and len(page.parts) > 1 else PAST if page.name == _FINISHED else READING
        return await self.answers.ask(look, key, make, lane=lane)

    def _tick(self, page: Address) -> int:
        return self.past.tick if self.past is not None and page.name in _WITH_PAST else 0

    def _section(self, name: str, values: Mapping[str, Any], page: Address) -> str:
        return self.templates.get_template(f"{name}.html").render(root=page.root, here=page, **values)

    def _whole(
        self, page: Address, reader: Reader, look: Look | None, title: str, sections: Sequence[tuple[str, str]]
    ) -> bytes:
        text = self.templates.get_template("page.html").render(
            **self._common(page, reader), title=title, sections=sections, mark=self._mark(look)
        )
        return text.encode()

    def _common(self, page: Address, reader: Reader) -> dict[str, Any]:
        return {
            "root": page.root,
            "here": page,
            "still": _STILL if page.name == _FINISHED else (),
            "titles": TITLES,
            "reader": reader.name,
            "asks_for_tokens": self.access.asks_for_tokens,
        }

    # --- Streams -------------------------------------------------------------------------------------------------

    def _stream(self, request: Request, reader: Reader) -> Response:
        path, _, query = request.query.get("page", "").partition("?")
        name, *rest = _parts(path)
        if name not in MAKERS:
            return Response(status=404, body=b"there is no such page\n")
        # A stream holds its connection for hours; without a bound pages would find none.
        if self.streams >= MOST_STREAMS:
            return Response(status=503, body=b"too many streams are open\n")
        page = Address(name=name, parts=tuple(rest), query=tuple(sorted(parse_qsl(query))))
        # nginx would hold back events until its buffer is full.
        headers = {"X-Accel-Buffering": "no"}
        return Response(content_type="text/event-stream", headers=headers, pieces=self.events(reader, page))

    async def events(self, reader: Reader, page: Address) -> AsyncGenerator[bytes, None]:
        """Yield changed sections of a page, until the reader leaves or loses the right to see them."""
        self.streams += 1
        sent: dict[str, str] = {}
        checked, revision = self.clock.monotonic(), -1
        try:
            yield b"retry: 3000\n\n"
            while True:
                revision, news = self.answers.revision, None
                with anyio.move_on_after(PATIENCE):
                    news = await self._news(reader, page, sent)
                if news is None:
                    revision = -1  # the computation goes on in its thread, and the next round asks for it again
                yield news or _beat(self._mark(None))
                with anyio.move_on_after(min(BEAT, RECHECKED)):
                    await self.answers.newer(revision)
                if self.clock.monotonic() - checked >= RECHECKED:
                    if not await self.access.holds(reader):
                        yield b"event: over\ndata: the token is not valid any more\n\n"
                        return
                    checked = self.clock.monotonic()
        except* ReviewError:  # rights are reviewed concurrently, so failures arrive as a group
            pass  # what cannot be reviewed is not shown; the script reconnects
        finally:
            self.streams -= 1

    def _mark(self, look: Look | None) -> str:
        """Return the number of the shown cycle, preceded by problems of the process, which may be why it is old."""
        facts = History(facts=tuple(self.facts()))
        shown = facts if look is None else look.history(facts)
        wrong = [f"! {name}: {text}" for name, text, is_right in shown.facts if not is_right]
        return " · ".join([*wrong, *([] if look is None else [f"cycle {look.number}"])])

    async def _news(self, reader: Reader, page: Address, sent: dict[str, str]) -> bytes:
        """Return the sections that changed since they were sent, and the cycle that they show."""
        look = await self.look_for(reader, page.name, page.parts)
        if look is None:
            return _beat(self._mark(None))
        made = await self._rendered(look, page)
        out = []
        for name, text in made.sections:
            if sent.get(name) != text:
                sent[name] = text
                lines = "".join(f"data: {line}\n" for line in text.splitlines())
                out.append(f"id: {look.number}\nevent: {name}\n{lines}\n")
        return "".join(out).encode() + _beat(self._mark(look))


@attrs.frozen(kw_only=True)
class Rendered:
    """The sections of a page as text, by name."""

    title: str
    is_found: bool
    sections: tuple[tuple[str, str], ...]

    @property
    def size(self) -> int:
        """Number of characters, for the limit of the cache."""
        return sum(len(text) for _, text in self.sections)


@attrs.frozen(kw_only=True)
class Address:
    """A parsed address of a page."""

    name: str
    parts: tuple[str, ...] = ()
    query: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> str:
        """The relative path from this page to the first one; relative, so that it also works behind a proxy."""
        depth = len(self.parts) + bool(self.name) - 1
        return "../" * depth if depth > 0 else "./"

    @property
    def path(self) -> str:
        """The page as a parameter of the stream."""
        path = "/".join(quote(part, safe="") for part in (self.name, *self.parts))
        return f"{path}?{urlencode(self.query)}" if self.query else path

    def link(self, **changes: str) -> str:
        """Return the address of this page with changed parameters; "" removes one.

        A changed choice starts at the first page.
        """
        query = {**{name: value for name, value in self.query if name != "page"}, **changes}
        rest = urlencode({name: value for name, value in query.items() if value})
        # Relative to the page, so that it also works behind a proxy.
        last = (self.parts or (self.name,))[-1]
        return f"{quote(last, safe='')}?{rest}" if rest else quote(last, safe="") or "./"


def make_pages(
    answers: AnswerCache, access: Access, clock: Clock, facts: HealthChecks, past: Past | None = None
) -> HtmlPages:
    """Return the pages of a dashboard; ``past`` is its history of usage."""
    templates = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        # Names of objects and texts of conditions are foreign.
        autoescape=True,
        # A value that no view gives fails in tests, in place of an empty cell on a page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters |= {"span": span, "number": number, "instant": moment_text, "amount": _amount, "share": _share}
    templates.globals |= {"counted": counted, "quote": lambda text: quote(text, safe="")}
    files = {path: (_FOLDER / path.lstrip("/")).read_bytes() for path in _FILES}
    return HtmlPages(
        answers=answers, access=access, clock=clock, facts=facts, templates=templates, files=files, past=past
    )


def _beat(mark: str) -> bytes:
    # Scripts do not see comments, so send an event as well; proxies and other readers see the comment.
    return f": still here\n\nevent: beat\ndata: {' '.join(mark.split())}\n\n".encode()


def page_of(path: str) -> tuple[str, list[str]]:
    """Return the name of a page, and the parts of the path behind it."""
    name, *rest = _parts(path)
    return name, rest


def _queue_of(name: str, parts: Sequence[str]) -> str:
    return parts[0] if name == "queues" and len(parts) == 1 else ""


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")


def number(value: float | None) -> str:
    """Return an amount with no more decimals than needed; a dash for unlimited or unknown."""
    return "-" if value is None else number_text(round(value, 2))


def _amount(gpus: float) -> str:
    """Return thousandths of GPUs as GPUs."""
    return number(gpus / GPU_UNIT)


def _share(thousandths: float) -> str:
    """Return thousandths of a chart's width as a length of SVG."""
    return f"{number_text(round(thousandths / 10, 2))}%"
