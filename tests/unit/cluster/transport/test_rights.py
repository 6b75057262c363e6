"""Rights that are missing are named once; those that come with the next second are waited for."""

import json

import anyio
import pytest
from structlog.testing import capture_logs

from kai.api.kubernetes.meta import ConfigMap
from kai.api.plans import Patch, Ref, Refusal
from kai.cluster.requests import Fetch, Forbidden
from kai.cluster.transport.calls import Answer
from kai.cluster.transport.reachability import Right, right_of, why_forbidden
from tests.doubles.http_server import HttpServer
from tests.unit.cluster.assembled import in_virtual_time, port, running

WHO = "system:serviceaccount:kai-scheduler:kai"


def forbidden(verb="patch", resource="configmaps", group="", where='in the namespace "team"'):
    message = (
        f'{resource} "x" is forbidden: User "{WHO}" cannot {verb} resource "{resource}" '
        f'in API group "{group}" {where}: RBAC: not found'
    )
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message, "details": {"name": "x"}}
    return Answer(status=403, body=json.dumps(body).encode())


def served():
    server = HttpServer()
    server.put("configmaps", "c", "team", data={"n": "0"})
    return server


FOUND = {"resources": [{"name": "secrets", "kind": "Secret", "namespaced": True}]}

PATCH = Patch(ref=Ref(ConfigMap, "c", "team"), patch={"data": {"n": "1"}})


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (
            forbidden(),
            Right(verb="patch", resource="configmaps", group="", namespace="team", account=WHO),
        ),
        (
            forbidden("list", "queues", "scheduling.run.ai", "at the cluster scope"),
            Right(verb="list", resource="queues", group="scheduling.run.ai", namespace="", account=WHO),
        ),
        (Answer(status=403, body=b'{"kind":"Status","message":"admission webhook denied the request"}'), None),
        (Answer(status=403, body=b"no json"), None),
        (Answer(status=403, body=b'{"kind":"Status","message":7}'), None),
    ],
)
def test_the_right_is_read_from_what_the_server_says(answer, right):
    assert right_of(answer) == right


def refused(message, **details):
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message, "details": details}
    return Answer(status=403, body=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(forbidden(), "rights", id="a role"),
        pytest.param(refused(f'forbidden: User "{WHO}" cannot get path "/metrics"'), "rights", id="a path"),
        pytest.param(Answer(status=403, body=b"<html>no</html>"), "rights", id="a proxy"),
        pytest.param(
            refused(
                'events "e" is forbidden: unable to create new content in namespace team',
                causes=[{"reason": "NamespaceTerminating", "message": "...", "field": "metadata.namespace"}],
            ),
            "namespace",
            id="a namespace that ends",
        ),
        pytest.param(
            refused('pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'),
            "quota",
            id="a quota",
        ),
        pytest.param(refused('admission webhook "w" denied the request: no'), "admission", id="a webhook"),
        pytest.param(refused('pods "p" is forbidden: violates PodSecurity "restricted"'), "admission", id="a standard"),
    ],
)
def test_a_call_that_is_forbidden_says_by_what(answer, reason):
    assert why_forbidden(answer) == reason


@in_virtual_time
async def test_a_right_is_missing_until_ten_minutes_after_refusal():
    server = served()
    refuses = [True]
    server.faults.before = lambda call: forbidden() if call.method == "PATCH" and refuses[0] else None
    async with running(server) as cluster:
        await cluster.api.perform(PATCH)
        assert cluster.sender.rights.missing() == {("patch", "configmaps"): 1}
        refuses[0] = False
        await cluster.api.perform(PATCH)
        await anyio.sleep(590)
        assert cluster.sender.rights.missing()
        await anyio.sleep(20)
        assert not cluster.sender.rights.missing()


@in_virtual_time
async def test_a_refusal_at_server_start_is_no_missing_right():
    server = served()
    first = [forbidden()]
    server.faults.before = lambda call: first.pop() if call.method == "PATCH" and first else None
    async with running(server) as cluster:
        assert not isinstance(await cluster.api.perform(PATCH), Refusal)
        assert not cluster.sender.rights.missing()


@in_virtual_time
async def test_a_forbidden_list_names_the_missing_right_once():
    server = served()
    answer = forbidden("list", "nodes", where="at the cluster scope")
    server.faults.before = lambda call: answer if "/nodes" in call.path else None
    cluster = port(server)
    with capture_logs() as lines:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.run)
            await anyio.sleep(8)
            said = [line for line in lines if line["event"] == "right is missing"]
            await anyio.sleep(600)
            assert said == [line for line in lines if line["event"] == "right is missing"]
            assert any("cannot list resource" in problem for problem in cluster.problems())
            tasks.cancel_scope.cancel()
    (line,) = said
    facts = ("verb", "resource", "group", "namespace", "account", "log_level")
    assert tuple(line[fact] for fact in facts) == ("list", "nodes", "", "", WHO, "error")


@pytest.mark.parametrize("is_foreign", [True, False])
@in_virtual_time
async def test_foreign_reads_do_not_count_as_missing_rights(is_foreign):
    server = served()
    answers = {
        "/api/v1": Answer(status=200, body=json.dumps(FOUND).encode()),
        "/api/v1/namespaces/team/secrets/s": forbidden("get", "secrets"),
    }
    server.faults.before = lambda call: answers.get(call.path)
    with capture_logs() as lines:
        async with running(server) as cluster:
            for _ in range(3):
                fetch = Fetch(api_version="v1", kind="Secret", name="s", namespace="team", is_foreign=is_foreign)
                assert isinstance(await cluster.api.perform(fetch), Forbidden)
                await anyio.sleep(4)
            codes = {what: count for (_, what, code, _), count in cluster.sender.sent.items() if code == 403}
    assert codes == {"foreign" if is_foreign else "secrets": 3}
    assert is_foreign != any(line["event"] == "right is missing" for line in lines)


@pytest.mark.parametrize(
    ("version", "name"), [("../..", "s"), ("..", "s"), ("v1?x=", "s"), ("a/../b", "s"), ("v1", ".."), ("v1", ".")]
)
@in_virtual_time
async def test_a_tenants_owner_reference_reaches_no_other_path(version, name):
    server = served()
    seen = []

    def answer(call):
        seen.append(call.path)
        return Answer(status=200, body=json.dumps(FOUND).encode()) if call.path == "/api/v1" else None

    server.faults.before = answer
    async with running(server) as cluster:
        fetch = Fetch(api_version=version, kind="Secret", name=name, namespace="team", is_foreign=True)
        assert isinstance(await cluster.api.perform(fetch), Refusal)
    assert not [path for path in seen if "secrets" in path or ".." in path or "?" in path]


@in_virtual_time
async def test_a_write_forbidden_briefly_is_done_without_a_log():
    server = served()
    with capture_logs() as lines:
        async with running(server) as cluster:
            server.faults.before = lambda call: forbidden() if call.method == "PATCH" else None

            async def allow():
                await anyio.sleep(2.0)
                server.faults.before = lambda _: None

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(allow)
                reply = await cluster.api.perform(PATCH)
    assert reply.data == {"n": "1"}
    assert lines == []


@in_virtual_time
async def test_a_write_still_forbidden_fails_after_ten_seconds():
    server = served()
    with capture_logs() as lines:
        async with running(server) as cluster:
            server.faults.before = lambda call: forbidden() if call.method == "PATCH" else None
            began = anyio.current_time()
            reply = await cluster.api.perform(PATCH)
            assert isinstance(reply, Forbidden)
            assert 10.0 <= anyio.current_time() - began <= 12.0
            assert server.count("PATCH", "/configmaps/c") == 4
            began = anyio.current_time()
            assert isinstance(await cluster.api.perform(PATCH), Forbidden)
            assert anyio.current_time() - began < 0.1
    assert [line["event"] for line in lines] == ["right is missing"]


@in_virtual_time
async def test_what_no_right_would_allow_is_not_tried_again():
    server = served()
    body = b'{"kind":"Status","code":403,"message":"admission webhook denied the request"}'
    async with running(server) as cluster:
        server.faults.before = lambda call: Answer(status=403, body=body) if call.method == "PATCH" else None
        assert isinstance(await cluster.api.perform(PATCH), Forbidden)
        assert server.count("PATCH", "/configmaps/c") == 1
