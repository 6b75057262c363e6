"""Objects of any kind: what is remembered of where the server keeps them."""

import json

import anyio

from kai.api.plans import Reason
from kai.cluster.calls import Answer
from kai.cluster.requests import Fetch, FetchAll, NoSuchKind
from tests.doubles.http_server import HttpServer
from tests.unit.cluster.assembled import in_virtual_time, running


@in_virtual_time
async def test_versions_that_tenants_make_up_are_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr("kai.cluster.absence.MOST", 3)
    server = HttpServer()
    resources = {"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]}

    def discovery(call):
        if call.path == "/api/v1":
            return Answer(status=200, body=json.dumps(resources).encode())
        return Answer(status=404, body=b"404 page not found") if call.path.startswith("/apis/g") else None

    server.faults.before = discovery
    async with running(server) as cluster:

        async def ask(version, kind):
            return await cluster.api.perform(Fetch(api_version=version, kind=kind, name="x", namespace="team"))

        for number in range(10):
            assert isinstance(await ask(f"g{number}.example/v1", "K"), NoSuchKind)
            assert len(cluster.api._foreign._unserved) <= 3
            assert cluster.api._foreign._places == {}
        await ask("v1", "Pod")
        await anyio.sleep(61)
        assert isinstance(await ask("g10.example/v1", "K"), NoSuchKind)
        assert set(cluster.api._foreign._places) == {"v1"}, "what is served stays"
        assert len(cluster.api._foreign._unserved) == 1
        assert isinstance(await ask("g10.example/v1", "K"), NoSuchKind)
        assert server.count("GET", "g10.example") == 1


@in_virtual_time
async def test_a_list_of_a_kind_that_others_serve_has_an_end():
    server, pages = HttpServer(), []
    resources = {"resources": [{"name": "things", "kind": "Thing", "namespaced": True}]}

    def endless(call):
        if call.path == "/apis/others.example/v1":
            return Answer(status=200, body=json.dumps(resources).encode())
        if call.path.endswith("/things"):
            pages.append(call)
            return Answer(status=200, body=b'{"metadata":{"continue":"more"},"items":[{}]}')
        return None

    server.faults.before = endless
    async with running(server) as cluster:
        reply = await cluster.api.perform(FetchAll(api_version="others.example/v1", kind="Thing", namespace="team"))
    assert (reply.reason, len(pages)) == (Reason.REJECTED, 200)
    assert "no end" in reply.message
