import gc

import pytest

from kai.api.collector import paused


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
