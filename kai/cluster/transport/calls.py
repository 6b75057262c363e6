"""HTTP as values: what is asked of an API server, and the three things that can come back.

`Transport` is the narrow place through which everything of this package passes: `kai.cluster.transport.client` carries
it out over the network, a test or a simulation in memory. It never raises what a server or a network can cause.
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
"""Bytes of an answer, unless its call says otherwise. An object has a few million at most."""
LARGEST_PAGE: Final = 4 << 30
"""Bytes of a page of the API server's own; some servers answer with all of a kind."""

Query: TypeAlias = tuple[tuple[str, str], ...]


def always() -> bool:
    """Return that a call may be sent."""
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
    """In which form the answer is wanted."""
    headers: Query = ()
    """Headers besides those that every call has."""
    timeout: float = 30.0
    """Seconds until a complete answer; of a stream, until its first byte."""
    largest: int = LARGEST
    """Bytes after which an answer that goes on counts as none: an API server of others may be behind this one."""
    is_foreign: bool = False
    """Whether others chose what is read, so that a refusal says nothing about the rights of this process."""
    may_send: Callable[[], bool] = attrs.field(default=always, eq=False, repr=False)
    """Asked in the moment in which the first byte would go out; if it says no, the request is `NoAnswer`, not sent."""


@attrs.frozen(kw_only=True)
class Answer:
    """A complete HTTP response."""

    status: int
    body: bytes = b""
    retry_after: str = ""
    """The header of this name, as it is."""
    location: str = ""
    """The header of this name, as it is: where a server that redirects sends its callers."""

    @property
    def is_good(self) -> bool:
        """Return whether the server did what was asked."""
        return 200 <= self.status < 300


VERSION_CALL: Final = Call(method="GET", path="/version", timeout=4.0, is_foreign=True)
"""Asks for the version of the API server."""


@attrs.frozen(kw_only=True)
class NoAnswer:
    """No complete response: the connection failed, was cut, or took too long."""

    was_sent: bool
    """Whether the server may have received the request; False only when that is impossible."""
    message: str = ""
    is_distrusted: bool = False
    """Whether the server's certificate is not trusted: other authorities may have to be by now."""


class Stream(Protocol):
    """The body of a response that arrives bit by bit."""

    async def read(self) -> bytes | NoAnswer:
        """Return what has arrived, empty at the regular end, or that the connection was cut."""
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
    """Cuts a stream of bytes into lines, wherever the pieces of it begin and end.

    What follows the last line feed is kept until the rest of it arrives, and lost with the stream.
    """

    def __init__(self, longest: int = 64 << 20) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._longest = longest

    def feed(self, data: bytes) -> tuple[bytes, ...]:
        """Return the lines that are complete now, without line feeds and without empty ones.

        Raises: ValueError for a line longer than any object can be.
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
