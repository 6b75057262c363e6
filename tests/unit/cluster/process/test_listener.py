"""The small HTTP server answers what it should and nothing else."""

from functools import partial

import anyio
import pytest
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import Metric

from kai.basics.errors import ConfigError
from kai.cluster.process.connections import Response
from kai.cluster.process.exposition import Maker, exposition, metrics_route
from kai.cluster.process.listener import Address, Probes, Route, is_local, listen, read_address


async def hello():
    return Response(body=b"hello")


def asked(request, routes=None):
    """Return what the server sends back for these bytes."""

    async def talk():
        async with anyio.create_task_group() as tasks:
            known = routes or {"/": Route(answer=hello), "/here": Route(answer=hello, local=True)}
            port = await tasks.start(partial(listen, Address("127.0.0.1", 0), known))
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(request)
                out = b""
                with anyio.move_on_after(5):
                    async for chunk in stream:
                        out += chunk
            tasks.cancel_scope.cancel()
        return out

    return anyio.run(talk)


def test_a_path_is_answered_and_the_connection_closed():
    head, _, body = asked(b"GET /?a=b HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 5" in head
    assert b"Connection: close" in head
    assert body == b"hello"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"x" * 9000, b"400"),
        (b"GET /here HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
    ],
)
def test_everything_has_its_status(request_, status):
    assert asked(request_).split(b" ")[1] == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, b"200") for host in (b"127.0.0.1:8081", b"LOCALHOST:8081", b"[::1]:8081")),
        *((host, b"421") for host in (b"evil.example:8081", b"127.0.0.1.evil.example", b"[::2]:8081", b"")),
    ],
)
def test_local_routes_refuse_foreign_host_names(host, status):
    answer = asked(b"GET /here HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert answer.split(b" ")[1] == status
    assert (b"hello" in answer) == (status == b"200")
    assert asked(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n").split(b" ")[1] == b"200"


def test_one_path_gives_one_answer_at_a_time():
    async def talk():
        at_work, most, go_on = 0, 0, anyio.Event()

        async def slow():
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await go_on.wait()
            at_work -= 1
            return Response(body=b"done")

        async def ask(port, path):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                return await stream.receive()

        async with anyio.create_task_group() as tasks:
            routes = {"/slow": Route(answer=slow), "/quick": Route(answer=hello)}
            port = await tasks.start(partial(listen, Address("127.0.0.1", 0), routes))
            async with anyio.create_task_group() as asking:
                for _ in range(5):
                    asking.start_soon(ask, port, b"/slow")
                assert (await ask(port, b"/quick")).endswith(b"hello")
                go_on.set()
            tasks.cancel_scope.cancel()
        return most

    assert anyio.run(talk) == 1


def test_a_head_request_gets_no_body():
    assert asked(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"\r\n\r\n")


def test_addresses_are_read_as_go_writes_them():
    assert read_address(":8080", "--x") == Address("", 8080)
    assert read_address("127.0.0.1:1", "--x") == Address("127.0.0.1", 1)
    assert read_address("[::1]:9", "--x") == Address("::1", 9)
    assert read_address("0", "--x") is None
    for wrong in ("8080", ":x", ":99999"):
        with pytest.raises(ConfigError, match="--x: found"):
            read_address(wrong, "--x")


def test_a_port_that_is_taken_is_said_in_words():
    async def twice():
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(partial(listen, Address("127.0.0.1", 0), {}))
            try:
                with pytest.raises(ConfigError, match="expected a port that is free"):
                    await listen(Address("127.0.0.1", port), {})
            finally:
                tasks.cancel_scope.cancel()

    anyio.run(twice)


def test_only_loopback_is_local():
    assert [is_local(each) for each in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "x")] == [
        *(True, True, True),
        *(False, False),
    ]


def test_readiness_names_what_is_wrong_and_why():
    probes = Probes()
    routes = probes.routes()
    assert asked(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", routes).split(b" ")[1] == b"200"
    probes.add("store", lambda: "details")
    answer = asked(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", routes)
    assert answer.split(b" ")[1] == b"503"
    assert b"not ready: store" in answer
    assert b"store: details" in answer
    for path in (b"/livez", b"/healthz"):
        assert asked(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n", routes).split(b" ")[1] == b"200"
    assert probes.problems() == {"store": "details"}


class Bare:
    def collect(self):
        metric = Metric("kai_done_by_action", "Done.", "counter")
        metric.add_sample("kai_done_by_action", {"action": "allocate"}, 3)
        yield metric


def test_a_counter_is_one_series_without_its_creation_time():
    registry = CollectorRegistry()
    Counter("kai_more_total", "More.", ("pod",), registry=registry).labels("p").inc()
    Histogram("kai_seconds", "Seconds.", registry=registry, buckets=(1.0,)).observe(0.5)
    values = [line for line in exposition(registry).decode().splitlines() if not line.startswith("#")]
    assert values == [
        'kai_more_total{pod="p"} 1.0',
        'kai_seconds_bucket{le="1.0"} 1.0',
        'kai_seconds_bucket{le="+Inf"} 1.0',
        "kai_seconds_count 1.0",
        "kai_seconds_sum 0.5",
    ]


def test_counters_keep_the_names_that_the_peer_gave_them():
    registry = CollectorRegistry()
    registry.register(Bare())
    Counter("kai_more_total", "More.", registry=registry).inc()
    text = exposition(registry, ("kai_done_by_action",)).decode()
    assert "# TYPE kai_done_by_action counter\n" in text
    assert 'kai_done_by_action{action="allocate"} 3.0\n' in text
    assert "# TYPE kai_more_total counter\n" in text
    answer = asked(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", {"/metrics": metrics_route(registry)})
    assert b"text/plain; version=0.0.4" in answer


def test_a_table_equals_the_librarys_gauges_after_each_change():
    rows = {("a", 'x"\\\n'): (1.0, -0.5), ("b", "ü"): (1e6, float("inf")), ("c", ""): (0.1, 2e21)}
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    table = Maker(ours, "kai_").table((("one", "First."), ("two", "Second.")), "queue", "display")
    gauges = [
        Maker(theirs, "kai_").gauge(*named, "queue", "display") for named in (("one", "First."), ("two", "Second."))
    ]

    def are_alike():
        for gauge in gauges:
            gauge.clear()
        for labels, figures in rows.items():
            for gauge, figure in zip(gauges, figures, strict=True):
                gauge.labels(*labels).set(figure)
        assert exposition(ours) == exposition(theirs)
        assert exposition(ours) == generate_latest(ours)

    table.show(rows)
    are_alike()
    rows["b", "ü"] = (3.0, 4.0)
    table.put(("b", "ü"), (3.0, 4.0))
    are_alike()
    del rows["c", ""]
    table.remove(("c", ""))
    are_alike()
    rows = {}
    table.show(rows)
    are_alike()


class Broken:
    def collect(self):
        raise KeyError("rack")


def test_a_plugins_failing_collector_hides_no_kai_metric():
    registry, shared = CollectorRegistry(), CollectorRegistry()
    Counter("kai_more_total", "More.", registry=registry).inc()
    shared.register(Broken())
    with structlog.testing.capture_logs() as logs:
        answer = asked(
            b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", {"/metrics": metrics_route(registry, shared=shared)}
        )
    assert b"kai_more_total 1.0\n" in answer
    (line,) = logs
    assert (line["event"], line["why"]) == ("metrics of plugins left out", "KeyError: 'rack'")
    assert line["at"][-1].rpartition(":")[0] == f"{__name__}.collect"


def test_a_plugin_may_name_a_metric_as_kai_does():
    registry, shared = CollectorRegistry(), CollectorRegistry()
    for each, amount in ((registry, 1), (shared, 2)):
        Counter("kai_more_total", "More.", registry=each).inc(amount)
    answer = asked(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", {"/metrics": metrics_route(registry, shared=shared)})
    assert answer.index(b"kai_more_total 1.0\n") < answer.index(b"kai_more_total 2.0\n")
