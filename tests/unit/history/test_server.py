"""The history on a PostgreSQL server: the rules of the file, in a schema for each shard, over TLS unless it is near."""

import os
import signal
import time
from contextlib import ExitStack, closing

import pytest

from kai.basics.parsing import place_text, postgresql_problem, with_schema
from kai.history import reports, server
from kai.history.database import DAY, connect, reading
from kai.history.facts import DeposedError, Ended, HistoryError, NoHistoryError
from kai.history.jobs import jobs_over
from kai.history.server import connect_server, in_postgresql, parameters_of
from kai.roles.admission.certificates import context_of, make_pair
from tests.postgresql import encrypted, running
from tests.unit.history.test_database import T, gpu_seconds, held
from tests.unit.history.test_database import begun as anew

SECRET = "s3cret/of:kai"  # noqa: S105 - that of no server


@pytest.fixture(scope="module")
def postgresql():
    with running() as made:
        yield made


@pytest.fixture
def begun():
    """Return `test_database.begun`, for writers that are closed at the end of the test."""
    with ExitStack() as made:

        def begin(*args, **options):
            writer = anew(*args, **options)
            made.callback(writer.close)
            return writer

        yield begin


@pytest.fixture
def place(postgresql, request):
    name = request.node.name.split("[")[0][-50:].lower()
    return f"{postgresql.address}?schema=t_{name}"


def test_a_job_of_a_second_counts_a_second(place, begun):
    writer = begun(place)
    writer.write(T + 5000, {("job-1", "n1"): held(2)})
    writer.write(T + 6000, {("job-1", "n1"): Ended.DONE})
    assert gpu_seconds(place) == {"team": 2.0, "top": 2.0}


def test_what_outlasts_a_crash_was_held_meanwhile(place, begun):
    begun(place, present={("job-1", "n1"): held(2)}).write(T + 1000)
    begun(place, T + 9000, {("job-1", "n1"): held(2)}, epoch=2).write(T + 10_000)
    assert gpu_seconds(place)["team"] == 20.0


def test_a_writer_of_an_earlier_term_is_refused(place, begun):
    first = begun(place, epoch=1)
    begun(place, epoch=2, identity="two")
    with pytest.raises(DeposedError, match="found the writer two"):
        first.write(T + 1000, {("job-1", "n1"): held(2)})
    with pytest.raises(DeposedError, match="epoch 1 after 2 of two") as refused:
        begun(place, epoch=1)
    assert refused.value.epoch == 2
    assert gpu_seconds(place) == {}


def test_an_open_transaction_keeps_no_reader_waiting(place, begun):
    writer = begun(place, present={("job-1", "n1"): held(2)})
    writer.connection.execute("BEGIN IMMEDIATE")
    writer.connection.execute("UPDATE writer SET heard = ?", (T + 5000,))
    assert gpu_seconds(place) == {}
    writer.connection.execute("ROLLBACK")
    writer.write(T + 1000)
    assert gpu_seconds(place)["team"] == 2.0


def test_a_reader_sees_one_state_throughout(place, begun):
    writer = begun(place, present={("job-1", "n1"): held(2)})
    writer.write(T + 1000)
    with reading(place) as connection:
        before = reports.capacity(connection, T, T + DAY)
        writer.write(T + 9000)
        assert reports.capacity(connection, T, T + DAY) == before
        with pytest.raises(HistoryError, match="read-only"):
            connection.execute("DELETE FROM held")


def test_two_shards_of_one_server_are_apart(postgresql, begun):
    places = [with_schema(postgresql.address, shard) for shard in ("", "Team/A", "team-b")]
    assert [place.partition("schema=")[2] for place in places] == ["", "kai_team_a", "kai_team_b"]
    for number, place in enumerate(places):
        begun(place, present={("job-1", "n1"): held(number + 1)}).write(T + 1000)
    assert [gpu_seconds(place)["team"] for place in places] == [1.0, 2.0, 3.0]


def test_the_same_uids_come_back_from_a_server(place, begun):
    uid = "c9bf9e57-1685-4c89-bafb-ff5af830be8a"
    begun(place, present={(uid, "n1"): held(1, uid), ("other", "n1"): held(1, "other")}).write(T + 1000)
    with reading(place) as connection:
        assert {job.uid for job in jobs_over(connection, T, T + DAY)} == {uid, "other"}


def test_readers_make_no_tables(place):
    with pytest.raises(NoHistoryError, match="found no tables"), reading(place):
        pass
    with pytest.raises(NoHistoryError, match="found no tables"), reading(place):
        pass


def test_tables_of_a_newer_kai_are_refused(place, begun):
    with closing(connect(place, writes=True)) as connection:
        connection.execute("UPDATE version SET number = 99")
    with pytest.raises(HistoryError, match="found version 99, expected 4 at most"), reading(place):
        pass
    with pytest.raises(HistoryError, match="found version 99, expected 4 at most"):
        begun(place)


def test_a_server_that_stops_forgets_the_open_transaction(place, postgresql, begun):
    writer = begun(place, present={("job-1", "n1"): held(2)})
    writer.write(T + 1000)
    writer.connection.execute("BEGIN IMMEDIATE")
    writer.connection.execute("UPDATE writer SET heard = ?", (T + 5000,))
    postgresql.stop()
    with pytest.raises(HistoryError, match="expected an answer of the server"):
        writer.write(T + 2000)
    with pytest.raises(HistoryError, match="expected a connection"):
        begun(place, T + 3000, epoch=2)
    postgresql.start()
    assert gpu_seconds(place)["team"] == 2.0
    begun(place, T + 9000, {("job-1", "n1"): held(2)}, epoch=2).write(T + 10_000)
    assert gpu_seconds(place)["team"] == 20.0


def test_a_server_that_answers_nothing_is_given_up(place, monkeypatch, begun):
    begun(place, present={("job-1", "n1"): held(2)}).write(T + 1000)
    monkeypatch.setattr(server, "_WRITE_SECONDS", 0.3)
    writer = begun(place, T + 2000, {("job-1", "n1"): held(2)}, epoch=2)
    (backend,) = writer.connection.execute("SELECT pg_backend_pid()").fetchone()
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(HistoryError, match="expected an answer of the server"):
            writer.write(T + 3000)
    finally:
        os.kill(backend, signal.SIGCONT)
    begun(place, T + 4000, {("job-1", "n1"): held(2)}, epoch=3)
    assert gpu_seconds(place)["team"] == 8.0


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://kai@db.example:5432/kai", ("verify-full", "system")),
        ("postgresql://kai@db.example/kai?sslrootcert=/ca.pem", ("verify-full", None)),
        ("postgresql://kai@db.example/kai?sslmode=require", (None, None)),
        ("postgresql://kai@127.0.0.1/kai", (None, None)),
        ("postgresql://kai@[::1]/kai", (None, None)),
        ("postgresql://kai@localhost/kai", (None, None)),
        ("postgresql:///kai?host=/run/postgresql", (None, None)),
    ],
)
def test_hosts_elsewhere_must_prove_who_they_are(address, expected):
    given = parameters_of(address, {})
    assert (given.get("sslmode"), given.get("sslrootcert")) == expected
    assert "sslmode" not in parameters_of(address, {"PGSSLMODE": "disable"})


def test_a_server_without_tls_is_refused_where_demanded(postgresql, begun):
    with pytest.raises(HistoryError, match="server does not support SSL"):
        begun(f"{postgresql.address}?sslmode=require")


def test_a_host_elsewhere_proves_itself_by_its_certificate(postgresql, begun, tmp_path):
    pair, other = (make_pair(("db.example",), time.time(), 86_400.0) for _ in range(2))
    for name, each in (("ca", pair), ("other", other)):
        (tmp_path / f"{name}.pem").write_text(each.authority)
    with encrypted(postgresql, context_of(pair)) as port:

        def place(host, authority):
            return f"postgresql://kai@{host}:{port}/postgres?hostaddr=127.0.0.1&schema=t_tls{authority}"

        trusted = f"&sslrootcert={tmp_path / 'ca.pem'}"
        begun(place("db.example", trusted), present={("job-1", "n1"): held(2)}).write(T + 5000)
        assert gpu_seconds(place("db.example", trusted)) == {"team": 10.0, "top": 10.0}
        for host, authority in (
            ("other.example", trusted),
            ("db.example", f"&sslrootcert={tmp_path / 'other.pem'}"),
            ("db.example", ""),
        ):
            with pytest.raises(HistoryError, match="certificate"):
                connect(place(host, authority), writes=False)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://kai:{SECRET.replace('/', '%2F')}@127.0.0.1:1/kai",
        f"postgresql://kai:{SECRET}@127.0.0.1:1/kai",
        f"postgresql://kai@127.0.0.1:1/kai?password={SECRET}",
        f"postgresql://kai:{SECRET}@127.0.0.1:1/kai?nonsense=1",
        f"postgresql://kai@127.0.0.1:1/kai?sslpassword={SECRET}&sslmode=none",
        f"postgresql://kai:{SECRET}",
    ],
)
def test_no_message_has_the_password(address):
    with pytest.raises(HistoryError) as refused:
        connect(address, writes=False)
    assert "s3cret" not in str(refused.value)
    assert "of:kai" not in str(refused.value)
    assert "s3cret" not in place_text(address)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("postgresql://kai@db/kai", ""),
        ("postgres://db/kai?schema=kai_a", ""),
        ("postgresql:///kai", "no host"),
        ("postgresql://db", "no database"),
        ("postgresql://db:x/kai", "an address that cannot be read"),
        ('postgresql://db/kai?schema=k"; DROP', "a schema with other signs than small letters, digits and _"),
        ("postgresql://db/kai#x", 'a "#"'),
    ],
)
def test_addresses_say_what_is_wrong_with_them(address, problem):
    assert postgresql_problem(address) == problem


def test_statements_are_put_into_the_words_of_the_server():
    said = "SELECT user, MAX(until, :from), MIN(CASE WHEN a THEN b END, ?), MAX(hour), a % 7 FROM held NOT INDEXED"
    meant = 'SELECT "user", GREATEST(until, %(from)s), LEAST(CASE WHEN a THEN b END, %s), MAX(hour), a %% 7 FROM held'
    assert in_postgresql(said) == meant


def test_without_the_driver_a_server_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(HistoryError, match=r"kai-scheduler\[postgresql\]"):
        connect_server("postgresql://127.0.0.1/kai", (), writes=True)


def test_epochs_without_a_lease_grow(place, begun):
    assert [begun(place, epoch=None).epoch for _ in range(3)] == [1, 2, 3]
