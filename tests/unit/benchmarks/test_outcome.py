from attrs import evolve

from benchmarks.catalogue import find_workload
from benchmarks.manifests import node_name, running_name, waiting_name
from benchmarks.outcome import Decisions, problems

NOTHING = Decisions({}, {}, {}, frozenset())


def fill(pods: int, per_node: int = 8, members: int = 1) -> Decisions:
    names = (f"{waiting_name(index // members)}-{index % members:03d}" for index in range(pods))
    return Decisions({name: node_name(index // per_node) for index, name in enumerate(names)}, {}, {}, frozenset())


def test_a_full_cluster_is_what_a_fill_expects():
    assert problems(find_workload("w0"), fill(800)) == []


def test_a_missing_pod_is_a_wrong_count():
    (problem,) = problems(find_workload("w0"), fill(799))
    assert "799" in problem
    assert "800" in problem


def test_nine_gpus_on_eight_are_too_many():
    assert any("more GPUs" in problem for problem in problems(find_workload("w0"), fill(800, per_node=9)))


def test_half_a_gpu_counts_half():
    assert problems(find_workload("w5s"), fill(1600, per_node=16)) == []


def test_a_gang_placed_in_part_is_reported():
    assert any("in part" in problem for problem in problems(find_workload("w2"), fill(7, members=8)))


def test_a_gang_across_two_racks_is_reported():
    workload = find_workload("w6")
    aligned = fill(8192, members=64)
    assert problems(workload, aligned) == []
    first, last = f"{waiting_name(0)}-000", f"{waiting_name(127)}-000"
    swapped = {**aligned.bound, first: aligned.bound[last], last: aligned.bound[first]}
    (problem,) = problems(workload, evolve(aligned, bound=swapped))
    assert waiting_name(0) in problem
    assert waiting_name(127) in problem


def test_a_victim_frees_the_gpu_promised_to_another():
    workload = find_workload("w7s")
    victims = frozenset(f"running-{index:06d}-000" for index in range(100))
    heirs = {f"{waiting_name(index)}-000": node_name(index // 8) for index in range(100)}
    assert problems(workload, Decisions({}, heirs, {}, victims)) == []
    assert any("more GPUs" in problem for problem in problems(workload, Decisions({}, heirs, {}, frozenset())))


def test_a_moved_victim_needs_room_where_it_goes():
    workload = find_workload("w9")
    emptied = frozenset(f"{running_name(index)}-000" for index in range(15))
    heirs = {f"{waiting_name(index)}-000": node_name(index) for index in range(3)}
    moved = {pod: node_name(3 + index // 3) for index, pod in enumerate(sorted(emptied))}
    assert problems(workload, Decisions({}, heirs, moved, emptied)) == []
    crowded = dict.fromkeys(moved, node_name(3))
    assert any("more GPUs" in problem for problem in problems(workload, Decisions({}, heirs, crowded, emptied)))


def test_a_pod_that_moves_must_be_evicted():
    moved = {f"{running_name(0)}-000": node_name(9)}
    found = "\n".join(problems(find_workload("w9"), Decisions({}, {}, moved, frozenset())))
    assert f"moved, but not evicted: {running_name(0)}-000" in found


def test_a_pod_nobody_knows_is_reported():
    stranger = Decisions({"stranger-000": node_name(0)}, {}, {}, frozenset({"ghost-000"}))
    found = "\n".join(problems(find_workload("w9"), stranger))
    assert "not pending: stranger-000" in found
    assert "not running: ghost-000" in found


def test_an_idle_cycle_decides_nothing():
    assert problems(find_workload("w4d"), NOTHING) == []
