import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, Delete, Get, List, Patch, Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder import BindVerdict
from kai.roles.binder.attempt import attempt
from kai.roles.binder.bind import bind
from kai.roles.binder.outcome import BindFailureError
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import (
    BINDER,
    RESERVED,
    bind_request,
    cluster,
    device_plugin,
    node,
    pod,
    reservation,
    sharing_pod,
    sharing_request,
    try_once,
)


def status(server, name="p"):
    return server.get("BindRequest", name, "ns")["status"]


def node_of(server, name="p"):
    return server.get("Pod", name, "ns")["spec"].get("nodeName")


def condition(server, name="p"):
    (found,) = [c for c in server.get("Pod", name, "ns")["status"]["conditions"] if c["type"] == "PodBound"]
    return found


# --- How it ends -------------------------------------------------------------------------------------------------


def test_a_pod_is_bound_and_everybody_told():
    server = cluster(node(), pod(), bind_request())
    outcome = try_once(server)
    assert outcome.verdict is BindVerdict.BOUND
    assert node_of(server) == "n1"
    assert server.get("Pod", "p", "ns")["metadata"]["annotations"] == {
        "received-resource-type": "Regular",
        "kai.scheduler/granted": "{}",
    }
    assert status(server) == {"phase": "Succeeded"}
    assert (condition(server)["status"], condition(server)["reason"]) == ("True", "Bound")
    assert [(event.type, event.reason) for event in server.events] == [("Normal", "Bound")]


def test_a_bind_of_a_whole_gpu_costs_three_writes():
    server = cluster(node(), pod(requests={"nvidia.com/gpu": "1"}), bind_request())
    try_once(server)
    assert [type(write) for write in server.writes] == [Bind, Patch, Patch]


def test_the_binding_names_the_pods_uid_and_version():
    server = cluster(node(), pod(), bind_request())
    version = server.get("Pod", "p", "ns")["metadata"]["resourceVersion"]
    try_once(server)
    assert (server.writes[0].uid, server.writes[0].resource_version) == ("uid-ns-p", version)


def test_a_sharing_pod_gets_gpu_label_and_config_maps():
    server = cluster(node(), sharing_pod(), sharing_request())
    assert try_once(server).verdict is BindVerdict.BOUND
    metadata = server.get("Pod", "p", "ns")["metadata"]
    assert metadata["labels"] == {"runai-gpu-group": "g1"}
    assert metadata["annotations"]["received-resource-type"] == "Fraction"
    assert server.get("ConfigMap", "p-abc1234-shared-gpu-0", "ns")["data"]["GPU_PORTION"] == "0.50"
    assert server.get("ConfigMap", "p-abc1234-shared-gpu-0-evar", "ns")["data"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-g1"}
    assert len([name for name in server.names("Pod") if name.startswith("gpu-reservation")]) == 1


def test_a_multi_gpu_pod_joins_groups_in_request_order():
    server = cluster(node(), sharing_pod(devices=2), sharing_request(groups=("b", "a")))
    assert try_once(server).verdict is BindVerdict.BOUND
    assert server.get("Pod", "p", "ns")["metadata"]["labels"] == {"runai-gpu-group/a": "a", "runai-gpu-group/b": "b"}
    visible = server.get("ConfigMap", "p-abc1234-shared-gpu-0-evar", "ns")["data"]["NVIDIA_VISIBLE_DEVICES"]
    assert visible == "GPU-b,GPU-a"


def test_the_predicted_numa_zones_are_written_with_the_binding():
    zones = [{"zone": "node-1", "amount": {"memory": "1Gi", "cpu": "8"}}]
    server = cluster(node(), pod(), bind_request(predictedNUMAZones=zones))
    try_once(server)
    annotations = server.get("Pod", "p", "ns")["metadata"]["annotations"]
    expected = '[{"zone":"node-1","amount":{"cpu":"8","memory":"1Gi"}}]'
    assert annotations["kai.scheduler/numa-placement-predicted"] == expected


@pytest.mark.parametrize(
    "request_status",
    [{"phase": "Succeeded"}, {"phase": "Failed", "failedAttempts": 1}, {"phase": "Failed"}],
)
def test_a_finished_request_is_left_alone(request_status):
    server = cluster(node(), pod(), bind_request(status=request_status))
    assert try_once(server).verdict is BindVerdict.NOTHING_TO_DO
    assert server.writes == []


def test_a_missing_or_deleting_request_is_left_alone():
    going = bind_request()
    going["metadata"]["deletionTimestamp"] = "2023-01-01T00:00:00Z"
    for server in (cluster(node(), pod()), cluster(node(), pod(), going)):
        assert try_once(server).verdict is BindVerdict.NOTHING_TO_DO
        assert server.writes == []


def test_a_fraction_bind_without_gpu_groups_is_refused():
    server = cluster(node(), sharing_pod(), sharing_request(groups=()))
    found = [server._read(ref) for ref in (Ref(BindRequest, "p", "ns"), Ref(Pod, "p", "ns"), Ref(Node, "n1"))]
    with pytest.raises(BindFailureError, match="names no GPU groups"):
        carry_out(bind(BINDER, *found), server.perform)
    assert server.writes == []


def test_a_fraction_without_gpu_groups_is_deleted():
    server = cluster(node(), sharing_pod(), sharing_request(groups=()))
    assert try_once(server).verdict is BindVerdict.NOTHING_TO_DO
    assert server.names("BindRequest") == []


# --- Who must not be bound ---------------------------------------------------------------------------------------


def recreated(server):
    server.remove("Pod", "p", "ns")
    server._put(pod(uid="another"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.change("Pod", "p", "ns", {"spec": {"schedulingGates": [{"name": "wait"}]}}), "gates (wait)"),
        (lambda s: s.change("Pod", "p", "ns", {"spec": {"nodeName": "n2"}}), "is bound to node n2 already"),
        (lambda s: s.remove("Node", "n1"), "node n1 does not exist"),
        (lambda s: s.change("Node", "n1", "", {"spec": {"unschedulable": True}}), "has taint node.kubernetes.io"),
        (
            lambda s: s.change("Node", "n1", "", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}),
            "has taint k:NoExecute",
        ),
        (lambda s: s.change("Node", "n1", "", {"status": {"allocatable": {"cpu": "500m"}}}), "has 500m of cpu left"),
        (lambda s: s.change("Node", "n1", "", {"status": {"allocatable": {"pods": "0"}}}), "0 of pods left"),
    ],
)
def test_a_change_since_the_decision_fails_the_request_finally(change, message):
    server = cluster(node(), pod(), bind_request(limit=3))
    change(server)
    outcome = try_once(server)
    assert outcome.verdict is BindVerdict.FAILED
    assert message in status(server)["reason"]
    assert status(server) == {"phase": "Failed", "reason": status(server)["reason"], "failedAttempts": 3}
    assert not any(isinstance(write, Bind) for write in server.writes)


def test_a_namesake_or_moved_pod_gets_no_event():
    for change in (recreated, lambda s: s.change("Pod", "p", "ns", {"spec": {"nodeName": "n2"}})):
        server = cluster(node(), pod(), bind_request())
        change(server)
        try_once(server)
        assert [type(write) for write in server.writes] == [Patch]
        assert server.events == []


def test_two_pods_never_both_get_the_last_gpu():
    gpu = {"nvidia.com/gpu": "1"}
    server = cluster(
        node(gpus=1),
        pod("a", requests=gpu),
        pod("b", requests=gpu),
        bind_request("a"),
        bind_request("b"),
    )
    assert try_once(server, "a").verdict is BindVerdict.BOUND
    assert try_once(server, "b").verdict is BindVerdict.FAILED
    assert "has 0 of nvidia.com/gpu left, the pod needs 1" in status(server, "b")["reason"]


def test_a_third_half_does_not_fit_on_one_gpu():
    names = ("a", "b", "c")
    server = cluster(node(), *map(sharing_pod, names), *(sharing_request(name) for name in names))
    assert [try_once(server, name).verdict for name in names] == [
        BindVerdict.BOUND,
        BindVerdict.BOUND,
        BindVerdict.FAILED,
    ]
    assert "GPU group g1 on node n1 would hold 1.50 of a GPU" in status(server, "c")["reason"]


def test_shrinking_the_annotation_of_a_bound_pod_frees_nothing():
    names = ("a", "b", "c")
    server = cluster(node(), *map(sharing_pod, names), *(sharing_request(name) for name in names))
    try_once(server, "a")
    try_once(server, "b")
    for name in ("a", "b"):
        server.change("Pod", name, "ns", {"metadata": {"annotations": {"gpu-fraction": "0.01"}}})
    assert try_once(server, "c").verdict is BindVerdict.FAILED


def test_a_node_losing_gpus_during_a_bind_reserves_none():
    server = cluster(node(gpus=1), sharing_pod(), sharing_request())

    def lose(request):
        if isinstance(request, List):  # the bind has read its node by then
            server.change("Node", "n1", "", {"status": {"allocatable": {"nvidia.com/gpu": "0"}}})

    server.fault = lose
    assert try_once(server).verdict is BindVerdict.FAILED
    assert "has no GPU left to be shared" in status(server)["reason"]
    assert not any(isinstance(write, Create) for write in server.writes)


def test_no_gpu_is_reserved_on_a_full_node():
    holder = pod("holder", requests={"nvidia.com/gpu": "1"}, phase="Running", nodeName="n1")
    server = cluster(node(gpus=1), holder, sharing_pod(), sharing_request())
    assert try_once(server).verdict is BindVerdict.FAILED
    assert "has no GPU left to be shared" in status(server)["reason"]
    assert not any(isinstance(write, Create) for write in server.writes)


# --- When it fails -----------------------------------------------------------------------------------------------


def silent(server, request):
    """A device plugin that gives nothing."""


def test_a_failed_bind_leaves_nothing_behind():
    server = cluster(node(), sharing_pod(), sharing_request(limit=5))
    server.fault = lambda r: (
        Refusal(reason=Reason.REJECTED, message="a webhook says no") if isinstance(r, Bind) else None
    )
    outcome = try_once(server)
    assert outcome.verdict is BindVerdict.FAILED
    assert outcome.leftovers == ()
    assert server.names("ConfigMap") == []
    assert server.names("Pod") == ["p"]
    assert server.get("Pod", "p", "ns")["metadata"]["labels"] == {}
    assert "a webhook says no" in status(server)["reason"]
    assert condition(server)["message"].startswith("Failed to bind pod ns/p to node n1: ")
    assert [(event.type, event.reason) for event in server.events] == [("Warning", "BindingError")]


def test_a_reservation_that_others_use_survives_a_failed_bind():
    server = cluster(node(), sharing_pod("a"), sharing_pod("b"), sharing_request("a"), sharing_request("b"))
    try_once(server, "a")
    server.fault = lambda r: Refusal(reason=Reason.REJECTED) if isinstance(r, Bind) else None
    assert try_once(server, "b").verdict is BindVerdict.FAILED
    assert len(server.names("Pod")) == 3
    assert server.get("Pod", "a", "ns")["metadata"]["labels"] == {"runai-gpu-group": "g1"}


def test_a_silent_reservation_pod_is_deleted_for_a_retry():
    server = cluster(node(), sharing_pod(), sharing_request(limit=2), settle=silent)
    outcome = try_once(server)
    assert outcome.verdict is BindVerdict.RETRY
    assert "failed waiting for GPU reservation pod to allocate" in outcome.message
    assert server.names("Pod") == ["p"]


def test_a_limit_on_attempts_is_a_limit():
    server = cluster(node(), sharing_pod(), sharing_request(limit=3), settle=silent)
    outcomes = [try_once(server) for _ in range(5)]
    assert [outcome.verdict for outcome in outcomes[:3]] == [BindVerdict.RETRY, BindVerdict.RETRY, BindVerdict.FAILED]
    assert [outcome.delay for outcome in outcomes[:3]] == [1.0, 2.0, None]
    assert {outcome.verdict for outcome in outcomes[3:]} == {BindVerdict.NOTHING_TO_DO}
    assert status(server)["failedAttempts"] == 3


def test_without_a_limit_the_first_failure_is_the_last():
    server = cluster(node(), sharing_pod(), sharing_request(), settle=silent)
    assert [try_once(server).verdict for _ in range(2)] == [BindVerdict.FAILED, BindVerdict.NOTHING_TO_DO]


def test_a_successful_retry_clears_the_shown_failure():
    server = cluster(node(), sharing_pod(), sharing_request(limit=3), settle=silent)
    try_once(server)
    assert condition(server)["status"] == "False"
    server.settle = device_plugin
    assert try_once(server).verdict is BindVerdict.BOUND
    assert status(server) == {"phase": "Succeeded", "failedAttempts": 1}
    assert condition(server)["status"] == "True"


def test_a_malformed_annotation_is_named_and_nothing_is_made():
    broken = sharing_pod(annotations={"gpu-fraction-num-devices": "many"})
    server = cluster(node(), broken, sharing_request(limit=5))
    assert try_once(server).verdict is BindVerdict.FAILED
    assert 'gpu-fraction-num-devices: found "many", expected a whole number of devices' in status(server)["reason"]
    assert server.names("Pod") == ["p"]


def test_a_pod_that_bypassed_admission_is_refused():
    bare = sharing_pod()
    bare["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    server = cluster(node(), bare, sharing_request())
    assert try_once(server).verdict is BindVerdict.FAILED
    assert "has no annotation runai/shared-gpu-configmap" in status(server)["reason"]


def test_undoing_continues_past_a_step_that_cannot_be_undone():
    server = cluster(node(), sharing_pod(), sharing_request())

    def fault(request):
        stuck = isinstance(request, Delete) and request.ref.name.endswith("-0")
        return Refusal(reason=Reason.REJECTED, message="no") if stuck or isinstance(request, Bind) else None

    server.fault = fault
    outcome = try_once(server)
    assert outcome.verdict is BindVerdict.FAILED
    assert len(outcome.leftovers) == 1
    assert "delete configmap ns/p-abc1234-shared-gpu-0: no" in outcome.leftovers[0]
    assert server.get("Pod", "p", "ns")["metadata"]["labels"] == {}


# --- When the pod changes ----------------------------------------------------------------------------------------


def change_before_bind(server, patch):
    """Let somebody change the pod at the last moment, once."""
    done = []

    def fault(request):
        if isinstance(request, Bind) and not done:
            done.append(True)
            server.change("Pod", "p", "ns", patch)

    server.fault = fault


@pytest.mark.parametrize(
    "patch",
    [{"status": {"reason": "new"}}, {"metadata": {"annotations": {"tool": "x"}}}, {"metadata": {"finalizers": ["f"]}}],
)
def test_a_change_irrelevant_to_the_decision_still_binds(patch):
    server = cluster(node(), pod(), bind_request())
    change_before_bind(server, patch)
    assert try_once(server).verdict is BindVerdict.BOUND


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"metadata": {"annotations": {"gpu-fraction": "0.9"}}}, "was changed since it was decided"),
        ({"metadata": {"labels": {"app": "x"}}}, "was changed since it was decided"),
        ({"spec": {"tolerations": [{"key": "k"}]}}, "was changed since it was decided"),
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, "held back by scheduling gates"),
        ({"spec": {"nodeName": "n2"}}, "is bound to node n2 already"),
    ],
)
def test_a_change_that_matters_is_decided_anew(patch, message):
    server = cluster(node(), pod(), bind_request())
    change_before_bind(server, patch)
    assert try_once(server).verdict is BindVerdict.FAILED
    assert message in status(server)["reason"]


def test_a_pod_that_never_stops_changing_is_retried():
    server = cluster(node(), pod(), bind_request(limit=2))

    def fault(request):
        if isinstance(request, Bind):
            server.change("Pod", "p", "ns", {"status": {"reason": str(server.version)}})

    server.fault = fault
    assert try_once(server).verdict is BindVerdict.RETRY
    assert "keeps changing" in status(server)["reason"]


def test_a_node_that_vanishes_during_a_bind_fails_it():
    server = cluster(node(), pod(), bind_request())
    seen = []

    def fault(request):
        if isinstance(request, Get) and request.ref.cls is Node:
            seen.append(request)
            return Refusal(reason=Reason.NOT_FOUND) if len(seen) > 1 else None
        return None

    server.fault = fault
    assert try_once(server).verdict is BindVerdict.FAILED
    assert "node n1: does not exist any more" in status(server)["reason"]


def test_a_refused_pod_patch_does_not_undo_the_bind():
    server = cluster(node(), pod(), bind_request())
    server.fault = lambda request: (
        Refusal(reason=Reason.REJECTED) if isinstance(request, Patch) and request.ref.cls is Pod else None
    )
    outcome = try_once(server)
    assert (outcome.verdict, len(outcome.leftovers)) == (BindVerdict.BOUND, 1)
    assert status(server)["phase"] == "Succeeded"


def test_a_pod_bound_elsewhere_while_failing_gets_no_event():
    server = cluster(node(), pod(), bind_request())

    def fault(request):
        if isinstance(request, Bind):
            server.change("Pod", "p", "ns", {"spec": {"nodeName": "n2"}})
            return Refusal(reason=Reason.REJECTED)
        return None

    server.fault = fault
    assert try_once(server).verdict is BindVerdict.FAILED
    assert "is bound to node n2 already" in status(server)["reason"]
    assert server.events == []


def test_a_second_binding_to_the_same_node_succeeds():
    server = cluster(node(), pod(), bind_request())
    change_before_bind(server, {"spec": {"nodeName": "n1"}})
    assert try_once(server).verdict is BindVerdict.BOUND


# --- When the API server does not answer -------------------------------------------------------------------------


def test_an_outage_interrupts_and_says_nothing():
    server = cluster(node(), pod(), bind_request())
    down = Refusal(reason=Reason.UNAVAILABLE, message="too many requests", retry_after=7.0)
    server.fault = lambda request: down if isinstance(request, Bind) else None
    outcome = try_once(server)
    assert (outcome.verdict, outcome.delay) == (BindVerdict.INTERRUPTED, 7.0)
    assert server.writes == []
    assert server.events == []


def test_the_patience_with_an_outage_ends():
    server = cluster(node(), pod(), bind_request(limit=2))
    server.fault = lambda request: Refusal(reason=Reason.UNAVAILABLE) if isinstance(request, Bind) else None
    assert try_once(server, patient=False).verdict is BindVerdict.RETRY


def test_a_lost_answer_is_never_given_up_on():
    server = cluster(node(), pod(), bind_request())
    server.fault = lambda request: Refusal(reason=Reason.UNKNOWN) if isinstance(request, Bind) else None
    assert try_once(server, patient=False).verdict is BindVerdict.INTERRUPTED
    assert status(server) == {}


def test_a_binding_with_a_lost_answer_is_found():
    server = cluster(node(), pod(), bind_request())
    server.lost = lambda request: isinstance(request, Bind)
    assert try_once(server).verdict is BindVerdict.BOUND


def late_binding(server):
    """Let the answer to the binding be lost and the binding itself be delayed; return it."""
    late = []

    def fault(request):
        if isinstance(request, Bind):
            late.append(request)
            return Refusal(reason=Reason.UNKNOWN)
        return None

    server.fault = fault
    assert try_once(server).verdict is BindVerdict.INTERRUPTED
    server.fault = lambda _: None
    return late[0]


def test_a_late_binding_is_fenced_off_before_any_undo():
    server = cluster(node(), sharing_pod(), sharing_request())
    late = late_binding(server)
    server.remove("Node", "n1")
    answers = []

    def land_before_the_first_deletion(request):
        if isinstance(request, Delete) and not answers:
            answers.append(server._bind(late))

    server.fault = land_before_the_first_deletion
    assert try_once(server).verdict is BindVerdict.FAILED
    assert [answer.reason for answer in answers] == [Reason.CONFLICT]
    assert node_of(server) is None


def test_a_binding_landing_just_before_the_fence_counts():
    server = cluster(node(), sharing_pod(), sharing_request())
    late = late_binding(server)
    server.remove("Node", "n1")
    landed = []

    def land_before_the_first_patch(request):
        if isinstance(request, Patch) and request.ref.name == "p" and not landed:
            landed.append(server._bind(late))

    server.fault = land_before_the_first_patch
    assert try_once(server).verdict is BindVerdict.BOUND
    assert landed == [None]
    assert [event.reason for event in server.events] == ["Bound"]
    assert len(server.names("ConfigMap")) == 2
    assert status(server)["phase"] == "Succeeded"


def test_a_binding_that_only_the_store_shows_is_repeated():
    server = cluster(node(), pod(), bind_request())
    forgotten = structure_as(Pod, pod(nodeName="n1"))

    def ahead(request):
        is_remembered = isinstance(request, Get) and not request.fresh and request.ref.cls is Pod
        return forgotten if is_remembered else server.perform(request)

    outcome = carry_out(attempt(BINDER, Ref(BindRequest, "p", "ns")), ahead)
    assert outcome.verdict is BindVerdict.BOUND
    assert node_of(server) == "n1"
    assert status(server) == {"phase": "Succeeded"}


def test_a_binding_missing_in_a_lagging_store_counts():
    server = cluster(node(), sharing_pod(), sharing_request())
    late = late_binding(server)
    before = server._read(Ref(Pod, "p", "ns"))
    server._bind(late)
    server.remove("Node", "n1")
    server.fault = lambda r: before if isinstance(r, Get) and not r.fresh and r.ref.cls is Pod else None
    assert try_once(server).verdict is BindVerdict.BOUND
    assert [event.reason for event in server.events] == ["Bound"]
    assert len(server.names("ConfigMap")) == 2


def test_absence_in_a_lagging_store_is_not_believed():
    server = cluster(node(), pod(), bind_request())

    def fault(request):
        stale = isinstance(request, Get) and not request.fresh and request.ref.name in {"p", "n1"}
        return Refusal(reason=Reason.NOT_FOUND) if stale and request.ref.cls.__name__ != "BindRequest" else None

    server.fault = fault
    assert try_once(server).verdict is BindVerdict.BOUND


def test_reads_before_a_plain_bind_need_no_quorum():
    server = cluster(node(), pod(), bind_request())
    try_once(server)
    assert not any(request.fresh for request in server.requests if isinstance(request, Get | List))


def test_the_reservation_of_another_binder_is_used():
    server = cluster(node(), reservation(device="GPU-9"), sharing_pod(), sharing_request())
    try_once(server)
    visible = server.get("ConfigMap", "p-abc1234-shared-gpu-0-evar", "ns")["data"]["NVIDIA_VISIBLE_DEVICES"]
    assert visible == "GPU-9"
    assert [key for key in server.objects if key[1] == RESERVED] == [("Pod", RESERVED, "gpu-reservation-g1")]
