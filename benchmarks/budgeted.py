"""Measure what budgets of GPU-hours cost: ``python -m benchmarks.budgeted``.

Two schedulers live side by side on the same 2,000 queues. In one of them 500 queues have a budget that nothing reaches,
so that both decide the same. Their warm cycles are measured in turn, so that a busy machine slows both. What the
budgets used is read apart, from a history of 300,000 intervals that all lie in the month of the budgets.
"""

import gc
import json
import tempfile
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from attrs import evolve

from benchmarks import usage
from benchmarks.catalogue import find_workload
from benchmarks.clock import Stopwatch
from benchmarks.clocked import Beside
from benchmarks.events import Batch
from benchmarks.manifests import NOW
from benchmarks.workload import Workload
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.scheduling.queue import Queue, QueueBudget, QueueSpec
from kai.history.database import heard_until, reading
from kai.history.spending import Meter

WORKLOAD = "queues-2000"
ROUNDS = 7
BUDGETS = 500
INTERVALS = 300_000
_APART = 4
_DAYS = 14
_ENOUGH = 1_000_000
_MINUTE = 60_000


def with_budgets(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches, each fourth queue with a monthly budget that is enforced and that nothing reaches."""
    for batch in batches:
        if batch.kind == "Queue":
            bodies = [_budgeted(json.loads(body), at) for at, body in enumerate(batch.bodies)]
            yield evolve(batch, bodies=tuple(json.dumps(body).encode() for body in bodies))
        else:
            yield batch


def _budgeted(queue: dict[str, Any], at: int) -> dict[str, Any]:
    if at % _APART:
        return queue
    budgets = [{"name": "month", "amount": _ENOUGH, "period": "monthly", "enforce": "admit"}]
    return {**queue, "spec": {**queue["spec"], "budgets": budgets}}


def measure(workload: Workload, rounds: int = ROUNDS) -> dict[str, float]:
    """Return processor milliseconds of warm cycles without and with budgets, and how one is to the other."""
    found = Beside.measured(workload, with_budgets, rounds, NOW.timestamp() + 60)
    return {"plain_ms": median(found.plain_ms), "budgeted_ms": median(found.changed_ms), "ratio": found.ratio}


def read(path: str, budgets: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Return processor milliseconds of readings of a history that `benchmarks.usage` wrote.

    The first one adds up the month. Later ones are a second apart, as cycles may be, with nothing recorded between
    them; the last one is a minute later, so it also looks anew for who used most.
    """
    budget = QueueBudget(name="month", amount=_ENOUGH)
    queues = [
        Queue(metadata=ObjectMeta(name=f"team-{at}", uid=f"team-{at}"), spec=QueueSpec(budgets=(budget,)))
        for at in range(budgets)
    ]
    with reading(path) as connection:
        heard = heard_until(connection) or 0
    meter = Meter()
    first, *later, named = [
        _reading(meter, path, queues, heard + after)
        for after in (0, *range(1000, 1000 * (rounds + 1), 1000), 2 * _MINUTE)
    ]
    return {"first_reading_ms": first, "reading_ms": median(later), "minute_reading_ms": named}


def _reading(meter: Meter, path: str, queues: Sequence[Queue], at: int) -> float:
    gc.collect()
    watch = Stopwatch()
    with watch.phase("total"), reading(path) as connection:
        meter.read(connection, queues, at)
    return watch.phases_ms["total"]


def main() -> None:
    """Measure cycles and readings, and print the figures."""
    found = measure(find_workload(WORKLOAD))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/history.db"
        usage.write(path, 2 * BUDGETS, INTERVALS, _DAYS)
        found |= read(path, BUDGETS)
    found["ratio_with_reading"] = (found["budgeted_ms"] + found["reading_ms"]) / found["plain_ms"]
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
