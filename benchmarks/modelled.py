"""Measure what limits of GPU models cost: ``python -m benchmarks.modelled [WORKLOAD]``.

Two schedulers live side by side on the same cluster. In one of them, nodes have models of GPUs and each queue a limit
of each model that nothing reaches, so that both decide the same. Their warm cycles are measured in turn, so that a
busy machine slows both.
"""

import json
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

from attrs import evolve

from benchmarks import engine
from benchmarks.catalogue import find_workload
from benchmarks.clock import Stopwatch
from benchmarks.clocked import cycle_after
from benchmarks.events import Batch, arriving, leaving, listed
from benchmarks.manifests import NOW
from benchmarks.measure import rehearse
from benchmarks.workload import Workload
from kai.api import names

WORKLOAD = "w1"
ROUNDS = 7
MODELS = ("a100", "h100", "h200", "l40s")
_ENOUGH = 1_000_000


def with_models(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches, each node with one of four models and each queue with a high limit of each of them."""
    for batch in batches:
        if batch.kind in {"Node", "Queue"}:
            change = _of_model if batch.kind == "Node" else _bounded
            bodies = [change(json.loads(body), at) for at, body in enumerate(batch.bodies)]
            yield evolve(batch, bodies=tuple(json.dumps(body).encode() for body in bodies))
        else:
            yield batch


def _of_model(node: dict[str, Any], at: int) -> dict[str, Any]:
    labels = {**node["metadata"].get("labels", {}), names.NODE_GPU_MODEL: MODELS[at % len(MODELS)]}
    return {**node, "metadata": {**node["metadata"], "labels": labels}}


def _bounded(queue: dict[str, Any], _: int) -> dict[str, Any]:
    models = {model: {"limit": _ENOUGH} for model in MODELS}
    return {**queue, "spec": {**queue["spec"], "resources": {**queue["spec"].get("resources", {}), "models": models}}}


def measure(workload: Workload, rounds: int = ROUNDS) -> dict[str, float]:
    """Return processor milliseconds of warm cycles without and with limits of models, and how one is to the other."""
    engine.warm()
    rehearse(engine.Live())
    plain, bounded = engine.Live(), engine.Live()
    for batch in listed(workload):
        plain.take(batch)
    for batch in with_models(listed(workload)):
        bounded.take(batch)
    now, both = NOW.timestamp() + 60, (plain, bounded)
    for each in both:
        each.cycle(now, Stopwatch())
        each.settle()
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(rounds):
        cycle_after(leaving(workload, round_), both, now := now + 1)
        found = cycle_after(arriving(workload, round_ + 1), both if round_ % 2 else both[::-1], now := now + 1)
        for kept, took in zip(times, found if round_ % 2 else found[::-1], strict=True):
            kept.append(took)
    return {
        "plain_ms": median(times[0]),
        "bounded_ms": median(times[1]),
        "ratio": median(one / other for other, one in zip(*times, strict=True)),
    }


if __name__ == "__main__":
    workload = find_workload(sys.argv[1] if len(sys.argv) > 1 else WORKLOAD)
    print(json.dumps({name: round(value, 3) for name, value in measure(workload).items()}))
