import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.deciding.engine.policy import DistinctRows


def test_the_first_row_is_there_from_the_beginning():
    rows = DistinctRows(np.ones(3, np.bool_))
    assert rows.table.tolist() == [[True] * 3]
    assert rows.row_of(np.ones(3, np.bool_)) == 0
    assert len(rows.table) == 1


@given(st.lists(st.integers(0, 20)))
def test_equal_values_share_a_row_and_rows_never_change(numbers):
    rows = DistinctRows(np.zeros(2))
    found = {}
    for number in numbers:
        row = rows.row_of(np.full(2, float(number)))
        assert found.setdefault(number, row) == row
    assert len(set(found.values())) == len(found)
    assert all(rows.table[row].tolist() == [float(number)] * 2 for number, row in found.items())


def test_the_table_grows_by_doubling():
    rows = DistinctRows(np.zeros(1))
    lengths = []
    for number in range(1, 9):
        rows.row_of(np.array([float(number)]))
        lengths.append(len(rows.table))
    assert lengths == [2, 4, 4, 8, 8, 8, 8, 16]


def test_rows_are_told_apart_by_their_bits():
    rows = DistinctRows(np.zeros(1))
    nan = rows.row_of(np.array([np.nan]))
    assert rows.row_of(np.array([np.nan])) == nan
    assert rows.row_of(np.array([-0.0])) not in {0, nan}


def test_a_held_table_keeps_its_rows_after_additions():
    rows = DistinctRows(np.zeros(1))
    rows.row_of(np.array([1.0]))
    before = rows.table
    rows.row_of(np.array([2.0]))
    assert rows.table is not before
    assert before.tolist() == [[0.0], [1.0]]
    assert rows.table.flags.c_contiguous
