"""Reading one answer of HTTP/1.1 from the bytes of a connection, in whatever pieces they come. No I/O.

Source: RFC 9112; of what it allows, what an API server sends to a client that asks for no compression: a length, chunks
with or without trailers, or a body that ends with the connection.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

from kai.cluster.calls import Answer

_LONGEST_HEAD: Final = 1 << 16
_BODILESS: Final = frozenset({204, 304})


class MalformedError(ValueError):
    """What came is no HTTP."""


class _Part(enum.Enum):
    """What is next in an answer that comes in chunks."""

    SIZE = enum.auto()
    DATA = enum.auto()
    END = enum.auto()
    TRAILER = enum.auto()


class Response:
    """An answer, as far as it has arrived."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._pieces: list[bytes] = []
        self._status = 0
        self._left: int | None = None
        """Bytes of the body, or of the chunk, that are still to come; None where the connection ends it."""
        self._is_chunked = False
        self._part = _Part.SIZE
        self._retry_after = ""
        self.keeps_connection = True
        """Whether another answer may follow on the same connection."""

    @property
    def ends_with_connection(self) -> bool:
        """Return whether the answer is whole once the connection is closed."""
        return bool(self._status) and self._left is None and not self._is_chunked

    @property
    def has_more(self) -> bool:
        """Return whether something came that belongs to no answer."""
        return bool(self._buffer)

    def answer(self) -> Answer:
        """Return the answer."""
        return Answer(status=self._status, body=b"".join(self._pieces), retry_after=self._retry_after)

    def feed(self, data: bytes) -> bool:
        """Take more bytes; return whether the answer is whole.

        Raises: MalformedError.
        """
        self._buffer += data
        while not self._status:
            head = self._cut(b"\r\n\r\n")
            if head is None:
                return False
            self._read_head(head)
        return self._feed_chunks() if self._is_chunked else self._feed_body()

    def _cut(self, end: bytes) -> bytes | None:
        """Take what is before a mark out of the buffer, with the mark; None if it has not come yet."""
        at = self._buffer.find(end)
        if at < 0:
            if len(self._buffer) > _LONGEST_HEAD:
                raise MalformedError("a line that does not end")
            return None
        piece = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return piece

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        version, _, rest = first.partition(b" ")
        digits = rest[:3]  # bytes: only those of ASCII are digits
        if not version.startswith(b"HTTP/1.") or len(digits) < 3 or not digits.isdigit() or digits < b"100":
            raise MalformedError(repr(first[:80]))
        status = int(digits)
        if status < 200:
            return  # a word in between; the answer follows
        self._status = status
        self._left = 0 if status in _BODILESS else None
        self.keeps_connection = version == b"HTTP/1.1"
        for name, value in _fields(lines):
            if name == b"content-length" and status not in _BODILESS:
                if not value.isdigit() or len(value) > 12:
                    raise MalformedError(f"a length of {value!r}")
                self._left = int(value)
            elif name == b"transfer-encoding":
                self._is_chunked = value.lower() == b"chunked"
            elif name == b"connection":
                self.keeps_connection = value.lower() != b"close" and self.keeps_connection
            elif name == b"retry-after":
                self._retry_after = value.decode("latin-1")
        if self._is_chunked:
            self._left = 0
        elif self._left is None:
            self.keeps_connection = False

    def _feed_body(self) -> bool:
        if self._left is None:
            self._pieces.append(bytes(self._buffer))
            self._buffer.clear()
            return False
        self._take_left()
        return not self._left

    def _feed_chunks(self) -> bool:
        while True:
            if self._part is _Part.DATA:
                self._take_left()
                if self._left:
                    return False
                self._part = _Part.END
            line = self._cut(b"\r\n")
            if line is None:
                return False
            if self._part is _Part.SIZE:
                self._left = _size(line)
                self._part = _Part.DATA if self._left else _Part.TRAILER
            elif self._part is _Part.END:
                if line:
                    raise MalformedError(f"{line[:80]!r} after a chunk")
                self._part = _Part.SIZE
            elif not line:
                return True

    def _take_left(self) -> None:
        count = self._left or 0
        piece = bytes(self._buffer[:count])
        del self._buffer[:count]
        if piece:
            self._pieces.append(piece)
        self._left = count - len(piece)


def _fields(lines: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise MalformedError(repr(line[:80]))
        yield name.strip().lower(), value.strip()


def _size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    try:
        if len(digits) > 8 or not digits.isalnum():
            raise ValueError
        return int(digits, 16)
    except ValueError:
        raise MalformedError(f"a chunk of {digits[:80]!r} bytes") from None
