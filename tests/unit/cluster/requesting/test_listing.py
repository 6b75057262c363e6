import json

import attrs
import pytest

from kai.api.kinds import BY_CLASS
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.queue import Queue
from kai.basics.errors import UnreachableError
from kai.cluster.requesting import listing
from kai.cluster.requesting.listing import Lister
from kai.cluster.transport.calls import Answer, NoAnswer
from tests.doubles.http_server import Faults, HttpServer
from tests.doubles.virtual_time import VirtualClock, run


def lister(server):
    return Lister(transport=server, clock=VirtualClock(), server="https://10.0.0.1:6443", cluster='context "prod"')


def listed(server, *kinds, namespace=""):
    return run(lambda: lister(server).list_all(kinds, namespace))


def refused(status, message):
    body = {"kind": "Status", "status": "Failure", "code": status, "message": message}
    return Faults(before=lambda _: Answer(status=status, body=json.dumps(body).encode()))


def failure(server, *kinds):
    with pytest.raises(UnreachableError) as caught:
        listed(server, *(kinds or (Node,)))
    return caught.value


def test_all_kinds_are_listed_concurrently_with_get_only():
    server = HttpServer(faults=Faults(delay=lambda _: 1.0))
    server.put("nodes", "n1")
    server.put("pods", "p", "a", spec={"containers": [{"name": "c"}]})
    server.put("queues", "q")
    found = listed(server, Node, Pod, Queue)
    assert [(type(each), each.metadata.name) for each in found.objects] == [(Node, "n1"), (Pod, "p"), (Queue, "q")]
    assert found.revision == str(server.version)
    assert {call.method for call in server.calls} == {"GET"}
    assert server.most_in_flight == 3


def test_a_result_does_not_show_objects_in_its_repr():
    server = HttpServer()
    server.put("nodes", "n1")
    assert "n1" not in repr(listed(server, Node))


def test_long_lists_come_in_pages(monkeypatch):
    monkeypatch.setattr(listing, "_PAGE", 2)
    server = HttpServer()
    for number in range(5):
        server.put("nodes", f"n{number}")
    assert len(listed(server, Node).objects) == 5
    assert len(server.calls) == 3


def test_an_unserved_kind_is_empty_after_trying_older_versions():
    server = HttpServer()
    assert listed(server, ResourceClaim).objects == []
    assert len(server.calls) == len(BY_CLASS[ResourceClaim].api_versions)


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"[]", b"null", b"", b"[" * 100_000])
def test_what_is_no_list_is_said_to_be_none(body):
    server = HttpServer(faults=Faults(before=lambda _: Answer(status=200, body=body)))
    assert str(failure(server)) == (
        'cannot list nodes of the cluster of context "prod": 10.0.0.1:6443 answered 200 without a list: '
        "it is not an API server"
    )


def test_a_server_without_pods_is_no_cluster_without_pods():
    server = HttpServer(faults=Faults(before=lambda _: Answer(status=404, body=b"no such page")))
    assert str(failure(server, Node, Pod)).startswith(
        'cannot list pods of the cluster of context "prod": 10.0.0.1:6443 answered 404: '
    )


def test_config_maps_of_one_namespace_are_listed_without_data():
    server = HttpServer()
    server.put("configmaps", "c", "a", data={"secret": "x"})
    server.put("configmaps", "c", "b")
    (found,) = listed(server, ConfigMap, namespace="a").objects
    assert found.metadata.namespace == "a"
    assert "secret" not in str(attrs.asdict(found))


def test_failed_pods_are_omitted_and_unreadable_ones_noted():
    server = HttpServer()
    server.put("pods", "failed", "a", status={"phase": "Failed"}, spec={"containers": []})
    server.put("pods", "bad", "a", spec={"containers": 3})
    found = listed(server, Pod)
    assert found.objects == []
    assert found.notes == ["pod a/bad: spec.containers: found 3, expected a list"]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("GET /api: ConnectionRefusedError: [Errno 111] Connect call failed", "refused the connection"),
        ("GET /api: gaierror: [Errno -2] Name or service not known", "is a name that has no address"),
        ("GET /api: no answer in time", "did not answer in 30s"),
        ("GET /api: SomethingError: odd", "gave no answer: SomethingError: odd"),
    ],
)
def test_an_unreachable_server_is_tried_three_times(message, words):
    server = HttpServer(faults=Faults(before=lambda _: NoAnswer(was_sent=False, message=message)))
    error = failure(server)
    assert str(error) == f'cannot reach the cluster of context "prod": 10.0.0.1:6443 {words}'
    assert error.detail == "tried 3 times in 4s"
    assert len(server.calls) == 3


def test_a_server_that_comes_back_meanwhile_is_read():
    answers = iter([NoAnswer(was_sent=False, message="x"), Answer(status=503)])
    server = HttpServer(faults=Faults(before=lambda _: next(answers, None)))
    server.put("nodes", "n1")
    assert len(listed(server, Node).objects) == 1


def test_an_overloaded_server_is_reported_with_its_answer():
    error = failure(HttpServer(faults=refused(503, "the server is starting")))
    words = "10.0.0.1:6443 answered with 503: the server is starting"
    assert str(error) == f'cannot reach the cluster of context "prod": {words}'


def test_a_missing_right_is_named():
    text = 'nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope'
    error = failure(HttpServer(faults=refused(403, text)))
    assert str(error) == 'not allowed to list nodes in all namespaces as "jane" in the cluster of context "prod"'
    assert error.is_forbidden


def refusing(call):
    """Refuse everything."""
    plural = call.path.rpartition("/")[2]
    text = f'x: User "jane" cannot list resource "{plural}" in API group "" at the cluster scope'
    return Answer(status=403, body=json.dumps({"kind": "Status", "code": 403, "message": text}).encode())


@pytest.mark.parametrize("slow", ["nodes", "pods"])
def test_the_first_kinds_missing_right_is_named(slow):
    faults = Faults(before=refusing, delay=lambda call: 5.0 if call.path.endswith(slow) else 1.0)
    error = failure(HttpServer(faults=faults), Node, Pod, Queue)
    assert error.missing == "list nodes"


def test_an_unreachable_server_is_reported_before_missing_rights():
    def before(call):
        return (
            NoAnswer(message="cut: ConnectionRefusedError", was_sent=False)
            if call.path.endswith("pods")
            else refusing(call)
        )

    error = failure(HttpServer(faults=Faults(before=before)), Node, Pod)
    assert (error.missing, error.is_forbidden) == ("", False)


def test_a_missing_right_is_named_with_group_and_namespace():
    text = 'x: User "jane" cannot list resource "queues" in API group "scheduling.run.ai" in the namespace "ml"'
    error = failure(HttpServer(faults=refused(403, text)), Queue)
    assert str(error).startswith('not allowed to list queues of scheduling.run.ai in namespace ml as "jane"')


def test_credentials_that_the_server_does_not_know_are_said():
    error = failure(HttpServer(faults=refused(401, "Unauthorized")))
    assert "does not know these credentials (401): Unauthorized" in str(error)
