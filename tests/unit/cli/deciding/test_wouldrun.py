import json
from pathlib import Path

import pytest

from kai.cli.command import run

CLUSTER = """\
cluster: {nodes: {n1: {gpu: 8}}}
queues:
  root: {quota: 8}
  research: {parent: root, quota: 4}
  scratch: {parent: root, quota: 0}
groups:
  borrower: {queue: scratch, members: 8, minimum: 0, each: {gpu: 1}, runs_on: {n1: %d}}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  labels: {kai.scheduler/queue: research}
  annotations: {kai.scheduler/batch-min-member: "2"}
spec:
  parallelism: 2
  template:
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: %s}}}]
"""
LAB = Path(__file__).parents[4] / "examples" / "lab"


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def answer(*flags, job=JOB % 2, used=8, code=0, node="{gpu: 8}"):
        cluster = (CLUSTER % used).replace("members: 8", f"members: {used}").replace("{gpu: 8}", node)
        (tmp_path / "cluster.yaml").write_text(cluster)
        (tmp_path / "train.yaml").write_text(job)
        assert run(["would-run", "train.yaml", "--from", "cluster.yaml", *flags]) == code
        return capsys.readouterr()

    return answer


def test_a_job_that_fits_starts_now(ask):
    assert ask(used=2).out == (
        "train would start now.\n"
        "  + train   2 pods x 2 GPUs   n1   research 4 of quota 4\n"
        "Plan: 2 to start, 0 to evict, 0 to move. No quota is exceeded.\n"
    )


def test_requested_gpu_memory_is_shown_as_memory(ask):
    limits = "resources: {limits: {nvidia.com/gpu: 2}}"
    template = "template:\n    metadata: {annotations: {gpu-memory: '4000'}}"
    job = (JOB % 2).replace(limits, "").replace("image: i, ", "image: i").replace("template:", template)
    node = "{gpu: 8, gpu_memory: 8000}"
    assert ask(job=job, used=2, node=node).out.splitlines()[1] == (
        "  + train   2 pods, 8000Mi of GPUs   n1   research 1 of quota 4"
    )


def test_a_job_that_evicts_starts_after_the_victims_leave(ask):
    assert ask().out == (
        "train would start in about 30s, after 4 pods have left.\n"
        "  + train      2 pods x 2 GPUs   n1   research 4 of quota 4\n"
        "  - borrower   4 pods, 4 GPUs    n1   preemptible; queue scratch gives back what it borrowed\n"
        "Plan: 2 to start, 4 to evict (4 GPUs), 0 to move. No quota is exceeded.\n"
    )


def test_nodes_wrap_to_the_next_line_on_narrow_terminals(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "34")
    lines = ask().out.splitlines()
    assert lines[2:6] == [
        "  + train     2 pods x 2 GPUs  n1",
        "  - borrower  4 pods, 4 GPUs   n1",
        "Plan: 2 to start, 4 to evict (4",
        "  GPUs), 0 to move. No quota is",
    ]
    monkeypatch.setenv("COLUMNS", "30")
    lines = ask().out.splitlines()
    assert lines[2:6] == ["  + train     2 pods x 2 GPUs", "      n1", "  - borrower  4 pods, 4 GPUs", "      n1"]


def test_a_waiting_job_prints_the_reason_and_exits_1(ask):
    out = ask(job=JOB % 4, code=1).out
    assert out.startswith("train would wait: ")
    assert "\n  ? train   2 pods x 4 GPUs   " in out
    assert "\nPlan: 0 to start, 0 to evict, 0 to move.\n\nTo make it run\n" in out
    assert ask(job=JOB % 9, code=1).out.startswith("train can never run here: ")


def test_would_run_takes_another_queue_and_several_copies(ask):
    assert "scratch 6 of quota 0" in ask("--queue", "scratch", used=2).out
    out = ask("--copies", "2", used=4, code=1).out
    assert out.startswith("1 of 2 jobs would start now.\n")
    assert "  ? train-2" in out


def test_a_job_in_a_parent_queue_would_wait(ask):
    told = ask(job=(JOB % 2).replace("queue: research", "queue: root"), code=1)
    assert told.out.startswith("train would wait: root is not a leaf queue; submit to research or scratch.\n")
    assert told.err == (
        "train.yaml:5:33: J002 queue root has children; only a leaf queue can run jobs\n"
        "    5 |   labels: {kai.scheduler/queue: root}\n"
        "      |                                 ^^^^ leaf queues below it: research, scratch\n"
        "  help: kai.scheduler/queue: research\n"
    )
    assert ask("--queue", "reserch", code=4).err.startswith("--queue reserch: J001 queue reserch does not exist; is it")


def test_what_is_no_workload_is_refused(ask):
    told = ask(job="apiVersion: v1\nkind: Service\nmetadata: {name: s}\n", code=4).err
    assert told == (
        "error: train.yaml: found no workload for this scheduler "
        "(not used: 1 Service (scheduling does not read this kind))\n"
    )


def test_the_plan_for_machines(ask):
    document = json.loads(ask("-o", "json").out)
    assert (document["kind"], document["answer"]) == ("Plan", "starts-after-evictions")
    assert [each["pod"] for each in document["hold"]] == ["default/train-0", "default/train-1"]
    assert {(each["job"], each["queue"], each["cause"], each["aggressor"]) for each in document["evict"]} == {
        ("default/borrower", "scratch", "reclaim", "default/train")
    }
    assert document["counts"] == {"start": 0, "hold": 2, "evict": 4, "move": 0}
    assert document["eta"]["seconds"] == 30.0
    waits = json.loads(ask("-o", "json", job=JOB % 4, code=1).out)
    assert (waits["answer"], waits["eta"]) == ("waits", None)
    assert waits["explanation"]["reason"]["code"]


def test_what_the_scheduler_does_anyway_is_told_apart(ask, tmp_path, capsys):
    job = tmp_path / "train.yaml"
    ask(used=2)
    job.write_text((JOB % 1).replace("research", "chat"))
    assert run(["would-run", str(job), "--from", str(LAB)]) == 1
    found = capsys.readouterr()
    assert "note: besides, for other jobs: 3 pods start" in found.err
    assert "Plan: 0 to start, 0 to evict, 0 to move." in found.out


def test_a_pod_moved_as_it_starts_leaves_its_node(capsys):
    assert run(["would-run", str(LAB.parent / "rack"), "--from", str(LAB), "-q", "-o", "json"]) == 1
    plan = json.loads(capsys.readouterr().out)
    assert {(each["job"], each["node"], each["to"]) for each in plan["move"]} >= {("lab/probe-b", "a1-15", "gpu-13")}
    assert all(each["node"] for each in (*plan["move"], *plan["evict"]))


def test_several_workloads_are_answered_together(ask):
    other = (JOB % 1).replace("name: train", "name: other")
    assert ask(job=f"{JOB % 2}---\n{other}", used=2).out.startswith("2 of 2 jobs would start now.\n")


def test_webhook_refusals_and_unknown_priority_classes_are_reported(ask):
    job = (JOB % 2).replace("research}", "research, priorityClassName: trian}")
    mps = job.replace("template:\n", 'template:\n    metadata: {annotations: {mps: "true"}}\n')
    told = ask(used=2, job=mps, code=4)
    assert told.out.startswith("train would be refused: an admission webhook refuses the Pod: MPS is only supported")
    assert "\nRefused W001 · queue research · 2 pods, 4 GPUs\n  ! train   2 pods x 2 GPUs   Refused W001   " in told.out
    good = JOB.replace("name: train", "name: good") % 1
    assert ask(used=2, job=f"{mps}---\n{good}", code=4).out.startswith("1 of 2 jobs would start now, 1 is refused.\n")
    assert "train.yaml:5:62: J029 warning: priority class trian does not exist: it is ignored" in told.err
    assert "train.yaml:10:35: W001 an admission webhook refuses the Pod: MPS is only supported" in told.err


def test_a_waiting_job_gets_suggestions_and_the_manifest_change(ask):
    assert ask(job=JOB % 4, used=2, code=1).out.endswith(
        "To make it run\n"
        "  minMember 2 -> 1          ✓ 1 of 2 pods starts now on n1\n"
        "  3 GPUs a pod, not 4       ✓ starts now on n1\n"
        "  quota of research 4 -> 7  ~ starts on n1 when others have left; 2 pods of borrower are evicted\n"
        "  wait                      until running work ends (no end time is known)\n\n"
        "What to write for: minMember 2 -> 1\n"
        "  Job train  metadata: {annotations: {kai.scheduler/batch-min-member: '1'}}\n"
    )


def test_machines_are_told_the_same(ask):
    found = json.loads(ask("-o", "json", job=JOB % 16, used=2, code=1).out)["explanation"]
    assert found["suggestions"][0]["inFile"][0]["object"] == "pod template"
    assert found["waiting"].startswith("does not help")


def test_each_of_several_waiting_jobs_gets_its_suggestions(ask):
    out = ask("--copies", "2", used=4, code=1).out
    assert "\nTo make train-2 run\n" in out
    assert out.count("of quota 4") == 1, "what a queue uses in the end is said once"


RAY = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray, labels: {kai.scheduler/queue: research}}
spec:
  headGroupSpec:
    template: {spec: {schedulerName: kai-scheduler, containers: [{name: h, image: i}]}}
  workerGroupSpecs:
    - groupName: big
      replicas: 3
      minReplicas: 3
      maxReplicas: 3
      template:
        spec:
          schedulerName: kai-scheduler
          containers: [{name: w, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]
"""


def test_a_group_of_unequal_pods_is_listed_by_part(ask):
    assert "  + ray   headgroup 0 GPUs, 3 big x 2 GPUs   n1 " in ask(job=RAY, used=2).out
