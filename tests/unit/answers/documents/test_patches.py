import attrs

from kai.answers.documents.in_file import patches_of
from kai.api.cluster_objects import ClusterObjects, Listing
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.pod import Container, Pod, PodSpec, ResourceRequirements
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec

GROUP = PodGroup(
    metadata=ObjectMeta(name="g", namespace="ml", labels={"a/b": "1", "c": "x"}),
    spec=PodGroupSpec(min_member=4, queue="q"),
)
BEFORE = ClusterObjects(pod_groups=(GROUP,))


def after(**changes):
    return ClusterObjects(pod_groups=(attrs.evolve(GROUP, **changes),))


def test_a_changed_field_is_one_operation():
    changed = after(spec=attrs.evolve(GROUP.spec, min_member=2))
    assert patches_of(BEFORE, changed) == [
        {
            "kind": "PodGroup",
            "namespace": "ml",
            "name": "g",
            "patch": [{"op": "replace", "path": "/spec/minMember", "value": 2}],
        }
    ]


def test_patches_add_and_remove_keys_with_escaped_slashes():
    changed = after(metadata=attrs.evolve(GROUP.metadata, labels={"c": "x", "d~e/f": "2"}))
    (found,) = patches_of(BEFORE, changed)
    assert found["patch"] == [
        {"op": "remove", "path": "/metadata/labels/a~1b"},
        {"op": "add", "path": "/metadata/labels/d~0e~1f", "value": "2"},
    ]


def test_a_deleted_object_is_removed_as_a_whole():
    (found,) = patches_of(BEFORE, ClusterObjects())
    assert found["patch"] == [{"op": "remove", "path": ""}]


def test_list_parts_are_patched_one_by_one():
    def pod(*gpus):
        containers = tuple(Container(resources=ResourceRequirements(limits={"nvidia.com/gpu": each})) for each in gpus)
        return ClusterObjects(pods=(Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=containers)),))

    (changed,) = patches_of(pod("8", "1"), pod("4", "1"))
    path = "/spec/containers/0/resources/limits/nvidia.com~1gpu"
    assert changed["patch"] == [{"op": "replace", "path": path, "value": "4"}]
    (longer,) = patches_of(pod("8"), pod("8", "1"))
    assert [(each["op"], each["path"]) for each in longer["patch"]] == [("add", "/spec/containers/-")]
    (shorter,) = patches_of(pod("8", "1"), pod("4"))
    assert [(each["op"], each["path"]) for each in shorter["patch"]] == [("replace", "/spec/containers")]


def test_objects_that_a_service_holds_are_changed_as_well():
    held = attrs.evolve(BEFORE, pod_groups=Listing((GROUP,)))
    assert patches_of(held, after(spec=attrs.evolve(GROUP.spec, min_member=2))) == patches_of(
        BEFORE, after(spec=attrs.evolve(GROUP.spec, min_member=2))
    )


def test_nothing_differs_from_itself():
    assert patches_of(BEFORE, BEFORE) == []
    assert patches_of(BEFORE, ClusterObjects(pod_groups=(GROUP,))) == []
