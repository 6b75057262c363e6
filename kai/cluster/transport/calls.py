"""HTTP as values: a call to an API server, and its three possible results.

All traffic of this package passes through `Transport`: `kai.cluster.transport.client` implements it over the network, a
test or a simulation in memory. No error of a server or a network makes it raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML
METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

LARGEST: Final = 64 << 20
"""Limit of bytes of an answer, unless its call sets another. An object has at most a few million."""
LARGEST_PAGE: Final = 4 << 30
"""Limit of bytes of a page from the API server itself; some servers answer with all objects of a kind."""

Query: TypeAlias = tuple[tuple[str, str], ...]


def always() -> bool:
    """Return True: the call may be sent."""
    return True


@attrs.frozen(kw_only=True)
class Call:
    """One HTTP request."""

    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    """Wanted media type of the answer."""
    headers: Query = ()
    """Headers in addition to the common ones."""
    timeout: float = 30.0
    """Seconds until the answer must be complete; for a stream, until its first byte."""
    largest: int = LARGEST
    """Limit of bytes after which an answer counts as none: an aggregated API server of others may send it."""
    is_foreign: bool = False
    """Whether tenants chose the object, so that a refusal says nothing about the rights of this process."""
    may_send: Callable[[], bool] = attrs.field(default=always, eq=False, repr=False)
    """Checked just before the first byte is sent; if it returns False, the result is `NoAnswer`, not sent."""


@attrs.frozen(kw_only=True)
class Answer:
    """A complete HTTP response."""

    status: int
    body: bytes = b""
    retry_after: str = ""
    """The Retry-After header, unparsed."""
    location: str = ""
    """The Location header, unparsed: the target of a redirect."""

    @property
    def is_good(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


VERSION_CALL: Final = Call(method="GET", path="/version", timeout=4.0, is_foreign=True)
"""Requests the version of the API server."""


@attrs.frozen(kw_only=True)
class NoAnswer:
    """No complete response: the connection failed, was cut, or took too long."""

    was_sent: bool
    """Whether the server may have received the request; False only if that is impossible."""
    message: str = ""
    is_distrusted: bool = False
    """Whether the server's certificate is not trusted: the trusted authorities may have changed."""


class Stream(Protocol):
    """The body of a response, which arrives in pieces."""

    async def read(self) -> bytes | NoAnswer:
        """Return the bytes that have arrived, b"" at the regular end, or `NoAnswer` if the connection was cut."""
        ...


class Transport(Protocol):
    """A connection to an API server, with its address and credentials."""

    async def request(self, call: Call) -> Answer | NoAnswer:
        """Send a request and return the response."""
        ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[Stream | Answer | NoAnswer]:
        """Send a request and return the body as it arrives, or the response that refuses it."""
        ...


class LineSplitter:
    """Splits a stream of bytes into lines, however the bytes are divided into pieces.

    The bytes after the last line feed are kept until the rest of the line arrives, and lost with the stream.
    """

    def __init__(self, longest: int = 64 << 20) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._longest = longest

    def feed(self, data: bytes) -> tuple[bytes, ...]:
        """Return the complete lines, without line feeds and without empty lines.

        Raises: ValueError for a line longer than any object.
        """
        head, feed, tail = data.rpartition(b"\n")
        if not feed:
            self._keep(data)
            return ()
        whole = b"".join([*self._pieces, head])
        self._pieces.clear()
        self._size = 0
        self._keep(tail)
        return tuple(_lines(whole))

    def _keep(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self._size += len(data)
        if self._size > self._longest:
            raise ValueError(f"found a line of more than {self._longest} bytes, expected at most that")


def _lines(whole: bytes) -> Iterator[bytes]:
    return (line for line in whole.split(b"\n") if line.strip())
