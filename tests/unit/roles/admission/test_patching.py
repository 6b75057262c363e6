import copy

from hypothesis import given
from hypothesis import strategies as st

from kai.roles.admission.pods import json_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
MANIFESTS = st.dictionaries(st.sampled_from(["a", "b/c", "~", "d~1"]) | st.text(max_size=2), JSON, max_size=4)


def apply(document, operations):
    document = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        target = document
        for step in parents:
            target = target[int(step) if isinstance(target, list) else step]
        if operation["op"] == "remove":
            del target[int(last) if isinstance(target, list) else last]
        elif isinstance(target, list) and operation["op"] == "add":
            target.insert(int(last), operation["value"])
        else:
            target[int(last) if isinstance(target, list) else last] = operation["value"]
    return document


@given(MANIFESTS, MANIFESTS)
def test_applying_a_patch_gives_the_other_manifest(before, after):
    assert apply(before, json_patch(before, after)) == after


@given(MANIFESTS)
def test_equal_manifests_need_no_patch(manifest):
    assert json_patch(manifest, copy.deepcopy(manifest)) == ()


def test_slashes_and_tildes_in_keys_are_escaped():
    assert json_patch({"a/b~c": 1}, {}) == ({"op": "remove", "path": "/a~1b~0c"},)


def test_true_is_not_one():
    assert json_patch({"a": 1}, {"a": True}) == ({"op": "replace", "path": "/a", "value": True},)


def test_removals_from_a_list_go_from_its_end():
    patch = json_patch({"a": [1, 2, 3]}, {"a": [1]})
    assert [operation["path"] for operation in patch] == ["/a/2", "/a/1"]


def test_parts_that_are_identical_objects_are_not_iterated():
    class Untouchable(dict):
        def __iter__(self):
            raise AssertionError

    part = Untouchable(x=1)
    assert json_patch({"a": part, "b": 1}, {"a": part, "b": 2}) == ({"op": "replace", "path": "/b", "value": 2},)
