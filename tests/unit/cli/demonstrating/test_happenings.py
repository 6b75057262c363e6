import pytest

from kai.basics.wording import span_text
from kai.cli.demonstrating.demo import watch_of
from kai.lab.virtual.scenes.loading import load

CLUSTER = """
shapes:
  h100x8: {gpu: 8, memory: 80Gi, names: gpu-1..gpu-2}
queues: {lab: {quota: 16}, train: {parent: lab, quota: 16}}
events:
  - {at: 10m, node: gpu-1, fail: 20m}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: NAME
  labels: {kai.scheduler/queue: train}
  annotations: {simulation.kai.scheduler/duration: 15m}
spec:
  template:
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers:
        - name: main
          image: registry.example/train:1
          resources: {limits: {nvidia.com/gpu: "GPUS"}}
"""


@pytest.fixture
def happened(tmp_path):
    def lines(*jobs):
        (tmp_path / "cluster.yaml").write_text(CLUSTER)
        texts = [JOB.replace("NAME", name).replace("GPUS", str(gpus)) for name, gpus in jobs]
        (tmp_path / "work.yaml").write_text("---".join(texts))
        scene = load(str(tmp_path / "work.yaml"), str(tmp_path / "cluster.yaml")).scene
        watched = watch_of(scene, 7200.0)
        watched.begin()
        found = []
        while watched.run.next < float("inf"):
            found += watched.step()
        return found

    return lines


def told(lines):
    return [(line.at, line.subject, line.sign, line.text) for line in lines]


def test_a_node_failure_slows_play_and_its_return_shows(happened):
    lines = happened(("one", 8), ("two", 8))
    assert (600.0, "gpu-1", "!", "the node is gone, with its pods") in told(lines)
    assert [line.watch for line in lines if line.sign == "!"] == ["a node failed"]
    assert (1800.0, "gpu-1", "+", "the node is there") in told(lines)


def test_a_job_is_logged_from_arrival_to_end(happened):
    lines = told(happened(("one", 8), ("two", 8), ("three", 8)))
    assert lines[0] == (0.0, "one", "+", "arrives in queue train, 1 pod, 8 GPUs")
    at, waiter, _, text = next(line for line in lines if line[2] == " ")
    assert at == 0.0
    assert text.startswith("waits: ")
    started = next(line for line in lines if line[1] == waiter and line[2] == ">")
    assert started[3].endswith(f", waited {span_text(started[0])}")
    assert (started[0] + 900.0, waiter, ".", "done, after 15m") in lines


def test_of_many_alike_only_the_number_is_told(happened):
    lines = told(happened(*((f"job-{number}", 1) for number in range(6))))
    assert lines == [
        (0.0, "train", "+", "6 jobs arrive, 6 GPUs"),
        (0.0, "train", ">", "6 jobs started, 6 GPUs on gpu-1"),
        *[line for line in lines if 0.0 < line[0] < 900.0],
        *[line for line in lines if line[0] >= 900.0],
    ]
    assert all(sign != "." or "jobs ended" in text or "done" in text for _, _, sign, text in lines)
