import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels import victims as group_state
from tests.kernels.naive import group_state as naive_states
from tests.kernels.naive import victims as naive_victims
from tests.kernels.stage import operations, stages
from tests.kernels.test_order import Pair, many
from tests.kernels.test_victims import flags, keys, listed, listing_of

STOP = 4
some = st.sampled_from((STOP, 99))
nothing = [(0.0, 0.0, 0.0)] * 9


def states_of(stage, drawn, *, upside_down=False):
    """Return two heaps of the stage, and no group described yet; ``upside_down``: victims have ranks of their own."""
    victims, heap = (Pair.of(stage, drawn, nothing, victims=mine, depth=-1).heap for mine in (True, False))
    elastic, count = stage.rules.elastic_key, len(stage.world.groups)
    if upside_down:
        victims.keys[:, -1] = count - victims.keys[:, -1]
    if elastic >= 0:
        victims.keys[:, elastic] = heap.keys[:, elastic] = 0.0
    return group_state.GroupState(
        heap=heap,
        victims=victims,
        queued=listing_of(heap, []),
        losing=listing_of(victims, []),
        by_age=np.arange(count, dtype=np.int64),
        states=np.zeros(count, np.float64),
        wanting=np.zeros((count, 3), np.float64),
        holding=np.zeros((count, 3), np.float64),
        requested=stage.requested(),
        waits=np.zeros(count, np.bool_),
        placed=np.zeros(count, np.bool_),
        waiting=np.zeros(count, np.int64),
        unknown=np.zeros(count, np.int64),
        changed=np.zeros(count, np.int64),
        seen=np.full(count, -1, np.int64),
        chunk=np.zeros(20, np.int64),
        state=np.zeros(3, np.int64),
    )


def look(stage, states, few):
    """Look again on both sides; what Python must say of groups is what they have in the heap already."""
    ledger = stage.ledger
    group_state.look_again(ledger.facts, ledger.columns, stage.rules, states, few)
    twin = naive_states.look_again(stage.world, stage.requested().tolist())
    waiting, unknown, changed = states.state.tolist()
    assert states.states.tolist() == twin.states
    assert states.holding.tolist() == states.victims.amounts.tolist() == list(map(list, twin.holding))
    for row, wanted in twin.wanting.items():
        assert states.wanting[row].tolist() == states.heap.amounts[row].tolist() == list(wanted)
    assert states.waiting[:waiting].tolist() == twin.waiting
    assert set(states.unknown[:unknown].tolist()) <= twin.unknown
    assert states.placed.tolist() == twin.placed
    if stage.rules.elastic_key >= 0:
        assert states.heap.keys[:, 1].tolist() == states.victims.keys[:, 1].tolist() == twin.states
    if changed > few:
        by_keys = [np.lexsort(heap.keys.T[::-1]) for heap in (states.heap, states.victims)]
        group_state.list_all(ledger.facts, states, *by_keys)
    ranked = naive_victims.rank_again(states.heap.keys.tolist())
    behind = naive_victims.rank_again(states.victims.keys.tolist())[::-1]
    losing = [row for row in behind if twin.placed[row] and stage.world.groups[row].preemptible]
    waits = [row for row in ranked if row in twin.waiting]
    assert listed(states.heap, states.queued) == naive_states.list_all(stage.world, waits)
    assert listed(states.victims, states.losing) == naive_states.list_all(stage.world, losing)
    return twin.unknown, unknown


@given(stages(**many), keys, st.lists(st.lists(operations, max_size=3), min_size=1, max_size=3), some, st.booleans())
def test_groups_are_looked_at_again_where_something_happened(stage, drawn, happenings, few, upside_down):
    states = states_of(stage, drawn, upside_down=upside_down)
    unknown, told = look(stage, states, few)
    assert told == len(unknown)
    for happening in happenings:
        for operation in happening:
            stage.do(operation)
        look(stage, states, STOP)


@given(stages(**many), flags, flags)
def test_members_of_other_queues_are_left_out(stage, queues, member):
    allowed = np.array(queues[: len(stage.world.queues)], np.bool_)
    found = np.array(member[: len(stage.world.groups)], np.bool_)
    expected = naive_states.keep_queues(stage.world, allowed.tolist(), found.tolist())
    group_state.keep_queues(stage.ledger.facts, allowed, found)
    assert found.tolist() == expected
