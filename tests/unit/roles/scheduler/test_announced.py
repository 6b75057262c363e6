"""Pods are told of a bind that was ordered once it is so."""

from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import World


def cluster(settings=None):
    gang = [making.pod(f"p{number}", group="gang") for number in range(3)]
    nodes = (making.node("n1"), making.node("n2"))
    world = World(making.queue("q"), making.group("gang"), *nodes, *gang, settings=settings)
    world.lead()
    return world


def test_a_bind_is_announced_once_the_store_shows_it():
    world = cluster()
    world.decide(world.bind("p0", "n1"), world.bind("p1", "n1"), world.bind("p2", "n1"))
    world.settle()
    world.look()
    assert world.said() == []
    world.server.change("Pod", "p1", "default", {"spec": {"nodeName": "n2"}})
    world.server.change("Pod", "p2", "default", {"metadata": {"uid": "another"}, "spec": {"nodeName": "n1"}})
    world.server.change("Pod", "p0", "default", {"spec": {"nodeName": "n1"}})
    world.look()
    world.look()
    assert world.said() == [("p0", "Scheduled")]


def test_nothing_is_told_of_what_an_earlier_term_ordered():
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    world.settle()
    world.lose()
    world.lead(2)
    world.carry_out()
    assert world.said() == []


def test_a_bind_is_not_announced_if_disabled():
    for direct in (False, True):
        world = cluster(settings=SchedulerSettings(announce_binds=False, direct_binds=direct))
        world.decide(world.bind("p0", "n1"))
        if direct:
            world.answer()
        world.settle()
        world.carry_out()
        assert world.said() == []
