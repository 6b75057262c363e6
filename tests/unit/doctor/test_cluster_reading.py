"""A look at a cluster: lists in pages, reviews of rights, and what is made of a refusal."""

import json

import anyio
import attrs
import pytest

from kai.basics.errors import UnreachableError
from kai.cluster.transport.calls import Answer, NoAnswer
from kai.doctor.cluster_reading import LISTS, Look
from tests.doubles.virtual_time import VirtualClock
from tests.unit.doctor.cluster import HEALTHY, kai_pod

VERSION = Answer(status=200, body=b'{"gitVersion": "v1.34.1", "major": "1", "minor": "34"}')


@attrs.define
class Server:
    """Answers lists from the healthy cluster, two objects a page, and reviews."""

    refused: tuple[str, ...] = ()
    denied: tuple[tuple[str, str], ...] = ()
    """Verb and resource that no account has."""
    version: Answer | NoAnswer = VERSION
    calls: list = attrs.field(factory=list)
    lists: dict = HEALTHY.lists

    async def request(self, call):
        self.calls.append(call)
        if call.path == "/version":
            return self.version
        if call.method == "POST":
            return self.review(json.loads(call.body))
        name = next(name for name, path in LISTS.items() if path == call.path)
        if name == "configs":
            return Answer(status=404)
        if name in self.refused:
            return Answer(status=403)
        start = int(dict(call.query).get("continue", 0))
        found = self.lists[name]
        rest = str(start + 2) if start + 2 < len(found) else ""
        page = {"metadata": {"continue": rest}, "items": found[start : start + 2]}
        return Answer(status=200, body=json.dumps(page).encode())

    def review(self, body):
        if body["kind"] in self.refused:
            return Answer(status=403)
        about = body["spec"]["resourceAttributes"]
        allowed = (about["verb"], about["resource"]) not in self.denied
        return Answer(status=201, body=json.dumps({"status": {"allowed": allowed}}).encode())


def look(server):
    return anyio.run(Look(server, VirtualClock(), "https://10.0.0.1:6443", 'context "x"').all)


def test_all_lists_are_read_to_their_end():
    seen = look(Server())
    assert {name: list(each) for name, each in seen.lists.items()} == {
        name: list(each) for name, each in HEALTHY.lists.items()
    }
    assert seen.unread == {}
    assert seen.version["gitVersion"] == "v1.34.1"


def test_a_forbidden_list_is_noted_and_others_read():
    seen = look(Server(refused=("leases",)))
    assert seen.unread == {"leases": "not allowed"}
    assert "pods" in seen.lists


def test_rights_are_checked_for_each_account_and_the_reader():
    seen = look(Server(denied=(("create", "pods"), ("list", "nodes"))))
    assert {account: {str(each) for each in rights} for account, rights in seen.missing.items()} == {
        "": {"list nodes"},
        "kai-scheduler/kai": {
            "create pods/eviction",
            "create pods/binding",
            "create pods in namespace kai-resource-reservation",
            "create pods in namespace kai-scale-adjust",
            "list nodes",
        },
    }
    assert seen.asked[""] == 5


def test_rights_are_checked_in_namespaces_that_flags_name():
    pods = (kai_pod("kai-7c9-x", "--resource-reservation-namespace", "runai-reservation"),)
    seen = look(Server(denied=(("create", "pods"),), lists={**HEALTHY.lists, "pods": pods}))
    missing = {str(each) for each in seen.missing["kai-scheduler/kai"]}
    assert "create pods in namespace runai-reservation" in missing
    assert "create pods in namespace kai-resource-reservation" not in missing


def test_forbidden_access_reviews_are_noted():
    seen = look(Server(refused=("SubjectAccessReview",)))
    assert seen.unread == {"reviews": "not allowed"}
    assert seen.missing == {}


def test_nothing_is_written():
    server = Server()
    look(server)
    assert {call.method for call in server.calls} == {"GET", "POST"}
    assert all("accessreviews" in call.path for call in server.calls if call.method == "POST")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (
            NoAnswer(was_sent=False, message="GET /version: ConnectionRefusedError: [Errno 111] Connect call failed"),
            'cannot reach the cluster of context "x": 10.0.0.1:6443 refused the connection$',
        ),
        (
            NoAnswer(was_sent=False, message="GET /version: gaierror: [Errno -2] Name or service not known"),
            'cannot reach the cluster of context "x": 10.0.0.1:6443 is a name that has no address$',
        ),
        (Answer(status=401), "does not know these credentials"),
        (Answer(status=500), "GET /version was answered with HTTP status 500, expected the version of an API server"),
        (Answer(status=200, body=b"<html>please log in</html>"), "GET /version was answered with no version"),
        (Answer(status=200, body=b"[]"), "GET /version was answered with no version"),
        (
            Answer(status=302, location="https://sso.example.com/login?state=SECRET"),
            "GET /version was answered with a redirect to https://sso.example.com/login, which no API server sends",
        ),
    ],
)
def test_a_server_that_gives_no_answer_ends_the_look(version, message):
    with pytest.raises(UnreachableError, match=message):
        look(Server(version=version))
