import json
from xml.etree import ElementTree as ET

import cattrs
import pytest
from attrs import evolve

from benchmarks.charts import flame, growth_chart, phase_chart, versus_chart
from benchmarks.charts.svg import LogScale, amount, duration
from benchmarks.findings import Findings, UnreadableReportError, read_findings
from benchmarks.page import verdict_of, write_page
from benchmarks.results import Range
from tests.unit.benchmarks.examples import growth, profile, report, summary

SVG = "{http://www.w3.org/2000/svg}"


def drawn(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)  # noqa: S314 - we drew it ourselves


def words(drawing: str) -> list[str]:
    return [each.text for each in drawn(drawing).iter() if each.text]


def rows(drawing: str, title_of: str) -> list[ET.Element]:
    groups = drawn(drawing).iter(f"{SVG}g")
    return [group for group in groups if group.findtext(f"{SVG}title", "").startswith(title_of)]


def written(tmp_path, *values):
    paths = []
    for index, value in enumerate(values):
        path = tmp_path / f"{index}.json"
        path.write_text(json.dumps(cattrs.unstructure(value)))
        paths.append(path)
    return paths


def test_a_page_holds_every_chart_and_needs_nothing_else(tmp_path):
    found = report(summary("w1", 30, Range(target_ms=40), placed=4000), summary("w7", 500, Range(target_ms=100)))
    findings = read_findings(written(tmp_path, found, growth(), profile()))
    paths = [path.name for path in write_page(findings, tmp_path / "page")]
    page = (tmp_path / "page" / "index.html").read_text()
    assert paths == ["versus.svg", "phases.svg", "growth-nodes.svg", "flame-w1.svg", "index.html"]
    assert page.count("<svg") == 4
    assert "src=" not in page
    assert "href=" not in page
    assert "1 of 2" in page


def test_several_reports_are_a_history_of_ratios_by_revision(tmp_path):
    def at(commit, date, *summaries):
        return evolve(report(*summaries), machine={"commit": commit, "date": date})

    later = at("bbb2222", "2026-02-01", summary("w1", 15), summary("w7", 80))
    first = at("aaa1111", "2026-01-01", summary("w1", 30), summary("w2", 40))
    *_, index = write_page(Findings((later, first), (), ()), tmp_path)
    page = index.read_text()
    table = page[page.index("From revision to revision") : page.index("All figures")]
    assert table.index("aaa1111") < table.index("bbb2222")
    assert "<b>3.00</b></td>" in table
    assert "<b>1.50</b> (-50 %)" in table
    assert table.count("<td>–</td>") == 2
    *_, alone = write_page(Findings((first,), (), ()), tmp_path)
    assert "From revision to revision" not in alone.read_text()


def test_every_chart_can_be_opened_by_itself(tmp_path):
    for path in write_page(Findings((report(summary("w1", 30)),), (growth(),), (profile(),)), tmp_path):
        if path.suffix == ".svg":
            assert drawn(path.read_text()).tag == f"{SVG}svg"


def test_the_table_shows_wrong_decisions_and_failures(tmp_path):
    found = report(summary("w1", 30, problems=("placed: 3 pods, expected <4>",)), w2="exit code 1")
    *_, index = write_page(Findings((found,), (), ()), tmp_path)
    page = index.read_text()
    assert 'title="placed: 3 pods, expected &lt;4&gt;">wrong' in page
    assert "<b>w2</b>: exit code 1" in page


def test_a_target_is_met_nearly_met_or_missed():
    limits = Range(target_ms=40)
    assert [verdict_of(summary("w1", took, limits)) for took in (40, 80, 81)] == ["met", "close", "missed"]
    assert verdict_of(summary("w1", 40)) == ""


def test_ours_stands_left_of_a_slower_peer():
    drawing = versus_chart([summary("w1", 40, Range(target_ms=40))])
    ours = drawn(drawing).findall(f".//{SVG}circle")[-1]
    (peer,) = rows(drawing, "KAI-Scheduler: 4.15 s")
    corner = float(peer.find(f"{SVG}polygon").get("points").split(",")[0])
    assert float(ours.get("cx")) < corner
    assert "104 ×" in words(drawing)


def test_phases_fill_the_bar_in_proportion():
    drawing = phase_chart([summary("w1", 101.0)])
    (bar,) = rows(drawing, "allocate: 100 ms")
    assert float(bar.find(f"{SVG}rect").get("width")) == pytest.approx(980, abs=1)


def test_a_straight_line_of_slope_one_is_linear_growth():
    lines = {line.name: line for line in growth().curves[0].lines()}
    assert lines["whole cycle"].exponent == pytest.approx(1)
    assert lines["whole cycle"].at(4000) == pytest.approx(40)
    assert lines["open"].exponent == pytest.approx(0)
    assert "n^1.00" in words(growth_chart(growth().curves[0]))


def test_a_caller_is_as_wide_as_its_callees():
    drawing = flame(profile())
    (caller,) = rows(drawing, "kai.intake.snapshot:Intake.take: 40 ms a cycle, 80.0%")
    (callee,) = rows(drawing, "kai.intake.pods:PodReader.read: 25 ms a cycle, 50.0%")
    width = [float(each.find(f"{SVG}rect").get("width")) for each in (caller, callee)]
    assert width[0] / width[1] == pytest.approx(8 / 5, rel=0.01)


def test_a_wide_axis_begins_at_a_power_of_ten():
    assert list(LogScale.around([2.0, 240_000.0], 0, 1).decades()) == [1, 10, 100, 1000, 10_000, 100_000]
    scale = LogScale.around([500.0, 5000.0], 0, 100)
    assert (scale(500), scale(5000)) == (0, 100)


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0.85, "850 µs"), (12.54, "12.5 ms"), (417.4, "417 ms"), (4148, "4.15 s"), (240_000, "4 min")],
)
def test_times_are_said_in_the_unit_that_suits_them(milliseconds, said):
    assert duration(milliseconds) == said


def test_sizes_are_said_briefly():
    assert [amount(size) for size in (500, 2000, 20_000, 1_000_000)] == ["500", "2k", "20k", "1M"]


def test_one_file_may_hold_several_profiles_by_line(tmp_path):
    path = tmp_path / "profiles.json"
    path.write_text("\n".join(json.dumps(cattrs.unstructure(profile())) for _ in range(2)))
    assert len(read_findings([path]).profiles) == 2


@pytest.mark.parametrize(
    ("content", "why"),
    [("nothing", "expected JSON"), ('{"schema": "v0"}', "found v0"), ('{"schema": "kai.benchmarks/v2"}', "lacks")],
)
def test_a_file_that_is_no_report_is_refused(tmp_path, content, why):
    path = tmp_path / "in.json"
    path.write_text(content)
    with pytest.raises(UnreadableReportError, match=why):
        read_findings([path])
