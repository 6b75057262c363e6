"""What administrators and users change under running work, beside the controllers of Kubernetes.

Queues get other parents, nodes come back under their names, namespaces go, jobs are suspended and resumed, members of
gangs come slowly. Whatever happens: no node holds more than it has, no gang starts in part, nobody is evicted for
nothing, and in the end all that fits runs.
"""

import random
import time

import pytest

from tests.integration.behaviour import Job
from tests.integration.chaos.observer import Observer
from tests.integration.client import until
from tests.integration.kubelet import GPU, RUNS_FOR
from tests.integration.processes import fetch, throttled
from tests.integration.stage import JOB, POD_GROUP, QUEUE, an_object, job, node, pod_template, queue, scene, when

ANY = {"quota": -1}
NODES = {"n1": 8, "n2": 8}
FORBIDDEN = 'kai_api_requests_total{code="403"'
FAILED = 'kai_bind_attempts_total{result="failed"}'


@pytest.fixture
def stage(whole):
    """Give a test two nodes of eight GPUs and a queue, and watch that no node ever holds more than it has."""
    observer = Observer(whole.api, dict(NODES))
    observer.start()
    try:
        with scene(whole) as opened:
            for manifest in (*(node(name, gpu=gpus) for name, gpus in NODES.items()), queue("top", gpu=ANY)):
                opened.create(manifest)
            opened.create(queue("team", "top", gpu=ANY))
            yield opened
            assert not observer.check()
    finally:
        observer.stop()


def run(stage, name, count):
    when(lambda: len(stage.running(name)) == count, f"{count} pods of {name} to run")


def used(stage, name):
    """Return how many GPUs a queue is said to have."""
    return int(stage.queue_status(name).get("allocated", {}).get(GPU, "0"))


def counted(stage, name):
    """Return the sum of the series whose text begins so; the program counts for all tests of this module."""
    (program,) = stage.programs
    lines = fetch(program.metrics_port, "/metrics").decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def evicted(stage):
    return [each["message"] for each in stage.events(reason="Evict")]


def uids(stage, name=""):
    return {each["metadata"]["uid"] for each in stage.pods(name)}


def reparent(stage, name, parent):
    stage.change({"apiVersion": QUEUE, "kind": "Queue", "metadata": {"name": name}, "spec": {"parentQueue": parent}})


# --- Queues --------------------------------------------------------------------------------------------------------


def test_a_reparented_queue_keeps_its_running_pods(stage):
    stage.create(queue("other", gpu=ANY))
    stage.create(job("a", 4))
    run(stage, "a", 4)
    when(lambda: used(stage, "top") == 4, "the first tree to count them")
    before = uids(stage)
    reparent(stage, "team", "other")
    when(lambda: (used(stage, "top"), used(stage, "other")) == (0, 4), "the other tree to count them")
    stage.settle()
    assert uids(stage) == before
    assert not evicted(stage)


def test_queues_in_a_cycle_block_only_their_own_jobs(stage):
    for name, parent in (("head", ""), ("middle", "head"), ("leaf", "middle")):
        stage.create(queue(name, parent, gpu=ANY))
    reparent(stage, "middle", "leaf")
    stage.create(job("inside", 2, queue="leaf"))
    stage.create(job("outside", 2))
    run(stage, "outside", 2)
    stage.settle()
    assert not stage.running("inside")
    assert all(program.is_ready() for program in stage.programs)
    reparent(stage, "middle", "head")
    run(stage, "inside", 2)


# --- Nodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [8, 4])
def test_a_recreated_node_still_counts_its_running_pods(stage, gpus):
    stage.delete("v1", "Node", "n2")
    stage.create(job("a", 8))
    run(stage, "a", 8)
    stage.create(job("late", 3))
    stage.delete("v1", "Node", "n1")
    stage.create(node("n1", gpu=gpus))
    until(lambda: len(stage.pods("late")) == 3, "the pods of the second job")
    stage.settle()
    assert not stage.running("late")
    stage.delete("batch/v1", "Job", "a")
    run(stage, "late", 3)
    assert not evicted(stage)


# --- Namespaces ----------------------------------------------------------------------------------------------------


def test_a_pod_held_by_a_finalizer_counts_until_gone(stage):
    doomed, refused = f"{stage.space}-doomed", counted(stage, FORBIDDEN)
    space = stage.api.create(an_object("v1", "Namespace", doomed))
    held = an_object("v1", "Pod", "held", metadata={"namespace": doomed, "finalizers": ["tests.example/hold"]})
    held["metadata"] |= {"labels": {"kai.scheduler/queue": "team"}}
    held["spec"] = {**pod_template(1, {})["spec"], "nodeSelector": {"kubernetes.io/hostname": "n1"}}
    stage.api.create(held)
    for name in ("a", "b"):
        made = job(name, 4)
        stage.api.create({**made, "metadata": {**made["metadata"], "namespace": doomed}})
    when(lambda: used(stage, "team") == 9, "all pods to run")
    stage.create(job("late", 16))
    stage.api.delete(space)
    until(lambda: len(stage.api.list("v1", "Pod", doomed)) == 1, "all pods but one to go")
    when(lambda: used(stage, "team") == 1, "the one to be counted still")
    stage.settle()
    assert not stage.running("late")
    stage.api.patch(held, {"metadata": {"finalizers": None}})
    run(stage, "late", 16)
    until(lambda: stage.api.find(space) is None, "the namespace to go")
    # Only what was under way as it began to end.
    assert counted(stage, FORBIDDEN) - refused < 10
    assert not counted(stage, "kai_missing_rights")


# --- Jobs ----------------------------------------------------------------------------------------------------------


def test_repeatedly_suspended_jobs_run_in_the_end(stage):
    draw = random.Random(1)
    names, failed = [f"storm-{number}" for number in range(4)], counted(stage, FAILED)
    for name in names:
        stage.create(job(name, 4))
    for _ in range(60):
        change = an_object("batch/v1", "Job", draw.choice(names), spec={"suspend": draw.random() < 0.5})
        stage.change(change)
        time.sleep(draw.uniform(0.0, 0.1))
    for name in names:
        stage.change(an_object("batch/v1", "Job", name, spec={"suspend": False}))
    for name in names:
        run(stage, name, 4)
    assert not evicted(stage)
    assert counted(stage, FAILED) == failed


def test_jobs_that_end_soon_leave_nothing_behind(stage):
    for number in range(24):
        stage.create(job(f"short-{number}", 2, seconds=0.2, ttlSecondsAfterFinished=1))
    until(lambda: not stage.api.list("batch/v1", "Job", stage.space), "all jobs to be over and gone")
    until(lambda: not stage.pods() and not stage.api.list(POD_GROUP, "PodGroup", stage.space), "nothing to be left")
    when(lambda: used(stage, "team") == 0, "the queue to be empty")


def test_a_repeatedly_scaled_deployment_runs_its_final_replicas(stage):
    draw = random.Random(2)
    labels = {JOB: "web", "kai.scheduler/queue": "team"}
    spec = {"replicas": 1, "selector": {"matchLabels": {JOB: "web"}}, "template": pod_template(1, labels)}
    stage.create(an_object("apps/v1", "Deployment", "web", metadata={"labels": labels}, spec=spec))
    for replicas in (*(draw.randint(1, 24) for _ in range(20)), 10):
        stage.change(an_object("apps/v1", "Deployment", "web", spec={"replicas": replicas}))
        time.sleep(draw.uniform(0.0, 0.2))
    run(stage, "web", 10)
    until(lambda: len(stage.api.list(POD_GROUP, "PodGroup", stage.space)) == 10, "the groups of the others to go")
    assert len(stage.pods("web")) == 10
    assert not evicted(stage)


def test_no_gang_member_starts_before_the_last_came(stage):
    draw = random.Random(3)
    gangs = [
        Job.read(f"slow-{number}", {"pods": 4, "gpu": 1, "annotations": {RUNS_FOR: "0.3"}}) for number in range(10)
    ]
    observer = Observer(stage.api, dict(NODES))
    observer.start()
    complete = {}
    try:
        members = [(gang, number) for gang in gangs for number in range(4)]
        draw.shuffle(members)
        for gang in gangs:
            stage.create(gang.manifests()[0])
        for gang, number in members:
            complete[gang.name] = time.monotonic()
            stage.create(gang.pod(number))
            time.sleep(draw.uniform(0.0, 0.1))
        until(lambda: all(pod["status"]["phase"] == "Succeeded" for pod in stage.pods()), "all pods to end")
        early = [pod for pod, at in observer.bound_at.items() if at < complete.get(pod.rpartition("-")[0], 0.0)]
        assert not early
        assert len(observer.bound_at.keys() & {f"{gang.name}-{number}" for gang, number in members}) == len(members)
    finally:
        observer.stop()


def test_a_fifth_of_a_cpu_starts_gangs_and_answers(stage):
    (program,) = stage.programs
    with throttled(program, 0.2):
        for number in range(4):
            stage.create(job(f"slow-{number}", 4))
        for number in range(4):
            run(stage, f"slow-{number}", 4)
        assert fetch(program.probes_port, "/livez") == b"ok"
