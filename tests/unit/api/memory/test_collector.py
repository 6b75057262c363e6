import gc
import weakref

import pytest

from kai.api.memory import collect_young, growing, paused, settle, spared


def test_the_collector_rests_and_goes_on_afterwards() -> None:
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_a_failure() -> None:
    with pytest.raises(ValueError, match="odd"), paused():
        raise ValueError("odd")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.fixture
def thawed():
    """Leave the collector as it was."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("thawed")
def test_garbage_from_growing_is_collected_only_after_settling() -> None:
    found = weakref.ref(Knot())
    with growing():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.collect()
    assert found() is not None
    settle()
    assert found() is None


@pytest.mark.usefixtures("thawed")
def test_growing_leaves_a_disabled_collector_alone() -> None:
    gc.disable()
    before = gc.get_freeze_count()
    try:
        with growing():
            pass
        assert not gc.isenabled()
        assert gc.get_freeze_count() == before
    finally:
        gc.enable()


@pytest.mark.usefixtures("thawed")
def test_a_spared_program_is_collected_rarely_and_finally_frozen() -> None:
    gc.set_threshold(700)
    before = gc.get_freeze_count()
    with spared():
        rare, *_ = gc.get_threshold()
        assert gc.isenabled()
    assert rare > 100 * 700
    assert gc.get_freeze_count() > before


@pytest.mark.usefixtures("thawed")
def test_garbage_after_settling_is_freed_by_a_young_collection() -> None:
    before = weakref.ref(Knot())
    settle()
    assert before() is None
    found = weakref.ref(Knot())
    assert found() is not None
    collect_young()
    assert found() is None


@pytest.mark.usefixtures("thawed")
def test_a_young_collection_skips_what_existed_at_settling() -> None:
    knot = Knot()
    found = weakref.ref(knot)
    settle()
    del knot
    collect_young()
    assert found() is not None
    gc.unfreeze()
    gc.collect()
    assert found() is None
