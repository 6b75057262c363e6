"""Pods that ask for the same zones are placed in batches as they are one by one."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.deciding.engine.cycle import run_cycle
from kai.framework.decisions import Recorder
from kai.intake import take_snapshot
from kai.lab.scenarios.scenario import read_objects
from kai.lab.scenarios.shorthand import NOW, expand
from kai.plugins.numa import Numa, plugin
from kai.testing import default_profile_with
from tests.unit.plugins.numa.test_plugin import PREDICTED, record, zones

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
EACH = {"cpu": 1, "memory": "1Gi", "gpu": 1}
QUEUES = {"a": {"quota": 4}, "b": {"quota": 4, "limit": 3}}


@st.composite
def clusters(draw):
    """Return nodes with up to four zones of uneven amounts, pods that run there, and gangs and jobs of a few asks."""
    nodes, reported, groups = {}, [], {}
    for node in range(draw(st.integers(1, 4))):
        has = [
            {"cpu": str(draw(st.integers(0, 6))), "nvidia.com/gpu": str(draw(st.integers(0, 3)))}
            for _ in range(draw(st.integers(0, 4)))
        ]
        nodes[f"n{node}"] = {"gpu": draw(st.integers(0, 8)), "cpu": draw(st.integers(4, 16))}
        if has:
            policy, scope = draw(st.sampled_from(POLICIES)), draw(st.sampled_from(["pod", "container"]))
            reported.append(zones(f"n{node}", *has, policy=policy, scope=scope))
        if draw(st.booleans()):
            drawn = record(node_0={"cpu": "1", "nvidia.com/gpu": "1"})
            runs = {"queue": "a", "members": 1, "runs_on": [f"n{node}"], "leaving": draw(st.integers(0, 1))}
            groups[f"r{node}"] = {**runs, "each": EACH, "annotations": {PREDICTED: drawn}}
    for at in range(draw(st.integers(1, 10))):
        members = draw(st.sampled_from([1, 1, 1, 2, 4]))
        asked = {"cpu": draw(st.sampled_from([1, 1, 3])), "gpu": draw(st.sampled_from([0, 1, 1, 2]))}
        groups[f"{draw(st.sampled_from('gb'))}{at}"] = {
            "queue": draw(st.sampled_from("ab")),
            "members": members,
            "minimum": draw(st.integers(1, members)),
            "each": EACH | asked,
        }
    return snapshot_of(nodes, groups, reported)


def snapshot_of(nodes, groups, reported, queues=QUEUES):
    """Return a snapshot; pods of groups whose names begin with b are not guaranteed what they ask for."""
    objects = expand({"cluster": {"nodes": nodes}, "queues": queues, "groups": groups}, "cluster")
    for each in objects:
        if each["kind"] == "Pod":
            each.setdefault("status", {})["qosClass"] = (
                "Burstable" if each["metadata"]["name"][0] == "b" else "Guaranteed"
            )
    return take_snapshot(read_objects([*objects, *reported], "cluster")[0], NOW)


def decided(snapshot, without=()):
    profile = default_profile_with(Numa())
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, without=without))
    sink = Recorder()
    report = run_cycle(snapshot, profile, sink)
    # Groups that are alike share the words of one of them.
    facts = ("pod_row", "histogram", "refusals")
    reasons = {
        group: [(each.code, each.text, *map(each.facts.get, facts)) for each in (*found.reasons, *found.pods.values())]
        for group, found in report.records.items()
    }
    return list(sink.decisions), report.details, reasons


@given(snapshot=clusters())
@settings(deadline=None, max_examples=200)
def test_batches_decide_what_one_by_one_does(snapshot):
    assert decided(snapshot) == decided(snapshot, ("batch",))


def full_of(policy, *has, pods=6, **asked):
    nodes = {"n": {"gpu": 8, "cpu": 64}}
    groups = {f"g{at}": {"queue": "a", "members": 1, "each": EACH | asked} for at in range(pods)}
    return snapshot_of(nodes, groups, [zones("n", *has, policy=policy)])


EVEN = {"cpu": "16", "nvidia.com/gpu": "4"}


@pytest.mark.parametrize("most", [1, 3, 256])
@pytest.mark.parametrize(
    ("policy", "asked"),
    [("single-numa-node", {}), ("restricted", {"gpu": 3, "cpu": 3}), ("best-effort", {"gpu": 3}), ("none", {})],
)
def test_nodes_are_counted_anew_where_ratings_change(monkeypatch, policy, asked, most):
    monkeypatch.setattr(plugin, "MOST_ROOM", most)
    snapshot = full_of(policy, EVEN, EVEN, **asked)
    assert decided(snapshot) == decided(snapshot, ("batch",))


def test_pods_of_a_batch_are_not_asked_about(monkeypatch):
    asked = []
    monkeypatch.setattr(plugin._Aligner, "filter_nodes", lambda _, pod, nodes: asked.append(pod) or nodes >= 0)
    decisions, details, _ = decided(full_of("single-numa-node", EVEN, EVEN))
    assert [details[each.pod]["numa"].zones for each in decisions] == [(0,)] * 4 + [(1,)] * 2
    assert not asked


def test_asks_beyond_the_bound_are_placed_one_by_one(monkeypatch):
    monkeypatch.setattr(plugin, "MOST_ASKS", 0)
    snapshot = full_of("single-numa-node", EVEN, EVEN)
    assert decided(snapshot) == decided(snapshot, ("batch",))


@st.composite
def contended(draw):
    """Return nodes that pods of one queue fill, zone by zone, and pods of another queue that may take them back."""
    nodes, reported, groups = {}, [], {}
    for node in range(draw(st.integers(1, 3))):
        count, each = draw(st.integers(1, 3)), draw(st.integers(1, 2))
        nodes[f"n{node}"] = {"gpu": count * each, "cpu": 32}
        has = [{"cpu": "16", "nvidia.com/gpu": str(each)}] * count
        reported.append(zones(f"n{node}", *has, policy=draw(st.sampled_from(POLICIES))))
        for at in range(draw(st.integers(0, count * each))):
            drawn = record(**{f"node_{at // each}": {"cpu": "1", "nvidia.com/gpu": "1"}})
            runs = {"queue": "a", "members": 1, "runs_on": [f"n{node}"], "each": EACH}
            groups[f"r{node}x{at}"] = {**runs, "annotations": {PREDICTED: drawn} if draw(st.booleans()) else {}}
    for at in range(draw(st.integers(1, 5))):
        asked = {"gpu": draw(st.sampled_from([1, 1, 2]))}
        groups[f"g{at}"] = {"queue": "b", "members": draw(st.sampled_from([1, 1, 2])), "each": EACH | asked}
    return snapshot_of(nodes, groups, reported, {"a": {"quota": 0}, "b": {"quota": 8}})


@given(snapshot=contended())
@settings(deadline=None, max_examples=200)
def test_a_trial_that_proves_itself_decides_alike(snapshot):
    assert decided(snapshot) == decided(snapshot, ("held",))


@st.composite
def reclaimed(draw):
    """Return full nodes of uneven zones, more pods that may reclaim than that can, and gaps that victims may go to."""
    nodes, reported, groups = {}, [], {}
    for node in range(draw(st.integers(1, 4))):
        zone = st.tuples(st.integers(0, 3), st.integers(1, 4))
        has = draw(st.lists(zone, min_size=0, max_size=3))
        count = sum(gpus for gpus, _ in has) or draw(st.integers(0, 3))
        nodes[f"n{node}"] = {"gpu": count, "cpu": draw(st.sampled_from([8, 32]))}
        if has:
            content = [{"cpu": str(cpu), "nvidia.com/gpu": str(gpus)} for gpus, cpu in has]
            policy, scope = draw(st.sampled_from(POLICIES)), draw(st.sampled_from(["pod", "container"]))
            reported.append(zones(f"n{node}", *content, policy=policy, scope=scope))
        free = count - draw(st.sampled_from([0, 0, 0, 1, 2]))
        at = 0
        while free > 0:
            gpus = draw(st.integers(1, min(free, 2)))
            free -= gpus
            where = draw(st.integers(0, max(0, len(has) - 1)))
            drawn = record(**{f"node_{where}": {"cpu": "1", "nvidia.com/gpu": str(gpus)}})
            runs = {"queue": draw(st.sampled_from("aaac")), "members": 1, "runs_on": [f"n{node}"]}
            kept = {"annotations": {PREDICTED: drawn} if draw(st.sampled_from([True, True, False])) else {}}
            groups[f"{draw(st.sampled_from('rrb'))}{node}x{at}"] = {**runs, **kept, "each": EACH | {"gpu": gpus}}
            at += 1
    for at in range(draw(st.integers(1, 8))):
        asked = {"gpu": draw(st.sampled_from([1, 1, 1, 2])), "cpu": draw(st.sampled_from([1, 1, 2]))}
        name = f"{draw(st.sampled_from('gggb'))}{at}"
        groups[name] = {"queue": "b", "members": draw(st.sampled_from([1, 1, 1, 1, 2])), "each": EACH | asked}
    return snapshot_of(nodes, groups, reported, {"a": {"quota": 0}, "b": {"quota": 12}, "c": {"quota": 1}})


@given(snapshot=reclaimed())
@settings(deadline=None, max_examples=300)
def test_tables_of_states_decide_what_asking_does(snapshot):
    assert decided(snapshot) == decided(snapshot, ("transitions",))
