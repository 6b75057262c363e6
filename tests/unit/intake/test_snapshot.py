import random
from unittest import mock

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.binding import Grant
from kai.api.names import GRANTED
from kai.api.values import instant
from kai.basics.errors import InputError
from kai.facts.model.axis import LEADING, MOST_UNOFFERED, UNOFFERED
from kai.facts.model.groups import Shares
from kai.facts.model.placement import Past
from kai.facts.model.pod import Status
from kai.intake import Intake, IntakeSettings, take_snapshot
from kai.intake import snapshot as snapshot_module
from tests.unit.intake.making import NOW, bind_request, group, node, objects, other, picture, pod, queue, taken

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def cluster(*, later: bool = False) -> ClusterObjects:
    """Make a cluster that refers to everything a snapshot looks up; ``later`` some of its objects have changed."""
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "x"}}}
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    settings_map = {"name": "m", "configMap": {"name": "settings"}}
    mounter = {"name": "main", "volumeMounts": [{"name": "m"}]}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 1 + later}}
    zones = [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "allocatable": "6" if later else "8"}]}]
    devices = {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1"},
        "devices": [{"name": "0"}, {"name": "1"}][: 1 + later],
    }
    placed = {"kai.scheduler/numa-placement-observed": '[{"zone": "node-0", "amount": {"cpu": "1"}}]'}
    return objects(
        *[
            node(f"n{index}", labels={"kai.scheduler/node-pool": "theirs"} if later and index == 3 else {})
            for index in range(4)
        ],
        other("NodeResourceTopology", "topology.node.k8s.io/v1alpha2", "n0", zones=zones),
        other("ResourceSlice", "resource.k8s.io/v1", "s", spec=devices),
        other(
            "ResourceClaim", "resource.k8s.io/v1", "c", namespace="default", spec={"devices": {"requests": [request]}}
        ),
        other(
            "PersistentVolumeClaim",
            "v1",
            "data",
            namespace="default",
            status={"phase": "Bound" if later else "Pending"},
        ),
        other("ConfigMap", "v1", "settings", namespace="default"),
        other("Namespace", "v1", "default"),
        other("PriorityClass", "scheduling.k8s.io/v1", "high", value=60 if later else 200),
        other(
            "Topology",
            "kai.scheduler/v1alpha1",
            "t",
            spec={"levels": [{"nodeLabel": "example.com/zone", "alias": "zone"} if later else {"nodeLabel": "zone"}]},
        ),
        queue("top"),
        queue("q", parent="top"),
        queue("r", parent="gone" if later else "top"),
        group("g", priorityClassName="high", topologyConstraint={"topology": "t", "requiredTopologyLevel": "zone"}),
        group("h", subGroups=[{"name": "a"}, {"name": "b"}][later:]),
        group("h", metadata={"namespace": "elsewhere"}, queue="r"),
        pod("a", group="g", phase="Running", node="n0", annotations=placed, requests={"cpu": "1"}),
        pod("b", group="h" if later else "g", requests={"cpu": "1"}, labels={"app": "y" if later else "x"}),
        pod("c", group="g", requests={"cpu": "1"}, spec={"affinity": {"podAffinity": {REQUIRED: [term]}}}),
        pod(
            "d",
            group="h",
            labels={"kai.scheduler/subgroup-name": "b"},
            spec={"volumes": [volume, settings_map], "containers": [mounter]},
        ),
        pod("e", group="h", metadata={"namespace": "elsewhere"}, annotations={"gpu-fraction": "0.5"}),
        pod("f", group="h", metadata={"namespace": "third"}, spec={"volumes": [settings_map], "containers": [mounter]}),
        pod("i", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}),
        pod("l", group="g", phase="Running", node="n0", annotations=granted("r", "" if later else "theirs")),
        pod("m", group="g", node="n0", annotations=granted("r" if later else "q")),
        pod("n", group="h", phase="Running", node="n1", annotations={**granted("r"), "gpu-fraction": "0.1"}),
        pod("k", phase="Running", node="n1", metadata={"deletionTimestamp": "1970-01-12T13:46:00Z"}),
        bind_request("b", "n3" if later else "n2", metadata={"annotations": {GRANTED: Grant(group="h").text}}),
    )


def granted(queue_: str, pool: str = "") -> dict[str, str]:
    return {GRANTED: Grant(queue=queue_, pool=pool, gpus=("d",), portion=0.5).text}


FIELDS = [field.name for field in attrs.fields(ClusterObjects)]
EDITS = st.tuples(st.sampled_from(FIELDS), st.integers(0, 9), st.sampled_from(["away", "as it was", "changed"]))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_objects_makes_no_difference(seed):
    ordered = cluster()
    mixed = {
        field: random.Random(seed).sample(getattr(ordered, field), len(getattr(ordered, field))) for field in FIELDS
    }
    shuffled = ClusterObjects(**{field: tuple(members) for field, members in mixed.items()})
    assert picture(take_snapshot(shuffled, NOW)) == picture(take_snapshot(ordered, NOW))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(EDITS, max_size=4), max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_what_was_taken_or_read_before_makes_no_difference(rounds, chance, forgets):
    """Each round takes some objects away, puts some back and makes others anew, which is what a watch does.

    Some of what there is, or was for a moment, is read ahead. Keys of groups of the past may be forgotten at once.
    """
    with mock.patch("kai.intake.membership._KEPT", -(1 << 30) if forgets else 1 << 10):
        _take_rounds(rounds, chance)


def _take_rounds(rounds, chance):
    before, after, now = cluster(), cluster(later=True), cluster()
    intake = Intake()
    for number, edits in enumerate(rounds):
        for field, position, what in edits:
            members, originals = list(getattr(now, field)), getattr(after if what == "changed" else before, field)
            if members and what == "away":
                members.pop(position % len(members))
            elif originals:
                fresh = attrs.evolve(originals[position % len(originals)])
                members = [each for each in members if _name(each) != _name(fresh)]
                members.insert(position % (len(members) + 1), fresh)
            now = attrs.evolve(now, **{field: tuple(members)})
            intake.read_ahead([each for each in (*now.pods, *now.pod_groups) if chance.random() < 0.5])
        moment = NOW + 100 * number
        assert picture(intake.take(now, moment)) == picture(take_snapshot(now, moment))


def _name(source):
    return source.metadata.namespace, source.metadata.name


def test_an_object_that_did_not_change_is_read_once():
    intake, objects_ = Intake(), cluster()
    first = intake.take(objects_, NOW)
    changed = attrs.evolve(
        objects_, pods=tuple(attrs.evolve(each) if each.metadata.name == "d" else each for each in objects_.pods)
    )
    second = intake.take(changed, NOW)
    assert [one.name for one, other_ in zip(first.pods, second.pods, strict=True) if one is not other_] == ["d"]
    assert all(one is other_ for one, other_ in zip(first.nodes, second.nodes, strict=True))
    assert all(one is other_ for one, other_ in zip(first.groups, second.groups, strict=True))


def test_queues_are_read_again_only_after_a_change():
    before = objects(queue("q"), queue("r"), group("g"), pod("p"))
    intake = Intake()
    with mock.patch.object(snapshot_module, "read_queues", wraps=snapshot_module.read_queues) as read:
        known = intake.take(before, NOW).queues
        assert intake.take(attrs.evolve(before, pods=()), NOW).queues is known
        assert read.call_count == 1
        used = Past(usage={"q": Shares(gpu=1.0)})
        assert intake.take(before, NOW, used).queues[0].usage == Shares(gpu=1.0)
        fewer = attrs.evolve(before, queues=before.queues[:1])
        assert [each.name for each in intake.take(fewer, NOW, used).queues] == ["q"]
        assert read.call_count == 3


def test_the_same_objects_later_keep_the_same_facts():
    intake, objects_ = Intake(), cluster()
    first, second = intake.take(objects_, NOW), intake.take(attrs.evolve(objects_), NOW + 1, revision=7)
    assert (second.now, second.revision) == (NOW + 1, 7)
    assert second.versions.content is first.versions.content
    assert second.pods is first.pods
    assert intake.take(objects_, NOW - 1).versions.content is not first.versions.content  # the clock went back
    assert intake.take(objects_, NOW, Past(usage={"q": Shares(gpu=0.5)})).versions.content is not first.versions.content


def test_facts_change_when_a_leaving_pod_counts_as_stuck():
    intake, objects_ = Intake(IntakeSettings(stuck_in_releasing_seconds=60.0)), cluster()
    leaving = instant("1970-01-12T13:46:00Z")  # what pod "k" says
    before = intake.take(objects_, leaving + 50.0)
    assert intake.take(objects_, leaving + 59.0).versions.content is before.versions.content
    after = intake.take(objects_, leaving + 60.1)
    assert after.versions.content is not before.versions.content
    assert Status.STUCK_IN_RELEASING in after.pod_status
    assert intake.take(objects_, leaving + 5000.0).versions.content is after.versions.content


def test_interned_values_of_past_pods_are_forgotten(monkeypatch):
    monkeypatch.setattr(snapshot_module, "_MANY", 0)
    intake = Intake()
    for number in range(30):
        made = objects(pod(f"p{number}", group=f"g{number}"), group(f"g{number}"), node("n"))
        assert picture(intake.take(made, NOW)) == picture(take_snapshot(made, NOW))


def test_private_traits_of_past_pods_are_forgotten(monkeypatch):
    """A volume claim of its own gives a pod traits of its own."""
    monkeypatch.setattr(snapshot_module, "_MANY", 0)
    intake, most = Intake(), 0
    for number in range(60):
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": f"data-{number}"}}
        made = objects(pod(f"p{number}", group="g", spec={"volumes": [volume]}), group("g"), node("n"))
        intake.take(made, NOW)
        most = max(most, len(intake._pod_reader._traits))
    assert 1 < most < 15


def test_pods_without_anything_in_common_are_read_once(monkeypatch):
    monkeypatch.setattr(snapshot_module, "_MANY", 0)
    intake, made = Intake(), []
    for number in range(30):
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": f"data-{number}"}}
        made += (
            pod(f"p{number}", group="g", requests={"cpu": f"{number + 1}m"}, spec={"volumes": [volume]}),
            node(f"n{number}"),
        )
    intake.take(objects(*made, group("g")), NOW)
    reader = intake._pod_reader
    intake.take(objects(*made[1:], group("g")), NOW)
    assert intake._pod_reader is reader, "what was made of the pods is kept"


def test_many_nodes_without_pods_are_read_once(monkeypatch):
    monkeypatch.setattr(snapshot_module, "_MANY", 0)
    intake = Intake()
    made = objects(*[node(f"n{number}") for number in range(30)])
    intake.take(made, NOW)
    reader = intake._node_reader
    intake.take(attrs.evolve(made, nodes=(*made.nodes[1:], *objects(node("another")).nodes)), NOW)
    assert intake._node_reader is reader, "what was made of the nodes is kept"


@pytest.mark.parametrize("made", [pod("a"), node("a"), group("a"), queue("a")])
def test_two_objects_of_one_name_are_refused_by_name(made):
    one, other_ = objects(made), objects({**made, "metadata": {**made["metadata"], "uid": "another"}})
    twice = {field: (*getattr(one, field), *getattr(other_, field)) for field in FIELDS}
    with pytest.raises(InputError, match=r"metadata.name: found .*uid-a.*another.*expected one object"):
        take_snapshot(ClusterObjects(**twice), NOW)


def test_a_duplicate_object_is_refused_and_intake_stays_usable():
    intake, made = Intake(), objects(pod("a"), pod("b"))
    intake.take(made, NOW)
    with pytest.raises(InputError, match="pod default/a"):
        intake.take(attrs.evolve(made, pods=(made.pods[0], made.pods[0])), NOW)
    assert [each.name for each in intake.take(made, NOW).pods] == ["a", "b"]


def test_a_pod_joins_only_a_group_of_its_namespace():
    stranger = pod("p", group="h", metadata={"namespace": "third"})
    own = pod("p", group="h", metadata={"namespace": "b"})
    groups = [group("h", metadata={"namespace": name}) for name in ("b", "a")]
    snapshot = taken(stranger, own, *groups)
    assert [snapshot.groups[row].namespace if row >= 0 else None for row in snapshot.pod_group] == ["b", None]


def test_rows_are_by_name_and_pods_by_namespace_first():
    pods = [
        pod("b", metadata={"namespace": "x"}),
        pod("a", metadata={"namespace": "y"}),
        pod("a", metadata={"namespace": "x"}),
    ]
    groups = [group("b", metadata={"namespace": "x"}), group("a", metadata={"namespace": "y"})]
    snapshot = taken(*pods, *groups, node("n2"), node("n1"), queue("z"), queue("y"))
    assert [each.key for each in snapshot.pods] == ["x/a", "x/b", "y/a"]
    assert [each.key for each in snapshot.groups] == ["y/a", "x/b"]
    assert [each.name for each in snapshot.nodes] == ["n1", "n2"]
    assert [each.name for each in snapshot.queues] == ["y", "z"]


def test_an_empty_cluster_makes_an_empty_snapshot():
    snapshot = take_snapshot(ClusterObjects(), NOW, IntakeSettings())
    assert (snapshot.pods, snapshot.nodes, snapshot.shapes, snapshot.axis.names[:2]) == ((), (), (), ("cpu", "memory"))
    assert snapshot.requests.shape == (0, 4)


def test_time_and_revision_are_passed_on():
    snapshot = Intake().take(ClusterObjects(), 42.0, revision=7)
    assert (snapshot.now, snapshot.revision) == (42.0, 7)


def test_resources_that_no_node_offers_add_one_column():
    """A pod may name tens of thousands of resources, and each would be a column of every node and every shape."""
    odd = [
        pod(f"odd-{at}", group="g", requests={f"x{at}.example/r{each:03}": "1" for each in range(100)})
        for at in range(3)
    ]
    nics = pod("nics", group="g", requests={"z.example/nic": "1", "z.example/backed": "2"})
    offered = node("n", allocatable={"z.example/nic": "1"})
    spec = {"selectors": [], "extendedResourceName": "z.example/backed"}
    backing = other("DeviceClass", "resource.k8s.io/v1", "backing", spec=spec)
    snapshot = taken(*odd, nics, offered, backing, group("g"), queue("q"))
    assert len(snapshot.axis) == len(LEADING) + 2 + MOST_UNOFFERED + 1
    requests = {pod.name: snapshot.requests[snapshot.pod_shape[row]] for row, pod in enumerate(snapshot.pods)}
    index = snapshot.axis.index
    assert [requests["nics"][index[name]] for name in ("z.example/nic", "z.example/backed")] == [1000, 2000]
    assert [int(requests[name][index[UNOFFERED]]) for name in ("odd-0", "odd-2", "nics")] == [1, 1, 0]
