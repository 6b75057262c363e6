import json

import attrs
import pytest

from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, List, Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder import BindVerdict
from kai.roles.binder.attempt import attempt
from kai.roles.binder.reservation import reservation_name
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import (
    BINDER,
    RESERVED,
    bind_request,
    cluster,
    node,
    pod,
    reservation,
    sharing_pod,
    sharing_request,
    try_once,
)


def telling(request, told):
    request["metadata"]["annotations"] = {"kai.scheduler/granted": told}
    return request


@pytest.mark.parametrize(
    ("request_", "written"),
    [
        (bind_request(), {}),
        (telling(bind_request(), '{"queue":"q","pool":"p","group":"g"}'), {"queue": "q", "pool": "p", "group": "g"}),
        (telling(bind_request(), '{"queue":"q","gpus":["g1"],"portion":0.1}'), {"queue": "q"}),
        (telling(bind_request(), "nonsense"), {}),
        (sharing_request(), {"gpus": ["g1"], "portion": 0.5}),
        (sharing_request(portion="0.00"), {"gpus": ["g1"]}),
        (
            telling(sharing_request(), '{"queue":"q","portion":0.498}'),
            {"queue": "q", "gpus": ["g1"], "portion": 0.498},
        ),
        (
            telling(sharing_request(), '{"queue":"q","memory":4096,"gpus":["forged"]}'),
            {"queue": "q", "gpus": ["g1"], "memory": 4096},
        ),
    ],
)
def test_what_was_granted_is_written_with_the_binding(request_, written):
    wanting = pod(annotations={"kai.scheduler/granted": '{"queue":"forged"}'})
    if "selectedGPUGroups" in request_["spec"]:
        wanting = sharing_pod(annotations={"kai.scheduler/granted": '{"queue":"forged"}'})
    server = cluster(node(), wanting, request_)
    assert try_once(server).verdict is BindVerdict.BOUND
    assert json.loads(server.get("Pod", "p", "ns")["metadata"]["annotations"]["kai.scheduler/granted"]) == written


def holder(portion, **edited):
    """Make a pod that runs on a GPU group with a grant, and what it says now."""
    grant = f'{{"gpus":["g1"],"portion":{portion}}}'
    annotations = {"kai.scheduler/granted": grant, **edited.pop("annotations", {})}
    return sharing_pod("a", phase="Running", nodeName="n1", annotations=annotations, **edited)


@pytest.mark.parametrize(
    "edited",
    [
        {"annotations": {"gpu-fraction": "0.1"}, "labels": {"runai-gpu-group": "g1"}},
        {"annotations": {"gpu-fraction": "0.1"}},
        {"labels": {"runai-gpu-group": "another"}},
        {"schedulerName": "another"},
    ],
)
def test_a_running_pods_granted_share_is_not_given_again(edited):
    server = cluster(node(), holder(0.9, **edited), reservation(), sharing_pod(), sharing_request())
    outcome = try_once(server)
    assert "GPU group g1 on node n1 would hold 1.40 of a GPU" in outcome.message
    assert "gpu-reservation-g1" in server.names("Pod")


def test_a_label_takes_no_stranger_into_a_group():
    label, whole = {"runai-gpu-group": "g1"}, {"gpu-fraction": "1"}
    strangers = [
        pod("s", labels=label, annotations=whole, schedulerName="default-scheduler"),
        pod("t", labels=label, annotations=whole, schedulerName="default-scheduler", nodeName="n1", phase="Running"),
        pod("u", labels=label, annotations=whole),
        pod("v", labels=label, annotations=whole, nodeName="n2", phase="Running"),
    ]
    server = cluster(node(), *strangers, holder(0.5), reservation(), sharing_pod(), sharing_request())
    assert try_once(server).verdict is BindVerdict.BOUND


def test_unfinished_binds_count_but_requests_of_namesakes_do_not():
    coming = sharing_pod("a", labels={"runai-gpu-group": "g1"})
    under_way = sharing_request("a", portion="0.90")
    server = cluster(node(), coming, under_way, reservation(), sharing_pod(), sharing_request())
    assert "would hold 1.40 of a GPU" in try_once(server).message
    under_way["metadata"]["ownerReferences"][0]["uid"] = "of-the-past"
    server = cluster(node(), coming, under_way, reservation(), sharing_pod(), sharing_request())
    assert try_once(server).verdict is BindVerdict.BOUND


def test_a_foreign_config_map_stays_and_fails_the_bind():
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "prod-settings-0", "namespace": "ns"},
        "data": {"password": "1"},
    }
    wanting = sharing_pod(annotations={"runai/shared-gpu-configmap": "prod-settings"})
    server = cluster(node(), wanting, sharing_request(limit=3), theirs)
    before = server.get("ConfigMap", "prod-settings-0", "ns")
    assert try_once(server).verdict is BindVerdict.FAILED
    assert server.get("ConfigMap", "prod-settings-0", "ns") == before
    (event,) = server.events
    assert (event.type, event.reason) == ("Warning", "BindingError")
    assert "configmap ns/prod-settings-0: found one that was not made for" in event.message
    assert server.names("Pod") == ["p"]  # the GPU that was reserved for it is free again


def test_a_gpu_released_during_preparation_delays_the_bind():
    server = cluster(node(), reservation(), sharing_pod(), sharing_request(limit=3))

    def leaving(request):
        if isinstance(request, Create) and request.ref.cls is ConfigMap and "gpu-reservation-g1" in server.names("Pod"):
            server.remove("Pod", "gpu-reservation-g1", RESERVED)

    server.fault = leaving
    outcome = try_once(server)
    assert outcome.verdict is BindVerdict.RETRY
    assert outcome.message == "GPU group g1: its reservation pod does not exist any more"
    assert not server.get("Pod", "p", "ns")["spec"].get("nodeName")
    assert try_once(server).verdict is BindVerdict.BOUND
    assert len(server.names("Pod")) == 2


@pytest.mark.parametrize(
    ("becomes", "message"),
    [
        ({"status": {"allocatable": {"nvidia.com/gpu": "0"}}}, "node n1 has 0 of nvidia.com/gpu left, the pod needs 1"),
        ({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}}, "node n1 has taint broken:NoSchedule"),
        ({"status": {"allocatable": {"nvidia.com/gpu": "1"}}}, ""),
        (None, "node n1: does not exist any more"),
    ],
)
def test_a_node_changed_before_its_binding_is_checked_again(becomes, message):
    server = cluster(node(), pod(requests={"nvidia.com/gpu": "1"}), bind_request())

    def changing(request):
        if isinstance(request, Bind) and ("Node", "", "n1") in server.objects:
            if becomes is None:
                server.remove("Node", "n1")
            else:
                server.change("Node", "n1", "", becomes)

    server.fault = changing
    outcome = try_once(server)
    assert outcome.verdict is (BindVerdict.FAILED if message else BindVerdict.BOUND)
    assert message in outcome.message
    assert server.get("Pod", "p", "ns")["spec"].get("nodeName") == (None if message else "n1")


def is_reservation(request):
    return isinstance(request, Create) and request.ref.cls is Pod


@pytest.mark.parametrize(
    ("becomes", "message"),
    [
        ({"status": {"allocatable": {"nvidia.com/gpu": "0"}}}, "node n1 has no GPU left to be shared"),
        ({"status": {"allocatable": {"nvidia.com/gpu": "1"}}}, ""),
        (None, "node n1: does not exist any more"),
    ],
)
def test_a_node_changed_before_its_reservation_is_checked_again(becomes, message):
    server = cluster(node(), sharing_pod(), sharing_request(limit=3))

    def changing(request):
        if is_reservation(request) and ("Node", "", "n1") in server.objects:
            if becomes is None:
                server.remove("Node", "n1")
            else:
                server.change("Node", "n1", "", becomes)

    server.fault = changing
    outcome = try_once(server)
    assert outcome.verdict is (BindVerdict.FAILED if message else BindVerdict.BOUND)
    assert outcome.message == message
    assert len(server.names("Pod")) == (1 if message else 2)


def test_a_reservation_conflict_is_retried_if_the_node_fits():
    server = cluster(node(), sharing_pod(), sharing_request())
    conflicts = [Refusal(reason=Reason.CONFLICT)]
    server.fault = lambda request: conflicts.pop() if is_reservation(request) and conflicts else None
    assert try_once(server).verdict is BindVerdict.BOUND
    assert sum(map(is_reservation, server.requests)) == 2


def test_a_reservation_whose_node_keeps_changing_is_retried_later():
    server = cluster(node(), sharing_pod(), sharing_request(limit=3))
    changed = Refusal(reason=Reason.CONFLICT, message="its node changed")
    server.fault = lambda request: changed if is_reservation(request) else None
    outcome = try_once(server)
    assert outcome.verdict is BindVerdict.RETRY
    assert outcome.message == f"create pod {RESERVED}/{reservation_name('n1', 'g1')}: its node changed"
    assert sum(map(is_reservation, server.requests)) == 5


def test_a_reservation_that_another_process_made_meanwhile_is_used():
    server = cluster(node(gpus=1), sharing_pod(), sharing_request())
    other = reservation(name=reservation_name("n1", "g1"))

    def perform(request):
        if is_reservation(request):
            server.perform(Create(ref=request.ref, manifest=other))
            pods = server.perform(List(cls=Pod, node="n1"))
            request = attrs.evolve(request, fits=lambda now, _, asked=request: asked.fits(now, pods))
        return server.perform(request)

    assert carry_out(attempt(BINDER, Ref(BindRequest, "p", "ns")), perform).verdict is BindVerdict.BOUND
    assert len(server.names("Pod")) == 2


@pytest.mark.parametrize(
    ("cpu", "verdict", "why"),
    [("1", BindVerdict.BOUND, ""), ("8", BindVerdict.FAILED, "node n1 has 0 of cpu left, the pod needs 1")],
)
def test_a_waiting_binding_fails_once_others_fill_its_node(cpu, verdict, why):
    server = cluster(node(cpu="9"), pod("old", nodeName="n1", requests={"cpu": "1"}), pod(), bind_request())
    newcomer = pod("new", "strangers", nodeName="n1", requests={"cpu": cpu}, schedulerName="another")

    def perform(request):
        if isinstance(request, Bind):
            if "new" not in server.names("Pod"):
                server.perform(Create(ref=Ref(Pod, "new", "strangers"), manifest=newcomer))
            pods = server.perform(List(cls=Pod, node="n1"))
            request = attrs.evolve(request, fits=lambda now, _, asked=request: asked.fits(now, pods))
        return server.perform(request)

    outcome = carry_out(attempt(BINDER, Ref(BindRequest, "p", "ns")), perform)
    assert outcome.verdict is verdict
    assert why in outcome.message
