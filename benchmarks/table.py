"""Show a report as a table that a person can read; the JSON holds the same and more."""

from collections.abc import Iterator

from benchmarks.results import Report, Spread, Summary

_COLUMNS = (
    ("WORKLOAD", "<"),
    ("CYCLE ms", ">"),
    ("MIN-MAX", ">"),
    ("RATIO", ">"),
    ("TARGET", ">"),
    ("PEER ms", ">"),
    ("FASTER", ">"),
    ("PLACED", ">"),
    ("PIPELINED", ">"),
    ("EVICTED", ">"),
    ("RSS MB", ">"),
    ("CPU s", ">"),
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
    return (
        summary.workload,
        _number(summary.cycle_ms.median),
        f"{_number(summary.cycle_ms.min)}-{_number(summary.cycle_ms.max)}",
        f"{summary.ratio.median:.2f}",
        "-" if target is None else _number(target),
        "-" if peer is None else _number(min(peer)),
        "-" if faster is None else f"{faster:,.0f}x",
        f"{summary.placed:,}",
        f"{summary.pipelined:,}",
        f"{summary.evicted:,}",
        f"{summary.peak_rss_mb:,.0f}",
        f"{summary.cpu_seconds.median:.2f}",
        summary.outcome,
    )


def _notes(report: Report) -> Iterator[str]:
    for summary in report.results:
        parts = {"snapshot": summary.snapshot_ms, **summary.phases_ms}
        phases = ", ".join(f"{name} {_number(spread.median)} ms" for name, spread in parts.items())
        yield f"{summary.workload}: {phases}"
        yield from (f"{summary.workload}: WRONG: {problem}" for problem in summary.problems)
        if summary.within_budget is False:
            yield f"{summary.workload}: over budget: ratio {summary.ratio.median:.2f} > {summary.range.budget_ratio}"
    yield from (f"{id_}: FAILED: {reason}" for id_, reason in report.failures.items())
    speed = Spread.over(summary.calibration_ms.median for summary in report.results) if report.results else None
    yield f"{report.runs} fresh runs each; ratio = cycle over calibration"
    if speed:
        yield f"calibration {speed.median:.1f} ms on {report.machine['cpu']}, load {report.machine['load']}"


def _number(value: float) -> str:
    """Write ``value`` with three digits that say something, and all digits of what is large."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
