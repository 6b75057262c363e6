import numpy as np

from kai.actions.allocate import Allocate
from kai.actions.preempt import Preempt
from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.model.constraints import Requirement, Selector
from kai.facts.model.pod import Status
from kai.framework.decisions import Nominate, Recorder
from kai.framework.hooks import PluginUse
from kai.plugins.scores import Availability
from kai.plugins.volumes import Volumes
from kai.plugins.volumes.objects import StorageCapacity
from kai.plugins.volumes.reach import NO_SPACE
from tests.unit.plugins.stage import Stage, evict, play, pod, ranked
from tests.unit.plugins.volumes.objects import (
    EAST,
    GI,
    LATER,
    LOCAL,
    SHARING,
    bound,
    catalog,
    claim,
    mounting,
    snapshot_with,
    stage_of,
    volume,
)

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


ENDLESS = 2**63 - 1


def test_claims_overflowing_int64_together_fit_nowhere():
    claims = [claim(name, size=ENDLESS, owner_pod="default-a-0") for name in ("one", "two")]
    stage = stage_of(LATER, *claims, report("a", 1, here("n1")), claims=("one", "two"), **SHARED)
    assert stage.accepting("a-0") == []
    assert stage.reasons("a-0")[0] == f"{NO_SPACE} for storageclass later"


def test_adding_released_storage_to_an_endless_report_still_fits():
    endless = StorageCapacity(name="a", storage_class="later", nodes=here("n1"), capacity=ENDLESS)
    leaving = mounting("b-0", "theirs", on="n1", leaving=True)
    theirs = bound("theirs", owner_pod="default-b-0")
    objects = catalog(LATER, claim(), theirs, volume("v", "later"), endless, **SHARED)
    stage = Stage.of(Volumes(), snapshot_with(objects, mounting("a-0", "data"), leaving), parameters=SHARING)
    assert stage.accepting("a-0") == ["n1"]


def test_a_node_under_two_reports_for_one_class_fails():
    objects = (LATER, claim(), report("a", 5, here("n1")), report("b", 5, None))
    assert stage_of(*objects, **SHARED).accepting("a-0") == ["n2", "n3"]


def test_pods_that_a_cycle_places_take_from_the_capacity():
    objects = [LATER, report("a", 2, Selector((EAST,))), *(claim(f"c{at}") for at in range(4))]
    pods = [mounting(f"a-{at}", f"c{at}") for at in range(4)]
    played = play(Volumes(), snapshot_with(catalog(*objects, **SHARED), *pods), parameters=SHARING)
    assert played.bound == {"a-0": "n1", "a-1": "n1"}


def test_a_gang_that_fits_nowhere_gives_its_storage_back():
    objects = [LATER, report("a", 2, Selector((EAST,))), *(claim(f"c{at}") for at in range(4))]
    pods = [mounting(f"a-{at}", f"c{at}") for at in range(3)]
    snapshot = snapshot_with(catalog(*objects, **SHARED), *pods, minimum=3)
    assert play(Volumes(), snapshot, parameters=SHARING).bound == {}
    stage = Stage.of(Volumes(), snapshot, SHARING)
    with stage.session.statement("test") as statement:
        first = np.array([stage.row("a-0"), stage.row("a-1")], np.int64)
        assert statement.place_pods(first, stage.session.all_nodes, stage.session.no_extra, promise=False) == 2
        assert stage.accepting("a-2") == []
    assert stage.accepting("a-2") == ["n1", "n2"]


def test_a_claim_that_several_pods_use_is_provisioned_once():
    objects = [LATER, report("a", 1, Selector((EAST,))), claim("shared")]
    pods = [mounting(f"a-{at}", "shared", on="n1") for at in range(2)]
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), *pods, mounting("b-0")), SHARING)
    assert stage.accepting("a-0") == []
    roomy = catalog(LATER, report("a", 2, Selector((EAST,))), claim("shared"), **SHARED)
    assert Stage.of(Volumes(), snapshot_with(roomy, *pods), SHARING).accepting("a-0") == ["n1", "n2"]


def test_bound_claims_and_other_classes_take_nothing():
    objects = (LATER, LOCAL, bound("one"), volume("v"), claim("two", "local"), volume("w"), report("a", 0, None))
    assert stage_of(*objects, claims=("one", "two"), **SHARED).accepting("a-0") == ["n1", "n2", "n3"]


def test_a_pod_that_moves_needs_its_own_claims_anew():
    mine = bound(owner_pod="default-a-0")
    objects = (LATER, mine, volume("v"), report("a", 1, here("n1")), report("b", 0, here("n2")))
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data", on="n1")), SHARING)
    assert stage.accepting("a-0") == ["n1", "n2", "n3"]
    evict(stage.session, "a-0")
    assert stage.accepting("a-0") == ["n1"]


# ------------------------------------------------------------------------------------------- what terminating pods hold


def owned(name="mine", owner="default-x-0", **parts):
    """Make a bound claim that goes with its owner."""
    return bound(name, owner_pod=owner, **parts)


def leaving(name="x-0", *claims, on="n1", **parts):
    return mounting(name, *claims or ("mine",), on=on, leaving=True, **parts)


def waiting(stage, name):
    """Return the nodes on which a pod must wait."""
    mask = stage.answers.node_wait.must_wait(stage.row(name), stage.session.all_nodes)
    return [each.name for each, waits in zip(stage.session.snapshot.nodes, mask, strict=True) if waits]


def promised(played):
    """Return which pods were promised which nodes."""
    decisions = played.session._sink.decisions
    snapshot = played.session.snapshot
    nominated = [each for each in decisions if isinstance(each, Nominate)]
    return {snapshot.pods[each.pod].name: snapshot.nodes[each.node].name for each in nominated}


def test_releasing_storage_is_promised_only_where_none_is_free():
    objects = (LATER, claim(), owned(), volume("v"), report("a", 0, here("n1")), report("b", 1, here("n2")))
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data"), leaving()), SHARING)
    assert stage.accepting("a-0") == ["n1", "n2"]
    assert waiting(stage, "a-0") == ["n1", "n3"]
    played = play(Volumes(), stage.session.snapshot, parameters=SHARING)
    assert (played.bound, promised(played)) == ({"a-0": "n2"}, {})
    nowhere_else = snapshot_with(catalog(*objects[:-1], **SHARED), mounting("a-0", "data"), leaving())
    played = play(Volumes(), nowhere_else, parameters=SHARING)
    assert (played.bound, promised(played)) == ({}, {"a-0": "n1"})


def test_a_node_with_free_storage_scores_higher():
    objects = (LATER, claim(), owned(), volume("v"), report("a", 0, here("n1")), report("b", 1, here("n2")))
    snapshot = snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data"), leaving())
    uses = tuple(PluginUse(name=type(each).__name__, plugin=each) for each in (Volumes(), Availability()))
    session = Session(snapshot, Profile(actions=(), plugins=uses, parameters=SHARING), Recorder(), Silent())
    row = next(row for row, each in enumerate(snapshot.pods) if each.name == "a-0")
    scores, _ = session.node_scores(row, session.all_nodes, session.no_extra)
    assert scores[1] - scores[0] == 1000.0
    assert np.isnan(scores[2])


def test_storage_returns_only_to_its_owners_node():
    shared_by_all = report("a", 0, Selector((EAST,)))
    objects = (LATER, claim(), owned(), volume("v"), shared_by_all)
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data"), leaving()), SHARING)
    assert stage.accepting("a-0") == ["n1"]


def test_claims_that_outlive_their_pods_give_nothing_back():
    objects = (LATER, claim(), bound("mine"), volume("v"), report("a", 0, here("n1")))
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data"), leaving()), SHARING)
    assert stage.accepting("a-0") == []
    assert stage.reasons("a-0")[0] == f"{NO_SPACE} for storageclass later"


def test_storage_promised_to_one_pod_is_unavailable_to_another():
    objects = (LATER, claim("one"), claim("two"), owned(), volume("v"), report("a", 0, here("n1")))
    pods = (mounting("a-0", "one"), mounting("b-0", "two"), leaving())
    played = play(Volumes(), snapshot_with(catalog(*objects, **SHARED), *pods), parameters=SHARING)
    assert (played.bound, promised(played)) == ({}, {"a-0": "n1"})


def test_a_terminating_pods_pending_claim_gives_back_capacity():
    objects = (LATER, claim(), claim("mine", owner_pod="default-x-0"), report("a", 1, here("n1")))
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data"), leaving()), SHARING)
    assert stage.accepting("a-0") == ["n1"]
    assert "n1" in waiting(stage, "a-0")


def test_a_gang_waits_together_for_storage():
    objects = (LATER, claim("one"), claim("two"), owned(), volume("v"), report("a", 1, here("n1")))
    pods = (mounting("a-0", "one"), mounting("a-1", "two"), leaving())
    played = play(Volumes(), snapshot_with(catalog(*objects, **SHARED), *pods, minimum=2), parameters=SHARING)
    assert (played.bound, promised(played)) == ({}, {"a-0": "n1", "a-1": "n1"})


def test_a_group_evicts_a_lower_one_for_its_storage():
    objects = (LATER, claim(), owned(), volume("v"), report("a", 0, here("n1")))
    running = mounting("x-0", "mine", on="n1")
    snapshot = ranked(snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data"), running), a=90, x=10)
    played = play(Volumes(), snapshot, (Allocate(), Preempt()), SHARING)
    assert (played.bound, played.evicted, promised(played)) == ({}, ["x-0"], {"a-0": "n1"})
    lasting = catalog(LATER, claim(), bound("mine"), volume("v"), report("a", 0, here("n1")), **SHARED)
    snapshot = ranked(snapshot_with(lasting, mounting("a-0", "data"), running), a=90, x=10)
    assert play(Volumes(), snapshot, (Allocate(), Preempt()), SHARING).evicted == []


def test_a_victims_storage_stays_on_its_node_until_gone():
    objects = (LATER, claim(), owned(), volume("v"), report("a", 0, here("n1")), report("b", 5, here("n2")))
    pods = (mounting("a-0", "data"), mounting("x-0", "mine", on="n1"))
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), *pods), SHARING)
    session, row = stage.session, stage.row("x-0")
    assert stage.accepting("a-0") == ["n2"]
    with session.statement("test") as statement:
        statement.evict(np.array([row], np.int64))
        assert stage.accepting("a-0") == ["n1", "n2"]
        elsewhere = np.array([1], np.int64)
        assert statement.place_pods(np.array([row], np.int64), elsewhere, session.no_extra, promise=True) == 1
        assert session.columns.status[row] == Status.PIPELINED
        assert stage.accepting("a-0") == ["n1", "n2"]
        assert waiting(stage, "a-0") == ["n1", "n3"]
    assert stage.accepting("a-0") == ["n2"]


def test_a_claim_whose_owner_goes_is_waited_for_everywhere():
    objects = (LATER, claim(owner_pod="default-b-0"), report("a", 9, Selector((EAST,))))
    going = pod("b-0", on="n1", leaving=True)
    stage = Stage.of(Volumes(), snapshot_with(catalog(*objects, **SHARED), mounting("a-0", "data"), going), SHARING)
    assert waiting(stage, "a-0") == [*stage.accepting("a-0"), "n3"] == ["n1", "n2", "n3"]
    assert stage.reasons("a-0") == ["task has deleted storage claims: data"]


def test_pods_without_claims_never_wait():
    stage = stage_of(LATER, claim(), report("a", 0, None), **SHARED)
    assert waiting(stage, "b-0") == []
    assert stage_of(LATER, claim(), report("a", 0, None), **SHARED, share_capacity=False).answers.node_wait is None
