"""The way down to a queue is the way up from it, turned round."""

from hypothesis import given
from hypothesis import strategies as st

from kai.basics.trees import ancestry
from kai.facts.model.groups import Queue, path_to

TREES = st.integers(1, 8).flatmap(
    lambda size: st.tuples(
        st.tuples(*[st.integers(-1, at - 1) for at in range(size)]), st.permutations(range(size))
    ).map(shuffled)
)


def shuffled(tree):
    """Return parents by row, of which each was above its children, after their rows were exchanged."""
    parents, rows = tree
    return {rows[at]: -1 if parent < 0 else rows[parent] for at, parent in enumerate(parents)}


@given(TREES)
def test_a_path_leads_from_the_top_to_the_queue(parents):
    queues = [Queue(name=f"q{row}", parent=parents[row]) for row in sorted(parents)]
    for row in parents:
        assert path_to(queues, row) == ancestry(row, parents)[::-1]
    assert path_to(queues, -1) == []
