import marshal

from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec import pod_templates
from kai.api.codec.pod_templates import shared

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, "", "1", "true", "ü"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


def counting():
    """A reader that returns what it was given, in a list, and the list of all that it was given."""
    seen = []

    def read(value, _=None):
        seen.append(value)
        return [value]

    return shared(read), seen


@given(st.lists(VALUES, max_size=12))
def test_what_is_returned_is_what_would_have_been_read(values):
    read, _ = counting()
    for value in values:
        assert repr(read(value)) == repr([value])


def test_equal_values_are_one_object_and_read_once():
    read, seen = counting()
    assert read({"a": [1]}) is read({"a": [1]})
    assert seen == [{"a": [1]}]


def test_equal_numbers_of_different_type_are_different_values():
    read, seen = counting()
    assert [repr(read(value)) for value in (1, 1.0, True)] == ["[1]", "[1.0]", "[True]"]
    assert len(seen) == 3


def test_what_is_not_json_is_read_afresh():
    read, seen = counting()
    value = object()
    assert read(value) is not read(value)
    assert len(seen) == 2


def test_recent_values_are_remembered_within_a_bound(monkeypatch):
    monkeypatch.setattr(pod_templates, "_MOST", 4)
    read, seen = counting()
    for number in range(100):
        read("always")
        read(number)
    assert seen.count("always") == 1
    read(3)
    assert seen.count(3) == 2


def test_bytes_are_bounded_as_well(monkeypatch):
    monkeypatch.setattr(pod_templates, "_MOST_BYTES", 100)
    read, seen = counting()
    for _ in range(2):
        for number in range(20):
            read("x" * 30 + str(number))
    assert len(seen) == 40


def test_a_value_that_is_too_long_is_not_remembered(monkeypatch):
    monkeypatch.setattr(pod_templates, "_LONGEST", 20)
    read, seen = counting()
    for text in ("short", "short", "x" * 30, "x" * 30):
        read(text)
    assert seen == ["short", "x" * 30, "x" * 30]
    assert len(marshal.dumps("x" * 30, 2)) > 20
