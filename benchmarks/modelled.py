"""Measure what bounds by GPU model and by user cost: ``python -m benchmarks.modelled [WORKLOAD] [BOUNDS]``.

Two schedulers live side by side on the same cluster. In one of them each queue has bounds that nothing reaches, so that
both decide the same. Their warm cycles are measured in turn, so that a busy machine slows both. ``BOUNDS`` are:

- ``models``: a limit of each of four models that nodes have, and a quota of a model that no node has;
- ``limits``: these limits alone;
- ``users``: a limit of what each user holds; the groups of each queue are those of eight users.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any, Final

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
USERS = 8
_ENOUGH = 1_000_000
_LIMITS = {model: {"limit": _ENOUGH} for model in MODELS}
_PER_USER = {resource: {"limit": _ENOUGH * scale} for resource, scale in (("gpu", 1), ("cpu", 1000), ("memory", 1000))}

Change = Callable[[dict[str, Any], int], dict[str, Any]]
"""Returns an object with something added; the number is its place in its batch."""


def changed(batches: Iterator[Batch], changes: Mapping[str, Change]) -> Iterator[Batch]:
    """Yield the batches with the objects of some kinds changed, in lists and in events of a watch."""
    for batch in batches:
        change = changes.get(batch.kind)
        yield batch if change is None else evolve(batch, bodies=tuple(_changed(batch, change)))


def _changed(batch: Batch, change: Change) -> Iterator[bytes]:
    for at, body in enumerate(batch.bodies):
        sent = json.loads(body)
        made = change(sent, at) if batch.form == "list" else {**sent, "object": change(sent["object"], at)}
        yield json.dumps(made).encode()


def _of_model(node: dict[str, Any], at: int) -> dict[str, Any]:
    labels = {**node["metadata"].get("labels", {}), names.NODE_GPU_MODEL: MODELS[at % len(MODELS)]}
    return {**node, "metadata": {**node["metadata"], "labels": labels}}


def _of_user(group: dict[str, Any], at: int) -> dict[str, Any]:
    annotations = {**group["metadata"].get("annotations", {}), names.NOTED_USER: f"user-{at % USERS}"}
    return {**group, "metadata": {**group["metadata"], "annotations": annotations}}


def _bounded(resources: dict[str, Any], queue: dict[str, Any], _: int) -> dict[str, Any]:
    return {**queue, "spec": {**queue["spec"], "resources": {**queue["spec"].get("resources", {}), **resources}}}


BOUNDS: Final[Mapping[str, Mapping[str, Change]]] = {
    "models": {"Node": _of_model, "Queue": partial(_bounded, {"models": {**_LIMITS, "b200": {"quota": 8}}})},
    "limits": {"Node": _of_model, "Queue": partial(_bounded, {"models": _LIMITS})},
    "users": {"PodGroup": _of_user, "Queue": partial(_bounded, {"perUser": _PER_USER})},
}


def measure(workload: Workload, bounds: str = "models", rounds: int = ROUNDS) -> dict[str, float]:
    """Return processor milliseconds of warm cycles without and with bounds, and how one is to the other."""
    change = partial(changed, changes=BOUNDS[bounds])
    found = Beside.measured(workload, change, rounds, NOW.timestamp() + 60)
    return {"plain_ms": median(found.plain_ms), "bounded_ms": median(found.changed_ms), "ratio": found.ratio}


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    name, bounds = given.get(1, WORKLOAD), given.get(2, "models")
    print(json.dumps({key: round(value, 3) for key, value in measure(find_workload(name), bounds).items()}))
