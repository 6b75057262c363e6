import sys

from benchmarks.memory import Share, census, lived, taken
from benchmarks.outcome import Decisions
from benchmarks.workload import Expected, Nodes, QueueShape, Running, Workload

WORKLOAD = Workload(
    id="one",
    title="one running pod",
    nodes=Nodes(1),
    queues=(QueueShape("top"), QueueShape("leaf", "top")),
    running=Running(1, ("leaf",)),
    expected=Expected(),
)


class Deaf:
    def take(self, batch) -> None:
        pass

    def settle(self) -> None:
        pass

    def cycle(self, now: float, watch) -> None:
        pass

    def read(self, outcome: None) -> Decisions:
        return Decisions({}, {}, {}, frozenset())


def test_each_listed_kind_and_cycle_is_a_step():
    steps = [step.name for step in lived(WORKLOAD, Deaf, lambda: None)]
    assert steps[:2] == ["kernels loaded", "each step taken once"]
    assert steps[2:-2] == ["PriorityClass listed", "Queue listed", "Node listed", "PodGroup listed", "Pod listed"]
    assert steps[-2:] == ["first cycle", "warm cycle"]


def test_resident_memory_is_own_plus_files():
    step = taken("now")
    assert step.resident > 5.0
    assert abs(step.resident - step.own - step.files) < 5.0


def test_objects_are_counted_once_with_their_references():
    word = "w" * 1000
    counted = census([[word, word], (word, [])], least_mb=0.0)
    found = {share.name: share.objects for share in counted}
    assert found == {"builtins.str": 1, "builtins.list": 2, "builtins.tuple": 1}
    assert counted[0] == Share("builtins.str", 1, sys.getsizeof(word) / 1e6)
    assert census([word], least_mb=1.0) == []
