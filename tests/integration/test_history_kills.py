"""The history outlives every kill of the process that records it, with nothing lost but the open transaction."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from typing import Final

from kai.api.codec.structuring import structure_as
from kai.api.scheduling.queue import Queue
from kai.basics.parsing import GPU_HOUR
from kai.history import reports
from kai.history.database import Author, Writer, reading
from kai.history.facts import Amounts, NodeState
from kai.history.jobs import jobs_over
from kai.history.spending import Meter, accounts
from kai.history.sums import DAY, HOUR

KILLS: Final = 50
T: Final = 1_800_000_000_000
RECORDER: Final = textwrap.dedent(
    """
    # Records one job after the other, each for 700 seconds of GPU time, and says what is committed.
    import sys
    from kai.history.database import Author, Writer
    from kai.history.facts import Amounts, Ended, Held, JobFacts, NodeState, QueueFacts

    path, epoch, number, at = sys.argv[1], *map(int, sys.argv[2:])
    queue = QueueFacts(uid="team", name="team")
    nodes = {"n": NodeState(model="H100", capacity=Amounts(8000, 8000, 8000))}
    writer = Writer.begin(path, Author(epoch=epoch, identity=str(epoch)), at, {}, nodes, retention=10**12)
    while True:
        job = JobFacts(uid=f"job-{number}", namespace="ns", name=f"job-{number}")
        writer.write(at, {(job.uid, "n"): Held(job=job, queue=queue, model="H100", amounts=Amounts(1000, 0, 0))})
        print(number, "began", at, flush=True)
        at += 700_000
        writer.write(at, {(job.uid, "n"): Ended.DONE})
        print(number, "ended", at, flush=True)
        number += 1
    """
)


def test_fifty_kills_lose_the_open_transaction_and_nothing_else(tmp_path):
    path, luck = str(tmp_path / "history.db"), random.Random(47)
    number, at, ended = 0, T, set()
    for epoch in range(1, KILLS + 1):
        words = [sys.executable, "-c", RECORDER, path, *map(str, (epoch, number, at))]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(luck.randrange(1, 40)):
                process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
            said = [line.split() for line in process.stdout.read().splitlines() if line.count(" ") == 2]
        with reading(path) as connection:
            heard = connection.execute("SELECT heard FROM writer").fetchone()[0]
            lines = list(jobs_over(connection, T, heard))
        # What was said is there; one more transaction may be, whose word was lost.
        for word in said:
            assert any(line.name == f"job-{word[0]}" or word[1] == "began" for line in lines)
        ended |= {line.uid for line in lines if line.ended is not None}
        number = 1 + max(int(line.uid.removeprefix("job-")) for line in lines) if lines else number
        at = heard
    Writer.begin(
        path,
        Author(epoch=KILLS + 1, identity="last"),
        at,
        {},
        {"n": NodeState(model="H100", capacity=Amounts(8000, 8000, 8000))},
        retention=10**12,
    ).close()
    with reading(path) as connection:
        lines = list(jobs_over(connection, T, at))
        whole = reports.capacity(connection, T, at)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        twice = connection.execute("SELECT job FROM held GROUP BY job HAVING COUNT(*) > 1").fetchall()
    assert twice == []
    assert all(line.ended - line.started == 700_000 for line in lines)
    assert ended <= {line.uid for line in lines}
    assert whole.held.gpu == len(lines) * 700_000_000
    assert whole.capacity.gpu == 8000 * (at - T)
    with reading(path) as connection:
        assert connection.execute("SELECT COUNT(*) FROM hour").fetchone()[0] > 20
        for span in ((T, at), (T + 5 * HOUR + 17, at - 7 * HOUR + 3), (T + 9 * HOUR, T + 11 * HOUR)):
            expected = {uid: use.held for uid, use in reports.by_queue(connection, *span).items()}
            assert reports.held_by_queue(connection, *span) == expected
            assert reports.capacity(connection, *span) == reports.capacity(connection, *span, model="H100")


AMOUNT: Final = 4
"""GPU-hours of a day: twenty jobs."""
BUDGET: Final = {"name": "day", "amount": AMOUNT, "period": "daily", "enforce": "admit"}
TEAM: Final = {"metadata": {"name": "team", "uid": "team"}, "spec": {"budgets": [BUDGET]}}
SPENDER: Final = textwrap.dedent(
    """
    # As the recorder above, for a queue with a budget: a job begins if it fits what is left of the day.
    import json, sys
    from kai.api.codec.structuring import structure_as
    from kai.api.scheduling.queue import Queue
    from kai.basics.parsing import GPU_HOUR
    from kai.history.database import Author, Writer
    from kai.history.facts import Amounts, Ended, Held, JobFacts, NodeState, QueueFacts
    from kai.history.spending import Meter

    path, epoch, number, at, team = sys.argv[1], *map(int, sys.argv[2:5]), json.loads(sys.argv[5])
    queue, budgets = QueueFacts(uid="team", name="team"), [structure_as(Queue, team)]
    amount = team["spec"]["budgets"][0]["amount"] * GPU_HOUR
    nodes = {"n": NodeState(model="H100", capacity=Amounts(8000, 8000, 8000))}
    author, meter = Author(epoch=epoch, identity=str(epoch)), Meter()
    writer = Writer.begin(path, author, at, {}, nodes, retention=10**12)
    while True:
        if meter.read(writer.connection, budgets, at)["team", "day"].total + 700_000_000 > amount:
            at = (at // 86_400_000 + 1) * 86_400_000
            writer.write(at)
            continue
        job = JobFacts(uid=f"job-{number}", namespace="ns", name=f"job-{number}")
        writer.write(at, {(job.uid, "n"): Held(job=job, queue=queue, model="H100", amounts=Amounts(1000, 0, 0))})
        print(number, "began", flush=True)
        at += 700_000
        writer.write(at, {(job.uid, "n"): Ended.DONE})
        print(number, "ended", flush=True)
        number += 1
    """
)


def test_kills_charge_a_budget_once_and_never_beyond(tmp_path):
    path, luck, budgets = str(tmp_path / "history.db"), random.Random(11), [structure_as(Queue, TEAM)]
    number, at, before = 0, T // DAY * DAY, 0
    for epoch in range(1, KILLS // 2 + 1):
        words = [sys.executable, "-c", SPENDER, path, *map(str, (epoch, number, at)), json.dumps(TEAM)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(luck.randrange(1, 60)):
                process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
            process.stdout.read()
        with reading(path) as connection:
            at = connection.execute("SELECT heard FROM writer").fetchone()[0]
            days = list(accounts(connection, budgets, T // DAY * DAY, at + 1))
            lines = list(jobs_over(connection, 0, at))
            present = Meter().read(connection, budgets, at)["team", "day"].total
            running = connection.execute("SELECT SUM(:at - since) FROM held WHERE until > :at", {"at": at}).fetchone()[
                0
            ]
        spent = sum(each.spent for each in days)
        # What an open job may still use is 700 s less what it used: the law of ``admit`` after each restart.
        committed = 0 if running is None else 700_000_000 - 1000 * running
        assert max(each.spent for each in days) <= AMOUNT * GPU_HOUR
        assert present + committed <= AMOUNT * GPU_HOUR
        assert spent == sum(line.use.held.gpu for line in lines) >= before
        before, number = spent, 1 + max(int(line.uid.removeprefix("job-")) for line in lines) if lines else number
    assert len(days) > 5
    assert sum(AMOUNT * GPU_HOUR - each.spent < 700_000_000 for each in days) > len(days) // 2
