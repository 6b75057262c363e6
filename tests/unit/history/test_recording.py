"""What pods hold, kept from the changes of objects."""

import attrs

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.history.facts import Amounts, Ended, NodeState
from kai.history.recording import Recording


def queue(name, parent="", **more):
    return structure_as(
        Queue, {"metadata": {"name": name, "uid": f"q-{name}"}, "spec": {"parentQueue": parent, **more}}
    )


def group(name="train", queue="team", status=None, **more):
    owners = [{"kind": "Job", "name": "train", "apiVersion": "batch/v1", "uid": "o"}]
    metadata = {"name": name, "namespace": "ns", "uid": f"g-{name}", "ownerReferences": owners, **more}
    return structure_as(PodGroup, {"metadata": metadata, "spec": {"queue": queue}, "status": status or {}})


def node(name="n1", gpus="8", usable=None, ready="True", **spec):
    capacity = {"nvidia.com/gpu": gpus, "cpu": "64", "memory": "512Gi"}
    status = {
        "capacity": capacity,
        "allocatable": {**capacity, "nvidia.com/gpu": usable or gpus},
        "conditions": [{"type": "Ready", "status": ready}],
    }
    labels = {"nvidia.com/gpu.product": "H100"}
    return structure_as(Node, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})


def pod(name="p1", where="n1", phase="Running", gpus="2", group="train", labels=None, conditions=(), **annotations):
    named = {"pod-group-name": group} if group else {}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels or {}}
    requests = {"cpu": "1500m", "memory": "1Gi", **({"nvidia.com/gpu": gpus} if gpus else {})}
    return structure_as(
        Pod,
        {
            "metadata": {**metadata, "annotations": {**named, **annotations}},
            "spec": {"nodeName": where, "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": phase, "conditions": list(conditions)},
        },
    )


def seen(*objects):
    recording = Recording()
    for each in objects:
        recording.see(None, each)
    return recording


WORLD = (queue("top"), queue("team", "top"), group(), node())


def test_a_pod_holds_from_its_binding_to_its_end():
    recording = seen(*WORLD, pod(where="", phase="Pending"))
    assert recording.everything()[0] == {}
    recording.see(pod(where="", phase="Pending"), pod(phase="Pending"))
    (held,) = recording.taken()[0].values()
    assert (held.job.uid, held.job.kind, held.job.name, held.model) == ("g-train", "Job", "train", "H100")
    assert held.amounts == Amounts(2000, 1500, 1074)
    assert [each.uid for each in held.queue.path] == ["q-team", "q-top"]
    recording.see(pod(phase="Pending"), pod())
    recording.taken()
    recording.see(pod(), pod(phase="Succeeded"))
    assert recording.taken()[0] == {("g-train", "n1"): Ended.DONE}
    recording.see(pod(phase="Succeeded"), None)
    assert recording.taken()[0] == {}


def test_a_job_holds_its_pods_sum_per_node():
    recording = seen(*WORLD, node("n2"), pod(), pod("p2"), pod("p3", "n2", gpus="4"))
    held, _ = recording.everything()
    assert {key: each.amounts.gpu for key, each in held.items()} == {("g-train", "n1"): 4000, ("g-train", "n2"): 4000}
    recording.see(pod("p2"), None)
    assert {key: each.amounts.gpu for key, each in recording.taken()[0].items()} == {("g-train", "n1"): 2000}


def test_what_left_a_job_is_said_beside_the_rest():
    recording = seen(*WORLD, pod(), pod("p2"))
    recording.everything()
    recording.note_end(pod("p2"), Ended.RECLAIMED)
    recording.see(pod("p2"), None)
    (rest,) = recording.taken()[0].values()
    assert (rest.amounts.gpu, rest.left) == (2000, Ended.RECLAIMED)
    recording.see(None, pod("p3"))
    (more,) = recording.taken()[0].values()
    assert (more.amounts.gpu, more.left) == (4000, Ended.CHANGED)


def test_another_pod_of_that_name_takes_its_place():
    recording, after = seen(*WORLD, pod(gpus="4")), pod(gpus="1")
    recording.everything()
    recording.see(pod(gpus="4"), attrs.evolve(after, metadata=attrs.evolve(after.metadata, uid="another")))
    assert {key: each.amounts.gpu for key, each in recording.taken()[0].items()} == {("g-train", "n1"): 1000}


def test_why_a_job_ended():
    target = [{"type": "DisruptionTarget", "status": "True"}]
    for after, noted, why in [
        (pod(phase="Failed"), None, Ended.FAILED),
        (None, None, Ended.DELETED),
        (None, Ended.RECLAIMED, Ended.RECLAIMED),
        (pod(phase="Failed", conditions=target), None, Ended.EVICTED),
    ]:
        recording = seen(*WORLD, pod())
        recording.everything()
        if noted:
            recording.note_end(pod(), noted)
        recording.see(pod(), after)
        assert recording.taken()[0] == {("g-train", "n1"): why}


BY_API = pod(conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}])


def test_a_job_on_a_draining_node_ends_drained():
    for changed, why in [(node(), Ended.EVICTED), (node(unschedulable=True), Ended.DRAINED)]:
        recording = seen(*WORLD[:-1], changed, pod())
        recording.everything()
        recording.see(pod(), BY_API)
        recording.see(BY_API, None)
        assert recording.taken()[0] == {("g-train", "n1"): why}


def test_a_job_ended_at_its_limit_is_time_limited():
    limit = {"conditions": [{"type": "TimeLimit", "status": "True", "reason": "TimeLimit"}]}
    for after, why in [(None, Ended.TIME_LIMIT), (pod(phase="Succeeded"), Ended.DONE)]:
        recording = seen(*WORLD, pod())
        recording.everything()
        recording.see(group(), group(status=limit))
        recording.see(pod(), after)
        assert recording.taken()[0] == {("g-train", "n1"): why}


def test_pods_deleted_after_their_node_end_with_the_node():
    recording = seen(*WORLD, pod())
    recording.everything()
    recording.see(node(), None)
    recording.see(pod(), None)  # before the next record
    assert recording.taken() == ({("g-train", "n1"): Ended.NODE}, {"n1": None})


def test_a_vanished_nodes_jobs_end_and_resume():
    recording = seen(*WORLD, pod())
    recording.everything()
    recording.see(node(), None)
    assert recording.taken() == ({("g-train", "n1"): Ended.NODE}, {"n1": None})
    recording.see(None, node())
    held, nodes = recording.taken()
    assert held["g-train", "n1"].amounts.gpu == 2000
    assert nodes["n1"].capacity.gpu == 8000


def test_a_group_deleted_before_its_pods_stays_recorded():
    recording = seen(*WORLD, pod())
    recording.everything()
    recording.see(group(), None)
    recording.see(None, pod("p2"))
    assert recording.taken()[0]["g-train", "n1"].amounts.gpu == 4000


def test_holdings_count_for_the_granted_queue():
    granted = {"kai.scheduler/granted": '{"queue":"team","group":"train"}'}
    recording = seen(*WORLD, queue("other"), pod(**granted))
    recording.everything()
    recording.see(group(), group(queue="other"))
    (held,) = recording.taken()[0].values()
    assert held.queue.name == "team"


def test_a_changed_queue_is_recorded_with_its_holdings():
    recording = seen(*WORLD, pod())
    recording.everything()
    recording.see(queue("team", "top"), queue("team", "top", displayName="The team"))
    (held,) = recording.taken()[0].values()
    assert (held.queue.display_name, held.queue.parent.uid) == ("The team", "q-top")


def test_queues_in_a_circle_end():
    recording = seen(queue("a", "b"), queue("b", "a"), group(queue="a"), node(), pod())
    (held,) = recording.everything()[0].values()
    assert [each.name for each in held.queue.path] == ["a", "b"]


def test_pods_without_a_queue_count_only_with_gpus():
    recording = seen(*WORLD, pod("agent", group="", gpus=""), pod("driver", group=""))
    (held,) = recording.everything()[0].values()
    assert (held.job.name, held.job.kind, held.queue.uid) == ("driver", "Pod", "")


def test_what_of_a_node_is_down():
    free = Amounts(6000, 62500, 548681)
    for changed, down in [
        (node(), Amounts()),
        (node(usable="7"), Amounts(gpu=1000)),
        (node(usable="1"), Amounts(gpu=6000)),
        (node(ready="False"), free),
        (node(unschedulable=True), free),
    ]:
        recording = seen(*WORLD[:-1], changed, pod())
        state = recording.everything()[1]["n1"]
        assert state == NodeState(model="H100", capacity=Amounts(8000, 64000, 549755), down=down), changed


def test_what_pods_hold_beyond_their_node():
    state = seen(*WORLD[:-1], node(gpus="1"), pod()).everything()[1]["n1"]
    assert (state.over.gpu, state.down.gpu) == (1000, 0)


def test_gpus_of_drivers_are_capacity():
    recording = seen(*WORLD[:-1], node(gpus="0"))
    recording.note_devices({"n1": 4})
    assert recording.taken()[1]["n1"].capacity.gpu == 4000


def test_nodes_of_other_pools_do_not_count():
    recording = attrs.evolve(Recording(), owns=lambda labels: "pool" in labels)
    for each in (*WORLD, pod()):
        recording.see(None, each)
    assert recording.everything() == ({}, {})
