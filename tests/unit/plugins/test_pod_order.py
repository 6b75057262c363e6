import pytest

from kai.plugins.order import PRIORITY_LABEL, TaskPriorityOrder
from tests.unit.plugins.stage import node, play, pod, snapshot_of


def first_of(*values):
    """Return which of some pods of a group, with these task priorities, gets the only place."""
    cores = {"cpu": "64"}
    pods = [pod(f"a-{at}", requests=cores, labels={PRIORITY_LABEL: value}) for at, value in enumerate(values)]
    (bound,) = play(TaskPriorityOrder(), snapshot_of(node("n1"), *pods)).bound
    return values[int(bound.removeprefix("a-"))]


def test_pods_of_a_higher_task_priority_go_first():
    assert first_of("2", "10") == "10"


@pytest.mark.parametrize("text", ["1_0", "\u0663", "high"])
def test_a_task_priority_that_is_no_number_goes_last(text):
    assert first_of(text, "2") == "2"
