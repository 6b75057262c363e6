"""Strangers hold connections and send what they like; who asks properly is answered all the same."""

import logging
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.cluster.process import connections
from kai.cluster.process.connections import Limits, Response, serve
from kai.cluster.process.listener import Address, Probes, listen
from tests.doubles.packets import packets

PROBE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


@asynccontextmanager
async def probes():
    """Answer what a kubelet asks; yield the port."""
    async with anyio.create_task_group() as tasks:
        yield await tasks.start(partial(listen, Address("127.0.0.1", 0), Probes().routes()))
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def served(respond, **limits):
    async with anyio.create_task_group() as tasks:
        yield await tasks.start(partial(serve, "127.0.0.1", 0, respond, Limits(**limits)))
        tasks.cancel_scope.cancel()


def run(talk):
    """Return what comes of a talk; one that does not end is a failure."""

    async def limited():
        with anyio.fail_after(120):
            return await talk()

    return anyio.run(limited)


async def echo(request):
    return Response(body=request.body)


async def heard(port, sent):
    """Return all that comes back for these bytes, until the other side closes."""
    out = b""
    with suppress(*GONE):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(sent)
            async for piece in stream:
                out += piece
    return out


async def status(port, sent=PROBE):
    return int((await heard(port, sent)).split(b" ")[1])


async def is_closed(stream):
    """Wait until the other side has closed a connection."""
    try:
        await stream.receive()
    except GONE:
        return True
    return False


# --- How many, and how long ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [40, 400, 1000])
@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\n"], ids=["idle", "half a head"])
def test_probes_are_answered_while_strangers_hold_connections(count, sent):
    async def talk():
        async with probes() as port, AsyncExitStack() as open_streams:
            for _ in range(count):
                stream = await anyio.connect_tcp("127.0.0.1", port)
                await open_streams.enter_async_context(stream)
                with suppress(*GONE):
                    await stream.send(sent or b"\r")
            found = [await status(port) for _ in range(5)]
            found.append(await status(port, PROBE.replace(b"livez", b"readyz")))
            return found

    assert run(talk) == [200] * 6


def test_an_endless_head_ends_its_connection():
    async def talk():
        async with served(echo, head_seconds=0.05) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"GET / HTTP/1.1\r\n")
            return await is_closed(stream)

    assert run(talk)


def test_an_endless_body_ends_its_connection():
    async def talk():
        async with (
            served(echo, answer_seconds=0.05, body=100) as port,
            await anyio.connect_tcp("127.0.0.1", port) as stream,
        ):
            await stream.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
            return await is_closed(stream)

    assert run(talk)


def test_an_idle_connection_is_closed_after_its_time():
    async def talk():
        async with served(echo, rest_seconds=0.05) as port:
            return await heard(port, PROBE)  # until it is closed

    assert b"Connection: close" not in run(talk)


def test_a_peers_oldest_unfinished_connection_yields_to_its_next():
    async def talk():
        async with served(echo, of_one_peer=2, head_seconds=60.0) as port, AsyncExitStack() as open_streams:
            first, second, _ = [
                await open_streams.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(3)
            ]
            assert await is_closed(first)
            await second.send(PROBE)
            return await second.receive()

    assert run(talk).startswith(b"HTTP/1.1 200 ")


def test_who_holds_most_makes_room_for_others():
    async def talk():
        async with served(echo, connections=3, head_seconds=60.0) as port, AsyncExitStack() as open_streams:

            async def connect(peer):
                stream = await anyio.connect_tcp("127.0.0.1", port, local_host=peer)
                return await open_streams.enter_async_context(stream)

            modest = await connect("127.0.0.2")
            greedy = [await connect("127.0.0.3") for _ in range(2)]
            await connect("127.0.0.4")
            assert await is_closed(greedy[0])
            await modest.send(PROBE)
            return await modest.receive()

    assert run(talk).startswith(b"HTTP/1.1 200 ")


def test_a_request_being_answered_is_not_dropped_for_newcomers():
    async def talk():
        begun, go_on = anyio.Event(), anyio.Event()

        async def slow(_):
            begun.set()
            await go_on.wait()
            return Response(body=b"at last")

        answers = []

        async def ask(port):
            answers.append(await heard(port, PROBE))

        async with served(slow, of_one_peer=1) as port, anyio.create_task_group() as tasks:
            tasks.start_soon(ask, port)
            await begun.wait()
            refused = await heard(port, PROBE)
            go_on.set()
        return refused, answers[0]

    refused, answer = run(talk)
    assert refused == b""
    assert answer.endswith(b"at last")


def test_the_largest_unfinished_body_is_dropped_beyond_the_total():
    async def talk():
        limits = {"body": 100, "bodies": 100}
        async with served(echo, **limits) as port, AsyncExitStack() as open_streams:
            large, small = [
                await open_streams.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(2)
            ]
            await large.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + b"x" * 80)
            await small.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\n" + b"y" * 21)
            assert await is_closed(large)
            await small.send(b"y" * 9)
            return await small.receive()

    assert run(talk).endswith(b"y" * 30)


# --- What is wrong with a request stays with it --------------------------------------------------------------------


def test_an_error_is_answered_and_logged_once_a_minute(caplog, monkeypatch):
    (seldom,) = connections._LOG.filters
    monkeypatch.setattr(seldom, "_since", -1000.0)

    async def fail(_):
        raise LookupError("secret detail")

    async def talk():
        async with served(fail) as port:
            return [await heard(port, PROBE) for _ in range(5)]

    with caplog.at_level(logging.WARNING):
        answers = run(talk)
    assert all(each.startswith(b"HTTP/1.1 500 ") for each in answers)
    assert not any(b"secret" in each for each in answers)
    assert [record.getMessage() for record in caplog.records] == ["request failed: GET '/livez'"]


def test_what_is_no_http_leaves_no_line(caplog):
    async def talk():
        async with probes() as port:
            return await status(port, b"\x16\x03\x01 nonsense\r\n\r\n")

    with caplog.at_level(logging.WARNING):
        assert run(talk) == 400
    assert not caplog.records


async def answered_after(port, sent):
    """Send anything, listen for a moment, and return the status of a proper question."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        with suppress(*GONE):
            await stream.send(sent)
            await stream.send_eof()
            with anyio.move_on_after(0.2):
                await stream.receive()
    return await status(port)


@settings(max_examples=25)
@given(sent=st.lists(packets(), min_size=1, max_size=6))
def test_no_packet_ends_the_listener_of_probes(sent):
    async def talk():
        async with probes() as port:
            return [await answered_after(port, each) for each in sent]

    assert run(talk) == [200] * len(sent)


@settings(max_examples=25)
@given(sent=st.lists(packets(), min_size=1, max_size=6))
def test_no_packet_ends_a_listener_that_reads_bodies(sent):
    async def talk():
        async with served(echo, body=10_000) as port:
            return [await answered_after(port, each) for each in sent]

    assert run(talk) == [200] * len(sent)


def test_limits_are_what_operations_say():
    assert attrs.astuple(Limits())[:3] == (256, 64, 2.0)
