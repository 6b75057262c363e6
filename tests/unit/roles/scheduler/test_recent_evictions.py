import attrs
import pytest

from kai.deciding.configuration.profile_reading import default_configuration
from kai.framework.parameters import Parameters
from kai.roles.scheduler.committing.operations import EvictionOperation
from kai.roles.scheduler.effects import Decided
from kai.roles.scheduler.feedback.memories import HOUR, RecentEvictions
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.roles.scheduler.test_committer import cluster
from tests.unit.roles.scheduler.test_committer_evictions import budget


def test_what_was_evicted_counts_for_an_hour_by_queue():
    lately = RecentEvictions()
    lately.note("a", "one", 2000, 0.0)
    lately.note("b", "two", 500, 10.0)
    lately.note("c", "one", 1000, 20.0)
    assert lately.current(30.0) == (("one", 3000), ("two", 500))
    assert lately.next_due() == HOUR
    assert lately.current(HOUR + 5.0) == (("one", 1000), ("two", 500))
    assert lately.current(HOUR + 20.0) == ()
    assert lately.next_due() is None


def test_an_eviction_that_did_not_happen_is_taken_out():
    lately = RecentEvictions()
    lately.note("a", "one", 2000, 0.0)
    lately.forget("a")
    lately.forget("unknown")
    assert lately.current(1.0) == ()


def test_a_repeated_eviction_counts_once_from_its_latest_time():
    lately = RecentEvictions()
    lately.note("a", "one", 2000, 0.0)
    lately.note("b", "one", 1000, 5.0)
    lately.note("a", "one", 2000, 10.0)
    assert lately.current(11.0) == (("one", 3000),)
    assert lately.current(HOUR + 5.0) == (("one", 2000),)


def test_old_evictions_are_forgotten_without_any_cap():
    lately = RecentEvictions()
    lately.note("a", "one", 2000, 0.0)
    lately.note("b", "one", 1000, HOUR + 5.0)
    assert lately.next_due() == 2 * HOUR + 5.0


def test_pods_without_gpus_are_not_counted():
    lately = RecentEvictions()
    lately.note("a", "one", 0, 0.0)
    assert lately.next_due() is None


def capped():
    """Return settings with a cap that counts what was evicted within the hour."""
    parameters = Parameters(evicted_gpus_per_hour=100.0)
    return SchedulerSettings(configuration=attrs.evolve(default_configuration(), parameters=parameters))


def test_an_eviction_counts_for_its_queue_once_ordered():
    world = cluster(settings=capped())
    world.decide(world.evict("old"))
    (counted,) = world.committer.feedback.recent_evictions.current(world.time)
    assert counted == ("q", 1000)
    world.settle()
    assert world.committer.feedback.recent_evictions.current(world.time) == (counted,)


def test_evictions_are_not_counted_where_no_cap_asks():
    world = cluster()
    world.decide(world.evict("old"))
    assert world.committer.feedback.recent_evictions.next_due() is None


def test_an_eviction_that_a_budget_refuses_counts_no_more():
    world = cluster(budget(1), settings=capped())
    world.protected.add("old")
    world.decide(world.evict("old"))
    world.settle()
    assert world.committer.feedback.recent_evictions.current(world.time) == ()


def test_an_eviction_of_an_abandoned_statement_is_not_counted(monkeypatch):
    def failing(self):
        raise RuntimeError("broken")

    monkeypatch.setattr(EvictionOperation, "begin", failing)
    world = cluster(settings=capped())
    statement = Decided(term=world.term, cycle=1, snapshot=world.snapshot, decisions=(world.evict("old"),))
    with pytest.raises(RuntimeError):
        world.committer.step(statement, world.time)
    world.committer.abandon(statement)
    assert world.committer.feedback.recent_evictions.current(world.time) == ()
