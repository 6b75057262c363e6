"""Writes that give a pod a node say in which term: admission refuses what comes after the next one began."""

import json

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, Ref
from tests.unit.cluster.assembled import in_virtual_time, running
from tests.unit.cluster.requesting.test_write import POD, server_with_pod


@in_virtual_time
async def test_a_binding_says_in_which_term_it_is_written():
    server = server_with_pod()
    async with running(server, lease="me") as cluster:
        term = await cluster.leadership.begun()
        bind = Bind(ref=POD, node="n1", uid="uid-1", annotations={"a": "b"})
        await cluster.api.fenced(term).perform(bind)
        await cluster.api.perform(bind)
        first, second = (json.loads(call.body)["metadata"] for call in server.calls if "binding" in call.path)
        assert first["annotations"] == {"a": "b", "kai.scheduler/epoch": "1", "kai.scheduler/lease": "lock"}
        assert second["annotations"] == {"a": "b"}, "where nobody elects, there are no terms"


@in_virtual_time
async def test_only_a_pod_created_on_a_node_is_stamped():
    """A pod that holds a GPU for others is made there; one that comes late would take what was given away since."""
    server = server_with_pod()
    async with running(server, lease="me") as cluster:
        requests = cluster.api.fenced(await cluster.leadership.begun())
        for name, spec in (("held", {"nodeName": "n1"}), ("free", {})):
            metadata = {"name": name, "namespace": "default", "annotations": {"a": "b"}}
            manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            await requests.perform(Create(ref=Ref(Pod, name, "default"), manifest=manifest))
        calls = [call for call in server.calls if call.method == "POST" and call.path.endswith("/pods")]
        made = [json.loads(call.body)["metadata"] for call in calls]
        assert [each["annotations"] for each in made] == [
            {"a": "b", "kai.scheduler/epoch": "1", "kai.scheduler/lease": "lock"},
            {"a": "b"},
        ]
