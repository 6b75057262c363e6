from unittest import mock

import attrs
import pytest

from kai.deciding.explain.messages import fit_message
from kai.facts.model.constraints import Requirement, Selector
from kai.framework.hooks import Dependence
from kai.framework.objects import LabelTable
from kai.plugins.volumes import Volumes
from kai.plugins.volumes.objects import StorageCapacity
from kai.plugins.volumes.plugin import IN_USE
from kai.plugins.volumes.reach import CONFLICT, LOST_VOLUME, NO_SPACE, NO_VOLUME, UNBOUND
from tests.unit.plugins.stage import Stage, play, pod, snapshot_of
from tests.unit.plugins.volumes.objects import (
    AT_ONCE,
    EAST,
    GI,
    LATER,
    LOCAL,
    NODES,
    ONLY_EAST,
    bound,
    catalog,
    claim,
    mounting,
    on,
    snapshot_with,
    stage_of,
    volume,
)

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
def test_an_unusable_claim_refuses_its_pod_before_any_node(objects, text):
    stage = stage_of(*objects)
    assert stage.refusal("a-0") == text
    assert not stage.is_concerned("b-0")


def test_usable_claims_cost_no_call_for_each_pod():
    stage = stage_of(LATER, claim())
    assert stage.answers.pod_filter is None
    assert stage.answers.node_filter.depends is Dependence.SHAPE
    assert not stage.session.policy.dynamic.any()


def test_nothing_is_asked_where_no_pod_has_claims():
    assert Stage.of(Volumes(), snapshot_of(*NODES, pod("a-0"))).is_silent


# ------------------------------------------------------------------------------------------------- volumes and classes


def test_a_bound_claim_ties_its_pod_to_reachable_nodes():
    stage = stage_of(bound(), volume("v", node_affinity=ONLY_EAST))
    assert stage.accepting("a-0") == ["n1", "n2"]
    assert stage.reasons("a-0") == [CONFLICT]


def test_a_volume_without_affinity_is_reached_from_everywhere():
    assert stage_of(bound(), volume("v")).accepting("a-0") == ["n1", "n2", "n3"]


def test_a_claim_with_a_missing_volume_fits_nowhere():
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


def test_a_volume_reserved_for_a_claim_matches_its_uid():
    mine = volume("v", claim=("default", "data"), claim_uid="now", phase="Bound", node_affinity=on("n3"))
    older = attrs.evolve(mine, claim_uid="before", phase="Released")
    wanted = claim(kind="local", uid="now")
    assert stage_of(LOCAL, wanted, mine, volume("w")).accepting("a-0") == ["n3"]
    assert stage_of(LOCAL, wanted, older, volume("w", node_affinity=on("n2"))).accepting("a-0") == ["n2"]
    assert stage_of(LOCAL, wanted, older).reasons("a-0") == [NO_VOLUME] * 3
    assert stage_of(LOCAL, wanted, older, attrs.evolve(mine, name="w")).accepting("a-0") == ["n3"]


def test_a_reserved_volume_that_is_too_small_is_ignored():
    mine = volume("v", claim=("default", "data"), node_affinity=on("n3"))
    larger = claim(kind="local", size=2 * GI)
    assert stage_of(LOCAL, larger, mine, volume("w", size=2 * GI, node_affinity=on("n1"))).accepting("a-0") == ["n1"]


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


def test_a_claim_with_a_selected_node_goes_nowhere_else():
    assert stage_of(LATER, claim(selected_node="n2"), volume("v", "later")).accepting("a-0") == ["n2"]
    assert stage_of(LATER, claim(selected_node="gone")).accepting("a-0") == []


def test_every_claim_of_a_pod_must_be_satisfied():
    objects = (LATER, bound("one"), volume("v", node_affinity=ONLY_EAST), claim("two", selected_node="n2"))
    assert stage_of(*objects, claims=("one", "two")).accepting("a-0") == ["n2"]


def test_a_driver_reporting_too_little_capacity_refuses_the_node():
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


def test_reports_and_volumes_are_matched_once_for_all_sizes():
    """There may be a report and a volume for each node, and a size for each claim; and cycles follow each other."""
    reports = [
        StorageCapacity(name=f"r{at}", storage_class="later", nodes=Selector(on(f"n{at}")[0].labels), capacity=at * GI)
        for at in (1, 2, 3)
    ]
    volumes = [volume(f"v{at}", "local", size=at * GI, node_affinity=ONLY_EAST) for at in (1, 2, 3)]
    claims = [claim(f"c{at}", size=at * GI) for at in (1, 2, 3)]
    claims += [claim(f"l{at}", kind="local", size=at * GI) for at in (1, 2, 3)]
    snapshot = snapshot_with(
        catalog(LATER, LOCAL, *claims, *reports, *volumes, drivers=["csi.example.com"]),
        *(mounting(f"{each.name}-0", each.name) for each in claims),
    )
    for calls in (6, 0):
        stage = Stage.of(Volumes(), snapshot)
        with mock.patch.object(LabelTable, "satisfies", autospec=True, side_effect=LabelTable.satisfies) as looked:
            assert [stage.accepting(f"c{at}-0") for at in (1, 2, 3)] == [["n1", "n2", "n3"], ["n2", "n3"], ["n3"]]
            assert [stage.accepting(f"l{at}-0") for at in (1, 2, 3)] == [["n1", "n2"]] * 3
        assert looked.call_count == calls


def test_a_cycle_binds_by_volume_and_reports_missing_claims():
    volumes = catalog(bound(), volume("v", node_affinity=on("n3")))
    played = play(Volumes(), snapshot_with(volumes, mounting("a-0", "data"), mounting("b-0", "lost")))
    assert played.bound == {"a-0": "n3"}
    assert fit_message(played.session.records[1].reasons[0].facts) == (
        "Scheduling conditions were not met for pod default/b-0:\n"
        'VolumeBinding: persistentvolumeclaim "lost" not found.\n'
    )


def test_the_signature_covers_a_claims_class_size_and_phase():
    claims = (claim("a"), claim("b"), claim("c", phase="Bound"), claim("d", size=2 * GI))
    pods = [mounting(f"{name}-0", name) for name in ("a", "b", "c", "d", "e")]
    session = Stage.of(Volumes(), snapshot_with(catalog(LATER, *claims), *pods)).session
    a, b, c, d, e = (session.policy.signature(int(shape)) for shape in session.facts.pods.shape)
    assert a == b
    assert len({a, c, d, e}) == 4


# ----------------------------------------------------------------------------------------- claims for one pod at a time

ONE_POD = bound(access_modes=("ReadWriteOncePod",))


@pytest.mark.parametrize("leaving", [False, True])
def test_a_claim_for_one_pod_awaits_only_leaving_pods(leaving):
    objects = catalog(AT_ONCE, ONE_POD, volume("v"))
    held = mounting("a-0", "data", on="n1", leaving=leaving)
    stage = Stage.of(Volumes(), snapshot_with(objects, held, mounting("b-0", "data")))
    everywhere = ["n1", "n2", "n3"] if leaving else []
    assert (stage.accepting("b-0"), stage.waiting_on("b-0")) == (everywhere, everywhere)
    assert set(stage.reasons("b-0")) == (set() if leaving else {IN_USE})


@pytest.mark.parametrize(("one", "wanted"), [(bound(), "data"), (ONE_POD, "other")])
def test_claims_for_many_pods_keep_no_pod_away(one, wanted):
    objects = catalog(AT_ONCE, one, bound("other"), volume("v"))
    held = mounting("a-0", "data", on="n1")
    assert Stage.of(Volumes(), snapshot_with(objects, held, mounting("b-0", wanted))).accepting("b-0")
