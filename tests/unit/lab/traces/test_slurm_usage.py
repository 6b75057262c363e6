"""The usage of jobs that Slurm ran: kai's reports on their accounting beside what sreport said of the same jobs.

Slurm 22.05.8 with slurmdbd ran them on four nodes with four GPUs each: an array, a gang of four nodes, a job that
took a node for one GPU (``--exclusive``), a failure, a cancellation, one past its limit and one that was requeued.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kai.history import reports
from kai.history.database import queues_by_row
from kai.history.jobs import jobs_over
from kai.lab.virtual.running.simulation import run
from kai.lab.virtual.scenes.loading import load

SACCT = Path(__file__).with_name("sacct-usage.txt").read_text()
"""What ``sacct -a -X -P -D`` printed, with the columns of docs/simulating.md and ``SLURM_TIME_FORMAT=%s``."""
USERS = {"ada": (2550, 990), "ben": (2080, 1040), "eve": (707, 267)}
"""``sreport -t seconds -T gres/gpu,cpu cluster AccountUtilizationByUser``: GPU-seconds and CPU-seconds by user."""
ACCOUNTS = {"vision": (2550, 990), "language": (2787, 1307)}
ALLOCATED = (5337, 2297)
"""``sreport cluster Utilization``, the column Allocated."""
CLUSTER = """\
shapes: {node: {gpu: 4, cpu: 8, ram: 16Gi, names: n1..n4}}
queues: {root: {quota: 16}, vision: {parent: root, quota: 16}, language: {parent: root, quota: 16}}
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "sacct.txt").write_text(SACCT)
    (folder / "cluster.yaml").write_text(CLUSTER)
    ran = run(load(str(folder / "sacct.txt"), str(folder / "cluster.yaml")).scene, keeps_history=True)
    return ran.history.writer.connection


def seconds(use):
    """Return GPU-seconds and CPU-seconds; kai may evict a job and run it again, which Slurm did not."""
    once = use.held.plus(use.lost, -1)
    return once.gpu / 1e6, once.cpu / 1e6


def used(database, by):
    return reports.use_by(database, by, 0, 1 << 61)


def test_users_used_what_sreport_says(database):
    words = reports.words(database)
    assert {words[key]: seconds(use) for key, use in used(database, "user").items()} == USERS


def test_accounts_used_what_sreport_says(database):
    names = {row: facts.name for row, facts in queues_by_row(database).items()}
    assert {names[key]: seconds(use) for key, use in used(database, "queue").items()} == ACCOUNTS
    assert seconds(reports.by_queue(database, 0, 1 << 61)["root"]) == ALLOCATED


def test_each_job_used_what_sacct_says(database):
    columns, *rows = [line.split("|") for line in SACCT.splitlines()]
    said = {}
    for row in rows:
        each = dict(zip(columns, row, strict=True))
        name = each["JobID"] if each["JobID"] not in said else f"{each['JobID']}-2"
        gpus = next(part for part in each["AllocTRES"].split(",") if part.startswith("gres/gpu=")).split("=")[1]
        said[name] = int(gpus) * int(each["ElapsedRaw"])
    lines = jobs_over(database, 0, 1 << 61)
    assert {line.name: (line.use.held.gpu - line.use.lost.gpu) / 1e6 for line in lines} == said


def test_jobs_have_the_dates_of_the_accounting(database):
    first = min(line.started for line in jobs_over(database, 0, 1 << 61))
    assert datetime.fromtimestamp(first / 1000, UTC) == datetime(2026, 11, 29, 13, 21, 28, tzinfo=UTC)
