import numpy as np
import pytest

from kai.framework import CPU, GPU, MEMORY
from kai.framework import Fragmentation as Term
from kai.plugins.fragmentation import Fragmentation
from kai.plugins.fragmentation.plugin import BOUNDLESS, STRONGEST, Kinds
from tests.unit.plugins.stage import Stage, node, pod, snapshot_of

GPUS = "nvidia.com/gpu"
TAINT = {"key": "team", "value": "red", "effect": "NoSchedule"}


def gpu_node(name, gpus=8, labels=None, **spec):
    known = {"nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.memory": "10000"} | (labels or {})
    return node(name, known, allocatable={GPUS: str(gpus)}, **spec)


def asking(name, gpus=1, on="", **parts):
    return pod(name, on, requests={"cpu": "4", "memory": "8Gi", GPUS: str(gpus)}, **parts)


def term_of(*manifests, **options):
    stage = Stage.of(Fragmentation(order=False, **options), snapshot_of(*manifests))
    return stage, next((each for each in stage.answers.terms if isinstance(each, Term)), None)


def asked(stage, term):
    """Return how many whole GPUs each typical shape asks for."""
    return (stage.session.facts.shapes.request[term.shapes, GPU] // 1000).tolist()


def test_running_and_waiting_shapes_count_alike_by_frequency():
    pods = [asking("a-0", 2, on="n1"), asking("b-0", 1, on="n1"), asking("c-0", 1), asking("d-0", 1)]
    stage, term = term_of(gpu_node("n1"), *pods)
    assert asked(stage, term) == [1, 2]
    assert term.shares.tolist() == [0.75, 0.25]


def test_shares_are_relative_to_the_most_frequent_shapes_only():
    stage, term = term_of(gpu_node("n1"), asking("a-0", 1), asking("b-0", 1), asking("c-0", 2), shapes=1)
    assert asked(stage, term) == [1]
    assert term.shares.tolist() == [1.0]


def test_pods_with_equal_requests_are_one_kind():
    one, other = asking("a-0"), asking("b-0", ports=[{"containerPort": 80, "hostPort": 80}])
    stage, term = term_of(gpu_node("n1"), one, other)
    assert len(stage.session.snapshot.shapes) == 2
    assert term.shares.tolist() == [1.0]


def test_nothing_is_said_where_no_pod_asks_for_gpus():
    stage, term = term_of(gpu_node("n1"), pod("a-0"))
    assert term is None
    assert stage.is_silent


def test_memory_requests_are_unusual_where_device_memory_is_unknown():
    """Nothing would be divided by the GPUs that they ask for."""
    by_memory = pod("a-0", metadata={"annotations": {"pod-group-name": "a", "gpu-memory": "500"}})
    unknown = gpu_node("n1", labels={"nvidia.com/gpu.memory": "many"})
    stage, term = term_of(unknown, by_memory)
    assert stage.session.facts.shapes.memory.tolist() == [500]
    assert term is None
    stage, term = term_of(unknown, by_memory, asking("b-0", 2))
    assert asked(stage, term) == [2]
    assert np.isfinite(term.pressure).all()


def test_pods_that_are_over_are_no_longer_usual():
    done = asking("a-0", 2, on="n1", status={"phase": "Succeeded"})
    stage, term = term_of(gpu_node("n1"), done, asking("b-0", 1))
    assert asked(stage, term) == [1]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, [True, True, False]),
        ({"nodeSelector": {"model": "h100"}}, [True, False, False]),
        ({"tolerations": [{"operator": "Exists"}]}, [True, True, True]),
    ],
)
def test_a_shape_may_run_where_labels_and_taints_allow(parts, expected):
    nodes = [gpu_node("n1", labels={"model": "h100"}), gpu_node("n2"), gpu_node("n3", taints=[TAINT])]
    _, term = term_of(*nodes, asking("a-0", **parts))
    assert term.allowed.tolist() == [expected]


def test_affinity_to_a_model_is_told_from_all_others():
    terms = [{"matchExpressions": [{"key": "model", "operator": "In", "values": ["h100", "h200"]}]}]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    nodes = [gpu_node("n1", labels={"model": "h100"}), gpu_node("n2", labels={"model": "l4"})]
    _, term = term_of(*nodes, asking("a-0", affinity=required))
    assert term.allowed.tolist() == [[True, False]]


def test_a_node_knows_the_gpu_ratios_of_allowed_pods():
    picky = {"nodeSelector": {"model": "h100"}}
    nodes = [gpu_node("n1", labels={"model": "h100"}), gpu_node("n2"), node("plain")]
    pods = [asking("a-0", 1), asking("b-0", 3, **picky)]
    _, term = term_of(*nodes, *pods)
    assert term.gpu_by_cpu[:2] == pytest.approx([4 / 8000, 1 / 4000])
    assert term.gpu_by_memory[:2] == pytest.approx([4 / (16 * 2**30), 1 / (8 * 2**30)])


def test_nothing_is_scarce_where_no_shape_may_run():
    nodes = [gpu_node("n1", labels={"model": "h100"}), gpu_node("n2")]
    _, term = term_of(*nodes, asking("a-0", nodeSelector={"model": "h100"}))
    assert term.gpu_by_cpu[1] == term.gpu_by_memory[1] == BOUNDLESS


def test_pressure_is_even_where_all_may_run_anywhere():
    _, term = term_of(gpu_node("n1"), gpu_node("n2", 2), asking("a-0", 1), asking("b-0", 2))
    assert term.pressure == pytest.approx([1.0, 1.0])


def test_pressure_is_greater_on_nodes_few_pods_may_use():
    nodes = [gpu_node("n1", 2, labels={"model": "h100"}), gpu_node("n2", 6)]
    _, term = term_of(*nodes, asking("a-0", 1), asking("b-0", 1, nodeSelector={"model": "h100"}))
    # Of two GPUs asked for one falls on all eight, one on the two of n1.
    assert term.pressure == pytest.approx([(1 / 8 + 1 / 2) * 4, 1 / 8 * 4])


def test_pressure_is_bounded():
    nodes = [gpu_node("n1", 1, labels={"model": "h100"}), *(gpu_node(f"n{at}") for at in range(2, 9))]
    _, term = term_of(*nodes, asking("a-0", 1, nodeSelector={"model": "h100"}))
    assert term.pressure.max() == STRONGEST


def test_kinds_are_cached_for_the_same_session_view():
    stage, _ = term_of(gpu_node("n1"), asking("a-0"))
    assert Kinds.of(stage.session.view) is Kinds.of(stage.session.view)
    kinds = Kinds.of(stage.session.view)
    assert kinds.wants[0].tolist() == [4000.0, 8 * 2**30, 1.0]
    assert (CPU, MEMORY, GPU) == (0, 1, 2)
    assert np.array_equal(kinds.of_shape, [0])
