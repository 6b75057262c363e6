"""A process that begins beside much that runs: how soon it is ready, what it holds, how soon another takes over.

What runs is written into the store itself, past the API server, which would take minutes for 40,000 pods.
"""

import datetime as dt
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.live.cluster import NAMESPACE, Scheduler, an_object, kai
from benchmarks.live.counting import Usage
from tests.integration.client import Manifest
from tests.integration.controlplane import ControlPlane
from tests.integration.etcd import put

_GANG = 8
_SETTLING = 20.0
_LIMIT = 120.0
_SINCE = "2026-01-01T12:00:00Z"
_GPU = "nvidia.com/gpu"


def run_starts(plane: ControlPlane, folder: Path, *, nodes: int, pods: int) -> dict[str, Any]:
    """Return how two replicas begin one after the other, and how the second takes over once the first has ended."""
    put(plane, dict(objects_that_run(nodes=nodes, pods=pods)))
    time.sleep(3.0)
    with ExitStack() as stack:
        begun, replicas = [], list[Scheduler]()
        for name in ("first", "second"):
            since = time.monotonic()
            replicas.append(stack.enter_context(kai(plane, folder, ("--leader-elect",), log=name)))
            cpu = Usage.of(replicas[-1].daemon.pid).cpu_seconds
            begun.append({"ready_seconds": round(time.monotonic() - since, 2), "cpu_seconds": round(cpu, 2)})
            time.sleep(_SETTLING)
        leads, waits = (Usage.of(each.daemon.pid) for each in replicas)
        ended = dt.datetime.now(tz=dt.UTC)
        replicas[0].daemon.stop()
        led = _led_since(replicas[1].daemon.log)
        return {
            "nodes": nodes,
            "pods": pods,
            "starts": begun,
            "rss_mb": {"leads": round(leads.rss_mb), "waits": round(waits.rss_mb)},
            "takes_over_after_seconds": round((led - ended).total_seconds(), 2),
        }


def _led_since(log: Path) -> dt.datetime:
    """Wait until a process leads, and return since when.

    Raises: TimeoutError.
    """
    end = time.monotonic() + _LIMIT
    while time.monotonic() < end:
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        for line in lines:
            if line["event"] == "leading":
                return dt.datetime.fromisoformat(line["timestamp"])
        time.sleep(0.1)
    raise TimeoutError(f"the second replica does not lead after {_LIMIT:g} s")


# --- What runs -----------------------------------------------------------------------------------------------------


def objects_that_run(*, nodes: int, pods: int) -> Iterator[tuple[str, Manifest]]:
    """Yield nodes, groups and pods with their keys in the store; each group fills a node's GPUs."""
    for number in range(nodes):
        yield f"/registry/minions/{_node(number)}", _a_node(_node(number))
    for number in range(pods // _GANG):
        yield f"/registry/scheduling.run.ai/podgroups/{NAMESPACE}/{_group(number)}", _a_group(_group(number))
    for number in range(pods):
        name, gang = f"run-{number:05d}", number // _GANG
        yield f"/registry/pods/{NAMESPACE}/{name}", _a_pod(name, _group(gang), _node(gang % nodes))


def _node(number: int) -> str:
    return f"node-{number:04d}"


def _group(number: int) -> str:
    return f"pg-{number:04d}"


def _made(**metadata: object) -> Manifest:
    return {"uid": str(uuid.uuid4()), "creationTimestamp": _SINCE, **metadata}


def _a_node(name: str) -> Manifest:
    there = {"cpu": "64", "memory": "512Gi", "pods": "110", _GPU: str(_GANG)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status = {"allocatable": there, "capacity": there, "conditions": [ready]}
    return an_object("v1", "Node", name, metadata=_made(labels={"kubernetes.io/hostname": name}), status=status)


def _a_group(name: str) -> Manifest:
    held = {"cpu": str(_GANG), "memory": f"{_GANG}Gi", _GPU: str(_GANG)}
    spec = {"minMember": _GANG, "queue": "team", "priorityClassName": "train"}
    status = {"resourcesStatus": {"allocated": held, "requested": held}}
    metadata = _made(labels={"kai.scheduler/queue": "team"}, generation=1)
    return an_object(
        "scheduling.run.ai/v2alpha2", "PodGroup", name, NAMESPACE, metadata=metadata, spec=spec, status=status
    )


def _a_pod(name: str, group: str, node: str) -> Manifest:
    amounts = {"cpu": "1", "memory": "1Gi", _GPU: "1"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"schedulerName": "kai-scheduler", "nodeName": node, "restartPolicy": "Never", "containers": [container]}
    conditions = [{"type": each, "status": "True"} for each in ("PodScheduled", "Initialized", "Ready")]
    state = {"running": {"startedAt": _SINCE}}
    reported = {"name": "main", "state": state, "ready": True, "restartCount": 0, "image": "none", "imageID": ""}
    status = {"phase": "Running", "startTime": _SINCE, "conditions": conditions, "containerStatuses": [reported]}
    metadata = _made(labels={"kai.scheduler/queue": "team"}, annotations={"pod-group-name": group})
    return an_object("v1", "Pod", name, NAMESPACE, metadata=metadata, spec=spec, status=status)
