"""What the same workloads took at one revision after the other, as a table of the page.

Figures of several days and hours are compared by their ratio to the calibration of the same process, not in time.
"""

from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.charts.svg import duration
from benchmarks.results import Report, Summary


def history(reports: Sequence[Report]) -> str:
    """Return the table: a row for each workload, a column for each report, oldest first; "" for fewer than two."""
    if len(reports) < 2:
        return ""
    ordered = sorted(reports, key=lambda report: report.machine.get("date", ""))
    found = [{summary.workload: summary for summary in report.results} for report in ordered]
    workloads = dict.fromkeys(summary.workload for report in ordered for summary in report.results)
    head = "".join(f"<th>{_title(report)}</th>" for report in ordered)
    rows = "".join(
        f'<tr><td class="text"><b>{escape(id_)}</b></td>{"".join(_cells([each.get(id_) for each in found]))}</tr>'
        for id_ in workloads
    )
    table = f'<table><thead><tr><th class="text">workload</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def _title(report: Report) -> str:
    machine = report.machine
    return f"{escape(machine.get('commit', '?'))}<br>{escape(machine.get('date', ''))}"


def _cells(summaries: Sequence[Summary | None]) -> Iterator[str]:
    """Yield a cell for each revision, with the change since the one before that was measured."""
    before: float | None = None
    for summary in summaries:
        if summary is None:
            yield "<td>–</td>"
            continue
        ratio = summary.warm.ratio.median
        change = f" ({100 * (ratio / before - 1):+.0f} %)" if before else ""
        yield f'<td title="{escape(duration(summary.warm.cpu_ms.median))}"><b>{ratio:.2f}</b>{change}</td>'
        before = ratio
