#!/usr/bin/env bash
# Toil 9.6.0 on Kubernetes: a job with `accelerators=[{"kind": "gpu", "model": "a100", "count": 1}]`, 16Gi of memory and 1Gi of disk.
# Guess before the run: the pod asks for one GPU, 16Gi and 1Gi, and nothing comes of the model, since names of models differ by cluster.
# Seen: the pod requires nodes with the label accelerator=a100, which neither GPU feature discovery nor GKE writes (theirs are
# nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB and cloud.google.com/gke-accelerator=nvidia-tesla-a100), so that it waits for
# good. Memory and disk are 512Mi more than asked, in requests and limits: of eight jobs with an eighth of a node's memory each, seven
# run. Remedy: no model, or that label on nodes. (`kai why` names the label that no node has.)
# Toil asks no cluster until a job is sent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check 'toil[kubernetes]==9.6.0'
cat >kubeconfig <<'CONFIG'
apiVersion: v1
kind: Config
current-context: none
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
CONFIG
HOME="$folder" KUBECONFIG="$folder/kubeconfig" venv/bin/python - <<'PYTHON'
import os
import sys

from kubernetes.client import ApiClient
from toil.batchSystems.kubernetes import KubernetesBatchSystem
from toil.common import Config
from toil.job import JobDescription

config = Config()
config.workflowID = "workflow"
system = KubernetesBatchSystem(config, 1, 1 << 30, 1 << 30)
gpu = {"kind": "gpu", "model": "a100", "count": 1}
asked = {"cores": 1, "memory": "16Gi", "disk": "1Gi", "accelerators": [gpu], "preemptible": True}
pod = ApiClient().sanitize_for_serialization(system._create_pod_spec("true", JobDescription(asked, jobName="train")))
(terms,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
resources = pod["containers"][0]["resources"]
print("nodes:", terms["matchExpressions"])
print("resources:", resources)
amounts = {"cpu": "1", "memory": str((16 * 1024 + 512) << 20), "ephemeral-storage": str(1536 << 20), "nvidia.com/gpu": "1"}
seen = terms["matchExpressions"], resources
wanted = [{"key": "accelerator", "operator": "In", "values": ["a100"]}], {"requests": amounts, "limits": amounts}
sys.stdout.flush()
os._exit(seen != wanted)  # a thread of Toil would wait for the cluster
PYTHON
