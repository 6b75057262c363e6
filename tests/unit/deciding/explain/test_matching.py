"""Nodes that match are told apart from nodes that do not, and from those that match and are too small."""

import pytest

from tests.unit.deciding.explain.test_words import told

TAINTED = {"big": {"gpu": 8, "taints": ["team=x"]}, "s1": {"gpu": 4}, "s2": {"gpu": 4, "cpu": 16}}
TAINT = "1 node had untolerated taint {team: x}"
ZONES = {
    "topologies": {"default": ["zone"]},
    "nodes": {
        "n1": {"gpu": 4, "labels": {"zone": "z1", "kind": "a"}},
        "n2": {"gpu": 4, "labels": {"zone": "z2", "kind": "a"}},
        "n3": {"gpu": 8, "labels": {"zone": "z2"}},
        "n4": {"gpu": 4, "labels": {"kind": "b"}},
    },
}


def in_zones(group):
    return told({"g": {"queue": "a", **group}}, cluster=ZONES)


@pytest.mark.parametrize(
    ("each", "small"),
    [
        ({"gpu": 8}, "2 nodes too small (less than 8 GPUs)"),
        ({"gpu": 5}, "2 nodes too small (less than 5 GPUs)"),
        ({"fraction": 0.5, "devices": 6}, "2 nodes too small (less than 6 GPUs)"),
    ],
)
def test_too_small_nodes_are_counted_beside_mismatching_ones(each, small):
    assert told({"g": {"queue": "a", "each": each}}, TAINTED) == f"NoNodeMatches: no node matches: {small}, {TAINT}"


def test_each_node_is_counted_by_the_resource_it_lacks():
    asked = {"queue": "a", "each": {"gpu": 1, "cpu": 2}, "selector": {"x": "1"}}
    nodes = {
        "n1": {"gpu": 4, "cpu": 1, "labels": {"x": "1"}},
        "n2": {"cpu": 64, "labels": {"x": "1"}},
        "n3": {"gpu": 4},
    }
    found = told({"g": asked}, nodes)
    assert found.startswith("NoNodeMatches: no node matches: 1 node ")
    assert "1 node too small (less than 2 cores)" in found
    assert "1 node too small (less than 1 GPU)" in found
    assert "1 node didn't match Pod's node affinity/selector" in found


def test_too_few_matching_nodes_are_reported_with_the_exclusions():
    gang = {"queue": "a", "members": 3, "each": {"gpu": 4}}
    text = "its 3 pods must start together, and only 2 would fit on empty nodes that match"
    assert told({"g": gang}, TAINTED) == f"NoNodeMatches: {text}: {TAINT}"


def test_a_partly_placed_gang_may_still_find_the_rest():
    gang = {"queue": "a", "members": 3, "each": {"gpu": 4}, "runs_on": {"s1": 1, "s2": 1}}
    assert told({"g": gang}, TAINTED) == (
        "GangDoesNotFit: its 3 pods must run together, 2 do, and no other fits now: "
        "2 nodes lack GPUs, 1 node had untolerated taint {team: x}"
    )


def test_a_required_domain_with_too_few_matching_nodes_shows():
    gang = {"members": 2, "each": {"gpu": 4}, "topology": {"required": "zone"}, "selector": {"kind": "a"}}
    assert in_zones(gang) == (
        "NoNodeMatches: its 2 pods must fit in one zone, and nodes that match hold 1 of them in one at most: "
        "2 nodes didn't match Pod's node affinity/selector"
    )
    assert in_zones({**gang, "members": 1, "selector": {"kind": "b"}}) == (
        "NoNodeMatches: its pod must stay in one zone, and no node that matches is in any: "
        "3 nodes didn't match Pod's node affinity/selector"
    )


@pytest.mark.parametrize(
    ("resources", "strategy", "each", "text"),
    [
        ({"nvidia.com/mig-1g.10gb": 4}, "mixed", {"gpu": 1}, "with MIG slices only"),
        ({"nvidia.com/gpu": 4}, "single", {"fraction": 0.5}, "with whole GPUs only (MIG strategy single)"),
    ],
)
def test_nodes_that_give_their_gpus_another_way_are_told(resources, strategy, each, text):
    labels = {"nvidia.com/mig.strategy": strategy, "node-role.kubernetes.io/mig-enabled": "true"}
    nodes = {"mig": {"resources": resources, "labels": labels}, "plain": {"gpu": 4, "taints": ["team=x"]}}
    found = told({"g": {"queue": "a", "each": each}}, nodes)
    assert found.startswith("NoNodeMatches: no node matches: ")
    assert f"1 node {text}" in found
    assert TAINT in found


def test_an_unusable_node_with_room_is_counted_with_reason():
    nodes = {"n1": {"gpu": 4}, "n2": {"gpu": 4, "taints": ["team=x"]}}
    full = {"queue": "a", "each": {"gpu": 3}, "runs_on": "n1"}
    assert told({"full": full, "g": {"queue": "a", "each": {"gpu": 2}}}, nodes) == (
        f"NoRoom: no node that it may use has 2 GPUs idle; 5 idle in all; {TAINT}"
    )


def test_what_refuses_all_pods_of_a_gang_is_reported():
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    spec = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    nodes = {f"n{at}": {"gpu": 4, "labels": {"kubernetes.io/hostname": f"n{at}"}} for at in (1, 2)}
    gang = {"queue": "a", "members": 2, "each": {"gpu": 1}, "spec": spec}
    assert told({"g": gang}, nodes) == (
        "GangDoesNotFit: its 2 pods must start together, and none fits now: 2 nodes didn't match pod affinity rules"
    )


def test_gated_elastic_pods_beside_running_ones_are_reported():
    spec = {"containers": [{"name": "main"}]}
    member = {"kind": "Pod", "apiVersion": "v1", "spec": {**spec, "schedulingGates": [{"name": "x"}]}}
    annotations = {"pod-group-name": "g"}
    gated = {**member, "metadata": {"name": "late", "namespace": "default", "annotations": annotations}}
    cluster = {"nodes": {"n1": {"gpu": 4}}, "objects": [gated]}
    group = {"queue": "a", "members": 2, "minimum": 1, "each": {"gpu": 1}, "runs_on": {"n1": 2}}
    assert told({"g": group}, cluster=cluster) == "Gated: 1 of its 3 pods is held by scheduling gate x"
