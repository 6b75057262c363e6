"""Measure what limits and quotas of GPU models cost: ``python -m benchmarks.modelled [WORKLOAD]``.

Two schedulers live side by side on the same cluster. In one of them, nodes have models of GPUs and each queue a limit
of each model that nothing reaches, and a quota of a model that no node has, so that both decide the same. Their warm
cycles are measured in turn, so that a busy machine slows both.
"""

import json
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

from attrs import evolve

from benchmarks.catalogue import find_workload
from benchmarks.clocked import Beside
from benchmarks.events import Batch
from benchmarks.manifests import NOW
from benchmarks.workload import Workload
from kai.api import names

WORKLOAD = "w1"
ROUNDS = 7
MODELS = ("a100", "h100", "h200", "l40s")
_ENOUGH = 1_000_000


def with_models(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches, each node with one of four models and each queue with bounds that do not matter."""
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
    models = {**{model: {"limit": _ENOUGH} for model in MODELS}, "b200": {"quota": 8}}
    return {**queue, "spec": {**queue["spec"], "resources": {**queue["spec"].get("resources", {}), "models": models}}}


def measure(workload: Workload, rounds: int = ROUNDS) -> dict[str, float]:
    """Return processor milliseconds of warm cycles without and with bounds of models, and how one is to the other."""
    found = Beside.measured(workload, with_models, rounds, NOW.timestamp() + 60)
    return {"plain_ms": median(found.plain_ms), "bounded_ms": median(found.changed_ms), "ratio": found.ratio}


if __name__ == "__main__":
    workload = find_workload(sys.argv[1] if len(sys.argv) > 1 else WORKLOAD)
    print(json.dumps({name: round(value, 3) for name, value in measure(workload).items()}))
