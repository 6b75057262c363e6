import attrs
import numpy as np
import pytest

from kai.answers.offline.run import simulate
from kai.answers.outcomes.overview import overview
from kai.api import names
from kai.deciding.explain.code_texts import share_text
from kai.deciding.explain.declared import Declared, missing_queue
from kai.deciding.explain.phrases import listed, plain, quantity
from kai.deciding.explain.recorded import least_pods
from kai.deciding.explain.words import GroupReasons
from kai.framework.hooks import Dependence, NodeScore, PluginUse
from kai.lab.scenarios.scenario import read_short
from kai.testing import snapshot

QUEUES = {"root": {"quota": 16}, "a": {"parent": "root", "quota": 16}}
RACKS = {
    "topologies": {"default": ["rack"]},
    "nodes": {"n1": {"gpu": 4, "labels": {"rack": "r1"}}, "n2": {"gpu": 4, "labels": {"rack": "r2"}}},
}
LACKS = "NoRoom: no node that it may use has all that it asks for: {}"


def told(groups, nodes=None, queues=QUEUES, **more):
    """Return code and text of the dominant reason of the last group."""
    document = {"about": "x", "cluster": {"nodes": nodes or {"n1": {"gpu": 4}}}, "queues": queues, "groups": groups}
    outcome = simulate(read_short({**document, "run": ["allocate", "reclaim"], **more}, "words"))
    jobs = {job.name: job for job in overview(outcome).jobs}
    return str(jobs[list(groups)[-1]].waiting_reason)


def test_a_queue_with_children_runs_no_job():
    assert told({"g": {"queue": "root"}}) == "QueueNotLeaf: root is not a leaf queue; submit to a"


def test_gates_are_told_before_anything_else():
    gated = {"queue": "a", "members": 2, "each": {"gpu": 100}, "spec": {"schedulingGates": [{"name": "g"}]}}
    assert told({"g": gated}) == "Gated: its 2 pods are held by scheduling gate g"


def test_elastic_pods_with_gates_are_told():
    gated = {"queue": "a", "minimum": 0, "spec": {"schedulingGates": [{"name": "g"}]}}
    assert told({"g": gated}) == "Gated: its pod is held by scheduling gate g"


def test_a_cluster_without_nodes_is_told():
    document = {
        "about": "x",
        "cluster": {"nodes": {}},
        "queues": QUEUES,
        "groups": {"g": {"queue": "a"}},
        "run": ["allocate"],
    }
    (job,) = overview(simulate(read_short(document, "words"))).jobs
    assert str(job.waiting_reason) == "NoNodes: there are no nodes"


@pytest.mark.parametrize(
    ("each", "text"),
    [
        ({"gpu": 8}, "a pod asks for 8 GPUs, the largest node has 4 GPUs"),
        ({"cpu": 2000}, "a pod asks for 2000 cores, the largest node has 1000 cores"),
        ({"memory": "8T"}, "a pod asks for 8000 GB, the largest node has 4398 GB"),
        ({"example.com/x": 1}, "a pod asks for 1 example.com/x, and no node has any"),
    ],
)
def test_a_too_large_pod_shows_the_largest_node(each, text):
    assert told({"g": {"queue": "a", "each": each}}) == f"NoNodeLargeEnough: {text}"


def test_a_pod_needing_two_nodes_resources_names_the_lacks():
    nodes = {"n1": {"gpu": 8, "cpu": 1}, "n2": {"cpu": 64}}
    asked = {"queue": "a", "each": {"gpu": 1, "cpu": 32}}
    lacks = "1 node has less than 32 cores, 1 node has less than 1 GPU"
    assert told({"g": asked}, nodes) == f"NoNodeLargeEnough: no node has everything that a pod asks for: {lacks}"


def test_the_limit_comes_before_the_quota_and_the_room():
    queues = {"root": {"quota": 4}, "a": {"parent": "root", "quota": 1, "limit": 2}}
    groups = {"g": {"queue": "a", "preemptible": False, "each": {"gpu": 3}}}
    assert told(groups, queues=queues) == (
        "OverLimit: queue a may not use more than 2 GPUs, and this job would make it 3 GPUs"
    )


def test_an_exceeded_non_preemptible_quota_is_explained():
    queues = {"root": {"quota": 4}, "a": {"parent": "root", "quota": 1}}
    groups = {"g": {"queue": "a", "preemptible": False, "each": {"gpu": 3}}}
    assert told(groups, queues=queues) == (
        "NonPreemptibleOverQuota: non-preemptible pods of a may use 1 GPU, and this job would make it 3 GPUs"
    )


def test_only_a_too_small_domain_is_impossible():
    wide = {"queue": "a", "members": 2, "each": {"gpu": 4}, "topology": {"required": "rack"}}
    assert told({"g": wide}, cluster=RACKS) == (
        "DomainTooSmall: its 2 pods (8 GPUs) must fit in one rack, and no rack can hold more than 1 of them"
    )
    narrow = {"queue": "a", "members": 2, "each": {"gpu": 2}, "topology": {"required": "rack"}}
    in_both = {"queue": "a", "members": 2, "minimum": 1, "each": {"gpu": 1}, "runs_on": ["n1", "n2"]}
    assert told({"held": in_both, "g": narrow}, cluster=RACKS).startswith(
        "TopologyHasNoRoom: no rack has room for its 2 pods together"
    )


def test_a_missing_dependency_is_refused_in_one_line():
    container = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volume = {"containers": [container], "volumes": [{"name": "v", "configMap": {"name": "missing"}}]}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "default"}}
    cluster = {"nodes": {"n1": {"gpu": 4}}, "objects": [other]}
    text = told({"g": {"queue": "a", "each": {"gpu": 1}, "spec": volume}}, cluster=cluster)
    assert text.startswith("PodRefused: its pod is refused by ConfigMap:")
    assert "missing" in text
    assert "\n" not in text


def test_nodes_that_are_not_ready_are_counted():
    nodes = {
        "n1": {"gpu": 4, "cordoned": True},
        "n2": {"gpu": 4, "taints": ["a=b"]},
        "n3": {"gpu": 4, "taints": ["a=b"]},
    }
    assert told({"g": {"queue": "a", "each": {"gpu": 1}}}, nodes) == (
        "NoNodeMatches: no node matches: 2 nodes had untolerated taint {a: b}, 1 node cordoned"
    )


def test_missing_room_is_reported_when_nothing_else_blocks():
    groups = {"full": {"queue": "a", "each": {"gpu": 4}, "runs_on": "n1"}, "g": {"queue": "a", "each": {"gpu": 1}}}
    assert told(groups, run=["allocate"]) == "NoRoom: no node that it may use has 1 GPU idle; 0 idle in all"
    groups = {"full": {"queue": "a", "each": {"cpu": 999}, "runs_on": "n1"}, "g": {"queue": "a", "each": {"cpu": 2}}}
    assert told(groups, run=["allocate"]) == LACKS.format("1 lacks CPU")


def test_a_group_that_no_action_tried_is_told_so():
    assert told({"g": {"queue": "a", "each": {"gpu": 1}}}, run=["stalegangeviction"]) == (
        "NotTried: no action has tried it in this cycle"
    )


def test_an_unelapsed_preemption_delay_is_reported_without_other_obstacles():
    queues = {"root": {"quota": 4}, "a": {"parent": "root", "quota": 2}, "b": {"parent": "root", "quota": 2}}
    groups = {
        "full": {"queue": "b", "members": 4, "minimum": 0, "each": {"gpu": 1}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 1}, "preemption_delay": "2h"},
    }
    assert told(groups, queues=queues) == (
        "PreemptionDelayNotElapsed: no room; it asked for a preemption delay of 2h0m0s, "
        "and may evict no others before 2026-01-01T13:01:00Z"
    )


def test_the_resource_exceeding_the_fair_share_is_named():
    queues = {"root": {"quota": 4}, "a": {"parent": "root", "quota": {"gpu": 4, "cpu": 10}}, "b": {"parent": "root"}}
    groups = {
        "full": {"queue": "b", "members": 4, "minimum": 0, "each": {"gpu": 1}, "runs_on": "n1"},
        "mine": {"queue": "a", "each": {"cpu": 900}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 1, "cpu": 200}},
    }
    text = told(groups, queues=queues)
    assert text.startswith(
        "AtFairShare: no room; with this job queue a would use 1100 cores, more than its fair share of"
    )


@pytest.mark.parametrize(
    ("parts", "least", "text"),
    [
        ({"x": {"members": 2}}, 5, "minSubGroup: found 5, expected at most 1"),
        (
            {"x": {"minimum_subgroups": 2}, "y": {"members": 1, "parent": "x"}},
            1,
            "minSubGroup of sub-group x: found 2, expected at most 1",
        ),
    ],
)
def test_more_sub_groups_than_there_are_never_start(parts, least, text):
    found = told({"g": {"queue": "a", "minimum": least, "subgroups": parts}})
    assert found == f"NotReady: {text}, the number of its sub-groups"


def test_a_trees_fewest_pods_are_its_cheapest_required_children():
    nodes = {"n1": {"gpu": 1}}
    parts = {"leader": {"members": 1}, "workers": {"members": 4}, "spare": {"members": 2}}
    whole = snapshot(nodes, {"g": {"subgroups": parts}})
    some = snapshot(nodes, {"g": {"subgroups": parts, "minimum": 2}})
    assert (least_pods(whole.groups[0]), least_pods(some.groups[0])) == (7, 3)


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        (8000, "gpu", "8 GPUs"),
        (1000, "gpu", "1 GPU"),
        (250, "gpu", "0.25 GPUs"),
        (0, "gpu", "0 GPUs"),
        (1500, "cpu", "1.5 cores"),
        (1000, "cpu", "1 core"),
        (1, "pods", "1 pod"),
        (900 * 2**30, "ephemeral-storage", "966.4 GB of ephemeral-storage"),
        (2**30, "hugepages-2Mi", "1.074 GB of hugepages-2Mi"),
        (16 * 10**9, "memory", "16 GB"),
        (3, "pods", "3 pods"),
        (2, "nvidia.com/mig-1g.5gb", "2 nvidia.com/mig-1g.5gb"),
        (2000, "example.com/x", "2 example.com/x"),
    ],
)
def test_amounts_carry_their_unit(amount, resource, text):
    assert quantity(amount, resource) == text


def test_long_lists_are_shortened():
    assert listed(["a", "b"]) == "a, b"
    assert listed([f"n{at}" for at in range(9)]) == "n0, n1, n2, n3, n4 and 4 more"
    assert plain(1333.33) == "1.333"


def test_nodes_that_lack_different_things_are_told_apart():
    nodes = {"n1": {"gpu": 1, "cpu": 4}, "n2": {"gpu": 4, "cpu": 4}, "n3": {"gpu": 4, "pods": 1}}
    groups = {
        "a": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
        "b": {"queue": "a", "each": {"cpu": 4}, "runs_on": "n2"},
        "c": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n3"},
        "g": {"queue": "a", "each": {"gpu": 1, "cpu": 2}},
    }
    found = told(groups, nodes=nodes, run=["allocate"])
    assert found == LACKS.format("1 lacks CPU, 1 lacks GPUs, 1 lacks places for pods")


def test_an_optional_subgroup_names_what_it_alone_lacks():
    parts = {"left": {"members": 2, "each": {"gpu": 1}}, "right": {"members": 3, "each": {"gpu": 1}}}
    found = told({"g": {"queue": "a", "minimum": 1, "subgroups": parts}})
    rest = "of its sub-group right must start together, and only 2 fit now: 1 node lacks GPUs"
    assert found == f"GangDoesNotFit: the 3 pods {rest}"


def test_memory_shares_of_a_device_are_counted_by_memory():
    full = {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"}
    gang = {"queue": "a", "members": 4, "each": {"gpu_memory": 4000}}
    nodes = {"n1": {"gpu": 1, "gpu_memory": 16000}}
    assert told({"full": full, "g": gang}, nodes=nodes, run=["allocate"]).startswith("GangDoesNotFit: its 4 pods must")
    gang["members"] = 5
    found = told({"full": full, "g": gang}, nodes=nodes, run=["allocate"])
    assert found == "ClusterTooSmall: its 5 pods must start together, and only 4 would fit on empty nodes"


@pytest.mark.parametrize(
    ("each", "text"),
    [
        ({"fraction": 0.5, "devices": 2}, "a pod asks for 0.5 of each of 2 GPUs, the largest node has 1"),
        (
            {"gpu_memory": 4000, "devices": 2},
            "a pod asks for 4000 MiB of memory of each of 2 GPUs, the largest node has 1",
        ),
    ],
)
def test_shares_of_more_devices_than_any_node_never_fit(each, text):
    nodes = {"n1": {"gpu": 1, "gpu_memory": 16000}, "n2": {"gpu": 1, "gpu_memory": 16000}}
    assert told({"g": {"queue": "a", "each": each}}, nodes) == f"NoNodeLargeEnough: {text}"


def test_room_for_a_part_is_told_beside_whole_devices():
    full = {"queue": "a", "each": {"fraction": 0.6}, "runs_on": ["n1"]}
    asks = {"queue": "a", "each": {"fraction": 0.6}, "selector": {"kubernetes.io/hostname": "n1"}}
    groups = {"full": full, "g": asks}
    lacks = "NoRoom: no node that it may use has 0.6 of a GPU idle; "
    assert told(groups, {"n1": {"gpu": 1}}, run=["allocate"]) == f"{lacks}0 whole GPUs idle in all"
    found = told(groups, {"n1": {"gpu": 1}, "n2": {"gpu": 1}}, run=["allocate"])
    assert found.startswith(f"{lacks}1 whole GPU idle in all; 1 node ")


def test_parts_of_devices_are_counted_by_device():
    gang = {"queue": "a", "members": 3, "each": {"fraction": 0.6}}
    found = told({"g": gang}, {"n1": {"gpu": 2}})
    assert found == "ClusterTooSmall: its 3 pods must start together, and only 2 would fit on empty nodes"


# ----------------------------------------------------------------------------------------- what a snapshot leaves out


@pytest.mark.parametrize(
    ("queues", "text"),
    [
        (
            {"a": {"parent": "b", "quota": 4}, "b": {"parent": "a", "quota": 4}},
            "QueueCycle: queue a belongs to no tree: its parents form a circle, a -> b -> a",
        ),
        (
            {"a": {"parent": "a", "quota": 4}},
            "QueueCycle: queue a belongs to no tree: its parents form a circle, a -> a",
        ),
        (
            {"a": {"parent": "ghost", "quota": 4}},
            "QueueOrphaned: queue a belongs to no tree: ghost, the parent of a, does not exist",
        ),
        ({"b": {"quota": 4}}, "QueueDoesNotExist: queue a does not exist"),
    ],
)
def test_a_queue_outside_any_tree_is_reported_with_cause(queues, text):
    assert told({"g": {"queue": "a", "each": {"gpu": 1}}}, queues=queues) == text


def test_a_queue_elsewhere_or_too_deep_is_reported():
    parents = {f"q{at}": f"q{at - 1}" if at else "" for at in range(4)}
    declared = Declared(parents=parents, elsewhere=frozenset({"theirs"}))
    assert str(missing_queue("theirs", declared)) == "QueueOfAnotherPool: queue theirs belongs to another node pool"
    assert str(missing_queue("q3", declared)) == "QueueTooDeep: queue q3 is nested 4 deep, more than is followed"


def test_sub_groups_that_form_no_tree_are_told():
    parts = {"x": {"members": 2, "parent": "y", "each": {"gpu": 1}}, "y": {"members": 1, "parent": "x"}}
    assert told({"g": {"queue": "a", "subgroups": parts}}).startswith("SubGroupsInvalid: its sub-groups form no tree: ")


def test_a_missing_topology_is_reported_by_name():
    group = {"queue": "a", "members": 2, "each": {"gpu": 1}, "topology": {"name": "none", "required": "rack"}}
    assert told({"g": group}) == "TopologyMissing: requested topology none does not exist"


def test_gpu_memory_unknown_on_all_nodes_names_the_label():
    text = told({"g": {"queue": "a", "each": {"gpu_memory": 30000}}})
    expected = "GpuMemoryUnknown: a pod asks for 30000 MiB of memory of a GPU, and no node has the label nvidia.com/gpu"
    assert text.startswith(expected)


def test_a_fair_share_is_compared_with_the_whole_gang():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 4}, "b": {"parent": "root", "quota": 4}}
    groups = {
        "theirs": {"queue": "b", "members": 5, "minimum": 0, "each": {"gpu": 1}, "runs_on": {"n1": 4, "n2": 1}},
        "g": {"queue": "a", "members": 5, "minimum": 5, "each": {"gpu": 1}},
    }
    document = {"about": "x", "cluster": {"nodes": {"n1": {"gpu": 4}, "n2": {"gpu": 4}}}, "queues": queues}
    outcome = simulate(read_short({**document, "groups": groups, "run": ["allocate", "reclaim"]}, "words"))
    cycle = outcome.last
    (row,) = [at for at, group in enumerate(cycle.snapshot.groups) if group.name == "g"]
    words = {each.code: each for each in GroupReasons(cycle.snapshot, outcome.profile, cycle.report).all(row)}
    assert words["AtFairShare"].text == (
        "no room; with this job queue a would use 5 GPUs, more than its fair share of 4 GPUs, so it may take none from "
        "others"
    )


def test_a_held_place_precedes_what_other_pods_lack():
    queues = {"root": {"quota": 4}, "a": {"parent": "root", "quota": 4}, "b": {"parent": "root"}}
    groups = {
        "theirs": {"queue": "b", "members": 4, "minimum": 0, "each": {"gpu": 1}, "runs_on": "n1"},
        "g": {"queue": "a", "members": 6, "minimum": 2, "each": {"gpu": 1}},
    }
    assert told(groups, queues=queues).startswith("HeldForLeaving: its place on n1 is being vacated")


def test_a_plugin_scoring_all_nodes_nan_is_named():
    nodes = {"n1": {"gpu": 4}, "n2": {"gpu": 4}}
    document = {"about": "x", "cluster": {"nodes": nodes}, "queues": QUEUES, "run": ["allocate"]}
    case = read_short({**document, "groups": {"g": {"queue": "a", "members": 2, "each": {"gpu": 3}}}}, "words")
    (job,) = overview(simulate(case, more=(PluginUse(name="shy", plugin=Shy()),))).jobs
    assert str(job.waiting_reason) == "NoScore: plugin shy scores the nodes that have room with NaN: n1, n2"


@attrs.frozen
class Shy:
    """A plugin that takes out every node."""

    def open(self, session):
        return [NodeScore(lambda _, nodes: np.full(len(nodes), np.nan), depends=Dependence.SHAPE)]


def test_held_places_differ_from_vacated_ones():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 8}, "b": {"parent": "root"}}
    theirs = {"queue": "b", "members": 4, "minimum": 0, "each": {"gpu": 1}, "runs_on": "n1"}
    gang = {"queue": "a", "members": 2, "each": {"gpu": 4}}
    assert told({"theirs": theirs, "g": gang}, {"n1": {"gpu": 4}, "n2": {"gpu": 4}}, queues) == (
        "HeldForLeaving: its places on n1, n2 are held until pods that are terminating have left n1"
    )


@pytest.mark.parametrize(
    ("share", "limit", "bounds"),
    [
        (4000, -1, "its fair share of 4 GPUs"),
        (4000, 8000, "its fair share of 4 GPUs"),
        (4000, 4000, "its fair share and limit of 4 GPUs"),
        (3000, 4000, "its fair share and limit of 3 GPUs and 4 GPUs"),
    ],
)
def test_a_limit_that_lowers_the_fair_share_is_named(share, limit, bounds):
    numbers = {"queue": "c", "resource": "gpu", "used": 4000, "requested": 500, "fair_share": share, "limit": limit}
    assert share_text({**numbers, "pods": 1, "more": False}) == (
        f"with this job queue c would use 4.5 GPUs, more than {bounds}, so it may take none from others"
    )


def test_gpu_memory_counts_towards_a_queues_fair_share():
    nodes = {"n1": {"gpu": 1, "gpu_memory": 40000}, "n2": {"gpu": 1, "gpu_memory": 40000}}
    groups = {
        "runs": {"queue": "a", "members": 2, "each": {"gpu_memory": 30000}, "runs_on": {"n1": 1, "n2": 1}},
        "waits": {"queue": "a", "each": {"gpu_memory": 30000}},
    }
    assert told(groups, nodes, {"root": {"quota": 2}, "a": {"parent": "root", "quota": 2}}) == (
        "AtFairShare: no room; with this job queue a would use 2.25 GPUs, more than its fair share of 2 GPUs, "
        "so it may take none from others"
    )


def test_unavailable_gpu_memory_is_reported_in_mebibytes():
    nodes = {"n1": {"gpu": 1, "gpu_memory": 40000}}
    groups = {
        "runs": {"queue": "a", "each": {"gpu_memory": 30000}, "runs_on": "n1"},
        "waits": {"queue": "a", "each": {"gpu_memory": 20000}},
    }
    assert told(groups, nodes, run=["allocate"]) == "NoRoom: no node that it may use has 20000 MiB of a GPU idle"


def test_the_missing_default_queue_is_reported_as_such():
    assert Declared().default == names.DEFAULT_QUEUE
    assert told({"g": {"queue": "default-queue"}}) == (
        "QueueDoesNotExist: queue default-queue, which holds workloads that name none, does not exist"
    )
