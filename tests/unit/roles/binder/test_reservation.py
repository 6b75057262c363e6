import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Await, Create, Get, List, Lock, Reason, Refusal, RefusedError, Unlock, every_node
from kai.roles.binder.outcome import BindFailureError, BindVerdict
from kai.roles.binder.reservation import leave_groups, node_key, reservation_name, reservation_pod, reserve_device
from kai.roles.binder.sharers import PodResources, ReservationSettings
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import (
    RESERVED,
    cluster,
    node,
    pod,
    reservation,
    sharing_pod,
    sharing_request,
    try_once,
)

SETTINGS = ReservationSettings(image="reserve:1")


def reserve(server, name="p", group="g1", gate=None, node_name="n1"):
    found = structure_as(Pod, server.get("Pod", name, "ns"))
    return carry_out(reserve_device(found, node_name, group, SETTINGS, gate), server.perform)


def test_the_name_follows_from_node_and_group():
    assert reservation_name("race-node", "race-gpu-group") == "gpu-reservation-f422eb9733f5288b"


def test_a_reservation_pod_always_asks_for_one_gpu():
    more = PodResources(requests={"cpu": "10m", "nvidia.com/gpu": "9"}, limits={"nvidia.com/gpu": "9"})
    settings = ReservationSettings(
        image="reserve:1",
        runtime_class="nvidia",
        resources=more,
        pod_security_context={"runAsNonRoot": True},
        container_security_context={"allowPrivilegeEscalation": False},
    )
    spec = reservation_pod(settings, node="n", group="g")["spec"]
    (container,) = spec["containers"]
    assert container["resources"] == {
        "limits": {"nvidia.com/gpu": "1"},
        "requests": {"cpu": "10m", "nvidia.com/gpu": "1"},
    }
    assert (spec["nodeName"], spec["runtimeClassName"]) == ("n", "nvidia")
    assert spec["securityContext"] == {"runAsNonRoot": True}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False}


def test_what_is_not_configured_is_left_out():
    spec = reservation_pod(SETTINGS, node="n", group="g")["spec"]
    assert spec.keys() == {"nodeName", "serviceAccountName", "containers"}


def test_on_fake_nodes_the_pod_only_sleeps():
    (container,) = reservation_pod(ReservationSettings(fake_gpu_nodes=True), node="n", group="g")["spec"]["containers"]
    assert (container["image"], container["args"]) == ("ubuntu", ["sleep", "infinity"])


def test_a_reservation_pod_copies_the_users_tolerations():
    tolerations = [{"key": "hpc", "operator": "Equal", "value": "true", "effect": "NoExecute"}]
    server = cluster(sharing_pod(tolerations=tolerations))
    reserve(server)
    made = server.get("Pod", reservation_name("n1", "g1"), RESERVED)
    assert made["spec"]["tolerations"] == tolerations


def test_the_second_pod_of_a_group_joins_the_reservation():
    server = cluster(sharing_pod("a"), sharing_pod("b"))
    assert [reserve(server, name)[1] for name in ("a", "b")] == ["GPU-g1", "GPU-g1"]
    assert sum(isinstance(write, Create) for write in server.writes) == 1


def test_a_reservation_no_list_shows_is_found_by_name():
    server = cluster(sharing_pod("a"), sharing_pod("b"))
    reserve(server, "a")
    server.fault = lambda r: () if isinstance(r, List) and r.namespace == RESERVED else None  # an empty list is a reply
    assert reserve(server, "b")[1] == "GPU-g1"
    assert sum(isinstance(write, Create) for write in server.writes) == 1


def test_a_deleted_reservation_in_a_lagging_store_is_recreated():
    server = cluster(sharing_pod(), reservation())
    shown = server.perform(List(cls=Pod, namespace=RESERVED))
    server.remove("Pod", "gpu-reservation-g1", RESERVED)
    server.fault = lambda r: shown if isinstance(r, List) and r.namespace == RESERVED else None
    assert reserve(server)[1] == "GPU-g1"
    assert server.get("Pod", reservation_name("n1", "g1"), RESERVED)


def test_a_reservation_without_its_gpu_yet_is_awaited():
    server = cluster(sharing_pod(), reservation(device=None, phase="Pending"))
    assert reserve(server)[1] == "GPU-g1"
    assert any(isinstance(request, Await) for request in server.requests)


def test_a_silent_reservation_of_others_is_not_deleted():
    server = cluster(sharing_pod(), reservation(device=None), settle=lambda *_: None)
    with pytest.raises(BindFailureError, match="failed waiting for GPU reservation pod"):
        reserve(server)
    assert len(server.names("Pod")) == 2


def test_an_own_reservation_that_stays_silent_is_deleted():
    server = cluster(sharing_pod(), settle=lambda *_: None)
    with pytest.raises(BindFailureError) as caught:
        reserve(server)
    assert caught.value.retryable
    assert server.names("Pod") == ["p"]


def test_an_ended_reservation_is_replaced():
    ended = reservation(phase="Failed", name=reservation_name("n1", "g1"))
    server = cluster(sharing_pod(), ended)
    with pytest.raises(BindFailureError, match="is going away"):
        reserve(server)
    assert reserve(server)[1] == "GPU-g1"


def test_a_group_on_another_node_is_refused():
    server = cluster(sharing_pod(), reservation(node_name="n2"))
    with pytest.raises(BindFailureError, match="GPU group g1 is on node n2, not on n1") as caught:
        reserve(server)
    assert not caught.value.retryable


def test_a_pending_scaling_pod_takes_no_gpu():
    scaling = pod("s", "kai-scale-adjust")
    scaling["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    assert reserve(cluster(sharing_pod(), scaling))[1] == "GPU-g1"


def test_the_node_is_locked_during_check_and_creation():
    server = cluster(sharing_pod())
    seen = []

    def gate():
        seen.append(tuple(server.held))
        yield from ()
        return every_node

    reserve(server, gate=gate)
    assert seen == [("node n1",)]
    assert server.held == []
    assert [r.key for r in server.requests if isinstance(r, Lock)] == ["node n1"]


def test_a_gate_that_refuses_leaves_the_node_free():
    server = cluster(sharing_pod())

    def gate():
        yield from ()
        raise BindFailureError("full", retryable=False)

    with pytest.raises(BindFailureError, match="full"):
        reserve(server, gate=gate)
    assert server.held == []
    assert server.names("Pod") == ["p"]


def test_joining_a_group_twice_writes_once():
    server = cluster(sharing_pod(), reservation())
    reserve(server)
    reserve(server)
    assert len(server.writes) == 1


def test_a_pod_that_was_made_anew_does_not_join():
    server = cluster(sharing_pod(), reservation())
    old = structure_as(Pod, server.get("Pod", "p", "ns"))
    server.change("Pod", "p", "ns", {"metadata": {"uid": "other"}})
    with pytest.raises(RefusedError) as caught:
        carry_out(reserve_device(old, "n1", "g1", SETTINGS), server.perform)
    assert caught.value.reason is Reason.CONFLICT


def test_leaving_takes_only_the_labels_of_groups():
    labels = {"app": "x", "runai-gpu-group": "g", "runai-gpu-group/a": "a"}
    server = cluster(pod(labels=labels))
    left = carry_out(leave_groups(structure_as(Pod, server.get("Pod", "p", "ns"))), server.perform)
    assert dict(left.metadata.labels) == {"app": "x"}
    assert carry_out(leave_groups(left), server.perform) is left
    assert len(server.writes) == 1


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_reservation_with_a_lost_answer_is_found(is_patient):
    """The store of the next bind would lack it until the watch brings it."""
    server = cluster(node(gpus=1), sharing_pod(), sharing_request())
    server.lost = lambda request: isinstance(request, Create) and request.ref.cls is Pod
    assert try_once(server, patient=is_patient).verdict is BindVerdict.BOUND
    (made,) = [place for place, each in enumerate(server.requests) if isinstance(each, Create) and each.ref.cls is Pod]
    known, freed = server.requests[made + 1 : made + 3]
    assert known == Get(ref=server.requests[made].ref, fresh=True)
    assert freed == Unlock(key=node_key("n1"))


def test_a_bind_with_unknown_reservation_outcome_is_retried():
    server = cluster(node(gpus=1), sharing_pod(), sharing_request())
    server.fault = lambda r: Refusal(reason=Reason.UNKNOWN) if isinstance(r, Create) and r.ref.cls is Pod else None
    assert try_once(server).verdict is BindVerdict.INTERRUPTED
    assert server.get("BindRequest", "p", "ns")["status"] == {}
    server.fault = lambda _: None
    assert try_once(server).verdict is BindVerdict.BOUND
