"""Objects of any kind: what is remembered of where the server keeps them."""

import contextlib
import json

import anyio

from kai.api.plans import Reason
from kai.cluster.requests import Fetch, FetchAll, NoSuchKind
from kai.cluster.transport.calls import Answer
from tests.doubles.http_server import HttpServer
from tests.unit.cluster.assembled import in_virtual_time, running


@in_virtual_time
async def test_unserved_versions_of_tenants_are_remembered_within_a_limit(monkeypatch):
    monkeypatch.setattr("kai.cluster.requesting.foreign.MOST", 3)
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
async def test_an_endless_list_of_a_foreign_kind_is_rejected():
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


@contextlib.asynccontextmanager
async def serving_a_job(manifest):
    server = HttpServer()
    resources = {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}

    def serve(call):
        if call.path == "/apis/batch/v1":
            return Answer(status=200, body=json.dumps(resources).encode())
        return Answer(status=200, body=json.dumps(manifest).encode()) if call.path.endswith("/jobs/j") else None

    server.faults.before = serve
    async with running(server) as cluster:
        yield await cluster.api.perform(Fetch(api_version="batch/v1", kind="Job", name="j", namespace="team"))


def job(**parts):
    metadata = {"name": "j", "uid": "u", "managedFields": [{"manager": "m" * 100_000}], "labels": {"a": "b"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, **parts}


@in_virtual_time
async def test_a_foreign_objects_status_and_field_managers_are_skipped():
    work = job(spec={"parallelism": 2}, status={"nodes": ["n" * 1000] * 1000})
    async with serving_a_job(work) as found:
        metadata = {"name": "j", "uid": "u", "labels": {"a": "b"}}
        assert found == {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"parallelism": 2}}


@in_virtual_time
async def test_a_small_status_of_a_large_object_is_read():
    async with serving_a_job(job(spec={"a": "s" * 100_000}, status={"rayClusterName": "c"})) as found:
        assert found["status"] == {"rayClusterName": "c"}


@in_virtual_time
async def test_an_object_that_would_fill_memory_is_not_read():
    async with serving_a_job(job(spec={"env": [{}] * 300_000})) as found:
        assert found.reason is Reason.REJECTED
        assert found.message == "the object is too large to be read: found 1171 KiB, expected at most 512"
