"""Places of pods that were moved: kept until their successors come, and then given to those."""

from kai.api.grants import grant_of
from kai.framework.decisions import Cause, Evict, Nominate
from kai.model.status import Status
from kai.scheduler.moved import Moved
from tests.unit.intake import making
from tests.unit.scheduler.world import World

OWNED = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]}
ONE = {"nvidia.com/gpu": "1"}
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "1"}
HALF = {"gpu-fraction": "0.5", "kai.scheduler/granted": '{"queue":"q","group":"a","gpus":["d1"],"portion":0.5}'}


def cluster(*more, metadata=OWNED, **body):
    """A pod of group ``a`` runs on n1, for which group ``b`` waits; n2 is idle."""
    moved = making.pod("a0", group="a", phase="Running", node="n1", metadata=metadata, **(body or {"requests": ONE}))
    waits = making.pod("b0", group="b", requests=ONE)
    groups = making.group("a"), making.group("b")
    nodes = (making.node(name, allocatable=ROOM) for name in ("n1", "n2"))
    world = World(making.queue("q"), *groups, *nodes, moved, waits, *more)
    world.lead()
    return world


def move(world, *devices):
    """Move a0 to n2, for the good of b0."""
    node = world.snapshot.node_rows["n2"]
    evict = Evict(pod=world.row("a0"), cause=Cause.CONSOLIDATE, moved_to=node, gpus=1000)
    world.decide(evict, Nominate(pod=world.row("a0"), node=node, devices=devices), world.promise("b0", "n1"))


def shown(world, at=0.0):
    objects = making.objects(*world.server.objects.values())
    return world.committer.moved.shown(objects, world.time + at)


def stand_ins(world, at=0.0):
    return [(pod.metadata.name, pod.spec.node_name) for pod in shown(world, at).pods if "~" in pod.metadata.name]


def succeed(world, name="a1"):
    """Let the owner make another pod in the stead of the one that went."""
    world.settle()
    world.server._put(making.pod(name, group="a", requests=ONE, metadata=OWNED))


def test_the_place_that_a_moved_pod_was_promised_is_taken_until_its_successor_comes_which_is_served_first_then():
    world = cluster()
    move(world)
    assert stand_ins(world) == [("a0~moved", "n2")]
    snapshot = making.take_snapshot(shown(world), making.NOW)
    (row,) = [row for row, pod in enumerate(snapshot.pods) if pod.name == "a0~moved"]
    assert (snapshot.pod_status[row], snapshot.nodes[snapshot.pod_node[row]].name) == (Status.RUNNING, "n2")
    assert snapshot.groups[snapshot.pod_group[row]].name == "a"
    assert world.committer.moved.served_first(("default/b",)) == ("default/b",)
    succeed(world)
    assert stand_ins(world) == []
    assert world.committer.moved.served_first(("default/b",)) == ("default/b", "default/a")
    world.server.change("Pod", "a1", "default", {"spec": {"nodeName": "n2"}})
    assert stand_ins(world) == []
    assert world.committer.moved.served_first(()) == ()


def test_a_place_is_kept_for_half_a_minute_and_a_cycle_follows_then():
    world = cluster()
    move(world)
    assert world.committer.moved.next_due() == 30.0
    assert stand_ins(world, 29.9) == [("a0~moved", "n2")]
    assert stand_ins(world, 30.0) == []
    assert (world.committer.moved.next_due(), world.committer.moved.served_first(())) == (None, ())


def test_the_places_of_pods_of_one_statement_are_kept_until_all_successors_have_come():
    """A gang starts as a whole: the place of the first is idle while the second is still to come."""
    second = making.pod("a9", group="a", phase="Running", node="n1", requests=ONE, metadata=OWNED)
    world = cluster(second)
    node = world.snapshot.node_rows["n2"]
    rows = [world.row(name) for name in ("a0", "a9")]
    world.decide(*(Evict(pod=row, cause=Cause.CONSOLIDATE, moved_to=node) for row in rows))
    succeed(world, "a1")
    assert len(stand_ins(world)) == 2
    succeed(world, "a2")
    assert stand_ins(world) == []


def test_a_moved_pod_keeps_its_share_of_the_device_that_it_was_promised():
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


def test_the_place_of_a_pod_that_names_no_owner_is_kept_too():
    """An operator makes its pods again without being named in them."""
    world = cluster(metadata={})
    move(world)
    assert stand_ins(world) == [("a0~moved", "n2")]


def test_no_place_is_kept_for_a_pod_that_stays_or_once_the_term_is_over():
    world = cluster()
    world.protected.add("a0")
    move(world)
    world.settle()
    assert stand_ins(world) == []
    world = cluster()
    move(world)
    world.lose()
    assert stand_ins(world) == []


def test_where_nothing_was_moved_cycles_are_given_what_there_is():
    world = cluster()
    world.decide(world.evict("a0"), world.promise("b0", "n1"))
    objects = making.objects(*world.server.objects.values())
    assert world.committer.moved.shown(objects, world.time) is objects
    assert Moved().shown(objects, 0.0) is objects
