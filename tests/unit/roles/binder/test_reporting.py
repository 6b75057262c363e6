import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Reason, Refusal, RefusedError
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder.attempt import failed, report_bound, report_failure, succeeded, write_status
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import bind_request, cluster, pod


def world():
    server = cluster(pod(), bind_request())
    return server, structure_as(BindRequest, server.get("BindRequest", "p", "ns"))


def this_pod(server):
    return structure_as(Pod, server.get("Pod", "p", "ns"))


def once(server, reason, act=lambda: None):
    """Refuse the first patch, and let something happen at that moment."""
    done = []

    def fault(request):
        if isinstance(request, Patch) and not done:
            done.append(True)
            act()
            return Refusal(reason=reason) if reason else None
        return None

    server.fault = fault


def test_a_status_is_written_over_a_change_by_others():
    server, request = world()
    once(server, None, lambda: server.change("BindRequest", "p", "ns", {"metadata": {"labels": {"a": "b"}}}))
    carry_out(write_status(request, succeeded()), server.perform)
    assert server.get("BindRequest", "p", "ns")["status"] == {"phase": "Succeeded"}


def test_a_request_that_is_gone_needs_no_status():
    server, request = world()
    server.remove("BindRequest", "p", "ns")
    assert carry_out(write_status(request, succeeded()), server.perform) is None


def test_a_recreated_request_does_not_get_the_old_status():
    server, request = world()
    server.change("BindRequest", "p", "ns", {"metadata": {"uid": "new"}})
    assert carry_out(write_status(request, succeeded()), server.perform) is None
    assert server.get("BindRequest", "p", "ns")["status"] == {}


def test_a_status_that_is_refused_is_an_error():
    server, request = world()
    once(server, Reason.REJECTED)
    with pytest.raises(RefusedError):
        carry_out(write_status(request, succeeded()), server.perform)


def test_a_reason_is_cut_to_1024_characters():
    assert len(failed("x" * 100_000, 1)["reason"]) == 1024


def test_success_is_told_once():
    server, _ = world()
    carry_out(report_bound(this_pod(server), "n1"), server.perform)
    carry_out(report_bound(this_pod(server), "n1"), server.perform)
    assert len(server.writes) == 1


@pytest.mark.parametrize("reason", [Reason.NOT_FOUND, Reason.CONFLICT])
def test_success_reported_to_a_missing_pod_raises_nothing(reason):
    server, _ = world()
    once(server, reason)
    carry_out(report_bound(this_pod(server), "n1"), server.perform)


def test_a_condition_that_is_refused_is_an_error():
    server, _ = world()
    once(server, Reason.REJECTED)
    with pytest.raises(RefusedError):
        carry_out(report_bound(this_pod(server), "n1"), server.perform)
    once(server, Reason.REJECTED)
    with pytest.raises(RefusedError):
        carry_out(report_failure(this_pod(server), "n1", "no"), server.perform)


def test_a_second_failure_keeps_the_transition_time_but_writes():
    server, _ = world()
    carry_out(report_failure(this_pod(server), "n1", "no"), server.perform)
    first = server.get("Pod", "p", "ns")
    server.now += 60
    carry_out(report_failure(this_pod(server), "n1", "no"), server.perform)
    second = server.get("Pod", "p", "ns")
    times = [manifest["status"]["conditions"][0]["lastTransitionTime"] for manifest in (first, second)]
    assert times[0] == times[1]
    assert first["metadata"]["resourceVersion"] != second["metadata"]["resourceVersion"]


def test_a_failure_is_told_over_a_change_by_others():
    server, _ = world()
    once(server, None, lambda: server.change("Pod", "p", "ns", {"metadata": {"labels": {"a": "b"}}}))
    told = carry_out(report_failure(this_pod(server), "n1", "no"), server.perform)
    assert dict(told.metadata.labels) == {"a": "b"}
    assert [type(event) for event in server.events] == [Emit]


@pytest.mark.parametrize(
    "leave",
    [
        lambda server: server.remove("Pod", "p", "ns"),
        lambda server: server.change("Pod", "p", "ns", {"metadata": {"uid": "new"}}),
    ],
)
def test_a_pod_that_is_gone_is_told_nothing(leave):
    server, _ = world()
    known = this_pod(server)
    leave(server)
    assert carry_out(report_failure(known, "n1", "no"), server.perform) is None
    assert (server.writes, server.events) == ([], [])


def test_a_pod_that_just_vanished_gets_no_event():
    server, _ = world()
    once(server, Reason.NOT_FOUND)
    assert carry_out(report_failure(this_pod(server), "n1", "no"), server.perform) is None
    assert server.events == []


def test_reporting_to_a_constantly_changing_pod_fails():
    server, _ = world()
    server.fault = lambda request: Refusal(reason=Reason.CONFLICT) if isinstance(request, Patch) else None
    with pytest.raises(RefusedError):
        carry_out(report_failure(this_pod(server), "n1", "no"), server.perform)
