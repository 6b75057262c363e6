#!/usr/bin/env bash
# lightkube 1.0.1: `lightkube.utils.quantity.parse_quantity` reads quantities of Kubernetes. The metrics API (metrics.k8s.io)
# writes the CPU of a container in nanocores, such as 123456n.
# The suffixes n and u belong to the format of quantities (resource.Quantity, DecimalSI), so they are expected to be read.
# Seen: ValueError for both, while Z, Y, Zi and Yi, which Kubernetes does not know, are read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check lightkube==1.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from lightkube.utils.quantity import parse_quantity


def read(text):
    try:
        return str(parse_quantity(text))
    except ValueError as error:
        return f"ValueError: {error}"


seen = {text: read(text) for text in ("100m", "123456n", "250u", "1Zi")}
for text, found in seen.items():
    print(f"{text}: {found}")
refused = {text for text, found in seen.items() if found.startswith("ValueError")}
sys.exit(refused != {"123456n", "250u"})
PYTHON
