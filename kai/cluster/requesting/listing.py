"""Lists all objects of a cluster once, for a program that reads and exits.

Nothing is watched and nothing is written. All kinds are listed concurrently, in pages. A kind that the server does not
serve is empty. If a kind cannot be read, the whole listing fails: a partial picture would show a different cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import attrs

from kai.api.codec.structuring import keep, structure_as
from kai.api.kinds import BY_CLASS, ApiObject
from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.pod import Pod
from kai.basics.errors import InputError, UnreachableError
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.cluster.caching.raw import Page, manifest_of, page_of
from kai.cluster.port import Clock
from kai.cluster.transport.calls import (
    JSON,
    LARGEST_PAGE,
    METADATA_LIST,
    VERSION_CALL,
    Answer,
    Call,
    NoAnswer,
    Transport,
    decoded,
    said,
    version_said,
)
from kai.cluster.transport.encoding import collection, page_query
from kai.cluster.transport.reachability import right_of

_PAGE: Final = 2000
_PATIENCE: Final = (1.0, 3.0)
"""Pauses before retries while the server cannot be reached.

Units: seconds.
"""
_TIMEOUT: Final = 30.0
_OVERLOADED: Final = frozenset({429, 500, 503, 504})
_NO_WORDS: Final = "did not answer"
_EVENTS: Final = "events"


@attrs.define
class Listing:
    """The objects of a cluster, and notes on objects that could not be parsed."""

    objects: list[ApiObject] = attrs.field(factory=list, repr=False)
    """Not in repr: asyncio formats the result of a task that ends, which for many pods takes as long as reading."""
    notes: list[str] = attrs.field(factory=list)
    revision: str = ""
    """The highest resourceVersion of the lists."""


@attrs.frozen(kw_only=True)
class Lister:
    """Lists kinds over a transport. ``cluster`` is its name in messages: ``context "prod"``."""

    transport: Transport
    clock: Clock
    server: str
    cluster: str

    async def list_all(self, kinds: Iterable[type[ApiObject]], namespace: str = "") -> Listing:
        """Return all objects of these kinds, in one namespace or in all.

        If several rights are missing, the error names that of the first kind, so that it is the same each time.

        Raises: UnreachableError.
        """
        found = Listing()
        pages: dict[type[ApiObject], list[Page]] = {cls: [] for cls in kinds}
        failures: dict[type[ApiObject], UnreachableError] = {}

        async def read(cls: type[ApiObject]) -> None:
            try:
                await self._read(cls, namespace, pages[cls], failures)
            except UnreachableError as error:
                failures[cls] = error
                if not error.missing:
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for cls in pages:
                tasks.start_soon(read, cls)
        if failures:
            # A server that fails explains more than a missing right, and it cancelled the other lists.
            raise next((error for error in failures.values() if not error.missing), None) or next(
                failures[cls] for cls in pages if cls in failures
            )
        for cls, read_pages in pages.items():
            for page in read_pages:
                _take(cls, page, found)
        return found

    async def version(self) -> KubernetesVersion:
        """Return the version of the API server; the newest known one if the server does not report it."""
        return version_said(await self.transport.request(VERSION_CALL)) or NEWEST

    async def list_events(self, reason: str, namespace: str = "") -> list[Mapping[str, Any]]:
        """Return the manifests of events with this reason, in one namespace or in all.

        Raises: UnreachableError.
        """
        return await self.list_manifests("v1", _EVENTS, namespace, (("fieldSelector", f"reason={reason}"),))

    async def list_manifests(
        self, api_version: str, plural: str, namespace: str = "", query: tuple[tuple[str, str], ...] = ()
    ) -> list[Mapping[str, Any]]:
        """Return the manifests of one kind; none if the server does not serve it.

        Raises: UnreachableError.
        """
        found: list[Mapping[str, Any]] = []
        token = ""
        while True:
            call = Call(
                method="GET",
                path=collection(api_version, plural, namespace),
                accept=JSON,
                timeout=_TIMEOUT,
                largest=LARGEST_PAGE,
            )
            answer = await self._asked(attrs.evolve(call, query=(*query, *page_query(_PAGE, token))))
            if answer.status == 404:
                return found
            page = page_of(answer.body) if answer.is_good else None
            if page is None:
                raise self._refused(answer, plural)
            manifests = (decoded(bytes(raw)) for raw in page.items or ())
            found += [each for each in manifests if isinstance(each, Mapping)]
            token = page.metadata.token
            if not token:
                return found

    async def _read(self, cls: type[ApiObject], namespace: str, into: list[Page], failures: Sized) -> None:
        kind = BY_CLASS[cls]
        for version in kind.api_versions:
            path = collection(version, kind.plural, namespace if kind.namespaced else "")
            # Of config maps only the existence matters.
            form = METADATA_LIST if cls is ConfigMap else JSON
            call = Call(method="GET", path=path, accept=form, timeout=_TIMEOUT, largest=LARGEST_PAGE)
            token = ""
            while True:
                answer = await self._asked(attrs.evolve(call, query=page_query(_PAGE, token)))
                if answer.status == 404 and cls is not Pod:
                    break  # every Kubernetes serves pods: a server that does not is no API server
                page = page_of(answer.body) if answer.is_good else None
                if page is None:
                    raise self._refused(answer, kind.plural)
                into.append(page)
                token = page.metadata.token
                if failures or not token:
                    return

    async def _asked(self, call: Call) -> Answer:
        """Return the answer to a call; retry after a pause if the server is overloaded or cannot be reached.

        Raises: UnreachableError.
        """
        began = self.clock.monotonic()
        answer = await self.transport.request(call)
        for pause in _PATIENCE:
            if isinstance(answer, Answer) and answer.status not in _OVERLOADED:
                return answer
            await self.clock.sleep(pause)
            answer = await self.transport.request(call)
        if isinstance(answer, Answer) and answer.status not in _OVERLOADED:
            return answer
        tried = f"tried {len(_PATIENCE) + 1} times in {self.clock.monotonic() - began:.0f}s"
        why = plain_words(answer) if isinstance(answer, NoAnswer) else f"answered with {answer.status}: {said(answer)}"
        raise UnreachableError(
            f"cannot reach the cluster of {self.cluster}: {address_of(self.server)} {why}", detail=tried
        )

    def _refused(self, answer: Answer, plural: str) -> UnreachableError:
        right = right_of(answer)
        if answer.status == 403 and right is not None:
            place = f"in namespace {right.namespace}" if right.namespace else "in all namespaces"
            group = f" of {right.group}" if right.group else ""
            return UnreachableError(
                f'not allowed to {right.verb} {right.resource}{group} {place} as "{right.account}" in the cluster of '
                f"{self.cluster}",
                detail="a role with get and list for what the scheduler reads is enough; nothing is written",
                is_forbidden=True,
                missing=f"{right.verb} {right.resource}",
            )
        if answer.is_good:
            what = f"answered {answer.status} without a list: it is not an API server"
        elif answer.status == 401:
            what = f"does not know these credentials (401): {said(answer)}"
        else:
            what = f"answered {answer.status}: {said(answer)}"
        return UnreachableError(
            f"cannot list {plural} of the cluster of {self.cluster}: {address_of(self.server)} {what}",
            is_forbidden=answer.status in {401, 403},
            missing=f"list {plural}" if answer.status == 403 else "",
        )


def address_of(server: str) -> str:
    """Return host and port of a server's URL."""
    # Without the user and password that a URL may have.
    return urlsplit(server).netloc.rpartition("@")[2] or server


def plain_words(answer: NoAnswer, timeout: float = _TIMEOUT) -> str:
    """Return an error in plain words, as the end of a sentence about the server."""
    text = answer.message.partition(": ")[2] or answer.message
    error, _, rest = text.partition(": ")
    for name, words in (
        ("Proxy", f"is not reached: {rest}"),
        ("ConnectionRefused", "refused the connection"),
        ("gaierror", "is a name that has no address"),
        ("ClientConnectorDNS", "is a name that has no address"),
        ("no answer in time", f"did not answer in {timeout:g}s"),
        ("Timeout", _NO_WORDS),
        ("SSLCertVerification", f"has a certificate that is not trusted: {rest}"),
        ("ClientConnectorCertificate", f"has a certificate that is not trusted: {rest}"),
        ("ConnectionReset", "cut the connection"),
        ("ServerDisconnected", "cut the connection"),
    ):
        if name in error:
            return words
    return f"gave no answer: {text}"


def _take(cls: type[ApiObject], page: Page, found: Listing) -> None:
    """Add the objects of a page; one that cannot be parsed is left out with a note, as in the service."""
    found.revision = max(found.revision, page.metadata.version, key=_number)
    for raw in page.items or ():
        manifest: Any = manifest_of(raw, cls)
        # Failed pods hold nothing, and a cluster may keep thousands of them.
        if cls is Pod and _is_failed(manifest):
            continue
        try:
            found.objects.append(structure_as(cls, keep(cls, manifest)))
        except InputError as error:
            found.notes.extend(error.messages)


def _is_failed(manifest: Any) -> bool:  # noqa: ANN401 - JSON from outside; the codec says what it is
    status = manifest.get("status") if isinstance(manifest, dict) else None
    return isinstance(status, dict) and status.get("phase") == "Failed"


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else -1
