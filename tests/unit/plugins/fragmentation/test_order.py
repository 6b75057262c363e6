import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.plugins.fragmentation import Fragmentation
from kai.plugins.fragmentation.plugin import unused_beside
from tests.unit.plugins.fragmentation.test_mix import asking, gpu_node
from tests.unit.plugins.stage import Stage, pod, snapshot_of


def part(name, share):
    return pod(name, metadata={"annotations": {"pod-group-name": name.rpartition("-")[0], "gpu-fraction": share}})


def order_of(*pods):
    stage = Stage.of(Fragmentation(), snapshot_of(gpu_node("n1"), *pods))
    groups = stage.session.snapshot.groups
    keys = stage.answers.group_order.keys(stage.session.view.group_rows())
    return [groups[row].name for row in sorted(range(len(groups)), key=lambda row: tuple(keys[row]))]


def test_large_pods_precede_gpu_parts_and_then_cpu_pods():
    assert order_of(pod("a-0"), part("b-0", "0.5"), asking("c-0", 1), asking("d-0", 8)) == ["d", "c", "b", "a"]


def test_among_equal_pods_the_larger_group_goes_first():
    assert order_of(asking("a-0", 1), asking("b-0", 1), asking("b-1", 1)) == ["b", "a"]


def test_parts_of_different_size_go_in_turns_by_age():
    parts = [part(f"{name}-0", share) for name, share in zip("abcd", ("0.6", "0.4", "0.6", "0.4"), strict=True)]
    assert order_of(*parts) == ["a", "b", "c", "d"]


def test_a_gpu_part_that_wastes_more_goes_later():
    assert order_of(part("a-0", "0.7"), part("b-0", "0.5"), part("c-0", "0.5")) == ["b", "c", "a"]


def test_without_its_order_option_fragmentation_orders_no_groups():
    stage = Stage.of(Fragmentation(order=False), snapshot_of(gpu_node("n1"), asking("a-0")))
    assert stage.answers.group_order is None


@pytest.mark.parametrize(
    ("sizes", "counts", "unused"),
    [
        ([500], [2], [0.0]),
        ([500], [3], [0.5 / 3]),
        ([810], [4], [0.19]),
        ([160, 810], [1, 2], [0.03, 0.11]),
        ([350, 650], [2, 2], [0.0, 0.0]),
        ([300, 470], [0, 2], [0.0, 0.06]),
    ],
)
def test_unused_gpu_parts_are_averaged_over_filled_devices(sizes, counts, unused):
    assert unused_beside(sizes, counts) == pytest.approx(unused)


@given(st.dictionaries(st.integers(1, 1000), st.integers(1, 50), min_size=1, max_size=8))
def test_every_part_finds_a_device_and_none_is_overfull(counts):
    sizes = sorted(counts)
    unused = unused_beside(sizes, [counts[size] for size in sizes])
    assert all(0.0 <= each <= 1.0 - size / 1000 + 1e-9 for size, each in zip(sizes, unused, strict=True))
