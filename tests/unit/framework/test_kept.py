import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.state.ledger import Tracked
from kai.framework import kept
from kai.framework.kept import EVERYWHERE, NOWHERE, KeptAnswers, KeptDetails, NodeStates

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
