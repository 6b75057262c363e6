import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.compiled.jit import kernel
from kai.facts.compiled.struct import Float64s, Float64Table, Int64s
from kai.facts.kernels import arrays
from tests.kernels.naive import arrays as naive

few = st.sampled_from((-1.0, 0.0, 0.5, 1.0, 2.0, 1e9, float("inf")))
keys = st.lists(few | st.floats(allow_nan=False), max_size=70)


@kernel
def ascending(keys: Float64s) -> Int64s:
    return arrays.ascending(keys)


@kernel
def falling(keys: Int64s) -> Int64s:
    return arrays.falling(keys)


@kernel
def copy_table(source: Float64Table, target: Float64Table) -> None:
    arrays.copy_table(source, target)


@given(keys)
def test_least_keys_sort_first_and_equal_ones_stay(drawn):
    assert ascending(np.array(drawn, np.float64)).tolist() == naive.ascending(drawn)


@given(st.lists(st.integers(-5, 5), max_size=40))
def test_the_greatest_number_goes_first(drawn):
    assert falling(np.array(drawn, np.int64)).tolist() == naive.falling(drawn)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_table_is_copied_to_anothers_first_rows(rows):
    source, target = np.arange(rows * 3, dtype=np.float64).reshape(rows, 3), np.full((4, 3), -1.0)
    copy_table(source, target)
    assert (target[:rows] == source).all()
    assert (target[rows:] == -1.0).all()
