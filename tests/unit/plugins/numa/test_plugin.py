import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.facts.model.axis import NodeRow
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status, within
from kai.framework.decisions import Cause
from kai.plugins.numa import Numa
from kai.plugins.numa.plugin import REFUSED
from kai.plugins.numa.zones import NumaPlacement
from tests.unit.plugins.stage import Stage, node, play, pod, snapshot_of

OBSERVED, PREDICTED = "kai.scheduler/numa-placement-observed", "kai.scheduler/numa-placement-predicted"


def zones(name, *amounts, policy="single-numa-node", scope="pod", available=None):
    """Return the zones of a node, each with ``amounts`` of CPU, or of everything in a mapping."""
    left = available or amounts
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": [
            {
                "name": f"node-{at}",
                "type": "Node",
                "resources": [
                    {"name": key, "capacity": value, "allocatable": value, "available": free.get(key, "0")}
                    for key, value in mapping(has).items()
                ],
            }
            for at, (has, free) in enumerate(zip(amounts, map(mapping, left), strict=True))
        ],
    }


def mapping(amounts):
    return amounts if isinstance(amounts, dict) else {"cpu": str(amounts)}


def record(**drawn):
    """Return a record; ``node_0="3"`` is three CPUs of the zone node-0."""
    return json.dumps([{"zone": key.replace("_", "-"), "amount": mapping(each)} for key, each in drawn.items()])


def guaranteed(name, cpu="2", on="", annotations=None, **requests):
    """Return a guaranteed pod of one container."""
    made = pod(name, on=on, requests={"cpu": cpu, "memory": "1Gi", **requests}, status={"qosClass": "Guaranteed"})
    made["metadata"]["annotations"] |= annotations or {}
    return made


def stage_of(*manifests, **options):
    return Stage.of(Numa(**options), snapshot_of(*manifests))


def chosen(stage, name, at=0):
    placement = stage.answers.placement.choose(stage.row(name), NodeRow(at))
    return None if placement is None else placement.zones


def left(stage, at=0):
    """Return the CPUs that are left in each zone of a node."""
    found = stage.session.details.of_nodes()[at]["numa"]
    return [dict(each.amounts).get("cpu", 0) / 1000 for each in found["numaZonesAvailable"].values()]


N1, N2 = node("n1"), node("n2")


def test_without_zones_there_is_nothing_to_say():
    assert stage_of(N1, guaranteed("a-0")).is_silent


def test_only_guaranteed_pods_are_aligned_to_cpus():
    stage = stage_of(N1, zones("n1", 4), guaranteed("a-0"), pod("b-0", requests={"cpu": "2"}))
    assert stage.is_concerned("a-0")
    assert not stage.is_concerned("b-0")


def test_the_lowest_zone_that_holds_the_pod_is_taken():
    stage = stage_of(N1, zones("n1", 1, 4, 8), guaranteed("a-0"))
    assert chosen(stage, "a-0") == (1,)


def test_a_strict_node_that_cannot_align_is_refused():
    stage = stage_of(N1, N2, zones("n1", 2, 2), zones("n2", 4), guaranteed("a-0", cpu="3"))
    assert stage.accepting("a-0") == ["n2"]
    assert stage.reasons("a-0") == [REFUSED]
    assert chosen(stage, "a-0") is None


@pytest.mark.parametrize(
    ("policy", "accepted", "expected"),
    [
        ("none", True, ()),
        ("best-effort", True, (0, 1)),
        ("restricted", True, (0, 1)),
        ("single-numa-node", False, None),
    ],
)
def test_policies_differ_in_what_they_refuse(policy, accepted, expected):
    stage = stage_of(N1, zones("n1", 2, 2, policy=policy), guaranteed("a-0", cpu="3"))
    assert (stage.accepting("a-0") == ["n1"]) == accepted
    assert chosen(stage, "a-0") == expected


def test_a_restricted_node_demands_an_empty_nodes_width():
    used = guaranteed("x-0", cpu="3", on="n1", annotations={OBSERVED: record(node_0="3")})
    other = guaranteed("y-0", cpu="3", on="n1", annotations={OBSERVED: record(node_1="3")})
    stage = stage_of(N1, zones("n1", 4, 4, policy="restricted"), used, other, guaranteed("a-0"))
    assert stage.accepting("a-0") == []


def test_best_effort_never_refuses():
    stage = stage_of(N1, zones("n1", 1, 1, policy="best-effort"), guaranteed("a-0", cpu="9"))
    assert stage.accepting("a-0") == ["n1"]
    assert chosen(stage, "a-0") == ()
    assert stage.scores("a-0") == [0.0]


def test_a_fraction_of_a_cpu_is_pinned_nowhere():
    stage = stage_of(N1, zones("n1", 1, 1), guaranteed("a-0", cpu="2500m"))
    assert stage.accepting("a-0") == ["n1"]
    assert chosen(stage, "a-0") == ()


def test_devices_are_aligned_for_every_pod():
    amounts = {"cpu": "1", "nvidia.com/gpu": "2"}
    gpus = node("n1", allocatable={"nvidia.com/gpu": "4"})
    wants = pod("a-0", requests={"cpu": "8", "nvidia.com/gpu": "2"})
    stage = stage_of(gpus, zones("n1", amounts, amounts), wants, pod("b-0", requests={"nvidia.com/gpu": "3"}))
    assert chosen(stage, "a-0") == (0,)
    assert stage.accepting("b-0") == []


def test_an_ignored_resource_is_not_aligned():
    gpus = node("n1", allocatable={"nvidia.com/gpu": "4"})
    wants = pod("a-0", requests={"nvidia.com/gpu": "3"})
    manifests = (gpus, zones("n1", {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}), wants)
    assert stage_of(*manifests).accepting("a-0") == []
    assert not stage_of(*manifests, ignore=("nvidia.com/gpu",)).is_concerned("a-0")


def test_the_container_scope_aligns_containers_one_by_one():
    amounts = {"cpu": "3", "memory": "2Gi", "pods": "110"}
    made = guaranteed("a-0")
    container = {"name": "x", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
    made["spec"]["containers"] = [container, {**container, "name": "y"}]
    del amounts["pods"]
    by_container = stage_of(N1, zones("n1", amounts, amounts, scope="container"), made)
    assert chosen(by_container, "a-0") == (0, 1)
    assert stage_of(N1, zones("n1", amounts, amounts, scope="pod"), made).accepting("a-0") == []


def test_an_init_container_only_must_fit_the_empty_node():
    made = guaranteed("a-0", cpu="4")
    made["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}]
    stage = stage_of(N1, zones("n1", 4, scope="container"), made)
    assert stage.accepting("a-0") == ["n1"]
    made["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] = "5"
    assert stage_of(N1, zones("n1", 4, scope="container"), made).accepting("a-0") == []


def test_nodes_score_by_the_zones_that_a_pod_spans():
    nodes = [node(f"n{at}") for at in range(1, 6)]
    reported = (
        zones("n1", 8, 8),
        zones("n2", 2, 2, 2, policy="restricted"),
        zones("n3", 8, 8, policy="none"),
        zones("n4", 1, 1),
    )
    stage = stage_of(*nodes, *reported, guaranteed("a-0", cpu="4"))
    assert stage.scores("a-0") == [100.0, 50.0, 50.0, 0.0, pytest.approx(100 / 3)]


def test_what_is_left_follows_from_the_records_of_pods():
    manifests = (N1, zones("n1", 4, 4, available=("1", "1")), guaranteed("a-0", cpu="3"))
    pods = (
        guaranteed("x-0", cpu="3", on="n1", annotations={OBSERVED: record(node_1="3"), PREDICTED: record(node_0="3")}),
        guaranteed("y-0", cpu="1", on="n1", annotations={PREDICTED: record(node_0="1")}),
        guaranteed("z-0", cpu="4", on="n1"),
        guaranteed("u-0", cpu="4", on="n1", annotations={OBSERVED: record(node_7="4")}),
    )
    stage = stage_of(*manifests, *pods)
    assert left(stage) == [3, 1]
    assert left(stage_of(*manifests, *pods, reconstruct_available=False)) == [1, 1]


def test_a_terminating_pod_no_longer_holds_its_zone():
    leaving = guaranteed("x-0", cpu="3", on="n1", annotations={OBSERVED: record(node_0="3")})
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert left(stage_of(N1, zones("n1", 4), leaving)) == [4]


def test_placing_draws_and_evicting_gives_back():
    running = guaranteed("x-0", cpu="3", on="n1", annotations={OBSERVED: record(node_0="3")})
    stage = stage_of(N1, zones("n1", 4, 4), running, guaranteed("a-0", cpu="3"), guaranteed("b-0", cpu="4"))
    session = stage.session
    before = session.ledger.fingerprint()
    statement = session.statement("test", Cause.PREEMPT)
    assert statement.place_pods(np.array([stage.row("a-0")]), session.all_nodes, session.no_extra, promise=False) == 1
    assert left(stage) == [1, 1]
    assert stage.accepting("b-0") == []
    statement.evict(np.array([stage.row("x-0")]))
    assert left(stage) == [4, 1]
    assert stage.accepting("b-0") == ["n1"]
    statement.discard()
    assert session.ledger.fingerprint() == before


def test_a_victim_that_would_get_other_zones_is_moved():
    first = guaranteed("x-0", cpu="3", on="n1", annotations={OBSERVED: record(node_0="3")})
    stage = stage_of(N1, zones("n1", 4, 4), first, guaranteed("a-0", cpu="4"))
    session = stage.session
    statement = session.statement("test", Cause.PREEMPT)
    victim, aggressor = np.array([stage.row("x-0")]), np.array([stage.row("a-0")])
    statement.evict(victim)
    for pods in (aggressor, victim):
        assert statement.place_pods(pods, session.all_nodes, session.no_extra, promise=True) == 1
    assert session.columns.status[victim[0]] == Status.PIPELINED
    assert session.details.of(int(victim[0]))["numa"].zones == (1,)
    assert left(stage) == [0, 1]


def test_a_victim_that_keeps_its_zones_stays():
    first = guaranteed("x-0", cpu="3", on="n1", annotations={OBSERVED: record(node_0={"cpu": "3"})})
    stage = stage_of(N1, zones("n1", 4, 4), first)
    session = stage.session
    before = session.ledger.fingerprint()
    statement = session.statement("test", Cause.PREEMPT)
    victim = np.array([stage.row("x-0")])
    statement.evict(victim)
    assert statement.place_pods(victim, session.all_nodes, session.no_extra, promise=True) == 1
    assert session.columns.status[victim[0]] == Status.RUNNING
    assert left(stage) == [1, 4]
    statement.discard()
    assert session.ledger.fingerprint() == before


def half(name, **parts):
    """Return a pod that asks for half a GPU and is not aligned."""
    annotations = {"pod-group-name": name.rpartition("-")[0], "gpu-fraction": "0.5"}
    return pod(name, metadata={"annotations": annotations}, **parts)


def test_zones_of_an_undone_placement_burden_no_other_pod():
    gpus = node("n1", allocatable={"nvidia.com/gpu": "1"})
    runs = half("r-0", on="n1", labels={"runai-gpu-group": "g"})
    stage = stage_of(gpus, zones("n1", 4, 4), runs, guaranteed("a-0"), half("b-0"), guaranteed("c-0"))
    session = stage.session
    aligned, shares, other = (np.array([stage.row(name)]) for name in ("a-0", "b-0", "c-0"))
    with session.statement("test") as statement:
        assert statement.place_pods(aligned, session.all_nodes, session.no_extra, promise=False) == 1
    with session.statement("test") as statement:
        assert statement.place_pods(shares, session.all_nodes, session.no_extra, promise=False) == 1
        statement.commit()
    # With zones it would be taken for moved where it gets its place back beside a pod that plugins are asked about.
    statement = session.statement("test", Cause.PREEMPT)
    statement.evict(shares)
    both = np.concatenate([shares, other])
    assert statement.place_pods(both, session.all_nodes, session.no_extra, promise=True) == 2
    assert session.columns.status[shares[0]] == Status.BINDING
    assert session.details.of(int(shares[0])) == {}


def test_a_binding_carries_the_zones():
    played = play(Numa(), snapshot_of(N1, zones("n1", 1, 4), guaranteed("a-0")))
    assert played.bound == {"a-0": "n1"}
    detail = played.session.details.of_pods()[0]["numa"]
    assert detail == NumaPlacement(zones=(1,), names=("node-1",), amounts=((("cpu", 2000),),))


def test_pods_fill_zones_one_after_the_other():
    pods = [guaranteed(f"a-{at}", cpu="3") for at in range(5)]
    played = play(Numa(), snapshot_of(N1, N2, zones("n1", 4, 8), zones("n2", 4), *pods))
    assert len(played.bound) == 4


@st.composite
def worlds(draw):
    """Return nodes with zones, running pods on record or not, and pending pods."""
    policies = st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])
    scopes = st.sampled_from(["pod", "container"])
    names = ["n1", "n2"]
    sizes = {name: draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)) for name in names}
    manifests = [node(name) for name in names]
    manifests += [zones(name, *sizes[name], policy=draw(policies), scope=draw(scopes)) for name in names]
    for at in range(draw(st.integers(0, 3))):
        on = draw(st.sampled_from(names))
        zone = draw(st.integers(0, len(sizes[on]) - 1))
        cpus = str(draw(st.integers(1, 3)))
        known = draw(st.sampled_from([OBSERVED, PREDICTED, ""]))
        annotations = {known: record(**{f"node_{zone}": cpus})} if known else {}
        manifests.append(guaranteed(f"x{at}-0", cpu=cpus, on=on, annotations=annotations))
    manifests += [guaranteed(f"a{at}-0", cpu=str(draw(st.integers(1, 7)))) for at in range(draw(st.integers(1, 4)))]
    return manifests


def drawn(session, at=0):
    """Return the CPUs that pods draw from each zone of a node: those that run there, and those that were promised."""
    taken = Counter()
    for row, details in session.details.of_pods().items():
        if within(int(session.columns.status[row]), ACTIVE_ALLOCATED) and session.columns.node[row] == at:
            placement = details["numa"]
            for zone, amounts in zip(placement.zones, placement.amounts, strict=True):
                taken[zone] += dict(amounts).get("cpu", 0) / 1000
    return taken


verbs = st.sampled_from(["evict", "place", "bind", "wait", "keep", "back"])
moves = st.lists(st.tuples(verbs, st.integers(0, 20)), max_size=14)


@settings(max_examples=120, deadline=None)
@given(worlds(), moves)
def test_zones_keep_what_pods_leave_and_undo_is_exact(manifests, played):
    stage = stage_of(*manifests)
    session = stage.session
    groups = session.facts.pods.group
    opening = session.ledger.fingerprint()
    whole = [[has + drawn(session, at)[zone] for zone, has in enumerate(left(stage, at))] for at in range(2)]
    overdrawn = [[min(0.0, each) for each in left(stage, at)] for at in range(2)]
    statement = session.statement("test", Cause.PREEMPT)
    marks = []
    for verb, number in played:
        row = number % len(session.snapshot.pods)
        status = session.columns.status[row]
        marks.append((statement.mark(), session.ledger.fingerprint()))
        if verb == "evict" and within(int(status), ACTIVE_ALLOCATED):
            statement.evict(np.array([row]))
        elif verb in ("place", "bind") and status in (Status.PENDING, Status.RELEASING):
            promise = verb == "place" or status == Status.RELEASING
            statement.place_pods(np.array([row]), session.all_nodes, session.no_extra, promise=promise)
        elif verb == "wait":
            statement.promise_all(int(groups[row]))
        elif verb == "keep":
            statement.commit()
            opening = session.ledger.fingerprint()
            marks = []
        elif verb == "back":
            mark, before = marks[number % len(marks)]
            statement.roll_back(mark)
            del marks[number % len(marks) + 1 :]
            assert session.ledger.fingerprint() == before
        for at in range(2):
            assert left(stage, at) == [has - drawn(session, at)[zone] for zone, has in enumerate(whole[at])]
            assert all(now >= least for now, least in zip(left(stage, at), overdrawn[at], strict=True))
    statement.discard()
    assert session.ledger.fingerprint() == opening
