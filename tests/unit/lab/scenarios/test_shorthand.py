import pytest

from kai.basics.errors import InputError
from kai.lab.scenarios.shorthand import expand, is_short
from kai.lab.scenarios.validation import spread


def objects(kind, **document):
    return [each for each in expand({"cluster": {}, **document}, "s.yaml") if each["kind"] == kind]


def test_a_range_of_names_stands_for_each_of_them():
    assert list(spread("n1..n3", "x")) == ["n1", "n2", "n3"]
    assert list(spread("gpu-08..gpu-10", "x")) == ["gpu-08", "gpu-09", "gpu-10"]
    assert list(spread("n1..m3", "x")) == ["n1..m3"]
    assert list(spread("plain", "x")) == ["plain"]


def test_a_node_is_large_unless_it_says_otherwise():
    (node,) = objects("Node", cluster={"nodes": {"n1": {"gpu": 2, "cpu": 8, "taints": ["a=b:NoExecute", "c"]}}})
    assert node["status"]["allocatable"] == {"cpu": "8", "memory": "4Ti", "pods": "110", "nvidia.com/gpu": "2"}
    assert node["spec"]["taints"] == [
        {"key": "a", "value": "b", "effect": "NoExecute"},
        {"key": "c", "value": "", "effect": "NoSchedule"},
    ]


def test_a_bare_queue_has_no_gpu_quota_nor_limit():
    (queue,) = objects("Queue", queues={"a": None})
    assert queue["spec"]["resources"] == {
        "gpu": {"quota": 0, "limit": -1, "overQuotaWeight": 1},
        "cpu": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
        "memory": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
    }


def test_bounds_are_in_cores_and_gigabytes():
    (queue,) = objects("Queue", queues={"a": {"quota": {"cpu": 2, "memory": 3}, "limit": 4, "weight": {"cpu": 2}}})
    resources = queue["spec"]["resources"]
    assert (resources["cpu"]["quota"], resources["memory"]["quota"], resources["gpu"]["limit"]) == (2000, 3000, 4)
    assert resources["cpu"]["overQuotaWeight"] == 2


def test_a_group_is_a_gang_of_its_members():
    group, *pods = expand(
        {"cluster": {}, "queues": {"a": {}}, "groups": {"g": {"members": 2, "each": {"gpu": 1, "fraction": 0.5}}}},
        "s.yaml",
    )[1:4]
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("a", 2)
    assert [pod["metadata"]["name"] for pod in pods] == ["g-0", "g-1"]
    assert pods[0]["metadata"]["annotations"] == {"pod-group-name": "g", "gpu-fraction": "0.5"}
    assert all(pod["status"]["phase"] == "Pending" for pod in pods)


def test_pods_that_run_come_first_and_may_be_leaving():
    groups = {"g": {"queue": "a", "members": 3, "runs_on": {"n1": 2}, "leaving": 1}}
    pods = objects("Pod", cluster={"nodes": {"n1": {}}}, groups=groups)
    assert [pod["spec"].get("nodeName") for pod in pods] == ["n1", "n1", None]
    assert ["deletionTimestamp" in pod["metadata"] for pod in pods] == [True, False, False]


def test_sub_groups_have_pods_of_their_own():
    groups = {
        "g": {
            "queue": "a",
            "minimum": 1,
            "each": {"gpu": 1},
            "subgroups": {
                "top": {},
                "l": {"members": 1, "parent": "top"},
                "w": {"members": 2, "each": {"gpu": 2}, "required": "rack"},
            },
        }
    }
    (group,) = objects("PodGroup", groups=groups)
    pods = objects("Pod", groups=groups)
    assert group["spec"]["minSubGroup"] == 1
    assert group["spec"]["subGroups"][2]["topologyConstraint"]["requiredTopologyLevel"] == "rack"
    assert [pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] for pod in pods] == ["l", "w", "w"]
    assert [pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] for pod in pods] == ["1", "2", "2"]


def test_only_a_document_with_cluster_is_a_short_scenario():
    assert is_short({"cluster": {}})
    assert not is_short({"cluster": {}, "apiVersion": "v1"})
    assert not is_short([])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"group": {}}, "found key 'group'; did you mean groups?"),
        ({"cluster": {"nodes": {f"n1..n{'9' * 5000}": {}}}}, "expected a range of at most 100000 nodes"),
        ({"cluster": {"node": {}}}, "cluster: found key 'node'; did you mean nodes?"),
        ({"cluster": {"nodes": {"n": {"gpus": 1}}}}, "cluster.nodes.n: found key 'gpus'; did you mean gpu"),
        ({"cluster": {"nodes": []}}, "cluster.nodes: found [], expected a mapping"),
        ({"queues": {"a": {"quotas": 1}}}, "queues.a: found key 'quotas'; did you mean quota?"),
        ({"queues": {"a": {"quota": "4"}}}, "queues.a.quota: found '4', expected a number of GPUs, or"),
        ({"queues": {"a": {"quota": {"gpu": "4"}}}}, "queues.a.quota.gpu: found '4', expected a number"),
        ({"groups": {"g": {}}}, "groups.g.queue: found nothing, expected the name of a queue"),
        ({"groups": {"g": {"queue": "a", "member": 2}}}, "groups.g: found key 'member'; did you mean members?"),
        ({"groups": {"g": {"queue": "a", "members": -1}}}, "groups.g.members: found -1, expected a whole number"),
        ({"groups": {"g": {"queue": "a", "runs_on": "ghost"}}}, "groups.g.runs_on: found node 'ghost'"),
        (
            {"cluster": {"nodes": {"n1": {}}}, "groups": {"g": {"queue": "a", "runs_on": {"n2": 1}}}},
            "groups.g.runs_on: found node 'n2'; known are n1",
        ),
        (
            {"cluster": {"nodes": {"n1": {}}}, "groups": {"g": {"queue": "a", "runs_on": "n1", "started": True}}},
            "groups.g.started: found true, expected",
        ),
        (
            {"groups": {"g": {"queue": "a", "each": {"fraction": True}}}},
            "g.each.fraction: found true, expected a number",
        ),
        ({"groups": {"g": {"queue": "a", "runs_on": 5}}}, "groups.g.runs_on: found 5, expected a node"),
        ({"groups": {"g": {"queue": "a", "each": {"gpus": 1}}}}, "groups.g.each: found key 'gpus'; did you mean gpu"),
        ({"groups": {"g": {"queue": "a", "each": {"gpu": 0.5}}}}, "each.gpu: found 0.5, expected whole GPUs; write fr"),
        ({"groups": {"g": {"queue": "a", "each": {"gpu": "one"}}}}, "g.each.gpu: found 'one', expected a whole number"),
        ({"groups": {"g": {"queue": "a", "each": {"gpu": -1}}}}, "g.each.gpu: found -1, expected a whole number"),
        ({"groups": {"g": {"queue": "a", "each": {"gpu": 1.5}}}}, "whole GPUs; write fraction: 0.5, say, to share one"),
        (
            {"groups": {"g": {"queue": "a", "each": {"fraction": 1.5}}}},
            "found 1.5, expected a number from 0.01 to 1; w",
        ),
        (
            {"groups": {"g": {"queue": "a", "members": 3, "subgroups": {"s": {"members": 1}}}}},
            "groups.g.members: found beside subgroups, expected members in each sub-group",
        ),
        (
            {"groups": {"g": {"queue": "a", "preemptible": "false"}}},
            "groups.g.preemptible: found 'false', expected true or false",
        ),
        ({"cluster": {"nodes": {"n": {"ready": "false"}}}}, "cluster.nodes.n.ready: found 'false', expected true or"),
        ({"cluster": {"nodes": {"n": {"cordoned": 0}}}}, "cluster.nodes.n.cordoned: found 0, expected true or false"),
        ({"groups": {"g": {"queue": "a", "subgroups": {"s": {"member": 1}}}}}, "subgroups.s: found key 'member'"),
        (
            {"groups": {"g": {"queue": "a", "required": "rack"}}},
            "groups.g: found key 'required'; a group has it as topology: {required: rack}",
        ),
        (
            {"groups": {"g": {"queue": "a", "preferred": ["rack"]}}},
            "groups.g: found key 'preferred'; a group has it as topology: {preferred: LEVEL}",
        ),
        (
            {"groups": {"g": {"queue": "a", "topology": "rack"}}},
            "groups.g.topology: found 'rack', expected {required: rack} or {preferred: rack}",
        ),
        (
            {"groups": {"g": {"queue": "a", "topology": {"requird": "rack"}}}},
            "groups.g.topology: found key 'requird'; did you mean required?",
        ),
        (
            {"groups": {"g": {"queue": "a", "topology": {"required": 3}}}},
            "groups.g.topology.required: found 3, expected a text",
        ),
    ],
)
def test_what_cannot_be_read_is_named(document, message):
    with pytest.raises(InputError) as caught:
        expand({"cluster": {}, **document}, "s.yaml")
    assert str(caught.value).startswith("s.yaml: ") or str(caught.value).startswith("s.yaml")
    assert message in str(caught.value)


def test_workload_labels_and_annotations_reach_group_and_pods():
    group = {
        "queue": "a",
        "labels": {"team": "x", "fast": True},
        "annotations": {"example.com/seconds": 60},
        "runs_on": "n1",
    }
    cluster = {"nodes": {"n1": {"gpu": 1}}}
    found = expand({"cluster": cluster, "queues": {"a": {}}, "groups": {"g": group}}, "s.yaml")
    told = [each["metadata"] for each in found if each["kind"] in ("PodGroup", "Pod")]
    assert [(each["labels"]["team"], each["labels"]["fast"]) for each in told] == [("x", "true"), ("x", "true")]
    assert [each["annotations"]["example.com/seconds"] for each in told] == ["60", "60"]
