from collections import Counter

from benchmarks.growth import AXES, find
from benchmarks.sampling import Sampler, profile
from benchmarks.workload import Expected, Pending
from tests.unit.benchmarks.test_measure import FirstFit, little


def spin(sampler: Sampler) -> None:
    while sampler.samples < 5:
        sum(range(100))


def test_a_sampler_finds_the_function_that_is_at_work():
    sampler = Sampler()
    with sampler.running():
        spin(sampler)
    spent = Counter()
    for stack in sampler.stacks():
        spent[stack.frames[0]] += stack.cpu_ms
    assert spent.most_common(1)[0][0] == f"{__name__}:spin"


def test_a_profile_is_of_warm_cycles_only():
    found = profile(little(pending=Pending(2, ("leaf",)), expected=Expected(placed=2)), FirstFit())
    assert found.workload == "little"
    assert found.cycles == 40
    assert not any("listed" in name for stack in found.stacks for name in stack.frames)


def test_sizes_of_an_axis_are_workloads():
    assert find("nodes@500").nodes.count == 500
    assert find("pods@1000").pending_pods == 1000
    assert find("known@1000").running_pods == 1000


def test_workloads_of_an_axis_differ_in_one_size_only():
    for axis in AXES.values():
        first, last = axis.make(axis.sizes[0]), axis.make(axis.sizes[-1])
        same = [first.nodes == last.nodes, first.pending == last.pending, first.running == last.running]
        assert same.count(False) == 1
        assert last.running_pods <= last.nodes.count * 40
        assert last.pending_pods <= last.nodes.total_gpus
