from hypothesis import given
from hypothesis import strategies as st

from kai.lab.report.gantt import Bar, bars_of, lanes_of
from tests.unit.lab.report.builders import reclaimed

BARS = st.builds(
    lambda job, node, start, length, gpus: Bar(
        job=job, node=node, start=float(start), end=float(start + length), gpus=gpus, pods=1
    ),
    st.integers(0, 30),
    st.sampled_from(["a", "b"]),
    st.integers(0, 20),
    st.integers(1, 10),
    st.sampled_from([0.25, 0.5, 1.0, 4.0]),
)


@given(st.lists(BARS, unique=True))
def test_no_two_bars_of_a_node_overlap(bars: list[Bar]):
    lanes = lanes_of(bars)
    assert set(lanes) == set(bars)
    for one in bars:
        for other in bars:
            if one is not other and one.node == other.node and one.start < other.end and other.start < one.end:
                assert lanes[one] + one.gpus <= lanes[other] + 1e-9 or lanes[other] + other.gpus <= lanes[one] + 1e-9


def test_bars_equal_the_stays_computed_by_hand():
    result = reclaimed()
    bars = [(result.jobs[bar.job].name, bar.start, bar.end, bar.gpus) for bar in bars_of(result)]
    assert sorted(bars) == [("long", 0.0, 3630.0, 8.0), ("long", 5430.0, 10530.0, 8.0), ("short", 3630.0, 5430.0, 4.0)]
