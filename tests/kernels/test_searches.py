import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.framework.scenario import Batches
from kai.kernels import filling, growth, opening, standing, trying
from tests.kernels.naive import opening as naive
from tests.kernels.naive import standing as naive_standing
from tests.kernels.naive import victims as naive_victims
from tests.kernels.naive.groups import elastic_state
from tests.kernels.naive.searching import free_gpus
from tests.kernels.stage import operations, stages
from tests.kernels.test_order import Pair, amounts, many, usable
from tests.kernels.test_victims import flags, keys

START, STOP = -1, 4
nothing = [(0.0, 0.0, 0.0)] * 9


def stand_of(stage, drawn):
    """Return two heaps of the stage with the same keys, and no group described yet."""
    victims, heap = (Pair.of(stage, drawn, nothing, victims=mine, depth=-1).heap for mine in (True, False))
    elastic, count = stage.rules.elastic_key, len(stage.world.groups)
    if elastic >= 0:
        victims.keys[:, elastic] = heap.keys[:, elastic] = 0.0
    return standing.Stand(
        heap=heap,
        victims=victims,
        ranked=np.array(naive_victims.rank_again(heap.keys.tolist()), np.int64),
        by_age=np.arange(count, dtype=np.int64),
        states=np.zeros(count, np.float64),
        wanting=np.zeros((count, 3), np.float64),
        holding=np.zeros((count, 3), np.float64),
        requested=stage.requested(),
        waits=np.zeros(count, np.bool_),
        placed=np.zeros(count, np.bool_),
        waiting=np.zeros(count, np.int64),
        unknown=np.zeros(count, np.int64),
        moved=np.zeros(count, np.int64),
        seen=np.full(count, -1, np.int64),
        chunk=np.zeros(20, np.int64),
        state=np.zeros(3, np.int64),
    )


def look(stage, stand, few):
    """Look again on both sides; what Python must say of groups is what they have in the heap already."""
    ledger = stage.ledger
    standing.look_again(ledger.facts, ledger.columns, stage.rules, stand, few)
    twin = naive_standing.look_again(stage.world, stage.requested().tolist())
    waiting, unknown, moved = stand.state.tolist()
    assert stand.states.tolist() == twin.states
    assert stand.holding.tolist() == stand.victims.amounts.tolist() == list(map(list, twin.holding))
    for row, wanted in twin.wanting.items():
        assert stand.wanting[row].tolist() == stand.heap.amounts[row].tolist() == list(wanted)
    assert stand.waiting[:waiting].tolist() == twin.waiting
    assert set(stand.unknown[:unknown].tolist()) <= twin.unknown
    assert stand.placed.tolist() == twin.placed
    if stage.rules.elastic_key >= 0:
        assert stand.heap.keys[:, 1].tolist() == stand.victims.keys[:, 1].tolist() == twin.states
    if few < 0 or moved > few:
        stand.ranked[:] = np.lexsort(stand.heap.keys.T[::-1])
    assert stand.ranked.tolist() == naive_victims.rank_again(stand.heap.keys.tolist())
    return twin.unknown, unknown


@given(stages(**many), keys, st.lists(st.lists(operations, max_size=3), min_size=1, max_size=3))
def test_groups_are_looked_at_again_where_something_happened(stage, drawn, happenings):
    stand = stand_of(stage, drawn)
    unknown, told = look(stage, stand, START)
    assert told == len(unknown)
    for happening in happenings:
        for operation in happening:
            stage.do(operation)
        look(stage, stand, STOP)


@given(stages(**many), flags, flags)
def test_members_of_other_queues_are_left_out(stage, queues, member):
    allowed = np.array(queues[: len(stage.world.queues)], np.bool_)
    found = np.array(member[: len(stage.world.groups)], np.bool_)
    expected = naive_standing.keep_queues(stage.world, allowed.tolist(), found.tolist())
    standing.keep_queues(stage.ledger.facts, allowed, found)
    assert found.tolist() == expected


def growth_of(stage, heap):
    pods = len(stage.world.pods)
    return growth.Growth(
        heap=heap,
        removed=np.zeros(pods, np.bool_),
        known=np.zeros(pods, np.bool_),
        pods=np.empty(pods, np.int64),
        start=np.empty(pods + 1, np.int64),
        capacity=np.zeros(len(stage.world.nodes), np.int64),
        wanted=np.zeros(1, np.int64),
        masks=np.zeros(1, np.int64),
        reached=np.zeros(1, np.bool_),
        changed=np.zeros(1, np.int64),
        state=np.zeros(4, np.int64),
    )


def opening_of(stage, stand, suited, plain):
    nodes, pods = len(stage.world.nodes), len(stage.world.pods)
    return opening.Opening(
        growth=growth_of(stage, stand.victims),
        aggressor=trying.Aggressor(
            group=np.zeros(1, np.int64),
            pods=np.zeros(1, np.int64),
            elastic=np.zeros(1, np.float64),
            amounts=np.zeros(3, np.float64),
            feasible=np.zeros(nodes, np.bool_),
        ),
        exact=plain,
        plain=plain,
        prepared=suited,
        idle=np.zeros(nodes, np.int64),
        releasing=np.zeros(nodes, np.int64),
        victims=np.zeros(pods, np.int64),
        start=np.zeros(pods + 1, np.int64),
        state=np.zeros(3, np.int64),
    )


@given(stages(**many), keys, st.lists(amounts, min_size=9, max_size=9), flags, st.integers(0, 40), st.booleans())
def test_the_first_scenario_for_one_pod_is_the_twins(stage, drawn, held, member, which, suited):
    ledger, world = stage.ledger, stage.world
    stage.seal()
    stand = stand_of(stage, drawn)
    look(stage, stand, START)
    pair = Pair.of(stage, drawn, held, victims=True, depth=-1)
    pair.twin.amounts = stand.victims.amounts.tolist()
    pair.twin.keys = stand.victims.keys.tolist()
    for group in usable(stage):
        if member[group] and stand.placed[group] and group != which % len(world.groups):
            continue
        member[group] = False
    inside = np.array(member[: len(world.groups)], np.bool_)
    filling.fill_victims(ledger.facts, ledger.columns, stage.rules, stand.victims, stand.ranked, stand.by_age, inside)
    naive_victims.fill_victims(pair.twin, np.flatnonzero(inside).tolist())
    group = world.groups[which % len(world.groups)]
    shapes = np.array([suited or row % 2 == 0 for row in range(len(world.shapes))], np.bool_)
    plain = np.array([each.simple and (suited or each.row % 3 > 0) for each in world.groups], np.bool_)
    record = opening_of(stage, stand, shapes, plain)
    before = free_gpus(world)
    ended = opening.propose_first(ledger.facts, ledger.columns, stage.rules, stage.vectors, stand, record, group.row)
    expected = naive.propose_first(world, pair.twin, group)
    if ended == opening.UNSUITED:  # decided the long way, as it must be unless everything is for a kernel
        assert expected is None or not suited
        return
    count, parts, room = record.state.tolist() if ended == opening.PROPOSED else (0, 0, 0)
    assert list(map(list, Batches(record.victims[:count], record.start[: parts + 1]))) == expected
    if not expected:
        return
    gone = [world.pods[row] for row in record.victims[:count].tolist()]
    pod = world.pods[record.aggressor.pods[0]]
    assert room >= 2 * (1 + len({each.row for victim in gone for each in victim.leaf.pods}))
    assert record.aggressor.amounts.tolist() == stand.wanting[group.row].tolist()
    assert record.aggressor.elastic[0] == elastic_state(group)
    for victim in gone[which % 3 :]:
        stage._do("evict", victim, 0, promise=True)
    found = opening.is_final(ledger.facts, ledger.columns, stage.vectors, record)
    assert found == naive.is_final(world, group, pod, gone, before)
