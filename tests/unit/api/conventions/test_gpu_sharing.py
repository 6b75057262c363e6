import pytest

from kai.api.conventions.gpu_sharing import (
    ContainerPlace,
    SharedMaps,
    device_count,
    gpu_groups,
    group_label,
    group_labels,
    requests_fraction,
    shared_maps,
    sharing_container,
)
from kai.api.values import BadValue


@pytest.mark.parametrize("key", ["gpu-fraction", "gpu-memory"])
def test_a_sharing_annotation_requests_a_fraction_whatever_its_value(key):
    assert requests_fraction({key: "nonsense"})


def test_a_pod_without_such_annotations_shares_nothing():
    assert not requests_fraction({"gpu-fraction-num-devices": "2"})


def unread(*containers):
    """Return containers that read no config map."""
    return [(name, ()) for name in containers]


def test_the_first_container_gets_the_gpu_by_default():
    assert sharing_container({}, unread("init"), unread("a", "b")) == ContainerPlace(0)


def test_init_containers_are_searched_before_containers():
    annotations = {"gpu-fraction-container-name": "same"}
    assert sharing_container(annotations, unread("same"), unread("same")) == ContainerPlace(0, initial=True)
    assert sharing_container(annotations, unread("other"), unread("a", "same")) == ContainerPlace(1)


def test_the_container_mounting_the_config_map_gets_the_gpu():
    annotations = {"runai/shared-gpu-configmap": "maps-abc"}
    assert sharing_container(
        annotations, [], [*unread("in front"), ("main", ["else", "maps-abc-0"])]
    ) == ContainerPlace(1)


def test_a_missing_sharing_container_is_refused_by_name():
    with pytest.raises(BadValue, match='found "c", expected the name of a container'):
        sharing_container({"gpu-fraction-container-name": "c"}, unread("a"), unread("b"))


def test_a_pod_without_containers_is_refused():
    with pytest.raises(BadValue, match="at least one container"):
        sharing_container({}, unread("init"), [])


def test_config_map_names_end_in_the_containers_place():
    annotations = {"runai/shared-gpu-configmap": "p-abc-shared-gpu"}
    assert shared_maps(annotations, ContainerPlace(2)) == SharedMaps("p-abc-shared-gpu-2", "p-abc-shared-gpu-2-evar")
    assert shared_maps(annotations, ContainerPlace(1, initial=True)).capabilities == "p-abc-shared-gpu-i1"


def test_a_pod_without_admission_has_no_config_maps():
    assert shared_maps({}, ContainerPlace(0)) is None


@pytest.mark.parametrize(
    ("annotations", "count"),
    [({}, 0), ({"gpu-fraction": "0.5"}, 1), ({"gpu-memory": "5"}, 1), ({"gpu-fraction-num-devices": "3"}, 3)],
)
def test_a_share_has_one_device_by_default(annotations, count):
    assert device_count(annotations) == count


def test_an_invalid_number_of_devices_is_refused_with_path():
    with pytest.raises(BadValue, match=r'metadata.annotations.gpu-fraction-num-devices: found "many"'):
        device_count({"gpu-fraction-num-devices": "many"})


def test_groups_are_found_in_both_forms_of_the_label():
    labels = {"app": "x", "runai-gpu-group": "b", "runai-gpu-group/a": "a", "runai-gpu-group/b": "b"}
    assert gpu_groups(labels) == ("a", "b")
    assert group_labels(labels) == ("runai-gpu-group", "runai-gpu-group/a", "runai-gpu-group/b")


def test_several_devices_get_one_label_each():
    assert group_label("g", devices=1) == ("runai-gpu-group", "g")
    assert group_label("g", devices=2) == ("runai-gpu-group/g", "g")
