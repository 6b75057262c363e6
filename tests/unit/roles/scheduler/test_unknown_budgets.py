"""Where nothing says what budgets used, new work under them waits, and running work is not touched."""

import anyio
import attrs
import pytest

from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.placement import Past
from kai.framework.decisions import Bind, Recorder
from kai.history.database import Author, Writer, connect
from kai.history.facts import Amounts, NodeState
from kai.intake import take_snapshot
from kai.lab.scenarios.shorthand import NOW
from kai.roles.scheduler.reporting.history import Spending
from kai.testing import cluster

BOUND = {"kai.scheduler/max-runtime": "1h"}
GROUPS = {
    "runs": {"queue": "a", "runs_on": ["n1"], "each": {"gpu": 2}},
    "waits": {"queue": "a", "each": {"gpu": 1}, "annotations": BOUND},
    "free": {"queue": "b", "each": {"gpu": 1}, "annotations": BOUND},
}
QUEUES = {
    "root": {"quota": 8},
    "a": {"parent": "root", "quota": 4, "budgets": {"month": {"amount": 90}}},
    "b": {"parent": "root", "quota": 4},
}
NODES = {"n": NodeState(model="H100", capacity=Amounts(gpu=8000))}


@attrs.define
class Hands:
    """A clock that is set by hand."""

    instant: float = NOW

    def now(self):
        return self.instant

    def monotonic(self):
        return self.instant


def begun(path, at):
    author, millis = Author(epoch=None, identity="me"), round(at * 1000)
    return Writer.begin(
        str(path), author, millis, {}, NODES, retention=86_400_000, connection=connect(str(path), writes=True)
    )


def started(spending, objects):
    anyio.run(spending.refresh, objects.queues)
    snapshot = take_snapshot(objects, now=NOW, past=Past(spent=spending.known))
    sink = Recorder()
    report = run_cycle(snapshot, default_profile(), sink)
    assert report.counts["evictions"] == 0
    found = {each.pod for statement in sink.statements for each in statement if isinstance(each, Bind)}
    return {snapshot.groups[int(snapshot.pod_group[pod])].name for pod in found}


@pytest.fixture
def objects():
    return cluster({"n1": {"gpu": 8}}, GROUPS, QUEUES)


def test_without_a_database_only_work_without_budgets_starts(tmp_path, objects):
    spending = Spending(str(tmp_path / "none.db"), Hands())
    assert started(spending, objects) == {"free"}
    assert "what budgets used is not known" in spending.problem


def test_a_database_that_comes_lets_work_start(tmp_path, objects):
    path = tmp_path / "history.db"
    spending = Spending(str(path), Hands())
    assert started(spending, objects) == {"free"}
    writer = begun(path, NOW - 5)
    assert started(spending, objects) == {"free", "waits"}
    assert spending.problem == ""
    writer.close()


def test_a_database_that_goes_counts_for_a_minute(tmp_path, objects):
    path, clock = tmp_path / "history.db", Hands()
    spending, writer = Spending(str(path), clock), begun(path, NOW - 5)
    assert started(spending, objects) == {"free", "waits"}
    writer.close()
    path.unlink()
    clock.instant += 30
    assert started(spending, objects) == {"free", "waits"}
    clock.instant += 60
    assert started(spending, objects) == {"free"}
