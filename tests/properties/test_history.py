"""Laws of the history of usage: what is recorded is counted once and exactly, whatever happens to those who record."""

import math
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.history import reports
from kai.history.database import DAY, MEMORY, Author, Writer, connect
from kai.history.facts import Amounts, Ended, Held, JobFacts, NodeState, QueueFacts
from kai.history.reports import past_usage
from kai.history.sums import HOURLY, weight

T = 1_800_000_000_000
TOP = QueueFacts(uid="top", name="top")
QUEUES = [QueueFacts(uid=name, name=name, parent=TOP) for name in ("a", "b", "c")]
HOUR = 3_600_000
NODE = NodeState(model="H100", capacity=Amounts(64_000, 640_000, 1_000_000))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "hold", "hold", "part", "end", "fail", "wait", "crash"]),
        st.integers(0, 3),  # which job
        st.integers(0, 2),  # of which queue
        st.integers(1, 8),  # GPUs
        st.integers(-5_000, 50_000),  # after how many milliseconds; a clock may be set back
    ),
    max_size=30,
)
LONG_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "hold", "part", "end", "fail", "wait", "crash", "other half-life"]),
        st.integers(0, 3),
        st.integers(0, 2),
        st.integers(1, 8),
        st.one_of(st.integers(0, 10_000_000), st.sampled_from([HOUR, 2 * HOUR, 7 * HOUR, 30 * HOUR, -5_000])),
    ),
    max_size=20,
)
"""Hours pass, and begins and ends fall on the edges of some."""
OLD = st.sampled_from([HOURLY, DAY, 0])
"""For how long hours keep their rows."""
HALF_LIVES = st.sampled_from([0, 1_000, 60_000, 3_600_000])


class Kept:
    """A database in memory that outlives its writers, and the same history as a plain list."""

    def __init__(self, shift=0, half_life=0, hourly=HOURLY, retention=90 * DAY):
        self.half_life, self.hourly, self.retention = half_life, hourly, retention
        self.connection = self.connected()
        self.now = self.clock = T + shift
        self.epoch, self.open, self.closed = 0, {}, []
        self.begin()

    def connected(self):
        return connect(MEMORY, writes=True)

    def begin(self):
        self.epoch += 1
        author, held = (
            Author(epoch=self.epoch, identity=str(self.epoch)),
            {key: each for key, (each, _) in self.open.items()},
        )
        nodes = {"n": NODE}
        self.writer = Writer.begin(
            MEMORY,
            author,
            self.clock,
            held,
            nodes,
            retention=self.retention,
            half_life=self.half_life,
            connection=self.connection,
        )
        self.writer.hours.hourly = self.hourly

    def step(self, kind, job, queue, gpus, later):
        self.clock += later
        self.now = max(self.now, self.clock)
        key = (f"job-{job}", "n")
        if kind in {"crash", "other half-life"}:
            self.half_life = self.half_life if kind == "crash" else max(0, later) // 10
            self.begin()
        elif kind == "wait":
            self.writer.write(self.clock)
        else:
            facts = JobFacts(uid=key[0], namespace="ns", name=key[0], user=f"user-{job % 2}")
            amounts = Amounts(gpus * 1000, gpus * 100, gpus)
            now = Held(job=facts, queue=QUEUES[queue], model="H100", amounts=amounts)
            if key in self.open:
                before, since = self.open.pop(key)
                self.closed.append((before, since, self.now))
            if kind in {"hold", "part"}:
                self.open[key] = (now, self.now)
            part = attrs.evolve(now, left=Ended.RECLAIMED)
            self.writer.write(
                self.clock, {key: {"hold": now, "part": part, "end": Ended.DONE, "fail": Ended.FAILED}[kind]}
            )

    def intervals(self):
        return [*self.closed, *((held, since, self.now) for held, since in self.open.values())]


def kept(steps, *more, **options):
    made = Kept(*more, **options)
    for each in steps:
        made.step(*each)
    return made


def gpus(uses):
    return {key: use.held.gpu for key, use in uses.items() if use.held.gpu}


@given(STEPS)
def test_each_queues_use_equals_a_plain_sum(steps):
    made, expected = kept(steps), {}
    for held, since, until in made.intervals():
        for queue in held.queue.path:
            expected[queue.uid] = expected.get(queue.uid, 0) + held.amounts.gpu * (until - since)
    found = gpus(reports.by_queue(made.connection, T, made.now))
    assert found == {uid: amount for uid, amount in expected.items() if amount}


@given(STEPS, st.integers(0, 300_000), st.sampled_from(list(reports.BY)))
def test_sums_are_additive_in_time_under_any_grouping(steps, at, by):
    made = kept(steps)
    middle, end = min(T + at, made.now), made.now
    parts = [reports.use_by(made.connection, by, *each) for each in ((T, middle), (middle, end))]
    whole = reports.use_by(made.connection, by, T, end)
    for key, use in whole.items():
        split = [part.get(key, reports.Use()) for part in parts]
        assert use.held == split[0].held.plus(split[1].held)
        assert use.lost == split[0].lost.plus(split[1].lost)
    capacity = reports.capacity(made.connection, T, end)
    assert reports.total(whole.values()).held == capacity.held
    assert capacity.held.plus(capacity.idle).plus(capacity.down) == capacity.capacity.plus(capacity.over)


@given(STEPS, HALF_LIVES)
def test_past_usage_is_the_integral_in_closed_form(steps, half_life):
    made = kept(steps)
    end = made.now + 1
    sums = {}
    for held, since, until in made.intervals():
        sums[held.queue.uid] = sums.get(held.queue.uid, 0.0) + held.amounts.gpu * faded(since, until, end, half_life)
    whole = NODE.capacity.gpu * faded(T, made.now, end, half_life)
    found = past_usage(made.connection, T, end, half_life)
    for uid, amount in sums.items():
        share = amount / whole if whole else 0.0
        assert found.get(uid, (0.0,))[0] == pytest.approx(share, rel=1e-9, abs=1e-12)


def faded(a, b, at, half_life):
    if not half_life:
        return b - a
    return half_life / math.log(2) * (2 ** (-(at - b) / half_life) - 2 ** (-(at - a) / half_life))


@given(st.integers(0, 10**7), st.integers(1, 10**7), st.integers(0, 10**6), st.integers(1000, 10**6))
def test_a_times_weight_equals_its_hours_sum(start, length, later, half_life):
    a, b, at, hour = start, start + length, start + length + later, 3_600_000
    cuts = [a, *range((a // hour + 1) * hour, b, hour), b]
    parts = math.fsum(weight(one, other, at, half_life) for one, other in pairwise(cuts))
    assert parts == pytest.approx(weight(a, b, at, half_life), rel=1e-9)


@given(STEPS, st.integers(0, 10**9), HALF_LIVES)
def test_shifted_histories_give_the_same_shares(steps, shift, half_life):
    one, other = kept(steps), kept(steps, shift)
    first = past_usage(one.connection, T, one.now + 1, half_life)
    second = past_usage(other.connection, T + shift, other.now + 1, half_life)
    assert second.keys() == first.keys()
    for name, share in first.items():
        assert second[name] == pytest.approx(share, rel=1e-9)


@given(STEPS, st.integers(1, 8))
def test_more_use_raises_only_the_users_own_share(steps, more):
    made = kept([*steps, ("end", 3, 0, 1, 0)])
    before = gpus(reports.by_queue(made.connection, T, made.now + DAY))
    made.step("hold", 3, 0, more, 0)
    made.step("end", 3, 0, more, 10_000_000)
    after = gpus(reports.by_queue(made.connection, T, made.now + DAY))
    still = sum(held.amounts.gpu for held, _ in made.open.values())
    assert after["a"] > before.get("a", 0)
    assert still or {uid: after.get(uid) for uid in ("b", "c")} == {uid: before.get(uid) for uid in ("b", "c")}


@given(LONG_STEPS, st.integers(0, 100 * HOUR), st.integers(0, 100 * HOUR), OLD)
def test_sums_of_hours_are_exactly_those_of_the_intervals(steps, begin, length, hourly):
    made = kept(steps, hourly=hourly)
    since, until = T + begin, T + begin + length
    expected = {uid: use.held for uid, use in reports.by_queue(made.connection, since, until).items()}
    assert reports.held_by_queue(made.connection, since, until) == expected
    of_intervals = reports.capacity(made.connection, since, until, model="H100")
    assert reports.capacity(made.connection, since, until) == of_intervals


@given(LONG_STEPS, st.integers(0, 100 * HOUR), st.sampled_from([0, 600_000, HOUR, DAY]), OLD)
def test_past_usage_from_hourly_sums_equals_the_intervals(steps, begin, half_life, hourly):
    made = kept(steps, half_life=half_life, hourly=hourly)
    since, at, asked = T + begin, made.now + 1, made.half_life
    whole = sum(each for each in of_intervals(made, [(NODE, T, made.now)], since, at, asked))
    found = past_usage(made.connection, since, at, asked)
    for queue in QUEUES:
        mine = [each for each in made.intervals() if each[0].queue.uid == queue.uid]
        share = sum(of_intervals(made, mine, since, at, asked)) / whole if whole else 0.0
        assert found.get(queue.uid, (0.0,))[0] == pytest.approx(share, rel=1e-9, abs=1e-12)


def of_intervals(made, intervals, since, at, half_life):
    for held, begin, end in intervals:
        amount = (held.amounts if isinstance(held, Held) else held.capacity).gpu
        a, b = max(begin, since), min(end, made.now)
        if a < b:
            yield amount * weight(a, b, at, half_life)


@given(LONG_STEPS, OLD)
def test_sums_reach_back_as_far_as_intervals_are_kept(steps, hourly):
    made = kept(steps, hourly=hourly, retention=20 * HOUR)
    for later in (30 * HOUR, 30 * HOUR, HOUR):
        made.step("hold", 0, 0, 1, later)
    rows = made.connection.execute("SELECT queue, COUNT(*) FROM hour GROUP BY queue").fetchall()
    assert all(count <= 2 + 44 for _, count in rows)
    for since in (made.now - 20 * HOUR, made.now - 7 * HOUR):
        expected = {uid: use.held for uid, use in reports.by_queue(made.connection, since, made.now).items()}
        assert reports.held_by_queue(made.connection, since, made.now) == expected
