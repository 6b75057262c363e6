"""All of kai on a real API server while something goes wrong: nothing is lost, and nothing is given twice."""

import threading
from collections import Counter

import pytest

from tests.integration.behaviour import Job
from tests.integration.client import PATIENCE, until
from tests.integration.installation import install
from tests.integration.proxy import Fate, proxied
from tests.integration.stage import BIND_REQUEST, JOB, POD_GROUP, node, queue, scene, staged, when
from tests.unit.deploy.rendering import DEPLOY

GPU = "nvidia.com/gpu"
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "kai-scheduler", "namespace": "kai-scheduler"},
}
LASTING = ("--leader-elect", "--leader-elect-lease-duration=1h")
"""The lease lasts longer than any test may take."""


@pytest.fixture(scope="module")
def theatre(bare_control_plane, tmp_path_factory):
    install(bare_control_plane, DEPLOY / "base")
    with staged(bare_control_plane, tmp_path_factory.mktemp("kai")) as stage:
        yield stage


@pytest.fixture
def stage(theatre):
    """Give a test two nodes of four GPUs and a queue; it starts the programs, and they end with it."""
    try:
        with scene(theatre) as stage:
            for manifest in (node("n1", gpu=4), node("n2", gpu=4), queue("top"), queue("team", "top")):
                stage.create(manifest)
            yield stage
    finally:
        for program in tuple(theatre.programs):
            theatre.stop(program)
        theatre.api.delete(LEASE)  # one that lasts longer than a test is not the next one's


def submit(stage, name, **text):
    job = Job.read(name, text)
    for manifest in job.manifests():
        stage.create(manifest)
    return job


def all_run(stage, count):
    until(lambda: len(stage.running()) == count, f"{count} pods to run")


def whole_gang(stage):
    """Return the two pods of a gang that runs; [] if none does."""
    running = stage.running()
    jobs = Counter(each["metadata"]["labels"][JOB] for each in running)
    whole = [job for job, count in jobs.items() if count == 2]
    return [each for each in running if whole and each["metadata"]["labels"][JOB] == whole[0]]


def assert_nothing_is_booked_twice(stage):
    """Fail if a node has more than it can bear, or if a pod was bound twice."""
    used = Counter()
    for pod in stage.pods():
        for container in pod["spec"]["containers"]:
            used[pod["spec"].get("nodeName")] += int(container["resources"].get("requests", {}).get(GPU, 0))
    assert all(amount <= 4 for name, amount in used.items() if name), used
    bindings = Counter(
        event["objectRef"]["name"]
        for event in stage.plane.audited()
        if event.get("objectRef", {}).get("subresource") == "binding"
        and event["objectRef"].get("namespace") == stage.space
        and event["responseStatus"]["code"] == 201
    )
    assert set(bindings.values()) <= {1}, bindings


# --- The network ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", list(Fate), ids=lambda fate: fate.value)
def test_ending_watches_lose_nothing_while_jobs_change(stage, fate):
    with proxied(stage.plane) as proxy:
        stage.start("kai", api=proxy.view(stage.plane.account("kai-scheduler", "kai")))
        until(lambda: proxy.watches, "a watch")
        ended = 0
        for number in range(6):
            submit(stage, f"gang-{number}", pods=2, gpu=1, bare=False)
            ended += proxy.end_watches(fate)
            if number == 3:  # and of those that run, two go
                for pod in until(lambda: whole_gang(stage), "a gang to run"):
                    stage.delete("v1", "Pod", pod["metadata"]["name"])
                    ended += proxy.end_watches(fate)
        # Eight GPUs and ten pods, in gangs of two; the gang that lost its pods has none.
        until(lambda: len(stage.running()) == 8, "all GPUs to be in use")
        waiting = stage.waiting()
        assert len(waiting) == 2
        for pod in stage.running()[:2]:
            stage.delete("v1", "Pod", pod["metadata"]["name"])
        until(lambda: not stage.waiting(), "the last gang to run")
        assert ended > 10
        assert_nothing_is_booked_twice(stage)
        stage.stop(stage.programs[0])


def test_lost_answers_bind_no_pod_twice(stage):
    """The API server does what it was asked for, and the answer never comes."""
    lost = Counter()

    with proxied(stage.plane) as proxy:

        def lose(method, path):
            if method == "POST" and path.endswith("/binding") and not lost[path]:
                lost[path] += 1
                raise ConnectionResetError("lost")

        proxy.after = lose
        stage.start("kai", api=proxy.view(stage.plane.account("kai-scheduler", "kai")))
        submit(stage, "gang", pods=6, gpu=1)
        all_run(stage, 6)
        assert sum(lost.values()) == 6
        assert_nothing_is_booked_twice(stage)
        stage.stop(stage.programs[0])


# --- Death ---------------------------------------------------------------------------------------------------------


def test_a_process_killed_during_bindings_is_continued(stage):
    """Of a gang of six, two bindings get through; then the process is killed."""
    passed, is_open, reached = [], threading.Event(), threading.Event()

    with proxied(stage.plane) as proxy:

        def hold(method, path):
            if method == "POST" and path.endswith("/binding"):
                passed.append(path)
                if len(passed) > 2:
                    reached.set()
                    is_open.wait(PATIENCE)
                    raise ConnectionResetError("dead")

        proxy.before = hold
        first = stage.start("first", api=proxy.view(stage.plane.account("kai-scheduler", "kai")))
        submit(stage, "gang", pods=6, gpu=1)
        assert reached.wait(PATIENCE)
        stage.stop(first, kill=True)
        is_open.set()
    stage.start("second")
    all_run(stage, 6)
    submit(stage, "more", pods=2, gpu=1)
    all_run(stage, 8)
    assert_nothing_is_booked_twice(stage)


def test_a_process_killed_before_the_binding_is_continued(stage):
    """A share waits for the pod that reserves its GPU; the process is killed while it does."""
    first = stage.start("first")
    stage.kubelet.is_paused = True
    submit(stage, "half-a", fraction=0.5, bare=True)
    until(lambda: stage.api.list(BIND_REQUEST, "BindRequest", stage.space), "a bind request")
    until(stage.reservations, "a reservation")
    stage.stop(first, kill=True)
    assert not stage.running()
    submit(stage, "half-b", fraction=0.5, bare=True)
    submit(stage, "whole", pods=7, gpu=1)
    stage.kubelet.is_paused = False
    stage.start("second")
    all_run(stage, 9)
    assert len(stage.reservations()) == 1
    groups = {
        each["metadata"]["labels"].get("runai-gpu-group")
        for each in stage.running()
        if "half" in each["metadata"]["name"]
    }
    assert len(groups) == 1
    assert_nothing_is_booked_twice(stage)


def test_a_process_killed_before_writing_a_group_is_continued(stage):
    """A pod without an owner is bound before its group is written; the write never comes."""
    is_held, is_open = threading.Event(), threading.Event()

    with proxied(stage.plane) as proxy:

        def hold(method, path):
            if is_held.is_set() and method != "GET" and "/podgroups" in path:
                is_open.wait(PATIENCE)
                raise ConnectionResetError("dead")

        proxy.before = hold
        first = stage.start("first", api=proxy.view(stage.plane.account("kai-scheduler", "kai")))
        submit(stage, "early", gpu=1, bare=True)
        stage.group_of("early-0")  # groups are shown ahead of their writes where one could be written
        is_held.set()
        submit(stage, "late", gpu=1, bare=True)
        pod = until(lambda: bound(stage, "late-0"), "the pod to be bound")
        stage.stop(first, kill=True)
        is_open.set()
    name = pod["metadata"]["annotations"]["pod-group-name"]
    assert name == f"pg-late-0-{pod['metadata']['uid']}"
    assert stage.find(POD_GROUP, "PodGroup", name) is None
    stage.start("second")
    assert stage.group_of("late-0")["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    when(lambda: stage.queue_status("team")["allocated"][GPU] == "2", "the queue to count both")
    assert bound(stage, "late-0")["metadata"]["uid"] == pod["metadata"]["uid"]
    assert_nothing_is_booked_twice(stage)


def bound(stage, name):
    """Return a pod if it has a node."""
    pod = stage.pod(name)
    return pod if pod["spec"].get("nodeName") else None


def test_a_restarted_scheduler_keeps_its_promises(stage):
    """Victims are still leaving when the scheduler dies; nobody else gets their place, and nobody else has to go."""
    stage.create(queue("owner", "top", gpu={"quota": 8}))
    first = stage.start("first")
    submit(stage, "held", pods=8, min=1, gpu=1, spec={"terminationGracePeriodSeconds": 30})
    all_run(stage, 8)
    stage.kubelet.is_paused = True
    submit(stage, "claim", pods=3, gpu=1, queue="owner")
    until(lambda: len(stage.pods("held")) == 5, "three victims")
    stage.stop(first, kill=True)
    stage.start("second")
    stage.settle()
    assert len(stage.pods("held")) == 5
    stage.kubelet.is_paused = False
    until(lambda: len(stage.running("claim")) == 3, "the claim to run")
    assert len(stage.running("held")) == 5
    assert_nothing_is_booked_twice(stage)


# --- Replicas ------------------------------------------------------------------------------------------------------


def test_a_second_replica_leads_once_the_first_ends(stage):
    """The first one gives its lease back; the second one need not wait for its end."""
    first = stage.start("one", flags=LASTING)
    submit(stage, "early", pods=2, gpu=1)
    all_run(stage, 2)
    holder = leader(stage)
    stage.start("two", flags=LASTING)
    submit(stage, "between", pods=2, gpu=1)
    all_run(stage, 4)
    assert leader(stage) == holder
    submit(stage, "late", pods=2, gpu=1)
    stage.stop(first)
    all_run(stage, 6)
    submit(stage, "latest", pods=2, gpu=1)
    all_run(stage, 8)
    assert leader(stage) != holder
    assert_nothing_is_booked_twice(stage)


def test_a_second_replica_leads_once_the_first_is_killed(stage):
    replicas = {
        name: stage.start(name, flags=("--leader-elect",), environment={"POD_NAME": name}) for name in ("one", "two")
    }
    submit(stage, "early", pods=4, gpu=1)
    until(stage.running, "somebody to run")
    holder = when(lambda: leader(stage), "a leader")
    first = replicas[holder.partition("_")[0]]  # on a busy machine, "one" may have lost its lease to "two"
    stage.stop(first, kill=True)
    all_run(stage, 4)
    submit(stage, "late", pods=4, gpu=1)
    all_run(stage, 8)
    assert leader(stage) != holder
    assert_nothing_is_booked_twice(stage)


def test_a_restarted_container_leads_without_waiting_for_its_lease(stage):
    pod = {"POD_NAME": "kai-0", "POD_UID": "0b6e7f9a"}
    first = stage.start("one", flags=LASTING, environment=pod)
    submit(stage, "early", pods=2, gpu=1)
    all_run(stage, 2)
    before = lease(stage)
    stage.stop(first, kill=True)
    submit(stage, "late", pods=2, gpu=1)
    stage.start("one-anew", flags=LASTING, environment=pod)
    all_run(stage, 4)
    after = lease(stage)
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1
    assert after["holderIdentity"].partition("_")[0] == before["holderIdentity"].partition("_")[0]
    assert after["holderIdentity"] != before["holderIdentity"]
    assert_nothing_is_booked_twice(stage)


def lease(stage):
    return stage.api.get(LEASE)["spec"]


def leader(stage):
    return lease(stage).get("holderIdentity")
