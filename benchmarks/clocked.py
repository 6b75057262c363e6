"""Measure what quotas by the clock cost: ``python -m benchmarks.clocked``.

Two schedulers live side by side on the same 2,000 queues. Those of one have two windows each, which change no amount,
so that both decide the same. Their warm cycles are measured in turn, so that a busy machine slows both; then one cycle
of each in which every window opens.
"""

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import attrs
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
    found = Beside.measured(workload, with_windows, rounds, NOW.timestamp() // 3_600 * 3_600 + 60)
    edge = [_timed(each, found.now + 3_600) for each in found.schedulers]
    return {
        "plain_ms": median(found.plain_ms),
        "clocked_ms": median(found.changed_ms),
        "ratio": found.ratio,
        "plain_edge_ms": edge[0],
        "clocked_edge_ms": edge[1],
    }


@attrs.frozen
class Beside:
    """Two schedulers side by side, one plain and one whose objects were changed, and what their warm cycles cost.

    Units: processor milliseconds; ``now``, the instant of the last cycles, in seconds since the epoch.
    """

    schedulers: tuple[engine.Live, engine.Live]
    plain_ms: list[float]
    changed_ms: list[float]
    now: float

    @classmethod
    def measured(
        cls, workload: Workload, change: Callable[[Iterator[Batch]], Iterator[Batch]], rounds: int, now: float
    ) -> "Beside":
        """Return both after warm cycles that were measured in turn, each round in the other order."""
        engine.warm()
        rehearse(engine.Live())
        both = (engine.Live(), engine.Live())
        for scheduler, batches in zip(both, (listed(workload), change(listed(workload))), strict=True):
            for batch in batches:
                scheduler.take(batch)
        for each in both:
            each.cycle(now, Stopwatch())
            each.settle()
        times: tuple[list[float], list[float]] = ([], [])
        for round_ in range(rounds):
            gone = leaving(workload, round_), change(leaving(workload, round_))
            come = arriving(workload, round_ + 1), change(arriving(workload, round_ + 1))
            _cycle_after(gone, both, now := now + 1)
            now += 1
            found = _cycle_after(come, both, now) if round_ % 2 else _cycle_after(come[::-1], both[::-1], now)[::-1]
            for kept, took in zip(times, found, strict=True):
                kept.append(took)
        return cls(both, *times, now)

    @property
    def ratio(self) -> float:
        """How much longer cycles take with the change, as the median over rounds."""
        return median(one / other for other, one in zip(self.plain_ms, self.changed_ms, strict=True))


def _cycle_after(news: Sequence[Iterator[Batch]], schedulers: Sequence[engine.Live], now: float) -> list[float]:
    """Let every scheduler hear of its news, and return what a cycle of each then costs."""
    for each, batches in zip(schedulers, news, strict=True):
        for batch in batches:
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
