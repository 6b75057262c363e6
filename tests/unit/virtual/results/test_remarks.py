"""What is worth knowing of a run, in sentences."""

import attrs
import pytest

from kai.virtual.results.metrics import PolicyInput, result_of
from kai.virtual.results.remarks import remarks
from kai.virtual.running.simulation import run
from tests.unit.virtual.builders import case, scene_of


@pytest.mark.parametrize(("cause", "said"), [("reclaim", "reclaim"), ("preempt", "preemption")])
def test_what_jobs_got_by_evictions_is_said_with_a_noun(cause: str, said: str):
    result = result_of(run(scene_of(case("reclaim.yaml")), until=8 * 3600.0), PolicyInput(name="default"))
    evictions = tuple(attrs.evolve(each, cause=cause) for each in result.evictions)
    first, *_ = remarks(attrs.evolve(result, evictions=evictions))
    assert first == f"1 job got GPUs by {said}; it waited 30s for pods to terminate."
