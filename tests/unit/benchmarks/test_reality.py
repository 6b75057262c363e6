import pytest

from benchmarks.live.hour import hour, write_hour
from benchmarks.live.reality import compare, distance, reality_table
from kai.lab.virtual.running.records import JobRecord
from kai.lab.virtual.scenes.loading import load


def record(name, start, end=100.0, *, nodes=("n1",), evictions=0):
    return JobRecord(
        name=name,
        namespace="default",
        queue="red",
        kind="Job",
        owner=name,
        user="",
        pods=1,
        alone=10.0,
        arrival=0.0,
        start=start,
        end=end,
        nodes=nodes,
        evictions=evictions,
    )


def test_jobs_are_paired_by_name():
    virtual = [record("a", 1.0), record("b", 2.0)]
    found = compare(virtual, [record("b", 2.5), record("a", 1.25, 102.0)], 1.0)
    assert [(each.job, each.real_start - each.virtual_start) for each in found.pairs] == [("a", 0.25), ("b", 0.5)]
    assert (found.starts.within_period, found.ends.within_period) == (2, 1)


def test_records_of_other_jobs_are_not_compared():
    with pytest.raises(ValueError, match="expected the same"):
        compare([record("a", 1.0)], [record("b", 1.0)], 1.0)


def test_sooner_and_later_are_both_apart():
    found = distance([-3.0, 0.25, 0.5, 1.0], 1.0)
    assert (found.least, found.p50, found.p99, found.max, found.within_period) == (-3.0, 0.75, 3.0, 3.0, 3)


def test_one_job_in_a_hundred_does_not_raise_p99():
    assert distance([*[0.5] * 99, 9.0], 1.0).p99 == 0.5
    assert distance([*[0.5] * 98, 9.0, 9.0], 1.0).p99 == 9.0


def test_a_swapped_pair_counts_once_and_ties_never():
    virtual = [record("a", 1.0), record("b", 2.0), record("c", 2.0)]
    assert compare(virtual, [record("a", 1.0), record("b", 3.0), record("c", 2.0)], 1.0).swapped_starts == 0
    assert compare(virtual, [record("a", 2.5), record("b", 2.0), record("c", 2.6)], 1.0).swapped_starts == 1


def test_placed_alike_means_equal_nodes_and_evictions():
    virtual = [record("a", 1.0, nodes=("n1", "n2")), record("b", 1.0), record("c", 1.0)]
    real = [record("a", 1.0, nodes=("n2", "n1")), record("b", 1.0, nodes=("n2",)), record("c", 1.0, evictions=1)]
    found = compare(virtual, real, 1.0)
    assert [each.is_placed_alike for each in found.pairs] == [True, False, False]
    assert (found.placed_alike, found.virtual_evictions, found.real_evictions) == (1, 0, 1)


def test_the_table_has_a_row_and_placement_per_job():
    found = compare([record("a", 1.0), record("b", 2.0)], [record("a", 1.5), record("b", 2.0, nodes=("n2",))], 1.0)
    lines = reality_table(found).splitlines()
    assert lines[1].split() == ["a", "0.00", "1.00", "1.50", "+0.50", "100.00", "100.00", "+0.00", "alike"]
    assert lines[2].endswith("n1 (0 evicted) / n2 (0 evicted)")
    assert "starts: 2 of 2 within 1 s; apart by 0.25 s (p50), 0.50 s (p99), 0.50 s (max)" in lines


def test_an_hour_is_reproducible_and_shortened_by_its_divisor(tmp_path):
    assert hour(20.0, jobs=8, seed=1) == hour(20.0, jobs=8, seed=1) != hour(20.0, jobs=8, seed=2)
    plans = [*load(*map(str, write_hour(tmp_path, 20.0, jobs=8, seed=1))).scene.arrivals()]
    assert [each.owner for each in plans] == [f"job-{number:03d}" for number in range(8)]
    assert plans[1].arrival == 3000.0 / 8 / 20.0
    assert all(150.0 / 20 <= each.behaviour.duration <= 480.0 / 20 for each in plans)
    assert all(each.group.spec.min_member == sum(len(task.pods) for task in each.tasks) for each in plans)
