import pytest

from kai.basics.errors import InputError
from kai.roles.podgrouper import Absent, Answers, Get, Kind, Reader, Resource, Why
from kai.roles.podgrouper.decide import find_owners
from tests.doubles.known_objects import KnownObjects
from tests.unit.roles.podgrouper.workloads import pod_of, thing


def chain_of(pod, *objects):
    chain = find_owners(Resource.of(pod), Reader(KnownObjects.of(objects)))
    return chain.top.name, [owner.name for owner in chain.owners]


def test_a_pod_without_owners_is_its_own_top():
    assert chain_of(pod_of()) == ("pod-0", [])


def test_owners_are_climbed_to_the_last():
    top = thing("example.com/v1", "Top", "top")
    middle = thing("batch/v1", "Job", "middle", owners=[top])
    assert chain_of(pod_of(middle), middle, top) == ("top", ["middle", "top"])


def test_only_the_first_owner_of_a_pod_counts():
    one, other = thing("v1", "A", "one"), thing("v1", "B", "other")
    assert chain_of(pod_of(one, other), one, other) == ("one", ["one"])


def test_an_owner_with_two_owners_is_refused():
    tops = [thing("v1", "Top", name) for name in ("a", "b")]
    middle = thing("v1", "Middle", "middle", owners=tops)
    with pytest.raises(InputError, match=r'Middle "ns/middle": metadata.ownerReferences: found .*expected at most one'):
        chain_of(pod_of(middle), middle, *tops)


def test_an_owner_that_was_replaced_is_refused():
    owner = thing("v1", "Work")
    pod = pod_of(owner)
    pod["metadata"]["ownerReferences"][0]["uid"] = "older"
    with pytest.raises(InputError, match='found uid "work-uid", expected "older"'):
        chain_of(pod, owner)


def test_an_absent_owner_is_refused_with_its_uid():
    owner = thing("v1", "Work")
    with pytest.raises(InputError, match='Pod "ns/pod-0": owner Work "ns/work" with uid "work-uid": not found'):
        chain_of(pod_of(owner))


def test_the_last_readable_owner_is_the_top():
    top = thing("example.com/v1", "Top", "top")
    middle = thing("batch/v1", "Job", "middle", owners=[top])
    known = {
        Get(Kind("batch", "v1", "Job"), "ns", "middle"): middle,
        Get(Kind("example.com", "v1", "Top"), "ns", "top"): Absent(Why.FORBIDDEN),
    }
    chain = find_owners(Resource.of(pod_of(middle)), Reader(Answers(known)))
    assert [owner.name for owner in chain.owners] == ["middle"]
    assert chain.top.name == "middle"


def test_a_pod_with_an_unreadable_owner_is_its_top():
    owner = thing("example.com/v1", "Top", "top")
    known = {Get(Kind("example.com", "v1", "Top"), "ns", "top"): Absent(Why.FORBIDDEN)}
    assert find_owners(Resource.of(pod_of(owner)), Reader(Answers(known))).top.name == "pod-0"


def test_owners_in_a_circle_end_in_a_refusal():
    snake = thing("v1", "Snake", "snake")
    snake["metadata"]["ownerReferences"] = pod_of(snake)["metadata"]["ownerReferences"]
    with pytest.raises(InputError, match="more than 32 owners"):
        chain_of(pod_of(snake), snake)
