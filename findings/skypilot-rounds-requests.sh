#!/usr/bin/env bash
# SkyPilot 0.14.1 on Kubernetes: a task with `cpus: 0.25` and `memory: 1.25` (its documentation: GiB) is expected to become a pod
# that requests at least 250m CPU and 1.25Gi.
# Seen: requests pass through a name of an instance type, which keeps one decimal: 0.25 CPU becomes 0.2, 0.04 becomes 0.0, and 1.25 of
# memory becomes 1.2. The template of the pod then writes the memory with the suffix G, so the pod requests 1.2G, which is 1.12Gi: 11 %
# less than asked. Halves are rounded to the even digit: 3.75 becomes 3.8. A scheduler packs such pods more densely than their
# authors allow. Remedy: whole numbers of CPUs, and 8 % more memory than needed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "skypilot[kubernetes]==0.14.1"
HOME="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import pathlib
import re
import sys

import sky
from sky.clouds import Kubernetes

seen = []
for cpus, memory in (("0.25", "1.25"), ("0.04", "0.5"), ("2", "3.75")):
    name = Kubernetes.get_default_instance_type(cpus=cpus, memory=memory)
    asked = Kubernetes.get_vcpus_mem_from_instance_type(name)
    print(f"cpus: {cpus}, memory: {memory} -> {name}: {asked[0]} CPU, {asked[1]} of memory")
    seen.append(asked)
template = pathlib.Path(sky.__file__).parent / "templates" / "kubernetes-ray.yml.j2"
suffixes = re.findall(r"^ *memory: \{\{ *memory *\}\}(\w+)$", template.read_text(), re.MULTILINE)
print(f"suffix of the request for memory in the template of the pod: {suffixes}")
sys.exit((seen, suffixes) != ([(0.2, 1.2), (0.0, 0.5), (2.0, 3.8)], ["G"]))
PYTHON
