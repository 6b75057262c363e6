import attrs
import pytest

from kai.api.cluster_objects import collect
from kai.api.codec.structuring import structure_all
from kai.facts.model.pod import MigStrategy
from kai.intake import Intake
from tests.unit.intake.making import NOW, node, objects, other, taken

GPUS = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}


def read(**body):
    return taken(node("n", **body)).nodes[0]


def test_amounts_are_in_axis_units():
    found = read(allocatable={**GPUS, "nvidia.com/mig-1g.10gb": "2", "example.com/nic": "1"})
    expected = {"cpu": 8000, "memory": 32 * 2**30, "pods": 110, "gpu": 4000}
    assert found.allocatable == {**expected, "nvidia.com/mig-1g.10gb": 2, "example.com/nic": 1000}


@pytest.mark.parametrize(
    ("label", "memory", "known"),
    [
        (None, 100, False),
        ("", 100, False),
        ("plenty", 100, False),
        ("100", 100, False),
        ("199", 100, False),
        ("50", 100, False),
        ("-5", 100, False),
        ("200", 200, True),
        ("81559", 81500, True),
        ("1048575", 1048500, True),
        (str(80 * 2**30), 81900, True),
    ],
)
def test_gpu_memory_rounds_to_hundreds_and_accepts_bytes(label, memory, known):
    found = read(labels={} if label is None else {"nvidia.com/gpu.memory": label})
    assert (found.gpu_memory, found.gpu_memory_known) == (memory, known)


@pytest.mark.parametrize(("label", "count"), [(None, 4), ("3", 3), ("0", 0), ("-1", 4), ("some", 4), ("4000000000", 4)])
def test_the_gpu_count_is_the_label_or_allocatable(label, count):
    labels = {} if label is None else {"nvidia.com/gpu.count": label}
    assert read(allocatable=GPUS, labels=labels).gpu_count == count


def test_a_label_adds_no_gpus_that_are_not_allocatable():
    labels = {"nvidia.com/gpu.count": "6"}
    assert read(allocatable=GPUS, labels=labels).gpu_count == 4
    assert read(allocatable={**GPUS, "nvidia.com/gpu": "0"}, labels=labels).gpu_count == 0


def test_a_label_counts_gpus_that_are_cut_in_slices():
    labels = {"nvidia.com/gpu.count": "6"}
    assert read(allocatable={**GPUS, "nvidia.com/mig-1g.10gb": "14"}, labels=labels).gpu_count == 6


@pytest.mark.parametrize(
    ("label", "profiles", "enabled"),
    [
        (None, False, False),
        (None, True, True),
        ("true", False, True),
        ("1", False, True),
        ("false", True, False),
        ("maybe", True, False),
    ],
)
def test_mig_is_enabled_by_label_or_profiles(label, profiles, enabled):
    labels = {} if label is None else {"node-role.kubernetes.io/mig-enabled": label}
    allocatable = {**GPUS, **({"nvidia.com/mig-1g.10gb": "1"} if profiles else {})}
    assert read(allocatable=allocatable, labels=labels).mig_enabled == enabled


@pytest.mark.parametrize(
    ("label", "strategy"),
    [("single", MigStrategy.SINGLE), ("mixed", MigStrategy.MIXED), ("none", MigStrategy.NONE), ("?", MigStrategy.NONE)],
)
def test_the_mig_strategy_is_a_label(label, strategy):
    assert read(labels={"nvidia.com/mig.strategy": label}).mig_strategy == strategy


@pytest.mark.parametrize(
    ("kind", "status", "fails"),
    [
        ("Ready", "True", False),
        ("Ready", "False", True),
        ("Ready", "Unknown", True),
        ("MemoryPressure", "False", False),
        ("MemoryPressure", "True", True),
        ("DiskPressure", "Unknown", True),
        ("PIDPressure", "True", True),
        ("NetworkUnavailable", "True", True),
        ("KernelDeadlock", "True", False),
    ],
)
def test_a_condition_fails_with_its_bad_status(kind, status, fails):
    found = read(status={"conditions": [{"type": kind, "status": status}]})
    assert found.failing_conditions == ((kind,) if fails else ())
    assert found.ready == (not fails)


def test_a_cordoned_node_is_not_ready_but_unconditioned_is():
    assert read().ready
    assert not read(spec={"unschedulable": True}).ready


def test_taints_are_kept():
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert [(each.key, each.value, each.effect) for each in read(spec={"taints": taints}).taints] == [
        ("gpu", "yes", "NoSchedule"),
    ]


def test_devices_of_a_gpu_driver_count_as_node_gpus():
    devices = [{"name": "0"}, {"name": "1"}]
    spec = {"driver": "GPU.example.com", "nodeName": "n", "pool": {"name": "n"}, "devices": devices}
    gpus = other("ResourceSlice", "resource.k8s.io/v1", "s", spec=spec)
    nics = other("ResourceSlice", "resource.k8s.io/v1", "t", spec={**spec, "driver": "nic.example.com"})
    found = taken(node("n"), node("m"), gpus, nics).nodes
    assert [(each.dra_gpus, each.gpu_count, each.allocatable.get("gpu")) for each in found] == [
        (0, 0, None),
        (2, 2, 2000),
    ]


def test_a_heartbeat_keeps_the_nodes_with_driver_gpus():
    spec = {"driver": "gpu.example.com", "nodeName": "n", "pool": {"name": "n"}, "devices": [{"name": "0"}]}
    cluster = objects(node("n"), other("ResourceSlice", "resource.k8s.io/v1", "s", spec=spec))
    intake = Intake()
    first = intake.take(cluster, NOW)
    later = attrs.evolve(cluster, nodes=tuple(map(attrs.evolve, cluster.nodes)))
    second = intake.take(later, NOW)
    assert (second.nodes[0].dra_gpus, second.nodes is first.nodes) == (1, True)
    third = intake.take(attrs.evolve(later, resource_slices=()), NOW)
    assert (third.nodes[0].dra_gpus, third.nodes[0].allocatable.get("gpu")) == (0, None)


def test_only_nodes_of_the_pool_are_taken():
    ours, theirs = node("a", labels={"kai.scheduler/node-pool": "ours"}), node("b")
    assert [each.name for each in taken(ours, theirs).nodes] == ["b"]
    assert [each.name for each in taken(ours, theirs, node_pool="ours").nodes] == ["a"]
    assert [each.name for each in taken(ours, theirs, node_pool_label="").nodes] == ["a", "b"]


def test_where_node_scheduling_is_restricted_only_workers_are_taken():
    nodes = [
        node("c", labels={"node-role.kubernetes.io/cpu-worker": ""}),
        node("g", labels={"node-role.kubernetes.io/gpu-worker": ""}),
        node("n"),
    ]
    assert [each.name for each in taken(*nodes, restrict_node_scheduling=True).nodes] == ["c", "g"]


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"allocatable": {**GPUS, "memory": "16Gi"}}, False),
        ({"allocatable": {**GPUS, "example.com/nic": "1"}}, False),
        ({"labels": {"zone": "b"}}, False),
        ({"spec": {"unschedulable": True}}, False),
    ],
)
def test_only_a_relevant_change_makes_a_new_node(changed, same):
    intake = Intake()
    seen = []
    for body in ({}, changed):
        manifest = node("n", **{"allocatable": GPUS, **body})
        (found,) = intake.take(collect(structure_all([manifest]).objects), NOW).nodes
        seen.append(found)
    assert (seen[0] is seen[1]) is same
    assert seen[1] == taken(manifest).nodes[0]
    assert seen[1].allocatable == taken(manifest).nodes[0].allocatable
    assert seen[1].labels == taken(manifest).nodes[0].labels
