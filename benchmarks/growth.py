"""How cost grows with nodes, with pods that are placed, and with pods that are known: curves and their exponents."""

import math
import statistics
from collections.abc import Callable, Mapping

from attrs import frozen

from benchmarks.catalogue import FOUR, find_workload, four_queues
from benchmarks.results import Timing
from benchmarks.workload import Expected, Nodes, Pending, Running, Workload

SCHEMA = "kai.benchmarks.growth/v1"
_SHOWN = ("snapshot", "open", "allocate", "encode")
_NOTHING = 0.05
"""Phases that take less than so many milliseconds at every size are left out: there is nothing to grow."""


@frozen
class Axis:
    """A family of workloads that differ in one size."""

    id: str
    title: str
    axis: str
    sizes: tuple[int, ...]
    make: Callable[[int], Workload]


@frozen
class Point:
    """What one size cost."""

    size: int
    warm: Timing
    cold: Timing
    peak_rss_mb: float
    problems: tuple[str, ...] = ()


@frozen
class Fit:
    """Times by size, and the power law that lies closest: ``factor * size ** exponent``, by least squares of logs."""

    name: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    exponent: float
    factor: float

    @classmethod
    def through(cls, name: str, sizes: tuple[int, ...], values: tuple[float, ...]) -> "Fit":
        """Fit the law to times, of which there must be two at least."""
        slope, start = statistics.linear_regression([math.log(size) for size in sizes], [math.log(v) for v in values])
        return cls(name, sizes, values, slope, math.exp(start))

    def at(self, size: float) -> float:
        """Return what the law says about a size."""
        return float(self.factor * size**self.exponent)


@frozen
class Curve:
    """The points of one axis."""

    id: str
    title: str
    axis: str
    points: tuple[Point, ...]

    def lines(self) -> tuple[Fit, ...]:
        """Fit the least warm cycle as a whole, and its larger phases."""
        sizes = tuple(point.size for point in self.points)
        named = {"whole cycle": tuple(point.warm.cpu_ms.min for point in self.points)}
        named |= {phase: tuple(point.warm.phases_ms.get(phase, 0.0) for point in self.points) for phase in _SHOWN}
        return tuple(
            Fit.through(name, sizes, tuple(max(value, 1e-3) for value in values))
            for name, values in named.items()
            if max(values) >= _NOTHING
        )


@frozen
class Growth:
    """Everything one call of ``scale`` found out."""

    machine: Mapping[str, str]
    runs: int
    rounds: int
    curves: tuple[Curve, ...]
    schema: str = SCHEMA


def _placing_on(nodes: int) -> Workload:
    """Place 4,000 identical pods on ever more nodes."""
    return _workload("nodes", nodes, nodes=nodes, pending=Pending(4000, FOUR), placed=4000)


def _placing(pods: int) -> Workload:
    """Place ever more identical pods, in gangs of eight, on nodes that hold all of them."""
    return _workload("pods", pods, nodes=25000, pending=Pending(pods // 8, FOUR, pods=8), placed=pods // 8 * 8)


def _knowing(pods: int) -> Workload:
    """Place 100 pods where ever more run."""
    running = Running(pods, FOUR, per_node=40, gpus=0)
    return _workload("known", pods, nodes=25000, running=running, pending=Pending(100, FOUR), placed=100)


def _workload(
    axis: str, size: int, *, nodes: int, pending: Pending, placed: int, running: Running | None = None
) -> Workload:
    cluster = Nodes(nodes)
    return Workload(
        id=f"{axis}@{size}",
        title=f"{axis} at {size:,}",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        running=running,
        pending=pending,
        expected=Expected(placed=placed, source="everything fits"),
    )


AXES: dict[str, Axis] = {
    axis.id: axis
    for axis in (
        Axis("nodes", "4,000 pods are placed", "nodes", (500, 2000, 5000, 10000, 20000, 50000), _placing_on),
        Axis(
            "pods",
            "Pods in gangs of 8 are placed on 25,000 nodes",
            "pods that are placed",
            (1000, 5000, 20000, 50000, 100000, 200000),
            _placing,
        ),
        Axis(
            "known",
            "100 pods are placed on 25,000 nodes",
            "pods that run already",
            (10000, 50000, 200000, 500000, 1000000),
            _knowing,
        ),
    )
}


def find(id_: str) -> Workload:
    """Find a workload of the catalogue, or of an axis as in ``nodes@5000``.

    Raises: UnknownWorkloadError where there is none.
    """
    axis, at, size = id_.partition("@")
    return AXES[axis].make(int(size)) if at and axis in AXES and size.isdigit() else find_workload(id_)
