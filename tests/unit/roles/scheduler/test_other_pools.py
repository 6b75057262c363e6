"""Which changes are of other node pools alone."""

import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.port import Change
from kai.intake import IntakeSettings
from kai.roles.scheduler.wakeups import OtherPools
from tests.doubles.cluster import MemoryCluster
from tests.unit.intake import making

POOL = "kai.scheduler/node-pool"
OURS, THEIRS, NONE = {POOL: "ours"}, {POOL: "theirs"}, {}


def pod(*, group="", node=""):
    return making.pod("p", group=group, node=node)


def is_passed_over(before, after, cls=Pod, pool="ours"):
    """Say whether a change counts for nothing where a scheduler has one pool of a cluster of two."""
    memory = MemoryCluster(
        making.node("n-ours", labels=OURS),
        making.node("n-theirs", labels=THEIRS),
        making.group("g-ours", metadata={"labels": OURS}),
        making.group("g-theirs", metadata={"labels": THEIRS}),
        making.group("g-none"),
    )
    sides = [None if side is None else structure_as(cls, side) for side in (before, after)]
    return OtherPools(memory.port.store, IntakeSettings(node_pool=pool)).hold(Change(*sides))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (pod(group="g-theirs"), True),
        (pod(group="g-theirs", node="n-theirs"), True),
        (pod(node="n-theirs"), True),
        (pod(), True),  # neither here nor there until it gets a group or a node
        (pod(group="g-ours"), False),
        (pod(group="g-ours", node="n-theirs"), False),
        (pod(group="g-theirs", node="n-ours"), False),
        (pod(node="n-ours"), False),
        (pod(group="g-unknown"), False),
        (pod(node="n-unknown"), False),
    ],
)
def test_a_pod_belongs_to_its_groups_and_nodes_pools(after, expected):
    assert is_passed_over(None, after) is expected
    assert is_passed_over(after, None) is expected
    assert is_passed_over(pod(), after) is expected


def test_a_move_between_pools_concerns_both():
    theirs, ours = pod(group="g-theirs"), pod(group="g-ours")
    assert not is_passed_over(theirs, ours)
    assert not is_passed_over(ours, theirs)


@pytest.mark.parametrize(
    ("cls", "make"),
    [
        (Node, lambda labels: making.node("n", labels=labels)),
        (PodGroup, lambda labels: making.group("g", metadata={"labels": labels})),
        (BindRequest, lambda labels: making.bind_request("p", "n", metadata={"labels": labels})),
    ],
)
def test_a_labelled_object_belongs_to_that_pool(cls, make):
    assert is_passed_over(None, make(THEIRS), cls)
    assert is_passed_over(None, make(NONE), cls)
    assert not is_passed_over(None, make(OURS), cls)
    assert not is_passed_over(make(THEIRS), make(OURS), cls)
    assert not is_passed_over(None, make(NONE), cls, pool="")
    assert is_passed_over(None, make(OURS), cls, pool="")


def test_queues_are_of_all_pools():
    assert not is_passed_over(None, making.queue("q"), Queue)
