"""Measure a workload: what gets a place as pods come one after the other, and of all that come at once."""

import statistics
from collections.abc import Mapping, Sequence

from attrs import frozen

from benchmarks.placement.offering import Offering
from benchmarks.placement.trace import Trace
from kai.deciding.configuration.profile_reading import read_configuration
from kai.deciding.configuration.profiles import make_profile

WORKLOADS = ("default", "gpushare40", "gpushare100", "multigpu50", "gpuspec33")
DEMANDS = (1.0, 1.3)
"""The demand, as a share of all GPUs, at which is counted what has a place."""
WITHOUT: Mapping[str, object] = {"with": {}}
IN_TURN: Mapping[str, object] = {"with": {"fragmentation": {"order": False}}}
AT_ONCE: Mapping[str, object] = {"with": {"fragmentation": {}}}
OFFERS: Mapping[str, tuple[Mapping[str, object], bool]] = {
    "in-turn": (IN_TURN, False),
    "at-once": (AT_ONCE, True),
    "without": (WITHOUT, False),
    "at-once-without": (WITHOUT, True),
}
"""By name the configuration, and whether all pods come at once."""


@frozen
class Offered:
    """What came of one offer of a workload: percentages of all GPUs at each of ``DEMANDS``, and milliseconds."""

    workload: str
    seed: int
    offer: str
    """One of ``OFFERS``."""
    step: int
    """How many pods came for each cycle; 0 is all."""
    shares: tuple[float, ...]
    cycle_ms: float
    """The median of all cycles."""


def measure(trace: Trace, seed: int, name: str, step: int) -> Offered:
    """Offer a workload in one way: ``step`` pods for each cycle, or all in one (0)."""
    found, cycle_ms = offer(trace, seed, OFFERS[name][0], step)
    return Offered(trace.workload, seed, name, step, found, cycle_ms)


def offer(trace: Trace, seed: int, document: Mapping[str, object], step: int) -> tuple[tuple[float, ...], float]:
    """Offer the arrivals of ``seed``, ``step`` for each cycle or all in one (0).

    Return the shares, and the median of what cycles took.
    """
    offering = Offering(trace, make_profile(read_configuration(document, "placement")))
    pods = trace.arrivals(seed, DEMANDS[-1])
    marks = _marks([pod.demand for pod in pods], trace.capacity) if step else (len(pods),)
    shares, first = list[float](), 0
    for mark in marks:
        for begin in range(first, mark, step or mark):
            offering.offer(pods[begin : min(mark, begin + (step or mark))])
        first = mark
        shares.append(offering.share)
    return tuple(shares), statistics.median(offering.cycles_ms)


def _marks(demands: Sequence[int], capacity: int) -> tuple[int, ...]:
    """Return after how many pods each of ``DEMANDS`` is reached."""
    marks, asked, wanted = list[int](), 0, list(DEMANDS)
    for count, demand in enumerate(demands, 1):
        asked += demand
        while wanted and asked >= wanted[0] * capacity:
            marks.append(count)
            wanted.pop(0)
    return tuple(marks)
