"""What happens between cycles, on snapshots: bound pods run, evicted pods are pending again, promises are forgotten."""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from kai.deciding.engine.cycle import CycleReport, run_cycle
from kai.facts.model.pod import Status
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Recorder
from tests.properties.watch import profile

STARTED_BEFORE = 60.0
TURNS = 20
EVERYTHING = profile(shortcuts=True)


def turns_of(snapshot: Snapshot) -> list[Mapping[str, int]]:
    """Return the counts of decisions of each of twenty cycles; fewer, if the cluster comes to rest earlier."""
    counts: list[Mapping[str, int]] = []
    for turn in range(TURNS):
        report = run_cycle(snapshot, EVERYTHING, Recorder())
        counts.append(report.counts)
        if not any(report.counts.values()):
            break
        snapshot = next_turn(snapshot, report, turn)
    return counts


def is_restless(counts: Sequence[Mapping[str, int]]) -> bool:
    """Return whether the last of these cycles still evicts."""
    return bool(counts[-1]["evictions"])


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
        past=attrs.evolve(snapshot.past, awaited=report.awaited),
        revision=snapshot.revision + 1,
    )


def _devices(snapshot: Snapshot, report: CycleReport, pod: int) -> tuple[str, ...]:
    return report.devices.get(pod) or snapshot.pod_devices.get(pod, ())


def _time(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
