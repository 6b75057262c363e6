"""A usage database on the loopback interface: takes questions over HTTP as Prometheus does, answers from a table."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import anyio
import attrs
from anyio.abc import SocketAttribute, SocketStream

Samples = dict[str, float]


def vector(samples: Samples) -> dict[str, Any]:
    """Return what Prometheus says of a question that was answered."""
    result = [
        {"metric": {"queue_name": queue} if queue else {}, "value": [1_700_000_000.0, str(amount)]}
        for queue, amount in samples.items()
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def port_of(listener: Any) -> int:
    """Return where a listener listens."""
    port: int = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
    return port


@attrs.define
class Asked:
    """One question as it came."""

    method: str
    path: str
    query: str
    time: str
    head: str


@attrs.define
class PrometheusServer:
    """The database; ``answer`` says what it says to a question, ``status`` by which method it may be asked."""

    answer: Callable[[str], Any]
    status: Callable[[str], int] = lambda _: 200
    asked: list[Asked] = attrs.field(factory=list)
    address: str = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[PrometheusServer]:
        """Answer while the context lasts."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        self.address = f"http://127.0.0.1:{port_of(listener)}"
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield self
            tasks.cancel_scope.cancel()

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            data = b""
            while True:
                try:
                    while b"\r\n\r\n" not in data:
                        data += await stream.receive()
                    head, _, data = data.partition(b"\r\n\r\n")
                    lines = head.decode().split("\r\n")
                    lengths = [int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-len")]
                    while len(data) < sum(lengths):
                        data += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                body, data = data[: sum(lengths)], data[sum(lengths) :]
                await stream.send(self._respond(lines, body.decode()))

    def _respond(self, lines: list[str], body: str) -> bytes:
        method, target, _ = lines[0].split(" ")
        path, _, query = target.partition("?")
        values = {key: each[0] for key, each in parse_qs(query or body, strict_parsing=True).items()}
        self.asked.append(Asked(method, path, values["query"], values["time"], "\n".join(lines[1:])))
        status = self.status(method)
        answer = self.answer(values["query"]) if status == 200 else {"status": "error", "errorType": "bad_data"}
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return f"HTTP/1.1 {status} Some\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text
