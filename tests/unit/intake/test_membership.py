import attrs
from hypothesis import given
from hypothesis import strategies as st

from kai.intake.membership import Place, Places

KEYS = st.tuples(st.sampled_from("gh"), st.sampled_from("abc"))


@attrs.frozen(eq=False)
class Group:
    place: Place
    leaves: dict[str, int]


def settled(places, keys):
    """Settle places under groups of these names and namespaces; each has one leaf, at its row."""
    places.settle([Group(places.of(key), {"leaf": row}) for row, key in enumerate(keys)])


def test_one_name_in_one_namespace_has_one_place():
    places = Places()
    assert places.of(("g", "a")) is places.of(("g", "a"))
    assert places.of(("g", "a")) is not places.of(("g", "b"))
    assert len(places) == 2


def test_a_place_leads_nowhere_before_and_after_its_group_exists():
    places = Places()
    place = places.of(("g", "a"))
    assert (place.row, dict(place.leaves)) == (-1, {})
    settled(places, [("g", "a")])
    assert (place.row, place.leaves) == (0, {"leaf": 0})
    settled(places, [])
    assert (place.row, dict(place.leaves)) == (-1, {})


@given(st.lists(KEYS, max_size=4), st.lists(st.sets(KEYS), min_size=1, max_size=4))
def test_a_place_leads_to_its_own_group_or_to_the_first_of_its_name(asked_for, rounds):
    places = Places()
    for present in rounds:
        groups = sorted(present)
        settled(places, groups)
        for name, namespace in asked_for:
            place = places.of((name, namespace))
        settled(places, groups)
        for name, namespace in asked_for:
            place = places.of((name, namespace))
            own = [row for row, key in enumerate(groups) if key == (name, namespace)]
            alike = [row for row, key in enumerate(groups) if key[0] == name]
            assert place.row == (own or alike or [-1])[0]
