"""Messages with a line for each node, which a flag asks for."""

import attrs

from kai.deciding.engine.cycle import run_cycle
from kai.deciding.explain.messages import detailed_group_message, pod_message
from kai.testing import RecordingSink, default_profile_with, snapshot


def told(nodes, each, *, pods=1, groups=None, detailed=True):
    taken = snapshot(
        nodes=nodes,
        queues={"a": {"quota": 90}},
        groups={**(groups or {}), "waits": {"queue": "a", "each": each, "members": pods}},
    )
    profile = default_profile_with()
    parameters = attrs.evolve(profile.parameters, detailed_fit_errors=detailed)
    report = run_cycle(taken, attrs.evolve(profile, parameters=parameters), RecordingSink())
    row = next(row for row, group in enumerate(taken.groups) if group.name == "waits")
    record = report.records[row]
    (pod, *_) = record.pods
    return pod_message(record, pod, detailed=True), detailed_group_message(record.reasons)


HELD = {"held": {"queue": "a", "each": {"gpu": 2, "cpu": 3}, "runs_on": "n1"}}


def test_a_single_pods_message_has_each_nodes_numbers():
    nodes = {"n1": {"gpu": 2, "cpu": 4}, "n2": {"gpu": 1, "cpu": 64}}
    pod, _ = told(nodes, {"gpu": 2, "cpu": 2}, groups=HELD)
    assert pod == (
        "\nno nodes with enough resources were found."
        "\n<n1>: Node didn't have enough resources: CPU cores, requested: 2, used: 3, capacity: 4, "
        "Node didn't have enough resources: GPUs, requested: 2, used: 2, capacity: 2."
        "\n<n2>: Node didn't have enough resources: GPUs, requested: 2, used: 0, capacity: 1."
    )


def test_a_gangs_pod_message_names_resources_without_numbers():
    pod, _ = told({"n1": {"gpu": 2, "cpu": 64}}, {"gpu": 2}, pods=2)
    assert pod.endswith("\n<n1>: Node didn't have enough resources: GPUs, taking all considerations into account.")


def test_a_too_small_device_is_named_with_its_size():
    nodes = {"n1": {"gpu": 1, "gpu_memory": 8000}, "n2": {"gpu": 1, "gpu_memory": 40000, "cordoned": True}}
    pod, _ = told(nodes, {"gpu_memory": 20000})
    assert (
        "Node didn't have enough resources: Each gpu on the node has a gpu memory capacity of 8000 Mib. "
        "20000 Mib of gpu memory has been requested." in pod
    )
    assert "\n<n2>: node is unschedulable." in pod


def test_a_group_is_told_its_reasons_line_by_line():
    groups = {"held": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"}}
    _, group = told({"n1": {"gpu": 2, "cpu": 64}}, {"gpu": 2}, groups=groups)
    assert group.startswith("\nPodSchedulingErrors.\nResources were not found for pod ")
    assert group.endswith("1 node(s) didn't have enough resources: GPUs..")


def test_nodes_are_detailed_only_with_the_flag():
    groups = {"held": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"}}
    pod, _ = told({"n1": {"gpu": 2, "cpu": 64}}, {"gpu": 2}, groups=groups, detailed=False)
    assert pod == "\nno nodes with enough resources were found."
