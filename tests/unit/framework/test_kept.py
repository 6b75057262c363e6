from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels.place import REFUSED, UNSURE
from kai.facts.state.ledger import Tracked
from kai.framework import Effect, kept
from kai.framework.kept import EVERYWHERE, NOWHERE, Given, KeptAnswers, KeptDetails, KeptTransitions, NodeStates

NODES = 3
ALL = np.arange(NODES)
OWNERS = (np.array([0, 0, 1, 2, EVERYWHERE, NOWHERE]), np.array([2, 0, 1]))


def column(numbers):
    values = np.array(numbers, np.int64)
    return Tracked(values, values=values.copy())


def columns():
    return [column([0] * len(owners)) for owners in OWNERS]


def law(ask, cells, node):
    """Return an answer that follows from the ask and from the cells of a node, as a plain twin."""
    mine = [
        values.values[(owners == node) | (owners == EVERYWHERE)] for values, owners in zip(cells, OWNERS, strict=True)
    ]
    return ask * 1000 + sum((at + 1) * int(number) for at, number in enumerate(np.concatenate(mine)))


changes = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2), st.integers(1, 2)), min_size=1, max_size=30
)


@given(changes=changes, forgets=st.booleans())
def test_kept_answers_equal_fresh_ones(changes, forgets):
    """Cells change to and fro, as in simulations that are undone; asks alternate."""
    states, cells = NodeStates(ALL, OWNERS), columns()
    answers, details = KeptAnswers(states, np.int64), KeptDetails(states)
    before = kept.MOST_STATES
    kept.MOST_STATES = -8 if forgets else before
    try:
        for at, cell, number, ask in changes:
            cells[at].values[cell] = number
            states.read(cells)
            fresh = [law(ask, cells, node) for node in range(NODES)]

            def answer(nodes, ask=ask):
                return np.array([law(ask, cells, node) for node in nodes], np.int64)

            assert answers.of(ask, ALL, answer).tolist() == fresh
            assert [details.of(ask, node, lambda: law(ask, cells, node)) for node in range(NODES)] == fresh  # noqa: B023 - called at once
    finally:
        kept.MOST_STATES = before


def asked_about(states, cells):
    """Return a function that asks about all nodes, and the nodes that had to be answered about so far."""
    answers, asked = KeptAnswers(states, np.bool_), []

    def answer(rows):
        asked.append(rows.tolist())
        return np.ones(len(rows), np.bool_)

    def ask(what="ask"):
        states.read(cells)
        return answers.of(what, ALL, answer)

    return ask, asked


def test_only_nodes_with_changed_cells_are_answered_about_again():
    cells = columns()
    ask, asked = asked_about(NodeStates(ALL, OWNERS), cells)
    ask()
    cells[0].values[2] += 1
    ask()
    cells[0].values[2] -= 1
    ask()
    assert asked == [[0, 1, 2], [1]]


def test_an_all_nodes_cell_concerns_each_node():
    cells = columns()
    ask, asked = asked_about(NodeStates(ALL, OWNERS), cells)
    ask()
    cells[0].values[5] += 1
    ask()
    cells[0].values[4] += 1
    ask()
    assert asked == [[0, 1, 2], [0, 1, 2]]


def test_nodes_of_one_kind_with_equal_cells_share_answers():
    owners = (np.array([0, 1, 2]),)
    cells = [column([0, 0, 1])]
    ask, asked = asked_about(NodeStates(np.zeros(NODES, np.int64), owners), cells)
    ask()
    cells[0].values[2] = 0
    ask()
    assert asked == [[0, 2]]


def test_another_ask_has_answers_of_its_own():
    cells = columns()
    ask, asked = asked_about(NodeStates(ALL, OWNERS), cells)
    ask("one")
    ask("two")
    ask("one")
    assert asked == [[0, 1, 2], [0, 1, 2]]


class Licences:
    """A plugin that gives each pod some licences of the first of two lots of its node that has enough of them."""

    def __init__(self, free, sizes):
        self.free, self.sizes = column(free), sizes
        self.users = column([0] * NODES)
        self.asked = []

    def give(self, pod, node, content):
        """Return what a pod gets where this number is free; with seven left, another pod might get something else."""
        self.asked.append((int(pod), int(node), content.tolist()))
        size = self.sizes[pod]
        lot = next((lot for lot in (0, 1) if content[lot] >= size), None)
        return Given(None if lot is None else (lot, size), rating=float(content.sum()), is_sure=content[0] != 7)

    def draw(self, node, detail):
        lot, size = detail
        return [Effect(self.free, 2 * int(node) + lot, -size), Effect(self.users, int(node), 1)]

    def open(self, tables):
        view = SimpleNamespace(
            nodes=ALL,
            snapshot=SimpleNamespace(pods=self.sizes),
            track=lambda initial: Tracked(initial, values=initial),
        )
        shapes = [(size, pod) for pod, size in enumerate(self.sizes)]
        columns = [self.free, self.users]
        return tables.open(
            view, columns, lambda: [*shapes, None], self.give, self.draw, lambda pod: (0, self.sizes[pod])
        )


def lots():
    owners = np.repeat(ALL, 2), ALL
    return KeptTransitions(NodeStates(np.array([0, 0, 1]), owners))


steps = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, 3), st.booleans()), max_size=40)
amounts = st.lists(st.integers(0, 9), min_size=2 * NODES, max_size=2 * NODES)


@given(free=amounts, steps=steps, cycles=st.integers(1, 2))
def test_transitions_say_what_a_plugin_says_state_by_state(free, steps, cycles):
    tables, plugin = lots(), None
    for _ in range(cycles):
        plugin = Licences(free, [1, 2, 2, 3])
        found = plugin.open(tables)
        asks, now = found.asks(), found.read()
        contents = [[*free[2 * node : 2 * node + 2], 0] for node in range(NODES)]
        holders = [[] for _ in range(NODES)]
        for node, pod, comes in steps:
            state = int(now[node])
            if comes:
                table = found.answer(np.array([[state, -1 - asks[pod]]], np.int64))
                given = plugin.give(pod, node, np.array(contents[node]))
                after = int(table.taken[state, asks[pod]])
                assert table.ratings[state, asks[pod]] == given.rating
                assert (after == REFUSED) == (given.detail is None)
                assert (after == UNSURE) == (given.detail is not None and not given.is_sure)
                if after < 0:
                    continue
                holding = int(table.given[state, asks[pod]])
                assert found.details(np.array([holding])) == [given.detail]
                holders[node].append((holding, given.detail))
                (lot, size), sign = given.detail, 1
            elif holders[node]:
                holding, (lot, size) = holders[node].pop(pod % len(holders[node]))
                after, sign = int(found.answer(np.array([[state, holding]], np.int64)).left[state, holding]), -1
            else:
                continue
            contents[node][lot] -= sign * size
            contents[node][2] += sign
            now[node] = after
        changed = {
            (id(each), cell): more
            for each, cells, added in found.changes(now)
            for cell, more in zip(cells.tolist(), added.tolist(), strict=True)
        }
        for node, content in enumerate(contents):
            for at, each in ((2 * node, plugin.free), (2 * node + 1, plugin.free), (node, plugin.users)):
                wanted = content[2] if each is plugin.users else content[at % 2]
                assert each.values[at] + changed.get((id(each), at), 0) == wanted
        assert found.held(np.array([0, 1]), [None, (1, 2)]).tolist() == [
            tables._holding_of((0, 1)),
            tables._holding_of((1, 2)),
        ]


def test_a_transition_is_asked_about_once_for_each_state():
    tables = lots()
    for _ in range(2):
        plugin = Licences([4, 4, 4, 4, 4, 4], [1])
        found = plugin.open(tables)
        (ask, _), states = found.asks(), found.read()
        table = found.answer(np.array([[state, -1 - ask] for state in states.tolist()], np.int64))
        assert table.taken[states[0], ask] == table.taken[states[1], ask] != table.taken[states[2], ask]
    assert states.tolist() == [0, 0, 1]
    assert (table.taken[states, ask] >= 0).all()


def test_effects_elsewhere_leave_an_answer_to_the_plugin():
    plugin = Licences([4] * 6, [1])
    plugin.draw = lambda node, _: [Effect(plugin.free, (2 * int(node) + 2) % 6, -1)]
    found = plugin.open(lots())
    (ask, _), states = found.asks(), found.read()
    assert found.answer(np.array([[states[0], -1 - ask]], np.int64)).taken[states[0], ask] == UNSURE


def test_too_many_states_have_no_table(monkeypatch):
    monkeypatch.setattr(kept, "MOST_CELLS", 8)
    found = Licences([4] * 6, [1]).open(lots())
    found.asks()
    assert found.read() is None


def test_a_session_with_forgotten_numbers_has_no_table(monkeypatch):
    tables = lots()
    found = Licences([4] * 6, [1]).open(tables)
    found.asks()
    assert found.read() is not None
    monkeypatch.setattr(kept, "MOST_ASKS", 0)
    later = Licences([4] * 6, [1]).open(tables)
    assert found.read() is None
    assert later.read() is not None
