import attrs
import numpy as np
import pytest

from kai.api.conventions.binding import Grant
from kai.intake import Intake, IntakeSettings, take_snapshot
from tests.unit.intake.making import NOW, group, node, objects, picture, pod, queue, taken

QUEUES = (queue("q"), queue("r"))


def granted(name="a", phase="Running", since="1970-01-10T00:00:00Z", grant=None, **fields):
    """Make a pod that was bound on the account of queue q, for group g."""
    grant = Grant(queue="q", group="g") if grant is None else grant
    annotations = {"kai.scheduler/granted": grant.text}
    status = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]}
    return pod(name, phase=phase, annotations=annotations, status=status, **{"group": "g", "node": "n", **fields})


def test_running_pods_of_a_deleted_group_charge_its_queue():
    snapshot = taken(granted(), node("n"), *QUEUES)
    (made,) = snapshot.groups
    assert (made.name, made.namespace, made.queue) == ("g", "default", "q")
    assert (snapshot.pod_group.tolist(), snapshot.pod_subgroup.tolist()) == ([0], [1])
    assert snapshot.queues[made.queue_row].name == "q"


def test_a_stand_in_group_is_preemptible_without_minimum():
    (made,) = taken(granted(spec={"priority": 1000}), node("n"), *QUEUES).groups
    assert made.preemptible
    assert [each.minimum for each in made.subgroups if each.leaf] == [0]


def test_no_waiting_pod_starts_in_a_deleted_group():
    snapshot = taken(granted(), pod("b", group="g"), node("n"), *QUEUES)
    assert snapshot.groups[0].held
    assert (snapshot.pod_group.tolist(), snapshot.pod_subgroup.tolist()) == ([0, 0], [1, -1])


def test_a_deleted_groups_subgroups_do_not_matter():
    snapshot = taken(granted(labels={"kai.scheduler/subgroup-name": "workers"}), node("n"), *QUEUES)
    assert snapshot.pod_subgroup.tolist() == [1]


@pytest.mark.parametrize(
    "other",
    [
        granted(phase="Succeeded"),
        granted(phase="Failed"),
        granted(node="", phase="Pending"),
        pod("a", group="g", phase="Running", node="n"),
        granted(group="", grant=Grant(queue="q")),
    ],
    ids=["succeeded", "failed", "unbound", "without grant", "without group"],
)
def test_pods_without_grant_get_no_stand_in_group(other):
    assert taken(other, node("n"), *QUEUES).groups == ()


def test_a_group_of_another_namespace_is_not_theirs():
    elsewhere = group("g", queue="r", metadata={"namespace": "elsewhere"})
    snapshot = taken(granted(), elsewhere, node("n"), *QUEUES)
    assert [(each.namespace, each.queue) for each in snapshot.groups] == [("default", "q"), ("elsewhere", "r")]
    assert snapshot.pod_group.tolist() == [0]


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_the_first_bound_pod_decides_a_stand_in_queue(first, second):
    late = granted(second, since="1970-01-11T00:00:00Z", grant=Grant(queue="r", group="g"))
    (made,) = taken(granted(first), late, node("n"), *QUEUES).groups
    assert made.queue == "q"


def test_a_group_stands_in_where_its_pods_were_granted():
    elsewhere = granted(grant=Grant(queue="q", pool="p", group="g"))
    assert taken(elsewhere, node("n"), *QUEUES).groups == ()
    in_pool = queue("q", metadata={"labels": {"kai.scheduler/node-pool": "p"}})
    (made,) = taken(elsewhere, in_pool, node_pool="p").groups
    assert (made.queue, made.node_pool) == ("q", "p")


def test_groups_come_and_go_beside_those_that_stand_in():
    mine, others = group("g", queue="q"), [group(f"g{number}") for number in range(5)]
    more = granted("b", grant=Grant(queue="r", group="h"))
    running = granted()
    intake, made = Intake(), {}
    for manifests in [
        (running, mine),
        (running,),
        (running,),
        (running, more),
        (running, more, mine),
        (more, mine),
        (running,),
        (),
        (running, queue("s")),
    ]:
        taken_of = objects(*manifests, *others, node("n"), *QUEUES)
        # What did not change is the same object again, as it is with a watch.
        same = {
            field: tuple(made.setdefault(repr(attrs.astuple(each)), each) for each in getattr(taken_of, field))
            for field in ("pods", "pod_groups")
        }
        taken_of = attrs.evolve(taken_of, **same)
        snapshot = intake.take(taken_of, NOW)
        assert picture(snapshot) == picture(take_snapshot(taken_of, NOW, IntakeSettings()))
        assert np.all(snapshot.pod_group >= 0)
