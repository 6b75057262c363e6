"""Two records of the same jobs, one in virtual time and one on a real API server: how far apart they are."""

import statistics
from collections.abc import Sequence
from itertools import combinations

from attrs import frozen

from kai.lab.virtual.results.metrics import percentile
from kai.lab.virtual.running.records import JobRecord


@frozen(kw_only=True)
class Pair:
    """One job in both records.

    Units: seconds since the beginning.
    """

    job: str
    arrival: float
    virtual_start: float
    real_start: float
    virtual_end: float
    real_end: float
    virtual_evictions: int
    real_evictions: int
    virtual_nodes: tuple[str, ...]
    real_nodes: tuple[str, ...]

    @property
    def is_placed_alike(self) -> bool:
        """Whether its pods were on the same nodes and as many of them were evicted."""
        nodes = sorted(self.virtual_nodes) == sorted(self.real_nodes)
        return nodes and self.virtual_evictions == self.real_evictions


@frozen(kw_only=True)
class Distance:
    """How much later something is in reality; jobs count by how far it is, sooner or later.

    Units: seconds.
    """

    least: float
    """Below 0 for what is sooner."""
    p50: float
    p99: float
    max: float
    within_period: int
    """So many jobs are at most a period of the scheduler apart."""


@frozen(kw_only=True)
class Comparison:
    """What came of a workload twice."""

    period: float
    """Between two cycles, in seconds."""
    jobs: int
    starts: Distance
    ends: Distance
    swapped_starts: int
    """Pairs of jobs that start in one order here and in the other there."""
    placed_alike: int
    """Jobs with the same nodes and as many evictions."""
    virtual_evictions: int
    real_evictions: int
    pairs: tuple[Pair, ...]


def compare(virtual: Sequence[JobRecord], real: Sequence[JobRecord], period: float) -> Comparison:
    """Compare two records of the same jobs, all of which are over.

    Raises: ValueError if they are not of the same jobs.
    """
    found = {each.name: each for each in real}
    if found.keys() != {each.name for each in virtual}:
        raise ValueError("records: found other jobs in reality than in virtual time, expected the same")
    pairs = tuple(_pair(each, found[each.name]) for each in virtual)
    return Comparison(
        period=period,
        jobs=len(pairs),
        starts=distance([each.real_start - each.virtual_start for each in pairs], period),
        ends=distance([each.real_end - each.virtual_end for each in pairs], period),
        swapped_starts=sum(_are_swapped(one, other) for one, other in combinations(pairs, 2)),
        placed_alike=sum(each.is_placed_alike for each in pairs),
        virtual_evictions=sum(each.virtual_evictions for each in pairs),
        real_evictions=sum(each.real_evictions for each in pairs),
        pairs=pairs,
    )


def _pair(virtual: JobRecord, real: JobRecord) -> Pair:
    return Pair(
        job=virtual.name,
        arrival=round(virtual.arrival, 3),
        virtual_start=round(virtual.start, 3),
        real_start=round(real.start, 3),
        virtual_end=round(virtual.end, 3),
        real_end=round(real.end, 3),
        virtual_evictions=virtual.evictions,
        real_evictions=real.evictions,
        virtual_nodes=virtual.nodes,
        real_nodes=real.nodes,
    )


def _are_swapped(one: Pair, other: Pair) -> bool:
    """Return whether two jobs start in opposite orders; what starts in one virtual cycle has no order."""
    return (one.virtual_start - other.virtual_start) * (one.real_start - other.real_start) < 0.0


def distance(later: Sequence[float], period: float) -> Distance:
    """Sum up how much later each is in reality; the sign counts for the least only."""
    apart = sorted(abs(each) for each in later)
    return Distance(
        least=round(min(later), 3),
        p50=round(statistics.median(apart), 3),
        p99=round(percentile(apart, 0.99) or 0.0, 3),
        max=round(apart[-1], 3),
        within_period=sum(each <= period for each in apart),
    )


def reality_table(found: Comparison) -> str:
    """Return a line for each job, and one for each figure of them all."""
    rows: list[tuple[str, ...]] = [
        ("job", "arrives", "start virtual", "real", "later", "end virtual", "real", "later", "placed")
    ]
    rows += [
        (
            each.job,
            *(f"{value:.2f}" for value in (each.arrival, each.virtual_start, each.real_start)),
            f"{each.real_start - each.virtual_start:+.2f}",
            *(f"{value:.2f}" for value in (each.virtual_end, each.real_end)),
            f"{each.real_end - each.virtual_end:+.2f}",
            "alike" if each.is_placed_alike else f"{_place(each, 'virtual')} / {_place(each, 'real')}",
        )
        for each in found.pairs
    ]
    figures = [
        f"{what}: {each.within_period} of {found.jobs} within {found.period:g} s;"
        f" apart by {each.p50:.2f} s (p50), {each.p99:.2f} s (p99), {each.max:.2f} s (max)"
        for what, each in (("starts", found.starts), ("ends", found.ends))
    ]
    decided = (
        f"placed alike: {found.placed_alike} of {found.jobs};"
        f" pairs that start in another order: {found.swapped_starts};"
        f" evicted pods: {found.virtual_evictions} / {found.real_evictions}"
    )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join((*lines, "", *figures, decided))


def _place(pair: Pair, where: str) -> str:
    nodes, evictions = getattr(pair, f"{where}_nodes"), getattr(pair, f"{where}_evictions")
    return f"{','.join(sorted(nodes))} ({evictions} evicted)"
