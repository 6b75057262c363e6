"""Pods that leave and come by a table of states, compared with a twin that has one dict for each question."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels import place
from kai.facts.kernels.place import NOT_ANSWERED, REFUSED, UNKNOWN, UNSURE, TransitionTable
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status
from kai.facts.state.ledger import Tracked
from tests.kernels.naive import booking as naive_booking
from tests.kernels.naive import place as naive
from tests.kernels.stage import RULES, Stage
from tests.properties.strategies import snapshots

STATES, HOLDINGS, ASKS = 4, 3, 2


@st.composite
def tables(draw, shapes):
    """Return a table with some answers missing."""

    def numbers(most, rows, width, *others):
        return np.array(
            draw(
                st.lists(
                    st.lists(st.sampled_from([*range(most), *others]), min_size=width, max_size=width),
                    min_size=rows,
                    max_size=rows,
                )
            ),
            np.int64,
        )

    gaps = draw(st.sampled_from([(), (), (UNKNOWN,)]))
    return TransitionTable(
        ask=np.array(draw(st.lists(st.integers(-1, ASKS - 1), min_size=shapes, max_size=shapes)), np.int64),
        left=numbers(STATES, STATES, HOLDINGS, *gaps),
        taken=numbers(STATES, STATES, ASKS, REFUSED, *draw(st.sampled_from([(), (UNSURE,)])), *gaps),
        given=numbers(HOLDINGS, STATES, ASKS),
        ratings=numbers(4, STATES, ASKS) * 7.5,
        cells=np.zeros(2, np.int64),
        wanted=np.zeros((draw(st.sampled_from([1, 64])), 2), np.int64),
        wants=np.zeros(1, np.int64),
    )


def twin_of(table, states, holdings):
    taken = {}
    for state in range(STATES):
        for ask in range(ASKS):
            after = int(table.taken[state, ask])
            if after != UNKNOWN:
                given = int(table.given[state, ask]), float(table.ratings[state, ask])
                taken[state, ask] = None if after == REFUSED else (after, *given)
    left = {
        (state, held): int(table.left[state, held])
        for state in range(STATES)
        for held in range(HOLDINGS)
        if table.left[state, held] != UNKNOWN
    }
    return naive.States(
        asks=[None if ask < 0 else ask for ask in table.ask.tolist()],
        left=left,
        taken=taken,
        unsure={(int(state), int(ask)) for state, ask in np.argwhere(table.taken == UNSURE)},
        of_nodes=states.tolist(),
        of_pods=[None if held < 0 else held for held in holdings.tolist()],
    )


def questions_of(table):
    return set(map(tuple, table.wanted[: table.wants[0]].tolist()))


def leaves(stage, table, twin, pod):
    """Let a pod go on both sides; return whether the table says to which state that leads."""
    ledger = stage.ledger
    ledger.reserve(1)
    if not place.leave(ledger.facts, ledger.columns, table, pod.row):
        assert not naive.leave(twin, pod)
        return False
    assert naive.leave(twin, pod)
    ledger.evict(pod.row)
    naive_booking.evict(stage.world, pod)
    return True


@given(st.data())
def test_pods_leave_and_come_like_the_twins(data):
    snapshot = data.draw(snapshots())
    nodes, pods = len(snapshot.nodes), len(snapshot.pods)
    states = np.array(data.draw(st.lists(st.integers(0, STATES - 1), min_size=nodes, max_size=nodes)), np.int64)
    holdings = np.array(data.draw(st.lists(st.integers(-1, HOLDINGS - 1), min_size=pods, max_size=pods)), np.int64)
    columns = Tracked(states), Tracked(holdings)
    stage = Stage.of(snapshot, data.draw(st.integers(0, 9)), data.draw(st.sampled_from(RULES)), columns)
    table = data.draw(tables(len(snapshot.shapes)))
    table = table.replace(cells=np.array([column.offset for column in columns], np.int64))
    twin, before = twin_of(table, states, holdings), stage.ledger.fingerprint()
    for pod in [pod for pod in stage.world.pods if pod.is_in(ACTIVE_ALLOCATED) and data.draw(st.booleans())]:
        if not leaves(stage, table, twin, pod):
            break
    coming = [
        pod
        for pod in stage.world.pods
        if pod.status == Status.PENDING or (pod.status == Status.RELEASING and pod.evicted is not None)
    ]
    coming = data.draw(st.permutations(coming))[:4]
    rows, extra = np.arange(nodes), np.array([0.0, np.nan, 5.0, 5.0, 0.0, 1.0])[:nodes]
    ledger = stage.ledger
    ledger.reserve(2 * len(coming) + 2)
    asked = ledger.facts, ledger.columns, ledger.offsets, stage.rules, stage.vectors, table
    found = place.promise_by_table(*asked, np.array([pod.row for pod in coming], np.int64), rows, extra)
    wanted = naive.promise_by_table(stage.world, stage.rules, twin, coming, rows.tolist(), extra.tolist())
    assert found == (NOT_ANSWERED if wanted is None else wanted)
    if len(table.wanted) > 1:
        assert questions_of(table) == twin.questions
    assert columns[0].values.tolist() == twin.of_nodes
    assert [None if held < 0 else held for held in columns[1].values.tolist()] == twin.of_pods
    stage.agree()
    ledger.undo_to(0)
    assert ledger.fingerprint() == before
