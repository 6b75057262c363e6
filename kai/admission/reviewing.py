"""Reviews are answered side by side, each within its time, and all together in half of the processor's time.

The loop may be that of a scheduler, with its lease and its binds, so reviews are answered in threads. None waits for
another: one that is large, or slow for whatever reason, holds up itself. One that is not answered in time fails, and so
does what there is no thread for; what a review counts as that fails, the failure policy of its webhook says, as if this
process did not run. The API server would not listen any longer, and an answer in words is more than none.

Holds: as much time as answers took of the processor passes before others begin, so a flood of requests, which may be
large, leaves half of it to the rest of the process.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import anyio
import anyio.to_thread
import attrs
import msgspec
import structlog

from kai.admission.review import AdmissionRequest, AdmissionResponse, read_review, write_review
from kai.api.values.bad_value import BadValue
from kai.cluster.signals import Observe, ReviewEnded, unobserved
from kai.telemetry.connections import Request, Response

LONGEST: Final = 2.5
"""Seconds in which a review is answered. The webhook configurations have the API server wait for three."""
_AT_ONCE: Final = 8
_MOST_THREADS: Final = 32
"""So many threads at most, those included of which the review has failed and that have not ended yet."""
_PART: Final = 0.8
"""The part that an answer may take of the time for which the API server says that it waits."""
_SECONDS: Final = re.compile(r"([0-9]{1,4})s")

Decide: TypeAlias = Callable[[AdmissionRequest], AdmissionResponse]


class _Answer(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    """What is looked at of an answer."""

    response: _Answer


@attrs.define(eq=False)
class Reviewer:
    """Answers requests. Make it on the event loop."""

    doors: Mapping[str, Decide]
    longest: float = LONGEST
    observe: Observe = unobserved
    _limiter: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(_AT_ONCE))
    _deciding: set[int] = attrs.field(factory=set)
    """The threads that decide, by number; those included whose reviews have failed."""
    _rested: float = 0.0
    """When half of the processor's time since answers began will have been others'."""

    async def respond(self, request: Request) -> Response:
        """Return the answer, or within its time that there is none."""
        since, result = time.monotonic(), "failed"
        try:
            found = await self._respond(request)
            result = _result(found)
        finally:
            if request.path in self.doors:  # any client may ask for any path
                seconds = time.monotonic() - since
                self.observe(ReviewEnded(door=request.path, result=result, seconds=seconds))
        return found

    async def _respond(self, request: Request) -> Response:
        with anyio.move_on_after(self._limit(request)):
            async with self._limiter:
                await anyio.sleep(max(0.0, self._rested - time.monotonic()))
                if len(self._deciding) >= _MOST_THREADS:
                    return _failed("too many reviews are being decided")
                return await anyio.to_thread.run_sync(
                    self._answer, request, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
                )
        return _failed("not decided in time")

    def _limit(self, request: Request) -> float:
        """Return how long an answer may take: the API server says for how long it waits."""
        found = _SECONDS.fullmatch(request.query.get("timeout", ""))
        return self.longest if found is None else min(self.longest, _PART * int(found.group(1)))

    def _answer(self, request: Request) -> Response:
        """Return the answer. Runs in a thread."""
        thread, since = threading.get_ident(), time.thread_time()
        self._deciding.add(thread)
        try:
            status, body = answered(request.method, request.path, request.body, self.doors)
        finally:
            self._rested = max(self._rested, time.monotonic()) + (time.thread_time() - since)
            self._deciding.discard(thread)
        kind = "application/json" if status == 200 else "text/plain; charset=utf-8"
        return Response(status=status, body=body, content_type=kind)


def answered(method: str, path: str, body: bytes, doors: Mapping[str, Decide]) -> tuple[int, bytes]:
    """Return the status and the body with which a request is answered."""
    decide = doors.get(path)
    if decide is None:
        return 404, b"not found\n"
    if method != "POST":
        return 405, b"only POST\n"
    try:
        request = read_review(json.loads(body))
    except (ValueError, RecursionError, BadValue) as error:
        return 400, f"found no AdmissionReview: {error}\n".encode()
    response = decide(request)  # a bug of ours is an answer of 500, and for the failure policy of the webhook to judge
    if not response.allowed:
        structlog.get_logger().info("refused", kind=request.kind, namespace=request.namespace, why=response.message)
    return 200, json.dumps(write_review(request, response)).encode()


def _result(response: Response) -> str:
    """Return how a request was answered, in a word."""
    if response.status != 200:
        return "failed"
    return "allowed" if msgspec.json.decode(response.body, type=_Review).response.allowed else "refused"


def _failed(why: str) -> Response:
    return Response(status=503, body=f"{why}\n".encode())
