"""The webhooks on the network: an HTTPS server that answers AdmissionReviews.

The certificate comes from one of two sources. Either kai makes it and keeps it in a Secret
(`kai.roles.admission.rotation`), or another program provides it (cert-manager, the peer's operator, openssl): that
writes ``tls.crt`` and ``tls.key`` into a folder and the authority into the webhook configurations. Both are read again
when they change, so a renewal needs no restart. Every replica serves, whether it leads or not.

`kai.cluster.process.connections` bounds the connections; this module bounds the processor time of reviews and their
latency.

The event loop may be that of a scheduler, with its lease and its binds, so reviews are answered in threads. They run
side by side: a review that is large, or slow for another reason, delays only itself. A review fails if it is not
answered in time, or if no thread is free. The failure policy of its webhook decides about a failed review, as if this
process did not run. The API server would have stopped waiting by then, and an explicit failure is better than none.

Holds: after answers have used the processor for some time, the same time passes before other answers begin. So a flood
of requests, which may be large, leaves half of the processor to the rest of the process.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio
import anyio.to_thread
import attrs
import msgspec
import structlog

from kai.api.conventions import queue_rules
from kai.api.scheduling.queue import Queue
from kai.api.values import BadValue
from kai.basics.errors import ConfigError, InputError
from kai.cluster.process.connections import Limits, Request, Response, serve
from kai.cluster.signals import CertificateUsed, Observe, ReviewEnded, unobserved
from kai.roles.admission.certificates import end_of
from kai.roles.admission.queues import UNLIMITED, FindQueue, QueueShape, Quotas
from kai.roles.admission.review import AdmissionRequest, AdmissionResponse, read_review, write_review

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from kai.cluster.port import Store

LONGEST: Final = 2.5
"""The deadline of a review, in seconds. The webhook configurations have the API server wait for three."""
_AT_ONCE: Final = 8
_MOST_THREADS: Final = 32
"""The most threads, including those whose review has failed and that still run."""
_PART: Final = 0.8
"""The fraction of the API server's own timeout within which a review is answered."""
_SECONDS: Final = re.compile(r"([0-9]{1,4})s")

Decide: TypeAlias = Callable[[AdmissionRequest], AdmissionResponse]


class _Answer(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    """The part of an answer that is read for metrics."""

    response: _Answer


@attrs.define(eq=False)
class Reviewer:
    """Answers requests. Create it on the event loop."""

    doors: Mapping[str, Decide]
    longest: float = LONGEST
    observe: Observe = unobserved
    _limiter: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(_AT_ONCE))
    _deciding: set[int] = attrs.field(factory=set)
    """The running threads, by number, including those whose reviews have failed."""
    _rested: float = 0.0
    """When the next answer may begin, so that half of the processor's time is left to the rest."""

    async def respond(self, request: Request) -> Response:
        """Return the answer, or a failure at the deadline."""
        since, result = time.monotonic(), "failed"
        try:
            found = await self._respond(request)
            result = _result(found)
        finally:
            if request.path in self.doors:  # unknown paths are not measured: any client may request any path
                seconds = time.monotonic() - since
                self.observe(ReviewEnded(door=request.path, result=result, seconds=seconds))
        return found

    async def _respond(self, request: Request) -> Response:
        with anyio.move_on_after(self._limit(request)):
            async with self._limiter:
                await anyio.sleep(max(0.0, self._rested - time.monotonic()))
                # The limiter does not count threads whose reviews have timed out: cancellation frees its place, and the
                # thread goes on.
                if len(self._deciding) >= _MOST_THREADS:
                    return _failed("too many reviews are being decided")
                # An abandoned thread runs on, and counts until it ends: slow reviews cannot pile up beyond the limit.
                return await anyio.to_thread.run_sync(
                    self._answer, request, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
                )
        return _failed("not decided in time")

    def _limit(self, request: Request) -> float:
        """Return the deadline of an answer, below the timeout that the API server sends."""
        # The API server sends its timeout with each call, and an administrator may have set a shorter one than
        # `LONGEST`.
        found = _SECONDS.fullmatch(request.query.get("timeout", ""))
        return self.longest if found is None else min(self.longest, _PART * int(found.group(1)))

    def _answer(self, request: Request) -> Response:
        """Return the answer. Runs in a thread."""
        thread, since = threading.get_ident(), time.thread_time()
        self._deciding.add(thread)
        try:
            status, body = answered(request.method, request.path, request.body, self.doors)
        finally:
            # The processor time of this thread alone: a thread that waits for the interpreter lock takes nothing from
            # the others.
            self._rested = max(self._rested, time.monotonic()) + (time.thread_time() - since)
            self._deciding.discard(thread)
        kind = "application/json" if status == 200 else "text/plain; charset=utf-8"
        return Response(status=status, body=body, content_type=kind)


def answered(method: str, path: str, body: bytes, doors: Mapping[str, Decide]) -> tuple[int, bytes]:
    """Return status and body of the answer to a request."""
    decide = doors.get(path)
    if decide is None:
        return 404, b"not found\n"
    if method != "POST":
        return 405, b"only POST\n"
    try:
        request = read_review(json.loads(body))
    except (ValueError, RecursionError, BadValue) as error:
        return 400, f"found no AdmissionReview: {error}\n".encode()
    response = decide(request)  # an exception becomes status 500, and the failure policy of the webhook decides
    if not response.allowed:
        structlog.get_logger().info("refused", kind=request.kind, namespace=request.namespace, why=response.message)
    return 200, json.dumps(write_review(request, response)).encode()


def _result(response: Response) -> str:
    """Return the result of a request in a word, for metrics."""
    if response.status != 200:
        return "failed"
    return "allowed" if msgspec.json.decode(response.body, type=_Review).response.allowed else "refused"


def _failed(why: str) -> Response:
    return Response(status=503, body=f"{why}\n".encode())


CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
MUTATING: Final = ("/mutate--v1-pod",)
VALIDATING: Final = (
    "/validate--v1-pod",
    "/validate-scheduling-run-ai-v2-queue",
    "/validate-scheduling-run-ai-v2alpha2-podgroup",
    "/validate-kai-scheduler-v1alpha1-topology",
)
USER_NOTE: Final = "/mutate-user-note"
NO_USER_NOTE: Final = "/mutate-no-user-note"
NOTES: Final = (USER_NOTE, NO_USER_NOTE)
"""Paths of the notes of users, which exist where users have limits."""
PATHS: Final = (*MUTATING, *VALIDATING)
"""Source: the peer's paths, which its webhook configurations contain."""

_RELOAD: Final = 30.0
# The API server stores objects of up to 1.5 MiB; a review has the object twice, with text escaped.
_LIMITS: Final = Limits(
    connections=512,
    of_one_peer=256,  # the API server opens one for each request that waits
    head_seconds=5.0,  # with a handshake
    answer_seconds=10.0,
    rest_seconds=120.0,
    body=8 * 1024 * 1024,
)


@attrs.frozen(kw_only=True)
class Certificate:
    """A certificate and its key, in files that another program writes."""

    folder: Path

    @property
    def exists(self) -> bool:
        """Return whether both files exist."""
        return (self.folder / CERTIFICATE).is_file() and (self.folder / KEY).is_file()

    def stamp(self) -> tuple[int, ...]:
        """Return a value that changes when the files do."""
        with suppress(OSError):
            return tuple((self.folder / name).stat().st_mtime_ns for name in (CERTIFICATE, KEY))
        return ()

    def context(self) -> ssl.SSLContext:
        """Return a TLS context with the present files.

        Raises: ConfigError if the files do not exist, or are no certificate with its key.
        """
        # A new context each time: to load half of a renewed pair into the one in use would break its key.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        except (OSError, ValueError) as error:
            wanted = f"{CERTIFICATE} and {KEY} in PEM, of the name of the webhooks' Service"
            raise ConfigError.about("webhooks", str(self.folder), found=str(error), wanted=wanted) from None
        return context


class ServerIdentity(Protocol):
    """The server's certificate, kept current."""

    @property
    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a connection that begins now; there is one after `ready`."""
        ...

    async def ready(self) -> None:
        """Wait until there is a certificate."""
        ...

    async def keep(self) -> None:
        """Keep the certificate current, until cancelled."""
        ...


async def serve_webhooks(
    port: int,
    certificate: ServerIdentity,
    doors: Mapping[str, Decide],
    *,
    host: str = "",
    observe: Observe = unobserved,
    task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the API server until cancelled; ``doors`` decide, by path. ``task_status`` gets the port.

    Raises: ConfigError without a certificate, and if the port is not free.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(certificate.keep)
        await certificate.ready()
        respond = Reviewer(doors, observe=observe).respond
        await serve(host, port, respond, _LIMITS, context=lambda: certificate.context, task_status=task_status)


class CertificateOfFiles:
    """The certificate of a folder, as of the last complete read.

    Raises: ConfigError if there is no certificate.
    """

    def __init__(self, certificate: Certificate, observe: Observe = unobserved) -> None:
        self._certificate = certificate
        self._observe = observe
        self._known = certificate.stamp()
        self.context = certificate.context()
        self._report_expiry()

    def _report_expiry(self) -> None:
        with suppress(OSError, InputError):  # it was readable just before, but a file may change at any time
            ends_at = end_of((self._certificate.folder / CERTIFICATE).read_text())
            self._observe(CertificateUsed(ends_at))

    async def ready(self) -> None:
        """Return at once: without a certificate the constructor fails."""

    async def keep(self) -> None:
        """Read the files again whenever they change, until cancelled."""
        while True:
            await anyio.sleep(_RELOAD)
            now = self._certificate.stamp()
            # Known as of the last read that succeeded: files that are half written are read again in the next round.
            if now == self._known:
                continue
            try:
                self.context = self._certificate.context()
            except ConfigError as error:  # half written: keep the old certificate and try again
                structlog.get_logger().warning("certificate not renewed", why=str(error))
            else:
                self._known = now
                self._report_expiry()
                structlog.get_logger().info("certificate renewed", folder=str(self._certificate.folder))


def queue_finder(store: Store) -> FindQueue:
    """Return a look-up of queues in the store."""

    def find(name: str) -> QueueShape | None:
        queue = store.get(Queue, name)
        return shape_of(queue) if queue is not None else None

    return find


def shape_of(queue: Queue) -> QueueShape:
    """Return the fields of a queue that rules read."""
    found: Any = queue.spec.resources
    quotas = None
    if found is not None:
        known = {name: getattr(found, name).quota for name in ("cpu", "gpu", "memory")}
        quotas = Quotas(**{name: UNLIMITED if quota < 0 else quota for name, quota in known.items()})
    return QueueShape(
        name=queue.metadata.name,
        parent=queue.spec.parent_queue,
        quotas=quotas,
        children=queue.status.child_queues,
        rules=queue_rules.shape_of(queue),
    )
