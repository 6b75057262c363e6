"""Results for pages: small runs whose figures are known by hand, from the cases of virtual time."""

from functools import cache

import attrs

from kai.lab.virtual.results.metrics import PolicyInput, result_of
from kai.lab.virtual.results.result import SimulationResult
from kai.lab.virtual.running.simulation import run
from tests.unit.lab.virtual.builders import case, scene_of

EIGHT_HOURS = 8 * 3600.0


@cache
def reclaimed() -> SimulationResult:
    """Return the run that is worked out by hand in cases/reclaim.yaml."""
    return result_of(run(scene_of(case("reclaim.yaml")), until=EIGHT_HOURS))


@cache
def sooner() -> SimulationResult:
    """Return the same workload with an owner that comes at once, under another name."""
    text = case("reclaim.yaml").replace("simulation.kai.scheduler/arrival: 1h", "simulation.kai.scheduler/arrival: 1s")
    assert text != case("reclaim.yaml")
    return attrs.evolve(result_of(run(scene_of(text), until=EIGHT_HOURS), PolicyInput(name="sooner")))
