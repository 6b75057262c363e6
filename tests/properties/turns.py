"""What happens between cycles, on snapshots: bound pods run, evicted pods are pending again, promises are forgotten."""

import attrs
import numpy as np

from kai.engine.report import CycleReport
from kai.model.status import Status
from kai.state.snapshot import Snapshot

STARTED_BEFORE = 60.0


def next_turn(snapshot: Snapshot, report: CycleReport, turn: int) -> Snapshot:
    """Return the cluster as the next cycle finds it; time stands still."""
    status, node = report.status.copy(), report.node.copy()
    gone = np.isin(status, (Status.RELEASING, Status.PIPELINED))
    runs = np.isin(status, (Status.BINDING, Status.BOUND, Status.RUNNING))
    status[gone], node[gone] = Status.PENDING, -1
    status[runs] = Status.RUNNING
    stuck = status == Status.STUCK_IN_RELEASING
    devices = {
        int(pod): tuple(
            f"{turn}{name}" if name.startswith("+") else name for name in _devices(snapshot, report, int(pod))
        )
        for pod in np.flatnonzero(runs | stuck)
        if _devices(snapshot, report, int(pod))
    }
    started = {int(group) for group in snapshot.pod_group[runs] if group >= 0}
    groups = tuple(
        attrs.evolve(
            group,
            last_start=snapshot.now - STARTED_BEFORE if row in started else _time(report.last_start[row]),
            last_eviction=_time(report.last_eviction[row]),
            stale_since=_time(report.stale_since[row]),
        )
        for row, group in enumerate(snapshot.groups)
    )
    return attrs.evolve(
        snapshot,
        groups=groups,
        pod_status=status,
        pod_node=node,
        pod_devices=devices,
        awaited=report.awaited,
        revision=snapshot.revision + 1,
    )


def _devices(snapshot: Snapshot, report: CycleReport, pod: int) -> tuple[str, ...]:
    return report.devices.get(pod) or snapshot.pod_devices.get(pod, ())


def _time(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
