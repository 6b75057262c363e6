"""Measure the history of usage: ``python -m benchmarks.usage [--queues 1000] [--jobs 333000] [--days 30] [FILE]``.

A file is written as the service writes one, by its writer, in virtual time: jobs of 1 to 8 GPUs for minutes to days on
1,000 nodes, in equal parts of all queues. Then it prints as JSON what each question takes, in processor milliseconds,
and how large the file is. A FILE that exists is only asked.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import heapq
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from kai.history import reports, tables
from kai.history.database import Author, Writer, reading
from kai.history.facts import Amounts, Ended, Held, JobFacts, Key, NodeState, QueueFacts
from kai.history.sums import DAY

T = 1_800_000_000_000 // DAY * DAY
NODES = 1000
HALF_LIFE = DAY
BATCH = 60_000
"""For how long changes are collected before they are written together.

Units: milliseconds.
"""
ROUNDS = 5


def jobs(queues: int, count: int, days: int) -> Iterator[tuple[int, Key, Held | Ended]]:
    """Yield what changes, in the order of time: the begin and the end of each job."""
    luck = random.Random(47)
    tops = [QueueFacts(uid=f"department-{at}", name=f"department-{at}") for at in range(max(1, queues // 50))]
    leaves = [QueueFacts(uid=f"team-{at}", name=f"team-{at}", parent=tops[at % len(tops)]) for at in range(queues)]
    ends: list[tuple[int, int, Key]] = []
    starts = sorted(luck.randrange(days * DAY) for _ in range(count))
    for number, start in enumerate(starts):
        while ends and ends[0][0] <= start:
            at, _, key = heapq.heappop(ends)
            yield T + at, key, luck.choice((Ended.DONE,) * 8 + (Ended.FAILED, Ended.PREEMPTED))
        key = (f"00000000-0000-4000-8000-{number:012x}", f"node-{luck.randrange(NODES)}")
        facts = JobFacts(
            uid=key[0],
            namespace=f"team-{number % queues}",
            name=f"training-{number}",
            kind="Job",
            user=f"user-{number % 300}",
            created=T + start - luck.randrange(600_000),
        )
        size = luck.choice((1, 1, 1, 2, 4, 8))
        amounts = Amounts(size * 1000, size * 8000, size * 64_000)
        yield T + start, key, Held(job=facts, queue=leaves[number % queues], model="H100", amounts=amounts)
        heapq.heappush(ends, (start + round(luck.lognormvariate(14.5, 1.5)), number, key))


def write(path: str, queues: int, count: int, days: int) -> dict[str, float]:
    """Write the file, and return what that took: milliseconds of processor time for a transaction, and the longest."""
    node = NodeState(model="H100", capacity=Amounts(8000, 96_000, 1_000_000))
    nodes = {f"node-{at}": node for at in range(NODES)}
    took: list[float] = []
    writer = Writer.begin(path, Author(epoch=1, identity="b"), T, {}, nodes, retention=90 * DAY, half_life=HALF_LIFE)
    batch: dict[Key, Held | Ended] = {}
    due, changes = T + BATCH, 0

    def commit() -> None:
        begun = time.thread_time()
        writer.write(due, batch)
        took.append((time.thread_time() - begun) * 1000)

    for at, key, now in jobs(queues, count, days):
        while at >= due:
            commit()
            batch = {}
            due += BATCH
        batch[key] = now
        changes += 1
    commit()
    writer.close()
    return {
        "changes": changes,
        "transaction_ms": median(took),
        "longest_transaction_ms": max(took),
        "change_ms": sum(took) / changes,
    }


def ask(path: str, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the median processor milliseconds of each question about the last week and month."""
    zone = dt.UTC
    with reading(path) as connection:
        heard = connection.execute("SELECT heard FROM writer").fetchone()[0]
        week, month = heard - 7 * DAY, heard - 30 * DAY
        questions: dict[str, Callable[[], Any]] = {
            "past_usage_week": lambda: reports.past_usage(connection, week, heard, HALF_LIFE),
            "past_usage_week_without_half_life": lambda: reports.past_usage(connection, week, heard),
            "history_month_by_day": lambda: [
                reports.held_by_queue(connection, each.since, each.until)
                for each in tables.spans(month, heard, "day", zone)
            ],
        }
        span = tables.Span(since=month, until=heard)
        for kind in tables.KINDS:
            questions[f"report_{kind}_month"] = partial(tables.rows_of, connection, kind, span)
        return {f"{name}_ms": _median(question, rounds) for name, question in questions.items()}


def _median(question: Callable[[], Any], rounds: int) -> float:
    question()
    took: list[float] = []
    for _ in range(rounds):
        gc.collect()
        begun = time.process_time()
        question()
        took.append((time.process_time() - begun) * 1000)
    return median(took)


def main() -> None:
    """Write and ask, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default="")
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=333_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.file or f"{folder}/history.db"
        found = {} if Path(path).exists() else write(path, chosen.queues, chosen.jobs, chosen.days)
        found |= {"megabytes": Path(path).stat().st_size / 1e6, **ask(path, chosen.rounds)}
    print(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=2))


if __name__ == "__main__":
    main()
