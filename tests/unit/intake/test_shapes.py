import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.deciding.engine.cycle import run_cycle
from kai.deciding.explain.words import GroupReasons
from kai.facts.model.placement import Past
from kai.framework.decisions import Bind, Recorder
from kai.framework.verdict import Code
from kai.intake import Intake, IntakeSettings
from kai.lab.scenarios.scenario import read_objects
from kai.lab.scenarios.shorthand import NOW, expand
from kai.testing import cluster, default_profile_with

NODES = {"n": {"gpu": 8, "cpu": 2000}}
PROFILE = default_profile_with()


def flood(count, *, queue="queue", **more):
    """Return groups that all ask for something else, older ones first."""
    return {f"g{at:03}": {"queue": queue, "each": {"cpu": at + 1}, **more} for at in range(count)}


def taken(groups, bound, revision, *, awaited=(), intake=None, **more):
    taker = intake or Intake(IntakeSettings(namespace_shapes=bound))
    return taker.take(cluster(NODES, groups, **more), NOW, Past(awaited=awaited), revision)


def claiming(name, asks):
    """Return a claim for as many devices as ``asks`` says."""
    exactly = {"deviceClassName": "gpu.example.com", "count": asks}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def with_claims(claims):
    """Return objects in which each pod has a claim of its own; ``claims`` are the devices asked for, by claim."""
    wants = {
        f"g{at:03}": {"spec": {"resourceClaims": [{"name": "r", "resourceClaimName": name}]}}
        for at, name in enumerate(claims)
    }
    document = {
        "cluster": {"nodes": NODES, "objects": [claiming(name, asks) for name, asks in claims.items()]},
        "queues": {"queue": {}},
        "groups": wants,
    }
    return read_objects(expand(document, "cluster"), "cluster")[0]


def crowds_of(claims, bound):
    return Intake(IntakeSettings(namespace_shapes=bound)).take(with_claims(claims), NOW, revision=0).crowds


def changed(objects, change):
    """Return the objects with the metadata of pods and groups as ``change`` returns them."""

    def one(each):
        return attrs.evolve(each, metadata=attrs.evolve(each.metadata, **change(each.metadata)))

    pods, groups = tuple(map(one, objects.pods)), tuple(map(one, objects.pod_groups))
    return attrs.evolve(objects, pods=pods, pod_groups=groups)


def considered(snapshot):
    later = set(snapshot.crowds.waiting.tolist())
    return {group.name for row, group in enumerate(snapshot.groups) if row not in later}


def test_within_the_bound_everybody_is_considered():
    assert taken(flood(10), 10, 3).crowds.by_namespace == {}


def test_no_bound_is_no_bound():
    assert taken(flood(50), 0, 3).crowds.by_namespace == {}


def test_all_have_their_turn_one_after_the_other():
    seen = [considered(taken(flood(10), 4, number)) for number in range(3)]
    assert list(map(len, seen)) == [4, 4, 2]
    assert set.union(*seen) == set(flood(10))
    assert considered(taken(flood(10), 4, 3)) == seen[0]


def test_the_oldest_come_first():
    objects = changed(cluster(NODES, flood(10)), lambda found: {"creation_timestamp": 1000.0 - int(found.name[1:4])})
    snapshot = Intake(IntakeSettings(namespace_shapes=4)).take(objects, NOW, revision=0)
    assert considered(snapshot) == {"g009", "g008", "g007", "g006"}


def test_equal_groups_share_a_turn_and_count_once():
    groups = {**flood(3), **{f"same{at}": {"each": {"gpu": 1}} for at in range(20)}}
    assert taken(groups, 4, 0).crowds.by_namespace == {}


def test_pods_with_equal_private_claims_count_once():
    assert crowds_of({f"claim-{at}": 1 for at in range(20)}, 2).by_namespace == {}


def test_pods_with_different_private_claims_take_turns():
    (crowd,) = crowds_of({f"claim-{at}": 1 + at % 5 for at in range(20)}, 2).by_namespace.values()
    assert (crowd.shapes, crowd.turns, len(crowd.groups)) == (5, 3, 12)


def test_pods_with_missing_claims_count_by_claim_name():
    objects = with_claims({f"claim-{at}": 1 for at in range(6)})
    gone = attrs.evolve(objects, resource_claims=())
    (crowd,) = Intake(IntakeSettings(namespace_shapes=2)).take(gone, NOW, revision=0).crowds.by_namespace.values()
    assert crowd.shapes == 6


@given(asks=st.lists(st.integers(1, 4), min_size=1, max_size=12), names=st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_the_names_of_claims_make_no_difference_to_turns(asks, names):
    """Pods that share the only claim of each kind wait for the same turns as pods with claims of their own."""
    labels = [f"claim-{at}" for at in range(len(asks))]
    names.shuffle(labels)
    found = [crowds_of(dict(zip(each, asks, strict=True)), 2) for each in (sorted(labels), labels)]
    assert found[0].waiting.tolist() == found[1].waiting.tolist()
    assert len({*asks}) > 2 or not len(found[0].waiting)


def test_a_gang_whose_pods_differ_comes_whole():
    """Else its pods would never be considered together."""
    leaves = {"one": {"members": 1, "each": {"cpu": 140}}, "two": {"members": 1, "each": {"cpu": 141}}}
    groups = {**flood(3), "mixed": {"subgroups": leaves}}
    snapshots = [taken(groups, 2, number) for number in range(3)]
    assert any("mixed" in considered(each) for each in snapshots)
    assert {each.crowds.turns for each in snapshots} == {2}


def test_a_group_awaiting_evictions_is_always_considered():
    last = max(set(flood(10)) - considered(taken(flood(10), 4, 0)))
    assert last in considered(taken(flood(10), 4, 0, awaited=(f"default/{last}",)))


def test_those_of_other_namespaces_do_not_wait():
    groups = {**flood(10), "other": {"each": {"gpu": 1}}}
    objects = changed(cluster(NODES, groups), lambda found: {"namespace": "calm"} if "other" in found.name else {})
    snapshot = Intake(IntakeSettings(namespace_shapes=4)).take(objects, NOW, revision=0)
    assert "other" in considered(snapshot)
    assert list(snapshot.crowds.by_namespace) == ["default"]


def test_a_group_waiting_for_its_turn_reports_so():
    snapshot = taken(flood(10), 4, 0)
    sink = Recorder()
    report = run_cycle(snapshot, PROFILE, sink)
    bound = {snapshot.groups[snapshot.pod_group[each.pod]].name for each in sink.decisions if isinstance(each, Bind)}
    assert bound == considered(snapshot)
    rows = snapshot.crowds.waiting.tolist()
    text = (
        "namespace default has pending pods of 10 distinct shapes, and at most 4 are considered in a cycle;"
        " this one waits for its turn"
    )
    for row in rows:
        told = GroupReasons(snapshot, PROFILE, report).dominant(row)
        assert (told.code, told.text) == (Code.WAITS_FOR_TURN, text)


def test_the_same_facts_are_dealt_anew_in_each_cycle():
    intake = Intake(IntakeSettings(namespace_shapes=4))
    objects = cluster(NODES, flood(10))
    seen = [considered(intake.take(objects, NOW + number, revision=number)) for number in range(3)]
    assert set.union(*seen) == set(flood(10))


def test_a_cycle_rests_once_all_had_their_turn():
    """With nothing to decide, a turn that was had on the same facts is not run again."""
    intake = Intake(IntakeSettings(namespace_shapes=4))
    groups = {name: {"each": {"cpu": 2001 + at}} for at, name in enumerate(flood(10))}
    objects = cluster(NODES, groups)
    reports = [run_cycle(intake.take(objects, NOW, revision=number), PROFILE, Recorder()) for number in range(6)]
    assert len(set(map(id, reports))) == 3
    assert all(not any(attrs.asdict(each, recurse=False)["counts"].values()) for each in reports)


def alike(count, **more):
    """Return groups that all ask for the same, older ones first."""
    return {f"g{at:03}": {"each": {"gpu": 1}, **more} for at in range(count)}


def counted(groups, bound, revision, **more):
    intake = Intake(IntakeSettings(namespace_pods=bound, namespace_shapes=more.pop("shapes", 0)))
    return intake.take(cluster(NODES, groups, **more), NOW, revision=revision)


def test_as_many_pods_as_the_bound_are_all_considered():
    assert counted(alike(6), 6, 3).crowds.by_namespace == {}


def test_the_oldest_groups_are_always_considered_and_others_rotate():
    snapshots = [counted(alike(10), 4, number) for number in range(4)]
    seen = [considered(each) for each in snapshots]
    assert all(len(each) == 4 and {"g000", "g001"} <= each for each in seen)
    assert set.union(*seen) == set(alike(10))
    assert {each.crowds.turns for each in snapshots} == {4}


def test_a_higher_priority_group_is_considered_before_older_ones():
    groups = {**alike(10), "late": {"each": {"gpu": 1}, "priority": 90}}
    assert all("late" in considered(counted(groups, 4, number)) for number in range(5))


def test_bounded_shapes_and_groups_all_get_a_turn():
    groups = {f"g{at:03}": {"each": {"cpu": 1 + at % 6}} for at in range(60)}
    first = counted(groups, 4, 0, shapes=2)
    seen = [considered(counted(groups, 4, number, shapes=2)) for number in range(first.crowds.turns)]
    assert set.union(*seen) == set(groups)
    assert max(map(len, seen)) == 4


def test_a_bound_of_one_considers_groups_in_turn():
    assert [considered(counted(alike(3), 1, number)) for number in range(3)] == [{"g000"}, {"g001"}, {"g002"}]


def test_a_waiting_group_reports_its_namespaces_pending_pods():
    snapshot = counted(alike(10), 4, 0)
    report = run_cycle(snapshot, PROFILE, Recorder())
    text = "namespace default has 10 pending pods, and at most 4 are considered in a cycle; this one waits for its turn"
    rows = snapshot.crowds.waiting.tolist()
    assert len(rows) == 6
    assert {GroupReasons(snapshot, PROFILE, report).dominant(row).text for row in rows} == {text}


def test_a_gang_above_the_bound_still_gets_whole_turns():
    groups = {
        **alike(6),
        "wide": {"members": 7, "each": {"gpu": 1}},
        **{f"h{at}": {"each": {"gpu": 1}} for at in range(6)},
    }
    first = counted(groups, 4, 0)
    seen = [considered(counted(groups, 4, number)) for number in range(first.crowds.turns)]
    assert set.union(*seen) == set(groups)
    assert max(len(each - {"wide"}) for each in seen) <= 4


def test_gangs_count_as_many_as_they_have_pods():
    groups = {f"g{at}": {"members": 2, "each": {"gpu": 1}} for at in range(6)}
    assert all(len(considered(counted(groups, 4, number))) == 2 for number in range(5))
