"""Measure what quotas by the clock cost: ``python -m benchmarks.clocked``.

Two schedulers live side by side on the same 2,000 queues. Those of one have two windows each, which change no amount,
so that both decide the same. Their warm cycles are measured in turn, so that a busy machine slows both; then one cycle
of each in which every window opens.
"""

import gc
import json
from collections.abc import Iterator, Sequence
from statistics import median

from attrs import evolve

from benchmarks import engine
from benchmarks.catalogue import find_workload
from benchmarks.clock import Stopwatch
from benchmarks.events import Batch, arriving, leaving, listed
from benchmarks.manifests import NOW
from benchmarks.measure import rehearse
from benchmarks.workload import Workload

WORKLOAD = "queues-2000"
ROUNDS = 5
_ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC")


def with_windows(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches, each queue with two windows that open at the same hours and change no amount."""
    for batch in batches:
        if batch.kind == "Queue":
            bodies = [_scheduled(json.loads(body), at) for at, body in enumerate(batch.bodies)]
            yield evolve(batch, bodies=tuple(json.dumps(body).encode() for body in bodies))
        else:
            yield batch


def _scheduled(queue: dict[str, object], at: int) -> dict[str, object]:
    spec = queue["spec"]
    if not isinstance(spec, dict):
        raise TypeError(f"spec of a queue: found {type(spec).__name__}, expected an object")
    zone = _ZONES[at % len(_ZONES)]
    windows = [
        {"name": "nights", "start": "0 * * * *", "duration": "30m", "timeZone": zone},
        {"name": "weekend", "start": f"{at % 60} 8 * * 6", "duration": "38h", "timeZone": zone},
    ]
    return {**queue, "spec": {**spec, "schedules": windows}}


def measure(workload: Workload, rounds: int = ROUNDS) -> dict[str, float]:
    """Return processor milliseconds of plain and of scheduled queues, for warm cycles and for one at an edge."""
    engine.warm()
    rehearse(engine.Live())
    plain, clocked = engine.Live(), engine.Live()
    for batch in listed(workload):
        plain.take(batch)
    for batch in with_windows(listed(workload)):
        clocked.take(batch)
    now = NOW.timestamp() // 3_600 * 3_600 + 60
    both = (plain, clocked)
    for each in both:
        each.cycle(now, Stopwatch())
        each.settle()
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(rounds):
        cycle_after(leaving(workload, round_), both, now := now + 1)
        found = cycle_after(arriving(workload, round_ + 1), both if round_ % 2 else both[::-1], now := now + 1)
        for kept, took in zip(times, found if round_ % 2 else found[::-1], strict=True):
            kept.append(took)
    edge = [_timed(each, now + 3_600) for each in both]
    return {
        "plain_ms": median(times[0]),
        "clocked_ms": median(times[1]),
        "ratio": median(one / other for other, one in zip(*times, strict=True)),
        "plain_edge_ms": edge[0],
        "clocked_edge_ms": edge[1],
    }


def cycle_after(news: Iterator[Batch], schedulers: Sequence[engine.Live], now: float) -> list[float]:
    """Let every scheduler hear of the news, and return what a cycle of each then costs."""
    for batch in news:
        for each in schedulers:
            each.take(batch)
    gc.collect()
    return [_timed(each, now) for each in schedulers]


def _timed(scheduler: engine.Live, now: float) -> float:
    watch = Stopwatch()
    with watch.phase("total"):
        scheduler.cycle(now, watch)
    return watch.phases_ms["total"]


if __name__ == "__main__":
    print(json.dumps({name: round(value, 3) for name, value in measure(find_workload(WORKLOAD)).items()}))
