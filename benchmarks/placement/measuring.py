"""Measure a workload: what gets a place as pods come one after the other, and of all that come at once."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from benchmarks.placement.offering import Offering
from benchmarks.placement.trace import Trace
from kai.configuration.profiles import make_profile
from kai.configuration.reading import read_configuration

WORKLOADS = ("default", "gpushare40", "gpushare100", "multigpu50", "gpuspec33")
DEMANDS = (1.0, 1.3)
"""The demand, as a share of all GPUs, at which is counted what has a place."""
WITHOUT: Mapping[str, object] = {"with": {}}
IN_TURN: Mapping[str, object] = {"with": {"fragmentation": {"order": False}}}
AT_ONCE: Mapping[str, object] = {"with": {"fragmentation": {}}}


@frozen
class Offered:
    """What came of one offer of a workload: percentages of all GPUs at each of ``DEMANDS``, and milliseconds."""

    shares: tuple[float, ...]
    cycle_ms: float
    """The median of all cycles."""


@frozen
class Measured:
    """A workload with one seed."""

    workload: str
    seed: int
    without: Offered
    in_turn: Offered
    at_once_without: Offered
    at_once: Offered


def measure(traces: Path, workload: str, seed: int, step: int, tell: Callable[[str], None]) -> Measured:
    """Offer a workload four times: with and without the plugin, ``step`` pods for each cycle and all in one.

    Raises: UnreadableTraceError.
    """
    trace = Trace.read(traces, workload)
    found = []
    for name, document, size in (
        ("without", WITHOUT, step),
        ("with", IN_TURN, step),
        ("without, all at once", WITHOUT, 0),
        ("with, all at once", AT_ONCE, 0),
    ):
        found.append(offer(trace, seed, document, size))
        shares = " / ".join(f"{share:.2f}" for share in found[-1].shares)
        tell(f"{workload} seed {seed} {name}: {shares} %, {found[-1].cycle_ms:.1f} ms a cycle")
    return Measured(workload, seed, *found)


def offer(trace: Trace, seed: int, document: Mapping[str, object], step: int) -> Offered:
    """Offer the arrivals of ``seed``, ``step`` for each cycle or all in one (0), under a configuration."""
    offering = Offering(trace, make_profile(read_configuration(document, "placement")))
    pods = trace.arrivals(seed, DEMANDS[-1])
    marks = _marks([pod.demand for pod in pods], trace.capacity) if step else (len(pods),)
    shares, first = list[float](), 0
    for mark in marks:
        for begin in range(first, mark, step or mark):
            offering.offer(pods[begin : min(mark, begin + (step or mark))])
        first = mark
        shares.append(offering.share)
    return Offered(tuple(shares), statistics.median(offering.cycles_ms))


def _marks(demands: Sequence[int], capacity: int) -> tuple[int, ...]:
    """Return after how many pods each of ``DEMANDS`` is reached."""
    marks, asked, wanted = list[int](), 0, list(DEMANDS)
    for count, demand in enumerate(demands, 1):
        asked += demand
        while wanted and asked >= wanted[0] * capacity:
            marks.append(count)
            wanted.pop(0)
    return tuple(marks)
