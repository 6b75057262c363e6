"""Show a report as a table that a person can read; the JSON holds the same and more."""

from collections.abc import Iterator

from benchmarks.growth import Growth
from benchmarks.results import Report, Spread, Summary

_COLUMNS = (
    ("WORKLOAD", "<"),
    ("WARM ms", ">"),
    ("MIN-MAX", ">"),
    ("TARGET", ">"),
    ("WALL ms", ">"),
    ("LEAST", ">"),
    ("COLD ms", ">"),
    ("RATIO", ">"),
    ("PEER ms", ">"),
    ("FASTER", ">"),
    ("PLACED", ">"),
    ("PROMISED", ">"),
    ("EVICTED", ">"),
    ("RSS MB", ">"),
    ("us/OBJECT", ">"),
    ("OUTCOME", "<"),
)


def table(report: Report) -> str:
    """Write ``report`` as aligned columns, then phases, problems and failures."""
    rows = [tuple(name for name, _ in _COLUMNS), *(_row(summary) for summary in report.results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            f"{cell:{align}{width}}" for cell, width, (_, align) in zip(row, widths, _COLUMNS, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *_notes(report)])


def _row(summary: Summary) -> tuple[str, ...]:
    target, peer, faster = summary.range.target_ms, summary.peer_cycle_ms, summary.times_faster
    warm = summary.warm
    return (
        summary.workload,
        number(warm.cpu_ms.median),
        f"{number(warm.cpu_ms.min)}-{number(warm.cpu_ms.max)}",
        "-" if target is None else number(target),
        number(warm.wall_ms.median),
        number(warm.wall_ms.min),
        number(summary.cold.cpu_ms.median),
        f"{warm.ratio.median:.2f}",
        "-" if peer is None else number(min(peer)),
        "-" if faster is None else f"{faster:,.0f}x",
        f"{summary.placed:,}",
        f"{summary.pipelined + summary.moved:,}",
        f"{summary.evicted:,}",
        f"{summary.peak_rss_mb:,.0f}",
        number(summary.arriving_us or summary.listing_us),
        summary.outcome,
    )


def _notes(report: Report) -> Iterator[str]:
    for summary in report.results:
        phases = ", ".join(f"{name} {number(took)}" for name, took in summary.warm.phases_ms.items() if took >= 0.01)
        yield f"{summary.workload}: {phases} ms"
        yield from (f"{summary.workload}: WRONG: {problem}" for problem in summary.problems)
        if summary.within_budget is False:
            found, budget = summary.warm.ratio.median, summary.range.budget_ratio
            yield f"{summary.workload}: over budget: ratio {found:.2f} > {budget}"
        if summary.within_memory is False:
            found, wanted = summary.peak_rss_mb, summary.range.target_rss_mb or 0.0
            yield f"{summary.workload}: more memory than is wanted: {found:,.0f} MB > {wanted:,.0f} MB"
    yield from (f"{id_}: FAILED: {reason}" for id_, reason in report.failures.items())
    yield (
        f"{report.runs} fresh processes with {report.rounds} warm cycles each; middle of all; "
        "times are processor time but for WALL, ratio = warm over calibration, us/object = decoding, not in the cycle"
    )
    if report.results:
        speed = Spread.over(summary.calibration_ms.median for summary in report.results)
        yield f"calibration {speed.median:.1f} ms on {report.machine['cpu']}, load {report.machine['load']}"


def number(value: float) -> str:
    """Write ``value`` with three digits that say something, and all digits of what is large."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def growth_table(growth: Growth) -> str:
    """Write curves as one line for each size, and their exponents."""
    lines = []
    for curve in growth.curves:
        lines.append(f"{curve.title}")
        lines.append(f"  {curve.axis:>24}  {'WARM ms':>9}  {'MEDIAN ms':>9}  {'COLD ms':>9}  {'RSS MB':>7}")
        for point in curve.points:
            warm, cold = point.warm.cpu_ms, point.cold.cpu_ms.min
            lines.append(
                f"  {point.size:>24,}  {number(warm.min):>9}  {number(warm.median):>9}  {number(cold):>9}"
                f"  {point.peak_rss_mb:>7,.0f}"
            )
            lines += [f"  WRONG: {problem}" for problem in point.problems]
        lines.append("  grows with " + ", ".join(f"{fit.name} n^{fit.exponent:.2f}" for fit in curve.lines()))
    return "\n".join(lines)
