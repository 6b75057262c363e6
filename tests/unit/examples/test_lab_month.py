"""Some days of the lab's month: reports agree with the run's own ledger, and no rule of its queues is broken."""

from collections import Counter
from datetime import datetime
from itertools import pairwise
from math import isnan
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kai.basics.parsing import GPU_HOUR
from kai.history import reports
from kai.history.database import queues_by_row
from kai.history.facts import NOTHING, Ended
from kai.lab.virtual.running.live_jobs import State
from kai.lab.virtual.running.simulation import simulation_of
from kai.lab.virtual.scenes.loading import load

MONTH = Path(__file__).parents[3] / "examples" / "lab-month"
BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600.0
UNTIL = 50 * HOUR
"""From Thursday at midnight to Saturday at two: two days with windows, the nights between, the begin of a weekend."""
DOWN = 6 * HOUR
GRACE = 30.0
LANGUAGE = 900
"""GPU-hours of the queue language, few enough to be used up."""


LIMITS = {"pretrain": 24 * HOUR, "tune": 12 * HOUR, "evaluate": 4 * HOUR}


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    work, cluster = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    events = (MONTH / "cluster.yaml").read_text()
    cluster.write_text(events.replace("at: 5d, node: gpu-03", "at: 30h, node: gpu-03"))
    for path in sorted((MONTH / "work").glob("*.yaml")):
        (work / path.name).write_text(path.read_text().replace("amount: 22000", f"amount: {LANGUAGE}"))
    return load(str(work), str(cluster), until=UNTIL).scene


@pytest.fixture(scope="module")
def ran(scene):
    """Return the run, and the most that language had spent and could still spend at any instant, in GPU-hours."""
    simulation, most = simulation_of(scene, None, until=UNTIL, keeps_history=True), 0.0
    simulation.begin()
    while simulation.next <= UNTIL:
        simulation.step()
        spent = simulation.history.spent(simulation.cluster.instant(simulation.now))
        most = max(most, spent["language", "month"].total / GPU_HOUR + committed(simulation))
    return simulation.finish(), most


def committed(simulation):
    """Return the GPU-hours that jobs of language use if each runs until its limit."""
    hours = 0.0
    for life in simulation.workloads.lives.values():
        job = life.slot.task.job
        if job.plan.queue == "language" and life.state is State.RUNNING:
            ran_for = job.consumed + (0.0 if isnan(job.since) else simulation.now - job.since)
            hours += life.gpus * (LIMITS[job.plan.owner.split("-")[0]] - ran_for) / HOUR
    return hours


@pytest.fixture(scope="module")
def run(ran):
    return ran[0]


@pytest.fixture(scope="module")
def stays(run):
    return [*run.records.stays, *run.staying]


@pytest.fixture(scope="module")
def database(run):
    return run.history.writer.connection


@pytest.fixture(scope="module")
def span(run):
    began = round(run.scene.began * 1000)
    return began, began + round(UNTIL * 1000)


def exact(run, stay):
    """Return what a stay held in GPU-microseconds, as a history in milliseconds has it."""
    begin, end = (round((run.scene.began + each) * 1000) for each in (stay.start, stay.end))
    return round(stay.gpus * 1000) * (end - begin)


def test_the_report_equals_the_ledger_of_the_run(run, stays, database, span):
    words = reports.words(database)
    for by, key_of in (
        ("queue", lambda stay: run.records.jobs[stay.job].queue),
        ("user", lambda stay: run.records.jobs[stay.job].user),
        ("node", lambda stay: stay.node),
    ):
        ledger = Counter()
        for stay in stays:
            ledger[key_of(stay)] += exact(run, stay)
        uses = reports.use_by(database, by, *span)
        names = {row: facts.name for row, facts in queues_by_row(database).items()} if by == "queue" else words
        assert {names.get(key, key): use.held.gpu for key, use in uses.items()} == dict(ledger)


def test_held_idle_and_down_are_the_capacity(run, stays, database, span):
    found = reports.capacity(database, *span)
    whole, failed = 100 * 1000 * round(UNTIL * 1000), 8 * 1000 * round(DOWN * 1000)
    assert found.capacity.gpu == whole - failed
    assert found.held.gpu == sum(exact(run, stay) for stay in stays)
    assert (found.down, found.over, found.unrecorded) == (NOTHING, NOTHING, 0)
    assert found.idle.gpu == whole - failed - found.held.gpu > 0


def test_queues_users_sizes_and_endings_have_one_total(database, span):
    totals = {by: reports.total(reports.use_by(database, by, *span).values()).held for by in reports.BY}
    assert len(set(totals.values())) == 1
    assert reports.by_queue(database, *span)["lab"].held == totals["all"]


def test_days_add_up_to_the_whole(database, span):
    cuts = [span[0], span[0] + 24 * 3_600_000, span[0] + 48 * 3_600_000, span[1]]
    days = [reports.by_queue(database, *day) for day in pairwise(cuts)]
    for uid, use in reports.by_queue(database, *span).items():
        assert sum(day[uid].held.gpu for day in days if uid in day) == use.held.gpu


def test_a_budget_that_admits_is_never_exceeded(ran, stays):
    run, most = ran
    terminating = sum(stay.gpus for stay in stays if run.records.jobs[stay.job].queue == "language") * GRACE / HOUR
    assert LANGUAGE - 8 * 12 < most <= LANGUAGE + terminating


def test_no_job_runs_longer_than_it_may(run, stays):
    most = {**LIMITS, "notebook": 8 * HOUR, "workshop": 8 * HOUR, "sweep": 24 * HOUR, "ablation": 24 * HOUR}
    longest = Counter()
    for stay in stays:
        kind = run.records.jobs[stay.job].owner.split("-")[0]
        longest[kind] = max(longest[kind], stay.end - stay.start)
    assert {kind for kind in most if longest[kind] > most[kind] + GRACE + 1e-3} == set()
    assert longest["notebook"] >= 8 * HOUR


def test_notebooks_end_when_the_office_closes(run, stays, database, span):
    hours = set()
    for stay in stays:
        if run.records.jobs[stay.job].queue == "notebooks":
            begin, end = (datetime.fromtimestamp(run.scene.began + each, BERLIN) for each in (stay.start, stay.end))
            assert begin.date() == end.date()
            assert 8 <= begin.hour < 20
            assert end <= begin.replace(hour=20, minute=0, second=int(GRACE) + 1, microsecond=0)
            hours.add(end.hour)
    assert 20 in hours
    assert Ended.WINDOW_CLOSED in reports.use_by(database, "ended", *span)


def test_work_on_the_failed_node_is_lost_with_it(database, span):
    lost = reports.use_by(database, "ended", *span)[Ended.NODE]
    assert lost.held == lost.lost != NOTHING


def test_the_same_run_gives_the_same_file(scene):
    files = [simulation_of(scene, None, until=6 * HOUR, keeps_history=True).run().history.as_file() for _ in range(2)]
    assert files[0] == files[1]
    assert files[0].startswith(b"SQLite format 3")
