"""Objects are gathered by kind; a listing is a value that shares with the one before."""

import attrs
import pytest

from kai.api.cluster_objects import FIELD_OF, ClusterObjects, Listing, collect
from kai.api.kinds import KINDS
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.shard import Config, SchedulingShard
from kai.basics.errors import InputError


def named(name: str, namespace: str = "") -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace)


def test_objects_are_sorted_by_kind_in_their_order() -> None:
    first, second, node = Pod(metadata=named("b", "x")), Pod(metadata=named("a", "x")), Node(metadata=named("n"))
    assert collect([first, node, second]) == ClusterObjects(pods=(first, second), nodes=(node,))


def test_every_kind_has_a_place_except_configuration() -> None:
    assert {kind.cls for kind in KINDS} - set(FIELD_OF) == {Config, SchedulingShard}
    assert sorted([*FIELD_OF.values(), "foreign"]) == sorted(field.name for field in attrs.fields(ClusterObjects))


def test_configuration_is_left_out() -> None:
    assert collect([Config(metadata=named("kai-config"))]) == ClusterObjects()


def test_equal_names_are_allowed_across_kinds_and_namespaces() -> None:
    objects = [Pod(metadata=named("a", "x")), Pod(metadata=named("a", "y")), PodGroup(metadata=named("a", "x"))]
    assert len(collect(objects).pods) == 2


def test_a_second_object_of_the_same_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"^pod x/a: metadata.name: found 'a second one', expected one object of this"):
        collect([Pod(metadata=named("a", "x")), Pod(metadata=named("a", "x"))])


def test_a_namespace_does_not_tell_cluster_wide_objects_apart() -> None:
    with pytest.raises(InputError, match="node y/n"):
        collect([Node(metadata=named("n", "x")), Node(metadata=named("n", "y"))])


def test_every_nameless_or_doubled_object_is_reported() -> None:
    objects = [Pod(), Node(metadata=named("n")), Node(metadata=named("n"))]
    with pytest.raises(InputError) as caught:
        collect(objects)
    assert [message.split(":")[0] for message in caught.value.messages] == ["a pod without a name", "node n"]


class Thing:
    """Something that is only equal to itself."""


@pytest.fixture
def things():
    return [Thing() for _ in range(5)]


def test_the_next_listing_has_what_stayed_and_came(things):
    first = Listing(things[:3])
    second = first.next((things[1],), (things[3], things[4]))
    third = second.next((things[3], things[0]), (things[1],))
    assert second.whole() == (things[0], things[2], things[3], things[4])
    assert set(third) == {things[1], things[2], things[4]}
    assert (len(first), len(second), len(third)) == (3, 4, 3)
    assert (second.before, third.before) == (first.mark, second.mark)
    assert third.gone == (things[3], things[0])
    assert third.come == (things[1],)
    assert first == tuple(things[:3])


def test_a_listing_is_read_like_a_tuple(things):
    listing = Listing(things[:2]).next((), (things[2],))
    assert listing == tuple(things[:3])
    assert listing == Listing(things[:3])
    assert listing != things[:3]
    assert (listing[0], listing[-1], listing[1:]) == (things[0], things[2], tuple(things[1:3]))
    assert hash(listing) == hash(tuple(things[:3]))
    assert things[2] in listing
    assert listing.whole() is listing.whole()


def test_a_listing_is_rewritten_before_sharing_many_past_objects():
    listing = Listing(Thing() for _ in range(160))
    steps = 0
    while (after := listing.next((listing[0],), (Thing(),))) is not None:
        listing, steps = after, steps + 1
    assert steps == (64 + 160 // 16) // 2
