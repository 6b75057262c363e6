import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.model.constraints import Requirement, Selector
from kai.framework.objects import LabelTable

ROWS = ({"a": "1", "b": "x"}, {"a": "2"}, {}, {"a": "10"}, {"a": "word"})


def test_codes_follow_value_order_and_zero_means_absent():
    assert LabelTable(ROWS).codes("a").tolist() == [1, 3, 0, 2, 4]
    assert LabelTable(ROWS).codes("b").tolist() == [1, 0, 0, 0, 0]
    assert LabelTable(ROWS).codes("c").tolist() == [0, 0, 0, 0, 0]


def test_a_key_on_no_row_reads_no_rows():
    """Users may name any number of keys, and each would be a column of all nodes."""

    class Row(dict):
        reads = 0

        def get(self, key):
            Row.reads += 1
            return super().get(key)

    table = LabelTable([Row(row) for row in ROWS])
    columns = [table.codes(f"nowhere-{at}") for at in range(100)]
    assert (Row.reads, len({id(each) for each in columns})) == (0, 1)
    assert table.codes("a").tolist() == [1, 3, 0, 2, 4]
    assert Row.reads == len(ROWS)


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ("1",), [True, False, False, False, False]),
        ("In", ("1", "10", "nowhere"), [True, False, False, True, False]),
        ("In", ("nowhere",), [False] * 5),
        ("NotIn", ("1", "2"), [False, False, True, True, True]),
        ("Exists", (), [True, True, False, True, True]),
        ("DoesNotExist", (), [False, False, True, False, False]),
        ("Gt", ("1",), [False, True, False, True, False]),
        ("Lt", ("10",), [True, True, False, False, False]),
        ("Gt", ("word",), [False] * 5),
    ],
)
def test_an_operator_means_what_kubernetes_says(operator, values, expected):
    assert LabelTable(ROWS).matches(Requirement("a", operator, values)).tolist() == expected


def test_all_requirements_must_hold_and_none_means_all_rows():
    table = LabelTable(ROWS)
    assert table.satisfies([Requirement("a", "Exists"), Requirement("b", "Exists")]).tolist() == [True] + [False] * 4
    assert table.satisfies([]).all()


def test_an_absent_selector_selects_nothing_and_empty_all():
    assert not LabelTable(ROWS).selects(None).any()
    assert LabelTable(ROWS).selects(Selector()).all()


def test_a_table_without_rows_answers():
    assert LabelTable([]).matches(Requirement("a", "Gt", ("1",))).tolist() == []


KEYS, VALUES = st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", "30", "x", ""])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
REQUIREMENTS = st.builds(Requirement, KEYS, OPERATORS, st.lists(VALUES, max_size=3).map(tuple))


@given(st.lists(st.dictionaries(KEYS, VALUES), max_size=6), st.lists(REQUIREMENTS, max_size=3))
def test_the_table_agrees_with_looking_at_each_row(rows, requirements):
    expected = [all(requirement.matches(row) for requirement in requirements) for row in rows]
    assert LabelTable(rows).satisfies(requirements).tolist() == expected
