#!/usr/bin/env bash
# dask-kubernetes 2026.3.0: `make_cluster_spec(n_workers=2, resources=...)` describes a Dask cluster with two workers. The name
# of `n_workers` and the documentation of GPU clusters suggest that `resources` are those of a worker: 2 GPUs in all.
# Seen: the pod of the Dask scheduler, which runs no task, has the same resources, so that the cluster asks for 3 GPUs. Remedy:
# set spec.scheduler.spec.containers[0].resources of the result before it is applied.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dask-kubernetes==2026.3.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from dask_kubernetes.operator import make_cluster_spec

spec = make_cluster_spec(name="two", n_workers=2, resources={"limits": {"nvidia.com/gpu": "1"}})["spec"]
gpus = {
    part: sum(int(each.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for each in spec[part]["spec"]["containers"])
    for part in ("worker", "scheduler")
}
whole = spec["worker"]["replicas"] * gpus["worker"] + gpus["scheduler"]
print(f"workers {spec['worker']['replicas']} x {gpus['worker']} GPU, scheduler {gpus['scheduler']} GPU: {whole} in all")
sys.exit(whole != 3)
PYTHON
