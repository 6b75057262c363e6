from pathlib import Path

import pytest
from hypothesis import given

from kai.intake import take_snapshot
from kai.testing import load_scenario
from tests.properties.strategies import contended, snapshots
from tests.properties.turns import is_restless, turns_of

ONCE_RESTLESS = {
    "a-pod-is-not-moved-to-a-place-that-it-will-not-get": 1,
    "a-pod-that-moves-does-not-return-to-what-it-left": 3,
}
"""Scenarios that moved pods in a circle, and how many cycles they take now."""


@given(snapshots(groups=(2, 6)))
def test_clusters_come_to_rest(snapshot):
    counts = turns_of(snapshot)
    assert not is_restless(counts), counts


@given(contended())
def test_queues_that_fight_for_devices_come_to_rest(snapshot):
    counts = turns_of(snapshot)
    assert not is_restless(counts), counts


@pytest.mark.parametrize(("name", "cycles"), ONCE_RESTLESS.items())
def test_a_cluster_that_once_moved_pods_endlessly_rests(name, cycles):
    case = load_scenario(Path(__file__).parents[1] / "scenarios" / "consolidate" / f"{name}.yaml")
    counts = turns_of(take_snapshot(case.objects, case.now))
    assert len(counts) == cycles, counts
