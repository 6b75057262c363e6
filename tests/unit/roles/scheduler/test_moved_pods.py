"""Places of pods that were moved: kept until their successors come, and then given to those."""

import pytest

from kai.api.conventions.binding import grant_of
from kai.cluster.port import Term
from kai.cluster.process.tracing import no_tracing
from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.placement import Past
from kai.facts.model.pod import Status
from kai.framework.decisions import Bind, Cause, Evict, Nominate, Recorder
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.cycle.cycling import Cycles
from kai.roles.scheduler.cycle.stream import CycleObserver, Stream
from kai.roles.scheduler.effects import Decided
from kai.roles.scheduler.feedback.moved_pods import MovedPods
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import World

OWNED = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]}
OWNED_BY_X = {"ownerReferences": [{**OWNED["ownerReferences"][0], "name": "x", "uid": "x"}]}
ONE = {"nvidia.com/gpu": "1"}
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "1"}
HALF = {"gpu-fraction": "0.5", "kai.scheduler/granted": '{"queue":"q","group":"a","gpus":["d1"],"portion":0.5}'}


def cluster(*more, metadata=OWNED, least=1, queue=None, **body):
    """A pod of group ``a`` runs on n1, for which group ``b`` waits; n2 is idle."""
    moved = making.pod("a0", group="a", phase="Running", node="n1", metadata=metadata, **(body or {"requests": ONE}))
    waits = making.pod("b0", group="b", requests=ONE)
    groups = making.group("a", minMember=least), making.group("b")
    nodes = (making.node(name, allocatable=ROOM) for name in ("n1", "n2"))
    world = World(queue or making.queue("q"), *groups, *nodes, moved, waits, *more)
    world.lead()
    look(world)
    return world


def move(world, *devices, names=("a0",)):
    """Move pods of group a to n2, for the good of b0."""
    node = world.snapshot.node_rows["n2"]
    rows = [world.row(name) for name in names]
    evict = [Evict(pod=row, cause=Cause.CONSOLIDATE, moved_to=node, gpus=1000) for row in rows]
    world.decide(*evict, *(Nominate(pod=row, node=node, devices=devices) for row in rows), world.promise("b0", "n1"))


def look(world, at=0.0):
    world.committer.feedback.moved_pods.look(making.objects(*world.server.objects.values()), world.time + at)


def shown(world, at=0.0):
    look(world, at)
    return world.committer.feedback.moved_pods.shown(making.objects(*world.server.objects.values()))


def stand_ins(world, at=0.0):
    return [(pod.metadata.name, pod.spec.node_name) for pod in shown(world, at).pods if "~" in pod.metadata.name]


def succeed(world, name="a1", group="a", metadata=OWNED):
    """Let the owner make another pod in the stead of the one that went."""
    world.settle()
    world.server._put(making.pod(name, group=group, requests=ONE, metadata=metadata))


def first(world, awaited=()):
    return world.committer.feedback.moved_pods.served_first(awaited)


def running(name, metadata=OWNED):
    return making.pod(name, group="a", phase="Running", node="n1", requests=ONE, metadata=metadata)


def test_a_promised_place_waits_for_the_successor():
    world = cluster()
    move(world)
    assert stand_ins(world) == [("a0~moved", "n2")]
    snapshot = making.take_snapshot(shown(world), making.NOW)
    (row,) = [row for row, pod in enumerate(snapshot.pods) if pod.name == "a0~moved"]
    assert (snapshot.pod_status[row], snapshot.nodes[snapshot.pod_node[row]].name) == (Status.RUNNING, "n2")
    assert snapshot.groups[snapshot.pod_group[row]].name == "a"
    assert first(world, ("default/b",)) == ("default/b",)
    succeed(world)
    assert stand_ins(world) == []
    assert first(world, ("default/b",)) == ("default/b", "default/a")
    world.server.change("Pod", "a1", "default", {"spec": {"nodeName": "n2"}})
    assert stand_ins(world) == []
    assert first(world) == ()


def test_a_successor_may_have_a_group_of_its_own():
    """A Deployment: each of its pods has a group."""
    world = cluster()
    move(world)
    succeed(world, "other", group="other", metadata={})
    assert stand_ins(world) == [("a0~moved", "n2")]
    succeed(world, "a1", group="")  # no group yet: it can have no place
    assert stand_ins(world) == [("a0~moved", "n2")]
    world.server._put(making.group("a-2"))
    world.server.change("Pod", "a1", "default", {"metadata": {"annotations": {"pod-group-name": "a-2"}}})
    assert stand_ins(world) == []
    assert first(world) == ("default/a-2",)


def test_a_successor_comes_for_one_pod_only():
    world = cluster(running("a9"))
    move(world)
    move(world, names=("a9",))
    succeed(world)
    assert stand_ins(world) == [("a9~moved", "n2")]
    assert stand_ins(world) == [("a9~moved", "n2")]
    succeed(world, "a2")
    assert stand_ins(world) == []
    assert first(world) == ("default/a",)


def test_a_place_is_kept_thirty_seconds_after_leaving():
    world = cluster()
    move(world)
    assert world.committer.feedback.moved_pods.next_due() == world.time + 120.0
    world.settle()
    look(world, 50.0)
    assert world.committer.feedback.moved_pods.next_due() == world.time + 80.0
    assert stand_ins(world, 79.9) == [("a0~moved", "n2")]
    assert stand_ins(world, 80.0) == []
    assert (world.committer.feedback.moved_pods.next_due(), first(world)) == (None, ())


def test_a_place_is_kept_for_two_minutes_at_most():
    world = cluster()
    move(world)
    assert stand_ins(world, 119.9) == [("a0~moved", "n2")]
    assert stand_ins(world, 120.0) == []


def test_a_gangs_places_are_kept_until_its_minimum_came():
    """The place of the first is idle while the second is still to come."""
    world = cluster(running("a9"), least=2)
    move(world, names=("a0", "a9"))
    succeed(world, "a1")
    assert len(stand_ins(world)) == 2
    assert first(world) == ()
    succeed(world, "a2")
    assert stand_ins(world) == []
    assert first(world) == ("default/a",)


def test_an_earlier_pod_may_take_a_successors_place():
    """Served first once more, the group would take the place that another one was promised."""
    world = cluster(making.pod("a9", group="a", requests=ONE, metadata=OWNED))
    move(world)
    succeed(world)
    look(world)
    assert first(world) == ("default/a",)
    world.server.change("Pod", "a9", "default", {"spec": {"nodeName": "n2"}})
    look(world)
    assert first(world) == ()
    world.server.change("Pod", "a9", "default", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    look(world)
    assert first(world) == ()


def test_a_group_does_not_take_another_groups_place():
    """a0 and x0 were moved for b0 and c0: a9, which waited, took the place of a0, and a1 waits for one as x1 does."""
    x = (making.group("x"), making.pod("x0", group="x", phase="Running", node="n3", requests=ONE, metadata=OWNED_BY_X))
    c = (making.group("c"), making.pod("c0", group="c", requests=ONE))
    nodes = (making.node(name, allocatable=ROOM) for name in ("n3", "n4"))
    queue = making.queue("q", resources={"gpu": {"quota": 4, "limit": 4}})
    world = cluster(making.pod("a9", group="a", requests=ONE, metadata=OWNED), *x, *c, *nodes, queue=queue)
    move(world)
    row, node = world.row("x0"), world.snapshot.node_rows["n4"]
    evict = Evict(pod=row, cause=Cause.CONSOLIDATE, moved_to=node, gpus=1000)
    world.decide(evict, Nominate(pod=row, node=node), world.promise("c0", "n3"))
    succeed(world)
    look(world)
    for pod, at in (("a9", "n2"), ("b0", "n1"), ("c0", "n3")):
        world.server.change("Pod", pod, "default", {"spec": {"nodeName": at}})
    assert stand_ins(world) == [("x0~moved", "n4")]
    succeed(world, "x1", "x", metadata=OWNED_BY_X)
    snapshot = making.take_snapshot(shown(world), making.NOW)
    decided = Recorder()
    run_cycle(snapshot.at(making.NOW, 1, Past(awaited=first(world))), make_profile(default_configuration()), decided)
    assert [snapshot.pods[each.pod].name for each in decided.decisions] == ["x1"]


def test_each_earlier_waiting_pod_takes_one_successors_place():
    world = cluster(running("a9"), *(making.pod(f"w{n}", group="a", requests=ONE, metadata=OWNED) for n in range(2)))
    move(world, names=("a0", "a9"))
    for name in ("a1", "a2"):
        succeed(world, name)
    look(world)
    for name, served in (("w0", ("default/a",)), ("w1", ())):
        world.server.change("Pod", name, "default", {"spec": {"nodeName": "n2"}})
        for _ in range(2):
            look(world)
            assert first(world) == served


@pytest.mark.parametrize("name", ["a1", "a9"])
def test_a_place_is_given_once_the_bind_is_ordered(name):
    """The next cycle begins before the order is carried out; a pod of the group waits still."""
    world = cluster(making.pod("a9", group="a", requests=ONE, metadata=OWNED))
    move(world)
    succeed(world)
    look(world)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
    world.server._put(making.bind_request(name, "n2", metadata={"ownerReferences": [owner]}))
    look(world)
    assert first(world) == ()


def test_a_successor_whose_bind_failed_is_first_again():
    world = cluster()
    move(world)
    succeed(world)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a1", "uid": "uid-a1"}
    world.server._put(making.bind_request("a1", "n2", metadata={"ownerReferences": [owner]}))
    look(world)
    assert first(world) == ()
    world.server.change("BindRequest", "a1", "default", {"status": {"phase": "Failed", "failedAttempts": 1}})
    look(world)
    assert first(world) == ("default/a",)


def test_a_pod_succeeds_only_one_moved_pod():
    world = cluster(running("a9"))
    move(world, names=("a0", "a9"))
    world.server._put(making.pod("a1", group="a", requests=ONE, metadata=OWNED))
    assert stand_ins(world) == [("a9~moved", "n2")]
    assert stand_ins(world, 40.0) == [("a9~moved", "n2")]


def test_pods_behind_stand_ins_are_not_shown():
    """They would count as members beyond the least, and places would be taken from others for them."""
    world = cluster(running("a9"), least=2)
    move(world, names=("a0", "a9"))
    succeed(world, "a1")
    assert sorted(pod.metadata.name for pod in shown(world).pods) == ["a0~moved", "a9~moved", "b0"]
    succeed(world, "a2")
    assert sorted(pod.metadata.name for pod in shown(world).pods) == ["a1", "a2", "b0"]


def test_a_successor_that_starts_alone_does_not_wait():
    world = cluster(running("a9"), least=1)
    move(world, names=("a0", "a9"))
    succeed(world, "a9", metadata={**OWNED, "uid": "new"})  # the place of the second of that name is free
    assert stand_ins(world) == [("a0~moved", "n2")]
    assert first(world) == ("default/a",)


@pytest.mark.parametrize(("limit", "binds"), [(2, ["c0"]), (1, [])])
def test_only_the_stand_in_of_a_leaving_pod_counts(limit, binds):
    """As in the cycle that moved it: what is being released is not the queue's any more, what is promised is."""
    more = making.group("c"), making.pod("c0", group="c", requests=ONE), making.node("n3", allocatable=ROOM)
    world = cluster(*more, queue=making.queue("q", resources={"gpu": {"quota": limit, "limit": limit}}))
    move(world)
    world.server.remove("Pod", "b0", "default")
    world.server.change("Pod", "a0", "default", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    snapshot = making.take_snapshot(shown(world), making.NOW)
    status = {pod.name: snapshot.pod_status[row] for row, pod in enumerate(snapshot.pods)}
    assert (status["a0"], status["a0~moved"]) == (Status.RELEASING, Status.RUNNING)
    decided = Recorder()
    run_cycle(snapshot, make_profile(default_configuration()), decided)
    assert [(type(each), snapshot.pods[each.pod].name) for each in decided.decisions] == [(Bind, pod) for pod in binds]


def test_a_moved_pod_keeps_its_promised_share():
    world = cluster(annotations=HALF, labels={"runai-gpu-group": "d1"})
    move(world, "+n2/0")
    (pod,) = [pod for pod in shown(world).pods if "~" in pod.metadata.name]
    grant = grant_of(pod)
    assert (grant.gpus, grant.portion) == (("gpu-0",), 0.5)
    assert "runai-gpu-group" not in pod.metadata.labels
    (devices,) = [
        names for row, names in making.take_snapshot(shown(world), making.NOW).pod_devices.items() if "gpu-0" in names
    ]
    assert devices == ("gpu-0",)


def test_an_ownerless_pods_place_lasts_with_its_group():
    """An operator makes its pods again without being named in them; the group of a pod of no owner is the pod's own."""
    world = cluster(metadata={})
    move(world)
    assert stand_ins(world) == [("a0~moved", "n2")]
    succeed(world, metadata={})
    assert stand_ins(world) == []
    world = cluster(metadata={})
    world.server.change(
        "PodGroup", "a", "default", {"metadata": {"ownerReferences": [{"kind": "Pod", "uid": "uid-a0"}]}}
    )
    look(world)
    move(world)
    assert stand_ins(world) == []


def test_no_place_is_kept_without_eviction_or_term():
    world = cluster()
    world.protected.add("a0")
    move(world)
    world.settle()
    assert stand_ins(world) == []
    world = cluster()
    move(world)
    world.lose()
    assert stand_ins(world) == []


def test_no_place_is_kept_by_an_abandoned_statement():
    world = cluster()
    node = world.snapshot.node_rows["n2"]
    decisions = (Evict(pod=world.row("a0"), cause=Cause.CONSOLIDATE, moved_to=node), world.promise("b0", "n1"))
    world.decide(*decisions)
    world.committer.abandon(Decided(term=world.term, cycle=1, snapshot=world.snapshot, decisions=decisions))
    assert stand_ins(world) == []


def test_without_moved_pods_a_cycle_gets_its_objects_unchanged():
    world = cluster()
    world.decide(world.evict("a0"), world.promise("b0", "n1"))
    objects = making.objects(*world.server.objects.values())
    assert shown(world).pods == objects.pods
    assert MovedPods().shown(objects) is objects


def test_groups_whose_places_are_kept_lose_no_pods_meanwhile():
    world = cluster()
    assert world.committer.feedback.moved_pods.spared(("uid-x",)) == ("uid-x",)
    move(world)
    assert world.committer.feedback.moved_pods.spared(("uid-x",)) == ("uid-a0~moved", "uid-x")
    succeed(world)
    look(world)
    assert world.committer.feedback.moved_pods.spared(("uid-x",)) == ("uid-x",)


def test_unseen_pods_of_a_gang_learn_of_kept_places():
    world = cluster(running("a9"), least=2)
    move(world, names=("a0", "a9"))
    succeed(world, "a1")
    (account,) = accounts(world)
    assert account.condition is None
    assert account.not_ready == (
        "Job is not ready for scheduling. Waiting for 2 pods, currently 1 exist, 0 are gated. "
        "Pods of it were moved; their places on n2 are kept for two minutes at most."
    )
    assert [(pod.name, pod.message, pod.on_pod) for pod in account.pods] == [("a1", account.not_ready, False)]
    succeed(world, "a2")
    assert not any(account.not_ready for account in accounts(world))


def accounts(world):
    """Return what the next cycle tells of group a."""
    given = CycleInput(objects=making.objects(*world.server.objects.values()), now=making.NOW, cycle=1)
    given = world.committer.feedback.applied(given, world.time)
    cycles = Cycles(SchedulerSettings(), make_profile(default_configuration()), lambda: 0.0)
    observer = CycleObserver.begin(no_tracing().tracer, lambda: 0.0, 1)
    done = cycles.run(given, Stream(Term(1, "life"), 1, observer, lambda _: None, lambda: False))
    return [account for account in done.overall.groups if account.name == "a"]
