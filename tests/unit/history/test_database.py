"""The database of history: what writers leave, what the next one makes of it, and who may write."""

import sqlite3

import attrs
import pytest

from kai.history import reports
from kai.history.database import DAY, Author, Writer, connect, reading
from kai.history.facts import (
    NOTHING,
    Amounts,
    DeposedError,
    Ended,
    Held,
    HistoryError,
    JobFacts,
    NodeState,
    QueueFacts,
)
from kai.history.jobs import BATCH, Search, jobs_over, last_finished
from kai.history.reports import past_usage

T = 1_800_000_000_000
HOUR = 3_600_000
TOP = QueueFacts(uid="top", name="top")
TEAM = QueueFacts(uid="team", name="team", parent=TOP)
NODES = {"n1": NodeState(model="H100", capacity=Amounts(8000, 64000, 512000))}


def held(gpus, uid="job-1", queue=TEAM, bound=None, **more):
    job = JobFacts(uid=uid, namespace="ns", name=uid, **more)
    amounts = Amounts(gpus * 1000, gpus * 4000, gpus * 16000)
    return Held(job=job, queue=queue, model="H100", amounts=amounts, first_bound=bound, last_bound=bound)


def begun(path, at=T, present=(), nodes=NODES, epoch=1, identity="one", retention=90 * DAY):
    author = Author(epoch=epoch, identity=identity)
    return Writer.begin(str(path), author, at, dict(present), nodes, retention=retention)


def gpu_seconds(path, since=T, until=T + DAY):
    with reading(str(path)) as connection:
        found = reports.by_queue(connection, since, until)
    return {uid: use.held.gpu / 1e6 for uid, use in found.items()}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


def test_one_jobs_second_counts_for_queue_and_parents(path):
    writer = begun(path)
    writer.write(T + 5000, {("job-1", "n1"): held(2)})
    writer.write(T + 6000, {("job-1", "n1"): Ended.DONE})
    assert gpu_seconds(path) == {"team": 2.0, "top": 2.0}


def test_what_is_open_counts_up_to_the_last_record(path):
    writer = begun(path, present={("job-1", "n1"): held(2)})
    writer.write(T + 7000)
    assert gpu_seconds(path) == {"team": 14.0, "top": 14.0}
    assert gpu_seconds(path, T + 6000) == {"team": 2.0, "top": 2.0}


def test_an_evicted_part_is_lost_from_its_begin(path):
    writer = begun(path, present={("job-1", "n1"): held(8)})
    writer.write(T + 10_000, {("job-1", "n1"): attrs.evolve(held(2), left=Ended.PREEMPTED)})
    writer.write(T + 15_000, {("job-1", "n1"): Ended.DONE})
    with reading(str(path)) as connection:
        uses = reports.use_by(connection, "ended", T, T + DAY)
        (job,) = jobs_over(connection, T, T + DAY)
    seconds = {Ended(int(key)): (use.held.gpu / 1e6, use.lost.gpu / 1e6) for key, use in uses.items()}
    assert seconds == {Ended.DONE: (30.0, 0.0), Ended.PREEMPTED: (60.0, 60.0)}
    assert (job.why, job.started, job.ended, job.size) == (Ended.DONE, T, T + 15_000, 8000)


def test_what_is_held_across_a_crash_counts_throughout(path):
    begun(path, present={("job-1", "n1"): held(2)}).write(T + 1000)
    begun(path, T + 9000, {("job-1", "n1"): held(2)}, epoch=2).write(T + 10_000)
    assert gpu_seconds(path)["team"] == 20.0


def test_what_vanished_in_a_crash_counts_until_last_record(path):
    begun(path, present={("job-1", "n1"): held(2)}).write(T + 1000)
    begun(path, T + 9000, epoch=2)
    assert gpu_seconds(path)["team"] == 2.0
    with reading(str(path)) as connection:
        (job,) = jobs_over(connection, T, T + DAY)
        assert (job.why, job.ended) == (Ended.UNSEEN, T + 1000)
        assert reports.capacity(connection, T, T + DAY).unrecorded == 8000


def test_what_began_after_a_crash_counts_from_its_binding(path):
    begun(path).write(T + 1000)
    begun(path, T + 9000, {("job-1", "n1"): held(2, bound=T + 4000)}, epoch=2).write(T + 10_000)
    assert gpu_seconds(path)["team"] == 12.0


def test_what_restarted_within_a_crash_skips_the_gap(path):
    begun(path, present={("job-1", "n1"): held(2)}).write(T + 1000)
    begun(path, T + 9000, {("job-1", "n1"): held(2, bound=T + 8000)}, epoch=2).write(T + 10_000)
    assert gpu_seconds(path)["team"] == 6.0


def test_an_earlier_bound_job_counts_from_its_first_record(path):
    begun(path, present={("job-1", "n1"): held(2, bound=T - HOUR)}).write(T + 1000)
    assert gpu_seconds(path, T - DAY) == {"team": 2.0, "top": 2.0}


def test_a_clock_that_is_set_back_adds_nothing(path):
    writer = begun(path, present={("job-1", "n1"): held(1)})
    writer.write(T + 10_000)
    writer.write(T + 2000, {("job-2", "n1"): held(1, "job-2")})
    writer.write(T + 9000, {("job-2", "n1"): Ended.DONE})
    assert gpu_seconds(path)["team"] == 10.0
    with reading(str(path)) as connection:
        assert [job.uid for job in jobs_over(connection, T, T + DAY)] == ["job-1"]


def test_a_writer_of_an_earlier_term_is_refused(path):
    first = begun(path, epoch=1)
    begun(path, epoch=2, identity="two")
    with pytest.raises(DeposedError, match="two"):
        first.write(T + 1000, {("job-1", "n1"): held(2)})
    with pytest.raises(DeposedError, match="epoch 1 after 2 of two") as refused:
        begun(path, epoch=1)
    assert refused.value.epoch == 2
    assert gpu_seconds(path) == {}


def test_without_a_lease_the_last_that_began_writes(path):
    first = begun(path, epoch=None)
    second = begun(path, epoch=None, identity="two")
    with pytest.raises(DeposedError):
        first.write(T + 1000)
    second.write(T + 1000)


def test_a_moved_queue_keeps_its_history_apart_from_parents(path):
    writer = begun(path, present={("job-1", "n1"): held(1)})
    other = QueueFacts(uid="other", name="other")
    moved = QueueFacts(uid="team", name="team", display_name="Team", parent=other)
    writer.write(T + 10_000, {("job-1", "n1"): held(1, queue=moved)})
    writer.write(T + 15_000)
    assert gpu_seconds(path) == {"team": 15.0, "top": 10.0, "other": 5.0}


def test_a_recreated_queue_begins_without_past_usage(path):
    writer = begun(path, present={("job-1", "n1"): held(1)})
    writer.write(T + 10_000, {("job-1", "n1"): Ended.DONE})
    writer.write(T + 10_000, {("job-2", "n1"): held(4, "job-2", queue=QueueFacts(uid="anew", name="team"))})
    writer.write(T + 11_000)
    with reading(str(path)) as connection:
        found = past_usage(connection, T, T + 11_000)
    assert found == {
        "team": pytest.approx((4 / 88, 16 / (64 * 11), 64 / (512 * 11))),
        "top": pytest.approx((10 / 88, 40 / (64 * 11), 160 / (512 * 11))),
    }


def test_the_parts_of_the_capacity_add_up(path):
    closed = NodeState(model="H100", capacity=Amounts(8000, 0, 0), down=Amounts(6000, 0, 0))
    writer = begun(path, nodes={"n1": closed}, present={("job-1", "n1"): held(2)})
    over = NodeState(model="H100", capacity=Amounts(1000, 0, 0), over=Amounts(1000, 0, 0))
    writer.write(T + 1000, nodes={"n1": over})
    writer.write(T + 2000, {("job-1", "n1"): Ended.DONE}, {"n1": None})
    with reading(str(path)) as connection:
        found = reports.capacity(connection, T, T + DAY)
    parts = [each.gpu / 1e6 for each in (found.held, found.idle, found.down, found.capacity, found.over)]
    assert parts == [4.0, 0.0, 6.0, 9.0, 1.0]


def test_finished_records_and_jobs_expire_by_retention(path):
    writer = begun(path, present={("job-1", "n1"): held(1), ("job-2", "n1"): held(1, "job-2")}, retention=DAY)
    writer.write(T + 1000, {("job-1", "n1"): Ended.DONE})
    writer.write(T + 3 * DAY)
    with reading(str(path)) as connection:
        assert [job.uid for job in jobs_over(connection, T, T + 9 * DAY)] == ["job-2"]
        assert connection.execute("SELECT COUNT(*) FROM job").fetchone() == (1,)


def test_jobs_record_their_wait_and_why_they_ended(path):
    writer = begun(path)
    writer.write(T + 5000, {("job-1", "n1"): held(2, created=T + 2000, user="ann", kind="Job")})
    writer.write(T + 9000, {("job-1", "n1"): Ended.RECLAIMED})
    with reading(str(path)) as connection:
        (job,) = jobs_over(connection, T, T + DAY)
    assert (job.wait, job.why, job.user, job.kind, job.size) == (3000, Ended.RECLAIMED, "ann", "Job", 2000)
    assert job.use.lost.gpu == job.use.held.gpu == 8_000_000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("no database at all" * 100), "file is not a database"),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE other (a)"), "tables of another program"),
        (lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 99"), "found version 99, expected"),
        (lambda path: path.mkdir(), "unable to open"),
    ],
)
def test_a_file_that_is_no_history_is_refused(path, make, message):
    make(path)
    with pytest.raises(HistoryError, match=message):
        begun(path)


def test_readers_make_no_file(path):
    with pytest.raises(HistoryError, match="found no file"), reading(str(path)):
        pass
    assert not path.exists()


def test_nothing_is_known_of_an_empty_database(path):
    connect(str(path), writes=True).close()
    with reading(str(path)) as connection:
        assert past_usage(connection, T, T + DAY) == {}
        assert reports.capacity(connection, T, T + DAY).capacity == NOTHING


def of_the_first_version(path):
    """Leave a file as the first version of kai would have written it."""
    connection = sqlite3.connect(path)
    tables = "DROP TABLE tally; DROP TABLE hour; DROP TABLE closed"
    indexes = "DROP INDEX held_since; DROP INDEX capacity_since; DROP INDEX held_job"
    connection.executescript(f"{tables}; {indexes}; PRAGMA user_version = 1")
    connection.close()


def test_a_first_version_file_migrates_to_hourly_sums(path):
    writer = begun(path, present={("job-1", "n1"): held(2)})
    writer.write(T + 30 * 60_000, {("job-2", "n1"): held(1, "job-2")})
    writer.write(T + 2 * HOUR + 1000, {("job-1", "n1"): Ended.DONE})
    writer.close()
    of_the_first_version(path)
    with pytest.raises(HistoryError, match="found version 1, expected 4"), reading(str(path)):
        pass
    writer = begun(path, T + 3 * HOUR, {("job-2", "n1"): held(1, "job-2")}, epoch=2)
    writer.write(T + 4 * HOUR, {("job-2", "n1"): held(3, "job-2")})
    writer.write(T + 20 * HOUR, {("job-2", "n1"): held(1, "job-2")})
    writer.write(T + 26 * HOUR + 1000)
    with reading(str(path)) as connection:
        assert connection.execute("SELECT first - ? FROM closed", (T // HOUR,)).fetchone() == (16,)  # the next midnight
        for since, until in [(0, 7), (1, 5), (2, 3), (3, 26), (17, 26), (19, 20)]:
            span = (T + since * HOUR, T + until * HOUR)
            expected = {uid: use.held for uid, use in reports.by_queue(connection, *span).items()}
            assert reports.held_by_queue(connection, *span) == expected


def test_an_unchanged_queue_adds_no_hourly_row(path):
    writer = begun(path, present={("job-1", "n1"): held(1)})
    for hour in range(1, 100):
        writer.write(T + hour * HOUR + 500)
    with reading(str(path)) as connection:
        rows = connection.execute("SELECT queue, hour FROM hour ORDER BY queue").fetchall()
        assert [each - T // HOUR for _, each in rows] == [1, 1]  # the cluster and the queue, after the first hour
        assert reports.held_by_queue(connection, T, T + 99 * HOUR)["team"].gpu == 99 * HOUR * 1000


def test_sums_of_more_than_64_bits_are_exact(path):
    large = Amounts(0, 0, 4 * 10**12)
    job = attrs.evolve(held(0), amounts=large)
    writer = begun(path, present={("job-1", "n1"): job})
    days = 900
    writer.write(T + days * DAY, {("job-1", "n1"): Ended.DONE})
    writer.write(T + (days + 1) * DAY)
    with reading(str(path)) as connection:
        found = reports.held_by_queue(connection, T, T + (days + 1) * DAY)
    assert found["team"].memory == large.memory * days * DAY > 1 << 63


def job_names(path, since=T, until=T + DAY):
    with reading(str(path)) as connection:
        return [job.name for job in jobs_over(connection, since, until)]


def test_jobs_come_in_the_order_of_first_holdings(path):
    writer = begun(path, present={("late", "n1"): held(1, "late", bound=T)})
    writer.write(T + HOUR, {("b", "n1"): held(1, "b"), ("late", "n1"): Ended.RECLAIMED})
    writer.write(T + 2 * HOUR, {("c", "n1"): held(1, "c"), ("b", "n1"): Ended.DONE})
    writer.write(T + 3 * HOUR, {("late", "n1"): held(1, "late"), ("b", "n2"): held(2, "b")})
    writer.write(T + 4 * HOUR)
    assert job_names(path) == ["late", "b", "c"]
    assert job_names(path, T + 90 * 60_000) == ["b", "c", "late"]
    assert job_names(path, T + 150 * 60_000, T + 170 * 60_000) == ["c"]
    assert job_names(path, T + 4 * HOUR) == []


def test_the_first_of_many_jobs_is_read_alone(path):
    writer = begun(path)
    count = 3 * BATCH + 1
    writer.write(T, {(f"job-{at}", "n1"): held(1, f"job-{at}") for at in range(count)})
    writer.write(T + HOUR)
    with reading(str(path)) as connection:
        asked = []
        connection.set_trace_callback(asked.append)
        first = next(iter(jobs_over(connection, T, T + DAY)))
        assert (first.name, first.use.held.gpu) == ("job-0", HOUR * 1000)
        assert sum("FROM job JOIN" in each for each in asked) == 1
        connection.set_trace_callback(None)
    assert job_names(path) == [f"job-{at}" for at in range(count)]


@pytest.fixture
def ended(path):
    """Leave a file with five jobs: two that ended, one that ran twice, a gang on two nodes, and one that runs."""
    writer = begun(path)
    other = QueueFacts(uid="other", name="other")
    jobs = {
        ("a", "n1"): held(1, "a", user="Ann"),
        ("b", "n1"): held(2, "b", other, user="bob"),
        ("twice", "n1"): held(4, "twice"),
        ("gang", "n1"): held(1, "gang"),
        ("gang", "n2"): held(1, "gang"),
        ("runs", "n1"): held(1, "runs"),
    }
    writer.write(T, jobs)
    writer.write(T + HOUR, {("a", "n1"): Ended.DONE, ("twice", "n1"): Ended.RECLAIMED})
    writer.write(T + 2 * HOUR, {("b", "n1"): Ended.FAILED, ("twice", "n1"): held(4, "twice")})
    gang = {("gang", "n1"): Ended.DONE, ("gang", "n2"): Ended.DONE}
    writer.write(T + 3 * HOUR, {**gang, ("runs", "n1"): held(2, "runs")})
    writer.write(T + 4 * HOUR, {("twice", "n1"): Ended.DONE})
    return path


def found(path, most=10, since=T, **more):
    with reading(str(path)) as connection:
        return last_finished(connection, Search(since=since, **more), most)


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ({}, ["twice", "gang", "b", "a"]),
        ({"since": T + 3 * HOUR}, ["twice", "gang"]),
        ({"name": "an"}, ["gang"]),
        ({"user": "ann"}, ["a"]),
        ({"queue": "top"}, ["twice", "gang", "a"]),
        ({"queue": "top", "with_below": False}, []),
        ({"queue": "nothing"}, []),
        ({"why": Ended.DONE}, ["twice", "gang", "a"]),
        ({"why": Ended.RECLAIMED}, []),
        ({"namespaces": frozenset({"ns", "another"})}, ["twice", "gang", "b", "a"]),
        ({"namespaces": frozenset({"another"})}, []),
        ({"namespaces": frozenset()}, []),
        ({"name": "%"}, []),
        ({"user": "b", "why": Ended.FAILED, "queue": "other"}, ["b"]),
    ],
)
def test_finished_jobs_are_found_by_all_conditions_together(ended, search, names):
    assert [each.job.name for each in found(ended, **search)] == names


def test_finished_jobs_have_all_that_they_held(ended):
    twice, gang, *_ = (each.job for each in found(ended))
    assert (twice.started, twice.ended, twice.why) == (T, T + 4 * HOUR, Ended.DONE)
    assert (twice.use.held.gpu, twice.use.lost.gpu) == (12 * HOUR * 1000, 4 * HOUR * 1000)
    assert gang.use.held.gpu == 6 * HOUR * 1000


def test_finished_jobs_go_on_after_their_place(ended):
    names, place = [], None
    while page := found(ended, most=1, before=place):
        names += [each.job.name for each in page]
        place = page[-1].place
    assert names == ["twice", "gang", "b", "a"]


def test_what_queues_held_in_steps_is_what_they_held(ended):
    bounds = [T, T + HOUR, T + 2 * HOUR, T + 4 * HOUR]
    with reading(str(ended)) as connection:
        steps = reports.held_in_steps(connection, bounds)
        assert [each.by_queue["top"].gpu // (HOUR * 1000) for each in steps] == [8, 3, 13]
        assert [each.capacity.gpu // (HOUR * 1000) for each in steps] == [8, 8, 16]
        assert reports.recorded_since(connection) == T


def test_an_empty_file_is_recorded_since_no_instant(path):
    connect(str(path), writes=True).close()
    with reading(str(path)) as connection:
        assert reports.recorded_since(connection) is None
