"""What a meter keeps between readings of the history is what all intervals give, to the GPU-microsecond."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.conventions.budgets import carried_over, period_at, period_before, weight_of, weighted
from kai.api.scheduling.queue import Queue
from kai.history.database import MEMORY, OPEN, Author, Writer, connect, queues_by_row
from kai.history.facts import Amounts, Ended, Held, JobFacts, NodeState, QueueFacts
from kai.history.spending import REFUNDS, Meter, spent_of

HOUR = 3_600_000
DAY = 24 * HOUR
T = 1_767_225_600_000
"""2026-01-01, the begin of a month in UTC."""
TOP = QueueFacts(uid="top", name="top")
TEAMS = (
    QueueFacts(uid="team", name="team", parent=TOP),
    QueueFacts(uid="other", name="other", parent=TOP),
    QueueFacts(uid="team", name="team"),  # moved
)
MODELS = ("NVIDIA-H100-PCIe", "NVIDIA-L4", "")
NODES = {model: NodeState(model=model, capacity=Amounts(gpu=64_000)) for model in MODELS}
BUDGETS = (
    {"name": "day", "period": "daily"},
    {"name": "half", "period": "0 */6 * * *", "carryOver": 0.5},
    {"name": "heavy", "period": "daily", "weights": [{"model": "h100", "weight": 2.5}], "refund": ["nodeFailure"]},
    {"name": "kind", "period": "daily", "refund": ["nodeFailure", "preempted"], "carryOver": 1},
    {"name": "grant", "period": "once"},
)
ENDS = (Ended.DONE, Ended.NODE, Ended.PREEMPTED, Ended.CHANGED)


def queue(name):
    spec = {"budgets": [{"amount": 100, **each} for each in BUDGETS]}
    metadata = {"name": name, "uid": name, "creationTimestamp": "2025-01-01T00:00:00Z"}
    return structure_as(Queue, {"metadata": metadata, "spec": spec})


QUEUES = [queue(name) for name in ("top", "team", "other", "new")]


def held(job, team, model, gpus):
    facts = JobFacts(uid=job, namespace="ns", name=job, user=f"user of {job}")
    return Held(job=facts, queue=TEAMS[team], model=MODELS[model], amounts=Amounts(gpu=gpus))


def scanned(connection, budget, uid, since, until, at):
    """Return what all intervals give: the amount, and the pace at ``at``."""
    known = queues_by_row(connection)
    spared = {ended for each in budget.refund for ended in REFUNDS[each]}
    amounts, paces = Counter(), Counter()
    for row, model, ended, gpu, begin, end in connection.execute(
        "SELECT queue, model, ended, gpu, since, until FROM held JOIN place ON place.id = held.place"
    ):
        if uid not in {each.uid for each in known[row].path}:
            continue
        is_open = end == OPEN
        seconds = min(at if is_open else end, until) - max(begin, since)
        if seconds >= 0 and ended not in spared:
            amounts[model] += gpu * seconds
        if seconds >= 0 and is_open:
            paces[model] += gpu
    total = sum(amount * weight_of(budget, model) // 1000 for model, amount in amounts.items())
    return total, sum(weighted(gpu, weight_of(budget, model)) for model, gpu in paces.items())


def by_scans(connection, at):
    found = {}
    for each in QUEUES:
        for budget in each.spec.budgets:
            period = period_at(budget, at / 1000)
            before = period_before(budget, period) if budget.carry_over else None
            uid, carried = each.metadata.uid, 0
            if before is not None:
                carried = carried_over(budget, scanned(connection, budget, uid, before.begin, period.begin, at)[0])
            total, pace = scanned(connection, budget, uid, period.begin, OPEN, at)
            found[uid, budget.name] = (period.begin, total, pace, carried)
    return found


changes = st.dictionaries(
    st.sampled_from(("a", "b", "c")),
    st.one_of(
        st.sampled_from(ENDS),
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from((250, 333, 1000, 8000))),
    ),
    max_size=3,
)
steps = st.lists(
    st.tuples(st.sampled_from((0, 1, 999, 60_000, HOUR, 5 * HOUR, 11 * HOUR)), changes, st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)
"""How much later, what changes, whether a new process writes and reads from here on, and whether a meter reads."""


def keyed(change):
    return {(job, "n1"): now if isinstance(now, Ended) else held(job, *now) for job, now in change.items()}


@given(steps)
def test_a_meter_gives_what_all_intervals_give(chosen):
    connection, meter, at, present = connect(MEMORY, writes=True), Meter(), T + DAY, {}
    author = Author(epoch=None, identity="me")
    writer = Writer.begin(
        MEMORY, Author(epoch=None, identity="me"), at, {}, NODES, retention=90 * DAY, connection=connection
    )
    tally = None
    for later, change, is_new, reads in chosen:
        at += later
        writer.write(at, keyed(change), tally=tally)
        tally = None
        for key, now in keyed(change).items():
            if isinstance(now, Ended):
                present.pop(key, None)
            else:
                present[key] = now
        if is_new:  # what a dead process left open goes on where it is still there
            at += 30_000
            present, meter = dict(list(present.items())[1:]), Meter()
            writer = Writer.begin(MEMORY, author, at, present, NODES, retention=90 * DAY, connection=connection)
        if reads:
            instant = at + later // 2
            found = meter.read(connection, QUEUES, instant)
            assert {key: (each.since, each.total, each.pace, each.carried) for key, each in found.items()} == by_scans(
                connection, instant
            )
            tally = meter.tally()
    first = spent_of(connection, QUEUES, at)
    connection.execute("DELETE FROM tally")
    assert spent_of(connection, QUEUES, at) == first
    last = meter.read(connection, QUEUES, at)
    for key, each in first.items():
        assert (each.total, each.pace, each.carried) == (last[key].total, last[key].pace, last[key].carried)
    writer.close()


def test_a_meter_begins_anew_on_an_older_database():
    meter = Meter()
    for begins, gpus in ((T + DAY, 1000), (T + HOUR, 8000)):
        connection = connect(MEMORY, writes=True)
        author = Author(epoch=None, identity="me")
        writer = Writer.begin(MEMORY, author, begins, {}, NODES, retention=90 * DAY, connection=connection)
        writer.write(begins, {("a", "n1"): held("a", 0, 0, gpus)})
        writer.write(begins + HOUR, {("a", "n1"): Ended.DONE})
        assert meter.read(connection, QUEUES, begins + HOUR)["team", "grant"].total == gpus * HOUR
        writer.close()


def test_who_used_most_is_read_again_after_a_minute():
    connection, meter = connect(MEMORY, writes=True), Meter()
    author = Author(epoch=None, identity="me")
    writer = Writer.begin(MEMORY, author, T, {}, NODES, retention=90 * DAY, connection=connection)
    writer.write(T, {("a", "n1"): held("a", 0, 1, 1000)})
    assert meter.read(connection, QUEUES, T + 1000)["team", "day"].users == (("user of a", 1_000_000),)
    writer.write(T + 1000, {("b", "n1"): held("b", 0, 1, 4000)})
    assert meter.read(connection, QUEUES, T + 60_000)["team", "day"].users == (("user of a", 1_000_000),)
    assert meter.read(connection, QUEUES, T + 61_000)["team", "day"].users == (
        ("user of b", 240_000_000),
        ("user of a", 61_000_000),
    )
    writer.close()
