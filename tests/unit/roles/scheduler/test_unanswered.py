"""What waits for the answer to an eviction: binds into queues that are bounded and are to lose the evicted pod."""

import pytest

from kai.roles.scheduler.effects import Decided, StatementRejected
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import World

LIMIT = {"resources": {"gpu": {"quota": 0, "limit": 4}, "cpu": {"limit": -1}, "memory": {"limit": -1}}}
QUOTA = {
    "resources": {
        "gpu": {"quota": 4, "limit": -1},
        "cpu": {"quota": -1, "limit": -1},
        "memory": {"quota": -1, "limit": -1},
    }
}
NO_BOUND = {"resources": {name: {"quota": -1, "limit": -1} for name in ("gpu", "cpu", "memory")}}


def cluster(*, top, of_the_waiting, preemptibility="preemptible"):
    queues = (
        making.queue("top", **top),
        making.queue("q", parent="top", **of_the_waiting),
        making.queue("losing", parent="top", **NO_BOUND),
    )
    groups = (
        making.group("other", queue="losing"),
        making.group("gang", queue="q", preemptibility=preemptibility),
    )
    pods = (making.pod("old", group="other", phase="Running", node="n2"), making.pod("p0", group="gang"))
    world = World(*queues, *groups, *pods, making.node("n1"), making.node("n2"))
    world.lead()
    world.decide(world.evict("old"), cycle=1)
    return world


def is_bound(world, cycle=2):
    world.decide(world.bind("p0", "n1"), cycle=cycle)
    return any(wire.send.request.ref.name == "p0" for wire in world.wires)


@pytest.mark.parametrize(
    ("top", "of_the_waiting", "preemptibility"),
    [(LIMIT, NO_BOUND, "preemptible"), (LIMIT, LIMIT, "preemptible"), (QUOTA, NO_BOUND, "non-preemptible")],
)
def test_a_pod_waits_until_its_queues_eviction_is_answered(top, of_the_waiting, preemptibility):
    world = cluster(top=top, of_the_waiting=of_the_waiting, preemptibility=preemptibility)
    assert not is_bound(world)
    assert world.signals == [
        StatementRejected(why="pod default/p0: queue top is to lose another, which is not answered yet", decisions=1)
    ]
    world.settle()
    assert is_bound(world, cycle=3)


@pytest.mark.parametrize(
    ("top", "of_the_waiting", "preemptibility"),
    [(NO_BOUND, NO_BOUND, "non-preemptible"), (NO_BOUND, LIMIT, "preemptible"), (QUOTA, NO_BOUND, "preemptible")],
)
def test_a_pod_does_not_wait_for_an_irrelevant_eviction(top, of_the_waiting, preemptibility):
    assert is_bound(cluster(top=top, of_the_waiting=of_the_waiting, preemptibility=preemptibility))


def test_a_decision_in_the_evictions_cycle_does_not_wait():
    assert is_bound(cluster(top=LIMIT, of_the_waiting=NO_BOUND), cycle=1)


def test_no_pod_waits_for_an_earlier_terms_eviction():
    world = cluster(top=LIMIT, of_the_waiting=NO_BOUND)
    world.lose()
    world.lead(2)
    assert is_bound(world)


def test_no_pod_waits_for_an_abandoned_eviction_write():
    world = cluster(top=LIMIT, of_the_waiting=NO_BOUND)
    while world.wires:
        world.deliver(fault="unavailable")
        if world.wake is not None:
            world.pass_time(max(0.0, world.wake - world.time) + 0.001)
    assert is_bound(world)


def test_no_pod_waits_for_an_abandoned_statements_eviction():
    world = cluster(top=LIMIT, of_the_waiting=NO_BOUND)
    statement = Decided(term=world.term, cycle=1, snapshot=world.snapshot, decisions=(world.evict("old"),))
    world.committer.abandon(statement)
    assert not world.committer.is_evicting
    assert is_bound(world)
