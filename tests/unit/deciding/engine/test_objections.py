"""Nodes say all that keeps a pod away, as the peer's conditions do."""

import pytest

from kai.deciding.engine.cycle import run_cycle
from kai.deciding.explain.messages import group_message
from kai.testing import RecordingSink, default_profile_with, snapshot

FULL = {"full": {"queue": "a", "each": {"gpu": 2, "cpu": 4}, "runs_on": "n1"}}


def said(*, each, nodes=None, queues=None, groups=None):
    taken = snapshot(
        nodes=nodes or {"n1": {"gpu": 2, "cpu": 4}, "n2": {"gpu": 1, "cpu": 64}},
        queues=queues or {"a": {"quota": 9}},
        groups={**(FULL if groups is None else groups), "waits": {"queue": "a", "each": each}},
    )
    report = run_cycle(taken, default_profile_with(), RecordingSink())
    row = next(row for row, group in enumerate(taken.groups) if group.name == "waits")
    text = group_message(report.records[row].reasons)
    return text.partition("no nodes with enough resources were found: ")[2].removesuffix("..").split(". \n")


def test_a_node_counts_under_every_resource_it_lacks():
    assert said(each={"gpu": 2, "cpu": 2}) == [
        "1 node(s) didn't have enough resources: CPU cores",
        "2 node(s) didn't have enough resources: GPUs",
    ]


def test_device_memory_is_short_only_on_too_small_devices():
    nodes = {"n1": {"gpu": 1, "gpu_memory": 8000}, "n2": {"gpu": 1, "gpu_memory": 40000}}
    groups = {"other": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n2"}}
    assert said(each={"gpu_memory": 20000}, nodes=nodes, groups=groups) == [
        "1 node(s) didn't have enough resources: GPU memory",
        "2 node(s) didn't have enough resources: GPUs",
    ]


def test_a_device_that_pods_share_is_not_free():
    groups = {"part": {"queue": "a", "each": {"fraction": 0.7}, "runs_on": "n1"}}
    found = said(each={"fraction": 0.5}, nodes={"n1": {"gpu": 1}}, groups=groups)
    assert found == ["1 node(s) didn't have enough resources: GPUs"]


@pytest.mark.parametrize("size", [1000, 2000])
def test_a_limit_binding_per_node_shows_its_own_numbers(size):
    """The estimate for a group takes the largest device; a node with smaller ones counts more."""
    found = said(
        each={"gpu_memory": 1000, "devices": 2},
        nodes={"n1": {"gpu": 2, "gpu_memory": size}, "n2": {"gpu": 2, "gpu_memory": 4000, "cordoned": True}},
        queues={"a": {"quota": 9, "limit": 0.5}},
        groups={},
    )
    assert found == [
        (
            "1 node does not have enough capacity. Reason: OverLimit, Details: a quota has reached the allowable limit "
            f"of GPUs. Limit is 0.5 GPUs, currently 0 GPUs allocated and workload requested {2000 / size:g} GPUs"
        ),
        "1 node is unschedulable",
    ]
