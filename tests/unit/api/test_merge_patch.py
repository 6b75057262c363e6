from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.merge_patch import merge_patch, merged

JSON = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=2), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_turns_one_object_into_the_other(before, after):
    assert merged(before, merge_patch(before, after)) == after


@given(OBJECTS)
def test_equal_objects_need_no_patch(value):
    assert merge_patch(value, value) == {}


def test_null_removes_and_the_rest_stays():
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None}}) == {"a": {"c": 2}, "d": 3}


def test_a_mapping_replaces_what_is_none():
    assert merged({"a": [1]}, {"a": {"b": {"c": None, "d": 1}}}) == {"a": {"b": {"d": 1}}}
