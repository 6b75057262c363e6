"""An hour of Jobs as a user would submit them, made shorter by a divisor, and the cluster that it comes to.

Gangs and single pods of two queues ask for about all GPUs, so that Jobs wait, and queues take back what they lent.
"""

import json
import random
from pathlib import Path
from typing import Any

from tests.integration.client import Manifest

NAMESPACE = "default"
HOUR = 3600.0
_LAST_ARRIVAL = 3000.0
_SIMULATION = "simulation.kai.scheduler"
_PODS = (1, 1, 1, 2, 4)
_GPUS = (1, 1, 2, 4, 8)
_DURATIONS = (150.0, 480.0)
_SAVES_EVERY = 60.0
_GPUS_OF_A_NODE = 8
_NODES = 4


def write_hour(folder: Path, divisor: float, *, jobs: int, seed: int) -> tuple[Path, Path]:
    """Write the workload and its cluster as files that ``kai simulate`` reads, and return their paths."""
    workload, cluster = folder / "workload.yaml", folder / "cluster.yaml"
    manifests = hour(divisor, jobs=jobs, seed=seed)
    workload.write_text("---\n".join(json.dumps(each, indent=2) + "\n" for each in manifests))
    half = _NODES * _GPUS_OF_A_NODE // 2
    queues = {"all": {"quota": 2 * half}, **{name: {"parent": "all", "quota": half} for name in ("blue", "red")}}
    shapes = {"a": {"gpu": _GPUS_OF_A_NODE, "memory": "80Gi", "count": _NODES}}
    cluster.write_text(json.dumps({"shapes": shapes, "queues": queues}, indent=2))
    return workload, cluster


def hour(divisor: float, *, jobs: int, seed: int) -> list[Manifest]:
    """Return the Jobs in the order in which they arrive; the same for the same seed."""
    draw = random.Random(seed)
    apart = _LAST_ARRIVAL / jobs
    return [_job(number, number * apart / divisor, divisor, draw) for number in range(jobs)]


def _job(number: int, arrival: float, divisor: float, draw: random.Random) -> Manifest:
    pods, gpus = draw.choice(_PODS), draw.choice(_GPUS)
    if pods * gpus > _GPUS_OF_A_NODE * _NODES // 2:
        gpus = 2
    queue = draw.choice(("blue", "red"))
    times = {"arrival": arrival, "duration": draw.uniform(*_DURATIONS) / divisor}
    times["checkpoint-every"] = _SAVES_EVERY / divisor
    said: dict[str, Any] = {f"{_SIMULATION}/{what}": f"{seconds * 1000:.0f}ms" for what, seconds in times.items()}
    amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container]}
    labels = {"kai.scheduler/queue": queue}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number:03d}",
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": {"kai.scheduler/batch-min-member": str(pods), **said},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
