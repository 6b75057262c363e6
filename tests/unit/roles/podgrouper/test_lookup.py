import pytest

from kai.basics.errors import InputError
from kai.roles.podgrouper import Absent, Answers, Get, Kind, Many, Reader, Why
from kai.roles.podgrouper.lookup import Unread
from tests.doubles.known_objects import KnownObjects
from tests.unit.roles.podgrouper.workloads import pod_of, thing

POD = Kind("", "v1", "Pod")


def test_known_objects_are_found_by_kind_namespace_and_name():
    pod, node = pod_of(), thing("v1", "Node", "n1", namespace="")
    known = KnownObjects.of([pod, node])
    assert known.get(Get(POD, "ns", "pod-0")) is pod
    assert known.get(Get(POD, "other", "pod-0")) == Absent(Why.NOT_FOUND)
    assert known.get(Get(Kind("", "v1", "Node"), "ns", "n1")) is node


def test_an_optional_kind_is_installed_if_an_object_exists():
    kind = Kind("example.com", "v1", "Rare")
    assert KnownObjects.of([], [kind]).many(Many(kind)) == Absent(Why.NO_SUCH_KIND)
    assert KnownObjects.of([thing("example.com/v1", "Rare")], [kind]).many(Many(kind, "elsewhere")) == ()


def test_lists_are_selected_by_labels_and_read_by_name():
    pods = [pod_of(name=name, labels={"a": "1", "name": name}) for name in ("b", "a")]
    known = KnownObjects.of([*pods, pod_of(name="c")])
    assert [pod.name for pod in Reader(known).many(Many(POD, "ns", (("a", "1"),)))] == ["a", "b"]


def test_an_object_in_a_list_may_omit_its_kind():
    pod = pod_of()
    del pod["kind"], pod["apiVersion"]
    read = Many(POD, "ns")
    (found,) = Reader(Answers().with_list(read, [pod])).many(read)
    assert found.kind == POD


def test_an_unread_object_ends_the_attempt():
    with pytest.raises(Unread) as raised:
        Reader(Answers()).get(Get(POD, "ns", "p"))
    assert raised.value.read == Get(POD, "ns", "p")


def test_a_needed_object_that_is_absent_is_refused():
    with pytest.raises(InputError, match='Pod "ns/p": not found'):
        Reader(KnownObjects.of([])).need(Get(POD, "ns", "p"))
