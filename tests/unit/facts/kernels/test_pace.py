import pytest

from kai.facts.compiled import pace, warm
from kai.facts.compiled.pace import WORTH_COMPILING, WORTH_LOADING, Pace, work_of


@pytest.fixture
def asked(monkeypatch):
    """Count how often the cache is looked at; kernels are missing from it."""
    looked = []
    monkeypatch.setattr(warm, "missing", lambda: looked.append(1) or [object()])
    return looked


def test_work_grows_with_waiting_and_present_objects():
    assert work_of(nodes=13, pods=100, waiting=50) == 51 * 113
    assert work_of(nodes=0, pods=0, waiting=0) == 0


def test_little_work_runs_plainly_without_reading_the_cache(asked):
    counted = Pace()
    counted.add(WORTH_LOADING - 5)
    assert not counted.wants_compiled(5)
    assert not asked


def test_cached_kernels_are_loaded_once_work_is_worth_it(monkeypatch):
    monkeypatch.setattr(warm, "missing", list)
    counted = Pace()
    assert counted.wants_compiled(WORTH_LOADING + 1)
    counted.add(WORTH_LOADING)
    assert counted.wants_compiled(1)


def test_a_caller_that_ends_soon_may_load_later(monkeypatch):
    monkeypatch.setattr(warm, "missing", list)
    patient = Pace(2 * WORTH_LOADING)
    assert not patient.wants_compiled(2 * WORTH_LOADING)
    assert patient.wants_compiled(2 * WORTH_LOADING + 1)


def test_uncached_kernels_compile_only_for_much_work(asked):
    counted = Pace()
    assert not counted.wants_compiled(WORTH_LOADING + 1)
    counted.add(WORTH_COMPILING - 1)
    assert not counted.wants_compiled(1)
    assert len(asked) == 1
    counted.add(1)
    assert counted.wants_compiled(1)
    assert Pace().wants_compiled(WORTH_COMPILING + 1)


def test_limits_are_in_the_order_of_what_they_cost():
    assert pace.WORTH_LOADING < pace.WORTH_COMPILING


@pytest.fixture
def running(monkeypatch):
    """Remember what is said about how kernels run, and with which plugins they are loaded."""
    said = []
    monkeypatch.setattr(pace, "is_plain", lambda: None)
    monkeypatch.setattr(pace, "run_plainly", lambda: said.append("plainly"))
    monkeypatch.setattr(pace, "run_compiled", lambda: said.append("compiled"))
    monkeypatch.setattr(warm, "missing", lambda *_modules: [object()])
    monkeypatch.setattr(warm, "warm", lambda *modules, tell: said.append((*modules, tell(0, 0))))
    return said


def test_small_clusters_run_plainly_and_large_ones_wait(running):
    counted = Pace()
    counted.settle(5, ("plugin",), lambda *_told: None)
    counted.settle(WORTH_COMPILING + 1, ("plugin",), lambda *told: told[0])
    assert running == ["plainly", ("plugin", 0), "compiled"]


def test_cached_kernels_load_lazily_with_their_first_call(running, monkeypatch):
    monkeypatch.setattr(warm, "missing", lambda *_modules: [])
    Pace().settle(WORTH_LOADING + 1, ("plugin",), print)
    assert running == ["compiled"]


def test_what_runs_compiled_is_left_so(running, monkeypatch):
    monkeypatch.setattr(pace, "is_plain", lambda: False)
    Pace().settle(5, (), print)
    assert running == []
