"""The way of a platform team from KAI-Scheduler to kai and back, on a real API server, command by command.

Look and compare with an account that may only read; then one node pool, then all, then back. The objects are as
KAI-Scheduler leaves them. Of what is printed, numbers are masked: the rest is compared as it stands.
"""

import json
import re
import time
from contextlib import contextmanager

import pytest

from kai.cli.command import run
from tests.integration import processes
from tests.integration.client import until
from tests.integration.installation import install
from tests.integration.kubelet import RESERVED, Kubelet
from tests.integration.together import NAMESPACE as HOME
from tests.integration.together import UNLIMITED, add_node, add_queues, an_object, running
from tests.unit.deploy.rendering import DEPLOY, deployment, render

SPACE = "research"
GROUP = "scheduling.run.ai/v2alpha2"
RBAC = "rbac.authorization.k8s.io/v1"
READER = f"system:serviceaccount:{SPACE}:reader"
POOL = "kai.scheduler/node-pool"
PEER = "kai-scheduler-default"

WAITING = """
# job waits, for # reason

NoNodeLargeEnough · queue team · # pod, # GPUs
  job     large can never run here: a pod asks for # GPUs, the largest node has # GPUs.
  change  # GPU a pod, not #   ✓ starts now on n#
"""
EVICTED = """
Evicted before
  TIME                  JOB            QUEUE  PODS  GPUS  CAUSE    FOR                           RULE
  #-#-#T#:#:#Z  research/runs  team      #     -  reclaim  research/passed (queue team)  fair share

events are kept for an hour by default; --decision-log goes back further
"""
QUEUES = """
QUEUE    QUOTA  LIMIT  FAIR  USED  WANT  RUN/WAIT  # GPUs    #         #         #          #
top          -      -     #     #    #       #/#  ██████████████████████████████░░░░░░░░░░»
└─ team      -      -     #     #    #       #/#  ██████████████████████████████░░░░░░░░░░»
█ used  ▓ used above fair share (can be reclaimed)  ░ wanted  ◆ fair share  | quota  ] limit  » more
team wants # GPUs more and is below its fair share. kai why queue/team
"""
PLAN = """
   JOB              PODS  GPUS  NODES  WHY
+  research/passed     #     #  n#     queue team

Plan: # pod starts now.
decisions HASH, as recorded
# of # decisions as the cluster's scheduler has it:
  research/passed  there  waits: no nodes with enough resources were found (PodSchedulingErrors)
                   here   starts on n# (it fits, within the share of its queue)
"""
PEER_RUNS = "D# the scheduler of KAI-Scheduler runs (kai-scheduler-default, # replica, which takes no lease)"


def reader(plane) -> str:
    """Make an account that may only read; return its kubeconfig."""
    admin = plane.admin
    admin.ensure(an_object("v1", "ServiceAccount", "reader", SPACE))
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    admin.ensure(an_object(RBAC, "ClusterRole", "reader", rules=rules))
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": SPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    admin.ensure(an_object(RBAC, "ClusterRoleBinding", "reader", subjects=[subject], roleRef=role))
    return str(plane.kubeconfig(plane.account(SPACE, "reader"), "reader"))


def a_pod(name, *, gpus, group="", node="", labels=None):
    resources = {"requests": {"cpu": "100m"}, "limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "x", "resources": resources}]}
    annotations = {"pod-group-name": group, "received-resource-type": "Regular"} if group else {}
    metadata = {"labels": {"kai.scheduler/queue": "team", **(labels or {})}, "annotations": annotations}
    place = {"nodeName": node} if node else {}
    return an_object("v1", "Pod", name, SPACE, metadata=metadata, spec={**spec, **place})


def a_group(admin, name, *, gpus, node="", told=""):
    """Make a group with one pod, as KAI-Scheduler leaves it: running, or waiting with a condition."""
    spec = {"minMember": 1, "queue": "team", "priorityClassName": "train"}
    made = admin.create(an_object(GROUP, "PodGroup", name, SPACE, spec=spec))
    admin.create(a_pod(f"{name}-0", gpus=gpus, group=name, node=node))
    if told:
        condition = {
            "type": "UnschedulableOnNodePool",
            "nodePool": "default",
            "reason": "Unschedulable",
            "message": "Unable to schedule podgroup",
            "status": "True",
            "transitionID": "1",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reasons": [{"reason": "PodSchedulingErrors", "message": told}],
        }
        admin.patch(made, {"status": {"schedulingConditions": [condition]}}, subresource="status")
    return made


def an_eviction(admin, victim, gainer):
    """Record the event with which KAI-Scheduler tells of an eviction."""
    uid = victim["metadata"]["uid"]
    return admin.create(
        an_object(
            "v1",
            "Event",
            "runs.1",
            SPACE,
            metadata={
                "annotations": {
                    "num-evicted-pods": "1",
                    "evictor-action-type": "reclaim",
                    "evictor-pod-group-name": gainer,
                    "evictor-pod-group-namespace": SPACE,
                }
            },
            involvedObject={"apiVersion": GROUP, "kind": "PodGroup", "namespace": SPACE, "name": "runs", "uid": uid},
            reason="Evict",
            type="Normal",
            message=f"Pod {SPACE}/runs-1 was preempted by workload {SPACE}/{gainer}.",
            firstTimestamp="2026-01-01T00:00:00Z",
            lastTimestamp="2026-01-01T00:00:00Z",
            count=1,
        )
    )


@pytest.fixture
def plane(bare_control_plane):
    """Furnish a cluster that KAI-Scheduler schedules: one job runs, one has no room, one was passed over."""
    plane = bare_control_plane
    install(plane, DEPLOY)
    admin = plane.admin
    admin.ensure(an_object("v1", "Namespace", SPACE))
    add_queues(admin)
    add_node(admin, "n0", {})
    add_node(admin, "n1", {POOL: "blue"})
    container = {"name": "scheduler", "image": "registry.example/kai-scheduler/scheduler:v0.1"}
    labels = {"app": PEER}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    admin.create(an_object("apps/v1", "Deployment", PEER, HOME, spec=spec))
    runs = a_group(admin, "runs", gpus=2, node="n0")
    an_eviction(admin, runs, "passed")
    a_group(admin, "large", gpus=8, told="no nodes with enough resources were found")
    a_group(admin, "passed", gpus=1, told="no nodes with enough resources were found")
    kubelet = Kubelet(admin, plane.account(RESERVED, "kai-resource-reservation"))
    kubelet.start()
    until(lambda: the(plane, "runs-0")["status"].get("phase") == "Running", "the job to run")
    yield plane
    kubelet.stop()


def the(plane, name):
    return plane.admin.get(an_object("v1", "Pod", name, SPACE))


def node_of(plane, name):
    return the(plane, name)["spec"].get("nodeName", "")


def scaled(plane, replicas):
    plane.admin.patch(an_object("apps/v1", "Deployment", PEER, HOME), {"spec": {"replicas": replicas}})


def masked(text):
    """Return a text with its numbers and digests masked and without blanks at the ends of lines."""
    lines = [re.sub(r"\b[0-9a-f]{16}\b", "HASH", line) for line in text.splitlines()]
    return "\n".join(re.sub(r"\d+(?:\.\d+)?", "#", line).rstrip() for line in lines)


def seen(capsys, *arguments, code=0):
    """Return what a command prints, masked."""
    capsys.readouterr()
    assert run(list(arguments)) == code
    return masked(capsys.readouterr().out)


def doctor(capsys, who, *, code=0):
    """Return what needs attention."""
    lines = seen(capsys, "doctor", *who, code=code).splitlines()
    return [line for line in lines if line.startswith(("warn", "fail"))]


@contextmanager
def pod_of_kai(plane, *flags, name="kai-0"):
    """Let the pod of kai be there, as its Deployment would make it: what doctor sees of a program."""
    template = deployment(render(DEPLOY))["spec"]["template"]
    (container,) = template["spec"]["containers"]
    spec = {**template["spec"], "nodeName": "gateway"}
    spec["containers"] = [{**container, "args": [*container["args"], *flags]}]
    metadata = {"labels": template["metadata"]["labels"]}
    made = plane.admin.create(an_object("v1", "Pod", name, HOME, metadata=metadata, spec=spec))
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    plane.admin.patch(made, {"status": ready}, subresource="status")
    try:
        yield
    finally:
        plane.admin.delete(made, gracePeriodSeconds=0)


def groups(plane):
    return {each["metadata"]["name"]: each for each in plane.admin.list(GROUP, "PodGroup", SPACE)}


def looked_at(plane, who, capsys):
    """Step 1: what waits, who has what and who was evicted is explained, and nothing is created."""
    assert doctor(capsys, who) == ["warn  D# kai runs nowhere in this cluster", f"warn  {PEER_RUNS}"]
    assert seen(capsys, "queues", *who) == QUEUES.strip("\n")
    assert seen(capsys, "why", "--all", "-A", *who) == WAITING.strip("\n")
    assert seen(capsys, "why", "runs", "--evicted", "-n", SPACE, *who) == EVICTED.strip("\n")
    # Which rights there are is asked by creating a question that the server answers and does not keep.
    verbs = {event["verb"]: event["requestURI"] for event in plane.audited(READER)}
    assert {verb for verb, path in verbs.items() if not path.endswith("selfsubjectaccessreviews")} <= {"get", "list"}


def compared(who, folder, capsys):
    """Step 2: a file is written; of it the same decisions are made, and what differs has both rules."""
    now = str(folder / "now.zip")
    saved = seen(capsys, "snapshot", now, *who).splitlines()
    assert saved[0].endswith("/now.zip: # node · # pods · # jobs · # queues")
    assert seen(capsys, "replay", now, "--expect") == PLAN.strip("\n")


def shadowed(plane, folder):
    """Step 3: a shadow with rights to read decides beside the peer, which starts a job, and says that it agrees."""
    admin = plane.admin
    install(plane, DEPLOY / "overlays" / "shadow")
    folder.mkdir()
    flags = ("--shadow", "--shadow-patience=1h")
    with processes.running(plane, plane.account(HOME, "kai-shadow"), folder, "shadow", "scheduler", flags=flags) as kai:
        until(lambda: kai.cycles() >= 1, "the shadow's first cycle")
        group = a_group(admin, "seen", gpus=1)
        pod = an_object("v1", "Pod", "seen-0", SPACE)
        before = kai.cycles()
        until(lambda: touched(admin, "n0") and kai.cycles() >= before + 2, "the shadow to decide on it")
        target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
        binding = an_object("v1", "Binding", "seen-0", SPACE, target=target)
        admin.request("POST", admin.path(pod, "binding"), binding)
        found = until(lambda: told(kai) if told(kai)["decided"] else None, "a decision that was compared")
    assert (found["summary"], found["differences"]) == ("1 of 1 decisions equal", [])
    # The way back: the Deployment would be deleted. The job ends, so that the next step finds what the first one found.
    admin.delete(pod, gracePeriodSeconds=0)
    admin.delete(group)


def touched(admin, node):
    """Write something on a node that changes no decision, so that there is a cycle."""
    return admin.patch(
        an_object("v1", "Node", node), {"metadata": {"annotations": {"tests/touched": str(time.time())}}}
    )


def told(kai):
    """Return what the shadow says of agreement."""
    return json.loads(processes.fetch(kai.plugins_port, "/api/v1/shadow"))


def one_pool(plane, who, folder, capsys):
    """Step 4: kai has the nodes of one pool and the jobs that ask for it; one pool of two schedulers is refused."""
    everything = dict.fromkeys(("cpu", "memory", "gpu"), UNLIMITED)
    for name, parent in (("blue-top", ""), ("blue-team", "blue-top")):
        spec = {"parentQueue": parent, "resources": everything}
        metadata = {"labels": {POOL: "blue"}}
        plane.admin.create(an_object("scheduling.run.ai/v2", "Queue", name, metadata=metadata, spec=spec))
    plane.admin.create(a_pod("blue", gpus=1, labels={POOL: "blue", "kai.scheduler/queue": "blue-team"}))
    folder.mkdir()
    with running(plane, folder, "--partition-label-value=blue"), pod_of_kai(plane, "--partition-label-value=blue"):
        until(lambda: node_of(plane, "blue") == "n1", "the job of the pool to start")
        assert doctor(capsys, who) == [f"warn  {PEER_RUNS}"]
    with pod_of_kai(plane, "--partition-label-value=blue"), pod_of_kai(plane, name="kai-1"):
        assert doctor(capsys, who, code=1) == [f"fail  {PEER_RUNS}"]
    assert not node_of(plane, "passed-0")
    # The way back: without the label nodes, queues and jobs are those of the one pool again.
    for kind, version, space in (
        ("Node", "v1", ""),
        ("Queue", "scheduling.run.ai/v2", ""),
        ("PodGroup", GROUP, SPACE),
        ("Pod", "v1", SPACE),
    ):
        for each in plane.admin.list(version, kind, space):
            if POOL in each["metadata"].get("labels", {}):
                plane.admin.patch(each, {"metadata": {"labels": {POOL: None}}})


def switched(plane, who, folder, capsys):
    """Step 5: what runs is untouched, what waits keeps its place, what was passed over starts, doctor finds nothing."""
    before = the(plane, "runs-0")
    scaled(plane, 0)
    folder.mkdir()
    with running(plane, folder), pod_of_kai(plane):
        until(lambda: node_of(plane, "passed-0") == "n0", "the job that was passed over to start")
        plane.admin.create(a_pod("canary", gpus=1))
        until(lambda: node_of(plane, "canary"), "the canary to start")
        assert doctor(capsys, who) == []
        waiting = seen(capsys, "jobs", "--state", "waiting", *who, "-n", SPACE, "-o", "name")
        assert waiting == "podgroup.scheduling.run.ai/large"
        after = the(plane, "runs-0")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (after["spec"], after["status"]["phase"]) == (before["spec"], "Running")


def given_back(plane, who, left, capsys):
    """Step 6: KAI-Scheduler finds its own objects, and why a group waits in a condition that it reads."""
    scaled(plane, 1)
    assert doctor(capsys, who) == ["warn  D# kai runs nowhere in this cluster", f"warn  {PEER_RUNS}"]
    found = groups(plane)
    assert {name: found[name]["spec"] for name in left} == {name: each["spec"] for name, each in left.items()}
    assert {name: found[name]["metadata"]["uid"] for name in left} == {
        name: each["metadata"]["uid"] for name, each in left.items()
    }
    (condition,) = found["large"]["status"]["schedulingConditions"]
    assert (condition["type"], condition["nodePool"]) == ("UnschedulableOnNodePool", "default")
    pods = plane.admin.list("v1", "Pod", SPACE)
    assert {each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")} >= {"runs-0", "passed-0", "blue"}


def test_from_kai_scheduler_to_kai_and_back(plane, tmp_path, capsys):
    who = ["--kubeconfig", reader(plane)]
    until(lambda: run(["jobs", *who, "-q", "-A", "-o", "name"]) == 0, "the right to list")
    left = groups(plane)
    looked_at(plane, who, capsys)
    compared(who, tmp_path, capsys)
    shadowed(plane, tmp_path / "shadow")
    one_pool(plane, who, tmp_path / "pool", capsys)
    switched(plane, who, tmp_path / "all", capsys)
    given_back(plane, who, left, capsys)
