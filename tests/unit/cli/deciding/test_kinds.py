"""The manifests that the pages about kinds of workloads show, through the commands that read manifests."""

import json
import re
from pathlib import Path

import pytest
import yaml

from kai.cli.command import run

PAGES = Path(__file__).parents[4] / "docs" / "workloads"
KINDS = {"daemonset": 2, "knative": 2, "grove": 4, "argo": 2, "trainjob": 2}
"""By page, how many pods there are."""
CLUSTER = """
cluster: {nodes: {gpu-01: {gpu: 8, labels: {pool: gpu}}, gpu-02: {gpu: 8, labels: {pool: gpu}}}}
queues: {all: {quota: 16}, team-a: {parent: all, quota: 16}}
"""


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


@pytest.fixture(params=sorted(KINDS))
def page(request, tmp_path):
    """Return the pods that a page's manifest makes, and the path of its workload."""
    text = (PAGES / f"{request.param}.md").read_text()
    (found,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    workloads = [each for each in yaml.safe_load_all(found) if each["kind"] != "Node"]
    path = tmp_path / "workload.yaml"
    path.write_text(yaml.safe_dump_all(workloads))
    return KINDS[request.param], str(path)


def test_would_run_places_the_pods_of_a_kind(page, cluster, capsys):
    pods, path = page
    assert run(["would-run", path, "--from", cluster]) == 0
    assert f"Plan: {pods} to start" in capsys.readouterr().out


def test_would_run_asks_for_another_queue_whatever_the_kind(page, cluster, capsys):
    _, path = page
    Path(cluster).write_text(CLUSTER.replace("team-a: {", "other: {parent: all, quota: 16}, team-a: {"))
    assert run(["would-run", path, "--from", cluster, "--queue", "other", "-o", "json"]) == 0
    assert {each["queue"] for each in json.loads(capsys.readouterr().out)["place"]} == {"other"}


def test_lint_finds_no_fault_and_counts_a_kinds_pods(page, capsys):
    pods, path = page
    assert run(["lint", path]) == 0
    said = capsys.readouterr()
    assert not said.err
    assert said.out.startswith("ok: ")
    if "DaemonSet" not in Path(path).read_text():
        assert f"{pods} pods" in said.out


def test_simulate_decides_about_the_pods_of_a_kind(page, tmp_path, capsys):
    pods, _ = page
    size = {"cpu": "8", "memory": "32Gi", "pods": "20", "nvidia.com/gpu": "8"}
    share = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    shares = {"resources": {"gpu": share, "cpu": share, "memory": share}}
    others = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"pool": "gpu"}},
            "status": {"allocatable": size, "capacity": size, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for name in ("gpu-01", "gpu-02")
    ]
    others.append(
        {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team-a"}, "spec": shares}
    )
    (tmp_path / "others.yaml").write_text(yaml.safe_dump_all(others))
    assert run(["simulate", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert f"Plan: {pods} pods start now." in said.out
    assert "not used" not in said.err


RUNTIME, TRAIN_JOB = (
    f"{text}\n" for text in (PAGES / "trainjob.md").read_text().split("```")[1][5:].split("---\n")[::-1]
)
QUEUES = "\n---\n".join(
    "apiVersion: scheduling.run.ai/v2\nkind: Queue\n"
    f"metadata: {{name: {name}}}\nspec: {{{parent}resources: {{{amounts}}}}}"
    for amounts in [", ".join(f"{each}: {{quota: -1, limit: -1}}" for each in ("cpu", "gpu", "memory"))]
    for name, parent in (("all", ""), ("team-a", "parentQueue: all, "))
)
NODES = "\n---\n".join(
    f"apiVersion: v1\nkind: Node\nmetadata: {{name: n{at}}}\n"
    "status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 8}}"
    for at in (1, 2)
)


@pytest.mark.parametrize(("has_runtime", "code"), [(True, 0), (False, 4)])
def test_a_workload_is_described_by_what_the_cluster_has(has_runtime, code, tmp_path, capsys):
    job, cluster = tmp_path / "job.yaml", tmp_path / "cluster.yaml"
    job.write_text(TRAIN_JOB)
    cluster.write_text("\n---\n".join([QUEUES, NODES, *([RUNTIME] if has_runtime else [])]))
    assert run(["would-run", str(job), "--from", str(cluster)]) == code
    said = capsys.readouterr()
    absent = "found 'torch', expected a ClusterTrainingRuntime of this name in the input: it describes the pods"
    assert ("tune would start now." in said.out) == has_runtime
    assert (absent in said.err) != has_runtime


STAGES = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: stage, labels: {kai.scheduler/queue: team-a}, annotations: {simulation.kai.scheduler/duration: 10m}}
spec:
  replicatedJobs:
  - name: prepare
    template: {spec: {template: {spec: {schedulerName: kai-scheduler, containers: [{name: a, image: x}]}}}}
  - name: train
    dependsOn: [{name: prepare, status: Complete}]
    template:
      spec:
        parallelism: PODS
        template:
          spec:
            schedulerName: kai-scheduler
            containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
"""A JobSet whose second stage comes when the first is complete."""


def test_would_run_names_later_pods_that_never_fit(cluster, tmp_path, capsys):
    job = tmp_path / "stage.yaml"
    job.write_text(STAGES.replace("PODS", "4"))
    assert run(["would-run", str(job), "--from", cluster]) == 0
    said = capsys.readouterr().out
    assert "then 4 pods x 8 GPUs once prepare is complete: 32 GPUs in all, more than the 16 of the cluster" in said
    assert run(["would-run", str(job), "--from", cluster, "-o", "json"]) == 0
    later = [{"job": "stage", "pods": 4, "gpus": 32.0, "once": "once prepare is complete"}]
    assert json.loads(capsys.readouterr().out)["later"] == later


@pytest.mark.parametrize(("pods", "hours", "never"), [(2, 16 * 10 / 60, False), (4, 0.0, True)])
def test_later_pods_start_when_their_condition_holds(pods, hours, never, tmp_path, capsys):
    (tmp_path / "cluster.yaml").write_text(f"{QUEUES}\n---\n{NODES}")
    (tmp_path / "stage.yaml").write_text(STAGES.replace("PODS", str(pods)))
    assert run(["simulate", str(tmp_path), "--until", "1h", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    text = json.dumps(found)
    assert ("Never ran together: 4 pods (32 GPUs) of stage, which come once prepare is complete." in text) == never
    (queue,) = (each for each in found["queues"] if each["name"] == "team-a")
    assert queue["gpuHours"] == pytest.approx(hours, abs=0.1)
