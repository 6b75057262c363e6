"""The history outlives every kill of the process that records it, with nothing lost but the open transaction."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from typing import Final

from kai.history import reports
from kai.history.database import Author, Writer, reading
from kai.history.facts import Amounts, NodeState
from kai.history.jobs import jobs_over
from kai.history.sums import HOUR

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
