#!/usr/bin/env bash
# Snakemake 9.27.1 with snakemake-executor-plugin-kubernetes 0.5.1: a rule with 8 threads and `gpu=1, gpu_manufacturer="nvidia"` is
# expected to become a Job whose container has 8 CPUs and a limit of one GPU.
# Seen: by default (`scale` is 1) the container has requests and no limits. Kubernetes refuses each pod that requests an extended
# resource without an equal limit, so no GPU rule starts, whichever scheduler the cluster has. The CPUs are 7600m: the executor
# multiplies them by 0.95, so that a static CPU manager pins none. Remedy: the resource `scale=0` for limits, `--kubernetes-cpu-scalar 1`
# for whole CPUs. (`kai lint` says J024 of the Job.)
# Needs git and rsync. The API server here only writes down the Job that it is sent, on loopback.
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check snakemake==9.27.1 snakemake-executor-plugin-kubernetes==0.5.1 \
  snakemake-storage-plugin-fs==1.1.3
cat >server.py <<'PYTHON'
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Recorder(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_job = self.path.endswith("/jobs")
        if is_job:
            Path("job.json").write_bytes(body)
        answer = json.dumps({"kind": "Status", "reason": "Recorded"}).encode() if is_job else body
        self.send_response(422 if is_job else 201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_DELETE(self) -> None:
        self.send_response(404)
        self.end_headers()


server = HTTPServer(("127.0.0.1", 0), Recorder)
place = {"server": f"http://127.0.0.1:{server.server_port}"}
config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": place}]}
config |= {"users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
Path("kubeconfig").write_text(json.dumps(config))
server.serve_forever()
PYTHON
venv/bin/python server.py 2>/dev/null &
server=$!
until [ -s kubeconfig ]; do sleep 0.2; done
cat >Snakefile <<'RULES'
rule train:
    output: "model.txt"
    threads: 8
    resources: mem_mb=16000, gpu=1, gpu_manufacturer="nvidia"
    shell: "nvidia-smi > {output}"
RULES
git init --quiet && git add Snakefile
HOME="$folder" KUBECONFIG="$folder/kubeconfig" venv/bin/snakemake --executor kubernetes --jobs 1 --container-image python:3.11 \
  --default-storage-provider fs --default-storage-prefix "$folder/store" >log 2>&1 || true
[ -s job.json ] || { cat log; exit 1; }
venv/bin/python - <<'PYTHON'
import json
import sys

resources = json.load(open("job.json"))["spec"]["template"]["spec"]["containers"][0]["resources"]
print("resources of the container:", resources)
sys.exit(resources != {"requests": {"cpu": "7600m", "memory": "16000M", "nvidia.com/gpu": "1"}})
PYTHON
