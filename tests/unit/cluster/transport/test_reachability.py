"""Outages of an API server: said once, and over for everything as soon as they are over."""

from types import SimpleNamespace

import anyio
import pytest
from structlog.testing import capture_logs

from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.node import Node
from kai.api.plans import Get, Patch, Reason, Ref
from kai.cluster.transport.calls import Answer, NoAnswer
from kai.cluster.transport.reachability import Reachability
from tests.doubles.http_server import HttpServer
from tests.unit.cluster.assembled import in_virtual_time, port, running, versions

REFUSED = NoAnswer(was_sent=False, message="GET /livez: ConnectionRefusedError: connection refused")
MAP = Ref(ConfigMap, "c0", "team")


def filled():
    server = HttpServer()
    for number in range(5):
        server.put("configmaps", f"c{number}", "team", data={"n": str(number)})
    server.put("nodes", "n1")
    return server


def go_away(server, answer=REFUSED):
    """Refuse every call, and cut what is open."""
    server.faults.before = lambda _: answer
    server.faults.piece = lambda _: None
    server.put("nodes", "n1", metadata={"labels": {"cut": str(server.version)}})
    for number in range(5):
        server.put("configmaps", f"c{number}", "team", data={"n": "away"})


def come_back(server):
    server.faults.before = lambda _: None
    server.faults.piece = lambda data: (data,)


def events(lines):
    return [line["event"] for line in lines]


@in_virtual_time
async def test_a_server_unreachable_at_start_is_named_within_seconds():
    server = filled()
    server.faults.before = lambda _: REFUSED
    cluster = port(server)
    with capture_logs() as lines:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.run)
            await anyio.sleep(2.0)
            (line,) = lines
            assert line["event"] == "API server cannot be reached"
            assert (line["log_level"], line["server"]) == ("error", "https://test:6443")
            assert line["why"] == "ConnectionRefusedError: connection refused"
            (problem, unlisted) = cluster.problems()
            assert problem == (
                "the API server https://test:6443 cannot be reached for 2s: ConnectionRefusedError: connection refused"
            )
            assert unlisted.startswith("not listed yet: ")
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("seconds", [20, 123, 3600])
@in_virtual_time
async def test_an_outage_is_two_lines_and_regular_reminders(seconds):
    server = filled()
    with capture_logs() as lines:
        async with running(server) as cluster:
            await anyio.sleep(5)
            go_away(server)
            await anyio.sleep(seconds)
            assert events(lines)[:1] == ["API server cannot be reached"]
            come_back(server)
            await anyio.sleep(5)
            assert cluster.problems() == ()
            assert cluster.store.age() < 6, "what is known is known to be current"
    reminders = ["API server still cannot be reached"] * (seconds // 181)
    assert events(lines) == ["API server cannot be reached", *reminders, "API server reachable again"]
    assert lines[-1]["log_level"] == "info"


@pytest.mark.parametrize("seconds", [20, 120, 3600])
@pytest.mark.parametrize("is_compacted", [False, True])
@in_virtual_time
async def test_every_watch_returns_five_seconds_after_an_outage(seconds, is_compacted):
    server = filled()
    async with running(server) as cluster:
        await anyio.sleep(5)
        go_away(server)
        await anyio.sleep(seconds)
        server.put("configmaps", "c1", "team", data={"n": "back"})
        server.put("nodes", "n2")
        if is_compacted:
            server.compact()
        come_back(server)
        await anyio.sleep(5)
        for cls, plural in ((ConfigMap, "configmaps"), (Node, "nodes")):
            assert versions(cluster.store, cls) == server.versions(plural)


@in_virtual_time
async def test_during_an_outage_one_connection_knocks_for_all():
    server = filled()
    async with running(server):
        await anyio.sleep(5)
        go_away(server)
        await anyio.sleep(5)
        before = len(server.calls)
        await anyio.sleep(120)
        made = server.calls[before:]
        assert {call.path for call in made} == {"/livez"}
        assert len(made) <= 120


@in_virtual_time
async def test_silent_streams_are_reopened_once_the_network_returns():
    server = filled()
    async with running(server) as cluster:
        await anyio.sleep(5)
        silent = [True]
        server.faults.is_silent = lambda: silent[0]
        server.faults.before = lambda _: NoAnswer(was_sent=False, message="no answer in time")
        await cluster.api.perform(Get(ref=MAP, fresh=True))
        await anyio.sleep(30)
        assert cluster.reachability.problem
        server.put("configmaps", "new", "team")
        come_back(server)
        await anyio.sleep(5)
        assert cluster.store.get(ConfigMap, "new", "team") is not None
        silent[0] = False


@in_virtual_time
async def test_waiters_resume_with_the_server_or_give_up():
    server = filled()
    async with running(server) as cluster:
        go_away(server)
        await anyio.sleep(3)
        asked = server.count("PATCH", "")
        reply = await cluster.api.perform(Patch(ref=MAP, patch={"data": {"n": "1"}}))
        assert reply.reason is Reason.UNAVAILABLE
        assert "cannot be reached" in reply.message
        assert server.count("PATCH", "") == asked, "nothing is sent to a server that is away"
        replies = []

        async def perform():
            replies.append(await cluster.api.perform(Patch(ref=MAP, patch={"data": {"n": "2"}})))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(perform)
            await anyio.sleep(5)
            assert not replies
            come_back(server)
        assert replies[0].data["n"] == "2"


@in_virtual_time
async def test_a_slow_server_or_lost_answer_is_no_outage():
    server = filled()
    with capture_logs() as lines:
        async with running(server) as cluster:
            server.faults.delay = lambda _: 5.0
            lost = [1]
            server.faults.loses = lambda call: "configmaps" in call.path and bool(lost and lost.pop())
            await cluster.api.perform(Get(ref=MAP, fresh=True))
            await anyio.sleep(60)
    assert lines == []


@in_virtual_time
async def test_a_gateway_without_a_server_is_an_outage():
    server = filled()
    with capture_logs() as lines:
        async with running(server):
            await anyio.sleep(5)
            go_away(server, Answer(status=503, body=b"no backend"))
            await anyio.sleep(10)
            come_back(server)
            await anyio.sleep(5)
    assert events(lines) == ["API server cannot be reached", "API server reachable again"]
    assert lines[0]["why"] == "the gateway answers with 503"


@in_virtual_time
async def test_a_working_watch_wakes_others_that_failed_alike():
    server = filled()
    broken = {"/configmaps", "/nodes", "/pods"}

    def before(call):
        return Answer(status=500, body=b"") if any(part in call.path for part in broken) else None

    server.faults.before = before
    cluster = port(server)
    with capture_logs() as lines:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.run)
            await anyio.sleep(300)
            said = [line["resource"] for line in lines]
            assert sorted(said) == ["configmaps", "nodes", "pods"], "each kind is named once"
            broken.clear()
            await anyio.sleep(12)
            assert cluster.store.is_synced
            tasks.cancel_scope.cancel()
    assert events(lines)[3:] == ["watched again"] * 3


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0s"), (59, "59s"), (123, "2m3s"), (7384.2, "2h3m4s")])
def test_durations_are_written_as_people_write_them(seconds, words):
    clock = SimpleNamespace(monotonic=lambda: seconds)
    found = Reachability(None, clock, None, lambda: "https://test:6443", away_since=0.0, why="refused")
    assert found.problem == f"the API server https://test:6443 cannot be reached for {words}: refused"
