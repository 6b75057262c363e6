import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels import order
from tests.kernels.naive import order as naive
from tests.kernels.stage import Stage, operations, stages
from tests.properties.strategies import SMALLEST, one_of_each, snapshots

many = {"groups": (2, 9), "queues": (2, 7), "pods": 2}
flags = one_of_each(*[(False, True)] * 9)
keys = one_of_each(*[(0.0, 1.0, 2.0)] * 9)
amounts = one_of_each((0.0, 500.0), (0.0, 1e9), (0.0, 100.0, 400.0, 1000.0, 1600.0))


@attrs.define(eq=False)
class Pair:
    """The heap of the kernels and that of the twins, with the same in both."""

    stage: Stage
    heap: order.Heap
    twin: naive.Heap

    @classmethod
    def of(cls, stage, keys, wanted, *, victims, depth, ranked=False):
        queues, groups = len(stage.world.queues), len(stage.world.groups)
        # The last key of the engine is unique, so that no two groups are equal.
        keys = np.array([[key, key % 2, float(row)] for row, key in enumerate(keys[:groups])])
        wanted = np.array(wanted[:groups], np.float64)
        heap = order.Heap(
            items=np.zeros((queues + 1) * (groups + queues + 1), np.int64),
            start=np.arange(queues + 2, dtype=np.int64) * (groups + queues + 1),
            length=np.zeros(queues + 1, np.int64),
            dirty=np.zeros(queues + 1, np.int64),
            queue=stage.ledger.facts.groups.queue,
            keys=keys,
            amounts=wanted,
            popped=np.zeros((queues + 1, 3), np.float64),
            depth=np.array([depth], np.int64),
            victims=np.array([order.WAITING if not victims else order.RANKED if ranked else order.VICTIMS], np.int64),
        )
        bounds = {"victims": victims, "depth": depth, "ranked": ranked}
        twin = naive.Heap(stage.world, stage.rules, keys.tolist(), wanted.tolist(), **bounds)
        return cls(stage, heap, twin)

    def seen(self):
        ledger = self.stage.ledger
        return ledger.facts, ledger.columns, self.stage.rules, self.heap

    def fill(self, groups):
        order.fill(*self.seen(), np.array(groups, np.int64))
        naive.fill(self.twin, groups)

    def push(self, group):
        order.push(*self.seen(), group)
        naive.push(self.twin, group)

    def pop(self):
        found = int(order.pop(*self.seen()))
        assert found == naive.pop(self.twin)
        return found

    def pop_among(self, wanted):
        found = int(order.pop_among(*self.seen(), np.array(wanted, np.bool_)))
        assert found == naive.pop_among(self.twin, wanted)
        return found

    def pop_open(self, mask):
        out = np.full(len(mask) + 1, -1, np.int64)
        found = int(order.pop_open(*self.seen(), np.array(mask, np.bool_), out))
        expected, dropped = naive.pop_open(self.twin, mask)
        assert (found, sorted(out[: out[-1]].tolist())) == (expected, sorted(dropped))


@st.composite
def pairs(draw, **options):
    stage = draw(stages(**many))
    wanted = draw(st.lists(amounts, min_size=9, max_size=9))
    return Pair.of(
        stage,
        draw(keys),
        wanted,
        victims=draw(st.booleans()),
        ranked=draw(st.booleans()),
        depth=options.get("depth", draw(st.sampled_from((-1, -1, 1, 2)))),
    )


def usable(stage):
    return [group.row for group in stage.world.groups if group.queue >= 0]


@given(pairs())
def test_groups_are_popped_in_the_twins_order(pair):
    pair.fill(usable(pair.stage))
    while pair.pop() >= 0:
        pass


@given(pairs(), st.lists(st.tuples(st.sampled_from(("pop", "pop", "push", "change")), operations), max_size=15))
def test_heaps_stay_in_step_while_queues_change_under_them(pair, steps):
    stage = pair.stage
    inside = usable(stage)
    outside = []
    pair.fill(inside)
    for step, operation in steps:
        if step == "pop":
            group = pair.pop()
            outside += [group] if group >= 0 else []
        elif step == "push" and outside:
            pair.push(outside.pop(operation[1] % len(outside)))
        else:
            stage.do(operation)
    while pair.pop() >= 0:
        pass


@given(pairs(depth=-1), flags)
def test_popping_among_some_drops_the_others(pair, wanted):
    groups = usable(pair.stage)
    pair.fill(groups)
    found = []
    while (group := pair.pop_among(wanted[: len(pair.stage.world.groups)])) >= 0:
        found.append(group)
    assert sorted(found) == [group for group in groups if wanted[group]]


@given(pairs(), st.lists(flags | st.just([True] * 9), min_size=1, max_size=4))
def test_popping_drops_closed_groups_before_the_next_open_one(pair, masks):
    pair.fill(usable(pair.stage))
    groups = len(pair.stage.world.groups)
    for mask in masks:
        pair.pop_open(mask[:groups])
    while pair.pop() >= 0:
        pass


@given(pairs(), st.lists(st.tuples(flags, operations), max_size=6))
def test_dropping_keeps_in_step_while_queues_change_between(pair, steps):
    pair.fill(usable(pair.stage))
    groups = len(pair.stage.world.groups)
    for mask, operation in steps:
        pair.pop_open(mask[:groups])
        pair.stage.do(operation)
    while pair.pop() >= 0:
        pass


@given(snapshots(**many), st.integers(0, 9))
def test_every_group_comes_out_once(snapshot, seed):
    pair = Pair.of(Stage.of(snapshot, seed), [0.0] * 9, [(0.0, 0.0, 0.0)] * 9, victims=False, depth=-1)
    pair.fill(usable(pair.stage))
    found = []
    while (group := pair.pop()) >= 0:
        found.append(group)
    assert sorted(found) == usable(pair.stage)


@given(stages(**many))
def test_a_depth_of_nothing_keeps_every_queue_empty(stage):
    pair = Pair.of(stage, [0.0] * 9, [(0.0, 0.0, 0.0)] * 9, victims=False, depth=0)
    pair.fill(usable(stage))
    assert pair.pop() == -1
    assert not pair.heap.length.any()


def test_victims_of_a_leaf_lower_its_place():
    pair = Pair.of(Stage.of(SMALLEST), [0.0], [(500.0, 0.0, 1000.0)], victims=True, depth=-1)
    for _ in range(2):
        pair.push(0)
        assert pair.pop() == 0
    assert pair.heap.popped[0].tolist() == [1000.0, 0.0, 2000.0]
    assert pair.twin.popped[0] == (1000.0, 0.0, 2000.0)
