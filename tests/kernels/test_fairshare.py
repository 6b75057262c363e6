import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels import fairshare
from tests.kernels.naive import fairshare as naive

amounts = st.sampled_from((0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 3.3, 7.0, 16.0)) | st.floats(0.0, 50.0)
bounds = st.just(naive.UNLIMITED) | amounts
queues = st.lists(
    st.tuples(
        bounds,  # quota
        bounds,  # limit
        st.sampled_from((0.0, 1.0, 1.0, 2.0, 0.3, 5.0)),  # weight
        amounts,  # request
        st.sampled_from((0.0, 0.0, 0.1, 0.5, 1.0)) | st.floats(0.0, 1.0),  # usage
        st.sampled_from((100, 100, 200, 0)),  # priority
        st.sampled_from((0.0, 0.0, 0.0, 1.0, 2.5)),  # what it has already
    ),
    min_size=1,
    max_size=6,
)
totals = st.sampled_from((0.0, 1.0, 4.0, 8.0, 10.0)) | st.floats(0.0, 100.0)
strengths = st.sampled_from((0.0, 0.5, 1.0, 10.0))


def twins(drawn, ages, *, start):
    return [
        naive.Queue(quota, limit, weight, request, usage, priority, ages.index(row), have if start else 0.0)
        for row, (quota, limit, weight, request, usage, priority, have) in enumerate(drawn)
    ]


def columns(drawn):
    quota, limit, weight, request, usage, priority, start = (np.array(column) for column in zip(*drawn, strict=True))
    return quota, limit, weight, request, usage, priority.astype(np.int64), start.astype(np.float64)


@given(queues, totals, strengths, st.randoms(use_true_random=False))
def test_quotas_and_surplus_divide_exactly_like_the_twin(drawn, total, k, random):
    order = list(range(len(drawn)))
    random.shuffle(order)
    quota, limit, weight, request, usage, priority, _ = columns(drawn)
    shares = np.zeros(len(drawn), np.float64)
    left = fairshare.divide(total, np.array(order, np.int64), priority, quota, limit, weight, usage, request, k, shares)
    expected = twins(drawn, order, start=False)
    assert left == naive.divide(total, expected, k)
    assert shares.tolist() == [queue.share for queue in expected]


@given(queues, totals, strengths, st.randoms(use_true_random=False))
def test_a_surplus_alone_divides_exactly_like_the_twin(drawn, surplus, k, random):
    order = list(range(len(drawn)))
    random.shuffle(order)
    _, limit, weight, request, usage, priority, shares = columns(drawn)
    left = fairshare.give_surplus(
        surplus, np.array(order, np.int64), priority, weight, usage, request, limit, k, shares
    )
    expected = twins(drawn, order, start=True)
    assert left == naive.give_surplus(surplus, expected, k)
    assert shares.tolist() == [queue.share for queue in expected]


@given(queues, totals, strengths)
def test_no_more_is_divided_than_remains_after_quotas(drawn, total, k):
    quota, limit, weight, request, usage, priority, _ = columns(drawn)
    order = np.arange(len(drawn), dtype=np.int64)
    shares = np.zeros(len(drawn), np.float64)
    left = fairshare.divide(total, order, priority, quota, limit, weight, usage, request, k, shares)
    usable = np.where(limit == naive.UNLIMITED, request, np.minimum(limit, request))
    granted = np.minimum(np.where(quota == naive.UNLIMITED, total, quota), usable)
    assert left >= 0.0
    assert np.all(shares >= granted - 1e-9)
    # A remainder may lift a queue above what it can use, by less than one unit.
    assert np.all(shares <= usable + 1.0)
    assert shares.sum() + left <= max(total, granted.sum()) + 1e-6


hundredths = st.integers(0, 300).map(lambda amount: amount / 100)


@given(st.lists(st.tuples(hundredths, st.sampled_from((200, 100))), min_size=2, max_size=6), strengths)
def test_rounding_a_surplus_takes_nothing_from_a_queue(wishes, k):
    """There may be just as much as the first queues ask for; sums of hundredths then end a little below 0."""
    request, priority = (np.array(column, np.float64) for column in zip(*wishes, strict=True))
    queues = len(wishes)
    order, shares = np.arange(queues, dtype=np.int64), np.zeros(queues, np.float64)
    total = round(float(request[priority == 200].sum()), 2)
    unlimited, none = np.full(queues, naive.UNLIMITED), np.zeros(queues)
    left = fairshare.divide(
        total, order, priority.astype(np.int64), none, unlimited, np.ones(queues), none, request, k, shares
    )
    assert left >= 0.0
    assert np.all(shares >= 0.0)


def test_lower_priority_queues_get_nothing_when_others_take_all():
    request = np.array([0.6, 0.6, 0.6, 0.6, 0.6, 4.0, 4.0])
    priority = np.array([200, 200, 200, 200, 200, 100, 100])
    shares, none = np.zeros(7), np.zeros(7)
    order, unlimited = np.arange(7), np.full(7, naive.UNLIMITED)
    assert fairshare.divide(3.0, order, priority, none, unlimited, np.ones(7), none, request, 1.0, shares) == 0.0
    assert shares.tolist() == [0.6, 0.6, 0.6, 0.6, 0.6, 0.0, 0.0]


trees = st.lists(
    st.tuples(
        st.sampled_from((-1, 0, 1, 2)),  # parent, if it comes before
        st.sampled_from((0.0, 0.0, 1.0, 1000.0, 2500.0, 8000.0, -1.0)),  # quota
        st.sampled_from((0, 0, 500, 1000, 4000)),  # held by itself
        st.sampled_from((0, 0, 500, 1000, 4000)),  # waited for by itself
    ),
    min_size=1,
    max_size=7,
)


@given(trees, st.sampled_from((0, 999, 1000, 3000, 8000)))
def test_models_are_owed_as_by_the_twin(tree, pool):
    parents = [parent if parent < row else -1 for row, (parent, *_) in enumerate(tree)]
    quotas, held, waiting = ([row[column] for row in tree] for column in (1, 2, 3))
    for row in reversed(range(len(tree))):
        if parents[row] >= 0:
            held[parents[row]] += held[row]
    expected = naive.divide_models(parents, quotas, pool, held, waiting)
    tables = [np.array([quotas]).T.copy(), np.array([held]).T.copy(), np.array([waiting]).T.copy()]
    owed = np.zeros((len(tree), 1), np.int64)
    order = np.arange(len(tree))
    fairshare.divide_models(order, np.array(parents), tables[0], np.array([pool]), *tables[1:], owed)
    assert owed[:, 0].tolist() == expected
    tops = [row for row, parent in enumerate(parents) if parent < 0]
    assert sum(expected[row] for row in tops) <= pool
    for queue in range(len(tree)):
        children = [row for row, parent in enumerate(parents) if parent == queue]
        assert sum(expected[row] for row in children) <= expected[queue]
