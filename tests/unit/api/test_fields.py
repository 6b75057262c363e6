import attrs
import pytest

from kai.api.fields import by_content, by_json, camel, is_shared, name_on_the_wire, shared, wire_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("name", "name"),
        ("node_name", "nodeName"),
        ("selected_gpu_groups", "selectedGPUGroups"),
        ("received_gpu", "receivedGPU"),
        ("predicted_numa_zones", "predictedNUMAZones"),
        ("transition_id", "transitionID"),
        ("host_ip", "hostIP"),
        ("usage_db_config", "usageDBConfig"),
        ("gpu", "gpu"),
        ("numa_placement_exporter", "numaPlacementExporter"),
        ("global_", "global"),
        ("k_value", "kValue"),
    ],
)
def test_json_names_follow_go(name: str, expected: str) -> None:
    assert camel(name) == expected


def test_a_field_may_pin_its_name_or_be_shared() -> None:
    @attrs.frozen
    class Part:
        one_word: str = attrs.field(default="", metadata=wire_name("Other"))
        two_words: str = attrs.field(default="", metadata=shared())

    one, two = attrs.fields(Part)
    assert (name_on_the_wire(one), is_shared(one)) == ("Other", False)
    assert (name_on_the_wire(two), is_shared(two)) == ("twoWords", True)


def test_mappings_compare_by_content_whatever_their_order() -> None:
    assert by_content({"a": 1, "b": 2}) == by_content({"b": 2, "a": 1})
    assert by_content(None) is None
    assert by_json({"a": [1], "b": {}}) == by_json({"b": {}, "a": [1]})
