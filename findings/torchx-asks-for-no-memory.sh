#!/usr/bin/env bash
# torchx 0.7.0, its scheduler `kubernetes` (Volcano Jobs): a role with `Resource(cpu=1, memMB=1024, gpu=1)` is expected to become
# a pod that requests 1 CPU and 1024 MB.
# Seen: TorchX keeps 100m CPU and 1024 MB of each pod back for the node, in the request and not in the limit. This pod requests
# 900m CPU and 0M of memory, with limits of 1 CPU and 1024M: a scheduler packs pods by requests, and may put any number of them on
# a node that has memory for one. A role with `memMB=2048` requests half of its limit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torchx==0.7.0 kubernetes==31.0.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from torchx.schedulers.kubernetes_scheduler import role_to_pod
from torchx.specs import Resource, Role

seen = []
for megabytes in (1024, 2048):
    role = Role(name="train", image="image", entrypoint="train", resource=Resource(cpu=1, memMB=megabytes, gpu=1))
    resources = role_to_pod("train", role, service_account=None).spec.containers[0].resources
    print(f"memMB={megabytes}: requests {resources.requests}, limits {resources.limits}")
    seen.append((resources.requests["cpu"], resources.requests["memory"], resources.limits["memory"]))
sys.exit(seen != [("900m", "0M", "1024M"), ("900m", "1024M", "2048M")])
PYTHON
