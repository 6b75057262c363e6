import pytest

from benchmarks import engine
from benchmarks.clock import Stopwatch
from benchmarks.events import listed
from benchmarks.manifests import NOW
from benchmarks.modelled import BOUNDS, MODELS, USERS, changed
from tests.unit.benchmarks.test_budgeted import WORKLOAD


def cycle(batches):
    scheduler = engine.Live()
    for batch in batches:
        scheduler.take(batch)
    outcome = scheduler.cycle(NOW.timestamp() + 60, Stopwatch())
    return outcome.snapshot, scheduler.read(outcome)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_are_there_and_change_no_decision(bounds):
    nothing, plain = cycle(listed(WORKLOAD))
    snapshot, decided = cycle(changed(listed(WORKLOAD), BOUNDS[bounds]))
    assert decided == plain
    assert not any(each.models or each.per_user for each in nothing.queues)
    if bounds == "users":
        assert all(each.per_user.gpu > 0 for each in snapshot.queues)
        assert len({group.user for group in snapshot.groups}) == min(USERS, len(snapshot.groups))
    else:
        assert {each.gpu_model for each in snapshot.nodes} <= set(MODELS)
        assert all(set(each.models) >= set(MODELS) for each in snapshot.queues)
