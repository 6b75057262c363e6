"""Groups are taken off totals as if they had never been added."""

from hypothesis import given
from hypothesis import strategies as st

from kai.actions.search.losses import Cost, Totals

AMOUNTS = st.integers(0, 10**12)
GROUPS = st.lists(
    st.tuples(
        st.builds(Cost, st.just(0), st.integers(0, 1), AMOUNTS, st.integers(0, 64), AMOUNTS),
        st.integers(0, 2),
        st.tuples(AMOUNTS, AMOUNTS, AMOUNTS),
        st.dictionaries(st.integers(-3, 3), st.integers(0, 8000)),
    ),
    max_size=8,
)


def totals_of(groups):
    totals = Totals()
    for group in groups:
        totals.add(*group)
    return totals


def seen(totals):
    losses = {queue: tuple(lost) for queue, lost in totals.losses.items() if any(lost)}
    return totals.sums, losses, totals.freed


@given(GROUPS, st.data())
def test_totals_without_some_groups_are_those_of_the_rest(groups, data):
    gone = data.draw(st.sets(st.sampled_from(range(len(groups)))) if groups else st.just(set()))
    totals = totals_of(groups)
    for at in gone:
        totals.take_off(*groups[at])
    assert seen(totals) == seen(totals_of(each for at, each in enumerate(groups) if at not in gone))


def test_a_copy_leaves_the_original_as_it_is():
    one = (Cost(0, 1, 5, 2, 8), 0, (1.0, 2.0, 3.0), {4: 1000})
    totals = totals_of([one, one])
    before = seen(totals_of([one, one]))
    totals.copy().take_off(*one)
    assert seen(totals) == before
