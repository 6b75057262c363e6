"""The webhooks on the network: HTTPS, AdmissionReviews in, AdmissionReviews out.

The certificate comes from one of two places. Either kai makes it and keeps it in a Secret (`kai.admission.rotating`),
or something else does (cert-manager, the peer's operator, openssl): that puts ``tls.crt`` and ``tls.key`` into a folder
and the authority into the webhook configurations. Both are read again when they change, so a renewal needs no restart.
Every replica answers, whether it leads or not.

What connections may hold is bounded in `kai.telemetry.connections`; how much of the processor reviews may take, and for
how long, in `kai.admission.reviewing`.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import attrs
import structlog
from anyio.abc import TaskStatus

from kai.admission.certificates import end_of
from kai.admission.queues import UNLIMITED, FindQueue, QueueShape, Quotas
from kai.admission.reviewing import Decide, Reviewer
from kai.api.scheduling.queue import Queue
from kai.cluster.port import Store
from kai.cluster.signals import CertificateUsed, Observe, unobserved
from kai.errors import ConfigError, InputError
from kai.telemetry.connections import Limits, serve

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

_RELOAD: Final = 30.0
# One object of 1.5 MiB is what the API server can keep; a review has the object twice, with text escaped.
_LIMITS: Final = Limits(
    connections=512,
    of_one_peer=256,  # the API server keeps one for each request that waits
    head_seconds=5.0,  # with a handshake
    answer_seconds=10.0,
    rest_seconds=120.0,
    body=8 * 1024 * 1024,
)


@attrs.frozen(kw_only=True)
class Certificate:
    """The certificate and its key, in files that another program writes."""

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

    def context(self) -> ssl.SSLContext:
        """Return a context with the files as they are now.

        It is a new one each time: half of a renewed pair would take the key from one that is in use.

        Raises: ConfigError if they are not there, or no certificate with its key.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        except (OSError, ValueError) as error:
            wanted = f"{CERTIFICATE} and {KEY} in PEM, of the name of the webhooks' Service"
            raise ConfigError.about("webhooks", str(self.folder), found=str(error), wanted=wanted) from None
        return context


class Identity(Protocol):
    """With what the server answers, kept current."""

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context for a connection that begins now; there is one once this is ready."""
        ...

    async def ready(self) -> None:
        """Wait until there is something to answer with."""
        ...

    async def keep(self) -> None:
        """Keep it current, until cancelled."""
        ...


async def serve_webhooks(
    port: int,
    certificate: Identity,
    doors: Mapping[str, Decide],
    *,
    host: str = "",
    observe: Observe = unobserved,
    task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer the API server until cancelled; ``doors`` decide, by path. The task's start is told the port.

    Raises: ConfigError without a certificate, and if the port is not free.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(certificate.keep)
        await certificate.ready()
        respond = Reviewer(doors, observe=observe).respond
        await serve(host, port, respond, _LIMITS, context=lambda: certificate.context, task_status=task_status)


class CertificateOfFiles:
    """The certificate of a folder as it was last read whole.

    Raises: ConfigError if there is none.
    """

    def __init__(self, certificate: Certificate, observe: Observe = unobserved) -> None:
        self._certificate = certificate
        self._observe = observe
        self._known = certificate.stamp()
        self.context = certificate.context()
        self._tell()

    def _tell(self) -> None:
        with suppress(OSError, InputError):  # the library has just read it, and a file may change at any time
            ends_at = end_of((self._certificate.folder / CERTIFICATE).read_text())
            self._observe(CertificateUsed(ends_at))

    async def ready(self) -> None:
        """Return at once: without a certificate this would not have been made."""

    async def keep(self) -> None:
        """Read the files again whenever they change, until cancelled."""
        while True:
            await anyio.sleep(_RELOAD)
            now = self._certificate.stamp()
            if now == self._known:
                continue
            try:
                self.context = self._certificate.context()
            except ConfigError as error:  # half written: the old one is good for a while, and this is asked again
                structlog.get_logger().warning("certificate not renewed", why=str(error))
            else:
                self._known = now
                self._tell()
                structlog.get_logger().info("certificate renewed", folder=str(self._certificate.folder))


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
