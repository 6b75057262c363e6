import pytest

from kai.facts.model.axis import LEADING, MOST_UNOFFERED, UNOFFERED, ResourceAxis

ABSENT = [f"x.example/r{at:03}" for at in range(MOST_UNOFFERED + 1)]


def test_offered_and_requested_resources_are_sorted_by_name():
    axis = ResourceAxis.around(["cpu", "x.example/nic"], ["gpu", "x.example/disk"])
    assert axis.names == (*LEADING, "x.example/disk", "x.example/nic")
    assert axis == ResourceAxis.of(["x.example/nic", "x.example/disk"])


def test_excess_unoffered_resources_share_one_place():
    assert ResourceAxis.around([], ABSENT[1:]) == ResourceAxis.of(ABSENT[1:])
    axis = ResourceAxis.around(["z.example/nic"], ABSENT)
    assert axis.names == (*LEADING, UNOFFERED, *ABSENT[:-1], "z.example/nic")
    assert len(ResourceAxis.around([], map(str, range(100_000)))) == len(LEADING) + MOST_UNOFFERED + 1


def test_a_request_for_shared_places_counts_one():
    axis = ResourceAxis.around([], ABSENT)
    vector = axis.vector({"cpu": 3, ABSENT[0]: 5, ABSENT[-1]: 1 << 48, "another": 1 << 48})
    assert dict(zip(axis.names, vector.tolist(), strict=True))[UNOFFERED] == 1
    assert (vector[0], vector[axis.index[ABSENT[0]]], vector.sum()) == (3, 5, 9)


def test_an_unknown_resource_on_a_complete_axis_fails():
    with pytest.raises(KeyError):
        ResourceAxis.of(["x"]).vector({"y": 1})
