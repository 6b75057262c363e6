#!/usr/bin/env bash
# Ray 2.60.0, its autoscaler on Kubernetes (KubeRay, enableInTreeAutoscaling): a group of workers whose container has a limit of
# one `nvidia.com/mig-1g.10gb`, or of one `nvidia.com/gpu.shared` (the name that NVIDIA's device plugin gives to GPUs in time slices
# with renameByDefault), is expected to serve a task with num_gpus=1, as one with `nvidia.com/gpu: 1` does.
# Guess before the run: each of the three counts as one GPU.
# Seen: only a resource whose name ends in "gpu" counts. The other groups have no GPU for the autoscaler, although Ray finds the slice
# in the pod once it runs. So a cluster with no such worker yet never gets one, and the task waits for good. `habana.ai/gaudi` and
# `gpu.intel.com/i915` count as none, too. Remedy: rayStartParams {num-gpus: "1"} for the group.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ray==2.60.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr as derive


def group(name, gpu, params):
    limits = {"cpu": "4", "memory": "8Gi", gpu: "1"}
    container = {"name": "ray-worker", "image": "rayproject/ray:2.60.0", "resources": {"limits": limits, "requests": limits}}
    return {
        "groupName": name, "replicas": 0, "minReplicas": 0, "maxReplicas": 4,
        "rayStartParams": params, "template": {"spec": {"containers": [container]}},
    }


head = {"cpu": "2", "memory": "4Gi"}
cluster = {
    "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "sweep", "namespace": "team"},
    "spec": {
        "rayVersion": "2.60.0", "enableInTreeAutoscaling": True,
        "headGroupSpec": {
            "rayStartParams": {},
            "template": {"spec": {"containers": [
                {"name": "ray-head", "image": "rayproject/ray:2.60.0", "resources": {"limits": head, "requests": head}},
            ]}},
        },
        "workerGroupSpecs": [
            group("whole", "nvidia.com/gpu", {}),
            group("mig", "nvidia.com/mig-1g.10gb", {}),
            group("time-slice", "nvidia.com/gpu.shared", {}),
            group("remedy", "nvidia.com/mig-1g.10gb", {"num-gpus": "1"}),
        ],
    },
}
types = derive(cluster)["available_node_types"]
gpus = {name: types[name]["resources"].get("GPU", 0) for name in ("whole", "mig", "time-slice", "remedy")}
print("GPUs of a worker, as the autoscaler counts them:", gpus)
sys.exit(gpus != {"whole": 1, "mig": 0, "time-slice": 0, "remedy": 1})
PYTHON
