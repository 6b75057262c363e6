"""Calls on their way through the window, against a server in memory that is slow, away, or not ready yet."""

import itertools

import anyio
import attrs

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Reason, Ref
from kai.cluster.caching.store import Watched
from kai.cluster.transport.calls import Answer
from tests.doubles.http_server import HttpServer
from tests.unit.cluster.assembled import in_virtual_time, running

PODS = (Watched(cls=Pod),)


def with_pods(count):
    server = HttpServer()
    for number in range(count):
        server.put("pods", f"p{number}", "team", spec={"containers": [{"name": "main"}]})
    return server


def bind(server, number):
    uid = server.objects["pods", "team", f"p{number}"]["metadata"]["uid"]
    return Bind(ref=Ref(Pod, f"p{number}", "team"), uid=uid, node="n")


@in_virtual_time
async def test_two_second_answers_allow_four_binds_a_second():
    server = with_pods(300)
    async with running(server, watched=PODS, page=500) as cluster:
        seconds = [0.01]
        server.faults.delay = lambda call: seconds[0] if call.method == "POST" else 0.0
        await cluster.api.perform(bind(server, 0))  # what is usual: a quick answer
        seconds[0] = 2.0
        done = []

        async def perform(number):
            await cluster.api.perform(bind(server, number))
            done.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(1, 300):
                tasks.start_soon(perform, number)
            await anyio.sleep(60.0)
            assert len(done) >= 4 * 60 - 8
            tasks.cancel_scope.cancel()


DENIED = Answer(
    status=429,
    retry_after="20",
    body=b'{"kind":"Status","code":429,"message":"admission webhook \\"w\\" denied the request: later"}',
)
THROTTLED = Answer(status=429, retry_after="5", body=b"Too many requests, please try again later.\n")


@in_virtual_time
async def test_a_throttled_binding_does_not_delay_others():
    server = with_pods(40)
    async with running(server, watched=PODS, page=500) as cluster:
        asked, replies, took = [], [], []

        def denied(call):
            if "/p0/" in call.path:
                asked.append(anyio.current_time())
                return DENIED
            return None

        server.faults.before = denied
        server.faults.delay = lambda _: 0.005

        async def be_denied():
            replies.append(await cluster.api.perform(bind(server, 0)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(be_denied)
            await anyio.sleep(0.1)
            for number in range(1, 40):
                since = anyio.current_time()
                await cluster.api.perform(bind(server, number))
                took.append(anyio.current_time() - since)
                await anyio.sleep(1.0)
        assert max(took) < 0.1
        assert (replies[0].reason, replies[0].retry_after) == (Reason.UNAVAILABLE, 20.0)
        assert len(asked) == 3
        assert all(later - earlier >= 20.0 for earlier, later in itertools.pairwise(asked)), "it waits as it is told"
        assert cluster.sender.window.in_flight == cluster.sender.window.waiting == 0


@in_virtual_time
async def test_an_hours_retry_after_pauses_for_half_a_minute():
    server = with_pods(40)
    async with running(server, watched=PODS, page=500) as cluster:
        alone = attrs.evolve(THROTTLED, retry_after="3600")
        server.faults.before = lambda call: alone if "/p0/" in call.path else None
        server.faults.delay = lambda _: 0.005
        replies = []

        async def be_denied():
            replies.append(await cluster.api.perform(bind(server, 0)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(be_denied)
            await anyio.sleep(0.1)
            since = anyio.current_time()
            await cluster.api.perform(bind(server, 1))
        assert 29.0 < anyio.current_time() - since < 31.0
        assert (replies[0].reason, replies[0].retry_after) == (Reason.UNAVAILABLE, 3600.0)
        assert server.count("POST", "p0/binding") == 1


@in_virtual_time
async def test_waiting_calls_continue_after_a_long_retry_after():
    server = with_pods(40)
    async with running(server, watched=PODS, page=500) as cluster:
        alone = attrs.evolve(THROTTLED, retry_after="3600")
        server.faults.before = lambda call: alone if "/p0/" in call.path else None
        server.faults.delay = lambda _: 0.005
        done = []

        async def perform(number):
            done.append(await cluster.api.perform(bind(server, number)))

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(perform, number)
            await anyio.sleep(32.0)
            assert len(done) == 40, "the one that gives up leaves nobody behind who watches the clock"


@in_virtual_time
async def test_a_server_that_throttles_everything_is_asked_seldom():
    server = with_pods(100)
    async with running(server, watched=PODS, page=500) as cluster:
        server.faults.before = lambda call: THROTTLED if call.method == "POST" else None
        server.faults.delay = lambda _: 0.005
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(cluster.api.perform, bind(server, number))
            await anyio.sleep(31.0)
            assert server.count("POST", "binding") <= 20 + 6 * 8
            assert cluster.sender.window.width == 8.0
            server.faults.before = lambda _: None
