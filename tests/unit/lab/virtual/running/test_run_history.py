"""Runs over virtual time that divide by past usage, from the database that the service would write."""

import pytest

from kai.basics.parsing import GPU_HOUR
from kai.deciding.configuration.profile_reading import read_configuration
from kai.history import reports
from kai.lab.virtual.running.simulation import run, simulation_of
from tests.unit.lab.virtual.builders import cluster, job, scene_of

HOUR = 3600.0


def queues(**weights: float) -> str:
    """Return queues below the one of the cluster that have no quota, each with a weight."""
    return "".join(
        f"""
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}}}
spec:
  parentQueue: all
  resources:
    gpu: {{quota: 0, limit: -1, overQuotaWeight: {weight}}}
    cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}
    memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}
"""
        for name, weight in weights.items()
    )


def work(queue: str, count: int, *, gpus: int, minutes: int) -> str:
    """Return more jobs than a queue can have done; they come within minutes."""
    text = job(queue, gpus, duration=f"{minutes}m", arrival=f"poisson(rate=6000/h, count={count})")
    return text.replace("kai.scheduler/queue: work", f"kai.scheduler/queue: {queue}")


def configuration(**params: str):
    usage = {"clientType": "sqlite", "connectionString": ":memory:", "usageParams": {"fetchInterval": "1m", **params}}
    return read_configuration({"usageDBConfig": usage}, "test")


def shares(text: str, hours: float, settled: float = 0.0, **params: str) -> dict[str, float]:
    """Return the GPU-hours of each queue after ``settled`` hours."""
    simulation = simulation_of(scene_of(text), configuration(**params), until=hours * HOUR)
    result = simulation.run()
    began = round(simulation.cluster.began * 1000)
    since, until = (began + round(each * HOUR * 1000) for each in (settled, result.horizon / HOUR))
    connection = simulation.history.writer.connection
    return {uid: use.held.gpu / 3.6e9 for uid, use in reports.by_queue(connection, since, until).items()}


def test_two_queues_get_equal_shares_after_four_half_lives():
    text = cluster(1, gpus=16, quota=0) + queues(one=1, two=1)
    text += work("one", 50, gpus=16, minutes=1) + work("two", 50, gpus=16, minutes=1)
    found = shares(text, 1.25, settled=0.5, windowSize="30m", halfLifePeriod="7m30s", fetchInterval="10s")
    assert found["one"] + found["two"] == pytest.approx(found["all"])
    assert found["all"] > 0.95 * 16 * 0.75
    # Shares are whole GPUs, so both have eight nearly always: the order of equal shares decides.
    assert 0.95 <= found["one"] / found["two"] <= 1.05


def test_a_month_of_backlog_uses_budgets_within_one_percent():
    """KAI-Scheduler's story of monthly GPU-hours: four queues, each gets what it was promised."""
    promised = {"a": 1600, "b": 1200, "c": 992, "d": 800}
    budget = "  budgets: [{{name: month, amount: {}}}]\n"
    made = {name: queues(**{name: 1}) + budget.format(amount) for name, amount in promised.items()}
    text = cluster(1, gpus=8, quota=0) + "".join(made.values())
    for name, amount in promised.items():
        limited = "annotations:\n    kai.scheduler/max-runtime: 8h"
        text += work(name, amount // 10, gpus=2, minutes=8 * 60 - 10).replace("annotations:", limited)
    simulation = simulation_of(scene_of(text), None, until=31 * 24 * HOUR)
    result = simulation.run()
    began, end = (round((simulation.cluster.began + each) * 1000) for each in (0.0, result.horizon))
    used = reports.by_queue(simulation.history.writer.connection, began, end)
    for name, amount in promised.items():
        assert 0.99 * amount <= used[name].held.gpu / GPU_HOUR <= amount
    assert all(each.time < HOUR for each in result.records.evictions)  # while jobs still arrive


def test_three_backlogged_queues_use_equal_hours_within_one_percent():
    names = ("a", "b", "c")
    text = cluster(1, gpus=6, quota=0) + queues(**dict.fromkeys(names, 1))
    text += "".join(work(name, 20, gpus=2, minutes=10 + 3 * at) for at, name in enumerate(names))
    found = shares(text, 3, windowSize="1w")
    mean = sum(found[name] for name in names) / 3
    assert max(abs(found[name] - mean) for name in names) <= 0.01 * mean


def test_without_a_database_a_run_keeps_no_history():
    text = cluster(1) + job("train", 2, duration="10m")
    plain, usual = (run(scene_of(text), each, until=HOUR) for each in (None, read_configuration({}, "test")))
    assert simulation_of(scene_of(text), None, until=HOUR).history is None
    assert plain.digest == usual.digest
