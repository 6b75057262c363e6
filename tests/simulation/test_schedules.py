"""Schedules of faults that kai must outlive with every invariant whole; those that it once did not are run for ever."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest
import yaml

from tests.simulation.bugs import BUGS, planted
from tests.simulation.faults import Episode
from tests.simulation.schedule import Plan, Result, run
from tests.simulation.shrinking import shrunk

# Six minutes of processor time, so that two cores need three; the nightly session runs thousands.
_SEEDS = range(1, 1 + int(os.environ.get("KAI_SCHEDULES", "300")))
_KEPT = Path(__file__).parent / "regressions"


def told(result: Result) -> str:
    """Return what a person needs who is to understand a broken invariant."""
    lines = [f"{when:9.3f}  {text}" for when, text in result.timeline]
    again = f"python -m tests.simulation --replay {result.plan.seed}"
    return "\n".join([*lines[-80:], *map(str, result.violations), again])


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_invariant_is_broken(seed: int) -> None:
    result = run(Plan.of(seed))
    assert result.is_good, told(result)


@pytest.mark.parametrize("path", sorted(_KEPT.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_was_mended_stays_mended(path: Path) -> None:
    kept = yaml.safe_load(path.read_text())
    episodes = tuple(Episode(**each) for each in kept.pop("episodes"))
    result = run(Plan(**{key: value for key, value in kept.items() if key != "about"}, episodes=episodes))
    assert result.is_good, f"{kept['about']}\n{told(result)}"


def test_a_seed_is_a_history() -> None:
    plan = attrs.evolve(Plan.of(2), seconds=20.0)
    first, second = run(plan), run(plan)
    assert (first.history, first.callbacks, first.timeline) == (second.history, second.callbacks, second.timeline)
    assert run(attrs.evolve(plan, seed=3)).history != first.history


@pytest.mark.parametrize("name", BUGS)
def test_every_deliberate_bug_is_planted_and_removed(name: str) -> None:
    before = [getattr(where, what) for where, what, _ in BUGS[name]()]
    with planted(name):
        pass
    patches = BUGS[name]()
    assert patches
    assert [getattr(where, what) for where, what, _ in patches] == before


def test_a_deliberate_bug_is_caught() -> None:
    with planted("binding_without_uid"):
        result = run(attrs.evolve(Plan.of(1), seconds=20.0))
    assert {each.invariant for each in result.violations} == {5}


def test_episodes_not_needed_for_a_violation_are_dropped() -> None:
    guilty = ("kill", "lag")
    episodes = tuple(
        Episode(kind=kind, start=float(number), seconds=1.0, replica=-1, strength=0.5)
        for number, kind in enumerate(("cuts", "kill", "pause", "doubles", "lag", "storm", "slow"))
    )
    plan = Plan(seed=1, episodes=episodes, replicas=3, shuffle=1.0)
    found = shrunk(plan, lambda tried: set(guilty) <= {each.kind for each in tried.episodes})
    assert tuple(each.kind for each in found.episodes) == guilty
    assert (found.replicas, found.shuffle) == (1, 0.0)
