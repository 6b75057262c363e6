"""What is relied on beyond HTTP: whether a request went out, that it went out once, and whose answer came back."""

import socket
from contextlib import asynccontextmanager, suppress

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.cluster.transport.calls import Answer, Call, NoAnswer
from kai.cluster.transport.connections import Connections
from tests.doubles.packets import LENGTHS, mutated
from tests.doubles.scripted_http import OK, serving

GET = Call(method="GET", path="/x", timeout=5.0)
WRITE = Call(method="PATCH", path="/x", body=b"{}", timeout=5.0)
STALE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale"
MOVED = b"HTTP/1.1 302 Found\r\nLocation: https://sso.example.com/\r\nContent-Length: 0\r\n\r\n"
LENGTH = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nRetry-After: 3\r\n\r\nhello"
CHUNKS = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\n\r\na\r\nA;x=1\r\n0123456789\r\n0\r\nTrailer: yes\r\n\r\n"
)
EARLY = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n"


@asynccontextmanager
async def connected(server, **options):
    connections = Connections(server.address, **options)
    try:
        yield connections
    finally:
        await connections.close()


def answers(*each):
    """Return an answer to the question whether a call may be sent: these, one after the other."""
    left = list(each)
    return lambda: left.pop(0)


# --- When a request goes out ---------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_connections_are_kept_and_not_more_than_allowed():
    async with serving(OK) as server, connected(server, most=2) as connections:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(connections.exchange, GET)
        assert len(server.requests) == 10
        assert server.connections <= 2


@pytest.mark.anyio
async def test_connections_are_reused_last_in_first_out():
    async with serving(OK) as server, connected(server) as connections:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(connections.exchange, GET)
        assert server.connections == 5
        for _ in range(10):
            await connections.exchange(GET)
        assert len(set(server.used[5:])) == 1


@pytest.mark.anyio
async def test_a_withheld_call_leaves_its_connection_usable():
    """A process may be frozen while it connects, and its term be over when it wakes."""
    async with serving(OK) as server, connected(server) as connections:
        assert await connections.exchange(GET) == Answer(status=200, body=b"ok")
        late = attrs.evolve(WRITE, may_send=answers(False))
        found = await connections.exchange(late)
        assert found == NoAnswer(was_sent=False, message="it may not be sent any more")
        assert await connections.exchange(GET) == Answer(status=200, body=b"ok")
        assert [head.split()[0] for head, _ in server.requests] == ["GET", "GET"]
        assert server.connections == 1


@pytest.mark.anyio
async def test_it_is_asked_again_right_before_the_first_byte():
    """A body goes out in a turn of the loop after the one in which its connection was found."""
    async with serving(OK) as server, connected(server) as connections:
        found = await connections.exchange(attrs.evolve(WRITE, may_send=answers(True, False)))
        assert found == NoAnswer(was_sent=False, message="it may not be sent any more")
        assert await connections.exchange(WRITE) == Answer(status=200, body=b"ok")
        assert len(server.requests) == 1


@pytest.mark.anyio
async def test_a_connection_closed_before_sending_sent_nothing():
    async with serving(OK) as server, connected(server) as connections:

        def close():
            for protocol in connections._session.connector._acquired:
                protocol.transport.abort()
            return True

        found = await connections.exchange(attrs.evolve(WRITE, may_send=close))
        assert isinstance(found, NoAnswer)
        assert not found.was_sent
        assert server.requests == []


@pytest.mark.anyio
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "POST"])
async def test_a_request_is_sent_once_despite_a_broken_connection(method):
    async with serving(OK, None, OK) as server, connected(server) as connections:
        assert await connections.exchange(GET) == Answer(status=200, body=b"ok")
        found = await connections.exchange(Call(method=method, path="/x", body=None if method == "GET" else b"{}"))
        assert isinstance(found, NoAnswer)
        assert found.was_sent
        assert len(server.requests) == 2


@pytest.mark.anyio
async def test_a_path_goes_out_as_it_is():
    """Others may choose names: one of two dots must not lead to another object."""
    async with serving(OK) as server, connected(server) as connections:
        await connections.exchange(Call(method="GET", path="/a/../b%2Fc", query=(("x", "1 &"),)))
        assert server.requests[0][0].startswith("GET /a/../b%2Fc?x=1+%26 HTTP/1.1\r\n")


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/a b", "/a#b", "/a\r\nX: y", "/ä", "/\x00"])
async def test_characters_that_no_path_has_are_not_sent(path):
    async with serving(OK) as server, connected(server) as connections:
        found = await connections.exchange(Call(method="GET", path=path))
        assert isinstance(found, NoAnswer)
        assert not found.was_sent
        assert server.requests == []


@pytest.mark.filterwarnings("ignore:Sending a large body")
@pytest.mark.anyio
async def test_a_call_that_is_given_up_sends_no_more():
    size = 64 << 20

    def received() -> int:
        """Return how many bytes came in all, once the connection is over."""
        total, (stream, _) = 0, listener.accept()
        with stream, suppress(ConnectionResetError):
            while part := stream.recv(1 << 20):
                total += len(part)
        return total

    # Nothing is read before the call is given up, so most of it is still on our side then.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = Connections(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with anyio.move_on_after(0.2):
            await connections.exchange(Call(method="POST", path="/x", body=b"x" * size))
        assert await anyio.to_thread.run_sync(received) < size
        await connections.close()


@pytest.mark.anyio
async def test_a_proxy_is_asked_for_the_whole_address():
    async with serving(OK) as server:
        connections = Connections("http://there:1/base", proxy=server.address)
        assert await connections.exchange(GET) == Answer(status=200, body=b"ok")
        await connections.close()
        assert server.requests[0][0].startswith("GET http://there:1/base/x HTTP/1.1\r\n")


@pytest.mark.anyio
async def test_a_proxy_that_refuses_is_named_without_its_password():
    async with serving(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as server:
        proxy = server.address.replace("//", "//me:secret@")
        connections = Connections("https://there:1", proxy=proxy)
        found = await connections.exchange(GET)
        await connections.close()
    assert found == NoAnswer(was_sent=False, message="ClientHttpProxyError: the proxy answered 407")
    connections = Connections("https://there:1", proxy=proxy)
    found = await connections.exchange(GET)
    await connections.close()
    place = server.address.removeprefix("http://")
    assert found == NoAnswer(was_sent=False, message=f"ClientProxyConnectionError: the proxy {place} cannot be reached")


# --- What comes back -----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_what_follows_an_answer_is_not_the_next_one():
    async with serving(OK + STALE, OK) as server, connected(server) as connections:
        assert await connections.exchange(GET) == Answer(status=200, body=b"ok")
        assert await connections.exchange(GET) == Answer(status=200, body=b"ok")
        assert server.connections == 2


@pytest.mark.anyio
async def test_an_unsolicited_answer_is_not_used():
    async with serving([OK, 0.02, STALE], OK) as server, connected(server) as connections:
        assert await connections.exchange(GET) == Answer(status=200, body=b"ok")
        await server.answered.wait()
        await anyio.sleep(0.02)  # some turns of the loop, for it to arrive
        found = await connections.exchange(WRITE)
        wanted = "ClientConnectionError: the server spoke without being asked"
        assert found == NoAnswer(was_sent=False, message=wanted)
        assert await connections.exchange(WRITE) == Answer(status=200, body=b"ok")
        assert len(server.requests) == 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (MOVED, Answer(status=302, location="https://sso.example.com/")),
        (LENGTH, Answer(status=201, body=b"hello", retry_after="3")),
        (CHUNKS, Answer(status=200, body=b"\r\na0123456789")),
        (EARLY, Answer(status=204)),
        (b"HTTP/1.1 200 OK\r\n\r\nall of it", Answer(status=200, body=b"all of it")),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Answer(status=200, body=b"ok")),
    ],
    ids=["redirect", "length", "chunks", "early", "until the end", "old"],
)
async def test_an_answer_is_the_same_however_it_is_cut(data, answer):
    pieces = tuple(piece for at in range(len(data)) for piece in (data[at : at + 1], 0.0))
    async with serving(pieces) as server, connected(server) as connections:
        assert await connections.exchange(GET) == answer


@pytest.mark.anyio
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 2\xb20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 20),
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * (1 << 16),
    ],
    ids=["words", "no status", "digits", "no colon", "size", "sign", "after a chunk", "endless line", "endless head"],
)
async def test_invalid_http_is_refused_as_possibly_sent(data):
    async with serving((data, 5.0)) as server, connected(server) as connections:
        found = await connections.exchange(GET)
        assert isinstance(found, NoAnswer)
        assert found.was_sent
        assert found.message != "no answer in time"
        assert len(found.message) < 1000
        assert "\n" not in found.message


@pytest.mark.anyio
@pytest.mark.parametrize("length", [each for each in LENGTHS if not each.isdigit()])
async def test_a_length_that_is_no_number_is_refused(length):
    data = b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n{}"
    async with serving((data,)) as server, connected(server) as connections:
        assert isinstance(await connections.exchange(GET), NoAnswer)


@settings(max_examples=60)
@given(data=st.one_of(st.binary(max_size=300), mutated(LENGTH), mutated(CHUNKS), mutated(EARLY)))
def test_whatever_a_server_sends_is_an_answer_or_none(data):
    async def ask():
        async with serving((data,)) as server, connected(server) as connections:
            found = await connections.exchange(attrs.evolve(WRITE, timeout=2.0))
            assert isinstance(found, Answer) or found.was_sent

    anyio.run(ask)


# --- Answers without an end ----------------------------------------------------------------------------------------

LARGE = b"HTTP/1.1 %s\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"8000\r\n%s\r\n" % (b"x" * 0x8000) * 4


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [LARGE % b"200 OK", LARGE % b"500 Oh", ENDLESS])
async def test_a_too_large_answer_is_refused_without_blocking_others(answer):
    async with serving(answer, OK) as server, connected(server, most=1) as connections:
        found = await connections.exchange(attrs.evolve(GET, largest=50_000))
        assert isinstance(found, NoAnswer)
        assert found.was_sent
        assert "more than 50000 bytes" in found.message
        assert await connections.exchange(GET) == Answer(status=200, body=b"ok")


@pytest.mark.anyio
async def test_an_answer_of_the_largest_size_is_whole():
    async with serving(LARGE % b"200 OK") as server, connected(server) as connections:
        assert len((await connections.exchange(attrs.evolve(GET, largest=100_000))).body) == 100_000


@pytest.mark.anyio
async def test_a_streams_refusal_is_limited_in_size():
    async with (
        serving(LARGE % b"500 Oh") as server,
        connected(server) as connections,
        connections.stream(attrs.evolve(GET, largest=50_000)) as found,
    ):
        assert isinstance(found, NoAnswer)
