"""A listing is a value that shares with the one before."""

import pytest

from kai.api.listing import Listing


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
