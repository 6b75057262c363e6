"""What the plugin keeps of its answers makes no difference to decisions, nor does what it says of victims."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.basics.kubernetes_version import KubernetesVersion
from kai.deciding.engine.cycle import run_cycle
from kai.framework.decisions import Recorder
from kai.intake import take_snapshot
from kai.lab.scenarios.scenario import read_objects
from kai.lab.scenarios.shorthand import NOW, expand
from kai.plugins.dra import claim_answers
from kai.testing import default_profile_with
from tests.unit.plugins.dra.manifests import claim, device, device_class, exactly, offer
from tests.upstream import devices

PROFILE = default_profile_with()
PLAIN = attrs.evolve(PROFILE, parameters=attrs.evolve(PROFILE.parameters, without=("hopeless",)))


class Forgetful(claim_answers.Kept):
    """The twin that keeps nothing."""

    def met(self, asking, nodes, meet):
        return meet(nodes)

    def found(self, asking, node, search):
        return search()


@pytest.fixture(scope="module")
def forgetting():
    """Return a function that calls another while the plugin keeps nothing."""

    def call(function):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(claim_answers, "Kept", Forgetful)
            return function()

    return call


@given(seed=st.integers(0, 100_000))
@settings(max_examples=60)
def test_devices_are_those_that_fresh_searches_find(forgetting, seed):
    cluster, version = devices.drawn(seed), KubernetesVersion(1, 37)
    assert devices.answers(cluster, version) == forgetting(lambda: devices.answers(cluster, version))


BIG = 'device.attributes["gpu.example.com"].big'
wanted = st.sampled_from([{"count": 1}, {"count": 2}, {"count": 1, "selectors": [BIG]}])


@st.composite
def contended(draw):
    """Return a cluster whose devices a lender has, some through claims with users that are not there."""
    nodes, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    objects, groups = [device_class()], {}
    for node in range(nodes):
        kinds = draw(st.lists(st.booleans(), min_size=each, max_size=each))
        objects.append(offer(f"n{node}", *(device(f"d{at}", attributes={"big": big}) for at, big in enumerate(kinds))))
        for at in range(each):
            name = f"r-{node}-{at}"
            users = draw(st.sampled_from([(f"{name}-0",), ("gone",), (f"{name}-0", "gone")]))
            objects.append(claim(name, queue="lend", held=[(f"n{node}", f"d{at}")], users=users))
            groups[name] = {"queue": "lend", "runs_on": f"n{node}", "spec": naming(name)}
    for at, asks in enumerate(draw(st.lists(wanted, min_size=1, max_size=4))):
        objects.append(claim(f"w-{at}", exactly(**asks), queue="own"))
        groups[f"w-{at}"] = {"queue": "own", "spec": naming(f"w-{at}")}
    return taken({f"n{node}": {} for node in range(nodes)}, objects, groups)


def taken(nodes, objects, groups):
    queues = {"top": {}, "lend": {"parent": "top", "quota": 0}, "own": {"parent": "top", "quota": 8}}
    document = {"cluster": {"nodes": nodes, "objects": objects}, "queues": queues, "groups": groups}
    return take_snapshot(read_objects(expand(document, "cluster"), "cluster")[0], NOW)


def naming(name):
    return {"resourceClaims": [{"name": "r", "resourceClaimName": name}]}


def decided(snapshot, profile):
    sink = Recorder()
    run_cycle(snapshot, profile, sink)
    return [repr(each) for each in sink.decisions]


@given(snapshot=contended())
@settings(max_examples=60)
def test_what_is_known_of_victims_changes_no_decision(forgetting, snapshot):
    quick = decided(snapshot, PROFILE)
    assert quick == decided(snapshot, PLAIN)
    assert quick == forgetting(lambda: decided(snapshot, PROFILE))


@pytest.mark.parametrize(("profile", "is_tried"), [(PROFILE, False), (PLAIN, True)], ids=["known", "not known"])
def test_victims_whose_devices_others_hold_are_not_tried(monkeypatch, profile, is_tried):
    """All devices are held through claims whose users are not there."""
    tried = []
    found = claim_answers.Answers.effects

    def effects(self, pod, node, detail):
        tried.append(pod)
        return found(self, pod, node, detail)

    monkeypatch.setattr(claim_answers.Answers, "effects", effects)
    held = [claim(f"r-{at}", queue="lend", held=[("n", f"d{at}")], users=("gone",)) for at in range(2)]
    groups = {f"r-{at}": {"queue": "lend", "runs_on": "n", "spec": naming(f"r-{at}")} for at in range(2)}
    groups["w"] = {"queue": "own", "spec": naming("w")}
    objects = [device_class(), offer("n", "d0", "d1"), *held, claim("w", queue="own")]
    assert decided(taken({"n": {}}, objects, groups), profile) == []
    assert bool(tried) == is_tried
