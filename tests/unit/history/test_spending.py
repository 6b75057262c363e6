import attrs
import pytest

from kai.api.codec.structuring import structure_as
from kai.api.scheduling.queue import Queue
from kai.history.database import MEMORY, Author, Writer, connect
from kai.history.facts import Amounts, Ended, Held, JobFacts, NodeState, QueueFacts
from kai.history.spending import spent_of

HOUR = 3_600_000
DAY = 24 * HOUR
T = 1_767_225_600_000
"""2026-01-01, the begin of a month in UTC."""
TOP = QueueFacts(uid="top", name="top")
TEAM = QueueFacts(uid="team", name="team", parent=TOP)
GPU_HOUR = 3_600_000_000


def queue(name="team", **fields):
    budget = {"name": "month", "amount": 100, **fields}
    metadata = {"name": name, "uid": name, "creationTimestamp": "2025-01-01T00:00:00Z"}
    return structure_as(Queue, {"metadata": metadata, "spec": {"budgets": [budget]}})


def held(gpus, uid, user="ada", model="H100", queue=TEAM):
    job = JobFacts(uid=uid, namespace="ns", name=uid, user=user)
    return Held(job=job, queue=queue, model=model, amounts=Amounts(gpu=gpus * 1000))


@pytest.fixture
def writer():
    nodes = {"n1": NodeState(model="H100", capacity=Amounts(gpu=8000))}
    made = Writer.begin(
        MEMORY,
        Author(epoch=None, identity="me"),
        T - DAY,
        {},
        nodes,
        retention=90 * DAY,
        connection=connect(MEMORY, writes=True),
    )
    yield made
    made.close()


def spent(writer, at, **fields):
    return spent_of(writer.connection, [queue(**fields)], at)["team", "month"]


def test_finished_and_held_use_counts_to_the_instant(writer):
    writer.write(T, {("a", "n1"): held(2, "a"), ("b", "n1"): held(1, "b", user="bob")})
    writer.write(T + HOUR, {("a", "n1"): Ended.DONE})
    found = spent(writer, T + 3 * HOUR)
    assert (found.total, found.pace, found.since) == (5 * GPU_HOUR, 1000, T)
    assert found.users == (("bob", 3 * GPU_HOUR), ("ada", 2 * GPU_HOUR))
    assert found.jobs == (("ns/b", 3 * GPU_HOUR), ("ns/a", 2 * GPU_HOUR))
    assert found.total_at(T + 4 * HOUR, T) == 6 * GPU_HOUR
    assert found.total_at(T + 40 * DAY + HOUR, T + 40 * DAY) == GPU_HOUR, "a new period counts what is held in it"


def test_earlier_work_counts_from_the_reset_on(writer):
    writer.write(T - HOUR, {("a", "n1"): held(1, "a")})
    assert spent(writer, T + HOUR).total == GPU_HOUR


def test_a_parent_counts_what_was_below_it_then(writer):
    writer.write(T, {("a", "n1"): held(1, "a")})
    writer.write(T + HOUR, {("a", "n1"): held(1, "a", queue=QueueFacts(uid="team", name="team"))})
    found = spent_of(writer.connection, [queue("top")], T + 2 * HOUR)["top", "month"]
    assert found.total == GPU_HOUR


@pytest.mark.parametrize(
    ("refund", "ended", "total"),
    [
        ([], Ended.NODE, 2),
        (["nodeFailure"], Ended.NODE, 0),
        (["nodeFailure"], Ended.RECLAIMED, 2),
        (["preempted"], Ended.RECLAIMED, 0),
        (["preempted"], Ended.FAILED, 2),
    ],
)
def test_refunds_give_back_what_ended_that_way(writer, refund, ended, total):
    writer.write(T, {("a", "n1"): held(1, "a")})
    writer.write(T + 2 * HOUR, {("a", "n1"): ended})
    assert spent(writer, T + 3 * HOUR, refund=refund).total == total * GPU_HOUR


def test_models_weigh_what_the_budget_says(writer):
    writer.write(T, {("a", "n1"): held(1, "a")})
    assert spent(writer, T + HOUR, weights=[{"model": "h100", "weight": 2.5}]).total == 2.5 * GPU_HOUR


def test_the_previous_periods_rest_is_partly_carried_over(writer):
    writer.write(T - 10 * HOUR, {("a", "n1"): held(4, "a")})
    writer.write(T, {("a", "n1"): Ended.DONE})
    assert spent(writer, T + HOUR, carryOver=0.5).carried == 30 * GPU_HOUR
    young = attrs.evolve(
        queue(carryOver=0.5), metadata=attrs.evolve(queue().metadata, creation_timestamp=T / 1000 - 60)
    )
    assert spent_of(writer.connection, [young], T + HOUR)["team", "month"].carried == 0


def test_a_queue_without_history_used_nothing(writer):
    assert spent(writer, T + HOUR).total == 0
