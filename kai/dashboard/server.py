"""The HTTP routes of the dashboard: pages, the JSON API, streams, and the form for a token.

Requests only read; the form sets a cookie and nothing else. Every response forbids the browser what the pages do not
need: foreign scripts and styles, frames, other hosts, and caching.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qs

import anyio
import attrs

from kai.cluster.process.connections import Limits, Request, Response
from kai.cluster.requesting.reviews import ReviewError
from kai.dashboard import api
from kai.dashboard.access import COOKIE, Access, Reader, Refused
from kai.dashboard.answer_cache import DECIDING, READING, AnswerCache
from kai.dashboard.pages import HtmlPages, page_of

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
LIMITS: Final = Limits(connections=512, of_one_peer=256, answer_seconds=60.0, rest_seconds=20.0, body=32 * 1024)
"""Behind the API server's proxy all readers share one address."""
PATIENCE: Final = 20.0
"""Seconds after which a reader is asked to retry; the computation goes on, and its answer is cached by then."""
_SIGN_IN: Final = "/login"
_SIGN_OUT: Final = "/logout"
_SHADOW: Final = f"{api.ROOT}/shadow"
_OLDEST: Final = 10.0
"""Seconds behind the last cycle beyond which ``why`` is refused to readers of the whole: they can decide themselves."""
_LATER: Final = frozenset({429, 503})
_AGAIN: Final = 5
"""The Retry-After of 429 and 503 responses, in seconds."""
_OLD: Final = (
    "too much is asked, and the answer would be old; ask again, or decide yourself: kai why JOB --from SNAPSHOT"
)
_NO_CYCLE: Final = "no cycle has ended yet in this process, or another one leads; ask again in a moment"


@attrs.define(eq=False)
class Dashboard:
    """Answers requests."""

    answers: AnswerCache
    access: Access
    pages: HtmlPages
    is_encrypted: bool = False
    patience: float = PATIENCE
    snapshot: Callable[[], Awaitable[Response]] | None = None
    """Makes a file of everything that the scheduler reads."""
    shadow: Callable[[], Awaitable[Response]] | None = None
    """Reports how far this scheduler agrees with the running one, if it is a shadow."""

    async def respond(self, request: Request) -> Response:
        """Return the response to a request."""
        found: Response | None = None
        try:
            with anyio.move_on_after(self.patience):
                found = await self._answer(request)
        except* ReviewError as errors:
            found = self._refused(request, 503, _why(errors))
        if found is None:
            found = self._refused(request, 503, "this takes longer than a request may; it goes on, so ask again")
        if found.status in _LATER:
            found = attrs.evolve(found, headers={"Retry-After": f"{_AGAIN:g}", **found.headers})
        return attrs.evolve(found, headers={**HEADERS, **found.headers})

    async def _answer(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._post(request)
        if request.method not in {"GET", "HEAD"}:
            return attrs.evolve(api.problem(405, "only GET"), headers={"Allow": "GET, HEAD"})
        # Before any token is reviewed: the form that asks for one needs its styles.
        if self.pages.is_open(request.path):
            return await self.pages.answer(request, Reader(), None)
        reader = await self.access.reader(request)
        if isinstance(reader, Refused):
            return self._refused(request, reader.status, reader.why)
        return await self._read(request, reader)

    async def _read(self, request: Request, reader: Reader) -> Response:
        if request.path == _SHADOW and self.shadow is not None:
            return await self._whole(reader, self.shadow)
        if _is_twin(request.path):
            return await self._twin(request, reader)
        if request.path == "/snapshot.zip" and self.snapshot is not None:
            return await self._whole(reader, self.snapshot)
        if not self.pages.knows(request.path):
            return self._refused(request, 404, "there is no such page")
        look = await self.pages.look_for(reader, *page_of(request.path))
        return await self.pages.answer(request, reader, look)

    async def _whole(self, reader: Reader, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return a document about all namespaces, to a reader who may see them."""
        if not await self.access.may_take_all(reader):
            return api.problem(
                403, "not allowed to list pods, podgroups.scheduling.run.ai, queues and nodes everywhere"
            )
        return await make()

    async def _twin(self, request: Request, reader: Reader) -> Response:
        question = api.question_of(request.path, request.query)
        if isinstance(question, Response):
            return question
        look = await self.answers.look_for(self.access, reader, question.namespace, question.queue)
        if look is None:
            return api.problem(503, _NO_CYCLE)
        is_searched = question.parts == ("why",) and look.scope.is_whole and look.tries
        if is_searched and self.answers.seconds_behind > _OLDEST:
            return api.problem(503, _OLD)
        history = self.pages.history()
        remembers = question.parts in {("cycles",), ("evictions",)}
        # Only answers that show the past change with it; others are good for the whole moment.
        key = (question, history.newest if remembers else 0)
        return await self.answers.ask(
            look, key, lambda seen: api.answer(seen, question, history), lane=DECIDING if question.decides else READING
        )

    def _refused(self, request: Request, status: int, why: str) -> Response:
        if _is_twin(request.path):
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
            return attrs.evolve(api.problem(status, why), headers=headers)
        return self.pages.sign_in(request, why, status)

    # --- The form ------------------------------------------------------------------------------------------------

    async def _post(self, request: Request) -> Response:
        """Set or clear the cookie with a token; a form of another site is refused."""
        if not self.access.asks_for_tokens or request.path not in {_SIGN_IN, _SIGN_OUT}:
            return attrs.evolve(api.problem(405, "only GET"), headers={"Allow": "GET, HEAD"})
        # Browsers send it with a form; a program that does not has no cookie that a foreign form could use.
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
            return api.problem(403, "found a form of another site")
        secure = "; Secure" if self.is_encrypted else ""
        if request.path == _SIGN_OUT:
            return _moved(f"{COOKIE}=; HttpOnly; SameSite=Strict; Max-Age=0{secure}")
        token = parse_qs(request.body.decode("utf-8", "replace")).get("token", [""])[0].strip()
        asked = attrs.evolve(request, headers={"Authorization": f"Bearer {token}"})
        reader = await self.access.reader(asked)
        if isinstance(reader, Refused):
            return self.pages.sign_in(request, reader.why, 401)
        # Neither a script nor a link on another site gets to use it.
        return _moved(f"{COOKIE}={token}; HttpOnly; SameSite=Strict{secure}")


def _why(errors: BaseException) -> str:
    """Return why nothing is shown, with the right that kai itself lacks; the API server's address stays private."""
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    why = "the API server does not say who you are, or what you may see"
    is_ours = isinstance(errors, ReviewError) and not errors.retryable
    return f"{why}: {errors} (deploy/components/dashboard)" if is_ours else why


def _is_twin(path: str) -> bool:
    return path == api.ROOT or path.startswith(f"{api.ROOT}/")


def _moved(cookie: str) -> Response:
    # Relative, so that it also works behind a proxy. A cookie without Path applies to the folder of the form.
    return Response(status=303, headers={"Location": "./", "Set-Cookie": cookie})
