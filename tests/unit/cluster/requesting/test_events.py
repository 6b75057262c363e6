"""Events as they are recorded, and those that count what happens again."""

import re

import anyio
import pytest

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Ref
from kai.cluster.transport.calls import Answer
from tests.doubles.http_server import HttpServer
from tests.unit.cluster.assembled import in_virtual_time, running

POD = Ref(Pod, "p", "team")


def server_with_pod():
    server = HttpServer()
    server.put("pods", "p", "team")
    return server


@in_virtual_time
async def test_an_event_is_recorded_beside_its_object():
    server = server_with_pod()
    async with running(server) as cluster:
        for ref in (POD, Ref(Node, "n1")):
            emit = Emit(ref=ref, type="Warning", reason="Unschedulable", message="x" * 2000, uid="u")
            assert await cluster.api.perform(emit) is None
        first, second = (event for place, event in sorted(server.objects.items()) if place[0] == "events")
        assert first["metadata"]["namespace"] == "default", "events of cluster-scoped objects have no other place"
        assert second["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "team",
            "name": "p",
            "uid": "u",
        }
        assert second["source"] == {"component": "kai-test"}
        assert len(second["message"]) == 1024


@in_virtual_time
@pytest.mark.parametrize("name", ["a" * 199 + "-" + "b" * 53, "a" * 198 + ".b" + "c" * 53, "a" * 253])
async def test_an_event_about_a_long_name_is_validly_named(name):
    """What is cut must not end in what no part of a name may end in."""
    server = server_with_pod()
    async with running(server) as cluster:
        emit = Emit(ref=Ref(Pod, name, "team"), type="Warning", reason="Unschedulable", message="x", uid="u")
        assert await cluster.api.perform(emit) is None
        (event,) = (event for place, event in server.objects.items() if place[0] == "events")
    found = event["metadata"]["name"]
    assert len(found) <= 253
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", found)


@in_virtual_time
async def test_repeated_occurrences_are_counted_in_one_event():
    server = server_with_pod()

    def events():
        found = [each for place, each in sorted(server.objects.items()) if place[0] == "events"]
        return [(each["message"], each["count"], each["lastTimestamp"] > each["firstTimestamp"]) for each in found]

    def emit(message, name="p"):
        ref = Ref(Pod, name, "team")
        return Emit(ref=ref, type="Warning", reason="BindingError", message=message, uid=name, is_counted=True)

    async with running(server) as cluster:
        for number in range(3):
            await anyio.sleep(5)
            assert await cluster.api.perform(emit(f"no {number}")) is None
        assert await cluster.api.perform(emit("no", "q")) is None
        assert events() == [("no 2", 3, True), ("no", 1, False)]
        for place in [place for place in server.objects if place[0] == "events"]:
            del server.objects[place]
        assert await cluster.api.perform(emit("anew")) is None
        assert events() == [("anew", 1, False)], "events are kept for an hour or so"
        server.faults.before = lambda call: Answer(status=403, body=b'{"code":403}') if call.method == "PATCH" else None
        assert await cluster.api.perform(emit("beside")) is None
        assert sorted(events()) == [("anew", 1, False), ("beside", 1, False)], "with roles that let no event be changed"
