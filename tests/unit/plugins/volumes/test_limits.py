"""How many volumes nodes can hold: examples, and the same answers as a plain reading of kube-scheduler's rule."""

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.actions.allocate import Allocate
from kai.actions.preempt import Preempt
from kai.facts.model.pod import Status
from kai.framework.decisions import Nominate
from kai.framework.hooks import Dependence
from kai.intake import Intake
from kai.plugins.volumes import Volumes
from kai.plugins.volumes.limits import FULL
from kai.plugins.volumes.objects import CSI_NODES, StorageClass, read_catalog
from kai.plugins.volumes.reach import CONFLICT
from tests.unit.intake.making import NOW, objects
from tests.unit.plugins.stage import Stage, play, pod, ranked
from tests.unit.plugins.volumes.objects import (
    LATER,
    ONLY_EAST,
    catalog,
    claim,
    csi_node,
    mounting,
    snapshot_with,
    volume,
)

DRIVER = "csi.example.com"
OTHER = StorageClass(name="other", provisioner="nfs.example.com", wait=True)


def disk(name, driver=DRIVER, handle="", **parts):
    """Return a bound claim and its volume, which the driver calls as the claim is called."""
    return [
        claim(name, phase="Bound", volume=f"v-{name}"),
        volume(f"v-{name}", kind="later", driver=driver, handle=handle or name, phase="Bound", **parts),
    ]


def stage_with(made, *manifests):
    return Stage.of(Volumes(), snapshot_with(catalog(LATER, OTHER, *made), *manifests))


def answers_for(stage, name):
    """Return what the plugin answers about the shape of a pod, None where it does not ask about it."""
    shape = int(stage.session.facts.pods.shape[stage.row(name)])
    found = [each for each in stage.session.policy.plugins if each.node_filter is not None and each.is_asked(shape)]
    return found[0] if found else None


def accepting(stage, name):
    asked = answers_for(stage, name)
    if asked is None:
        return [each.name for each in stage.session.snapshot.nodes]
    return _names(stage, asked.node_filter.filter(stage.row(name), stage.session.all_nodes))


def waiting(stage, name):
    asked = answers_for(stage, name)
    if asked is None or asked.node_wait is None:
        return []
    return _names(stage, asked.node_wait.must_wait(stage.row(name), stage.session.all_nodes))


def _names(stage, mask):
    return [each.name for each, chosen in zip(stage.session.snapshot.nodes, mask, strict=True) if chosen]


def promised(played):
    snapshot = played.session.snapshot
    nominated = [each for each in played.session._sink.decisions if isinstance(each, Nominate)]
    return {snapshot.pods[each.pod].name: snapshot.nodes[each.node].name for each in nominated}


# ----------------------------------------------------------------------------------------------------- what counts


def test_a_node_at_its_volume_limit_refuses_new_volumes():
    made = [*disk("one"), *disk("two")]
    stage = stage_with(made, csi_node("n1", csi=1), mounting("a-0", "one", on="n1"), mounting("b-0", "two"))
    assert accepting(stage, "b-0") == ["n2", "n3"]
    assert answers_for(stage, "b-0").node_filter.explain(stage.row("b-0"), np.array([0], np.int64)) == [FULL]


def test_a_volume_already_on_the_node_needs_no_room():
    stage = stage_with(disk("one"), csi_node("n1", csi=1), mounting("a-0", "one", on="n1"), mounting("b-0", "one"))
    assert accepting(stage, "b-0") == ["n1", "n2", "n3"]


def test_a_volume_behind_two_claims_attaches_once():
    made = [*disk("one", handle="same"), *disk("two", handle="same")]
    stage = stage_with(made, csi_node("n1", csi=1), mounting("a-0", "one", on="n1"), mounting("b-0", "two"))
    assert accepting(stage, "b-0") == ["n1", "n2", "n3"]


def test_a_volume_that_pods_share_counts_once_per_node():
    made = [*disk("one"), *disk("two")]
    running = [mounting(f"a-{at}", "one", on="n1") for at in range(3)]
    stage = stage_with(made, csi_node("n1", csi=2), *running, mounting("b-0", "two"))
    assert accepting(stage, "b-0") == ["n1", "n2", "n3"]


def test_volumes_of_one_pod_need_room_together():
    made = [*disk("one"), *disk("two")]
    stage = stage_with(made, csi_node("n1", csi=1), csi_node("n2", csi=2), mounting("a-0", "one", "two"))
    assert accepting(stage, "a-0") == ["n2", "n3"]


def test_an_overfull_node_takes_pods_without_new_volumes():
    made = [*disk("one"), *disk("two"), *disk("x", driver="nfs.example.com")]
    running = mounting("a-0", "one", "two", on="n1")
    stage = stage_with(made, csi_node("n1", csi=1, nfs=1), running, mounting("b-0", "one"), mounting("c-0", "x"))
    assert accepting(stage, "b-0") == accepting(stage, "c-0") == ["n1", "n2", "n3"]


def test_each_driver_has_a_limit_of_its_own():
    made = [*disk("one"), *disk("x", driver="nfs.example.com"), *disk("y", driver="nfs.example.com")]
    nodes = (csi_node("n1", csi=1, nfs=1), csi_node("n2", csi=0, nfs=2), csi_node("n3", csi=0, nfs=None))
    stage = stage_with(made, *nodes, mounting("a-0", "one", on="n1"), mounting("b-0", "x", "y"))
    assert accepting(stage, "b-0") == ["n2", "n3"]


def test_an_unbound_claim_counts_for_its_classs_provisioner():
    made = [claim("one"), claim("two"), claim("x", "other")]
    pods = (mounting("a-0", "one", on="n1"), mounting("b-0", "two"), mounting("c-0", "x"))
    stage = stage_with(made, csi_node("n1", csi=1), *pods)
    assert accepting(stage, "b-0") == ["n2", "n3"]
    assert accepting(stage, "c-0") == ["n1", "n2", "n3"]


def test_a_claim_with_missing_volume_counts_for_its_provisioner():
    made = [claim("one", phase="Bound", volume="gone"), *disk("two")]
    stage = stage_with(made, csi_node("n1", csi=1), mounting("a-0", "one", on="n1"), mounting("b-0", "two"))
    assert accepting(stage, "b-0") == ["n2", "n3"]


@pytest.mark.parametrize(
    "one",
    [
        [claim("one", phase="Bound", volume="v"), volume("v", kind="later", phase="Bound")],
        [claim("one", phase="Bound", volume="v"), volume("v", kind="later", phase="Bound", driver=DRIVER)],
        [claim("one", kind="", phase="Bound", volume="gone")],
        [claim("one", kind="absent")],
        [],
    ],
    ids=["no driver", "no handle", "no class", "absent class", "absent claim"],
)
def test_what_is_no_volume_of_a_driver_counts_nothing(one):
    made = [*one, *disk("two")]
    stage = stage_with(made, csi_node("n1", csi=1), mounting("a-0", "one", on="n1"), mounting("b-0", "two"))
    assert accepting(stage, "b-0") == ["n1", "n2", "n3"]


def test_a_claim_that_is_made_for_a_pod_counts():
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    made = [claim("a-0-scratch", owner_pod="default-a-0"), claim("b-0-scratch", owner_pod="default-b-0")]
    pods = (pod("a-0", on="n1", volumes=volumes), pod("b-0", volumes=volumes))
    stage = stage_with(made, csi_node("n1", csi=1), *pods)
    assert accepting(stage, "b-0") == ["n2", "n3"]


def test_pods_of_other_schedulers_have_volumes_too():
    made = [*disk("one"), *disk("two")]
    foreign = mounting("x-0", "one", on="n1", schedulerName="default-scheduler", metadata={"annotations": {}})
    foreign["metadata"]["annotations"]["pod-group-name"] = "x"
    stage = stage_with(made, csi_node("n1", csi=1), foreign, mounting("b-0", "two"))
    assert accepting(stage, "b-0") == ["n2", "n3"]


def test_a_finished_pod_has_no_volumes():
    made = [*disk("one"), *disk("two")]
    done = mounting("a-0", "one", on="n1", status={"phase": "Succeeded"})
    stage = stage_with(made, csi_node("n1", csi=1), done, mounting("b-0", "two"))
    assert accepting(stage, "b-0") == ["n1", "n2", "n3"]


def test_an_unreachable_volume_is_reported_before_a_full_node():
    made = [*disk("one"), *disk("two", node_affinity=ONLY_EAST)]
    full = [csi_node(name, csi=0) for name in ("n1", "n3")]
    stage = stage_with(made, *full, mounting("b-0", "two"))
    refused = np.array([0, 2], np.int64)
    assert answers_for(stage, "b-0").node_filter.explain(stage.row("b-0"), refused) == [FULL, CONFLICT]


@pytest.mark.parametrize(
    ("count", "nodes"), [(2**63 - 1, ["n1", "n2", "n3"]), (-(2**63), ["n2", "n3"]), (0, ["n2", "n3"])]
)
def test_an_odd_volume_limit_is_used_as_it_is(count, nodes):
    assert accepting(stage_with(disk("one"), csi_node("n1", csi=count), mounting("a-0", "one")), "a-0") == nodes


# ------------------------------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("nodes", [[], [csi_node("n1", csi=None)], [csi_node("elsewhere", csi=1)], [csi_node("n1")]])
def test_without_volume_limits_the_answers_depend_on_shape(nodes):
    stage = stage_with(disk("one"), *nodes, mounting("a-0", "one"), mounting("b-0", "one"))
    assert stage.answers.node_filter.depends is Dependence.SHAPE
    assert stage.answers.node_wait is None
    assert not stage.session.policy.dynamic.any()


def test_pods_without_volumes_that_count_are_asked_about_once():
    made = [*disk("one"), claim("x", "other")]
    stage = stage_with(made, csi_node("n1", csi=1), mounting("a-0", "one"), mounting("b-0", "x"), pod("c-0"))
    shapes = stage.session.facts.pods.shape
    dynamic = {name: bool(stage.session.policy.dynamic[shapes[stage.row(name)]]) for name in ("a-0", "b-0", "c-0")}
    assert dynamic == {"a-0": True, "b-0": False, "c-0": False}
    assert answers_for(stage, "b-0").node_filter.depends is Dependence.SHAPE
    assert answers_for(stage, "c-0") is None


def test_the_volume_catalog_survives_a_change_of_csi_nodes():
    intake = Intake()
    parts = (*catalog(LATER, *disk("one")), mounting("a-0", "one"))
    first, second = (
        read_catalog(Stage.of(Volumes(), intake.take(each, NOW)).session.view)
        for each in _two(objects(*parts, csi_node("n1", csi=1)), objects(csi_node("n1", csi=2)))
    )
    assert first is second


def _two(before, after):
    return before, attrs.evolve(before, csi_nodes=after.csi_nodes)


def test_what_drivers_say_of_nodes_is_read():
    stage = stage_with([], csi_node("n1", csi=3, nfs=None), csi_node("n2"))
    assert stage.session.view.values(CSI_NODES) == {"n1": {DRIVER: 3}, "n2": {}}


def test_pods_that_differ_in_private_volumes_share_a_signature():
    made = [part for name in ("one", "two", "shared", "x") for part in disk(name)]
    pods = [
        mounting("a-0", "one"),
        mounting("b-0", "two"),
        mounting("c-0", "one", "two"),
        mounting("d-0", "shared"),
        mounting("e-0", "shared", on="n1"),
    ]
    stage = stage_with(made, csi_node("n1", csi=1), *pods[3:], mounting("f-0", "x"), mounting("g-0", "two"))
    signature = {
        name: stage.session.policy.signature(int(stage.session.facts.pods.shape[stage.row(name)]))
        for name in ("d-0", "f-0", "g-0")
    }
    assert signature["f-0"] == signature["g-0"] != signature["d-0"]


# ----------------------------------------------------------------------------------------------- within a session


def test_pods_that_a_cycle_places_take_of_the_room():
    made = [part for at in range(5) for part in disk(f"c{at}")]
    nodes = (csi_node("n1", csi=2), csi_node("n2", csi=1), csi_node("n3", csi=1))
    pods = [mounting(f"a-{at}", f"c{at}") for at in range(5)]
    played = play(Volumes(), snapshot_with(catalog(LATER, *made), *nodes, *pods))
    assert sorted(played.bound.values()) == ["n1", "n1", "n2", "n3"]
    assert "a-4" not in played.bound


def test_a_gang_that_fits_nowhere_leaves_volume_room_unchanged():
    made = [part for at in range(4) for part in disk(f"c{at}")]
    nodes = [csi_node(name, csi=1) for name in ("n1", "n2", "n3")]
    snapshot = snapshot_with(
        catalog(LATER, *made), *nodes, *(mounting(f"a-{at}", f"c{at}") for at in range(4)), minimum=4
    )
    assert play(Volumes(), snapshot).bound == {}
    stage = Stage.of(Volumes(), snapshot)
    with stage.session.statement("test") as statement:
        first = np.array([stage.row("a-0"), stage.row("a-1")], np.int64)
        assert statement.place_pods(first, stage.session.all_nodes, stage.session.no_extra, promise=False) == 2
        assert accepting(stage, "a-2") == ["n3"]
    assert accepting(stage, "a-2") == ["n1", "n2", "n3"]


def test_room_that_a_leaving_pod_still_has_is_promised():
    made = [*disk("one"), *disk("two")]
    nodes = [csi_node("n1", csi=1), csi_node("n2", csi=0), csi_node("n3", csi=0)]
    pods = (mounting("x-0", "one", on="n1", leaving=True), mounting("a-0", "two"))
    stage = stage_with(made, *nodes, *pods)
    assert (accepting(stage, "a-0"), waiting(stage, "a-0")) == (["n1"], ["n1", "n2", "n3"])
    played = play(Volumes(), stage.session.snapshot)
    assert (played.bound, promised(played)) == ({}, {"a-0": "n1"})


def test_a_pod_needing_a_leaving_pods_volume_waits_nowhere():
    pods = (mounting("x-0", "one", on="n1", leaving=True), mounting("a-0", "one"))
    stage = stage_with(disk("one"), csi_node("n1", csi=1), *pods)
    assert (accepting(stage, "a-0"), waiting(stage, "a-0")) == (["n1", "n2", "n3"], [])


def test_a_promised_pod_leaves_the_free_room_to_others():
    made = [part for name in ("one", "two", "three") for part in disk(name)]
    pods = (mounting("x-0", "one", on="n1", leaving=True), mounting("a-0", "two"), mounting("b-0", "three"))
    stage = stage_with(made, csi_node("n1", csi=2), *pods)
    row = np.array([stage.row("a-0")], np.int64)
    with stage.session.statement("test") as statement:
        assert statement.place_pods(row, np.array([0], np.int64), stage.session.no_extra, promise=True) == 1
        assert (accepting(stage, "b-0"), waiting(stage, "b-0")) == (["n1", "n2", "n3"], [])


def test_a_victim_promised_its_node_again_keeps_its_volume():
    made = [*disk("one"), *disk("two")]
    pods = (mounting("x-0", "one", on="n1"), mounting("y-0", "one"), mounting("a-0", "two"))
    stage = stage_with(made, csi_node("n1", csi=1), *pods)
    session, row = stage.session, stage.row("x-0")
    with session.statement("test") as statement:
        statement.evict(np.array([row], np.int64))
        assert (accepting(stage, "a-0"), waiting(stage, "a-0")) == (["n1", "n2", "n3"], ["n1"])
        session.ledger.reserve(1)
        session.ledger.pipeline(row, 0, 0, keep=False)
        assert (accepting(stage, "a-0"), waiting(stage, "a-0")) == (["n2", "n3"], ["n1"])


def test_a_group_evicts_a_lower_one_for_volume_room():
    made = [*disk("one"), *disk("two")]
    nodes = [csi_node("n1", csi=1), csi_node("n2", csi=0), csi_node("n3", csi=0)]
    pods = (mounting("x-0", "one", on="n1"), mounting("a-0", "two"))
    snapshot = ranked(snapshot_with(catalog(LATER, *made), *nodes, *pods), a=90, x=10)
    played = play(Volumes(), snapshot, (Allocate(), Preempt()))
    assert (played.bound, played.evicted, promised(played)) == ({}, ["x-0"], {"a-0": "n1"})


# --------------------------------------------------------------------------------------- the same as a plain reading

CLAIMS = (*"abcdef", "later-1", "later-2")
NAMES = ("n1", "n2", "n3")
KEYS = {
    **{name: (DRIVER, name) for name in "abc"},
    "d": (DRIVER, "c"),
    **{name: ("nfs.example.com", name) for name in "ef"},
    **{name: (DRIVER, "default", name) for name in ("later-1", "later-2")},
}
MADE = [
    *(part for name in CLAIMS[:6] for part in disk(name, KEYS[name][0], KEYS[name][1])),
    *(claim(name) for name in CLAIMS[6:]),
]

some_claims = st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3, unique=True)
counts = st.one_of(st.none(), st.integers(0, 3))
pods_there = st.lists(st.tuples(some_claims, st.sampled_from(NAMES), st.booleans()), max_size=5)
turns = st.lists(st.tuples(st.sampled_from(("place", "promise", "evict")), st.integers(0, 7), st.sampled_from(NAMES)))


class Plain:
    """Where pods are, in lists, and kube-scheduler's rule in loops. A place is a node and what a pod is there."""

    def __init__(self, limits, claims, places):
        self.limits, self.claims, self.places = limits, claims, places

    def fits(self, name, node, ignored):
        attached = {
            KEYS[each]
            for other, places in self.places.items()
            for place, state in places
            if place == node and state != ignored
            for each in self.claims[other]
        }
        more = {KEYS[each] for each in self.claims[name]} - attached
        for driver, _, *_ in more:
            limit = self.limits[node].get(driver)
            held = sum(1 for each in attached if each[0] == driver)
            if limit is not None and held + sum(1 for each in more if each[0] == driver) > limit:
                return False
        return True

    def accepting(self, name):
        return [node for node in NAMES if self.fits(name, node, "leaving")]

    def waiting(self, name):
        return [node for node in NAMES if not self.fits(name, node, "promised")]


@given(
    limits=st.fixed_dictionaries({name: st.tuples(counts, counts) for name in NAMES}),
    there=pods_there,
    pending=st.lists(some_claims, min_size=1, max_size=3),
    played=turns,
)
def test_volume_answers_equal_plain_counting_whatever_is_undone(limits, there, pending, played):
    running = [mounting(f"r-{at}", *named, on=node, leaving=gone) for at, (named, node, gone) in enumerate(there)]
    waits = [mounting(f"p-{at}", *named) for at, named in enumerate(pending)]
    nodes = [csi_node(name, csi=csi, nfs=nfs) for name, (csi, nfs) in limits.items()]
    stage = stage_with(MADE, *nodes, *running, *waits)
    session = stage.session
    plain = Plain(
        {name: {DRIVER: csi, "nfs.example.com": nfs} for name, (csi, nfs) in limits.items()},
        {f"r-{at}": each[0] for at, each in enumerate(there)} | {f"p-{at}": each for at, each in enumerate(pending)},
        {f"r-{at}": [(node, "leaving" if gone else "there")] for at, (_, node, gone) in enumerate(there)}
        | {f"p-{at}": [] for at in range(len(pending))},
    )

    def same():
        for at in range(len(pending)):
            assert accepting(stage, f"p-{at}") == plain.accepting(f"p-{at}")
            assert waiting(stage, f"p-{at}") == plain.waiting(f"p-{at}")

    before = {name: list(places) for name, places in plain.places.items()}
    same()
    with session.statement("test") as statement:
        for turn, at, node in played:
            _play(stage, statement, plain, turn, at, node)
            same()
    plain.places = before
    same()


def _play(stage, statement, plain, turn, at, node):
    """Evict one of the pods that run, or place one that waits or was evicted, and note where it is then."""
    session, names = stage.session, sorted(plain.places)
    name = names[at % len(names)]
    row, places = stage.row(name), plain.places[name]
    status = session.columns.status[row]
    if turn == "evict":
        if status == Status.RUNNING:
            statement.evict(np.array([row], np.int64))
            plain.places[name] = [(places[0][0], "leaving")]
        return
    was_evicted = bool(session.columns.evicted_status[row])
    if not (status == Status.PENDING or (status == Status.RELEASING and was_evicted)):
        return
    has_room = node in plain.accepting(name)
    must_wait = node in plain.waiting(name)
    target = np.array([NAMES.index(node)], np.int64)
    promise = turn == "promise" or was_evicted  # as searches do: a victim moves once it is gone
    placed = statement.place_pods(np.array([row], np.int64), target, session.no_extra, promise=promise)
    assert bool(placed) == has_room
    if placed:
        now = Status(session.columns.status[row])
        assert now is not Status.ALLOCATED or not must_wait
        plain.places[name] = {
            Status.RUNNING: [(node, "there")],
            Status.ALLOCATED: [*places, (node, "there")],
            Status.PIPELINED: [*places, (node, "promised")],
        }[now]
