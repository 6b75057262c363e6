"""The scheduler records who holds what, beside its cycles, and reads past usage from what it recorded."""

import math
import threading
from contextlib import contextmanager
from itertools import chain, repeat
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import attrs
import pytest
from prometheus_client import CollectorRegistry

from kai.basics.kubernetes_version import newest
from kai.cluster.port import Change, Term
from kai.deciding.configuration.past_usage import read_usage
from kai.framework.decisions import Cause, Evict
from kai.history.database import DAY, Author, Writer, reading
from kai.history.facts import Ended, HistoryError
from kai.history.jobs import jobs_over
from kai.roles.scheduler.cycle.past_usage import Recorded, UsageError
from kai.roles.scheduler.reporting import history
from kai.roles.scheduler.reporting.history import HistoryRecorder, Spending
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from tests.unit.history.test_recording import WORLD, pod

T = 1_800_000_000.0
FIRST = tuple(Change(None, each) for each in (*WORLD, pod()))


@attrs.define
class Clock:
    """Time that passes by ten seconds whenever it is asked for."""

    time: float = T
    paused: object = None

    def now(self):
        self.time += 10.0
        return self.time

    async def sleep(self, seconds):
        if self.paused is not None and seconds >= 1.0:
            self.paused(seconds)
        await anyio.lowlevel.checkpoint()


@attrs.define
class Store:
    """Gives batches of changes one after the other, then says that all were taken."""

    batches: list
    over: anyio.Event = attrs.field(factory=anyio.Event)

    def watches(self, cls):
        return True

    @contextmanager
    def changes(self, *classes):
        async def each():
            for batch in self.batches:
                yield batch
            self.over.set()
            await anyio.sleep_forever()

        yield each()


def recorded(path, batches, epoch=1, meanwhile=None, paused=None, registry=None):
    """Return the recorder after all batches were taken; ``meanwhile`` is called before it starts."""
    outgrown = []
    leadership = SimpleNamespace(outgrow=outgrown.append)

    async def work():
        store = Store(batches)
        cluster = SimpleNamespace(store=store, clock=Clock(paused=paused), kubernetes=newest)
        metrics = SchedulerMetrics(registry or CollectorRegistry())
        recorder = HistoryRecorder(
            str(path), 9e6, 3600.0, cluster, leadership, "kai-scheduler", lambda _: True, metrics
        )
        if meanwhile is not None:
            meanwhile(recorder)
        term = Term(epoch=epoch, identity=f"process-{epoch}", lease="kai")
        async with anyio.create_task_group() as tasks:

            async def ended():
                await recorder.run(term)
                store.over.set()

            tasks.start_soon(ended)
            await store.over.wait()
            tasks.cancel_scope.cancel()
        return recorder

    return anyio.run(work), outgrown


def lines(path):
    with reading(str(path)) as connection:
        return list(jobs_over(connection, 0, 10**15))


def test_the_stores_changes_are_recorded_until_the_term_ends(tmp_path):
    path = tmp_path / "history.db"
    registry = CollectorRegistry()
    recorded(path, [FIRST, (Change(pod(), pod(phase="Succeeded")),)], registry=registry)
    assert registry.get_sample_value("kai_history_is_recorded", {"client": "sqlite"}) == 1
    assert registry.get_sample_value("kai_history_writes_total", {"result": "done"}) == 1
    assert registry.get_sample_value("kai_history_writes_total", {"result": "failed"}) is None
    (line,) = lines(path)
    assert (line.name, line.why, line.use.held.gpu) == ("train", Ended.DONE, 2000 * 10_000)
    assert line.queue == "team"


def test_the_cause_of_an_eviction_is_recorded(tmp_path):
    path = tmp_path / "history.db"
    snapshot = SimpleNamespace(pods=[SimpleNamespace(uid="p1")], nodes=())
    evict = Evict(pod=0, cause=Cause.RECLAIM)
    recorded(path, [FIRST, (Change(pod(), None),)], meanwhile=lambda recorder: recorder.note(snapshot, (evict,)))
    assert [line.why for line in lines(path)] == [Ended.RECLAIMED]


def test_sums_of_budgets_are_written_with_the_changes(tmp_path):
    path, tally = tmp_path / "history.db", ((0, 1, 1, 1, "H100", 1, None, None, 5),)

    def reads_budgets(recorder):
        recorder.spending = SimpleNamespace(taken=chain([tally], repeat(None)).__next__)

    recorded(path, [FIRST, (Change(pod(), None),)], meanwhile=reads_budgets)
    with reading(str(path)) as connection:
        assert tuple(connection.execute("SELECT * FROM tally").fetchall()) == tally


def test_a_recorder_of_an_earlier_term_writes_nothing(tmp_path):
    path = tmp_path / "history.db"
    Writer.begin(str(path), Author(epoch=5, identity="five"), round(T * 1000), {}, {}, retention=DAY).close()
    recorder, outgrown = recorded(path, [FIRST], epoch=3)
    assert outgrown == [5]
    assert "epoch 3 after 5 of five" in recorder.problem
    assert lines(path) == []


def test_an_unwritable_database_is_retried_with_backoff(tmp_path):
    path = tmp_path / "later" / "history.db"
    pauses = []

    def paused(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            path.parent.mkdir()

    recorder, _ = recorded(path, [FIRST], paused=paused)
    assert pauses[:2] == [1.0, 2.0]
    assert recorder.problem == ""
    assert lines(path) == []


def read(path, now, **params):
    notes = []
    value = {"clientType": "sqlite", "connectionString": str(path), "usageParams": params}
    settings = read_usage(value, "usageDBConfig", notes)
    clock = SimpleNamespace(now=lambda: now)
    return anyio.run(Recorded(settings, str(path), clock).read), notes


def test_past_usage_is_held_divided_by_available(tmp_path):
    path = tmp_path / "history.db"
    recorded(path, [FIRST, (Change(pod(), pod(phase="Succeeded")),), (), ()])
    found, notes = read(path, T + 40, windowSize="1h", windowType="sliding")
    assert {name: share.gpu for name, share in found.items()} == {"team": 1 / 12, "top": 1 / 12}
    assert notes == []


def test_before_anything_is_recorded_no_queue_has_used_anything(tmp_path):
    assert read(tmp_path / "history.db", T)[0] == {}


def test_a_file_other_than_a_database_raises_usage_error(tmp_path):
    path = tmp_path / "history.db"
    path.write_text("something else" * 100)
    with pytest.raises(UsageError, match="not a database"):
        read(path, T)


ADDRESS = "postgresql://kai@db/kai"
BUDGETED = SimpleNamespace(spec=SimpleNamespace(budgets=(1,)))


def spending_of(monkeypatch, answers, patience, address=ADDRESS):
    """Return the reader of what budgets used, and its clock; each question to the database takes the next answer."""
    clock = SimpleNamespace(time=0.0, now=lambda: T + clock.time, monotonic=lambda: clock.time)
    for name in ("_PATIENCE", "_PATIENCE_FOR_FILES"):
        monkeypatch.setattr(history, name, patience)
    monkeypatch.setattr(Spending, "_spent", lambda *_: next(answers)())
    return Spending(address, clock), clock


def never():
    raise HistoryError("found no connection, expected one")


@pytest.mark.parametrize("address", [ADDRESS, "/var/lib/kai/history.db"])
def test_a_database_that_answers_late_holds_no_cycle(address, monkeypatch):
    asked, may_answer = threading.Event(), threading.Event()

    def late():
        asked.set()
        may_answer.wait()
        return {("team", "month"): "late"}

    spending, clock = spending_of(monkeypatch, repeat(late), 0.05, address)

    async def cycles():
        while not asked.is_set():
            clock.time += 2.0
            await spending.refresh([BUDGETED])
        first = spending.known, spending.problem
        may_answer.set()
        while not spending._asked.is_answered:
            await anyio.lowlevel.checkpoint()
        await spending.refresh([BUDGETED])
        return first

    known, problem = anyio.run(cycles)
    assert (known, "found no answer yet" in problem) == ({}, True)
    assert (spending.known, spending.problem) == ({("team", "month"): "late"}, "")


def test_budgets_are_known_a_minute_without_a_server(monkeypatch):
    spending, clock = spending_of(monkeypatch, iter([dict, never, never]), math.inf)

    async def cycles():
        seen = []
        for at in (0.0, 0.5, 30.0, 70.0):
            clock.time = at
            await spending.refresh([BUDGETED])
            seen.append(spending.problem)
        return seen

    assert anyio.run(cycles) == ["", "", "", "what budgets used is not known: found no connection, expected one"]
