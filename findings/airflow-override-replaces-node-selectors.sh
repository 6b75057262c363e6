#!/usr/bin/env bash
# Airflow 3.3.2 with its provider cncf.kubernetes 10.25.0, KubernetesExecutor: the pod template of a deployment has a label, a selector
# of A100 nodes, the toleration of GPU nodes and a limit of one GPU. A task has a `pod_override` that adds one label, one selector, one
# toleration and a request of 4 CPUs.
# Guess before the run: labels and node selectors, both dictionaries, are merged; tolerations and resources are those of the task.
# Seen: of these only labels are merged. The selector of the task takes the place of the other, so a task that names a zone may run on
# any node there. It asks for no GPU and tolerates no GPU node either. Remedy: a `pod_override` repeats selectors, tolerations
# and resources of the template.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  apache-airflow==3.3.2 apache-airflow-providers-cncf-kubernetes==10.25.0 kubernetes==36.0.3
AIRFLOW_HOME="$folder" "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import sys
from datetime import datetime, timezone

from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from kubernetes.client import ApiClient, models


def pod(label, selector, toleration, resources):
    return models.V1Pod(
        metadata=models.V1ObjectMeta(labels=label),
        spec=models.V1PodSpec(
            node_selector=selector,
            tolerations=[models.V1Toleration(key=toleration, operator="Exists")],
            containers=[models.V1Container(name="base", resources=models.V1ResourceRequirements(**resources))],
        ),
    )


product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
zone = {"topology.kubernetes.io/zone": "b"}
template = pod({"kai.scheduler/queue": "research"}, product, "nvidia.com/gpu", {"limits": {"nvidia.com/gpu": "1"}})
override = pod({"team": "vision"}, zone, "spot", {"requests": {"cpu": "4"}})
made = ApiClient().sanitize_for_serialization(
    PodGenerator.construct_pod(
        dag_id="train", task_id="fit", pod_id="train-fit", try_number=1, kube_image="python:3.11",
        date=datetime(2026, 1, 1, tzinfo=timezone.utc), args=["true"], namespace="team", scheduler_job_id="1", run_id="run",
        pod_override_object=override, base_worker_pod=template,
    )
)
labels = {key: made["metadata"]["labels"].get(key) for key in ("kai.scheduler/queue", "team")}
spec = made["spec"]
seen = labels, spec["nodeSelector"], [each["key"] for each in spec["tolerations"]], spec["containers"][0]["resources"]
print("labels %s\nnode selector %s\ntolerations %s\nresources %s" % seen)
sys.exit(seen != ({"kai.scheduler/queue": "research", "team": "vision"}, zone, ["spot"], {"requests": {"cpu": "4"}}))
PYTHON
