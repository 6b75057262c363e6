#!/usr/bin/env bash
# kubetorch 0.5.1: `Compute(gpu_memory="4Gi")` is documented as a request for a whole GPU whose memory is limited, so its pod is
# expected to ask for one GPU, or for a part of one from a scheduler that shares GPUs.
# Seen: the pod asks for no GPU in any form. The Deployment has the annotation `gpu-memory: 4Gi`, the pod template has none. KAI-Scheduler
# knows an annotation of that name, but on pods, and as a number of MiB. So the pod starts on a node without GPUs. Remedy: gpus=1, or
# the annotation on the pod template with the value 4096.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kubetorch==0.5.1
HOME="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import sys

import kubetorch

image = kubetorch.Image(image_id="python:3.11")
manifest = kubetorch.Compute(gpu_memory="4Gi", cpus="1", image=image, namespace="default").manifest
pod = manifest["spec"]["template"]
seen = {
    "annotations of the Deployment": manifest["metadata"].get("annotations"),
    "annotations of the pod": pod["metadata"].get("annotations"),
    "resources of the pod": pod["spec"]["containers"][0]["resources"],
}
for what, found in seen.items():
    print(f"{what}: {found}")
sys.exit(list(seen.values()) != [{"gpu-memory": "4Gi"}, {}, {"requests": {"cpu": "1"}}])
PYTHON
