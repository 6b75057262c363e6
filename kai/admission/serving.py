"""The webhooks on the network: HTTPS with the certificate of a folder, AdmissionReviews in, AdmissionReviews out.

The certificate is not made here. Something else makes it (cert-manager, the peer's operator, openssl), puts ``tls.crt``
and ``tls.key`` into a Secret and the authority into the webhook configurations. The files are read again when they
change, so a renewal needs no restart. Every replica answers, whether it leads or not.

Why our own and not a web framework: five paths that take one JSON document each. What is read is bounded in size and
time, and connections are kept, since the API server asks for every pod.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import attrs
import structlog
from anyio.abc import ByteStream, SocketAttribute, TaskStatus
from anyio.streams.tls import TLSListener

from kai.admission.queues import UNLIMITED, FindQueue, QueueShape, Quotas
from kai.admission.review import AdmissionRequest, AdmissionResponse, read_review, write_review
from kai.api.bad_value import BadValue
from kai.api.queue import Queue
from kai.cluster.port import Store
from kai.errors import ConfigError

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
MUTATING: Final = ("/mutate--v1-pod",)
VALIDATING: Final = (
    "/validate--v1-pod",
    "/validate-scheduling-run-ai-v2-queue",
    "/validate-scheduling-run-ai-v2alpha2-podgroup",
    "/validate-kai-scheduler-v1alpha1-topology",
)
PATHS: Final = (*MUTATING, *VALIDATING)
"""Source: the peer's paths, which its webhook configurations name."""

_LARGEST_HEAD: Final = 16_384
_LARGEST_BODY: Final = 8 * 1024 * 1024
_IDLE: Final = 120.0
_PATIENCE: Final = 10.0
_RELOAD: Final = 30.0
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    500: "Internal Server Error",
}

Decide: TypeAlias = Callable[[AdmissionRequest], AdmissionResponse]


@attrs.frozen(kw_only=True)
class Certificate:
    """The certificate and its key, in files that somebody else writes."""

    folder: Path

    @property
    def exists(self) -> bool:
        """Return whether both files are there."""
        return (self.folder / CERTIFICATE).is_file() and (self.folder / KEY).is_file()

    def stamp(self) -> tuple[int, ...]:
        """Return what changes when the files do."""
        with suppress(OSError):
            return tuple((self.folder / name).stat().st_mtime_ns for name in (CERTIFICATE, KEY))
        return ()

    def load_into(self, context: ssl.SSLContext) -> None:
        """Use the files for every connection that comes from now on.

        Raises: ConfigError if they are not there, or no certificate with its key.
        """
        try:
            context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        except (OSError, ValueError) as error:
            wanted = f"{CERTIFICATE} and {KEY} in PEM, of the name of the webhooks' Service"
            raise ConfigError.about("webhooks", str(self.folder), found=str(error), wanted=wanted) from None


async def serve_webhooks(
    port: int,
    certificate: Certificate,
    doors: Mapping[str, Decide],
    *,
    host: str | None = None,
    task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer the API server until cancelled; ``doors`` decide, by path. The task's start is told the port.

    Raises: ConfigError without a certificate, and if nobody may listen there.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate.load_into(context)
    try:
        bare = await anyio.create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        raise ConfigError(f":{port}: found {error.strerror or error}, expected a port that is free") from None
    listener = TLSListener(bare, context, standard_compatible=False)

    async def handle(stream: ByteStream) -> None:
        gone = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, TimeoutError, ssl.SSLError)
        async with stream:
            with suppress(*gone):  # the API server may go away whenever it likes
                await _converse(stream, doors)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(_renew, certificate, context)
        task_status.started(bare.extra(SocketAttribute.local_port))  # noqa: S610 - anyio's, not Django's
        await listener.serve(handle)


async def _renew(certificate: Certificate, context: ssl.SSLContext) -> None:
    known = certificate.stamp()
    while True:
        await anyio.sleep(_RELOAD)
        now = certificate.stamp()
        if now == known:
            continue
        try:
            certificate.load_into(context)
        except ConfigError as error:  # half written: the old one is good for a while, and this is asked again
            structlog.get_logger().warning("certificate not renewed", why=str(error))
        else:
            known = now
            structlog.get_logger().info("certificate renewed", folder=str(certificate.folder))


async def _converse(stream: ByteStream, doors: Mapping[str, Decide]) -> None:
    """Answer one request after the other on a connection."""
    rest = b""
    while True:
        with anyio.fail_after(_IDLE):
            while b"\r\n\r\n" not in rest:
                if len(rest) > _LARGEST_HEAD:
                    return
                rest += await stream.receive()
        head, _, rest = rest.partition(b"\r\n\r\n")
        method, path, headers = _read_head(head)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > _LARGEST_BODY or "transfer-encoding" in headers:
            await stream.send(_written(413, b"found a request of unknown or excessive size\n", keep=False))
            return
        with anyio.fail_after(_PATIENCE):
            while len(rest) < int(length):
                rest += await stream.receive()
        body, rest = rest[: int(length)], rest[int(length) :]
        keep = headers.get("connection", "").lower() != "close"
        status, answer = answered(method, path, body, doors)
        with anyio.fail_after(_PATIENCE):
            await stream.send(_written(status, answer, keep=keep))
        if not keep:
            return


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, target = first.partition(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return method, target.partition(" ")[0].partition("?")[0], headers


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
    try:
        response = decide(request)
    except Exception as error:  # noqa: BLE001 - a bug of ours is for the failure policy of the webhook to judge
        structlog.get_logger().error("webhook failed", path=path, why=repr(error), exc_info=True)
        return 500, b"this webhook failed; its log says why\n"
    if not response.allowed:
        structlog.get_logger().info("refused", kind=request.kind, namespace=request.namespace, why=response.message)
    return 200, json.dumps(write_review(request, response)).encode()


def _written(status: int, body: bytes, *, keep: bool) -> bytes:
    kind = "application/json" if status == 200 else "text/plain; charset=utf-8"
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    return head.encode() + body


def queue_finder(store: Store) -> FindQueue:
    """Return a look at the queues that are known."""

    def find(name: str) -> QueueShape | None:
        queue = store.get(Queue, name)
        return shape_of(queue) if queue is not None else None

    return find


def shape_of(queue: Queue) -> QueueShape:
    """Return what the rules read of a queue."""
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
    )
