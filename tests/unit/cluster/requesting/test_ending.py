"""Nothing new is sent into a namespace that is being deleted, known or learned from the first refusal."""

import json

import anyio
import pytest

from kai.api.kubernetes.meta import ConfigMap, Namespace
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, Emit, Patch, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.caching.store import Watched
from kai.cluster.requests import Apply, Evict, NamespaceEnding
from kai.cluster.transport.calls import Answer
from tests.doubles.http_server import HttpServer
from tests.unit.cluster.assembled import in_virtual_time, running

POD = Ref(Pod, "p", "team")
WATCHED = (Watched(cls=Pod), Watched(cls=Namespace))
ENTERING = [
    pytest.param(Create(ref=Ref(ConfigMap, "m", "team"), manifest={}), id="create"),
    pytest.param(Bind(ref=POD, node="n"), id="bind"),
    pytest.param(Evict(ref=POD, uid=""), id="evict"),
    pytest.param(Emit(ref=POD, type="Normal", reason="R", message="m"), id="emit"),
    pytest.param(Apply(ref=Ref(PodGroup, "g", "team"), manifest={}, manager="kai"), id="apply"),
]
LABEL = Patch(ref=POD, patch={"metadata": {"labels": {"a": "b"}}})
ENDING = {
    "kind": "Status",
    "code": 403,
    "reason": "Forbidden",
    "message": "unable to create new content in namespace team because it is being terminated",
    "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
}


class Ending(HttpServer):
    """A server that refuses whatever enters the namespace ``team``, and counts it."""

    def __init__(self):
        super().__init__()
        self.entered = []
        self.ends = True
        self.faults.before = self.answer
        self.put("pods", "p", "team")

    def answer(self, call):
        if (
            call.method == "GET"
            or "/namespaces/team/" not in call.path
            or (call.method == "PATCH" and "pods" in call.path)
        ):
            return None
        self.entered.append(call.path)
        return Answer(status=403, body=json.dumps(ENDING).encode()) if self.ends else None

    def tell(self, uid="1", **metadata):
        self.put("namespaces", "team", metadata={"uid": uid, **metadata})


@pytest.mark.parametrize("request_", ENTERING)
@in_virtual_time
async def test_nothing_is_sent_into_a_terminating_namespace(request_):
    server = Ending()
    server.tell(deletionTimestamp="2026-01-01T00:00:00Z")
    async with running(server, watched=WATCHED) as cluster:
        assert isinstance(await cluster.api.perform(request_), NamespaceEnding)
        assert not isinstance(await cluster.api.perform(LABEL), Refusal)
        assert server.entered == []


@pytest.mark.parametrize("request_", ENTERING)
@in_virtual_time
async def test_the_first_refusal_counts_for_ten_seconds(request_):
    server = Ending()
    async with running(server, watched=(Watched(cls=Pod),)) as cluster:
        for _ in range(3):
            assert isinstance(await cluster.api.perform(request_), NamespaceEnding)
        assert len(server.entered) == 1
        assert cluster.sender.sent[_counted(cluster)] == 1
        await anyio.sleep(11)
        await cluster.api.perform(request_)
        assert len(server.entered) == 2


def _counted(cluster):
    (found,) = [key for key in cluster.sender.sent if key[2] == 403]
    assert found[3] == "namespace"
    return found


@in_virtual_time
async def test_a_recreated_namespace_takes_new_objects_immediately():
    server = Ending()
    server.tell()
    async with running(server, watched=WATCHED) as cluster:
        event = Emit(ref=POD, type="Normal", reason="R", message="m")
        assert isinstance(await cluster.api.perform(event), NamespaceEnding)  # before the watch has told
        server.ends = False
        server.tell(uid="2")
        await anyio.sleep(1)
        assert await cluster.api.perform(event) is None
