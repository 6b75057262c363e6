#!/usr/bin/env bash
# DLRover 0.6.1: its master makes the worker pods of an ElasticJob from their template. The template here has limits of 8 CPUs, 64Gi and 8
# GPUs and no requests, which in Kubernetes means the same requests, and a priority class.
# Guess before the run: requests equal the limits.
# Seen: only requests are read. Without them requests and limits of CPU and memory are 0, so that a scheduler may put any number of
# workers on a node, as long as it has GPUs. Where requests are below limits, the limits become as low as the requests; CPUs are rounded
# to one decimal, 250m to 0.2. priorityClassName of the template gets lost: `priority` of the replica takes its place, which may be
# high or low. Labels, annotations and schedulerName stay. Remedy: requests equal to limits, and the label priorityClassName for kai.
# Newer packages of kubernetes have another `deserialize` than DLRover calls, so it is pinned.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'dlrover[k8s]==0.6.1' kubernetes==31.0.0
HOME="$folder" "$folder/venv/bin/python" - 2>"$folder/log" <<'PYTHON' || { tail -5 "$folder/log"; exit 1; }
import sys
from unittest.mock import MagicMock, patch

from dlrover.python.common.node import Node
from dlrover.python.master.scaler.pod_scaler import PodScaler
from dlrover.python.scheduler.kubernetes import K8sJobArgs, k8sClient
from kubernetes.client import ApiClient


def worker(resources):
    """Return the first worker pod of an ElasticJob, which a cluster would have under this name."""
    template = {
        "metadata": {"labels": {"kai.scheduler/queue": "research"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "priorityClassName": "train",
            "containers": [{"name": "main", "image": "python:3.11", "resources": resources}],
        },
    }
    job = {
        "metadata": {"name": "train", "uid": "1"},
        "spec": {"distributionStrategy": "AllreduceStrategy", "replicaSpecs": {"worker": {"replicas": 2, "template": template}}},
    }
    cluster = MagicMock(api_client=ApiClient())
    cluster.get_custom_resource.return_value = job
    with patch.object(k8sClient, "singleton_instance", return_value=cluster):
        asked = K8sJobArgs("k8s", "team", "train")
        asked.initilize()
        scaler = PodScaler("train", "team")
        scaler._job = job
        scaler._init_pod_config_by_job()
        node = Node("worker", 0, asked.node_args["worker"].group_resource.node_resource)
        return ApiClient().sanitize_for_serialization(scaler._create_pod(node))


limits = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
seen = []
for resources in ({"limits": limits}, {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": limits}):
    pod = worker(resources)
    found, priority = pod["spec"]["containers"][0]["resources"], pod["spec"].get("priorityClassName")
    print(f"template: {resources}, train\npod:      {found}, priority class {priority!r}")
    seen.append((found["requests"], found["limits"], priority, pod["metadata"]["labels"]["kai.scheduler/queue"]))
few = [{"cpu": 0.0, "memory": "0Mi"}, {"cpu": 0.2, "memory": "1024Mi"}]
sys.exit(seen != [(each, {**each, "nvidia.com/gpu": "8"}, "", "research") for each in few])
PYTHON
