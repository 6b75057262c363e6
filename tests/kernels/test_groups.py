import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels import groups
from tests.kernels.naive import groups as naive
from tests.kernels.naive import order as naive_order
from tests.kernels.stage import stages


@given(stages())
def test_waiting_and_placed_groups_are_found_like_the_twin(stage):
    ledger, world = stage.ledger, stage.world
    found = np.empty(len(world.groups), np.bool_)
    groups.find_waiting(ledger.facts, ledger.columns, found)
    assert found.tolist() == naive.find_waiting(world)
    groups.find_placed(ledger.facts, ledger.columns, found)
    assert found.tolist() == naive.find_placed(world)


@given(stages())
def test_a_simple_groups_next_chunk_equals_the_twins(stage):
    ledger, world = stage.ledger, stage.world
    out = np.empty(20, np.int64)
    for group in world.groups:
        if group.simple:
            leaf = group.leaves()[0]
            count = groups.next_chunk(ledger.facts, ledger.columns, leaf.row, out)
            assert out[:count].tolist() == [pod.row for pod in naive_order.next_chunk(leaf)]


@given(stages())
def test_nodes_of_groups_are_those_of_the_twin(stage):
    ledger, world = stage.ledger, stage.world
    for group in world.groups:
        found = groups.nodes_of_group(ledger.facts, ledger.columns, group.row)
        assert found.tolist() == naive.nodes_of_group(group)


@given(stages())
def test_plain_groups_are_those_of_the_twin(stage):
    ledger, world = stage.ledger, stage.world
    found = np.empty(len(world.groups), np.bool_)
    groups.find_plain(ledger.facts, ledger.columns, np.arange(len(world.groups)), found)
    assert found.tolist() == naive.find_plain(world.groups)


@given(stages())
def test_groups_are_described_as_by_the_twins(stage):
    ledger, world = stage.ledger, stage.world
    rows = np.arange(len(world.groups))
    elastic, amounts = np.full(len(rows), 9.0), np.full((len(rows), 3), 9.0)
    groups.describe_waiting(ledger.facts, ledger.columns, stage.requested(), rows, elastic, amounts)
    expected = naive.describe_waiting(world, stage.requested().tolist())
    for row in rows:
        state, wanted = expected.get(int(row), (9.0, (9.0, 9.0, 9.0)))
        assert (elastic[row], amounts[row].tolist()) == (state, list(wanted))
    groups.describe_holding(ledger.facts, ledger.columns, rows, elastic, amounts)
    for row, (state, held) in naive.describe_holding(world).items():
        assert (elastic[row], amounts[row].tolist()) == (state, list(held))


@given(stages(), st.lists(st.integers(0, 30), max_size=6))
def test_requests_of_waiting_pods_sum_like_the_twin(stage, which):
    ledger, world = stage.ledger, stage.world
    pods = [world.pods[at % len(world.pods)] for at in which] if world.pods else []
    rows = np.array([pod.row for pod in pods], np.int64)
    found = groups.sum_waiting(ledger.facts, ledger.columns, stage.requested(), rows)
    assert found.tolist() == list(naive.sum_waiting(pods, stage.requested().tolist()))


@given(st.lists(st.integers(-1, 4), max_size=12), st.randoms(use_true_random=False))
def test_pods_are_sorted_by_leaf_as_by_the_twin(leaves, chance):
    pods = list(range(len(leaves)))
    chance.shuffle(pods)
    start, out = np.zeros(6, np.int64), np.empty(len(leaves), np.int64)
    groups.sort_by_leaf(np.array(leaves, np.int64), np.array(pods, np.int64), start, out)
    assert (start.tolist(), out[: start[-1]].tolist()) == naive.sort_by_leaf(leaves, pods, 5)


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 30), max_size=6))
def test_places_by_age_equal_the_twins_or_are_skipped(created, which):
    order = sorted(range(len(created)), key=lambda row: (created[row], -row))
    rows = [at % len(created) for at in which] if created else []
    places = np.full(len(rows), -1, np.int64)
    found = groups.find_places(
        np.array(created, np.float64), np.array(order, np.int64), np.array(rows, np.int64), places
    )
    wanted = naive.find_places(order, rows)
    looks = sum(
        place - min(at for at in range(len(order)) if created[order[at]] == created[row])
        for row, place in zip(rows, wanted, strict=True)
    )
    assert found == (looks <= len(order))
    if found:
        assert places.tolist() == wanted


@given(stages())
def test_groups_by_leaf_have_the_twins_state(stage):
    ledger, world = stage.ledger, stage.world
    facts = ledger.facts.replace(groups=ledger.facts.groups.replace(each_leaf=True))
    rows = np.arange(len(world.groups))
    elastic, amounts = np.full(len(rows), 9.0), np.full((len(rows), 3), 9.0)
    groups.describe_holding(facts, ledger.columns, rows, elastic, amounts)
    assert elastic.tolist() == [naive.state_by_leaf(group) for group in world.groups]
