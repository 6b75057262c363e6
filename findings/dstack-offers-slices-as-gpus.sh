#!/usr/bin/env bash
# dstack 0.22.5, backend kubernetes: GPUs of a node are offered by their memory, `gpu: 24GB` for instance. GPU feature discovery
# writes the memory of what `nvidia.com/gpu` counts into the label nvidia.com/gpu.memory: that of a slice with the MIG strategy `single`.
# Guess before the run: the offer has the memory of that label.
# Seen: the label is not read. Memory comes from a table by the name of the model, so seven slices of 4,864 MiB are offered as seven
# A100 with 40 GiB each, a V100 of 16 GiB as one of 32, an H100 NVL of 94 GiB as one of 80. So a pod that needs 24 GiB is sent to a
# slice of 5.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "dstack[kubernetes]==0.22.5"
HOME="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import sys

from dstack._internal.core.backends.kubernetes.resources import get_instance_offer_from_node
from kubernetes.client import V1Node, V1NodeSpec, V1NodeStatus, V1NodeSystemInfo, V1ObjectMeta


def offered(product, memory, count):
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": memory, "nvidia.com/gpu.count": count}
    about = dict.fromkeys(
        ("boot_id", "container_runtime_version", "kernel_version", "kube_proxy_version", "kubelet_version", "machine_id",
         "operating_system", "os_image", "system_uuid"), "x")
    allocatable = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "500Gi", "nvidia.com/gpu": count}
    node = V1Node(
        metadata=V1ObjectMeta(name="node", labels=labels),
        spec=V1NodeSpec(),
        status=V1NodeStatus(allocatable=allocatable, node_info=V1NodeSystemInfo(architecture="amd64", **about)),
    )
    gpus = get_instance_offer_from_node(node, "region").instance.resources.gpus
    found = {(gpu.name, gpu.memory_mib) for gpu in gpus}
    print(f"{count} x {product}, {memory} MiB by its label: {len(gpus)} x {found}")
    return len(gpus), found


seen = [
    offered("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "4864", "7"),
    offered("Tesla-V100-SXM2-16GB", "16384", "1"),
    offered("NVIDIA-H100-NVL", "95830", "1"),
]
sys.exit(seen != [(7, {("A100", 40960)}), (1, {("V100", 32768)}), (1, {("H100", 81920)})])
PYTHON
