"""The report as one page that needs nothing else: figures, charts, and how they were measured."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from benchmarks.charts import flame, growth_chart, phase_chart, versus_chart
from benchmarks.charts.svg import duration
from benchmarks.findings import Findings, UnreadableReportError, read_findings
from benchmarks.history import history
from benchmarks.results import Report, Summary

_SKELETON = Path(__file__).with_name("page.html")
_MET, _CLOSE, _MISSED = "met", "close", "missed"
_WORDS = {_MET: "✓ met", _CLOSE: "≈ within 2 ×", _MISSED: "✗ missed"}


def write_page(findings: Findings, directory: Path) -> Iterator[Path]:
    """Write ``index.html`` and each chart into a folder; yields what was written."""
    directory.mkdir(parents=True, exist_ok=True)
    charts = dict(_charts(findings))
    for name, drawing in charts.items():
        yield _write(directory / f"{name}.svg", drawing)
    yield _write(directory / "index.html", page(findings, charts))


def _write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def _charts(findings: Findings) -> Iterator[tuple[str, str]]:
    summaries = _summaries(findings)
    if summaries:
        yield "versus", versus_chart(summaries)
        yield "phases", phase_chart(summaries)
    for growth in findings.growths:
        for curve in growth.curves:
            yield f"growth-{curve.id}", growth_chart(curve)
    for profile in findings.profiles:
        yield f"flame-{profile.workload}", flame(profile)


def _summaries(findings: Findings) -> list[Summary]:
    return [summary for report in findings.reports for summary in report.results]


def page(findings: Findings, charts: dict[str, str]) -> str:
    """Return the page with its charts inside."""
    sections = [section for section in _sections(findings, charts) if section]
    return Template(_SKELETON.read_text(encoding="utf-8")).substitute(
        machine=_machine(findings), tiles=_tiles(_summaries(findings)), sections="\n".join(sections)
    )


def _sections(findings: Findings, charts: dict[str, str]) -> Iterator[str]:
    summaries = _summaries(findings)
    if summaries:
        yield _section(
            "How long a cycle takes",
            "From what arrived to encoded writes, on a logarithmic axis. The bar is the target, the diamond the peer "
            "with the same objects; a row without a diamond has no figure of the peer.",
            charts["versus"],
        )
        yield _section(
            "Where the time goes",
            "Each bar is one warm cycle, divided into its phases; its length says nothing, the time stands behind it. "
            "Point at a part for its share.",
            charts["phases"],
        )
    grown = [drawing for name, drawing in charts.items() if name.startswith("growth-")]
    yield _section(
        "How cost grows",
        "Dashed lines are power laws through the points; the exponent stands at the right: 1 is linear, 0 is flat.",
        f'<div class="grid">{"".join(grown)}</div>' if grown else "",
    )
    flames = [drawing for name, drawing in charts.items() if name.startswith("flame-")]
    yield _section(
        "Where processor time goes",
        "Callees hang beneath their caller; a compiled kernel is part of the line that calls it. Point at a box for "
        "its time.",
        "".join(f'<div class="flame">{drawing}</div>' for drawing in flames),
    )
    yield _section(
        "From revision to revision",
        "The middle warm cycle over the calibration of its process, and the change since the revision before. Point at "
        "a figure for its time.",
        history(findings.reports),
    )
    for report in findings.reports:
        yield _section("All figures", _how(report), _figures(report.results) + _failures(report))


def _section(title: str, lead: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(lead)}</p>{content}</section>" if content else ""


# --- Words -----------------------------------------------------------------------------------------------------------


def _machine(findings: Findings) -> str:
    machine = findings.machine
    parts = [
        machine.get("date", ""),
        f"{machine.get('cpu', '')}, {machine.get('cores', '?')} cores, load {machine.get('load', '?')}",
        f"Python {machine.get('python', '?')}, numba {machine.get('numba', '?')}, numpy {machine.get('numpy', '?')}",
        f"commit {machine.get('commit', '?')}",
    ]
    return " · ".join(escape(part) for part in parts if part)


def _tiles(summaries: Sequence[Summary]) -> str:
    judged = [verdict for verdict in map(verdict_of, summaries) if verdict]
    faster = sorted(summary.times_faster for summary in summaries if summary.times_faster)
    wrong = [summary.workload for summary in summaries if summary.problems]
    tiles = []
    if judged:
        tiles.append((f"{judged.count(_MET)} of {len(judged)}", "targets met"))
    if faster:
        tiles.append((f"{faster[len(faster) // 2]:,.0f} ×", "faster than the peer, in the middle"))
    rates = [summary.pods_per_second for summary in summaries if summary.placed]
    if rates:
        tiles.append((f"{max(rates):,.0f}", "pods placed a second, at best"))
    if summaries:
        tiles.append((f"{len(summaries) - len(wrong)} of {len(summaries)}", "workloads decided right"))
    return "".join(f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in tiles)


def _how(report: Report) -> str:
    return (
        f"{report.runs} fresh processes with {report.rounds} warm cycles each. Times are processor time: a cycle is "
        "one thread that waits for nothing, so that is what it takes on an idle core; wall time, middle and least, "
        "stands beside it. Warm: the middle and the least of all warm cycles; cold: the first cycle of a process. "
        "Ratio: warm over a calibration in the same process. Decoding: one object as it arrives, outside of the cycle."
    )


def verdict_of(summary: Summary) -> str:
    """Return whether the target is met, missed by less than twice, or missed; "" where there is none."""
    target, found = summary.range.target_ms, summary.warm.cpu_ms.median
    if target is None:
        return ""
    return _MET if found <= target else _CLOSE if found <= 2 * target else _MISSED


# --- Tables ----------------------------------------------------------------------------------------------------------

_HEAD = (
    "workload",
    "shape",
    "target",
    "warm",
    "least",
    "",
    "wall",
    "cold",
    "ratio",
    "peer",
    "faster",
    "decided",
    "memory",
    "decoding",
)
_TEXTS = 2


def _figures(summaries: Sequence[Summary]) -> str:
    head = "".join(f'<th class="{"text" if at < _TEXTS else ""}">{name}</th>' for at, name in enumerate(_HEAD))
    rows = "".join(f"<tr>{''.join(_cells(summary))}</tr>" for summary in summaries)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cells(summary: Summary) -> Iterator[str]:
    warm, verdict = summary.warm, verdict_of(summary)
    target, peer = summary.range.target_ms, summary.peer_cycle_ms
    yield f'<td class="text"><b>{escape(summary.workload)}</b></td>'
    yield f'<td class="text">{escape(summary.title)}</td>'
    yield _cell(duration(target) if target else "–")
    yield _cell(duration(warm.cpu_ms.median), strong=True)
    yield _cell(duration(warm.cpu_ms.min))
    yield f'<td class="text {verdict}">{_WORDS.get(verdict, "")}</td>'
    yield _cell(f"{duration(warm.wall_ms.median)} ({duration(warm.wall_ms.min)})")
    yield _cell(duration(summary.cold.cpu_ms.median))
    yield _cell(f"{warm.ratio.median:.2f}")
    yield _cell(duration(min(peer)) if peer else "–", title=summary.peer_note)
    yield _cell(f"{summary.times_faster:,.0f} ×" if summary.times_faster else "–")
    yield _decided(summary)
    yield _cell(f"{summary.peak_rss_mb:,.0f} MB")
    yield _cell(f"{summary.arriving_us or summary.listing_us:.1f} µs")


def _cell(content: str, *, strong: bool = False, title: str = "") -> str:
    hint = f' title="{escape(title)}"' if title else ""
    return f"<td{hint}>{'<b>' if strong else ''}{escape(content)}{'</b>' if strong else ''}</td>"


def _decided(summary: Summary) -> str:
    if summary.problems:
        return f'<td class="text missed" title="{escape("; ".join(summary.problems))}">wrong</td>'
    counts = (
        (summary.placed, "placed"),
        (summary.pipelined, "promised"),
        (summary.moved, "moved"),
        (summary.evicted - summary.moved, "evicted"),
    )
    said = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    return f'<td class="text">{said or "nothing"}</td>'


def _failures(report: Report) -> str:
    lines = "".join(f"<li><b>{escape(id_)}</b>: {escape(why)}</li>" for id_, why in report.failures.items())
    return f'<ul class="missed">{lines}</ul>' if lines else ""


__all__ = ["UnreadableReportError", "page", "read_findings", "verdict_of", "write_page"]
