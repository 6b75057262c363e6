"""What nodes refused is remembered until something there makes room, or for a while, a little longer each time."""

import pytest

from kai.facts.model.placement import NoRoom
from kai.roles.scheduler.feedback.refusals import MOST, NodeRefusals
from tests.unit.intake import making

NODE = making.node("n1", allocatable={"nvidia.com/gpu": "4"})
WAITING = making.pod("p")
SHARING = making.pod("user", node="n1", phase="Running", labels={"runai-gpu-group": "g1"})


def refusal(uid="uid-p", node="n1", reason="node n1 has 0 of nvidia.com/gpu left, the pod needs 1"):
    return NoRoom(namespace="default", pod=uid.removeprefix("uid-"), uid=uid, node=node, reason=reason)


def current(refused, *manifests, now=0.0):
    objects = making.objects(*manifests)
    return refused.current(objects.nodes, objects.pods, now)


def noted(*refusals):
    refused = NodeRefusals()
    for each in refusals:
        refused.note(each, 0.0)
    return refused


def test_nothing_was_refused_at_first():
    assert current(NodeRefusals(), NODE, WAITING) == ()
    assert NodeRefusals().next_due(0.0) is None


def test_the_pause_doubles_per_refusal_up_to_a_maximum():
    refused, pauses = NodeRefusals(), []
    for count in range(1, 9):
        assert refused.note(refusal(), 0.0) == count
        pauses.append(refused.next_due(0.0))
    assert pauses[:4] == [15.0, 30.0, 60.0, 120.0]
    assert pauses[-1] == 600.0


def test_a_refusal_stands_for_its_growing_pause():
    refused = noted(refusal())
    assert current(refused, NODE, WAITING, now=14.0) == (refusal(),)
    assert current(refused, NODE, WAITING, now=15.0) == ()
    refused.note(refusal(), 15.0)
    assert refused.next_due(15.0) == 45.0
    assert current(refused, NODE, WAITING, now=5000.0) == ()
    assert refused.note(refusal(), 5000.0) == 1


ROOM = {
    "the pod that was there is gone": [NODE, WAITING],
    "the pod that was there has ended": [NODE, WAITING, making.pod("user", node="n1", phase="Failed")],
    "a device has lost a user": [NODE, WAITING, making.pod("user", node="n1", phase="Running")],
    "the node has more": [making.node("n1", allocatable={"nvidia.com/gpu": "8"}), WAITING, SHARING],
    "the node lost a taint": [making.node("n1", allocatable={}, spec={"unschedulable": True}), WAITING, SHARING],
    "the node is gone": [WAITING, SHARING],
    "the pod is gone": [NODE, SHARING],
    "the pod has a node": [NODE, making.pod("p", node="n2"), SHARING],
}


@pytest.mark.parametrize("after", ROOM.values(), ids=ROOM)
def test_a_refusal_is_forgotten_when(after):
    refused = noted(refusal())
    assert current(refused, NODE, WAITING, SHARING) == (refusal(),)
    assert current(refused, *after, now=1.0) == ()
    assert current(refused, NODE, WAITING, SHARING, now=2.0) == ()


def test_more_pods_a_heartbeat_and_reservations_make_no_room():
    refused = noted(refusal())
    where = {"namespace": "kai-resource-reservation"}
    reservation = making.pod("r", node="n1", labels={"app": "kai-resource-reservation"}, metadata=where)
    assert current(refused, NODE, WAITING, SHARING, reservation)
    beaten = making.node("n1", allocatable={"nvidia.com/gpu": "4"}, status={"conditions": []})
    another = making.pod("another", node="n1", phase="Running")
    assert current(refused, beaten, WAITING, SHARING, another, now=1.0)
    assert current(refused, NODE, WAITING, SHARING, now=2.0) == ()  # one that came later has left


def test_a_leaving_pod_labelled_as_reservation_makes_room():
    refused = noted(refusal())
    named = making.pod("named", node="n1", labels={"app": "kai-resource-reservation"})
    assert current(refused, NODE, WAITING, named)
    assert current(refused, NODE, WAITING, now=1.0) == ()


def test_edited_and_foreign_labels_free_no_device():
    grant = {"kai.scheduler/granted": '{"gpus":["g1"],"portion":0.5}'}
    foreign = {"schedulerName": "another"}
    refused, labels = noted(refusal()), {"runai-gpu-group": "g1"}
    sharing = making.pod("user", node="n1", labels=labels, annotations=grant)
    stranger = making.pod("stranger", node="n1", labels=labels, spec=foreign)
    assert current(refused, NODE, WAITING, sharing, stranger)
    unlabelled = making.pod("user", node="n1", annotations=grant), making.pod("stranger", node="n1", spec=foreign)
    assert current(refused, NODE, WAITING, *unlabelled, now=1.0)


def test_refusals_are_ordered_and_the_oldest_are_dropped_first():
    assert current(noted(refusal(node="n2"), refusal()), NODE, making.node("n2"), WAITING) == (
        refusal(),
        refusal(node="n2"),
    )
    refused = noted(*(refusal(f"uid-p{number}") for number in range(MOST + 1)))
    found = current(refused, NODE, making.pod("p0"), making.pod("p1"))
    assert [each.uid for each in found] == ["uid-p1"]


def test_a_reason_is_kept_on_one_line_and_cut():
    (found,) = current(noted(refusal(reason="no\nroom " + "x" * 1000)), NODE, WAITING)
    assert found.reason.startswith("no room x")
    assert len(found.reason) == 300
