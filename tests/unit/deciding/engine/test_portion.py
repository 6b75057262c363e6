import pytest

from kai.testing import pod_row, snapshot
from kai.testing.views import open_session


@pytest.fixture
def session():
    gang = {"members": 4, "minimum": 2, "each": {"gpu": 1}, "runs_on": ["n", "n"]}
    return open_session(snapshot({"n": {"gpu": 2}}, {"gang": gang}))


def rows(session, *names):
    return [pod_row(session.view, name) for name in names]


def evict(session, statement, *names):
    for row in rows(session, *names):
        statement.evict(session.portion(0).pods()[session.portion(0).pods() == row])


def test_a_chunk_fills_the_minimum_with_evicted_pods(session):
    with session.statement("test") as statement:
        evict(session, statement, "gang-0", "gang-1")
        assert session.portion(0).chunk().tolist() == rows(session, "gang-0", "gang-1")
        assert session.portion(0).amounts().tolist()[2] == 2000


def test_a_chunk_is_kept_after_its_evictions_commit(session):
    with session.statement("test") as statement:
        evict(session, statement, "gang-0", "gang-1")
        assert session.portion(0).amounts()[2] == 2000
        statement.commit()
    assert session.portion(0).chunk().tolist() == rows(session, "gang-0", "gang-1")
    assert session.portion(0).amounts()[2] == 2000


def test_a_kept_chunk_requests_nothing_for_placed_pods(session):
    with session.statement("test") as statement:
        evict(session, statement, "gang-0", "gang-1")
        kept = session.portion(0).chunk().tolist()
        statement.commit()
    assert session.portion(0).chunk().tolist() == kept
    assert session.portion(0).amounts().tolist() == [0, 0, 0]


def test_a_partial_minimum_is_capped_except_in_empty_leaves():
    parts = {"a": {"members": 2, "each": {"gpu": 1}}, "b": {"members": 2, "each": {"gpu": 1}}}
    portion = open_session(snapshot({"n": {"gpu": 4}}, {"tree": {"subgroups": parts}})).portion(0)
    first, second = portion.leaves
    part = portion.part(portion.pods_of(first)[:1], shrink=True)
    assert (part.minimum(first), part.minimum(second)) == (1, 2)
    assert part.elastic_state() == 0.0
