"""What a reader who may not see everything is told: no name of another namespace, no node, no config map."""

import pytest

from kai.dashboard.scope import Scope, masked
from kai.simulation.deciding.run import simulate
from kai.simulation.explaining.explanation import explained
from kai.simulation.outcomes.overview import overview
from kai.simulation.scenarios.scenario import read_short
from tests.unit.simulation.explaining.test_caps import FOUR, LENT
from tests.unit.simulation.explaining.test_explanation import proof
from tests.unit.simulation.explaining.test_situations import DISKS, MOUNT, QUEUES, TWO, claim

OWN = Scope(namespaces=frozenset({"default"}), queues=frozenset({"a", "mine"}), nodes=False)
LOCAL = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "disk-1"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "disks",
        "claimRef": {"namespace": "default", "name": "home", "uid": "home"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n9"]}]}
                ]
            }
        },
    },
    "status": {"phase": "Bound"},
}
SETTINGS = {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
NEAR = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "setting", "namespace": "default"}}


def foreign():
    """Yield a job of another namespace that has the GPUs of all four nodes."""
    metadata = {"namespace": "far", "creationTimestamp": "2026-01-01T11:00:00Z"}
    yield {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {**metadata, "name": "theirs", "uid": "theirs"},
        "spec": {"queue": "other", "minMember": 1},
    }
    for node in FOUR:
        name, annotations = f"theirs-{node}", {"pod-group-name": "theirs"}
        requests = {"nvidia.com/gpu": "4"}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "name": name, "uid": name, "annotations": annotations},
            "spec": {
                "schedulerName": "kai-scheduler",
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
            },
            "status": {"phase": "Running"},
        }


def told(scope, groups, nodes, queues, objects=(), **more):
    """Return what a reader is told of the last job that waits."""
    document = {"about": "x", "cluster": {"nodes": nodes, "objects": list(objects)}, "queues": queues, "groups": groups}
    outcome = masked(simulate(read_short({**document, "run": ["allocate", "reclaim"], **more}, "scope")), scope)
    return explained(outcome, overview(outcome)).jobs[-1]


@pytest.mark.parametrize(("scope", "text"), [(Scope(), "   queue other"), (OWN, "")])
def test_the_queue_of_a_cap_is_named_to_readers_who_may_know_it(scope, text):
    groups = {"late": {"queue": "mine", "members": 2, "each": {"gpu": 4}}}
    each = told(scope, groups, FOUR, LENT, list(foreign()), parameters={"queue_evicted_gpus_per_cycle": 3})
    assert proof(each)["cap"] == (
        f"parameters.queue_evicted_gpus_per_cycle 3{text}   for a part of this job 4   over by 1"
    )
    (cap,) = (one.values for one in each.evidence if one.label == "cap")
    assert cap["queue"] == ("other" if text else None)


@pytest.mark.parametrize(("scope", "label"), [(Scope(), True), (OWN, False)])
def test_the_node_of_a_volume_is_named_to_readers_who_may_list_nodes(scope, label):
    objects = (DISKS, claim(volumeName="disk-1"), LOCAL)
    each = told(scope, {"g": {"queue": "a", "each": {"gpu": 1}, "spec": MOUNT}}, TWO, QUEUES, objects)
    assert ("volume" in proof(each)) is label
    assert ("n9" in str([(one.text, one.values) for one in each.evidence])) is label


@pytest.mark.parametrize(("scope", "label"), [(Scope(), True), (OWN, False)])
def test_config_maps_of_nearly_the_name_are_named_to_readers_of_the_whole(scope, label):
    each = told(scope, {"g": {"queue": "a", "spec": SETTINGS}}, TWO, QUEUES, [NEAR])
    assert ("config map" in proof(each)) is label
    assert "settings" in each.summary


@pytest.mark.parametrize("scope", [Scope(), OWN])
def test_what_is_in_the_way_of_a_gang_names_no_other_job_and_no_node(scope):
    ports = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}
    nodes = {**FOUR, "n9": {"gpu": 4}}
    groups = {"late": {"queue": "mine", "members": 2, "spec": ports}}
    theirs = list(foreign())
    for each in theirs[1:]:
        each["spec"]["containers"][0]["ports"] = ports["containers"][0]["ports"]
    each = told(scope, groups, nodes, LENT, theirs, run=["allocate"])
    assert each.summary == (
        "late waits: its 2 pods must start together, and only 1 fits now: "
        "5 nodes didn't have free ports for the requested pod ports."
    )
