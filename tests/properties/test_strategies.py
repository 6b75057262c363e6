"""Any row of columns can be drawn, and an example shrinks to the first values of its columns."""

from itertools import product

import pytest
from hypothesis import find

from tests.properties.strategies import one_of_each

COLUMNS = ("ab", (1, 2, 3), (None,))


@pytest.mark.parametrize("wanted", list(product(*COLUMNS)), ids=str)
def test_every_row_is_drawn(wanted):
    assert find(one_of_each(*COLUMNS), lambda row: row == wanted) == wanted


def test_the_simplest_row_takes_each_columns_first_allowed_value():
    assert find(one_of_each(*COLUMNS), lambda _: True) == ("a", 1, None)
    assert find(one_of_each(*COLUMNS), lambda row: row[1] > 1) == ("a", 2, None)
