"""The usage database is asked what the peer asks it, and its answers are taken with care."""

import datetime as dt
import json

import attrs
import pytest

from kai.deciding.configuration.past_usage import Cron, UsageSettings, WindowType
from kai.facts.model.groups import Shares
from kai.roles.scheduler.cycle.past_usage import UsageError, question, read_samples, shares, unsaid, window_start
from tests.doubles.prometheus import vector

NOW = 1_762_777_987.6
SLIDING = UsageSettings(address="http://p")
GPUS = SLIDING.allocation["gpu"]
ALL_GPUS = SLIDING.capacity["gpu"]


def test_a_sliding_window_is_queried_like_the_peers():
    assert question(GPUS, SLIDING, NOW) == "sum_over_time((kai_queue_allocated_gpus)[1w:1m0s])"
    assert (
        question(ALL_GPUS, SLIDING, NOW)
        == 'sum_over_time((sum(max by (node) (kube_node_status_capacity{resource="nvidia_com_gpu"})))[1w:1m0s])'
    )


@pytest.mark.parametrize(("seconds", "text"), [(60.0, "1m0s"), (1.5, "1500ms"), (60.5, "60500ms"), (0.5, "500ms")])
def test_a_resolution_is_written_as_prometheus_reads_it(seconds, text):
    """Go prints 1.5s and 1m0.5s, which Prometheus refuses."""
    asked = question(GPUS, attrs.evolve(SLIDING, resolution_seconds=seconds), NOW)
    assert asked == f"sum_over_time((kai_queue_allocated_gpus)[1w:{text}])"


def test_fading_is_part_of_the_question():
    settings = attrs.evolve(SLIDING, half_life_seconds=600.0, window_text="1d12h", resolution_seconds=30.0)
    assert (
        question(GPUS, settings, NOW)
        == "sum_over_time((((kai_queue_allocated_gpus) * (0.5^((1762777987 - time()) / 600.000000))))[1d12h:30s])"
    )


def tumbling(hours, start):
    return attrs.evolve(
        SLIDING, window=WindowType.TUMBLING, window_text="1h", window_seconds=hours * 3600.0, start=start.timestamp()
    )


def at(*parts):
    return dt.datetime(*parts, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("hours", "start", "now", "begins"),
    [
        (1, at(2025, 1, 15, 10), at(2025, 1, 15, 12, 30), at(2025, 1, 15, 12)),
        (1, at(2025, 1, 15, 10), at(2025, 1, 15, 13), at(2025, 1, 15, 12)),
        (1, at(2025, 1, 15, 10), at(2025, 1, 15, 13, 0, 1), at(2025, 1, 15, 13)),
        (0.25, at(2025, 1, 15, 14), at(2025, 1, 15, 14, 37), at(2025, 1, 15, 14, 30)),
        (168, at(2025, 1, 1), at(2025, 1, 18, 12), at(2025, 1, 15)),
        (1, at(2025, 1, 15, 10), at(2025, 1, 15, 10), at(2025, 1, 15, 10)),
        (1, at(2025, 1, 15, 10), at(2025, 1, 15, 9), at(2025, 1, 15, 9)),
        (1, at(2025, 1, 15, 10, 15, 30), at(2025, 1, 15, 12, 45, 30), at(2025, 1, 15, 12, 15, 30)),
    ],
)
def test_tumbling_windows_begin_where_the_peers_begin(hours, start, now, begins):
    assert window_start(tumbling(hours, start), now.timestamp()) == begins.timestamp()


def test_a_tumbling_window_is_asked_for_since_it_began():
    settings = tumbling(1, at(2025, 1, 15, 10))
    now = at(2025, 1, 15, 12, 30).timestamp()
    assert question(GPUS, settings, now) == "sum_over_time((kai_queue_allocated_gpus)[1800s:1m0s])"


def test_a_window_just_begun_queries_the_current_amount():
    settings = tumbling(1, at(2025, 1, 15, 10))
    assert question(GPUS, settings, at(2025, 1, 15, 12, 0, 20).timestamp()) == "kai_queue_allocated_gpus"
    assert question(GPUS, settings, at(2025, 1, 15, 9).timestamp()) == "kai_queue_allocated_gpus"


def test_a_cron_window_is_queried_since_its_last_time():
    settings = attrs.evolve(SLIDING, window=WindowType.CRON, cron=Cron.read("0 0 * * 1"))
    now = at(2025, 1, 14, 1).timestamp()
    assert window_start(settings, now) == at(2025, 1, 13).timestamp()
    assert question(GPUS, settings, now) == "sum_over_time((kai_queue_allocated_gpus)[90000s:1m0s])"


def body(document):
    return json.dumps(document).encode()


def test_an_answer_is_read_by_queue():
    assert read_samples(200, body(vector({"a": 2.5, "b": 0.0}))) == {"a": 2.5, "b": 0.0}
    assert read_samples(200, body(vector({}))) == {}


def test_samples_of_several_processes_are_summed_per_queue():
    document = vector({"a": 2.0})
    document["data"]["result"] *= 2
    assert read_samples(200, body(document)) == {"a": 4.0}


def numbers(*values):
    """Return an answer with several samples of a queue, each as it stands in JSON."""
    document = vector({"a": 0.0})
    document["data"]["result"] = [{"metric": {"queue_name": "a"}, "value": [0, value]} for value in values]
    return document


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (502, b"<html>", "found HTTP 502 and no JSON, expected an answer of Prometheus"),
        (200, b"[]", "found HTTP 200: no reason, expected success"),
        (200, b"null", "found HTTP 200: no reason, expected success"),
        (
            400,
            body({"status": "error", "errorType": "bad_data", "error": "1:2: parse error"}),
            "400: bad_data: 1:2: pa",
        ),
        (
            200,
            body({"status": "success", "data": {"resultType": "matrix", "result": []}}),
            "resultType: found 'matrix', expected",
        ),
        (200, body({"status": "success"}), "resultType: found nothing, expected vector"),
        (200, body({"status": "success", "data": {"resultType": "vector", "result": [{}]}}), "found a sample without"),
        (200, body({"status": "success", "data": {"resultType": "vector", "result": [5]}}), "found a sample without"),
        (200, body(vector({"a": float("nan")})), "found nan of queue 'a', expected a finite amount of 0 or more"),
        (200, body(vector({"a": float("inf")})), "found inf of queue 'a'"),
        (200, body(vector({"a": -1.0})), "found -1 of queue 'a'"),
        (200, body(numbers(10**400)), "found inf of queue 'a', expected a finite amount of 0 or more"),
        (200, body(numbers(-(10**400))), "found -inf of queue 'a'"),
        (200, body(numbers("1e308", "1e308")), "found samples of queue 'a' that add up to inf, expected a finite"),
    ],
)
def test_an_answer_that_cannot_be_is_none(status, answer, message):
    with pytest.raises(UsageError, match=message):
        read_samples(status, answer)


def test_past_usage_is_held_divided_by_available():
    found = shares({"gpu": 80.0, "cpu": 100.0, "memory": 1e12}, {"gpu": {"a": 20.0, "b": 0.0}, "memory": {"a": 5e11}})
    assert found == {"a": Shares(gpu=0.25, memory=0.5), "b": Shares()}


def test_a_cluster_without_gpus_has_usage_of_other_resources():
    """The peer reads nothing at all there: it takes the missing capacity for a failure."""
    assert shares({"gpu": None, "cpu": 10.0}, {"gpu": {"a": 0.0}, "cpu": {"a": 5.0}}) == {"a": Shares(cpu=0.5)}


@pytest.mark.parametrize("held", [{}, {"gpu": {}, "cpu": {}}, {"cpu": {"": 5.0}}])
def test_nodes_without_any_queue_are_a_failure(held):
    with pytest.raises(UsageError, match="found no queue that held gpu, cpu, memory"):
        shares({"gpu": 8.0, "cpu": 10.0, "memory": 1e9}, held)


def test_a_resource_without_samples_of_queues_is_named():
    there = {"gpu": 8.0, "cpu": 10.0, "memory": None}
    assert unsaid(there, {"gpu": {}, "cpu": {"a": 0.0}}) == ("gpu",)
    assert unsaid(there, {"gpu": {"a": 0.0}, "cpu": {"a": 0.0}}) == ()


def test_a_window_without_samples_is_a_failure():
    """The peer keeps what it knew as well: a short window may fall between two steps of the resolution."""
    with pytest.raises(UsageError, match="found no capacity of gpu, cpu, memory, expected that of cpu at least"):
        shares(dict.fromkeys(("gpu", "cpu", "memory")), {})


@pytest.mark.parametrize("total", [None, 0.0])
def test_usage_without_capacity_is_an_error(total):
    with pytest.raises(UsageError, match="found no capacity of gpu, expected some"):
        shares({"gpu": total, "cpu": 1.0}, {"gpu": {"a": 1.0}})


def test_an_infinite_share_is_an_error():
    message = r"found 1e\+308 of gpu of queue 'a' and a capacity of 1e-308, expected a finite share"
    with pytest.raises(UsageError, match=message):
        shares({"gpu": 1e-308}, {"gpu": {"a": 1e308}})
