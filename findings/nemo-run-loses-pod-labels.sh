#!/usr/bin/env bash
# NeMo-Run 0.11.1 with Kubeflow Trainer 2.3.0: `KubeflowExecutor(pod_labels=..., tolerations=..., volumes=...)` is expected to become a
# TrainJob whose pods have these labels, tolerations and volumes.
# Seen: they are in spec.podTemplateOverrides, which the API of Kubeflow Trainer has no more since release 2.2.0 (it is runtimePatches
# now). An API server drops fields that a definition lacks, so the pods come without the label of their queue, without tolerations
# for GPU nodes and without volumes, and nothing fails. Remedy: `spec_kwargs` with runtimePatches. (`kai lint` says J044 of the TrainJob.)
# The models of the package kubeflow-trainer-api stand for the definition. leptonai is pinned, since with 0.47 NeMo-Run can't be imported.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check 'nemo-run[kubeflow]==0.11.1' leptonai==0.27.3 kubeflow-trainer-api==2.3.0
cat >kubeconfig <<'CONFIG'
apiVersion: v1
kind: Config
current-context: none
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
CONFIG
HOME="$folder" KUBECONFIG="$folder/kubeconfig" venv/bin/python - <<'PYTHON'
import sys

from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob
from nemo_run.core.execution.kubeflow import KubeflowExecutor

executor = KubeflowExecutor(
    image="python:3.11",
    num_nodes=2,
    gpus_per_node=8,
    pod_labels={"kai.scheduler/queue": "research"},
    tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
)
sent = executor.get_job_body("train", ["true"])
kept = TrainerV1alpha1TrainJob.from_dict(sent).to_dict()
print("sent:", sent["spec"])
print("kept:", kept["spec"])
has_label = "research" in str(sent["spec"]["podTemplateOverrides"])
sys.exit(not has_label or "research" in str(kept) or "tolerations" in str(kept))
PYTHON
