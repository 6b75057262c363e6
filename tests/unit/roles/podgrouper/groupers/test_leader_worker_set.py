import pytest

from tests.unit.roles.podgrouper.workloads import (
    decide,
    failure_of,
    group_of,
    pod_group,
    pod_of,
    spec_of,
    subgroup_of,
    thing,
    tree_of,
)

INDEX, GROUP = "leaderworkerset.sigs.k8s.io/worker-index", "leaderworkerset.sigs.k8s.io/group-index"
SIZE = "leaderworkerset.sigs.k8s.io/size"
SEGMENT = "kai.scheduler/segment-size"


def lws(size=4, *, segment=None, policy=None, startup=None, template=None, annotations=None):
    inner = {"size": size}
    if segment is not None or policy:
        inner["subGroupPolicy"] = {
            **({"subGroupSize": segment} if segment is not None else {}),
            **({"subGroupPolicyType": policy} if policy else {}),
        }
    if template is not None:
        inner["workerTemplate"] = {"metadata": {"annotations": template}}
    spec = {"leaderWorkerTemplate": inner, **({"startupPolicy": startup} if startup else {})}
    return thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", annotations=annotations, spec=spec)


def pod(work, index=0, *, node="", **annotations):
    return pod_of(work, labels={INDEX: str(index)}, annotations=annotations, spec={"nodeName": node} if node else {})


def test_each_replica_is_a_gang_of_leader_and_workers():
    work = lws()
    member = pod_of(work, labels={INDEX: "2", GROUP: "1"})
    group = group_of(member, work)
    assert group["metadata"]["name"] == "pg-work-work-uid-group-1"
    assert group["spec"]["minMember"] == 4
    assert tree_of(group["spec"]) == {"leader": (None, 1, None), "workers": (None, 3, None)}
    assert subgroup_of(decide(member, work)) == "workers"
    assert subgroup_of(decide(pod(work, 0), work)) == "leader"


def test_a_replica_of_one_has_no_workers():
    assert tree_of(spec_of(pod(lws(1)), lws(1))) == {"leader": (None, 1, None)}


@pytest.mark.parametrize(("size", "message"), [(0, "found 0"), (None, "found nothing"), ("4", "an integer")])
def test_a_replica_needs_a_size(size, message):
    work = lws(size)
    if size is None:
        del work["spec"]["leaderWorkerTemplate"]["size"]
    failure = failure_of(pod(work), work)
    assert "spec.leaderWorkerTemplate.size" in failure
    assert message in failure


def test_an_unknown_start_up_policy_is_refused():
    work = lws(startup="Whenever")
    assert "expected LeaderCreated or LeaderReady" in failure_of(pod(work), work)


@pytest.mark.parametrize("index", ["-1", "x"])
def test_an_index_that_is_none_is_refused(index):
    assert INDEX in failure_of(pod(lws(), index), lws())


@pytest.mark.parametrize(
    ("index", "node", "annotations", "minimum"),
    [
        (0, "", {}, 1),
        (0, "n1", {}, 1),
        (1, "", {}, 4),
        (1, "", {SIZE: "3"}, 3),
        (1, "", {SIZE: "x"}, 4),
    ],
)
def test_a_leader_that_must_be_ready_first_starts_alone(index, node, annotations, minimum):
    work = lws(startup="LeaderReady")
    assert spec_of(pod(work, index, node=node, **annotations), work)["minMember"] == minimum


@pytest.mark.parametrize(("node", "minimum"), [("", 1), ("n1", 4)])
def test_exclusive_zones_do_not_block_the_leader(node, minimum):
    work = lws(annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"})
    assert spec_of(pod(work, 0, node=node), work)["minMember"] == minimum


def test_workers_count_once_their_leader_is_ready():
    """Until then they do not exist, and a gang that lacks them is stale: its leader would be evicted."""
    work = lws(startup="LeaderReady")
    leader, group = pod(work, 0, node="n1"), "pg-work-work-uid"
    ready = {**leader, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    waits = {**leader, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert spec_of(ready, work)["minMember"] == 4
    assert spec_of(waits, work)["minMember"] == 1
    assert spec_of(waits, work, pod_group(group, spec={"minMember": 1}))["minMember"] == 1
    assert spec_of(waits, work, pod_group(group, spec={"minMember": 4}))["minMember"] == 4


def test_a_leader_that_starts_first_ignores_segments():
    work = lws(5, segment=2, startup="LeaderReady")
    assert tree_of(spec_of(pod(work), work)) == {"leader": (None, 1, None)}


@pytest.mark.parametrize(
    ("size", "segment", "tree"),
    [
        (5, 2, {"segment-0": 2, "segment-1": (None, 2, None), "leader": 1, "workers": 2}),
        (4, 2, {"segment-0": 2, "segment-1": (None, 2, None), "leader": 1, "workers": 1}),
        (5, 3, {"segment-0": 2, "segment-1": (None, 2, None), "leader": 1, "workers": 2}),
        (3, 2, {"segment-0": 2, "leader": 1, "workers": 2}),
        (3, 3, {"segment-0": 2, "leader": 1, "workers": 2}),
    ],
)
def test_segments_hold_every_pod_once(size, segment, tree):
    work = lws(size, segment=segment)
    spec = spec_of(pod(work), work)
    wanted = {
        **tree,
        "segment-0": (None, None, 2),
        "leader": ("segment-0", 1, None),
        "workers": ("segment-0", tree["workers"], None),
    }
    assert tree_of(spec) == wanted
    assert sum(minimum or 0 for _, minimum, _ in wanted.values()) == size


@pytest.mark.parametrize(("index", "name"), [(0, "leader"), (1, "workers"), (2, "workers"), (3, "segment-1")])
def test_a_pod_goes_to_its_segment(index, name):
    work = lws(5, segment=2)
    assert subgroup_of(decide(pod(work, index), work)) == name


@pytest.mark.parametrize(("index", "name"), [(0, "leader"), (1, "segment-0"), (4, "segment-1")])
def test_an_excluded_leader_stands_beside_the_segments(index, name):
    work = lws(5, segment=2, policy="LeaderExcluded")
    assert tree_of(spec_of(pod(work, index), work)) == {
        "leader": (None, 1, None),
        "segment-0": (None, 2, None),
        "segment-1": (None, 2, None),
    }
    assert subgroup_of(decide(pod(work, index), work)) == name


def test_segments_without_the_leader_must_come_out_even():
    work = lws(4, segment=2, policy="LeaderExcluded")
    assert "3 workers in segments of 2" in failure_of(pod(work), work)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lws(4, segment=1), "segment size: found 1, expected 2...4"),
        (lws(4, segment=5), "segment size: found 5, expected 2...4"),
        (lws(4, segment=2, policy="Odd"), "expected LeaderWorker or LeaderExcluded"),
        (lws(4, annotations={SEGMENT: "x"}), "metadata.annotations"),
        (lws(4, template={SEGMENT: "x"}), "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations"),
        (lws(30_003, segment=2), "number of segments"),
    ],
)
def test_unusable_segments_are_refused(work, message):
    assert message in failure_of(pod(work), work)


def test_a_pod_beyond_the_segments_is_refused():
    work = lws(5, segment=2)
    assert "an index below the 5 pods" in failure_of(pod(work, 9), work)
    assert INDEX in failure_of(pod_of(work), work)


def test_segment_size_comes_from_policy_then_set_then_template():
    template, annotations = {SEGMENT: "4"}, {SEGMENT: "3"}
    sizes = [
        lws(13, template=template),
        lws(13, template=template, annotations=annotations),
        lws(13, segment=2, template=template, annotations=annotations),
    ]
    assert [len(tree_of(spec_of(pod(work), work))) - 2 for work in sizes] == [3, 4, 6]


def test_segments_are_constrained_where_a_template_exists():
    keys = {"kai.scheduler/topology": "t", "kai.scheduler/segment-topology-required-placement": "rack"}
    with_template, without = lws(5, segment=2, template=keys), lws(5, segment=2)
    constraint = {"topology": "t", "requiredTopologyLevel": "rack"}
    found = {
        each["name"]: each.get("topologyConstraint") for each in spec_of(pod(with_template), with_template)["subGroups"]
    }
    assert found == {"segment-0": constraint, "segment-1": constraint, "leader": None, "workers": None}
    assert all("topologyConstraint" not in each for each in spec_of(pod(without, **keys), without)["subGroups"])
