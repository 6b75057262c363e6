"""Pods that have ended or leave while they are bound: nothing failed, and nothing is told to them."""

import pytest

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, Get, Reason, Refusal
from kai.cluster.requests import NamespaceEnding
from kai.roles.binder import BindVerdict
from tests.unit.roles.binder.clusters import bind_request, cluster, node, pod, sharing_pod, sharing_request, try_once


def status(server):
    return server.get("BindRequest", "p", "ns")["status"]


def gone(server):
    server.remove("Pod", "p", "ns")


def recreated(server):
    server.remove("Pod", "p", "ns")
    server._put(pod(uid="another"))


def deleted(server):
    server.change("Pod", "p", "ns", {"metadata": {"deletionTimestamp": "2023-01-01T00:00:00Z"}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(gone, "pod p does not exist", id="gone"),
        pytest.param(recreated, "is another pod than the one of that name", id="recreated"),
        pytest.param(
            lambda s: s.change("Pod", "p", "ns", {"status": {"phase": "Failed"}}), "has ended (Failed)", id="ended"
        ),
        pytest.param(deleted, "deleted", id="deleted"),
    ],
)
def test_a_pod_gone_since_the_decision_is_no_failure(change, message):
    server = cluster(node(), pod(), bind_request(limit=3))
    change(server)
    outcome = try_once(server)
    assert outcome.verdict is BindVerdict.GONE
    assert message in outcome.message
    assert status(server) == {"phase": "Failed", "reason": outcome.message, "failedAttempts": 3}
    assert not any(isinstance(write, Bind) for write in server.writes)
    if change is deleted:
        assert server.events == []


def test_a_pod_deleted_while_its_bind_fails_is_gone():
    server = cluster(node(), pod(), bind_request(limit=3))

    def fault(request):
        if isinstance(request, Bind):
            deleted(server)
            return Refusal(reason=Reason.REJECTED)
        return None

    server.fault = fault
    assert try_once(server).verdict is BindVerdict.GONE
    assert server.events == []


@pytest.mark.parametrize(("request_", "expected"), [(Bind, BindVerdict.GONE), (Create, BindVerdict.FAILED)])
def test_only_the_reservation_namespaces_end_fails_the_bind(request_, expected):
    server = cluster(node(), sharing_pod(), sharing_request())
    server.fault = lambda request: NamespaceEnding(message="it ends") if isinstance(request, request_) else None
    assert try_once(server).verdict is expected


def test_a_pod_vanishing_at_its_binding_is_no_failure():
    server = cluster(node(), pod(), bind_request())
    server.fault = lambda request: server.remove("Pod", "p", "ns") if isinstance(request, Bind) else None
    assert try_once(server).verdict is BindVerdict.GONE
    assert "does not exist any more" in status(server)["reason"]


def test_a_pod_gone_during_preparation_is_not_bound():
    server = cluster(node(), pod(), bind_request())
    asked = []

    def fault(request):
        asked.append(request)
        is_of_pod = isinstance(request, Get) and request.ref.cls is Pod
        gone = sum(isinstance(each, Get) and each.ref.cls is Pod for each in asked) > 1
        return Refusal(reason=Reason.NOT_FOUND) if gone and is_of_pod else None

    server.fault = fault
    assert try_once(server).verdict is BindVerdict.GONE
    assert not [each for each in asked if isinstance(each, Bind)]
    assert "pod ns/p: does not exist any more" in status(server)["reason"]
