"""A proxy between kai and the API server that does to its connections what networks and servers do to them.

It ends the encryption with the API server's own certificate, which is for this machine, so that whoever trusts the one
trusts the other. Watches are passed on line by line, and can be cut off or told that their version is too old.
"""

import enum
import http.client
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

from tests.integration.client import Api
from tests.integration.connection import Connection
from tests.integration.controlplane import ControlPlane
from tests.integration.ports import HOST

_NOT_PASSED_ON = {"host", "connection", "transfer-encoding", "content-length"}
_EXPIRED = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "too old resource version: 1 (2)",
        "reason": "Expired",
        "code": 410,
    },
}


class Instead(Exception):  # noqa: N818 - an answer, not an error of ours
    """What a hook raises so that an error is answered, whether the API server did what it was asked for or not."""

    def __init__(self, code: int) -> None:
        super().__init__(f"answered with {code}")
        self.code = code


class Fate(enum.Enum):
    """What becomes of a watch."""

    CUT = "cut"
    EXPIRED = "expired"


@attrs.define
class Latency:
    """Pauses before answers and events: most are short, a few last up to ``longest`` seconds.

    They are drawn from a seed, so that a run can be repeated as far as the order of requests can.
    """

    longest: float
    seed: int = 0
    _draw: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin to draw."""
        self._draw = random.Random(self.seed)

    @classmethod
    def read(cls, text: str) -> "Latency | None":
        """Return what ``SECONDS`` or ``SECONDS:SEED`` says; None for nothing.

        Raises: ValueError for anything else.
        """
        if not text:
            return None
        longest, _, seed = text.partition(":")
        return cls(float(longest), int(seed or 0))

    def pass_by(self) -> None:
        """Wait for the next pause."""
        time.sleep(self.longest * self._draw.random() ** 3)


@attrs.define(eq=False)
class Watch:
    """A watch that is being passed on."""

    upstream: Connection
    path: str
    fate: Fate | None = None


@attrs.define(eq=False)
class Proxy:
    """What a test does to the connections of those who go through it."""

    plane: ControlPlane
    server: ThreadingHTTPServer
    watches: set[Watch] = attrs.field(factory=set)
    before: Callable[[str, str], None] = attrs.field(default=lambda _method, _path: None)
    """Called with the method and path of each request before it is passed on; what it raises ends the connection."""
    route: Callable[[str, str], str] = attrs.field(default=lambda _method, _path: "")
    """Where a request is passed on to, by its method and path; "" for the API server of the plane."""
    latency: Latency | None = None
    """How late answers and events are, besides what they take anyway."""
    after: Callable[[str, str], None] = attrs.field(default=lambda _method, _path: None)
    """Called once the API server has answered, before the answer is passed on; what it raises loses the answer."""
    answered: Callable[[str, str], None] = attrs.field(default=lambda _method, _path: None)
    """Called once an answer was passed on; not for watches."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://{HOST}:{self.server.server_address[1]}"

    def view(self, api: Api) -> Api:
        """Return a user's view of the API server through us."""
        return Api(self.url, api.ca_file, api.token)

    def end_watches(self, fate: Fate) -> int:
        """Cut off all watches that are open, or tell them that their version is too old; return how many."""
        with self._lock:
            ending = [each for each in self.watches if each.fate is None]
            for watch in ending:
                watch.fate = fate
                if watch.upstream.sock is not None:
                    with suppress(OSError):
                        watch.upstream.sock.shutdown(2)
        return len(ending)

    @contextmanager
    def watching(self, upstream: Connection, path: str) -> Iterator[Watch]:
        """Keep a watch among those that can be ended."""
        watch = Watch(upstream, path)
        with self._lock:
            self.watches.add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self.watches.discard(watch)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class gave it
        """Say nothing."""

    def _pass_on(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else None
        try:
            self._exchange(body)
        except Instead as answer:
            self._refuse(answer.code)

    def _exchange(self, body: bytes | None) -> None:
        self.proxy.before(self.command, self.path)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED_ON}
        upstream = self._upstream()
        try:
            upstream.request(self.command, self.path, body=body, headers=headers)
            response = upstream.getresponse()
            self._linger()
            self.proxy.after(self.command, self.path)
            if "watch=true" in self.path and response.status == http.client.OK:
                self._stream(upstream, response)
            else:
                self._answer(response)
                self.wfile.flush()
                self.proxy.answered(self.command, self.path)
        finally:
            upstream.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815 - names that the base class asks for

    def _linger(self) -> None:
        if self.proxy.latency is not None:
            self.proxy.latency.pass_by()

    def _upstream(self) -> Connection:
        plane = self.proxy.plane
        url = self.proxy.route(self.command, self.path) or plane.url
        return Connection(HOST, int(url.rpartition(":")[2]), ca_file=plane.admin.ca_file, timeout=600)

    def _begin(self, response: http.client.HTTPResponse) -> None:
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _NOT_PASSED_ON:
                self.send_header(name, value)

    def _answer(self, response: http.client.HTTPResponse) -> None:
        data = response.read()
        self._begin(response)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, code: int) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "message": "so it was wanted",
        }
        data = json.dumps(status).encode()
        self.send_response_only(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, upstream: Connection, response: http.client.HTTPResponse) -> None:
        self._begin(response)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with self.proxy.watching(upstream, self.path) as watch:
            for line in _lines(response):
                self._linger()
                self._chunk(line)
        if watch.fate is Fate.CUT:
            self.close_connection = True
            raise ConnectionResetError("cut")
        if watch.fate is Fate.EXPIRED:
            self._chunk(json.dumps(_EXPIRED).encode() + b"\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield whole lines until the other side or somebody here ends it."""
    rest = b""
    while True:
        try:
            data = response.read1(1 << 16)
        except (OSError, http.client.HTTPException, ValueError):
            return
        if not data:
            return
        whole, found, rest = (rest + data).rpartition(b"\n")
        if found:
            yield whole + b"\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: ssl.SSLContext, handler: type[_Handler]) -> None:
        super().__init__((HOST, 0), handler)
        self._context = context

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; its own thread does the handshake, or one slow client would hold up all others.

        A client may have reset the connection before it was accepted. ``ssl`` then raises without closing the socket,
        so we ask for the peer first.
        """
        connection, address = super().get_request()
        try:
            connection.getpeername()
        except OSError:
            connection.close()
            raise
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: to end connections is what we are for."""


@contextmanager
def proxied(plane: ControlPlane, latency: Latency | None = None) -> Iterator[Proxy]:
    """Run a proxy before an API server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates = plane.folder / "certificates"
    context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    handler = type("Handler", (_Handler,), {})
    server = _Server(context, handler)
    proxy = handler.proxy = Proxy(plane, server, latency=latency)  # type: ignore[attr-defined]  # a class of its own for each proxy
    thread = threading.Thread(target=server.serve_forever, name="proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        proxy.end_watches(Fate.CUT)
