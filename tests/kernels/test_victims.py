from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.actions.search.group_states import no_table
from kai.facts.kernels import fairness, filling, prefix, trying, victims
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status
from kai.framework.scenario import Batches
from tests.kernels.naive import fairness as naive_fairness
from tests.kernels.naive import victims as naive
from tests.kernels.naive.groups import describe_waiting, elastic_state, find_waiting
from tests.kernels.naive.order import Heap as NaiveHeap
from tests.kernels.naive.order import next_chunk
from tests.kernels.stage import operations, stages
from tests.kernels.test_order import Pair, amounts, flags, keys, many, usable
from tests.properties.strategies import one_of_each

rows = st.lists(st.integers(0, 30), max_size=8)


def placed(stage, *, simple=False):
    return [
        pod
        for pod in stage.world.pods
        if pod.is_in(ACTIVE_ALLOCATED)
        and pod.evicted is None
        and pod.group is not None
        and pod.leaf is not None
        and pod.group.queue >= 0
        and (pod.group.simple or not simple)
    ]


def batches_of(pods, cuts):
    """Cut pods into batches after each position for which ``cuts`` says so."""
    out = [[]]
    for pod, cut in zip(pods, cuts, strict=False):
        out[-1].append(pod)
        if cut:
            out.append([])
    return [batch for batch in out if batch]


def picked(pods, which):
    return [pods[at % len(pods)] for at in which] if pods else []


@given(rows, flags, st.permutations(range(9)))
def test_pods_and_batches_are_selected_as_by_the_twins(pods, member, order):
    mask = np.array(member, np.bool_)
    out = np.empty(9, np.int64)
    assert out[: victims.select(np.array(order), mask, out)].tolist() == naive.select(order, member)
    assert victims.distinct(np.array(pods, np.int64), 31).tolist() == naive.distinct(pods)
    batches = batches_of(pods, member)
    table = Batches.of(batches)
    chosen = [at for at in order if at < len(batches)]
    found = Batches(*victims.gather(table.pods, table.start, np.array(chosen, np.int64)))
    assert list(map(list, found)) == naive.gather(batches, chosen)


@given(stages(**many), st.lists(st.integers(0, 4), min_size=8, max_size=8), flags, st.booleans(), st.integers(0, 8))
def test_chances_after_moves_are_the_twins(stage, room, movable, adds_up, free):
    ledger, world = stage.ledger, stage.world
    waiting = [group.row for group in world.groups if group.simple]
    member = [movable[row % len(movable)] for row in range(len(world.groups))]
    rooms = [1000 * (room[at % len(room)] - 1) for at in range(len(world.nodes))]
    frees = [free * 10**9] * len(ledger.facts.nodes.gpu_weight)
    sizes = ledger.facts.shapes.request @ np.maximum(ledger.facts.nodes.gpu_weight, 0)
    given = (waiting, int), (member, bool), (sizes, int), (rooms, int), (frees, int)
    arrays = (np.array(each, kind) for each, kind in given)
    found = victims.may_fit_after_moves(ledger.facts, ledger.columns, *arrays, adds_up)
    weight = ledger.facts.nodes.gpu_weight.tolist()
    assert found == naive.may_fit_after_moves(world, weight, waiting, member, rooms, frees, adds_up=adds_up)


@given(stages(**many), rows, rows, flags)
def test_what_victims_hold_and_who_loses_is_the_twins(stage, some, others, cuts):
    ledger, world = stage.ledger, stage.world
    pods = [pod.row for pod in placed(stage)]
    recorded, potential = picked(pods, some), picked(pods, others)
    held = np.zeros(len(world.nodes), np.int64)
    victims.add_held(ledger.facts, ledger.columns, np.array(potential, np.int64), held)
    assert held.tolist() == naive.add_held(world, potential)
    for node in range(len(world.nodes)):
        arrays = np.array(recorded, np.int64), np.array(potential, np.int64)
        found = Batches(*victims.losing_on(ledger.facts, ledger.columns, *arrays, node))
        assert list(map(list, found)) == naive.losing_on(world, recorded, potential, node)
    every = [pod.row for pod in world.pods]
    table = Batches.of(batches_of(picked(every, some + others), cuts * 2))
    of_all = naive.distinct(table.pods.tolist())
    lost = victims.losing(ledger.columns, table.pods, table.start, np.array(of_all, np.int64))
    assert lost.tolist() == naive.losing(world, list(map(list, table)), of_all)


@given(stages(**many), flags)
def test_the_least_held_of_a_queue_equals_the_twins(stage, member):
    mask = np.array(member, np.bool_)[: len(stage.world.groups)]
    out = np.full(len(stage.world.queues), 7, np.int64)
    victims.least_held(stage.ledger.facts, stage.ledger.columns, mask, out)
    assert out.tolist() == naive.least_held(stage.world, member)


def listing_of(heap, groups):
    """List groups, in their order, for the queues of a heap."""
    listing = filling.Listing(
        items=np.zeros_like(heap.items),
        length=np.zeros_like(heap.length),
        member=np.isin(np.arange(len(heap.queue)), groups),
        changed=np.ones_like(heap.length, np.bool_),
    )
    for group in groups:
        queue = heap.queue[group]
        listing.items[heap.start[queue] + listing.length[queue]] = group
        listing.length[queue] += 1
    return listing


def listed(heap, listing):
    """Return what is listed for each queue that has any."""
    lengths = enumerate(listing.length.tolist())
    found = {at: listing.items[heap.start[at] : heap.start[at] + length].tolist() for at, length in lengths if length}
    assert sorted(chain.from_iterable(found.values())) == np.flatnonzero(listing.member).tolist()
    return found


@st.composite
def heaps(draw):
    """Draw a stage with a filled heap of victims on both sides."""
    stage = draw(stages(**many))
    wanted = draw(st.lists(amounts, min_size=9, max_size=9))
    pair = Pair.of(stage, draw(keys), wanted, victims=True, depth=-1)
    ranked = naive.rank_again(pair.heap.keys.tolist())
    member = np.array(draw(flags)[: len(stage.world.groups)], np.bool_)
    queues = np.array(draw(flags)[: len(stage.world.queues)], np.bool_)
    listing = listing_of(pair.heap, [row for row in ranked[::-1] if row in usable(stage)])
    filling.fill_victims(*pair.seen(), listing, np.arange(len(member)), queues, member)
    chosen = [row for row in np.flatnonzero(member).tolist() if queues[stage.world.groups[row].queue]]
    naive.fill_victims(pair.twin, chosen)
    return pair


@given(heaps())
def test_a_filled_heap_pops_like_a_pushed_one(pair):
    while pair.pop() >= 0:
        pass


WANTED = st.lists(st.sampled_from((0, 500, 1000, 2000)), min_size=1, max_size=3)
ALIKE = st.builds(lambda each, count: [each] * count, st.sampled_from((500, 1000, 2000)), st.integers(1, 3))


@given(heaps(), WANTED | ALIKE, rows, st.booleans(), st.none() | st.booleans(), flags)
def test_victims_grow_as_the_twins_do(pair, wanted, which, masked, counted, useless):
    stage, ledger = pair.stage, pair.stage.ledger
    known = [pod.row for pod in picked(placed(stage), which[:3])]
    pods = len(stage.world.pods)
    masks = [1] if masked else []
    state = prefix.Prefix(
        heap=pair.heap,
        removed=np.zeros(pods, np.bool_),
        known=np.zeros(pods, np.bool_),
        pods=np.empty(pods, np.int64),
        start=np.empty(pods + 1, np.int64),
        capacity=np.zeros(len(stage.world.nodes), np.int64),
        wanted=np.array(sorted(wanted, reverse=True), np.int64),
        masks=np.array(masks, np.int64),
        reached=np.zeros(len(masks), np.bool_),
        changed=np.zeros(1, np.int64),
        before=np.zeros(len(stage.world.nodes), np.int64),
        spread=np.zeros(len(stage.world.nodes), np.bool_),
        useless=np.zeros(len(stage.world.nodes), np.bool_),
        state=np.zeros(8, np.int64),
    )
    tables = [stage.vectors.masks[row].tolist() for row in masks]
    twin = naive.Prefix(stage.world, pair.twin, [0] * len(stage.world.nodes), wanted, tables)
    prefix.begin(ledger.facts, ledger.columns, stage.vectors, state, np.array(known, np.int64))
    naive.begin(twin, known)
    # ``counted`` says whether victims come from one node at a time, and whether places are counted then.
    if counted is not None:
        each = wanted[0] if counted and len(set(wanted)) == 1 else 0
        prefix.choose_by_node(state, each)
        naive.choose_by_node(twin, each)
        state.useless[:] = useless[: len(state.useless)]
        twin.useless = set(np.flatnonzero(state.useless).tolist())
    asked = set()
    while True:
        assert bool(prefix.accepts(state)) == naive.accepts(twin)
        ended = prefix.extend(ledger.facts, ledger.columns, stage.rules, stage.vectors, state)
        naive.extend(twin)
        found = Batches(state.pods[: state.state[prefix.PODS]], state.start[: state.state[prefix.BATCHES] + 1])
        assert list(map(list, found)) == twin.batches
        assert state.capacity.tolist() == twin.freed()
        if ended == prefix.EXHAUSTED:
            return
        group = twin.asked
        if ended == prefix.NOT_PLAIN and group not in asked:
            asked.add(group)
            prefix.put_back(ledger.facts, ledger.columns, stage.rules, state)
            naive.put_back(twin)
        elif ended == prefix.NOT_PLAIN:
            mine = [pod.row for pod in placed(stage) if pod.group.row == group and pod.row not in twin.known]
            if mine:
                prefix.take(ledger.facts, ledger.columns, stage.vectors, state, np.array(mine, np.int64))
                naive.take(twin, mine)


def kept_of(pair, *, lives):
    """Return what a heap keeps from trial to trial, before the first one."""
    heap, parents = pair.heap, pair.stage.ledger.facts.queues.parent.tolist()
    root = len(parents)

    def depth(row):
        return 0 if row < 0 else 1 + depth(parents[row])

    kept = filling.Kept(
        nodes=np.array([*sorted(range(root), key=depth, reverse=True), root], np.int64),
        children=np.zeros_like(heap.items),
        count=np.zeros(root + 1, np.int64),
        oldest=np.full(root + 1, np.inf),
        times=np.zeros(len(heap.items), np.float64),
        tops=np.zeros_like(heap.items),
        turns=np.zeros(root + 1, np.int64),
        known=np.zeros(root + 1, np.bool_),
        ranked=np.ones(root + 1, np.bool_),
        used=np.zeros((root, 3), np.int64),
        models=np.zeros_like(pair.stage.ledger.columns.queue_models),
        lives=lives,
    )
    for row, parent in enumerate(parents):
        above = parent if parent >= 0 else root
        kept.children[heap.start[above] + kept.count[above]] = row
        kept.count[above] += 1
    return kept


def trial_of(pair, *, lives):
    stage, heap = pair.stage, pair.heap
    groups = len(stage.world.groups)
    return trying.Trial(
        heap=heap,
        queued=listing_of(heap, []),
        kept=kept_of(pair, lives=lives),
        age=np.arange(groups, dtype=np.float64),
        states=np.zeros(groups, np.float64),
        wanting=heap.amounts.copy(),
        requested=stage.requested(),
        limits=stage.requested() * 1.5,
        prepared=np.ones(len(stage.world.shapes), np.bool_),
        affected=np.zeros(groups, np.bool_),
        nodes=np.zeros(len(stage.world.nodes), np.int64),
        extra=np.zeros(len(stage.world.nodes), np.float64),
        chunk=np.zeros(20, np.int64),
        failed=np.zeros(groups, np.int64),
        state=np.zeros(2, np.int64),
        table=no_table(len(stage.world.shapes)),
    )


def describe(pair, trial, waiting):
    """Describe all groups as they are now, list those in ``waiting``, and note the queues where something changed."""
    stage, heap, queued = pair.stage, pair.heap, trial.queued
    before = (heap.keys.copy(), heap.amounts.copy(), listed(heap, queued))
    for row, (_, wanted) in describe_waiting(stage.world, stage.requested().tolist()).items():
        heap.amounts[row] = wanted
    if stage.rules.elastic_key >= 0:
        heap.keys[:, 1] = [elastic_state(each) for each in stage.world.groups]
    rows_of = (heap.keys.tolist(), heap.amounts.tolist())
    pair.twin = NaiveHeap(stage.world, stage.rules, *rows_of, victims=False, depth=-1, ranked=False)
    fresh = listing_of(heap, [row for row in naive.rank_again(heap.keys.tolist()) if row in waiting])
    queued.items[:], queued.length[:], queued.member[:] = fresh.items, fresh.length, fresh.member
    trial.states[:], trial.wanting[:] = heap.keys[:, stage.rules.elastic_key], heap.amounts
    now = listed(heap, queued)
    queued.changed[[row for row in {*now, *before[2]} if now.get(row) != before[2].get(row)]] = True
    differs = (heap.keys != before[0]).any(axis=1) | (heap.amounts != before[1]).any(axis=1)
    # Of others only what their queues hold can matter, which trials see by themselves.
    queued.changed[heap.queue[differs & queued.member]] = True


@given(
    stages(**many),
    keys,
    st.lists(
        st.tuples(rows, st.integers(0, 8), st.lists(operations, max_size=2), st.booleans()), min_size=1, max_size=4
    ),
    one_of_each(*[(False, True)] * 4),
    st.booleans(),
)
def test_victims_are_tried_as_by_the_twin(stage, drawn, rounds, open_nodes, lives):
    pair = Pair.of(stage, drawn, [(0.0, 0.0, 0.0)] * 9, victims=False, depth=-1)
    trial = trial_of(pair, lives=lives)
    for which, who, happening, is_undone in rounds:
        for operation in happening:
            stage.do(operation)
        if not try_once(pair, trial, which, who, open_nodes[: len(stage.world.nodes)], is_undone=is_undone):
            return


def try_once(pair, trial, which, who, feasible, *, is_undone):
    """Try victims on both sides; return whether some group wants a place."""
    stage, world, ledger = pair.stage, pair.stage.world, pair.stage.ledger
    stage.seal()
    wants = [(group, next_chunk(group.leaves()[0])) for group in world.groups if group.simple and group.queue >= 0]
    wants = [(group, chunk) for group, chunk in wants if chunk]
    if not wants:
        return False
    group, chunk = wants[who % len(wants)]
    pods = [pod for pod in placed(stage, simple=True) if pod.group is not group and len(pod.left) < 2]
    gone = [world.pods[row] for row in naive.distinct([pod.row for pod in picked(pods, which)])]
    waits = [row for row in usable(stage) if find_waiting(world)[row]]
    describe(pair, trial, {*waits, group.row} & set(usable(stage)))
    waiting = [row for row in waits if row != group.row]
    ordering, limiting = stage.requested().tolist(), (stage.requested() * 1.5).tolist()
    twin = naive.Trial(world, pair.twin, waiting, list(range(len(world.groups))), ordering, limiting, feasible)
    ledger.reserve(100)
    before = (pair.heap.keys.copy(), pair.heap.amounts.copy())
    aggressor = trying.Aggressor(
        group=np.array([group.row]),
        pods=np.array([pod.row for pod in chunk], np.int64),
        elastic=pair.heap.keys[group.row, 1:2].copy(),
        amounts=pair.heap.amounts[group.row].copy(),
        feasible=np.array(feasible, np.bool_),
    )
    mark, memory = ledger.mark, world.remember()
    ended = trying.try_victims(
        ledger.facts,
        ledger.columns,
        ledger.offsets,
        stage.rules,
        stage.vectors,
        trial,
        aggressor,
        np.array([pod.row for pod in gone], np.int64),
    )
    found, failed = naive.try_victims(twin, group, chunk, gone)
    told = trial.failed[: trial.state[trying.FAILED]].tolist()
    assert (ended == trying.PLACED, [(code // 2, code % 2 == 1) for code in told]) == (found, failed)
    stage.agree()
    assert (pair.heap.keys == before[0]).all()
    assert (pair.heap.amounts == before[1]).all()
    if is_undone:
        ledger.undo_to(mark)
        world.recall(memory)
    return True


owed = st.none() | st.lists(st.sampled_from((0, 0, 500, 1000, 2000, 4000)), min_size=8, max_size=8)


def owing(stage, owed, model):
    """Return the facts with what queues are owed of models, the same as lists, and the model of a group."""
    facts, (queues, models) = stage.ledger.facts, stage.ledger.columns.queue_models.shape
    if owed is None or not models:
        none = np.zeros((queues, 0), np.int64)
        return facts.replace(queues=facts.queues.replace(deserved=none)), [], -1
    deserved = [[owed[(at * models + model) % len(owed)] for model in range(models)] for at in range(queues)]
    queues = facts.queues.replace(deserved=np.array(deserved, np.int64))
    return facts.replace(queues=queues), deserved, model % (models + 1) - 1


@given(
    stages(**many),
    rows,
    st.integers(0, 8),
    amounts,
    st.booleans(),
    st.sampled_from((1.0, 1.5)),
    st.tuples(owed, st.integers(0, 3), st.sampled_from((0, 0, 0, 500, 1000))),
)
def test_reclaims_are_judged_as_by_the_twin(stage, which, who, wanted, movable, multiplier, of_models):
    owed, model, lost = of_models
    world, ledger = stage.world, stage.ledger
    facts, deserved, model = owing(stage, owed, model)
    models = [[held + lost for held in row] for row in ledger.columns.queue_models.tolist()] if deserved else []
    mine = [group for group in world.groups if group.queue >= 0]
    if not mine:
        return
    group = mine[who % len(mine)]
    used = [tuple(map(float, world.used(queue.row))) for queue in world.queues]
    fixed = [tuple(map(float, world.used(queue.row, fixed=True))) for queue in world.queues]
    everybody = [
        pod
        for pod in world.pods
        if pod.status in {Status.RELEASING, Status.RUNNING, Status.PIPELINED}
        and pod.leaf is not None
        and pod.group is not None
        and pod.group.queue >= 0
    ]
    gone = [world.pods[row] for row in naive.distinct([pod.row for pod in picked(everybody, which)])]
    queues = len(world.queues)
    claim = fairness.Claim(
        used=np.array(used),
        fixed=np.array(fixed),
        models=np.array(models, np.int64) if models else np.zeros_like(ledger.columns.queue_models),
        wanted=np.array(wanted),
        group=np.array([group.row]),
        model=np.array([model]),
        movable=movable,
        multiplier=multiplier,
    )
    loss = fairness.Loss(
        remaining=np.zeros((queues, 3)),
        of_model=np.zeros(queues, np.int64),
        known=np.ones(queues, np.bool_),
        involved=np.ones((queues, 3), np.bool_),
        at_fault=np.zeros(2, np.int64),
    )
    code = fairness.judge(facts, ledger.columns, claim, loss, np.array([pod.row for pod in gone], np.int64))
    words = {
        fairness.FAIR: "fair",
        fairness.NOT_JUSTIFIED: "strategy",
        fairness.TOO_SATURATED: "saturation",
        fairness.BEYOND_QUOTA: "quota",
        fairness.MODEL_OWED: "model",
    }
    case = naive_fairness.Case(world, group, wanted, used, fixed, movable, multiplier, models, deserved, model)
    assert words[code] == naive_fairness.judge(case, gone)


@given(stages(**many), st.integers(0, 8), amounts, owed, st.integers(0, 3))
def test_greedy_queues_are_those_of_the_twin(stage, who, wanted, owed, model):
    world, ledger = stage.world, stage.ledger
    facts, deserved, model = owing(stage, owed, model)
    mine = [group for group in world.groups if group.queue >= 0]
    if not mine:
        return
    group = mine[who % len(mine)]
    pairs = np.zeros((2, len(world.queues)), np.int64)
    fairness.find_level_pairs(facts, group.queue, *pairs)
    assert [tuple(pair) for pair in pairs.T.tolist()] == naive_fairness.find_level_pairs(world, group.queue)
    found = fairness.find_greedy(facts, ledger.columns, *pairs, np.array(wanted), group.queue, model)
    used = [tuple(map(float, world.used(queue.row))) for queue in world.queues]
    models = ledger.columns.queue_models.tolist() if deserved else []
    case = naive_fairness.Case(world, group, wanted, used, used, False, 1.0, models, deserved, model)
    assert found.tolist() == naive_fairness.find_greedy(case)
    may_take = fairness.may_take_by_model(facts, ledger.columns, group.queue, model, np.array(wanted))
    assert may_take == naive_fairness.may_take_by_model(case)
