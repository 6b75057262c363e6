from collections import Counter

import cattrs
import pytest

from benchmarks import campaign
from benchmarks.campaign import Plan, RunFailedError, run, summarize
from benchmarks.catalogue import UnknownWorkloadError, find_workload
from benchmarks.clock import Stopwatch
from benchmarks.manifests import NOW, node_name
from benchmarks.measure import measure
from benchmarks.outcome import Decisions
from benchmarks.ranges import read_ranges
from benchmarks.results import Range, Report, Sample, Spread
from benchmarks.table import table


def sample(cycle_ms: float, placed: int = 800, problems: tuple[str, ...] = ()) -> Sample:
    return Sample(
        workload="w0",
        cycle_ms=cycle_ms,
        snapshot_ms=1.0,
        phases_ms={"allocate": cycle_ms - 1.0},
        calibration_ms=10.0,
        cpu_seconds=0.1,
        load_seconds=0.1,
        rss_before_mb=100.0,
        peak_rss_mb=120.0,
        placed=placed,
        pipelined=0,
        evicted=0,
        problems=problems,
    )


class FirstFit:
    """The least scheduler that fills a cluster: pods in order onto nodes in order."""

    def warm(self) -> None:
        pass

    def load(self, manifests):
        return Counter(manifest["kind"] for manifest in manifests), NOW

    def decide(self, objects, watch: Stopwatch) -> Decisions:
        kinds, _ = objects
        with watch.phase("allocate"):
            names = [f"waiting-{index:06d}-000" for index in range(kinds["Pod"])]
            return Decisions({name: node_name(index // 8) for index, name in enumerate(names)}, {}, frozenset())


def test_a_measured_cycle_is_checked():
    measured = measure(find_workload("w0"), FirstFit())
    assert measured.problems == ()
    assert measured.placed == 800
    assert measured.phases_ms.keys() == {"allocate"}
    assert measured.calibration_ms > 0


def test_the_middle_run_is_what_is_judged():
    summary = summarize(find_workload("w1"), [sample(30, 4000), sample(90, 4000), sample(50, 4000)], Range(40, "", 6.0))
    assert summary.cycle_ms == Spread(30, 50, 90)
    assert summary.ratio == Spread(3, 5, 9)
    assert summary.within_target is False
    assert summary.within_budget is True
    assert summary.times_faster == pytest.approx(4148 / 50)
    assert summary.outcome == "right"


def test_runs_that_disagree_are_wrong():
    summary = summarize(find_workload("w0"), [sample(30), sample(30, placed=799)], Range())
    assert summary.outcome == "wrong"


def test_a_workload_that_failed_is_not_tried_again(monkeypatch):
    tried = []

    def fail_once(workload, _):
        tried.append(workload)
        if workload == "w1":
            raise RunFailedError("exit code 1: out of luck")
        return sample(5)

    monkeypatch.setattr(campaign, "_sample", fail_once)
    said = []
    report = run(Plan((find_workload("w0"), find_workload("w1")), 3, 1.0, {}), said.append)
    assert tried == ["w0", "w1", "w0", "w0"]
    assert report.failures == {"w1": "exit code 1: out of luck"}
    assert [summary.workload for summary in report.results] == ["w0"]
    assert "w1: FAILED" in table(report)
    assert "w0" in table(report)
    assert len(said) == 4


def test_a_process_that_ends_badly_is_a_failed_run(monkeypatch):
    monkeypatch.setattr(campaign.sys, "executable", "/bin/false")
    with pytest.raises(RunFailedError, match="exit code 1"):
        campaign._sample("w0", 10.0)


def test_a_report_survives_its_json():
    report = Report({"cpu": "any"}, 1, (summarize(find_workload("w0"), [sample(5)], Range()),))
    assert cattrs.structure(cattrs.unstructure(report), Report) == report


def test_ranges_name_workloads_that_exist():
    assert read_ranges()["w1"].target_ms == 40


def test_a_range_for_nothing_is_refused(tmp_path):
    path = tmp_path / "ranges.yaml"
    path.write_text("w99: {target_ms: 1}")
    with pytest.raises(UnknownWorkloadError):
        read_ranges(path)


def test_a_misspelt_field_of_a_range_is_refused(tmp_path):
    path = tmp_path / "ranges.yaml"
    path.write_text("w1: {target: 1}")
    with pytest.raises(ExceptionGroup):
        read_ranges(path)


def test_phases_that_come_back_add_up():
    watch = Stopwatch()
    with watch.phase("a"):
        pass
    first = watch.phases_ms["a"]
    with watch.phase("a"):
        pass
    assert watch.phases_ms["a"] >= first
