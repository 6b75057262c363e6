"""Calls on their way through the window, against a server in memory that is slow, away, or not ready yet."""

import anyio

from kai.api.plans import Bind, Ref
from kai.api.pod import Pod
from kai.cluster.store import Watched
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
async def test_answers_that_take_two_seconds_each_leave_four_binds_a_second():
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
