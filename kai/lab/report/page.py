"""The report on one or several runs as a single HTML file that never fetches anything.

    results ─ Frame (axes, colours) ─ sections (figures as dictionaries, findings, tables) ─ template ─ page

The content security policy of the page allows the two scripts and the style by their hashes, and nothing else. A chart
that needed more would be blocked by the browser, and the tests would see it.

Several runs get a comparison first: their figures, the changes from the first run, and the jobs that changed most.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
from jinja2 import Environment, PackageLoader, StrictUndefined

from kai.basics.errors import missing
from kai.basics.wording import counted, number_text, span_text
from kai.lab.report.drawing import Figure, Frame, Key, Paint, Plot, Section, Table, label, layout, short
from kai.lab.report.gantt import ran_where
from kai.lab.report.over_time import evicted_by_whom, usable, who_had
from kai.lab.report.waits import at_most, got_shares, how_long, run_paints, runs_waits
from kai.lab.virtual.results.comparison import compare_runs, remarks
from kai.lab.virtual.results.metrics import goodput_text, waited
from kai.lab.virtual.results.result import BETTER_HIGH, HEADLINES, JobResult, SimulationResult, figure, headline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_JOBS: Final = 20
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
_TINY: Final = 1e-9
MOST_RUNS: Final = 6
"""With more runs, only the comparison is drawn."""
_UNITS: Final[Mapping[str, str]] = {"utilisation": "%", "goodput": "%", "fragmentation": "%"}
_STYLES: Final = re.compile(r'document\.getElementById\("([0-9a-f]{64})"\)')
"""Finds the style that plotly.js looks up before it adds one of its own, which the page's policy would block."""
_PLAIN: Final = frozenset({"failures", "decisions", "cycles", "jobs", "pods"})


def beside_each_other(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return the comparison of runs; only the first two are compared job by job."""
    paints = run_paints(results)
    keys = [
        Key(label=result.policy, paint=paint, is_line=True, dash=paint.dash)
        for result, paint in zip(results, paints, strict=True)
    ]
    return Section(
        name="runs",
        question="What changes from one run to the other?",
        about=f"The same workload, cluster and seed unless the names say otherwise; the others are compared with "
        f"{results[0].policy}.{_parting(results)} {goodput_text(results[0])}",
        plots=(
            _changes(results, paints, high=True),
            _changes(results, paints, high=False),
            runs_waits(results, frame),
            _changed(results),
        ),
        keys=tuple(keys),
        table=_figures(results),
    )


def _figures(results: Sequence[SimulationResult]) -> Table:
    rows = [(name, *(figure(result.value(key), unit) for result in results)) for name, key, unit in HEADLINES]
    return Table(caption="Figures of each run", heads=("", *(result.policy for result in results)), rows=tuple(rows))


# --- Changes -------------------------------------------------------------------------------------------------------


def _changes(results: Sequence[SimulationResult], paints: Sequence[Paint], *, high: bool) -> Plot:
    """Return figures relative to the first run: either those where high is better, or those where low is.

    One chart of both would show a rise that is a gain beside a rise that is a loss.
    """
    chosen = [each for each in HEADLINES if (each[1] in BETTER_HIGH) is high]
    # Nothing is a percentage of 0.
    drawn = [each for each in chosen if abs(results[0].value(each[1]) or 0.0) > _TINY]
    missing = [name for name, key, _ in chosen if (name, key) not in {each[:2] for each in drawn}]
    data: list[Figure] = []
    for at, (result, paint) in enumerate(zip(results, paints, strict=True)):
        parts = [_part(result.value(key), results[0].value(key)) for _, key, _ in drawn]
        data.append(
            {
                "mode": "markers",
                "name": label(result.policy),
                "x": parts,
                "y": [label(name) for name, _, _ in drawn],
                "marker": {"symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 11, "color": paint.hue},
                "text": [figure(result.value(key), unit) for _, key, unit in drawn],
                "hovertemplate": f"{label(result.policy)}: %{{y}} %{{text}} (%{{x:.1f}}%)<extra></extra>",
            }
        )
    left = f" Not drawn, because {results[0].policy} has none: {', '.join(missing)}." if missing else ""
    x = {"title": {"text": f"% of {label(results[0].policy)}"}, "rangemode": "tozero"}
    y = {"type": "category", "autorange": "reversed"}
    sides = ("right", "left") if high else ("left", "right")
    return Plot(
        title=f"Figures that are better {'high' if high else 'low'}",
        finding=f"{_in_words(results, chosen)} Marks to the {sides[0]} of 100% are better than {results[0].policy}, "
        f"marks to the {sides[1]} worse.{left}",
        figure={"data": data, "layout": layout(90 + 34 * len(drawn), x, y, hovermode="closest")} if drawn else None,
    )


def _part(value: float | None, first: float | None) -> float | None:
    return None if value is None or not first else short(100 * value / first)


def _in_words(results: Sequence[SimulationResult], chosen: Sequence[tuple[str, str, str]]) -> str:
    """Return a sentence on the figures in which the second run is better than the first, and worse."""
    one, other = results[:2]
    better: list[str] = []
    worse: list[str] = []
    for name, key, unit in chosen:
        mine, theirs = one.value(key), other.value(key)
        texts = figure(mine, unit), figure(theirs, unit)
        # Equal as shown: a difference behind the rounding is no finding.
        if mine is None or theirs is None or texts[0] == texts[1]:
            continue
        gains = (theirs > mine) is (key in BETTER_HIGH)
        (better if gains else worse).append(f"{name} ({texts[0]} to {texts[1]})")
    if not better and not worse:
        return f"None of them differs between {one.policy} and {other.policy}."
    parts = [f"{side} in {', '.join(names)}" for side, names in (("better", better), ("worse", worse)) if names]
    return f"{other.policy} is {'; '.join(parts)}."


def _parting(results: Sequence[SimulationResult]) -> str:
    """Return a sentence on when the decisions of the first two runs diverge."""
    first = compare_runs(results[0], results[1]).comparison.first_divergence
    if first is None:
        return ""
    times = [each["timeSeconds"] for each in (first.decision_a, first.decision_b) if each is not None]
    return (
        f" The decisions of {results[0].policy} and {results[1].policy} part at "
        f"T+{span_text(float(str(min(map(str, times), key=float))))}."
    )


# --- Jobs ----------------------------------------------------------------------------------------------------------


def _changed(results: Sequence[SimulationResult]) -> Plot:
    one, other = results[0], results[1]
    of_other = {f"{job.namespace}/{job.name}": job for job in other.jobs}
    pairs = [(job, of_other.get(f"{job.namespace}/{job.name}")) for job in one.jobs]
    changes = [
        (waited(theirs, other.horizon_seconds) - waited(mine, one.horizon_seconds), mine, theirs)
        for mine, theirs in pairs
        if theirs is not None
    ]
    moved = [each for each in changes if abs(each[0]) > _TINY]
    most = sorted(moved, key=lambda each: (-abs(each[0]), each[1].name))[:MOST_JOBS]
    sooner = sum(change < 0 for change, _, _ in moved)
    rows = tuple(
        (
            f"{mine.namespace}/{mine.name}",
            mine.queue,
            number_text(mine.gpus),
            _started(mine),
            _started(theirs),
            _by(change),
        )
        for change, mine, theirs in most
    )
    return Plot(
        title="Which jobs start at another time",
        finding=f"Under {other.policy}, of {len(changes):,} jobs {sooner:,} start sooner than under {one.policy} and "
        f"{len(moved) - sooner:,} later.",
        figure=None,
        table=Table(
            caption="The jobs whose first start changes most",
            heads=("job", "queue", "GPUs", f"starts under {one.policy}", f"under {other.policy}", "change"),
            rows=rows,
            words=frozenset({0, 1}),
        )
        if rows
        else None,
    )


def _started(job: JobResult) -> str:
    return "never" if job.start_seconds is None else f"T+{span_text(job.start_seconds)}"


def _by(change: float) -> str:
    return f"{'+' if change > 0 else '−'}{span_text(abs(change))}"


def require_plotly() -> Path:
    """Return the path of plotly.js.

    Raises: ConfigError that says how to install it, if it is missing.
    """
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise missing("report", "--report: charts are drawn by plotly")
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


def page_of(results: Sequence[SimulationResult], *, command: str, program: str) -> str:
    """Return the page on some results; ``command`` is the command that makes it again.

    Raises: ConfigError where plotly is not installed.
    """
    # Browsers hash the text with plain line ends, and the policy of the page allows scripts by their hashes.
    script = require_plotly().read_text(encoding="utf-8").replace("\r\n", "\n")
    frame = Frame.of(results)
    sections = sections_of(results, frame)
    figures = {
        f"{section.name}-{at}": plot.figure
        for section in sections
        for at, plot in enumerate(section.plots)
        if plot.figure is not None
    }
    parts = {"plotly": script, "style": _own("report.css"), "script": _own("report.js")}
    template = _templates().get_template("report.html")
    return template.render(
        title=_title(results),
        verdict=_verdict(results),
        cards=_cards(results[0]) if len(results) == 1 else (),
        said=[(result.policy if len(results) > 1 else "", remarks(result)) for result in results],
        sections=sections,
        metrics=_metrics(results),
        inputs=[_inputs(result) for result in results],
        assumptions=tuple(dict.fromkeys(text for result in results for text in (*result.assumptions, *result.notes))),
        dropped=results[0].dropped,
        rows=results[0].counts.get("rows"),
        command=command,
        program=program,
        policy=_policy(parts),
        charts=_data(figures),
        there=sorted(set(_STYLES.findall(script))),
        **parts,
    )


def sections_of(results: Sequence[SimulationResult], frame: Frame) -> list[Section]:
    """Return the sections of a page; with several runs the comparison comes first."""
    found = [beside_each_other(results, frame)] if len(results) > 1 else []
    if len(results) > MOST_RUNS:
        return found
    return found + [make(results, frame) for make in _SECTIONS]


_SECTIONS: Final = (who_had, got_shares, how_long, ran_where, evicted_by_whom, usable)


# --- Words and tables ----------------------------------------------------------------------------------------------


def _title(results: Sequence[SimulationResult]) -> str:
    names = [result.policy for result in results]
    what = f"policy {names[0]}" if len(names) == 1 else f"{counted(len(names), 'run')}: {', '.join(names[:4])}"
    return f"{results[0].title} over {span_text(results[0].horizon_seconds)} · {what}"


def _verdict(results: Sequence[SimulationResult]) -> str:
    result = results[0]
    counts = result.counts
    parts = [counted(counts["nodes"], "node"), counted(counts["gpus"], "GPU"), counted(counts["jobs"], "job")]
    if len(results) > 1:
        figures = "; ".join(
            f"{each.policy} allocates {headline(each, 'utilisation')} of the GPU time, {headline(each, 'goodput')} for "
            f"work that was kept, and starts {headline(each, 'started')} of them"
            for each in results
        )
        return f"{', '.join(parts)} that arrived: {figures}."
    return (
        f"{', '.join(parts)} that arrived: {headline(result, 'utilisation')} of the GPU time was allocated, "
        f"{headline(result, 'goodput')} for work that was kept; "
        f"{headline(result, 'started')} of the jobs started, half of all {at_most(result.value('queueingDelayP50'))}, "
        f"and {counted(result.value('evictedPods') or 0, 'pod')} had to go for others."
    )


@attrs.frozen(kw_only=True)
class Card:
    """One of the main figures at the top."""

    label: str
    value: str
    about: str


def _cards(result: SimulationResult) -> tuple[Card, ...]:
    started = f"{headline(result, 'started')} of {len(result.jobs):,}"
    waits = " · ".join(headline(result, f"queueingDelay{part}") for part in ("P50", "P95"))
    chosen = (
        ("utilisation", "utilisation", headline(result, "utilisation")),
        ("goodput", "goodput", headline(result, "goodput")),
        ("jobs started", "started", started),
        ("wait, p50 · p95", "queueingDelayP95", waits),
        ("fairness (Jain)", "jain", headline(result, "jain")),
        ("fragmentation", "fragmentation", headline(result, "fragmentation")),
        ("work lost", "evictionCost", f"{headline(result, 'evictionCost')} GPU-h"),
    )
    return tuple(Card(label=name, value=value, about=result.metrics[key].definition) for name, key, value in chosen)


def _metrics(results: Sequence[SimulationResult]) -> Table:
    """Return all metrics with their definitions."""
    rows = []
    for key, metric in results[0].metrics.items():
        values = []
        for result in results:
            found = result.metrics.get(key)
            unit = _UNITS.get(key, "n" if metric.unit in _PLAIN else metric.unit)
            values.append(figure(None if found is None else found.value, unit))
        # The unit goes beside the name: a column for it would be empty in most rows, and too wide for a phone.
        name = f"{key}, {metric.unit}" if metric.unit not in {"", "s"} else key
        rows.append((name, *values, metric.definition))
    heads = ("metric", *(result.policy for result in results), "definition")
    words = frozenset({0, len(results) + 1})
    return Table(caption="What each figure is", heads=heads, rows=tuple(rows), words=words)


def _inputs(result: SimulationResult) -> Table:
    inputs = result.inputs
    rows = (
        ("workload", inputs.workload, inputs.workload_sha256 or "-"),
        ("cluster", inputs.cluster or "the nodes of the workload", inputs.cluster_sha256 or "-"),
        ("policy", inputs.policy, inputs.policy_sha256 or "-"),
        ("seed", str(inputs.seed), "-"),
        ("decisions", f"{result.value('decisions') or 0:,.0f}", result.decision_hash),
    )
    return Table(
        caption=f"What the run {result.policy} was made of",
        heads=("", "what", "SHA-256"),
        rows=rows,
        words=frozenset({0, 1, 2}),
    )


# --- The file ------------------------------------------------------------------------------------------------------


def _data(figures: Mapping[str, Figure]) -> str:
    """Return figures as JSON that cannot close the script element around it."""
    text = json.dumps(figures, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policy(parts: Mapping[str, str]) -> str:
    hashes = {name: f"'sha256-{_digest(text)}'" for name, text in parts.items()}
    return (
        f"default-src 'none'; script-src {hashes['plotly']} {hashes['script']}; style-src {hashes['style']}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _own(name: str) -> str:
    return files("kai.lab.report").joinpath("static", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("kai.lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
