import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.kernels import allocating
from kai.kernels.index import ShapeIndex, is_orderly
from kai.model.axis import PODS
from tests.kernels.naive import allocating as naive
from tests.kernels.naive import domains
from tests.kernels.stage import stages
from tests.kernels.test_domains import bounds, columns_of, tree_of
from tests.kernels.test_order import Pair, amounts, many, usable


@given(stages())
def test_shapes_are_orderly_where_their_twins_are(stage):
    for shape in stage.world.shapes:
        assert is_orderly(stage.ledger.facts, stage.vectors, shape.row) == naive.is_orderly(shape)


def index_of(stage):
    """Return an index with a tournament, not played yet, for every orderly shape."""
    shapes, nodes = len(stage.world.shapes), len(stage.world.nodes)
    orderly = [shape.row for shape in stage.world.shapes if naive.is_orderly(shape)]
    row = np.full(shapes, -1, np.int64)
    row[orderly] = np.arange(len(orderly))
    leaves = 1 << max(1, (nodes - 1).bit_length())
    return ShapeIndex(
        row=row,
        tier=np.empty((len(orderly), nodes), np.float64),
        spare=np.empty((len(orderly), nodes), np.int64),
        winner=np.full((len(orderly), 2 * leaves), -1, np.int64),
        seen=np.full(len(orderly), -1, np.int64),
    )


def work_of(stage, plain, ordering, limiting):
    groups = len(stage.world.groups)
    return allocating.Work(
        plain=plain,
        amounts=ordering,
        limits=limiting,
        decided=np.empty((64, 3), np.int64),
        statements=np.empty((32, 3), np.int64),
        refused=np.empty((groups + 1, 3), np.int64),
        refusals=np.full((allocating.SAME_REFUSALS, 4), -1, np.int64),
        state=np.zeros(8, np.int64),
        chunk=np.empty(16, np.int64),
    )


def events_of(stage, pair, work, bounds):
    """Drive the kernel to its end as the engine does; return what became of each group, in order."""
    events = []
    codes = {}
    index = index_of(stage)
    free_rules = stage.rules.replace(limits=False)
    ledger, state = stage.ledger, work.state
    while True:
        ledger.reserve(32)
        columns = ledger.columns
        outcome = allocating.allocate_groups(
            ledger.facts,
            columns,
            ledger.places,
            stage.rules,
            free_rules,
            stage.vectors,
            index,
            bounds,
            pair.heap,
            work,
            256,
        )
        decided = work.decided[: state[allocating.DECISIONS]].tolist()
        served = work.statements[: state[allocating.STATEMENTS]].tolist()
        told = work.refused[: state[allocating.REFUSALS]].tolist()
        if outcome == allocating.REFUSED:
            codes[int(state[allocating.GROUP])] = int(state[allocating.CODE])
        for at, (group, waits, _) in enumerate(served):
            members = tuple((kind, pod, int(columns.node[pod])) for kind, pod, number in decided if number == at)
            events.append(("served", group, members, bool(waits)))
        events += [("refused", group, pod, 0, codes[teller]) for group, pod, teller in told]
        state[allocating.DECISIONS] = state[allocating.STATEMENTS] = state[allocating.REFUSALS] = 0
        if outcome == allocating.NOT_PLAIN:
            events.append(("left to the long way", int(state[allocating.GROUP])))
        elif outcome == allocating.REFUSED:
            at_hand = allocating.GROUP, allocating.POD, allocating.PLACED, allocating.CODE
            events.append(("refused", *(int(state[each]) for each in at_hand)))
            ledger.undo_to(0)
        elif outcome == allocating.FINISHED:
            return events


def trees_of(stage, drawn, chosen):
    """Return one kind of bound, and the same for the twins by group, for the ``chosen`` groups that are flat."""
    world = stage.world
    zones, racks, finest, coarsest, ordered, preferred, required = drawn
    count = len(world.nodes)
    top = tree_of(zones[:count], racks[:count], finest) or tree_of(["a"] * count, racks[:count], finest)
    bound = domains.Bounds(top, finest, min(coarsest, finest), min(ordered, finest), min(preferred, finest), required)
    columns = columns_of(bound, len(world.groups), len(world.shapes), count)
    rows = [row for row in chosen if len(world.groups[row].subgroups) == 2]
    columns.kind[:] = -1
    columns.kind[rows] = 0
    asking = np.array([any(shape.request[:PODS]) for shape in world.shapes], np.bool_)
    columns.counted[~asking] = -1
    return columns, dict.fromkeys(rows, bound)


@given(stages(**many), st.lists(amounts, min_size=9, max_size=9), bounds, st.randoms(use_true_random=False))
def test_groups_are_served_as_by_the_twin(stage, wanted, drawn, random):
    stage.seal()
    world = stage.world
    # What devices of claims may serve is never plain: the dra plugin chooses the devices of each such pod.
    orderly = [
        naive.is_orderly(shape)
        and not any(amount and may for amount, may in zip(shape.request, world.claimable, strict=True))
        for shape in world.shapes
    ]
    kinds = [random.choice(("plain", "plain", "nested", "neither")) for _ in world.groups]
    plain = [
        kind == "plain" and group.simple and all(orderly[pod.shape.row] for pod in group.pods)
        for kind, group in zip(kinds, world.groups, strict=True)
    ]
    columns, twins = trees_of(stage, drawn, [row for row, kind in enumerate(kinds) if kind == "nested"])
    limiting = stage.requested()
    ordering = np.round(limiting * 0.5)
    pair = Pair.of(stage, [0.0] * 9, wanted, victims=False, depth=-1)
    pair.fill(usable(stage))
    events = events_of(stage, pair, work_of(stage, np.array(plain, np.bool_), ordering, limiting), columns)
    expected = naive.allocate_groups(
        world, stage.rules, pair.twin, plain, twins, naive.Amounts(ordering.tolist(), limiting.tolist())
    )
    # A group that is refused for what another was refused for is told of later; the others keep their order.
    refused = [event for event in events if event[0] == "refused"]
    assert sorted(refused) == sorted(event for event in expected if event[0] == "refused")
    assert [event for event in events if event not in refused] == [event for event in expected if event[0] != "refused"]
    stage.agree()
