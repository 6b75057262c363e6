import json

from benchmarks import budgeted, engine, usage
from benchmarks.budgeted import with_budgets
from benchmarks.clock import Stopwatch
from benchmarks.events import listed
from benchmarks.manifests import NOW
from benchmarks.workload import Expected, Nodes, Pending, QueueShape, Workload

LEAVES = ("leaf-0", "leaf-1", "leaf-2", "leaf-3")
WORKLOAD = Workload(
    id="two",
    title="eight pods for two nodes",
    nodes=Nodes(2),
    queues=(QueueShape("top"), *(QueueShape(leaf, "top") for leaf in LEAVES)),
    pending=Pending(8, LEAVES),
    expected=Expected(placed=8),
)


def test_each_fourth_queue_gets_a_budget():
    queues = [
        json.loads(body) for batch in with_budgets(listed(WORKLOAD)) if batch.kind == "Queue" for body in batch.bodies
    ]
    assert [each["metadata"]["name"] for each in queues if "budgets" in each["spec"]] == ["top", "leaf-3"]


def test_budgets_count_and_change_no_decision():
    found = []
    for batches in (listed(WORKLOAD), with_budgets(listed(WORKLOAD))):
        scheduler = engine.Live()
        for batch in batches:
            scheduler.take(batch)
        outcome = scheduler.cycle(NOW.timestamp() + 60, Stopwatch())
        found.append((outcome.snapshot.budgets, scheduler.read(outcome)))
    (nothing, plain), (table, changed) = found
    assert nothing is None
    assert [each.enforce for each in table.bounding] == ["admit", "admit"]
    assert len(plain.bound) == 8
    assert changed == plain


def test_measuring_gives_both_and_their_ratio():
    assert set(budgeted.measure(WORKLOAD, rounds=2)) == {"plain_ms", "budgeted_ms", "ratio"}


def test_readings_of_a_written_history_are_timed(tmp_path):
    path = str(tmp_path / "history.db")
    usage.write(path, 4, 50, 1)
    assert set(budgeted.read(path, 2, rounds=1)) == {"first_reading_ms", "reading_ms", "minute_reading_ms"}
