"""What nobody waits for is written once, in its last form, and not where the store knows better."""

import anyio
import attrs
import pytest
from prometheus_client import CollectorRegistry

from kai.api.plans import Emit, Patch, Ref
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.port import Cluster, Term
from kai.roles.scheduler import effects
from kai.roles.scheduler.committing import outbox as outboxes
from kai.roles.scheduler.committing.committer import Committer
from kai.roles.scheduler.committing.orders import EVICTED
from kai.roles.scheduler.committing.outbox import Outbox
from kai.roles.scheduler.effects import Send
from kai.roles.scheduler.publishing.explanations import GroupAccount, Overall, PodAccount
from kai.roles.scheduler.publishing.publisher import CycleOver, Publisher
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.roles.scheduler.settings import SchedulerSettings
from tests.doubles.virtual_time import VirtualClock, run
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import World

TERM = Term(1, "me")


class Server:
    """Takes a second for each write."""

    def __init__(self, world):
        self.world = world
        self.asked = []

    def fenced(self, _):
        return self

    async def perform(self, request):
        self.asked.append(request)
        await anyio.sleep(1.0)
        reply = self.world.perform(request)
        self.world.sync()
        return reply


def outbox_of(world):
    settings, clock, server = SchedulerSettings(), VirtualClock(), Server(world)
    cluster = Cluster(store=world, api=server, clock=clock, draw=lambda: 0.5)
    committer = Committer(settings, world, lambda: "gpu", clock.now)
    publisher = Publisher(settings, world, clock.now)
    metrics = SchedulerMetrics(CollectorRegistry(), "kai", "default")
    return Outbox(cluster, settings, committer, publisher, metrics), server


def patch(world, text, uid="", version=""):
    group = world.get(PodGroup, "g", "default")
    metadata = {"uid": uid or group.metadata.uid}
    if version:
        metadata["resourceVersion"] = version
    return Patch(
        ref=Ref(PodGroup, "g", "default"),
        patch={"metadata": metadata, "status": {"phase": text}},
        subresource="status",
    )


def written(*sends, world):
    """Return what was sent to the server, in a term."""
    outbox, server = outbox_of(world)

    async def work():
        async with anyio.create_task_group() as tasks:
            outbox.begin(TERM)
            for send in sends:
                outbox._carry_out(send)
            tasks.start_soon(outbox.run)
            await anyio.sleep(30)
            tasks.cancel_scope.cancel()

    run(work)
    return [request.patch["status"]["phase"] for request in server.asked]


def world():
    return World(making.queue("q"), making.group("g"))


def test_only_the_last_write_of_a_topic_is_sent():
    place = world()
    sends = [Send(patch(place, str(number)), topic="g/condition") for number in range(5)]
    assert written(*sends, world=place) == ["4"]


def test_writes_about_different_topics_are_all_sent():
    place = world()
    assert sorted(written(*(Send(patch(place, each), topic=each) for each in "abc"), world=place)) == ["a", "b", "c"]


def test_writes_without_a_topic_are_all_sent():
    place = world()
    assert sorted(written(*(Send(patch(place, each)) for each in "ab"), world=place)) == ["a", "b"]


def test_a_write_the_store_knows_as_refused_is_skipped():
    place = world()
    sends = [
        Send(patch(place, "made anew", uid="another"), topic="a"),
        Send(patch(place, "old", version="0"), topic="b"),
    ]
    assert written(*sends, world=place) == []
    gone = Send(patch(place, "gone"), topic="c")
    place.server.remove("PodGroup", "g", "default")
    place.sync()
    assert written(gone, world=place) == []


@pytest.mark.parametrize(("said", "sent"), [("aba", "a"), ("ab", "ab"), ("abac", "ac")])
def test_a_withdrawn_and_repeated_message_is_sent_once(said, sent):
    place = world()
    outbox, server = outbox_of(place)
    writes = outbox.publisher.outgoing.writes

    async def work():
        async with anyio.create_task_group() as tasks:
            outbox.begin(TERM)
            tasks.start_soon(outbox.run)
            for text in said:
                outbox._carry_out(writes.send("g/condition", patch(place, text), text, "1"))
                await anyio.sleep(0.1)
            await anyio.sleep(30)
            tasks.cancel_scope.cancel()
        assert not writes._open, "nothing is without an answer"

    run(work)
    assert "".join(request.patch["status"]["phase"] for request in server.asked) == sent


def test_the_publisher_is_told_how_a_write_ended():
    place = world()
    outbox, _ = outbox_of(place)
    request = patch(place, "x", uid="another")

    async def work():
        outbox.begin(TERM)
        send = outbox.publisher.outgoing.writes.send("g/condition", request, "x", "1")
        assert outbox.publisher.outgoing.writes.is_sent("g/condition", "x", "1", 0.0)
        await outbox._write_about(send)
        now = outbox.cluster.clock.monotonic()
        assert outbox.publisher.outgoing.writes.is_sent("g/condition", "x", "1", now), "this version is not tried again"
        assert not outbox.publisher.outgoing.writes.is_sent("g/condition", "x", "2", now)

    run(work)


# --- Events that were not written ----------------------------------------------------------------------------------


def explained(*pods):
    """Return what a cycle tells of pods that get events only, and of their group."""
    told = [
        PodAccount(name=pod, namespace="default", uid=f"uid-{pod}", message="no room", on_pod=False) for pod in pods
    ]
    group = GroupAccount(
        name="g", namespace="default", uid="uid-g", stamps={}, unschedulable="no room", pods=tuple(told)
    )
    return CycleOver(Overall(groups=(group,)))


def said(play):
    """Return the objects of the events that were written while a test plays."""
    place = World(making.queue("q"), making.group("g"), *(making.pod(pod, group="g") for pod in ("a", "b")))
    outbox, server = outbox_of(place)

    async def work():
        async with anyio.create_task_group() as tasks:
            outbox.begin(TERM)
            await play(outbox, tasks)
            await anyio.sleep(30)
            tasks.cancel_scope.cancel()

    run(work)
    return sorted(each.ref.name for each in server.asked if isinstance(each, Emit))


def test_events_dropped_without_room_are_sent_again(monkeypatch):
    monkeypatch.setattr(outboxes, "_MOST_EXPLANATIONS", 1)

    async def play(outbox, tasks):
        outbox.publish(explained("a", "b"))
        assert [each.request.ref.name for each in outbox._quiet.values()] == ["g"]
        monkeypatch.undo()
        tasks.start_soon(outbox.run)
        await anyio.sleep(11)
        outbox.publish(explained("a", "b"))
        outbox.publish(explained("a", "b"))

    assert said(play) == ["a", "b", "g"]


def test_events_waiting_at_a_terms_end_are_sent_afterwards():
    async def play(outbox, tasks):
        outbox.publish(explained("a", "b"))
        outbox.end()
        tasks.start_soon(outbox.run)
        await anyio.sleep(3)
        outbox.begin(Term(2, "me"))
        outbox.publish(explained("a", "b"))
        outbox.publish(explained("a", "b"))

    assert said(play) == ["a", "b", "g"]


def test_a_term_ending_among_writes_keeps_waiting_turns():
    pods = [f"p{number}" for number in range(20)]
    place = World(making.queue("q"), making.group("g"), *(making.pod(pod, group="g") for pod in pods))
    outbox, server = outbox_of(place)
    (group,) = explained(*pods).overall.groups

    async def work():
        async with anyio.create_task_group() as tasks:
            outbox.begin(TERM)
            tasks.start_soon(outbox.run)
            outbox.publish(CycleOver(Overall(groups=(attrs.evolve(group, waits_for_turn=True),))))
            await anyio.sleep(0.5)
            outbox.end()
            await anyio.sleep(5)
            assert len(server.asked) < len(pods), "nothing is written between two terms"
            outbox.begin(Term(2, "me"))
            outbox.publish(CycleOver(Overall()))  # until its turn comes, no cycle says anything about the group
            await anyio.sleep(30)
            tasks.cancel_scope.cancel()

    run(work)
    assert {each.ref.name for each in server.asked if isinstance(each, Emit)} >= set(pods)


def test_the_publisher_pauses_for_room_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(outboxes, "_MOST_EXPLANATIONS", 400)
    numbers = range(500)
    place = World(making.queue("q"), *(making.group(f"g{number}") for number in numbers))
    groups = tuple(
        GroupAccount(name=f"g{number}", namespace="default", uid=f"uid-g{number}", stamps={}, unschedulable="no room")
        for number in numbers
    )
    outbox, server = outbox_of(place)
    most = 0

    async def work():
        nonlocal most
        async with anyio.create_task_group() as tasks:
            outbox.begin(TERM)
            outbox.publish(CycleOver(Overall(groups=groups)))
            tasks.start_soon(outbox.run)
            for _ in range(200):
                most = max(most, len(outbox._quiet))
                await anyio.sleep(1.0)
            tasks.cancel_scope.cancel()

    run(work)
    assert len([each for each in server.asked if isinstance(each, Emit)]) == 500
    assert 100 < most < 400


def test_an_evictions_event_is_sent_despite_full_queues(monkeypatch):
    monkeypatch.setattr(outboxes, "_MOST_EXPLANATIONS", 1)
    place = evicting()
    outbox, server = outbox_of(place)

    async def work():
        async with anyio.create_task_group() as tasks:
            outbox.begin(TERM)
            tasks.start_soon(outbox._write_urgent)  # until the peak is over, nothing quiet is written
            tasks.start_soon(outbox._keep_time)
            outbox.commit(effects.Decided(term=TERM, cycle=1, snapshot=place.snapshot, decisions=(place.evict("a"),)))
            await anyio.sleep(1.5)
            outbox.publish(explained("b"))
            assert EVICTED not in [each.request.reason for each in outbox._quiet.values()]
            monkeypatch.undo()
            await anyio.sleep(5)
            tasks.start_soon(outbox._write_quiet)
            await anyio.sleep(600)
            tasks.cancel_scope.cancel()

    run(work)
    assert [each.reason for each in server.asked if isinstance(each, Emit)].count(EVICTED) == 1


def test_an_unsent_eviction_event_survives_the_term():
    place = evicting()
    outbox, server = outbox_of(place)

    async def work():
        async with anyio.create_task_group() as tasks:
            outbox.begin(TERM)
            tasks.start_soon(outbox._write_urgent)
            outbox.commit(effects.Decided(term=TERM, cycle=1, snapshot=place.snapshot, decisions=(place.evict("a"),)))
            await anyio.sleep(1.5)
            outbox.end()
            tasks.start_soon(outbox._write_quiet)
            await anyio.sleep(30)
            assert not any(isinstance(each, Emit) for each in server.asked), "nothing is written between two terms"
            outbox.begin(Term(2, "me"))
            await anyio.sleep(600)
            tasks.cancel_scope.cancel()

    run(work)
    assert [each.reason for each in server.asked if isinstance(each, Emit)] == [EVICTED]


def evicting():
    running = making.pod("a", group="g", phase="Running", node="n")
    return World(making.queue("q"), making.group("g"), making.node("n"), running, making.pod("b", group="g"))
