import attrs
import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from kai.facts.kernels import booking
from kai.facts.kernels.accounting import reopen_accounts
from kai.facts.kernels.columns import OP_ALLOCATE, BudgetFacts, take_back, touch
from kai.facts.model.pod import Status
from kai.facts.state.base import make_base
from tests.kernels.naive import booking as naive
from tests.kernels.naive import columns as naive_columns
from tests.kernels.stage import Stage, operations
from tests.properties.strategies import SMALLEST, snapshots


@given(snapshots(models=True))
def test_books_open_as_the_twin_opens_them(snapshot):
    Stage.of(snapshot).agree()


@given(snapshots())
def test_before_any_promise_the_peers_books_are_the_same(snapshot):
    base = make_base(snapshot)
    facts = base.facts.replace(nodes=base.facts.nodes.replace(books_as_peer=True))
    own, peers = (each.open(snapshot).arena.tolist() for each in (base, attrs.evolve(base, facts=facts)))
    assert own == peers


@given(
    snapshots(models=True), st.dictionaries(st.integers(0, 20), st.tuples(st.sampled_from(Status), st.integers(-1, 3)))
)
def test_books_are_opened_again_as_by_the_twin(snapshot, elsewhere):
    stage = Stage.of(snapshot)
    ledger, world = stage.ledger, stage.world
    assume(not any(pod.shape.shared for pod in world.pods))
    moved = {
        row: (int(status), min(node, len(world.nodes) - 1))
        for row, (status, node) in elsewhere.items()
        if row < len(world.pods) and status not in (Status.ALLOCATED, Status.PIPELINED)
    }
    rows, said = np.array(list(moved), np.int64), np.array([*moved.values()], np.int64).reshape(-1, 2)
    status, node = said[:, 0].copy(), said[:, 1].copy()
    reopen_accounts(ledger.facts, ledger.facts, ledger.columns, rows, status, node)
    naive.reopen_accounts(world, moved)
    stage.agree()


@given(snapshots(models=True), st.lists(operations, min_size=3, max_size=12), st.integers(0, 9))
def test_every_verb_books_what_its_twin_books(snapshot, what_happens, seed):
    stage = Stage.of(snapshot, seed)
    for operation in what_happens:
        stage.do(operation)
        stage.agree()


@given(snapshots(), st.lists(operations, max_size=8), st.integers(0, 9))
def test_pods_cost_budgets_what_the_twin_says(snapshot, what_happens, seed):
    stage = Stage.of(snapshot, seed)
    for operation in what_happens:
        stage.do(operation)
    ledger, world, some = stage.ledger, stage.world, np.random.default_rng(seed)
    queues, models = len(snapshot.queues), 3
    counts = some.integers(0, 3, queues)
    budgets = BudgetFacts(
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        left=some.integers(0, 10**9, counts.sum()),
        stops=some.integers(0, 2, counts.sum()) > 0,
        weights=some.integers(0, 5_000, (counts.sum(), models + 1)),
        node_model=some.integers(0, models, len(world.nodes)),
        group_model=some.integers(0, models + 1, len(world.groups)),
        duration=some.integers(-1, 10**6, len(world.groups)),
    )
    gpus = some.integers(0, 8_000, len(world.pods))
    columns = ledger.columns.replace(budget_used=np.ones(counts.sum(), np.int64))
    booking.book_budgets(ledger.facts.replace(budgets=budgets), columns, gpus)
    assert columns.budget_used.tolist() == naive.book_budgets(world, budgets, gpus.tolist())


@given(snapshots(models=True), st.lists(operations, min_size=1, max_size=10), st.integers(0, 9))
def test_settling_binds_whom_the_statement_allocated(snapshot, what_happens, seed):
    stage = Stage.of(snapshot, seed)
    for operation in what_happens:
        stage.do(operation)
    stage.ledger.settle()
    naive.settle(stage.world)
    stage.agree()
    allocated = {pod.row for pod in stage.world.pods if pod.status == Status.ALLOCATED}
    assert allocated.isdisjoint(row for verb, row in stage.world.operations if verb == OP_ALLOCATE)


@given(
    snapshots(models=True), st.lists(operations, min_size=1, max_size=6), st.lists(operations, min_size=1, max_size=8)
)
def test_undoing_to_a_mark_equals_what_came_before(snapshot, before, after):
    stage = Stage.of(snapshot)
    ledger = stage.ledger
    opening = ledger.arena.tolist()
    for operation in before:
        if operation[0] != "seal":
            stage.do(operation)
    mark, world, arena = ledger.mark, stage.world.remember(), ledger.fingerprint()
    for operation in after:
        if operation[0] != "seal":
            stage.do(operation)
    journal = [(int(offset), int(delta)) for offset, delta in ledger.columns.journal[: ledger.mark]]
    ledger.undo_to(mark)
    assert ledger.fingerprint() == arena
    assert ledger.arena.tolist() == naive_columns.undo_to(opening, journal, mark)
    stage.world.recall(world)
    stage.agree()


@given(snapshots(models=True), st.lists(operations, min_size=1, max_size=12))
def test_what_a_session_wrote_can_be_taken_back(snapshot, what_happens):
    """What was made final included; counters begin anew with each session."""
    stage = Stage.of(snapshot)
    ledger = stage.ledger
    opening, journal_before = ledger.arena.copy(), ledger.mark
    for operation in what_happens:
        stage.do(operation)
    assert ledger.is_whole
    assert journal_before == 0
    arena, journal = ledger.arena.copy(), ledger.journal[: ledger.mark].tolist()
    take_back(arena, ledger.journal, ledger.mark)
    assert arena.tolist() == naive_columns.take_back(ledger.arena.tolist(), journal)
    opening[ledger.offsets.counters] = arena[ledger.offsets.counters]
    assert arena.tolist() == opening.tolist()


@given(snapshots(), st.data())
def test_cells_change_one_after_the_other(snapshot, data):
    ledger = Stage.of(snapshot).ledger
    cells = st.integers(0, len(ledger.arena) - 1)
    changes = data.draw(st.lists(st.tuples(cells, st.integers(-3, 3)), max_size=20))
    arena, journal = ledger.arena.tolist(), []
    naive_columns.add_each(arena, journal, changes)
    mark = ledger.mark
    ledger.add_cells(np.array(changes, np.int64).reshape(-1, 2))
    assert ledger.arena.tolist() == arena
    assert ledger.journal[mark : ledger.mark].tolist() == [[*entry] for entry in journal]


@given(snapshots(models=True), st.lists(operations, max_size=8))
def test_groups_whose_pods_changed_status_are_noted(snapshot, what_happens):
    stage = Stage.of(snapshot)
    columns = stage.ledger.columns
    for operation in what_happens:
        before, seen = stage.ledger.columns.status.tolist(), int(columns.changes[0])
        stage.do(operation)
        noted = columns.changed[seen : int(columns.changes[0])].tolist()
        pairs = zip(before, stage.ledger.columns.status.tolist(), stage.ledger.facts.pods.group.tolist(), strict=True)
        assert {group for old, now, group in pairs if old != now and group >= 0} <= {*noted}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), max_size=20))
def test_writes_are_kept_in_a_journal(writes):
    stage = Stage.of(SMALLEST)
    ledger = stage.ledger
    arena, journal = ledger.arena.tolist(), []
    ledger.reserve(len(writes))
    for offset, delta in writes:
        booking.add(ledger.columns, offset, delta)
        naive_columns.add(arena, journal, offset, delta)
    assert ledger.arena.tolist() == arena
    assert ledger.columns.journal[: ledger.mark].tolist() == [list(entry) for entry in journal]


@given(snapshots(models=True))
def test_gpus_of_a_shape_are_counted_like_the_twin(snapshot):
    stage = Stage.of(snapshot)
    facts, world = stage.ledger.facts, stage.world
    for shape in world.shapes:
        assert booking.requested_gpu(facts, shape.row) == naive.requested_gpu(world, shape)
        for node in (-1, *range(len(world.nodes))):
            assert booking.accepted_gpu(facts, shape.row, node) == naive.accepted_gpu(world, shape, node)
            if shape.shared and node >= 0:
                assert booking.portion_on_node(facts, shape.row, node) == naive.portion_on_node(world, shape, node)


def test_a_new_placement_is_empty():
    stage = Stage.of(SMALLEST)
    ledger = stage.ledger
    ledger.columns.placement_slots[1:] = 7
    ledger.reserve(1)
    assert booking.new_placement(ledger.columns, ledger.offsets) == naive.new_placement(stage.world) == 1
    assert np.all(ledger.columns.placement_slots[1] == -1)
    stage.agree()


def numbers_of(columns, snapshot, node):
    start = [columns.slot_used, columns.slot_releasing, columns.slot_allocated, columns.slot_known, columns.slot_marked]
    first, last = snapshot[node], snapshot[node + 1]
    amounts = [columns.idle[node], columns.releasing[node], columns.used[node]]
    return [table.tolist() for table in (*amounts, *(column[first:last] for column in start))]


@given(snapshots(models=True), st.lists(operations, min_size=1, max_size=8))
def test_whoever_watches_the_ring_of_changed_nodes_misses_none(snapshot, what_happens):
    stage = Stage.of(snapshot)
    ledger = stage.ledger
    slots = ledger.facts.nodes.slot_start
    for operation in (*what_happens, None):
        before = [numbers_of(ledger.columns, slots, node) for node in range(len(snapshot.nodes))]
        seen = int(ledger.columns.touches[0])
        if operation is None:
            ledger.undo_to(0)
        else:
            stage.do(operation)
        told = {int(ledger.columns.touched[at % 4096]) for at in range(seen, int(ledger.columns.touches[0]))}
        after = [numbers_of(ledger.columns, slots, node) for node in range(len(snapshot.nodes))]
        assert {node for node in range(len(before)) if before[node] != after[node]} <= told


@given(st.lists(st.integers(0, 9), max_size=12))
def test_the_ring_holds_the_last_nodes_that_changed(changes):
    stage = Stage.of(SMALLEST)
    columns = stage.ledger.columns.replace(touched=np.zeros(4, np.int64), touches=np.zeros(1, np.int64))
    expected: list[int] = []
    for node in changes:
        touch(columns, node)
        expected = naive_columns.touch(expected, 4, node)
    count = int(columns.touches[0])
    assert count == len(changes)
    assert [int(columns.touched[at % 4]) for at in range(count - len(expected), count)] == expected
