import attrs
import numpy as np
import pytest

from kai.framework.hooks import Dependence, Hooks
from kai.framework.messages import fit_message
from kai.model.constraints import NodeTerm, Requirement, Selector
from kai.model.volume import StorageCapacity, StorageClass, Volume, VolumeCatalog, VolumeClaim
from kai.plugins.volumes import CONFLICT, LOST_VOLUME, NO_SPACE, NO_VOLUME, UNBOUND, Volumes
from tests.unit.plugins.stage import Stage, evict, node, play, pod, snapshot_of

NODES = (node("n1", {"zone": "east"}), node("n2", {"zone": "east"}), node("n3", {"zone": "west"}))
EAST = Requirement("zone", "In", ("east",))
ONLY_EAST = (NodeTerm((EAST,)),)
AT_ONCE = StorageClass(name="now", provisioner="csi.example.com", wait=False)
LOCAL = StorageClass(name="local", provisioner="kubernetes.io/no-provisioner", wait=True)
LATER = StorageClass(name="later", provisioner="csi.example.com", wait=True)
GI = 2**30


def on(name):
    return (NodeTerm((Requirement("kubernetes.io/hostname", "In", (name,)),)),)


def claim(name="data", kind="later", **parts):
    return VolumeClaim(
        **{"namespace": "default", "name": name, "storage_class": kind, "size": GI, "phase": "Pending"} | parts
    )


def volume(name, kind="local", **parts):
    return Volume(**{"name": name, "storage_class": kind, "size": GI} | parts)


def bound(name="data", **parts):
    return claim(name, phase="Bound", volume="v", **parts)


def mounting(name, *claims, **parts):
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod(name, volumes=volumes, **parts)


def catalog(*objects, **parts):
    return VolumeCatalog(
        claims={(each.namespace, each.name): each for each in objects if isinstance(each, VolumeClaim)},
        volumes={each.name: each for each in objects if isinstance(each, Volume)},
        classes={each.name: each for each in objects if isinstance(each, StorageClass)},
        capacities=tuple(each for each in objects if isinstance(each, StorageCapacity)),
        **parts,
    )


def snapshot_with(volumes, *pods, minimum=1):
    snapshot = snapshot_of(*NODES, *pods, minimum=minimum)
    return attrs.evolve(snapshot, catalog=attrs.evolve(snapshot.catalog, volumes=volumes))


def stage_of(*objects, claims=("data",), **parts):
    return Stage.of(Volumes(), snapshot_with(catalog(*objects, **parts), mounting("a-0", *claims), pod("b-0")))


# ---------------------------------------------------------------------------------------------------- unusable claims


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ((), 'persistentvolumeclaim "data" not found'),
        ((LATER, claim(namespace="other")), 'persistentvolumeclaim "data" not found'),
        ((LATER, claim(deleting=True)), 'persistentvolumeclaim "data" is being deleted'),
        (
            (LATER, claim(phase="Lost", volume="v")),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
        ),
        ((claim(),), 'storageclass.storage.k8s.io "later" not found'),
        ((AT_ONCE, claim(kind="now")), UNBOUND),
        ((claim(kind=""),), UNBOUND),
        ((LATER, claim(volume="v")), UNBOUND),
    ],
)
def test_a_claim_that_cannot_be_used_refuses_its_pod_before_any_node(objects, text):
    stage = stage_of(*objects)
    assert stage.refusal("a-0") == text
    assert not stage.is_concerned("b-0")


def test_usable_claims_cost_no_call_for_each_pod():
    stage = stage_of(LATER, claim())
    assert stage.hooks.admit_pod is None
    assert stage.hooks.filter_depends is Dependence.SHAPE
    assert not stage.session.policy.dynamic.any()


def test_nothing_is_asked_where_no_pod_has_claims():
    assert Stage.of(Volumes(), snapshot_of(*NODES, pod("a-0"))).hooks == Hooks()


# ------------------------------------------------------------------------------------------------- volumes and classes


def test_a_bound_claim_ties_its_pod_to_the_nodes_that_reach_the_volume():
    stage = stage_of(bound(), volume("v", node_affinity=ONLY_EAST))
    assert stage.accepting("a-0") == ["n1", "n2"]
    assert stage.reasons("a-0") == [CONFLICT]


def test_a_volume_without_affinity_is_reached_from_everywhere():
    assert stage_of(bound(), volume("v")).accepting("a-0") == ["n1", "n2", "n3"]


def test_a_claim_bound_to_a_volume_that_is_gone_fits_nowhere():
    stage = stage_of(bound())
    assert stage.reasons("a-0") == [LOST_VOLUME] * 3


def test_a_waiting_claim_needs_a_free_volume_in_reach():
    stage = stage_of(LOCAL, claim(kind="local"), volume("v", node_affinity=on("n2")))
    assert stage.accepting("a-0") == ["n2"]
    assert stage.reasons("a-0") == [NO_VOLUME] * 2


@pytest.mark.parametrize(
    "parts",
    [
        {"size": GI - 1},
        {"storage_class": "later"},
        {"phase": "Released"},
        {"claim": ("default", "other")},
        {"deleting": True},
        {"block": True},
        {"access_modes": ("ReadOnlyMany",)},
        {"labels": {"disk": "hdd"}},
    ],
)
def test_a_volume_that_does_not_suit_is_no_help(parts):
    wanted = claim(
        kind="local",
        access_modes=("ReadWriteOnce",),
        selector=Selector((Requirement("disk", "In", ("ssd",)),)),
    )
    suitable = {"access_modes": ("ReadWriteOnce", "ReadOnlyMany"), "labels": {"disk": "ssd"}}
    assert stage_of(LOCAL, wanted, volume("v", **suitable)).accepting("a-0") == ["n1", "n2", "n3"]
    assert stage_of(LOCAL, wanted, volume("v", **suitable | parts)).accepting("a-0") == []


def test_a_volume_set_aside_for_the_claim_decides_alone():
    mine = volume("v", claim=("default", "data"), node_affinity=on("n3"))
    assert stage_of(LOCAL, claim(kind="local"), mine, volume("w")).accepting("a-0") == ["n3"]


def test_two_claims_need_two_volumes():
    two = (LOCAL, claim("one", "local"), claim("two", "local", size=2 * GI))
    small, large = volume("small", node_affinity=ONLY_EAST), volume("large", size=2 * GI, node_affinity=on("n1"))
    assert stage_of(*two, small, large, claims=("one", "two")).accepting("a-0") == ["n1"]
    assert stage_of(*two, large, claims=("one", "two")).accepting("a-0") == []


def test_a_class_that_provisions_needs_no_volume():
    assert stage_of(LATER, claim()).accepting("a-0") == ["n1", "n2", "n3"]


def test_a_class_provisions_only_in_its_topologies():
    stage = stage_of(attrs.evolve(LATER, allowed_topologies=ONLY_EAST), claim())
    assert stage.accepting("a-0") == ["n1", "n2"]
    assert stage.reasons("a-0") == [NO_VOLUME]


def test_a_volume_helps_where_the_class_does_not_provision():
    kind = attrs.evolve(LATER, allowed_topologies=ONLY_EAST)
    assert stage_of(kind, claim(), volume("v", "later")).accepting("a-0") == ["n1", "n2", "n3"]


def test_a_claim_that_was_told_its_node_goes_nowhere_else():
    assert stage_of(LATER, claim(selected_node="n2"), volume("v", "later")).accepting("a-0") == ["n2"]
    assert stage_of(LATER, claim(selected_node="gone")).accepting("a-0") == []


def test_every_claim_of_a_pod_must_be_satisfied():
    objects = (LATER, bound("one"), volume("v", node_affinity=ONLY_EAST), claim("two", selected_node="n2"))
    assert stage_of(*objects, claims=("one", "two")).accepting("a-0") == ["n2"]


def test_a_driver_that_reports_too_little_room_refuses_the_node():
    reports = (
        StorageCapacity(name="a", storage_class="later", nodes=Selector((EAST,)), capacity=GI),
        StorageCapacity(name="b", storage_class="later", nodes=None, capacity=9 * GI),
        StorageCapacity(name="c", storage_class="other", nodes=Selector(), capacity=9 * GI),
    )
    driver = frozenset(["csi.example.com"])
    alone = {"drivers": driver, "share_capacity": False}
    stage = stage_of(LATER, claim(), *reports, **alone)
    assert stage.accepting("a-0") == ["n1", "n2"]
    assert stage.reasons("a-0") == [NO_SPACE]
    assert stage_of(LATER, claim(size=GI + 1), *reports, **alone).accepting("a-0") == []
    assert stage_of(LATER, claim(size=GI + 1), *reports, share_capacity=False).accepting("a-0") == ["n1", "n2", "n3"]
    most = attrs.evolve(reports[0], largest=2 * GI)
    assert stage_of(LATER, claim(size=2 * GI), most, **alone).accepting("a-0") == ["n1", "n2"]


def test_a_cycle_keeps_a_pod_with_its_volume_and_says_what_is_missing():
    volumes = catalog(bound(), volume("v", node_affinity=on("n3")))
    played = play(Volumes(), snapshot_with(volumes, mounting("a-0", "data"), mounting("b-0", "lost")))
    assert played.bound == {"a-0": "n3"}
    assert fit_message(played.session.records[1].reasons[0].facts) == (
        "Scheduling conditions were not met for pod default/b-0:\n"
        'VolumeBinding: persistentvolumeclaim "lost" not found.\n'
    )


# ----------------------------------------------------------------------------------------------------- shared capacity

SHARED = {"drivers": frozenset(["csi.example.com"])}


def report(name, gibibytes, nodes, kind="later"):
    return StorageCapacity(name=name, storage_class=kind, nodes=nodes, capacity=gibibytes * GI)


def here(name):
    return Selector((Requirement("kubernetes.io/hostname", "In", (name,)),))


def test_claims_of_one_pod_must_fit_together():
    objects = (LATER, claim("one"), claim("two"), report("a", 1, here("n1")), report("b", 2, here("n2")))
    stage = stage_of(*objects, claims=("one", "two"), **SHARED)
    assert stage.accepting("a-0") == ["n2"]
    assert stage.reasons("a-0") == [
        f"{NO_SPACE} for storageclass later",
        "no allocatable storage from storageclass later found",
    ]


def test_a_node_under_two_reports_for_a_class_has_none():
    objects = (LATER, claim(), report("a", 5, here("n1")), report("b", 5, None))
    assert stage_of(*objects, **SHARED).accepting("a-0") == ["n2", "n3"]


def test_pods_that_a_cycle_places_take_from_the_capacity():
    objects = [LATER, report("a", 2, Selector((EAST,))), *(claim(f"c{at}") for at in range(4))]
    pods = [mounting(f"a-{at}", f"c{at}") for at in range(4)]
    played = play(Volumes(), snapshot_with(catalog(*objects, **SHARED), *pods))
    assert played.bound == {"a-0": "n1", "a-1": "n1"}


def test_a_gang_that_fits_nowhere_gives_its_storage_back():
    objects = [LATER, report("a", 2, Selector((EAST,))), *(claim(f"c{at}") for at in range(4))]
    pods = [mounting(f"a-{at}", f"c{at}") for at in range(3)]
    snapshot = snapshot_with(catalog(*objects, **SHARED), *pods, minimum=3)
    assert play(Volumes(), snapshot).bound == {}
    stage = Stage.of(Volumes(), snapshot)
    with stage.session.statement("test") as statement:
        first = np.array([stage.row("a-0"), stage.row("a-1")], np.int64)
        assert statement.place_pods(first, stage.session.all_nodes, stage.session.no_extra, promise=False) == 2
        assert stage.accepting("a-2") == []
    assert stage.accepting("a-2") == ["n1", "n2"]


def test_a_claim_that_several_pods_use_is_provisioned_once():
    objects = [LATER, report("a", 1, Selector((EAST,))), claim("shared")]
    pods = [mounting(f"a-{at}", "shared", on="n1") for at in range(2)]
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), *pods, mounting("b-0")))
    assert stage.accepting("a-0") == []
    roomy = catalog(LATER, report("a", 2, Selector((EAST,))), claim("shared"), **SHARED)
    assert Stage.of(Volumes(), snapshot_with(roomy, *pods)).accepting("a-0") == ["n1", "n2"]


def test_bound_claims_and_other_classes_take_nothing():
    objects = (LATER, LOCAL, bound("one"), volume("v"), claim("two", "local"), volume("w"), report("a", 0, None))
    assert stage_of(*objects, claims=("one", "two"), **SHARED).accepting("a-0") == ["n1", "n2", "n3"]


def test_a_pod_that_moves_needs_its_own_claims_anew():
    mine = bound(owner_pod="default-a-0")
    objects = (LATER, mine, volume("v"), report("a", 1, here("n1")), report("b", 0, here("n2")))
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data", on="n1")))
    assert stage.accepting("a-0") == ["n1", "n2", "n3"]
    evict(stage.session, "a-0")
    assert stage.accepting("a-0") == ["n1"]


def test_a_claim_whose_owner_goes_is_not_counted_on():
    objects = (LATER, claim(owner_pod="default-b-0"), report("a", 9, None))
    leaving = pod("b-0", on="n1", leaving=True)
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data"), leaving))
    assert stage.reasons("a-0") == ["task has deleted storage claims: data"] * 3
