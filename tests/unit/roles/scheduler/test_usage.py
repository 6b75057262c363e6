"""Past usage is read beside the cycles; whatever its database does, scheduling goes on."""

import anyio
import attrs
import pytest
from anyio import run as really_run
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kai.basics.errors import ConfigError
from kai.cluster.clock import SystemClock
from kai.deciding.configuration.past_usage import UsageSettings
from kai.facts.model.groups import Shares
from kai.roles.scheduler.cycle.past_usage import NONE, PastUsage, Prometheus, UsageError, past_usage, usage_address
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from tests.doubles.prometheus import PrometheusServer, port_of, vector
from tests.doubles.virtual_time import VirtualClock, run

SETTINGS = UsageSettings(address="http://p")
HALF = {"a": Shares(gpu=0.5)}


@attrs.define
class Scripted:
    """A database that says one thing after the other, the last for ever; a number is a delay before an error."""

    answers: list[object]
    times: list[float] = attrs.field(factory=list)
    closed: bool = False

    async def read(self):
        self.times.append(anyio.current_time() - 1000.0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, float):
            await anyio.sleep(answer)
            raise UsageError("no answer in time")
        if isinstance(answer, str):
            raise UsageError(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self):
        self.closed = True


def kept(answers, seconds, settings=SETTINGS):
    """Return what is known after each of ``seconds``, with the database, the metrics and the log."""
    database, registry = Scripted(answers), CollectorRegistry()
    known = []

    async def watch():
        usage = PastUsage(settings, database, VirtualClock(), SchedulerMetrics(registry))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(usage.run)
            for at in seconds:
                await anyio.sleep(1000.0 + at - anyio.current_time())
                known.append(usage.known)
            tasks.cancel_scope.cancel()

    with capture_logs() as log:
        run(watch)
    assert database.closed
    return known, database, registry, [entry["event"] for entry in log]


def test_it_is_read_again_and_again():
    known, database, registry, log = kept([HALF, {"a": Shares(gpu=0.4)}], [1, 59, 61, 200])
    assert known == [HALF, HALF, {"a": Shares(gpu=0.4)}, {"a": Shares(gpu=0.4)}]
    assert [round(at) for at in database.times] == [0, 60, 120, 180]
    assert log == ["past usage counts"]
    assert registry.get_sample_value("kai_usage_reads_total", {"result": "done"}) == 4
    assert registry.get_sample_value("kai_usage_query_latency_milliseconds_count") == 4
    assert registry.get_sample_value("kai_usage_is_known", {"client": "prometheus"}) == 1


def test_what_was_read_last_holds_while_the_database_fails():
    known, _, registry, log = kept([HALF, "down"], [1, 70, 290])
    assert known == [HALF, HALF, HALF]
    assert log == ["past usage counts", *["past usage was not read"] * 4]
    assert registry.get_sample_value("kai_usage_reads_total", {"result": "failed"}) == 4
    assert registry.get_sample_value("kai_usage_query_latency_milliseconds_count") == 1


def test_whatever_reading_raises_is_a_failed_reading():
    surprises = [ValueError("broken"), ExceptionGroup("several", [OverflowError()])]
    known, _, registry, log = kept([*surprises, HALF], [1, 61, 121])
    assert known == [NONE, NONE, HALF]
    assert log == [*["past usage was not read"] * 2, "past usage counts"]
    assert registry.get_sample_value("kai_usage_reads_total", {"result": "failed"}) == 2


def test_of_an_unforeseen_error_only_its_kind_is_said():
    address = "http://kai:secr\N{ACCOUNT OF}t@p"  # of such an address, urlsplit raises an error that holds it

    async def read():
        database = Prometheus(address, SETTINGS, VirtualClock())
        await PastUsage(SETTINGS, database, VirtualClock(), SchedulerMetrics(CollectorRegistry()))._read()

    with capture_logs() as lines:
        run(read)
    assert [line["why"] for line in lines] == ["found ValueError, expected an answer"]


def test_stale_usage_does_not_count_until_read_again():
    answers = [HALF, *["down"] * 9, {"a": Shares(gpu=0.1)}]
    known, _, registry, log = kept(answers, [299, 301, 590, 601], attrs.evolve(SETTINGS, staleness_seconds=300.0))
    assert known == [HALF, NONE, NONE, {"a": Shares(gpu=0.1)}]
    assert log.count("past usage is stale and counts no more") == 1
    assert log.count("past usage counts") == 2
    assert registry.get_sample_value("kai_usage_is_known", {"client": "prometheus"}) == 1


def test_it_becomes_stale_between_two_readings_as_well():
    settings = attrs.evolve(SETTINGS, fetch_seconds=60.0, staleness_seconds=90.0)
    known, *_ = kept([HALF, "down"], [80, 91], settings)
    assert known == [HALF, NONE]


def test_a_slow_reading_delays_only_the_next():
    _, database, _, _ = kept([90.0, HALF], [200])
    assert [round(at) for at in database.times] == [0, 90, 150]


@pytest.mark.parametrize(
    ("answers", "waited", "log"),
    [
        ([HALF], 0.0, ["past usage counts"]),
        (["down"], 0.0, ["past usage was not read"]),
        ([9.0], 9.0, ["past usage was not read"]),
        ([1000.0], 60.0, ["past usage is late"]),
    ],
)
def test_the_first_cycle_waits_a_minute_for_usage(answers, waited, log):
    async def start():
        usage = PastUsage(SETTINGS, Scripted(answers), VirtualClock(), SchedulerMetrics(CollectorRegistry()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(usage.run)
            await usage.tried()
            took = anyio.current_time() - 1000.0
            tasks.cancel_scope.cancel()
        return took

    with capture_logs() as entries:
        assert run(start) == pytest.approx(waited, abs=0.01)
    assert [entry["event"] for entry in entries] == log


# --- Over HTTP -----------------------------------------------------------------------------------------------------

AMOUNTS = {
    "kai_queue_allocated_gpus": {"a": 10.0, "b": 30.0},
    "kai_queue_allocated_cpu_cores": {"a": 5.0},
    "kai_queue_allocated_memory_bytes": {},
    'resource="nvidia_com_gpu"': {"": 80.0},
    'resource="cpu"': {"": 50.0},
    'resource="memory"': {"": 1e12},
}


def answered(query):
    return vector(next(amounts for metric, amounts in AMOUNTS.items() if metric in query))


def read_from(server, settings=SETTINGS, address="{}/base", times=1):
    async def ask():
        async with server.serving():
            database = Prometheus(address.format(server.address), settings, SystemClock())
            try:
                return [await database.read() for _ in range(times)][-1]
            except UsageError as error:
                return error  # raised here, it would be one of a group
            finally:
                await database.close()

    found = really_run(ask)
    if isinstance(found, UsageError):
        raise found
    return found


def test_six_prometheus_queries_give_fractions_of_the_cluster():
    server = PrometheusServer(answered)
    assert read_from(server) == {"a": Shares(cpu=0.1, gpu=0.125), "b": Shares(gpu=0.375)}
    assert {(each.method, each.path) for each in server.asked} == {("POST", "/base/api/v1/query")}
    assert [each.query for each in server.asked] == [
        'sum_over_time((sum(max by (node) (kube_node_status_capacity{resource="nvidia_com_gpu"})))[1w:1m0s])',
        'sum_over_time((sum(max by (node) (kube_node_status_capacity{resource="cpu"})))[1w:1m0s])',
        'sum_over_time((sum(max by (node) (kube_node_status_capacity{resource="memory"})))[1w:1m0s])',
        "sum_over_time((kai_queue_allocated_gpus)[1w:1m0s])",
        "sum_over_time((kai_queue_allocated_cpu_cores)[1w:1m0s])",
        "sum_over_time((kai_queue_allocated_memory_bytes)[1w:1m0s])",
    ]
    assert len({each.time for each in server.asked}) == 1


def test_a_server_that_refuses_post_is_queried_by_get():
    server = PrometheusServer(answered, status=lambda method: 405 if method == "POST" else 200)
    assert read_from(server, times=2)["b"] == Shares(gpu=0.375)
    assert [each.method for each in server.asked] == ["POST", *["GET"] * 12]


def test_credentials_in_the_address_become_basic_authentication():
    server = PrometheusServer(answered)

    async def ask():
        async with server.serving():
            address = server.address.replace("http://", "http://kai:p%40ss@")
            database = Prometheus(address, SETTINGS, SystemClock())
            await database.read()
            await database.close()

    really_run(ask)
    assert "Authorization: Basic a2FpOnBAc3M=" in server.asked[0].head
    assert "kai:" not in server.asked[0].head.partition("Host:")[2].partition("\n")[0]


def test_a_failure_names_the_question():
    server = PrometheusServer(lambda _: {"status": "error", "errorType": "bad_data", "error": "parse error"})
    with pytest.raises(UsageError, match=r"sum_over_time\(.*: found HTTP 200: bad_data: parse error, expected success"):
        read_from(server)


def test_an_infinite_number_fails_with_its_query():
    answer = vector({"": 0.0})
    answer["data"]["result"][0]["value"][1] = 10**400
    server = PrometheusServer(lambda _: answer)
    with pytest.raises(UsageError, match=r"sum_over_time\(.*: found inf of queue '', expected a finite amount"):
        read_from(server)


def test_nobody_at_the_address_is_a_failure():
    async def ask():
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = port_of(listener)
        await listener.aclose()
        database = Prometheus(f"http://127.0.0.1:{port}", SETTINGS, SystemClock())
        try:
            await database.read()
        finally:
            await database.close()

    with pytest.raises(UsageError, match="ConnectionRefusedError"):
        really_run(ask)


def test_a_server_that_never_answers_costs_the_timeout():
    async def ask():
        async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
            port = port_of(listener)
            settings = attrs.evolve(SETTINGS, timeout_seconds=0.05)
            database = Prometheus(f"http://127.0.0.1:{port}", settings, SystemClock())
            try:
                await database.read()
            finally:
                await database.close()

    with pytest.raises(UsageError, match="no answer in time"):
        really_run(ask)


# --- Where it is ---------------------------------------------------------------------------------------------------


def test_the_address_comes_from_configuration_or_environment():
    from_environment = UsageSettings(address_variable="PROMETHEUS")
    assert usage_address(SETTINGS, {}) == "http://p"
    assert usage_address(from_environment, {"PROMETHEUS": "https://q:1/x"}) == "https://q:1/x"
    for environment in ({}, {"PROMETHEUS": ""}, {"PROMETHEUS": "q:1"}):
        with pytest.raises(ConfigError, match=r"connectionStringEnvVar: \$PROMETHEUS: found"):
            usage_address(from_environment, environment)


def test_nothing_is_kept_where_nothing_is_asked_for():
    assert past_usage(None, "", SystemClock(), SchedulerMetrics(CollectorRegistry())) is None
