"""Reviews say whose token it is and what its owner may do; no answer is no right."""

import json

import anyio
import attrs
import pytest

from kai.cluster.requesting.reviews import KEPT, ClientIdentity, Permission, ReviewError, Reviews
from kai.cluster.transport.calls import Answer, NoAnswer
from tests.doubles.cluster import VirtualClock

ANNA = ClientIdentity(user="anna", uid="1", groups=("team",))
LIST = Permission(verb="list", resource="podgroups", group="scheduling.run.ai", namespace="amber")


class Server:
    """Answers reviews, and counts them."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.asked = []

    async def send(self, call, label, key):
        del label, key
        self.asked.append((call.path, json.loads(call.body)["spec"]))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if not isinstance(status, dict):
            return status
        return Answer(status=201, body=json.dumps({"status": status}).encode())


KNOWN = {"authenticated": True, "user": {"username": "anna", "uid": "1", "groups": ["team"], "extra": {"a": ["b"]}}}


def test_a_token_belongs_to_the_user_of_its_review():
    server = Server(KNOWN)
    found = anyio.run(Reviews(server.send, VirtualClock()).identify, "secret")
    assert found == attrs.evolve(ANNA, extra={"a": ["b"]})
    assert server.asked == [("/apis/authentication.k8s.io/v1/tokenreviews", {"token": "secret"})]


@pytest.mark.parametrize("status", [{"authenticated": False}, {"authenticated": True}, {"user": {"username": "anna"}}])
def test_what_is_not_said_to_be_authenticated_is_unknown(status):
    assert anyio.run(Reviews(Server(status).send, VirtualClock()).identify, "secret") is None


@pytest.mark.parametrize("token", ["", "a\nb", "ä", "x" * 20_000])
def test_what_cannot_be_a_token_is_not_sent(token):
    server = Server(KNOWN)
    assert anyio.run(Reviews(server.send, VirtualClock()).identify, token) is None
    assert not server.asked


@pytest.mark.parametrize("answer", [NoAnswer(was_sent=True), Answer(status=403), Answer(status=201, body=b"{}")])
def test_no_answer_is_an_error_and_no_right(answer):
    reviews = Reviews(Server(answer).send, VirtualClock())
    with pytest.raises(ReviewError):
        anyio.run(reviews.identify, "secret")
    with pytest.raises(ReviewError):
        anyio.run(reviews.allows, ANNA, LIST)


def test_a_missing_right_for_reviews_is_named():
    with pytest.raises(ReviewError, match=r"^kai may not create tokenreviews$") as found:
        anyio.run(Reviews(Server(Answer(status=403)).send, VirtualClock()).identify, "secret")
    assert not found.value.retryable


@pytest.mark.parametrize(
    ("status", "allowed"),
    [({"allowed": True}, True), ({"allowed": False}, False), ({}, False), ({"allowed": True, "denied": True}, False)],
)
def test_only_what_is_said_to_be_allowed_is(status, allowed):
    server = Server(status)
    assert anyio.run(Reviews(server.send, VirtualClock()).allows, ANNA, LIST) is allowed
    path, spec = server.asked[0]
    assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert spec["resourceAttributes"] == {
        "verb": "list",
        "resource": "podgroups",
        "group": "scheduling.run.ai",
        "namespace": "amber",
    }
    assert (spec["user"], spec["groups"]) == ("anna", ["team"])


def test_a_scoped_tokens_rights_are_reviewed_separately():
    server = Server({"allowed": True}, {"allowed": False})
    reviews = Reviews(server.send, VirtualClock())
    scoped = attrs.evolve(ANNA, extra={"scopes": ["user:info"], "by": ["x"]})

    async def scenario():
        assert await reviews.allows(ANNA, LIST)
        assert not await reviews.allows(scoped, LIST)
        assert not await reviews.allows(attrs.evolve(ANNA, extra={"by": ["x"], "scopes": ["user:info"]}), LIST)

    anyio.run(scenario)
    assert [spec["extra"] for _, spec in server.asked] == [{}, scoped.extra], "the order of names says nothing"


def test_an_answer_is_kept_for_seconds_then_asked_again():
    clock, server = VirtualClock(), Server(KNOWN, {"authenticated": False})
    reviews = Reviews(server.send, clock)

    async def scenario():
        assert (await reviews.identify("secret")).user == "anna"
        await clock.pass_time(KEPT - 1)
        assert (await reviews.identify("secret")).user == "anna"
        assert await reviews.identify("secret", most_age=5.0) is None
        assert await reviews.identify("secret") is None
        assert len(server.asked) == 2

    anyio.run(scenario)


def test_the_memory_of_tokens_is_bounded_and_holds_none(monkeypatch):
    monkeypatch.setattr("kai.cluster.requesting.reviews._REMEMBERED", 2)
    reviews = Reviews(Server(KNOWN).send, VirtualClock())

    async def scenario():
        for token in ("one", "two", "three"):
            await reviews.identify(token)

    anyio.run(scenario)
    assert len(reviews._identities) == 2
    assert not any(token in repr(reviews._identities) for token in ("one", "two", "three"))
