"""The report on one or several runs as a single HTML file that never fetches anything.

    results ─ Frame (axes, colours) ─ sections (figures as dictionaries, findings, tables) ─ template ─ page

The content security policy of the page allows the two scripts and the style by their hashes, and nothing else. A chart
that needed more would be blocked by the browser, and the tests would see it.
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
from kai.basics.wording import counted, span_text
from kai.lab.report.beside import beside_each_other
from kai.lab.report.drawing import Figure, Frame, Section, Table
from kai.lab.report.gantt import ran_where
from kai.lab.report.over_time import evicted_by_whom, usable, who_had
from kai.lab.report.waits import at_most, got_shares, how_long
from kai.lab.virtual.results.remarks import remarks
from kai.lab.virtual.results.result import SimulationResult, figure, headline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_RUNS: Final = 6
"""With more runs, only the comparison is drawn."""
_UNITS: Final[Mapping[str, str]] = {"utilisation": "%", "goodput": "%", "fragmentation": "%"}
_STYLES: Final = re.compile(r'document\.getElementById\("([0-9a-f]{64})"\)')
"""Finds the style that plotly.js looks up before it adds one of its own, which the page's policy would block."""
_PLAIN: Final = frozenset({"failures", "decisions", "cycles", "jobs", "pods"})


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
