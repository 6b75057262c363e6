"""A law of the two databases of history: what happened is answered alike by a file and by a server."""

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.scheduling.queue import Queue
from kai.history import reports, tables
from kai.history.database import DAY, connect
from kai.history.spending import Meter
from tests.postgresql import running
from tests.properties.test_history import HOUR, LONG_STEPS, OLD, STEPS, Kept, T

FORGET = "TRUNCATE writer, word, queue, job, place, held, capacity, gap, hour, closed"
FEW = settings(max_examples=60)
"""An example is hundreds of questions to another process."""


@pytest.fixture(scope="module")
def server():
    with running() as made, closing(connect(f"{made.address}?schema=law", writes=True)) as connection:
        yield connection


class KeptByServer(Kept):
    """The same as `Kept`, on a server that forgets what the example before left."""

    def __init__(self, server, **options):
        server.execute(FORGET)
        self.server = server
        super().__init__(**options)

    def connected(self):
        return self.server


def both(server, steps, **options):
    made = Kept(**options), KeptByServer(server, **options)
    for each in steps:
        for one in made:
            one.step(*each)
    return made


@FEW
@given(st.one_of(STEPS, LONG_STEPS), st.integers(0, 30 * HOUR), st.integers(1, 40 * HOUR), OLD)
def test_every_report_is_the_same_from_both(server, steps, begin, length, hourly):
    file, other = both(server, steps, hourly=hourly)
    span = tables.Span(since=T + begin, until=T + begin + length)
    for kind in tables.KINDS:
        first, second = (list(tables.rows_of(each.connection, kind, span)) for each in (file, other))
        assert first == second
    for by in reports.BY:
        uses = [reports.use_by(each.connection, by, span.since, span.until) for each in (file, other)]
        assert by_text(file, uses[0], by) == by_text(other, uses[1], by)
    assert held(file, span) == held(other, span)


def held(kept, span):
    return reports.held_by_queue(kept.connection, span.since, span.until)


def by_text(kept, uses, by):
    """Return uses by names, since the two databases number their rows in ways of their own."""
    if by in {"user", "kind", "namespace"}:
        texts = reports.words(kept.connection)
        return {texts[key]: use for key, use in uses.items()}
    if by.startswith("queue"):
        names = dict(kept.connection.execute("SELECT id, name FROM queue"))
        parts = [(str(key).split(), use) for key, use in uses.items()]
        return {(names[int(row)], *rest): use for (row, *rest), use in parts}
    return uses


@FEW
@given(LONG_STEPS, st.integers(0, 60 * HOUR), st.sampled_from([0, 1_000, 600_000, HOUR, DAY]), OLD)
def test_past_usage_is_the_same_from_both(server, steps, begin, half_life, hourly):
    file, other = both(server, steps, half_life=half_life, hourly=hourly)
    for asked in {half_life, file.half_life, 5_000}:
        found = [reports.past_usage(each.connection, T + begin, each.now + 1, asked) for each in (file, other)]
        assert found[0].keys() == found[1].keys()
        for name, share in found[0].items():
            assert found[1][name] == pytest.approx(share, rel=1e-9, abs=1e-12)


def budgeted(name):
    budget = {"name": "month", "amount": 1000, "period": "monthly", "refund": ["preempted"], "carryOver": 0.5}
    return structure_as(Queue, {"metadata": {"name": name, "uid": name}, "spec": {"budgets": [budget]}})


@FEW
@given(st.one_of(STEPS, LONG_STEPS), st.integers(0, 60_000))
def test_what_budgets_used_is_the_same_from_both(server, steps, later):
    queues = [budgeted(name) for name in ("top", "a", "b", "c", "of another cluster")]
    file, other = both(server, steps)
    meters = Meter(), Meter()
    for _ in range(2):
        found = [
            meter.read(each.connection, queues, each.now + later)
            for meter, each in zip(meters, (file, other), strict=True)
        ]
        assert found[0] == found[1]
        for one in (file, other):
            one.step("hold", 0, 0, 2, 5_000)
    rows = [tables.budget_rows(each.connection, queues, tables.Span(since=T, until=T + DAY)) for each in (file, other)]
    assert rows[0] == rows[1]
