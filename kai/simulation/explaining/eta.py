"""What is known of the start of a waiting job; an end time that is not known is never guessed."""

from collections.abc import Mapping
from functools import cached_property

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.framework.decisions import Evict
from kai.framework.verdict import Code
from kai.model.status import TERMINATING, Status, within
from kai.simulation.deciding.run import Cycle


@attrs.frozen(kw_only=True)
class Eta:
    """When a job is going to start, as far as anything says so."""

    seconds: float
    basis: str
    assumptions: tuple[str, ...]


class Starts:
    """Looks at the jobs of one cycle that wait."""

    def __init__(self, cycle: Cycle, objects: ClusterObjects) -> None:
        """Look at ``cycle``, which decided on ``objects``."""
        self._cycle = cycle
        self._objects = objects

    def eta(self, group: int, code: str) -> Eta | None:
        """Return when a group starts, if something says so: the ends of grace periods, or of a delay."""
        if code == Code.HELD_FOR_LEAVING:
            return self._when_left(group)
        return None

    def _when_left(self, group: int) -> Eta | None:
        """Return when the grace periods of the pods end that leave the nodes of a group; None if any is unknown."""
        snapshot, report = self._cycle.snapshot, self._cycle.report
        held = (snapshot.pod_group == group) & (report.status == Status.PIPELINED)
        nodes = set(report.node[held].tolist())
        # Pods that are evicted in this cycle begin to terminate later, and how long they take is not known.
        leaving = [row for row, status in enumerate(snapshot.pod_status) if within(int(status), TERMINATING)]
        if any(isinstance(each, Evict) and int(snapshot.pod_node[each.pod]) in nodes for each in self._cycle.decisions):
            return None
        ends = self._ends
        known = [ends.get(snapshot.pods[row].key) for row in leaving if int(snapshot.pod_node[row]) in nodes]
        if not known or any(each is None for each in known):
            return None
        seconds = max(each for each in known if each is not None) - snapshot.now
        if seconds < 0:
            return None
        return Eta(
            seconds=seconds,
            basis="grace periods of terminating pods",
            assumptions=("terminating pods are gone when their grace periods end",),
        )

    @cached_property
    def _ends(self) -> Mapping[str, float]:
        """When terminating pods have to be gone, by ``namespace/name``."""
        return {
            f"{pod.metadata.namespace}/{pod.metadata.name}": pod.metadata.deletion_timestamp
            for pod in self._objects.pods
            if pod.metadata.deletion_timestamp is not None
        }


__all__ = ["Eta", "Starts"]
