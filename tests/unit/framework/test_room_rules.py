"""Pods that keep apart, or are spread, get the places in a batch that they get when plugins are asked about each."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.deciding.engine.cycle import run_cycle
from kai.framework.decisions import Recorder
from kai.intake import take_snapshot
from kai.lab.scenarios.scenario import read_objects
from kai.lab.scenarios.shorthand import NOW, expand
from kai.plugins.pod_affinity import PodAffinity
from kai.plugins.pod_topology_spread import PodTopologySpread
from kai.testing import default_profile_with

HOST, ZONE, POOL = "kubernetes.io/hostname", "zone", "pool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def term(app, key):
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def apart(app, key=HOST):
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term(app, key)]}}}


def near(app, key=ZONE):
    return {"affinity": {"podAffinity": {REQUIRED: [term(app, key)]}}}


def spread(app, key=ZONE, skew=1, **more):
    rule = {"maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", **term(app, key), **more}
    return {"topologySpreadConstraints": [rule]}


def snapshot_of(nodes, groups):
    queues = {"a": {"quota": 8}, "b": {"quota": 8, "limit": 5}}
    document = {"cluster": {"nodes": nodes}, "queues": queues, "groups": groups}
    return take_snapshot(read_objects(expand(document, "cluster"), "cluster")[0], NOW)


def decided(snapshot, without=()):
    profile = default_profile_with()
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, without=without))
    sink = Recorder()
    report = run_cycle(snapshot, profile, sink)
    facts = ("pod_row", "histogram", "refusals")
    reasons = {
        group: [(each.code, *map(each.facts.get, facts)) for each in (*record.reasons, *record.pods.values())]
        for group, record in report.records.items()
    }
    return list(sink.decisions), report.details, reasons


APPS = ("x", "y")
rules = st.one_of(
    st.just({}),
    st.builds(apart, st.sampled_from(APPS), st.sampled_from([HOST, HOST, ZONE])),
    st.builds(near, st.sampled_from(APPS)),
    st.builds(
        spread,
        st.sampled_from(APPS),
        st.sampled_from([ZONE, ZONE, HOST]),
        st.integers(1, 3),
        minDomains=st.sampled_from([1, 3]),
        nodeTaintsPolicy=st.sampled_from(["Ignore", "Honor"]),
    ),
)


@st.composite
def clusters(draw):
    nodes = {}
    for at in range(draw(st.integers(1, 6))):
        labels = {
            HOST: draw(st.sampled_from([f"n{at}"] * 5 + [""])),
            ZONE: draw(st.sampled_from(["p", "q", "r", ""])),
            POOL: draw(st.sampled_from(["one", "one", "two"])),
        }
        taints = ["t:NoSchedule"] if draw(st.integers(0, 5)) == 0 else []
        gpus = draw(st.integers(0, 4))
        nodes[f"n{at}"] = {"gpu": gpus, "labels": {k: v for k, v in labels.items() if v}, "taints": taints}
    own = {app: draw(rules) for app in APPS}
    groups = {}
    for at in range(draw(st.integers(1, 9))):
        app, members = draw(st.sampled_from(APPS)), draw(st.sampled_from([1, 1, 1, 2, 3]))
        groups[f"g{at}"] = group = {
            "queue": draw(st.sampled_from("ab")),
            "labels": {"app": app},
            "members": members,
            "minimum": draw(st.integers(1, members)),
            "each": {"cpu": 1, "gpu": draw(st.sampled_from([0, 1, 1]))},
            "spec": draw(st.sampled_from([own[app], own[app], {}])),
        }
        if draw(st.booleans()) and draw(st.booleans()):
            group |= {"runs_on": draw(st.sampled_from([*nodes])), "leaving": draw(st.sampled_from([0, 0, members]))}
        if draw(st.integers(0, 3)) == 0:
            group["selector"] = {POOL: "one"}
    return snapshot_of(nodes, groups)


@given(snapshot=clusters())
@settings(deadline=None)
def test_batches_decide_what_questions_about_each_pod_do(snapshot):
    assert decided(snapshot) == decided(snapshot, ("batch",))


NODES = {f"n{at}": {"gpu": 4, "labels": {HOST: f"n{at}", ZONE: "pq"[at % 2]}} for at in range(4)}


def waiting(count, spec, **more):
    each = {"queue": "a", "labels": {"app": "x"}, "each": {"gpu": 1}, "spec": spec, **more}
    return {f"g{at}": each for at in range(count)}


@pytest.mark.parametrize(
    ("plugin", "spec", "bound"),
    [
        (PodAffinity, apart("x"), 4),
        (PodAffinity, apart("x", ZONE), 2),
        (PodTopologySpread, spread("x"), 5),
        (PodTopologySpread, spread("x", HOST), 5),
    ],
)
def test_pods_of_an_app_are_placed_without_questions(monkeypatch, plugin, spec, bound):
    asked = []
    found = plugin.open

    def opened(self, session):
        first, *others = found(self, session)
        return [attrs.evolve(first, filter=lambda pod, nodes: asked.append(pod) or first.filter(pod, nodes)), *others]

    monkeypatch.setattr(plugin, "open", opened)
    decisions, *_ = decided(snapshot_of(NODES, waiting(bound, spec)))
    assert len(decisions) == bound
    assert not asked


def nodes_by_pod(snapshot, decisions):
    return {snapshot.pods[each.pod].name: snapshot.nodes[each.node].name for each in decisions}


def test_zones_fill_evenly_while_pods_are_placed():
    snapshot = snapshot_of(NODES, waiting(5, spread("x")))
    decisions, *_ = decided(snapshot)
    zones = [NODES[name]["labels"][ZONE] for name in nodes_by_pod(snapshot, decisions).values()]
    assert {zones[0], zones[1]} == {zones[2], zones[3]} == {"p", "q"}


def test_a_leaving_pod_is_waited_for_without_other_nodes():
    there = {"old": {"queue": "a", "labels": {"app": "x"}, "each": {"gpu": 1}, "runs_on": "n0", "leaving": 1}}
    snapshot = snapshot_of(NODES, there | waiting(4, apart("x")))
    decisions, *_ = decided(snapshot)
    assert {type(each).__name__: each.node for each in decisions if each.node == 0} == {"Nominate": 0}
    assert sorted(each.node for each in decisions) == [0, 1, 2, 3]
