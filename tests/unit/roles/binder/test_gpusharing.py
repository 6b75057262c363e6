import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.api.values import BadValue
from kai.roles.binder.outcome import BindContext, BindFailureError
from kai.roles.binder.steps import GpuSharing, HamiCore
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import bind_request, cluster, node, sharing_pod, sharing_request

PREFIX = "p-abc1234-shared-gpu"


def context(manifest=None, request=None, labels=None, devices=("GPU-1", "GPU-2")):
    return BindContext(
        pod=structure_as(Pod, manifest or sharing_pod()),
        node=structure_as(Node, node(labels=labels)),
        request=structure_as(BindRequest, request or sharing_request()),
        devices=devices,
    )


def prepare(bind_context, step=None, *manifests):
    server = cluster(*manifests)
    carry_out((step or GpuSharing()).prepare(bind_context), server.perform)
    return server


def values(server, name):
    return server.get("ConfigMap", name, "ns")["data"]


def reading_by_key(place="containers"):
    manifest = sharing_pod()
    reference = {"configMapKeyRef": {"name": f"{PREFIX}-0", "key": "NVIDIA_VISIBLE_DEVICES"}}
    manifest["spec"][place] = [{"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": reference}]}]
    return manifest


def test_devices_go_into_the_map_the_container_reads():
    server = prepare(context(reading_by_key()))
    assert values(server, f"{PREFIX}-0") == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "RUNAI_NUM_OF_GPUS": "0.50",
        "GPU_PORTION": "0.50",
    }
    assert values(server, f"{PREFIX}-0-evar") == {}


def test_a_container_without_key_reads_devices_from_its_environment():
    server = prepare(context())
    assert values(server, f"{PREFIX}-0") == {"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50"}
    assert values(server, f"{PREFIX}-0-evar") == {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}


@pytest.mark.parametrize("annotations", [{}, {"gpu-fraction-container-name": "main"}])
def test_a_container_in_front_does_not_move_the_maps(annotations):
    manifest = reading_by_key()
    manifest["metadata"]["annotations"] |= annotations
    manifest["spec"]["containers"].insert(0, {"name": "proxy"})
    server = prepare(context(manifest))
    assert values(server, f"{PREFIX}-0")["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert values(server, f"{PREFIX}-0-evar") == {}
    assert server.get("ConfigMap", f"{PREFIX}-1", "ns") is None


def test_two_maps_are_written_once():
    server = prepare(context())
    carry_out(GpuSharing().prepare(context()), server.perform)
    assert len(server.writes) == 2


def test_devices_are_named_as_the_device_plugin_wants_them():
    server = prepare(context(), GpuSharing(uses_cdi=True))
    base = "k8s.device-plugin.nvidia.com/gpu="
    assert values(server, f"{PREFIX}-0-evar")["NVIDIA_VISIBLE_DEVICES"] == f"{base}GPU-1,{base}GPU-2"


def test_the_old_key_is_updated_where_it_exists():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-ns-p"}
    old = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{PREFIX}-0", "namespace": "ns", "ownerReferences": [owner]},
        "data": {"RUNAI-VISIBLE-DEVICES": "0"},
    }
    server = prepare(context(reading_by_key()), None, old)
    assert values(server, f"{PREFIX}-0")["RUNAI-VISIBLE-DEVICES"] == "GPU-1,GPU-2"


def test_a_bind_without_a_share_touches_no_maps():
    whole = context(request=bind_request())
    server = prepare(whole)
    carry_out(GpuSharing().undo(whole), server.perform)
    assert server.requests == []


def test_undoing_deletes_both_maps_of_an_init_container():
    manifest = sharing_pod(annotations={"gpu-fraction-container-name": "setup"}, initContainers=[{"name": "setup"}])
    server = prepare(context(manifest))
    assert server.names("ConfigMap") == [f"{PREFIX}-i0", f"{PREFIX}-i0-evar"]
    carry_out(GpuSharing().undo(context(manifest)), server.perform)
    assert server.names("ConfigMap") == []


def test_a_request_that_grants_no_gpu_is_refused():
    request = sharing_request()
    del request["spec"]["receivedGPU"]
    with pytest.raises(BindFailureError, match="bindrequest ns/p: names no received GPU"):
        prepare(context(request=request))


def test_a_missing_container_is_named_and_undone_quietly():
    manifest = sharing_pod(annotations={"gpu-fraction-container-name": "ghost"})
    with pytest.raises(BadValue, match=r'pod ns/p: metadata.annotations.gpu-fraction-container-name: found "ghost"'):
        prepare(context(manifest))
    carry_out(GpuSharing().undo(context(manifest)), cluster().perform)


@pytest.mark.parametrize(
    ("labels", "portion", "limit"),
    [
        ({"nvidia.com/gpu.memory": "8001"}, "0.5", "4000m"),
        ({"nvidia.com/gpu.memory": "8000"}, "0.25", "2000m"),
        ({}, "0.5", None),
        ({"nvidia.com/gpu.memory": "lots"}, "0.5", None),
        ({"nvidia.com/gpu.memory": "0"}, "0.5", None),
        ({"nvidia.com/gpu.memory": "8000"}, "x", None),
        ({"nvidia.com/gpu.memory": "1"}, "0.1", None),
    ],
)
def test_the_memory_limit_is_the_portion_of_node_memory(labels, portion, limit):
    bind_context = context(request=sharing_request(portion=portion), labels=labels)
    server = prepare(bind_context)
    carry_out(HamiCore().prepare(bind_context), server.perform)
    assert values(server, f"{PREFIX}-0").get("CUDA_DEVICE_MEMORY_LIMIT") == limit
    carry_out(HamiCore().undo(bind_context), server.perform)
