import pytest

from kai.facts.model.axis import LEADING, MOST_UNOFFERED, UNOFFERED, ResourceAxis

ABSENT = [f"x.example/r{at:03}" for at in range(MOST_UNOFFERED + 1)]


def test_what_is_offered_or_asked_for_has_its_place_by_name():
    axis = ResourceAxis.around(["cpu", "x.example/nic"], ["gpu", "x.example/disk"])
    assert axis.names == (*LEADING, "x.example/disk", "x.example/nic")
    assert axis == ResourceAxis.of(["x.example/nic", "x.example/disk"])


def test_of_what_no_node_offers_so_many_names_have_their_place_and_the_others_share_one():
    assert ResourceAxis.around([], ABSENT[1:]) == ResourceAxis.of(ABSENT[1:])
    axis = ResourceAxis.around(["z.example/nic"], ABSENT)
    assert axis.names == (*LEADING, UNOFFERED, *ABSENT[:-1], "z.example/nic")
    assert len(ResourceAxis.around([], map(str, range(100_000)))) == len(LEADING) + MOST_UNOFFERED + 1


def test_who_asks_for_any_of_the_others_asks_for_one_of_what_there_is_not():
    axis = ResourceAxis.around([], ABSENT)
    vector = axis.vector({"cpu": 3, ABSENT[0]: 5, ABSENT[-1]: 1 << 48, "another": 1 << 48})
    assert dict(zip(axis.names, vector.tolist(), strict=True))[UNOFFERED] == 1
    assert (vector[0], vector[axis.index[ABSENT[0]]], vector.sum()) == (3, 5, 9)


def test_where_all_have_their_place_an_unknown_resource_is_a_mistake():
    with pytest.raises(KeyError):
        ResourceAxis.of(["x"]).vector({"y": 1})
