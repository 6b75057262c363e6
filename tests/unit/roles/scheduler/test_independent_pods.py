"""What counts as a pod that starts without others."""

from typing import TYPE_CHECKING

import anyio
import pytest

from kai.api.codec.structuring import structure_as
from kai.api.scheduling.pod_group import PodGroup
from kai.roles.scheduler.wakeups import AT_ONCE, Haste, IndependentPods, starts_alone
from tests.doubles import virtual_time
from tests.doubles.cluster import MemoryCluster
from tests.unit.intake import making

if TYPE_CHECKING:
    from kai.cluster.port import Store


def counted(*steps, owns=lambda _: True):
    """Return how many such pods there were after each step, which is what is added or a pod that is gone."""

    async def count():
        memory, counts = MemoryCluster(), []
        store: Store = memory.port.store
        pods = IndependentPods(store, "kai-scheduler", owns)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pods.run)
            for step in steps:
                for each in step:
                    memory.server.add(each)
                await anyio.sleep(0.1)
                counts.append(pods.count)
            tasks.cancel_scope.cancel()
        return counts

    return virtual_time.run(count)


@pytest.mark.parametrize(
    ("spec", "alone"),
    [
        ({}, True),
        ({"minMember": 1}, True),
        ({"minMember": 0}, True),
        ({"minMember": 2}, False),
        ({"minSubGroup": 1, "subGroups": [{"name": "one", "minMember": 1}]}, False),
        ({"minMember": 1, "subGroups": [{"name": "one", "minMember": 1}]}, False),
    ],
)
def test_a_pod_starts_alone_without_minimum_or_subgroups(spec, alone):
    assert starts_alone(structure_as(PodGroup, making.group("g", **spec))) is alone


def test_an_independent_pod_counts_once_when_it_begins_waiting():
    group, waits = making.group("g", minMember=1), making.pod("p", group="g")
    said = making.pod("p", group="g", status={"conditions": [{"type": "PodScheduled", "status": "False"}]})
    assert counted([making.pod("p")], [group], [waits], [said], [making.pod("p", group="g", node="n")]) == [
        0,
        0,
        1,
        1,
        1,
    ]


def test_gang_gated_foreign_and_placed_pods_do_not_count():
    groups = [making.group("g", minMember=1), making.group("gang", minMember=2)]
    others = [
        making.pod("member", group="gang"),
        making.pod("gated", group="g", spec={"schedulingGates": [{"name": "wait"}]}),
        making.pod("foreign", group="g", spec={"schedulerName": "other"}),
        making.pod("placed", group="g", node="n"),
        making.pod("early", group="not-there-yet"),
    ]
    assert counted(groups, others, [making.pod("gated", group="g")]) == [0, 0, 1]


def test_pods_of_foreign_groups_do_not_count():
    groups = [making.group(name, minMember=1, metadata={"labels": {"of": name}}) for name in ("ours", "theirs")]
    pods = [making.pod(name, group=name) for name in ("ours", "theirs")]
    assert counted(groups, pods, owns=lambda labels: labels["of"] == "ours") == [0, 1]


def test_a_few_cycles_follow_immediately_until_earned_again():
    haste = Haste(0.5)
    for _ in range(AT_ONCE):
        assert haste.due(1.0) == 1.0
        haste.take(1.0)
    assert haste.due(1.0) == 1.5
    haste.take(1.5)
    assert haste.due(1.5) == 2.0
    assert haste.due(9.0) == 9.0
