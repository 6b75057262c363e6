import pytest

from kai.roles.admission.review import AdmissionRequest, AdmissionSettings
from kai.roles.admission.webhooks import validate


def ask(spec, operation="CREATE"):
    manifest = {"kind": "PodGroup", "metadata": {"name": "g", "namespace": "ns"}, "spec": spec}
    request = AdmissionRequest(operation=operation, kind="PodGroup", object=manifest, old_object=manifest)
    return validate(request, AdmissionSettings(), lambda _: None)


def leaf(name, parent=None, **fields):
    return {"name": name, "minMember": 1, **({} if parent is None else {"parent": parent}), **fields}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"minMember": 0},
        {"minSubGroup": 0},
        {"subGroups": []},
        {"minSubGroup": 2, "subGroups": [leaf("a"), leaf("b")]},
        {"subGroups": [{"name": "p", "minSubGroup": 1}, leaf("c", "p")]},
        {"subGroups": [{"name": "p"}, leaf("c", "p")]},
    ],
)
def test_a_sound_tree_passes_without_a_word(spec):
    for operation in ("CREATE", "UPDATE"):
        response = ask(spec, operation)
        assert (response.allowed, response.warnings) == (True, ())


@pytest.mark.parametrize(
    ("sub_groups", "message"),
    [
        ([leaf("a"), leaf("a")], "duplicate subgroup name a"),
        ([leaf("b", "x")], "parent x of b was not found"),
        ([leaf("b", "")], "parent  of b was not found"),
        ([leaf("a", "a")], "cycle detected in subgroups"),
        ([leaf("a", "b"), leaf("b", "a"), leaf("c")], "cycle detected in subgroups"),
        ([leaf("a", minSubGroup=1)], 'subgroup "a": minMember and minSubGroup are mutually exclusive'),
        ([{"name": "a"}], "subgroup a: minMember is required"),
        ([{"name": "p"}, {"name": "l", "parent": "p"}], "subgroup l: minMember is required"),
    ],
)
def test_a_broken_tree_is_refused_at_creation_and_update(sub_groups, message):
    for operation in ("CREATE", "UPDATE"):
        response = ask({"subGroups": sub_groups}, operation)
        assert not response.allowed
        assert response.message == message


def test_both_minimums_of_a_group_are_refused_first():
    response = ask({"minMember": 3, "minSubGroup": 1, "subGroups": [leaf("a"), leaf("a")]})
    assert response.message.startswith("minMember and minSubGroup are mutually exclusive: set minMember (3)")


def test_all_misplaced_minimums_are_listed_in_name_order():
    response = ask({"subGroups": [{"name": "z"}, {"name": "a", "minSubGroup": 1}]})
    assert response.message.split("\n") == [
        'subgroup "a": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)',
        "subgroup a: minMember is required",
        "subgroup z: minMember is required",
    ]


def test_a_parents_min_member_is_refused_only_at_creation():
    spec = {"subGroups": [leaf("p"), leaf("c", "p")]}
    assert not ask(spec, "CREATE").allowed
    changed = ask(spec, "UPDATE")
    assert changed.allowed
    assert "minMember cannot be set on a mid-level SubGroup" in changed.warnings[0]


def test_a_minimum_above_the_children_count_only_warns():
    spec = {"minSubGroup": 2, "subGroups": [{"name": "p", "minSubGroup": 5}, leaf("c", "p")]}
    for operation in ("CREATE", "UPDATE"):
        response = ask(spec, operation)
        assert response.allowed
        assert response.warnings == (
            'subgroup "p": minSubGroup (5) exceeds the number of direct child SubGroups (1)',
            "minSubGroup (2) exceeds the number of direct child SubGroups (1)",
        )


def test_warnings_accompany_a_refusal():
    response = ask({"minSubGroup": 9, "subGroups": [{"name": "a"}]})
    assert not response.allowed
    assert len(response.warnings) == 1


def test_a_group_may_always_be_deleted():
    assert ask({"subGroups": [leaf("a"), leaf("a")]}, "DELETE").allowed


def test_thousands_of_nested_sub_groups_are_read_without_recursion():
    nested = [{"name": "s0"}, *({"name": f"s{i}", "parent": f"s{i - 1}"} for i in range(1, 4096))]
    nested[-1]["minMember"] = 1
    assert ask({"subGroups": nested}).message.startswith("spec.subGroups: found sub-groups nested 4096 deep")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("text", 'podgroup ns/g: spec: found "text", expected an object'),
        ({"minMember": "3"}, 'podgroup ns/g: spec.minMember: found "3", expected a 32-bit integer'),
        ({"minMember": True}, "spec.minMember: found true"),
        ({"minMember": 2**31}, "spec.minMember: found 2147483648"),
        ({"subGroups": {"a": 1}}, "spec.subGroups: found"),
        ({"subGroups": [{"name": 1}]}, "spec.subGroups[0].name: found 1, expected a string"),
        ({"subGroups": [leaf("a", parent=4)]}, "spec.subGroups[0].parent: found 4, expected a string"),
    ],
)
def test_a_malformed_group_is_refused_with_the_fields_path(spec, message):
    response = ask(spec)
    assert not response.allowed
    assert response.malformed
    assert message in response.message


def chain(depth):
    inner = [{"name": f"s{at}", **({"parent": f"s{at - 1}"} if at else {})} for at in range(depth - 1)]
    return [*inner, leaf(f"s{depth - 1}", f"s{depth - 2}")]


@pytest.mark.parametrize(
    ("sub_groups", "message"),
    [
        (chain(17), "spec.subGroups: found sub-groups nested 17 deep, expected at most 16"),
        (chain(500), "spec.subGroups: found sub-groups nested 500 deep, expected at most 16"),
        ([leaf(f"s{at}") for at in range(4097)], "spec.subGroups: found 4097 sub-groups, expected at most 4096"),
    ],
)
def test_a_too_deep_or_too_large_tree_is_refused(sub_groups, message):
    for operation in ("CREATE", "UPDATE"):
        response = ask({"subGroups": sub_groups}, operation)
        assert (response.allowed, response.message) == (False, message)
    assert ask({"subGroups": chain(16)}).allowed
    assert ask({"subGroups": [leaf(f"s{at}") for at in range(4096)]}).allowed


def test_too_many_annotations_are_refused_only_at_creation():
    manifest = {"kind": "PodGroup", "metadata": {"name": "g", "annotations": {"big": "x" * 70_000}}, "spec": {}}
    for operation, said in (("CREATE", "metadata.annotations: found 70,003 characters"), ("UPDATE", "")):
        request = AdmissionRequest(operation=operation, kind="PodGroup", object=manifest, old_object=manifest)
        response = validate(request, AdmissionSettings(), lambda _: None)
        assert response.allowed is not bool(said)
        assert response.message.startswith(said)
