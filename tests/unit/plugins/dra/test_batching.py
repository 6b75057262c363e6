"""Pods that are placed in batches get the nodes and devices that they would get one by one, in the same order."""

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.actions.allocate import Allocate
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.framework.decisions import Recorder
from kai.intake import take_snapshot
from kai.lab.scenarios.scenario import read_objects
from kai.lab.scenarios.shorthand import NOW, expand
from kai.plugins.dra.batching import turns
from kai.plugins.dra.claim_answers import Answers
from kai.testing import default_profile_with
from tests.unit.deciding.engine.test_batches import reasons_of
from tests.unit.plugins.dra.manifests import claim, device, device_class, exactly, matching, offer

PROFILE = default_profile_with()
ONE_BY_ONE = attrs.evolve(PROFILE, parameters=attrs.evolve(PROFILE.parameters, without=("batch",)))
BIG = 'device.attributes["gpu.example.com"].big'
ROOT = "gpu.example.com/root"
QUEUES = {"top": {}, "a": {"parent": "top", "quota": 2}, "b": {"parent": "top", "quota": 2, "limit": 4}}
SIZE = 'device.attributes["gpu.example.com"].size == "{}"'
LIKE = {
    "small": {"selectors": [SIZE.format("small")]},
    "half": {"selectors": [SIZE.format("half")]},
    "whole": {"selectors": [SIZE.format("whole")]},
    "any": {},
    "one": {},
    "two": {"count": 2},
    "big": {"selectors": [BIG]},
    "all": {"every": True},
    "pair": {"count": 2},
    "three": {"count": 3},
    "class": {},
}


@st.composite
def clusters(draw):
    """Return a cluster with nodes of whole devices, some held, and groups that ask for devices in several ways."""
    extended = draw(st.sampled_from(["", "nvidia.com/gpu", "example.com/dev"]))
    objects, groups = [device_class(extended=extended)], {}
    nodes = draw(st.integers(1, 4))
    for node in range(nodes):
        kinds = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=6))
        made = [device(f"d{at}", attributes={"big": big, "root": f"r{root}"}) for at, (big, root) in enumerate(kinds)]
        objects.append(offer(f"n{node}", *made))
        for at in draw(st.sets(st.integers(0, max(0, len(kinds) - 1)), max_size=len(kinds) // 2)):
            name = f"r-{node}-{at}"
            users = draw(st.sampled_from([(f"default-{name}-0",), ("gone",)]))
            objects.append(claim(name, queue="a", held=[(f"n{node}", f"d{at}")], users=users))
            groups[name] = {"queue": "a", "runs_on": f"n{node}", "leaving": int(draw(st.integers(0, 9)) == 0)}
    for at, like in enumerate(draw(st.lists(st.sampled_from([*LIKE, "plain", "shared"]), min_size=1, max_size=8))):
        members = draw(st.sampled_from([1, 1, 1, 2, 3]))
        groups[f"w{at}"] = {"queue": draw(st.sampled_from("ab")), "members": members, "like": like}
        groups[f"w{at}"]["minimum"] = draw(st.integers(1, members))
        groups[f"w{at}"]["preemptible"] = draw(st.booleans())
    return taken(
        {f"n{node}": {"cpu": draw(st.sampled_from([2, 64]))} for node in range(nodes)}, objects, groups, extended
    )


@st.composite
def divided_clusters(draw):
    """Return a cluster whose GPUs are divided unevenly by two counters, with parts in use and groups that want some."""
    objects, groups, nodes = [device_class()], {}, draw(st.integers(1, 3))
    memory, units = draw(st.integers(4, 8)), draw(st.integers(3, 7))
    for node in range(nodes):
        made, gpus = [], draw(st.integers(0, 2))
        for gpu in range(gpus):
            made.append(part(f"whole-{gpu}", "whole", gpu, memory, units))
            made += [part(f"half-{gpu}-{at}", "half", gpu, memory // 2, units // 2) for at in range(2)]
            made += [part(f"small-{gpu}-{at}", "small", gpu, 1, draw(st.integers(0, 2))) for at in range(4)]
        sets = [{"name": f"card-{gpu}", "counters": drawn(memory, units)} for gpu in range(gpus)]
        objects.append(offer(f"n{node}", *made, sharedCounters=sets))
        for gpu in range(gpus):
            for held in draw(st.sampled_from([[], [], ["small-{}-1"], ["half-{}-0", "small-{}-0"]])):
                name = f"r-{node}-{held.format(gpu)}"
                users = draw(st.sampled_from([(f"default-{name}-0",), (f"default-{name}-0",), ("gone",)]))
                objects.append(claim(name, queue="a", held=[(f"n{node}", held.format(gpu))], users=users))
                groups[name] = {"queue": "a", "runs_on": f"n{node}", "leaving": int(draw(st.integers(0, 19)) == 0)}
    wanted = ["small", "small", "half", "whole", "any", "plain", "shared"]
    for at, like in enumerate(draw(st.lists(st.sampled_from(wanted), min_size=1, max_size=9))):
        members = draw(st.sampled_from([1, 1, 1, 2, 3]))
        groups[f"w{at}"] = {"queue": draw(st.sampled_from("ab")), "members": members, "like": like}
        groups[f"w{at}"]["minimum"] = draw(st.integers(1, members))
        groups[f"w{at}"]["preemptible"] = draw(st.booleans())
    return taken({f"n{node}": {"cpu": draw(st.sampled_from([2, 64]))} for node in range(nodes)}, objects, groups)


def drawn(memory, units):
    return {"memory": {"value": f"{memory}Gi"}, "units": {"value": str(units)}}


def part(name, size, gpu, memory, units):
    counters = {key: each for key, each in drawn(memory, units).items() if each["value"] not in ("0", "0Gi")}
    consumed = [{"counterSet": f"card-{gpu}", "counters": counters}]
    return device(name, attributes={"size": size}, consumesCounters=consumed)


def taken(nodes, objects, groups, extended=""):
    """Return the snapshot; each pod of a group has a claim of its own unless its likeness says otherwise."""
    likes = {name: group.pop("like", "") for name, group in groups.items()}
    found = expand({"cluster": {"nodes": nodes, "objects": objects}, "queues": QUEUES, "groups": groups}, "cluster")
    more = []
    for each in found:
        if each["kind"] != "Pod":
            continue
        name = each["metadata"]["name"]
        group, _, member = name.rpartition("-")
        like = likes[group]
        if like == "class" and extended:
            amounts = each["spec"]["containers"][0].setdefault("resources", {})
            for kind in ("requests", "limits"):
                amounts.setdefault(kind, {})[extended] = "1"
        elif like != "plain":
            own = group if like in ("", "shared") else f"{group}-{member}"
            each["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": own}]
            if like and (like != "shared" or member == "0"):
                constraints = [matching(ROOT, "r")] if like in ("pair", "three") else []
                asked = exactly(**({"count": 3} if like == "three" else LIKE.get(like, {})))
                more.append(claim(own, asked, queue=_queue_of(found, group), constraints=constraints))
    return take_snapshot(read_objects([*found, *more], "cluster")[0], NOW)


def _queue_of(objects, group):
    return next(
        each["spec"]["queue"] for each in objects if each["kind"] == "PodGroup" and each["metadata"]["name"] == group
    )


def allocated(snapshot, profile):
    """Return what allocate decides, the ledger but for what is counted ahead, and why groups were refused."""
    sink = Recorder()
    session = Session(snapshot, profile, sink, Silent())
    Allocate().run(session)
    arena = session.ledger.arena.copy()
    for plugin in session.policy.plugins:
        if plugin.placement is not None and plugin.placement.batch is not None:
            room = plugin.placement.batch.room
            arena[room.offset : room.offset + room.cells] = 0
    report = run_cycle(snapshot, profile, Recorder())
    return [repr(each) for each in sink.decisions], arena.tolist(), report.details, reasons_of(report)


@given(snapshot=clusters())
@settings(max_examples=150, deadline=None)
def test_batches_decide_and_book_what_single_pods_do(snapshot):
    assert allocated(snapshot, PROFILE) == allocated(snapshot, ONE_BY_ONE)


@given(snapshot=divided_clusters())
@settings(max_examples=200, deadline=None)
def test_parts_of_gpus_are_booked_as_for_single_pods(snapshot):
    assert allocated(snapshot, PROFILE) == allocated(snapshot, ONE_BY_ONE)


@given(
    count=st.integers(1, 4),
    found=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), max_size=12, unique_by=lambda each: each[0]),
    is_alike=st.booleans(),
)
def test_turns_are_what_one_search_after_the_other_takes(count, found, is_alike):
    """The twin tries all sets of devices in order, as a search with backtracking does."""
    left, expected = sorted(found), []
    while True:
        sets = itertools.combinations(left, count)
        first = next((each for each in sets if not is_alike or len({value for _, value in each}) == 1), None)
        if first is None:
            break
        expected.append([row for row, _ in first])
        left = [each for each in left if each not in first]
    rows, values = (np.array([each[at] for each in sorted(found)], np.int64) for at in (0, 1))
    assert [*turns(count, rows, values if is_alike else None)] == expected


WHOLE = offer("n", "d0", "d1", "d2")
PARTS = offer(
    "n",
    *(part(f"small-{at}", "small", 0, 2, 1) for at in range(4)),
    part("whole", "whole", 0, 8, 4),
    sharedCounters=[{"name": "card-0", "counters": drawn(8, 4)}],
)


@pytest.mark.parametrize(("offered", "like"), [(WHOLE, "one"), (PARTS, "small")])
def test_no_search_is_made_for_pods_of_batches(monkeypatch, offered, like):
    """One by one the plugin searches devices for each pod."""
    asked = []
    found = Answers.choose

    def choose(self, pod, node):
        asked.append(pod)
        return found(self, pod, node)

    monkeypatch.setattr(Answers, "choose", choose)
    groups = {f"w{at}": {"queue": "a", "like": like} for at in range(3)}
    snapshot = taken({"n": {"cpu": 8}}, [device_class(), offered], groups)
    decisions, *_ = allocated(snapshot, PROFILE)
    assert len(decisions) == 3
    assert not asked
    allocated(snapshot, ONE_BY_ONE)
    assert asked
