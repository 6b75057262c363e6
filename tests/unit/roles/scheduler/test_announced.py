"""Events of binds: on each pod once it is bound, or once on the pod group of a gang."""

from kai.api.plans import Emit, Ref
from kai.api.scheduling.pod_group import PodGroup
from kai.roles.scheduler.committing.operations import Gang
from kai.roles.scheduler.committing.orders import gang_event
from kai.roles.scheduler.settings import BindEventsOf, SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import World


def cluster(settings=None, minimum=1):
    gang = [making.pod(f"p{number}", group="gang") for number in range(3)]
    nodes = (making.node("n1"), making.node("n2"))
    group = making.group("gang", minMember=minimum)
    world = World(making.queue("q"), group, *nodes, *gang, settings=settings)
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
        world = cluster(settings=SchedulerSettings(bind_events=BindEventsOf.NONE, direct_binds=direct))
        world.decide(world.bind("p0", "n1"))
        if direct:
            world.answer()
        world.settle()
        world.carry_out()
        assert world.said() == []


def sharing(minimum, *, direct=True):
    settings = SchedulerSettings(bind_events=BindEventsOf.GANG, direct_binds=direct)
    return cluster(settings, minimum)


def bind_all(world):
    world.decide(world.bind("p0", "n1"), world.bind("p1", "n2"), world.bind("p2", "n1"))
    for _ in range(3):
        world.answer()


def events_sent(world):
    sent = [wire.send.request for wire in world.wires]
    return [(each.ref.cls.__name__, each.ref.name, each.message) for each in sent if isinstance(each, Emit)]


def test_a_gang_has_one_event_for_all_binds():
    world = sharing(3)
    bind_all(world)
    assert events_sent(world) == []
    world.pass_time(1.0)
    text = "Successfully assigned 3 pods of pod group default/gang at node-pool default to nodes n1 (2), n2 (1)"
    assert events_sent(world) == [("PodGroup", "gang", text)]


def test_pods_that_start_alone_keep_their_events():
    world = sharing(1)
    bind_all(world)
    assert [name for _, name, _ in events_sent(world)] == ["p0", "p1", "p2"]


def test_a_late_bind_of_a_gang_has_another_event():
    world = sharing(2)
    world.decide(world.bind("p0", "n1"), world.bind("p1", "n2"))
    world.answer()
    world.answer()
    world.pass_time(1.0)
    world.decide(world.bind("p2", "n1"), cycle=2)
    world.answer()
    world.pass_time(1.0)
    assert [message.partition(" of ")[0] for _, _, message in events_sent(world)] == [
        "Successfully assigned 2 pods",
        "Successfully assigned 1 pod",
    ]


def test_a_gang_with_bind_requests_waits_for_the_store():
    world = sharing(3, direct=False)
    world.decide(world.bind("p0", "n1"), world.bind("p1", "n1"), world.bind("p2", "n1"))
    world.settle()
    world.look()
    world.pass_time(1.0)
    assert world.said() == []
    for name in ("p0", "p1", "p2"):
        world.server.change("Pod", name, "default", {"spec": {"nodeName": "n1"}})
    world.look()
    world.pass_time(1.0)
    assert world.said() == [("gang", "Scheduled")]


def test_an_ended_term_reports_no_binds_of_gangs():
    world = sharing(3)
    bind_all(world)
    world.lose()
    world.lead(2)
    world.pass_time(5.0)
    assert events_sent(world) == []


def test_an_event_of_a_gang_names_ten_nodes():
    gang = Gang(Ref(PodGroup, "gang", "default"), "u")
    text = gang_event(gang, {f"n{number:02}": 1 for number in range(12)}, "default").message
    assert text.endswith("n09 (1) and 2 more")
    assert "12 pods" in text
