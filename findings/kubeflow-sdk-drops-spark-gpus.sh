#!/usr/bin/env bash
# Kubeflow SDK 0.5.0, its Spark client: `Executor(resources_per_executor={"cpu": ..., "memory": ..., "nvidia.com/gpu": "1"})`. Its
# documentation: "any valid Kubernetes resource name is supported".
# Guess before the run: the GPU is in the template of the executors.
# Seen: cores and memory are sent, and the GPU is dropped without a word, in a SparkConnect and in a SparkApplication. So executors start
# on any node. CPUs are rounded up: 2500m becomes 3 cores. Remedy: `spark_conf` with spark.executor.resource.gpu.amount and
# spark.executor.resource.gpu.vendor, from which Spark makes the limit.
# pyspark-client stands for the whole of Spark, which the extra `spark` would install.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kubeflow==0.5.0 kubeflow-spark-api==2.4.0 pyspark-client==4.2.0
HOME="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import sys

from kubeflow.spark.backends.kubernetes.utils import build_spark_connect_cr, get_spark_application_cr_from_file_job
from kubeflow.spark.types.types import Executor

asked = {"cpu": "2500m", "memory": "16Gi", "nvidia.com/gpu": "1"}
remedy = {"spark.executor.resource.gpu.amount": "1", "spark.executor.resource.gpu.vendor": "nvidia.com"}
executor = Executor(num_instances=2, resources_per_executor=asked)
session = build_spark_connect_cr("session", "team", executor=executor, spark_conf=remedy).to_dict()
batch = get_spark_application_cr_from_file_job(
    "batch", "team", "local:///main.py", num_executors=2, resources_per_executor=asked, spark_conf=remedy
).to_dict()
print("asked:", asked)
for workload in (session, batch):
    spec = workload["spec"]
    devices = {key: value for key, value in spec["sparkConf"].items() if ".resource." in key}
    print(f"{workload['kind']}: executor {spec['executor']}, remedy {devices}")
kept = {"cores": 3, "instances": 2, "memory": "16g"}
sys.exit(any(each["spec"]["executor"] != kept for each in (session, batch)) or devices != remedy)
PYTHON
