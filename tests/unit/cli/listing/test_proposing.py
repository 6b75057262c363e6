import json

import pytest
import yaml

from kai.cli import command

PODS = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.count: "8"}}
status:
  capacity: {cpu: "32", memory: 64Gi, nvidia.com/gpu: "8", pods: "110"}
  allocatable: {cpu: "32", memory: 64Gi, nvidia.com/gpu: "8", pods: "110"}
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: vision}
spec: {nodeName: n1, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}
status: {phase: Running}
---
apiVersion: batch/v1
kind: Job
metadata: {name: waits, namespace: speech}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus, namespace: speech}
spec: {hard: {requests.nvidia.com/gpu: "2"}}
"""
ADOPTED = ("--scheduler-name", "default-scheduler", "--queue-from", "namespace")


@pytest.fixture
def pods(tmp_path):
    path = tmp_path / "pods.yaml"
    path.write_text(PODS)
    return str(path)


def run(capsys, *arguments, code=0):
    assert command.run(list(arguments)) == code
    return capsys.readouterr()


def test_queues_are_shown_with_where_their_amounts_come_from(pods, capsys):
    said = run(capsys, "queues", "--propose", "-f", pods)
    assert "vision  all             6       1      -  namespace vision  an equal part of the GPUs, 6" in said.out
    assert "speech  all             2       1      2  namespace speech  ResourceQuota speech/gpus" in said.out
    assert "nothing is written to a cluster" in said.err


def test_saved_queues_decide_as_those_that_are_made(pods, tmp_path, capsys):
    file = tmp_path / "queues.yaml"
    said = run(capsys, "queues", "-f", pods, "--propose", str(file))
    assert f"saved 3 queues in {file}; kubectl apply -f {file}" in said.err
    made = run(capsys, "queues", "-f", pods, *ADOPTED).out
    (tmp_path / "all.yaml").write_text(f"{PODS}---\n{file.read_text()}")
    assert run(capsys, "queues", "-f", str(tmp_path / "all.yaml"), *ADOPTED).out == made


def test_manifests_go_to_standard_output_as_well(pods, capsys):
    found = list(yaml.safe_load_all(run(capsys, "queues", "--propose", "-f", pods, "-o", "yaml").out))
    listed = json.loads(run(capsys, "queues", "--propose", "-f", pods, "-o", "json").out)
    assert [each["metadata"]["name"] for each in found] == ["all", "vision", "speech"]
    assert listed == {"apiVersion": "v1", "kind": "List", "items": found}
    assert run(capsys, "queues", "--propose", "-f", pods, "-o", "name").out.split()[0].endswith("/all")


def test_accounts_of_slurm_become_queues(tmp_path, capsys):
    dump = tmp_path / "lab.cfg"
    dump.write_text("Cluster - 'lab'\nParent - 'root'\nAccount - 'physics':Fairshare=30\n")
    assert (
        "physics  root            0      30      -  account physics"
        in run(capsys, "queues", "--propose", "-f", str(dump)).out
    )


def test_a_cluster_whose_queues_are_there_needs_none(tmp_path, pods, capsys):
    run(capsys, "queues", "-f", pods, "--propose", str(tmp_path / "queues.yaml"))
    said = run(capsys, "queues", "--propose", "-f", str(tmp_path), code=4)
    assert "found no queue that is not there already" in said.err


def test_a_file_that_cannot_be_written_is_told(pods, capsys):
    said = run(capsys, "queues", "-f", pods, "--propose", "/nowhere/queues.yaml", code=4)
    assert "/nowhere/queues.yaml: found" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "-f"),
        ("nodes", "-f"),
        ("queues", "-f"),
        ("why", "--all", "-f"),
        ("simulate",),
        ("lint",),
        ("replay",),
    ],
)
def test_each_command_decides_on_pods_of_other_schedulers(words, pods, capsys):
    said = run(capsys, *words, pods, *ADOPTED)
    assert "1 pod and 1 workload for default-scheduler: decided on as if for kai-scheduler" in said.err


def test_what_would_run_is_taken_over_as_well(pods, tmp_path, capsys):
    more = tmp_path / "more.yaml"
    more.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: vision},"
        " spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
    )
    assert "new would start now" in run(capsys, "would-run", str(more), "-f", pods, *ADOPTED).out


def test_a_snapshot_keeps_what_was_taken_over(pods, tmp_path, capsys):
    plain, taken = str(tmp_path / "plain.zip"), str(tmp_path / "taken.zip")
    run(capsys, "snapshot", plain, "-f", pods)
    run(capsys, "snapshot", taken, "-f", pods, *ADOPTED)
    run(capsys, "replay", taken, "--expect")
    jobs = run(capsys, "jobs", "-f", taken).out
    assert "runs" in jobs
    assert "waits" in jobs
    assert "runs" in run(capsys, "jobs", "-f", plain, *ADOPTED).out


def test_without_the_flag_no_pod_is_adopted(pods, capsys):
    said = run(capsys, "jobs", "-f", pods)
    assert said.out == "no jobs\n"
    assert "no pod is for kai-scheduler (1 for default-scheduler); --scheduler-name default-scheduler asks" in said.err


def test_over_virtual_time_pods_of_other_schedulers_arrive(pods, capsys):
    said = run(capsys, "simulate", pods, "--until", "1h", *ADOPTED)
    assert "2 / 2" in said.out or "1 / 1" in said.out


@pytest.fixture
def named(tmp_path):
    path = tmp_path / "name.yaml"
    path.write_text("parameters: {scheduler_name: default-scheduler}\n")
    return str(path)


def test_a_configured_scheduler_name_holds_for_all_commands(pods, named, capsys):
    place = ("--queue-from", "namespace")
    for words in (("jobs", "-f", pods), ("why", "--all", "-f", pods), ("simulate", pods)):
        said = run(capsys, *words, "--config", named, *place)
        assert "not for kai-scheduler" not in said.err
    assert "runs" in run(capsys, "jobs", "-f", pods, "--config", named, *place).out
    over = run(capsys, "simulate", pods, "--until", "1h", "--policy", named, *place)
    assert "never started" not in over.out
    assert "J003" not in run(capsys, "lint", pods, named, code=0).out


def test_a_trace_names_no_schedulers(tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,duration,gpus\n0,60,1\n")
    said = run(capsys, "simulate", str(trace), "--cluster", str(trace), *ADOPTED, code=2)
    assert "--scheduler-name and --queue-from cannot be used with a trace" in said.err


def test_a_service_is_not_asked_about_pods_of_others(capsys):
    said = run(capsys, "jobs", "--service", "http://127.0.0.1:1", "--queue-from", "namespace", code=2)
    assert "--queue-from and --service cannot be used together" in said.err
