import cattrs
import pytest
from attrs import evolve

from benchmarks import campaign
from benchmarks.campaign import Plan, RunFailedError, grow, run, summarize
from benchmarks.catalogue import find_workload
from benchmarks.clock import Stopwatch
from benchmarks.growth import AXES
from benchmarks.results import Arrivals, Range, Report, Spread
from benchmarks.table import growth_table, table
from tests.unit.benchmarks.examples import growth, sample


def test_the_median_of_all_warm_cycles_is_judged():
    samples = [sample(30, 31, placed=4000), sample(90, 91, placed=4000), sample(50, placed=4000)]
    summary = summarize(find_workload("w1"), samples, Range(target_ms=40, budget_ratio=6.0))
    assert summary.warm.wall_ms == Spread(30, 50, 91)
    assert summary.warm.ratio == Spread(3, 5, 9.1)
    assert summary.warm.phases_ms == {"allocate": 49}
    assert summary.cold.wall_ms == Spread(200, 200, 200)
    assert summary.within_target is False
    assert summary.within_budget is True
    assert summary.times_faster == pytest.approx(4148 / 50)
    assert summary.outcome == "right"


def test_arrivals_are_told_by_the_object():
    summary = summarize(find_workload("w0"), [sample(5)], Range())
    assert summary.listing_us == pytest.approx(20)
    assert summary.arriving_us == pytest.approx(20)


def test_where_nothing_arrives_there_is_no_time_for_it():
    summary = summarize(find_workload("w4d"), [evolve(sample(5), arrived=(Arrivals(0, 0.0),))], Range())
    assert summary.arriving_us is None


def test_memory_is_judged_only_against_a_target():
    greedy = summarize(find_workload("w0"), [sample(5), sample(5, peak_rss_mb=300.0)], Range(target_rss_mb=250))
    assert greedy.within_memory is False
    assert "300 MB > 250 MB" in table(Report({"cpu": "any", "load": "0"}, 2, 1, (greedy,)))
    assert summarize(find_workload("w0"), [sample(5)], Range()).within_memory is None


def test_an_exceeded_budget_is_told():
    summary = summarize(find_workload("w0"), [sample(50)], Range(budget_ratio=4.0))
    assert summary.within_budget is False
    assert "over budget: ratio 5.00 > 4.0" in table(Report({"cpu": "any", "load": "0"}, 1, 1, (summary,)))


def test_runs_that_disagree_are_wrong():
    summary = summarize(find_workload("w0"), [sample(30), sample(30, placed=799)], Range())
    assert summary.outcome == "wrong"


def test_a_workload_that_failed_is_not_tried_again(monkeypatch):
    tried = []

    def fail_once(workload, *_):
        tried.append(workload)
        if workload == "w1":
            raise RunFailedError("exit code 1: out of luck")
        return sample(5)

    monkeypatch.setattr(campaign, "_sample", fail_once)
    said = []
    report = run(Plan((find_workload("w0"), find_workload("w1")), 3, 1, 1.0, {}), said.append)
    assert tried == ["w0", "w1", "w0", "w0"]
    assert report.failures == {"w1": "exit code 1: out of luck"}
    assert [summary.workload for summary in report.results] == ["w0"]
    assert "w1: FAILED" in table(report)
    assert "w0" in table(report)
    assert len(said) == 4


def test_a_process_that_ends_badly_is_a_failed_run(monkeypatch):
    monkeypatch.setattr(campaign.sys, "executable", "/bin/false")
    with pytest.raises(RunFailedError, match="exit code 1"):
        campaign._sample("w0", 1, 10.0)


def test_a_report_survives_its_json():
    report = Report({"cpu": "any"}, 1, 1, (summarize(find_workload("w0"), [sample(5)], Range()),))
    assert cattrs.structure(cattrs.unstructure(report), Report) == report


def test_phases_that_come_back_add_up():
    watch = Stopwatch()
    with watch.phase("a"):
        pass
    first = watch.phases_ms["a"]
    with watch.phase("a"):
        pass
    assert watch.phases_ms["a"] >= first


def test_growth_is_told_by_its_exponent():
    told = growth_table(growth())
    assert "4,000 pods are placed" in told
    assert "whole cycle n^1.00" in told


def test_an_axis_is_measured_size_by_size(monkeypatch):
    measured = []

    def remember(workload, *_):
        measured.append(workload)
        return sample(5, placed=4000)

    monkeypatch.setattr(campaign, "_sample", remember)
    curve = grow(AXES["nodes"], [500, 1000], Plan((), 2, 1, 1.0, {}), lambda _: None)
    assert measured == ["nodes@500", "nodes@500", "nodes@1000", "nodes@1000"]
    assert [point.size for point in curve.points] == [500, 1000]
