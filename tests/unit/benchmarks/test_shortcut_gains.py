"""Each shortcut has a workload to be measured on, and both forms decide the same there."""

import pytest

from benchmarks.catalogue import find_workload
from benchmarks.shortcut_gains import Case, Gain, case_of, measure
from kai.deciding.engine.shortcuts import ALLOCATE, HOPELESS, SAME_TRY, TABLE

MEASURED = [shortcut for shortcut in TABLE if shortcut not in {HOPELESS, SAME_TRY}]
SMALL = Case(workload=find_workload("w0"))


@pytest.mark.parametrize("shortcut", MEASURED, ids=lambda each: each.name)
def test_a_case_leaves_out_its_shortcut_alone(shortcut):
    case = case_of(shortcut)
    profile = case.profile((shortcut.name,))
    assert profile.parameters.without == (*case.never, shortcut.name)
    assert profile.parameters.shortcuts
    assert case.profile().parameters.without == case.never


def test_only_held_is_measured_without_another_shortcut():
    cases = {shortcut.name: case_of(shortcut) for shortcut in MEASURED}
    assert {name: case.never for name, case in cases.items() if case.never} == {"held": ("transitions",)}


def test_both_forms_decide_alike_while_they_are_measured():
    gain = measure(SMALL, ALLOCATE, rounds=1)
    assert gain.is_same
    assert gain.without_ms > 0
    assert gain.with_ms > 0


@pytest.mark.parametrize(
    ("without", "with_it", "enough"), [(100.0, 95.0, True), (100.0, 96.0, False), (1.0, 2.0, False)]
)
def test_a_gain_below_five_percent_is_too_little(without, with_it, enough):
    assert Gain(without_ms=without, with_ms=with_it, is_same=True).is_enough is enough
