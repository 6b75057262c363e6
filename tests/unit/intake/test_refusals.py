"""Pods that nodes refused: the engine passes those nodes over for them, and for them alone."""

import attrs

from kai.deciding.engine.cycle import run_cycle
from kai.deciding.explain.messages import reason_text
from kai.deciding.explain.words import GroupReasons
from kai.facts.model.placement import NoRoom, Past
from kai.framework.decisions import Bind, Evict
from kai.intake import Intake
from kai.testing import RecordingSink, default_profile_with
from tests.unit.intake import making

GPU = {"requests": {"nvidia.com/gpu": "1"}}
WHY = "node n1 has 0 of nvidia.com/gpu left, the pod needs 1"


def gpus(name, count):
    return making.node(name, allocatable={"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": str(count)})


UNBOUNDED = {"resources": {each: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for each in ("cpu", "memory", "gpu")}}
BASE = (
    making.queue("q", **UNBOUNDED),
    making.group("a"),
    gpus("n1", 1),
    gpus("n2", 8),
    making.pod("p", group="a", **GPU),
)


def refusal(node="n1", uid="uid-p"):
    return NoRoom(namespace="default", pod="p", uid=uid, node=node, reason=WHY)


def taken(*manifests, refused=()):
    return Intake().take(making.objects(*manifests), making.NOW, Past(refused=refused))


def decided(snapshot):
    sink = RecordingSink()
    report = run_cycle(snapshot, default_profile_with(), sink)
    name = {row: pod.name for row, pod in enumerate(snapshot.pods)}
    kinds = (Bind, Evict)
    places = [
        (type(each).__name__, name[each.pod], snapshot.nodes[report.node[each.pod]].name)
        for each in sink.decisions
        if isinstance(each, kinds)
    ]
    return places, report


def test_a_pod_avoids_the_node_that_refused_it():
    assert decided(taken(*BASE))[0] == [("Bind", "p", "n1")]
    assert decided(taken(*BASE, refused=(refusal(),)))[0] == [("Bind", "p", "n2")]


def test_a_refusal_belongs_to_a_uid_and_no_name():
    assert decided(taken(*BASE, refused=(refusal(uid="another"),)))[0] == [("Bind", "p", "n1")]


def test_equal_pods_of_other_groups_may_use_the_node():
    other = (making.group("b"), making.pod("r", group="b", **GPU))
    places, _ = decided(taken(*BASE, *other, refused=(refusal(),)))
    assert sorted(places) == [("Bind", "p", "n2"), ("Bind", "r", "n1")]


def test_a_pod_refused_by_all_nodes_shows_the_refusal():
    snapshot = taken(*BASE, refused=(refusal(), refusal("n2")))
    places, report = decided(snapshot)
    assert places == []
    (row,) = [row for row, group in enumerate(snapshot.groups) if group.name == "a"]
    told = GroupReasons(snapshot, default_profile_with(), report).dominant(row)
    assert str(told) == f"NoNodeMatches: no node matches: 2 nodes refused it: {WHY}"
    (reason,) = report.records[row].reasons
    assert reason_text(reason).endswith(f"2 node(s) refused it: {WHY}.")


def test_a_pod_makes_room_where_it_was_not_refused():
    low = making.other("PriorityClass", "scheduling.k8s.io/v1", "low", value=1)
    high = making.other("PriorityClass", "scheduling.k8s.io/v1", "high", value=90)
    cluster = (
        making.queue("q", **UNBOUNDED),
        making.group("a", priorityClassName="high"),
        making.group("b", priorityClassName="low"),
        gpus("n1", 1),
        gpus("n2", 1),
        making.pod("p", group="a", **GPU),
        making.pod("old", group="b", phase="Running", node="n2", **GPU),
        low,
        high,
    )
    assert decided(taken(*cluster))[0] == [("Bind", "p", "n1")]
    snapshot = taken(*cluster, refused=(refusal(),))
    places, report = decided(snapshot)
    assert places == [("Evict", "old", "n1")]  # which moves there
    (row,) = [row for row, pod in enumerate(snapshot.pods) if pod.name == "p"]
    assert snapshot.nodes[report.node[row]].name == "n2"


def test_a_refused_pod_shares_no_signature_with_equal_pods():
    snapshot = taken(*BASE, making.group("b"), making.pod("r", group="b", **GPU), refused=(refusal(),))
    row = {pod.name: row for row, pod in enumerate(snapshot.pods)}
    assert snapshot.pods[row["p"]].signature != snapshot.pods[row["r"]].signature
    assert snapshot.pod_shape[row["p"]] != snapshot.pod_shape[row["r"]]


def test_the_same_objects_with_other_refusals_are_another_snapshot():
    intake, objects = Intake(), making.objects(*BASE)
    first = intake.take(objects, making.NOW)
    second = intake.take(objects, making.NOW + 1, Past(refused=(refusal(),)))
    third = intake.take(objects, making.NOW + 2)
    assert [each.past.refused for each in (first, second, third)] == [(), (refusal(),), ()]
    assert attrs.evolve(third, now=first.now) == first
    assert decided(second)[0] == [("Bind", "p", "n2")]
    assert decided(third)[0] == [("Bind", "p", "n1")]
