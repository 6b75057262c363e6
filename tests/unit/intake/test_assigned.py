import pytest

from kai.api.values import instant_text
from kai.facts.model.pod import Status
from tests.unit.intake.making import NOW, bind_request, group, node, pod, taken

EARLIER = instant_text(NOW - 100)
LONG_AGO = instant_text(NOW - 300)


def status_of(*manifests, **settings) -> str:
    return Status(int(taken(*manifests, **settings).pod_status[0])).label


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (pod("a"), "Pending"),
        (pod("a", phase=""), "Pending"),
        (pod("a", spec={"schedulingGates": [{"name": "quota"}]}), "Gated"),
        (pod("a", node="n"), "Bound"),
        (pod("a", node="n", spec={"schedulingGates": [{"name": "quota"}]}), "Bound"),
        (pod("a", phase="Running", node="n"), "Running"),
        (pod("a", phase="Running", node="n", metadata={"deletionTimestamp": EARLIER}), "Releasing"),
        (pod("a", phase="Running", node="n", metadata={"deletionTimestamp": LONG_AGO}), "StuckInReleasing"),
        (pod("a", node="n", metadata={"deletionTimestamp": LONG_AGO}), "Releasing"),
        (pod("a", phase="Succeeded", node="n"), "Succeeded"),
        (pod("a", phase="Failed", node="n"), "Failed"),
        (pod("a", phase="Unknown", node="n"), "Unknown"),
    ],
)
def test_the_status_follows_from_phase_deletion_node_and_gates(made, status):
    assert status_of(made, node("n")) == status


def test_a_pod_is_stuck_only_after_the_threshold():
    leaving = pod("a", phase="Running", node="n", metadata={"deletionTimestamp": EARLIER})
    assert status_of(leaving, stuck_in_releasing_seconds=100.0) == "Releasing"
    assert status_of(leaving, stuck_in_releasing_seconds=99.0) == "StuckInReleasing"


def test_a_bind_request_makes_a_waiting_pod_binding():
    snapshot = taken(pod("a"), node("m"), node("n"), bind_request("a", "n"))
    assert Status(int(snapshot.pod_status[0])) == Status.BINDING
    assert snapshot.nodes[snapshot.pod_node[0]].name == "n"
    assert snapshot.pods[0].bind_request == "a"


def test_a_pods_node_precedes_that_of_its_bind_request():
    snapshot = taken(pod("a", node="m"), node("m"), node("n"), bind_request("a", "n"))
    assert Status(int(snapshot.pod_status[0])) == Status.BOUND
    assert snapshot.nodes[snapshot.pod_node[0]].name == "m"


def test_a_pod_on_an_unknown_node_has_no_row():
    assert taken(pod("a", phase="Running", node="elsewhere"), node("n")).pod_node.tolist() == [-1]


def test_a_sharing_pod_holds_the_devices_of_its_labels():
    labels = {"runai-gpu-group": "g2", "runai-gpu-group/g1": "g1"}
    running = pod("a", phase="Running", node="n", labels=labels, annotations={"gpu-fraction": "0.5"})
    assert taken(running, node("n")).pod_devices == {0: ("g1", "g2")}


def test_the_devices_of_a_bind_request_count_before_labels():
    waiting = pod("a", labels={"runai-gpu-group": "old"}, annotations={"gpu-memory": "100"})
    request = bind_request("a", "n", spec={"selectedGPUGroups": ["new"]})
    assert taken(waiting, node("n"), request).pod_devices == {0: ("new",)}


def test_what_was_granted_counts_before_a_bind_request():
    grant = {"kai.scheduler/granted": '{"gpus":["granted"],"portion":0.5}'}
    request = bind_request("a", "n", spec={"selectedGPUGroups": ["another"]})
    assert taken(pod("a", node="n", annotations=grant), node("n"), request).pod_devices == {0: ("granted",)}


def granted(group_):
    return {"annotations": {"kai.scheduler/granted": f'{{"queue":"q","group":"{group_}"}}'}}


def test_a_binding_pod_is_in_its_requests_group():
    waiting, named = pod("a"), pod("b", group="other", labels={"kai.scheduler/subgroup-name": "right"})
    orders = [bind_request(name, "n", metadata=granted("g")) for name in ("a", "b")]
    groups = group("g", subGroups=[{"name": "left"}, {"name": "right"}]), group("other")
    snapshot = taken(waiting, named, node("n"), *groups, *orders)
    assert snapshot.pod_group.tolist() == [0, 0]
    assert snapshot.pod_subgroup.tolist() == [-1, 2]  # the first names none of its sub-groups
    assert [each.group for each in snapshot.pods] == ["g", "g"]


@pytest.mark.parametrize(
    ("made", "request_"),
    [
        (pod("a", group="g"), bind_request("a", "n")),
        (pod("a", group="g"), bind_request("a", "n", metadata={"annotations": {"kai.scheduler/granted": "nonsense"}})),
        (pod("a", group="g"), bind_request("a", "n", metadata=granted("other"), status={"phase": "Failed"})),
        (pod("a", group="g", node="n"), bind_request("a", "n", metadata=granted("other"))),
    ],
)
def test_a_bind_request_without_grant_leaves_a_pod_grouped(made, request_):
    snapshot = taken(made, node("n"), group("g"), group("other"), request_)
    assert snapshot.groups[snapshot.pod_group[0]].name == "g"


def test_a_pod_binding_for_a_deleted_group_has_none():
    request = bind_request("a", "n", metadata=granted("gone"))
    assert taken(pod("a", group="g"), node("n"), group("g"), request).pod_group.tolist() == [-1]


def owned(uid):
    return {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid}]}


def test_a_bind_request_of_an_earlier_pod_is_ignored():
    old = bind_request("a", "n", metadata=owned("uid-of-the-past"), status={"phase": "Succeeded"})
    snapshot = taken(pod("a"), node("n"), old)
    assert Status(int(snapshot.pod_status[0])) == Status.PENDING
    assert snapshot.pods[0].bind_request == ""


def test_a_foreign_bind_request_does_not_hide_the_own():
    own = bind_request("a", "n", metadata=owned("uid-a"))
    foreign = bind_request("z", "m", metadata=owned("another"), spec={"podName": "a"})
    snapshot = taken(pod("a"), node("m"), node("n"), foreign, own)
    assert snapshot.nodes[snapshot.pod_node[0]].name == "n"


def test_waiting_pods_and_whole_gpu_pods_hold_no_devices():
    labels = {"runai-gpu-group": "g"}
    waiting = pod("a", labels=labels, annotations={"gpu-fraction": "0.5"})
    whole = pod("b", phase="Running", node="n", labels=labels, requests={"nvidia.com/gpu": "1"})
    assert taken(waiting, whole, node("n")).pod_devices == {}


def test_reservation_pods_are_known_by_label_and_namespace():
    label, where = {"app": "kai-resource-reservation"}, {"namespace": "kai-resource-reservation"}
    reservation = pod("r", labels=label, metadata=where)
    labelled, beside = pod("a", labels=label), pod("b", metadata=where)
    snapshot = taken(labelled, reservation, beside)
    assert [each.name for each in snapshot.pods] == ["a", "b", "r"]
    assert snapshot.pod_reservation.tolist() == [False, False, True]
    assert taken(reservation, reservation_app="another").pod_reservation.tolist() == [False]
    assert taken(labelled, reservation_namespace="default").pod_reservation.tolist() == [True]


def test_a_pod_that_another_scheduler_bound_shares_no_device():
    labels, half = {"runai-gpu-group": "g"}, {"gpu-fraction": "0.5"}
    foreign = pod("a", node="n", phase="Running", labels=labels, annotations=half, spec={"schedulerName": "another"})
    snapshot = taken(foreign, node("n"))
    assert snapshot.pod_devices == {}
    assert snapshot.shapes[snapshot.pod_shape[0]].request == (("pods", 1),)
    assert taken(foreign, node("n"), scheduler_name="another").pod_devices == {0: ("g",)}


def test_a_grant_is_believed_whatever_scheduler_the_pod_names():
    grant = {"kai.scheduler/granted": '{"gpus":["g"],"portion":0.5}'}
    assert taken(pod("a", node="n", annotations=grant, spec={"schedulerName": "b"}), node("n")).pod_devices == {
        0: ("g",)
    }


def test_a_waiting_pod_of_another_scheduler_keeps_its_request():
    waiting = pod("a", annotations={"gpu-fraction": "0.5"}, spec={"schedulerName": "another"})
    (shape,) = taken(waiting).shapes
    assert shape.gpu.shared


def test_a_finished_pod_keeps_its_group_and_requests_nothing():
    done = pod("a", group="g", phase="Succeeded", node="n", requests={"cpu": "4"}, spec={"nodeSelector": {"x": "y"}})
    snapshot = taken(done, node("n"), group("g"))
    assert snapshot.pod_group.tolist() == [0]
    assert snapshot.shapes[0].request == (("pods", 1),)
    assert snapshot.shapes[0].constraints.node_selector == ()


def test_a_pods_time_priority_uid_and_pool_are_read():
    made = pod(
        "a", metadata={"creationTimestamp": EARLIER}, spec={"priority": 7}, labels={"kai.scheduler/node-pool": "x"}
    )
    found = taken(made).pods[0]
    assert (found.created, found.priority, found.uid, found.node_pool) == (NOW - 100, 7, "uid-a", "x")
