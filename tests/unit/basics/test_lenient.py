import pytest

from kai.basics.parsing import has_condition, list_of, mapping_of, mappings_of, part_of, text_of

POD = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}, None, "x"]}}
ODD = [None, 7, "text", [], {}, {"metadata": None}, {"metadata": ["labels"]}, {"metadata": {"labels": 7}}]


def test_what_is_at_a_path_is_found():
    assert part_of(POD, "metadata", "name") == "p"
    assert part_of(POD) is POD
    assert mapping_of(POD, "metadata", "labels") == {"a": "b"}
    assert list_of(POD, "spec", "containers") == [{"name": "main"}, None, "x"]
    assert mappings_of(POD, "spec", "containers") == [{"name": "main"}]
    assert text_of(POD, "metadata", "name") == "p"


@pytest.mark.parametrize("odd", ODD)
def test_missing_or_misshapen_parts_count_as_absent(odd):
    assert part_of(odd, "metadata", "labels", "a") is None
    assert mapping_of(odd, "metadata", "labels") == {}
    assert list(list_of(odd, "metadata", "labels")) == []
    assert mappings_of(odd, "metadata", "labels") == []
    assert text_of(odd, "metadata", "labels") == ""


def test_a_condition_counts_when_it_is_true():
    status = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Failed", "status": "False"}, None]}
    assert has_condition({"status": status}, "Complete", "Ready")
    assert not has_condition({"status": status}, "Failed")
    assert not has_condition({}, "Ready")
