import json
import os
import subprocess
import sys
from functools import lru_cache
from random import Random

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.api.cluster_objects import ClusterObjects, collect
from kai.api.codec.structuring import structure_all
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.shortcuts import TABLE as SHORTCUTS
from kai.facts.kernels.columns import UserFacts
from kai.facts.model.groups import Shares
from kai.framework.decisions import Recorder
from kai.framework.terms import FairShares
from kai.intake import take_snapshot
from kai.plugins.proportion import Proportion
from kai.testing.views import decision_lines
from tests.generate.draft import NOW
from tests.generate.features import Chosen
from tests.generate.scenario import generate
from tests.properties.strategies import contended, snapshots
from tests.properties.watch import profile

EVERYTHING = profile(shortcuts=True)
AT = NOW.timestamp()
SMALL = 70
seeds = st.integers(0, 10**6)


def decide(snapshot, using=EVERYTHING):
    """Return the decisions of a cycle, statement by statement, and everything else that it leaves behind."""
    sink = Recorder()
    report = run_cycle(snapshot, using, sink)
    state = {
        name: plain(value)
        for name, value in attrs.asdict(report, recurse=False).items()
        if name not in {"records", "last_start", "last_eviction", "stale_since", "partial_since"}
    }
    reasons = {group: (record.reasons, record.notes, record.pods) for group, record in report.records.items()}
    return sink.statements, state, reasons


def plain(value):
    """Return a value whose parts are compared by content."""
    if isinstance(value, UserFacts):
        return {name: plain(getattr(value, name)) for name in UserFacts.__annotations__}
    return value.tolist() if isinstance(value, np.ndarray) else value


@given(snapshots(groups=(2, 6)))
def test_equal_clusters_get_identical_decisions(snapshot):
    again = attrs.evolve(snapshot)
    assert decide(snapshot) == decide(again)


@given(contended())
def test_so_it_does_after_the_books_were_opened_once(snapshot):
    """What is kept with a snapshot for the next session must not have been changed by the last one."""
    assert decide(snapshot) == decide(snapshot, profile(shortcuts=True))  # another profile: nothing rests


@given(st.one_of(snapshots(groups=(2, 7)), contended()), st.sampled_from(SHORTCUTS))
def test_shortcuts_decide_as_their_plain_forms_do(snapshot, shortcut):
    quick, slow = decide(snapshot), decide(snapshot, profile())
    assert quick[:2] == slow[:2]
    assert quick[2].keys() == slow[2].keys()
    without = decide(snapshot, profile(shortcuts=True, without=(shortcut.name,)))
    assert without[:2] == slow[:2]
    assert without[2].keys() == slow[2].keys()


@lru_cache(maxsize=64)
def manifests_of(seed):
    """Return the objects of the first small cluster from ``seed`` on: large ones are as good, and slow."""
    while True:
        found = generate(seed, Chosen())["objects"]
        if len(found) <= SMALL:
            return found
        seed += 1


def objects_of(seed, shuffled):
    manifests = manifests_of(seed)
    if shuffled is not None:
        manifests = list(manifests)
        Random(shuffled).shuffle(manifests)
    return collect(structure_all(json.loads(json.dumps(manifests))).objects)


def decisions_on(objects: ClusterObjects) -> list[str]:
    taken = take_snapshot(objects, AT)
    sink = Recorder()
    run_cycle(taken, EVERYTHING, sink)
    return decision_lines(sink.decisions, taken)


@given(seeds, seeds)
def test_decisions_do_not_depend_on_the_order_of_objects(seed, order):
    assert decisions_on(objects_of(seed, None)) == decisions_on(objects_of(seed, order))


SAMPLE = range(40)
WITHOUT_JIT = """
import json
from tests.properties.test_determinism import SAMPLE, decisions_on, objects_of
print(json.dumps([decisions_on(objects_of(seed, None)) for seed in SAMPLE]))
"""


def test_decisions_do_not_depend_on_the_compiler():
    """Where kernels are plain Python in this process too, this says at least that another process decides the same."""
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_JIT],
        capture_output=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONHASHSEED": "7"},
    )
    assert json.loads(found.stdout) == [decisions_on(objects_of(seed, None)) for seed in SAMPLE]


@attrs.frozen
class EqualPast:
    """Fair shares of queues that all used equally much before."""

    shares: Proportion

    def open(self, session):
        past = np.full(len(session.snapshot.queues), 0.3)
        terms = self.shares.open(session)
        return [attrs.evolve(each, past_use=past) if isinstance(each, FairShares) else each for each in terms]


def with_proportion(using, change):
    """Return a profile with another plugin for fair shares."""
    plugins = [
        attrs.evolve(each, plugin=change(each.plugin)) if isinstance(each.plugin, Proportion) else each
        for each in using.plugins
    ]
    return attrs.evolve(using, plugins=tuple(plugins))


@given(st.one_of(snapshots(groups=(2, 7)), contended()))
def test_an_equal_past_moves_no_decision(snapshot):
    assert decide(snapshot)[0] == decide(snapshot, with_proportion(EVERYTHING, EqualPast))[0]


@given(contended(), st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_a_past_that_counts_nothing_moves_no_decision(snapshot, amounts):
    using = with_proportion(EVERYTHING, lambda each: attrs.evolve(each, k=0.0))
    queues = tuple(
        attrs.evolve(queue, usage=Shares(gpu=amounts[row % len(amounts)])) for row, queue in enumerate(snapshot.queues)
    )
    assert decide(snapshot, using)[0] == decide(attrs.evolve(snapshot, queues=queues), using)[0]
