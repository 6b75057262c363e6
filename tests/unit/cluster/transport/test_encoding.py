import json
import types

import pytest

from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, Delete, Get, List, Patch, Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.requests import Apply, Evict, JsonPatch
from kai.cluster.transport.encoding import ServedVersions, encode_read, encode_write, to_json

POD = Ref(Pod, "p", "team")
GROUP = Ref(PodGroup, "g", "team")
AT_POD = "/api/v1/namespaces/team/pods/p"
AT_GROUP = "/apis/scheduling.run.ai/v2alpha2/namespaces/team/podgroups/g"


def written(request):
    call = encode_write(request, ServedVersions())
    return call.method, call.path, call.content_type.partition("/")[2], json.loads(call.body)


def test_a_creation_goes_to_its_kinds_path_with_kind():
    assert written(Create(ref=GROUP, manifest={"spec": {"minMember": 2}})) == (
        "POST",
        AT_GROUP.removesuffix("/g"),
        "json",
        {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "team"},
            "spec": {"minMember": 2},
        },
    )


def test_a_patch_goes_to_its_object_or_subresource():
    body = {"status": {"phase": "x"}}
    assert written(Patch(ref=GROUP, patch=body, subresource="status")) == (
        "PATCH",
        f"{AT_GROUP}/status",
        "merge-patch+json",
        body,
    )
    assert written(Patch(ref=POD, patch=body, form="strategic"))[2] == "strategic-merge-patch+json"
    operations = ({"op": "test", "path": "/spec", "value": 1},)
    assert written(JsonPatch(ref=POD, operations=operations)) == ("PATCH", AT_POD, "json-patch+json", [*operations])


def test_to_apply_names_the_manager_and_takes_fields_over():
    request = Apply(ref=Ref(Queue, "q"), manifest={"spec": {}}, manager="kai", subresource="status")
    call = encode_write(request, ServedVersions())
    assert call.path == "/apis/scheduling.run.ai/v2/queues/q/status"
    assert call.query == (("fieldManager", "kai"), ("force", "true"))
    assert call.content_type == "application/apply-patch+yaml"
    assert json.loads(call.body)["metadata"] == {"name": "q"}


def test_a_deletion_carries_what_it_depends_on():
    assert written(Delete(ref=POD, uid="u", grace_seconds=0)) == (
        "DELETE",
        AT_POD,
        "json",
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": "u"},
            "gracePeriodSeconds": 0,
        },
    )


def test_a_binding_carries_uid_version_and_annotations():
    request = Bind(ref=POD, node="n", uid="u", resource_version="7", annotations=types.MappingProxyType({"a": "b"}))
    method, path, _, body = written(request)
    assert (method, path) == ("POST", f"{AT_POD}/binding")
    assert body["metadata"] == {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "annotations": {"a": "b"},
    }
    assert body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n"}
    assert written(Bind(ref=POD, node="n"))[3]["metadata"] == {"name": "p", "namespace": "team"}


def test_an_eviction_carries_the_uid_and_what_admission_checks():
    method, path, _, body = written(Evict(ref=POD, uid="u", annotations={"epoch": "3"}))
    assert (method, path) == ("POST", f"{AT_POD}/eviction")
    assert body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "team", "annotations": {"epoch": "3"}},
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }


def test_reads_select_on_the_server():
    call = encode_read(
        List(cls=Pod, namespace="team", labels={"a": "b", "c": "d"}, node="n"), ServedVersions(), limit=5
    )
    assert call.path == "/api/v1/namespaces/team/pods"
    assert call.query == (("labelSelector", "a=b,c=d"), ("fieldSelector", "spec.nodeName=n"), ("limit", "5"))
    assert encode_read(Get(ref=Ref(BindRequest, "a/b", "x y")), ServedVersions()).path.endswith(
        "/namespaces/x%20y/bindrequests/a%2Fb"
    )


def test_a_kind_uses_the_version_that_is_served():
    served = ServedVersions()
    served.settle(ResourceClaim, "resource.k8s.io/v1beta1")
    assert served.path(Ref(ResourceClaim, "c", "team")).startswith("/apis/resource.k8s.io/v1beta1/namespaces/team/")
    call = encode_write(Create(ref=Ref(ResourceClaim, "c", "team"), manifest={}), served)
    assert json.loads(call.body)["apiVersion"] == "resource.k8s.io/v1beta1"


def test_a_value_outside_json_raises_a_clear_error():
    with pytest.raises(TypeError, match="found a value of type object, expected JSON"):
        to_json({"a": object()})
