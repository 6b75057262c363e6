from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec import json_values
from kai.api.codec.json_values import same
from kai.api.codec.structuring import structure


def afresh(word):
    """Return an equal string that is another object."""
    return "".join([*word, "-"])[:-1]


@given(st.lists(st.text(max_size=40)))
def test_an_equal_string_is_given_for_each(texts):
    assert [same(text) for text in texts] == texts


def test_of_equal_words_that_come_again_there_is_one():
    first = same(afresh("team-a"))
    assert same(afresh("team-a")) is first
    for number in range(1000):
        same(f"unique-{number}")
    assert same(afresh("team-a")) is first


def test_what_is_remembered_has_bounds():
    for number in range(10_000):
        same(f"unique-{number}")
        same("x" * 40 + str(number))
    kept = {**json_values._young, **json_values._old}
    assert len(kept) <= 2048
    assert max(map(len, kept)) <= 32


def test_objects_share_label_values_and_owner_kinds():
    def pod(name):
        owner = {"apiVersion": afresh("batch/v1"), "kind": afresh("Job"), "name": name, "uid": f"uid-{name}"}
        labels = {"queue": afresh("team-a"), "job": name}
        metadata = {"name": name, "namespace": "n", "labels": labels, "ownerReferences": [owner]}
        return structure({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).metadata

    one, other = pod("one"), pod("other")
    assert one.labels["queue"] is other.labels["queue"]
    assert one.owner_references[0].kind is other.owner_references[0].kind


@given(
    st.lists(st.dictionaries(st.sampled_from(["app", "a/b", "", "__class__", "__dict__", "z"]), st.text()), max_size=40)
)
def test_labels_are_equal_whatever_came_before(many):
    read = [json_values.labels(each) for each in many]
    assert read == many
    assert [list(each) for each in read] == [list(each) for each in many]
