import pytest

from benchmarks.catalogue import UnknownWorkloadError
from benchmarks.ranges import PATH, read_ranges, record
from benchmarks.results import Range
from tests.unit.benchmarks.examples import report, summary


@pytest.fixture
def ranges(tmp_path):
    path = tmp_path / "ranges.yaml"
    path.write_text("# words\n# more words\n\nw1: {target_ms: 40, target_from: somewhere}\nw2: {target_ms: 80}\n")
    return path


def test_every_target_of_the_series_is_set():
    targets = {id_: limits.target_ms for id_, limits in read_ranges().items()}
    wanted = {"w1": 40, "w1b": 30, "w2": 80, "w3": 80, "w4a": 80, "w4b": 15, "w4c": 60, "w4d": 2, "w4e": 80, "w5": 120}
    wanted |= {"w6": 60, "w6b": 8, "w7": 100, "w9": 200, "w10": 20, "fill-10k": 420, "large-1000": 1000}
    wanted |= {"gang-full": 200, "gang-reclaim": 470, "parts-reclaim": 920, "queues-reclaim": 500, "apart": 100}
    wanted |= {"spread": 100, "mig": 19, "mig-reclaim": 310, "levels-reclaim": 500, "packing": 106}
    wanted |= {"shares-reclaim": 66, "numa": 57, "sockets-reclaim": 120}
    assert targets == wanted
    assert read_ranges()["w4d"].target_rss_mb == 250


def test_what_was_measured_is_recorded_beside_the_target(ranges):
    record(report(summary("w1", 30.123, placed=4000)), 1.5, ranges)
    found = read_ranges(ranges)
    assert found["w1"].target_from == "somewhere"
    assert found["w1"].budget_ratio == 4.52
    assert "1.5 times" in found["w1"].budget_from
    assert found["w1"].observed.median_ms == 30.1
    assert found["w1"].observed.commit == "abc1234"
    assert found["w2"] == Range(target_ms=80)
    assert ranges.read_text().startswith("# words\n# more words\n\nw1:")


def test_a_nearly_free_workload_still_gets_a_budget(ranges):
    record(report(summary("w1", 0.02)), 1.5, ranges)
    assert read_ranges(ranges)["w1"].budget_ratio == 0.05


def test_only_right_workloads_with_a_range_are_recorded(ranges):
    before = read_ranges(ranges)
    record(report(summary("w1", 30, problems=("wrong",)), summary("w7", 30)), 1.5, ranges)
    assert read_ranges(ranges) == before


def test_recording_twice_changes_nothing_more(ranges):
    record(report(summary("w1", 30)), 1.5, ranges)
    once = ranges.read_text()
    record(report(summary("w1", 30)), 1.5, ranges)
    assert ranges.read_text() == once


def test_the_words_of_the_real_file_survive_a_record(tmp_path):
    path = tmp_path / "ranges.yaml"
    path.write_text(PATH.read_text())
    record(report(), 1.5, path)
    assert path.read_text().splitlines()[0] == PATH.read_text().splitlines()[0]
    assert read_ranges(path) == read_ranges()


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
