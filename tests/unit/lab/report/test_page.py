"""The page as a file: whole in itself, closed by its policy, each chart with words and numbers."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import attrs
import pytest

from kai.basics.errors import ConfigError
from kai.lab.report import page
from kai.lab.report.drawing import Frame
from kai.lab.report.page import page_of, require_plotly, sections_of
from tests.unit.lab.report.builders import reclaimed, sooner

COMMAND = "kai simulate reclaim.yaml --until 8h --report page.html"


class Reader(HTMLParser):
    """Collects what a page holds: the texts of its elements, and where it would load from."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, dict(attrs)))
        self.open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        if self.open:
            self.texts[self.open[-1]][-1] += data


@pytest.fixture
def plotly(tmp_path, monkeypatch):
    """Put a short script in the place of plotly.js, which is no part of what these tests look at."""
    path = tmp_path / "plotly.min.js"
    path.write_text('window.Plotly = { newPlot() {} }; document.getElementById("' + "0" * 64 + '");\n')
    monkeypatch.setattr(page, "require_plotly", lambda: path)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def texts_in(text: str, tag: str) -> list[str]:
    return re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", text, re.DOTALL)


def test_the_content_policy_allows_only_the_pages_own_hashes(plotly):
    text = page_of([reclaimed()], command=COMMAND, program="kai 1")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    directives = dict(each.strip().split(" ", 1) for each in policy.replace("&#39;", "'").split(";"))
    hashes = {
        tag: [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in texts_in(text, tag)]
        for tag in ("script", "style")
    }
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].split() == [f"'sha256-{each}'" for each in hashes["script"][1:]]
    assert directives["style-src"].split() == [f"'sha256-{each}'" for each in hashes["style"]]
    assert "unsafe" not in policy
    assert re.findall(r"<script[^>]*>", text) == [
        '<script type="application/json" id="charts">',
        "<script>",
        "<script>",
    ]


def test_the_page_loads_nothing_and_has_no_inline_style(plotly):
    reader = read(page_of([reclaimed(), sooner()], command=COMMAND, program="kai 1"))
    for tag, values in reader.attributes:
        assert "style" not in values, tag
        for name in ("src", "href", "srcset", "data"):
            assert (values.get(name) or "#").startswith(("#", "data:,")), (tag, values)


def test_the_style_a_script_would_add_already_exists(plotly):
    assert f'<span id="{"0" * 64}" hidden></span>' in page_of([reclaimed()], command=COMMAND, program="kai 1")


def test_each_chart_has_a_name_a_finding_and_numbers(plotly):
    for results in ([reclaimed()], [reclaimed(), sooner()]):
        for section in sections_of(results, Frame.of(results)):
            assert section.question.endswith("?")
            assert section.about
            for plot in section.plots:
                assert plot.finding.endswith(".")
                assert plot.figure is None or plot.table is not None or section.table is not None, section.name
    text = page_of([reclaimed()], command=COMMAND, program="kai 1")
    charts = json.loads(texts_in(text, "script")[0])
    places = [values for _, values in read(text).attributes if "data-chart" in values]
    assert [each["data-chart"] for each in places] == list(charts)
    assert all(each["role"] == "img" and each["aria-label"] for each in places)


def test_the_page_shows_metrics_assumptions_and_omissions(plotly):
    result = attrs.evolve(
        reclaimed(), dropped={"they cannot be used": 3}, counts={**reclaimed().counts, "rows": 1000.0}
    )
    reader = read(page_of([result], command=COMMAND, program="kai 1"))
    cells = [text for tag in ("td", "th", "li", "code", "p") for text in reader.texts[tag]]
    for name, metric in result.metrics.items():
        assert (f"{name}, {metric.unit}" if metric.unit not in {"", "s"} else name) in cells
        assert metric.definition in cells
    assert set(result.assumptions) <= set(cells)
    assert {COMMAND, result.decision_hash} <= set(cells)
    assert any("3 of 1,000 rows (they cannot be used)." in text for text in cells)


def test_figures_equal_those_computed_by_hand(plotly):
    reader = read(page_of([reclaimed()], command=COMMAND, program="kai 1"))
    assert reader.texts["dd"][::2] == ["33.4%", "29.3%", "2 of 2", "0s · 30s", "0.913", "100.0%", "2.7 GPU-h"]
    findings = [text.strip() for text in reader.texts["p"]]
    assert (
        "33.4% of 64.0 GPU-hours were allocated, 29.3% for work that was kept; guest had most of them, 19.4 (30.3%)."
        in findings
    )
    assert "Half of all jobs did not wait, 95% waited 30s or less; 0 of 2 never started." in findings
    assert "1 pod with 8 GPUs evicted: 1 by reclaim. GPU-hours of work lost: 2.7." in findings
    assert "work lost" in reader.texts["dt"]
    assert "While pods waited, 100.0% of the idle GPUs were of no use to the largest of them." in findings


def test_lost_work_names_failed_nodes_where_nodes_failed(plotly):
    failures = attrs.evolve(reclaimed().metrics["nodeFailures"], value=2.0)
    result = attrs.evolve(reclaimed(), metrics={**reclaimed().metrics, "nodeFailures": failures})
    text = page_of([result], command=COMMAND, program="kai 1")
    assert "GPU-hours of work lost, that by failed nodes among them: 2.7." in text


def test_arrived_and_started_jobs_are_distinguished_and_formatted_alike(plotly):
    started = attrs.evolve(reclaimed().metrics["started"], value=7250.0)
    result = attrs.evolve(
        reclaimed(),
        counts={**reclaimed().counts, "jobs": 7255.0},
        metrics={**reclaimed().metrics, "started": started},
    )
    alone = page_of([result], command=COMMAND, program="kai 1")
    assert re.search(r"7,255 jobs that arrived: .* was allocated, .* kept; 7,250 of the jobs started, half", alone)
    beside = page_of([result, attrs.evolve(result, policy="other")], command=COMMAND, program="kai 1")
    assert re.search(r"7,255 jobs that arrived: .* and starts 7,250 of them; other allocates", beside)
    assert "7255" not in alone + beside


def test_several_runs_are_compared_first(plotly):
    results = [reclaimed(), sooner()]
    sections = sections_of(results, Frame.of(results))
    assert sections[0].name == "runs"
    assert [len(section.plots) for section in sections] == [4, 2, 4, 4, 2, 2, 2]
    rows = {row[0]: row[1:] for row in sections[0].table.rows}
    assert rows["wait max"][0] == "30s"


def test_no_chart_mixes_higher_is_better_with_lower():
    high, low = sections_of([reclaimed(), sooner()], Frame.of([reclaimed(), sooner()]))[0].plots[:2]
    assert high.figure is not None
    assert low.figure is not None
    drawn = [set(each.figure["data"][0]["y"]) for each in (high, low)]
    assert drawn[0] == {"utilisation", "goodput", "fairness (Jain)", "jobs started", "jobs done"}
    assert drawn[1] == {"fragmentation", "wait p95", "wait max", "completion, mean", "pods evicted", "GPU-hours lost"}
    assert "Marks to the right of 100% are better than default" in high.finding
    assert "Marks to the left of 100% are better than default" in low.finding
    assert "No" not in high.finding
    assert not re.search(r"\bby \d+ figures", high.finding + low.finding)


def test_the_figures_that_change_are_named_with_both_values():
    worse = {**reclaimed().metrics, "utilisation": attrs.evolve(reclaimed().metrics["utilisation"], value=0.1)}
    other = attrs.evolve(reclaimed(), policy="other", metrics=worse)
    high = sections_of([reclaimed(), other], Frame.of([reclaimed(), other]))[0].plots[0]
    assert high.finding.startswith("other is worse in utilisation (33.4% to 10.0%). Marks")


def test_what_goodput_assumes_of_checkpoints_stands_beside_it(plotly):
    alone = read(page_of([reclaimed()], command=COMMAND, program="kai 1"))
    said = "1 of 2 jobs saves its work at checkpoints; after an interruption the other begins anew."
    assert any(text.endswith(said) for text in alone.texts["dd"])
    beside = sections_of([reclaimed(), sooner()], Frame.of([reclaimed(), sooner()]))[0]
    assert beside.about.endswith(said)


def test_axes_show_dates_where_all_runs_start_together():
    dated = attrs.evolve(reclaimed(), starts_at="2026-11-21T06:00:00Z")
    later = attrs.evolve(dated, starts_at="2026-11-22T06:00:00Z")
    frame = Frame.of([dated, dated])
    assert frame.time_axis["type"] == "date"
    assert frame.time_axis["range"] == ["2026-11-21 06:00:00.000", "2026-11-21 14:00:00.000"]
    assert (frame.at(3630.0), frame.length(1800.0)) == ("2026-11-21 07:00:30.000", 1_800_000.0)
    for undated in ([dated, later], [dated, reclaimed()], [reclaimed()]):
        assert Frame.of(undated).time_axis["title"] == {"text": "hours since the start"}


def test_waits_are_told_by_the_size_of_jobs():
    plot = next(each for each in sections_of([reclaimed()], Frame.of([reclaimed()])) if each.name == "waits").plots[-1]
    assert plot.table is not None
    # `long` waited 1830s for its second start: that it ran before does not make the wait shorter.
    assert plot.table.rows == (
        ("3 to 4 GPUs", "1", "30s", "30s", "30s", "0", "0"),
        ("5 to 8 GPUs", "1", "30m", "30m", "30m", "0", "0"),
    )
    assert plot.figure is not None
    assert plot.figure["layout"]["xaxis"]["range"] == [-0.2676, 4.727], "of each run the same: up to the horizon"
    assert plot.finding == "Of all sizes, jobs with 5 to 8 GPUs waited longest: 95% of them waited 30m or less."


def test_of_many_runs_only_the_comparison_is_drawn(plotly):
    results = [attrs.evolve(reclaimed(), policy=f"p{number}") for number in range(7)]
    assert [section.name for section in sections_of(results, Frame.of(results))] == ["runs"]


def test_a_name_cannot_become_an_element(plotly):
    evil = "</script><script>alert(1)</script><b>x"
    result = reclaimed()
    renamed = attrs.evolve(
        result,
        title=evil,
        policy=evil,
        queues=tuple(attrs.evolve(each, name=evil) if each.name == "guest" else each for each in result.queues),
        jobs=tuple(attrs.evolve(each, name=evil, queue=evil) for each in result.jobs),
        evictions=tuple(attrs.evolve(each, job=f"default/{evil}", rule=evil) for each in result.evictions),
    )
    text = page_of([renamed], command=evil, program=evil)
    assert text.count("<script") == text.count("</script>") == 3
    assert "<b>" not in text
    assert "<b>" not in str(json.loads(texts_in(text, "script")[0]))


def test_charts_are_such_as_plotly_knows():
    graph_objects = pytest.importorskip("plotly.graph_objects", reason="the extra report is not installed")
    for results in ([reclaimed()], [reclaimed(), sooner()]):
        for section in sections_of(results, Frame.of(results)):
            for plot in section.plots:
                if plot.figure is not None:
                    graph_objects.Figure(plot.figure)


def test_without_plotly_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(page, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'kai-scheduler\[report\]'$"):
        require_plotly()
