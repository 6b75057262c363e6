"""A server of a few lines that answers HTTP requests as it is told, on a real socket."""

from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSListener

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next of its answers; the last one again and again.

    An answer is bytes, or pieces of them and seconds in between: a tuple of pieces ends with its connection, and a list
    does not. None closes the connection.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.answered = anyio.Event()
        self.connections = 0
        self.used = []
        """On which of the connections each request came, counted from one."""
        self.address = ""

    async def handle(self, stream):
        self.connections += 1
        number = self.connections
        async with stream:
            buffer = b""
            while True:
                try:
                    buffer += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                head, end, rest = buffer.partition(b"\r\n\r\n")
                length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"ngth:" in line), 0)
                if not end or len(rest) < length:
                    continue
                buffer = b""
                self.requests.append((head.decode(), rest[:length]))
                self.used.append(number)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    return
                for piece in (answer,) if isinstance(answer, bytes) else answer:
                    await (anyio.sleep(piece) if isinstance(piece, float) else stream.send(piece))
                self.answered.set()
                if isinstance(answer, tuple):
                    return  # an answer in pieces ends with its connection


@asynccontextmanager
async def serving(*answers, tls=None):
    """Serve on the loopback, with TLS where there is a context for it."""
    server = Server(*answers)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra_attributes[SocketAttribute.local_port]()
    if tls is not None:
        listener = TLSListener(listener, tls)
    async with listener, anyio.create_task_group() as tasks:
        server.address = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
        tasks.start_soon(listener.serve, server.handle)
        yield server
        tasks.cancel_scope.cancel()
