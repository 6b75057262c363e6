"""The database of history on a PostgreSQL server, which schedulers of several shards and their standbys share.

All statements of `kai.history` are those of SQLite; `in_postgresql` alone says how PostgreSQL writes them. So both
databases answer the same questions with the same integers, and integrals that differ in the last digits.

A place is an address, ``postgresql://USER@HOST:PORT/DATABASE``, with any parameters of libpq, and with ``schema=NAME``
for the PostgreSQL schema that the tables are in. Each shard has a schema of its own: two would end each other's terms.

A writer locks the table ``writer`` for each transaction. A process that stops in the middle of one loses its
transaction after a while, so that the next leader need not wait for it. Times without an answer are bounded on both
sides of the network.

A password never comes into a message: libpq reads it from the address, ``PGPASSWORD`` or ``PGPASSFILE``, and messages
have `place_text`.
"""

from __future__ import annotations

import ipaddress
import os
import re
from contextlib import contextmanager, suppress
from functools import lru_cache
from socket import SHUT_RDWR, socket
from threading import Timer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from kai.basics.parsing import POSTGRESQL_SCHEMA, POSTGRESQL_WANTED, place_text, postgresql_problem
from kai.history.facts import HistoryError, NoHistoryError, uid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from psycopg import Connection as PsycopgConnection
    from psycopg import Cursor

MISSING: Final = "found no psycopg, expected the extra: pip install 'kai-scheduler[postgresql]'"
_CONNECT_SECONDS: Final = 5
_BOUNDS: Final[Mapping[str, str]] = {
    "connect_timeout": str(_CONNECT_SECONDS),
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "application_name": "kai",
}
"""Parameters for libpq, unless the address has its own: a peer that is gone is noticed in seconds, not in hours."""
_WRITES: Final = (
    "SET statement_timeout = '20s'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '20s';"
)
_READS: Final = "SET statement_timeout = '60s'; SET default_transaction_read_only = on;"
_WRITE_SECONDS: Final = 30.0
_READ_SECONDS: Final = 90.0
_LOCK: Final = "LOCK TABLE writer IN SHARE ROW EXCLUSIVE MODE"
_LOCK_CLASS: Final = 0x6B_61_69


# -------------------------------------------------------------------------------------------------------------- places


def parameters_of(place: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what libpq is given beside the address: bounds, and TLS for a host that is not this machine.

    The certificate of the host is verified with the authorities that the system trusts, unless the address or a
    variable of libpq says otherwise (``sslmode``, ``sslrootcert``).
    """
    at = urlsplit(place)
    said = dict(parse_qsl(at.query, keep_blank_values=True))
    found = {name: value for name, value in _BOUNDS.items() if name not in said}
    # By default libpq takes a connection without TLS where the other side offers none.
    if not _is_here(at.hostname or said.get("host", "")) and not ("sslmode" in said or environment.get("PGSSLMODE")):
        found["sslmode"] = "verify-full"
        if not ("sslrootcert" in said or environment.get("PGSSLROOTCERT")):
            found["sslrootcert"] = "system"
    return found


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")


def _split(place: str) -> tuple[str, str]:
    """Return the address as libpq reads it, and the schema."""
    at = urlsplit(place)
    pairs = parse_qsl(at.query, keep_blank_values=True)
    rest = urlencode([pair for pair in pairs if pair[0] != "schema"], quote_via=quote)
    return at._replace(query=rest).geturl(), dict(pairs).get("schema", POSTGRESQL_SCHEMA)


# ---------------------------------------------------------------------------------------------------------- statements

_OF_SEVERAL: Final = {"MAX": "GREATEST", "MIN": "LEAST"}
_WORDS: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    # What is one sign in both, but not for the driver.
    (re.compile(r"%"), "%%"),
    (re.compile(r"\?"), "%s"),
    (re.compile(r"\binstr\((lower\([\w.]+\)), (:\w+)\)"), r"strpos(\1, \2) > 0"),
    (re.compile(r":(\w+)"), r"%(\1)s"),
    (re.compile(r"\bIN \(\)"), "IN (NULL)"),
    # Unquoted, it is the name of the role that asks.
    (re.compile(r"(?<!%\()\buser\b"), '"user"'),
    (re.compile(r"\b(MAX|MIN)\((?=CASE\b|\w+\s*,)"), lambda found: f"{_OF_SEVERAL[found[1]]}("),
    (re.compile(r"\bTOTAL\(([^()]+)\)"), r"COALESCE(SUM(CAST(\1 AS DOUBLE PRECISION)), 0)"),
    (re.compile(r" NOT INDEXED\b| INDEXED BY \w+"), ""),
    # Columns: SQLite's integers have 64 bits, a column without a type takes any value, and rows have ids.
    (re.compile(r"\bid INTEGER PRIMARY KEY\b"), "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (re.compile(r"\bINTEGER\b"), "BIGINT"),
    (re.compile(r"\bREAL\b"), "DOUBLE PRECISION"),
    (re.compile(r"\buid NOT NULL\b"), "uid TEXT NOT NULL"),
    (re.compile(r"\b(gpu|cpu|memory) NOT NULL\b"), r"\1 NUMERIC NOT NULL"),
    (re.compile(r"\) WITHOUT ROWID\b"), ")"),
    (re.compile(r"^(INSERT INTO (?:word|queue|job|place|held|capacity) .*)$", re.DOTALL), r"\1 RETURNING id"),
)


@lru_cache(maxsize=512)
def in_postgresql(statement: str) -> str:
    """Return a statement of SQLite in the words of PostgreSQL, with parameters as psycopg marks them."""
    for pattern, words in _WORDS:
        statement = pattern.sub(words, statement)
    return statement


def _given(parameters: Any) -> Any:  # noqa: ANN401 - as the driver takes them
    """Return parameters as PostgreSQL has them: UIDs as text, since a column there has one type."""
    if isinstance(parameters, dict):
        return parameters
    return tuple([uid_text(each) if isinstance(each, bytes) else each for each in parameters])


# --------------------------------------------------------------------------------------------------------- connections


class _Rows:
    """The answer to a statement, read whole."""

    def __init__(self, cursor: Cursor[Any]) -> None:
        self.cursor = cursor
        self.lastrowid: int | None = None

    def fetchone(self) -> Any:  # noqa: ANN401 - a row of any columns, or None
        return self.cursor.fetchone()

    def fetchmany(self, size: int, /) -> list[Any]:
        return self.cursor.fetchmany(size)

    def fetchall(self) -> list[Any]:
        return self.cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.cursor)


class ServerConnection:
    """A connection to a server, as `kai.history.facts.Connection` describes it.

    A statement that fails raises HistoryError, with the words of the server.
    """

    def __init__(self, place: str, connection: PsycopgConnection[Any], seconds: float) -> None:
        """Take over an open connection to a place, which is cut ``seconds`` after a transaction began."""
        self.place = place
        self.connection = connection
        self.seconds = seconds
        self._guard = Timer(0.0, self._cut)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun that has not ended; a connection that is lost has none."""
        return self.connection.info.transaction_status.name in {"INTRANS", "INERROR", "ACTIVE"}

    def execute(self, statement: str, parameters: Any = (), /) -> _Rows:  # noqa: ANN401 - a sequence or a mapping
        """Carry out one statement of SQLite."""
        with _as_history_error(self.place):
            if statement.startswith("BEGIN"):
                self._begin_to_guard()
            if statement == "BEGIN IMMEDIATE":
                # Readers are not held up. A writer waits for the one before, and reads what that one left.
                self.connection.execute("BEGIN")
                return _Rows(self.connection.execute(_LOCK))
            words = in_postgresql(statement).encode()
            made = _Rows(self.connection.execute(words, _given(parameters) or None))
            if words.endswith(b" RETURNING id"):
                row = made.cursor.fetchone()
                made.lastrowid = None if row is None else int(row[0])
            if statement in {"COMMIT", "ROLLBACK"}:
                self._guard.cancel()
            return made

    def executemany(self, statement: str, parameters: Sequence[Any], /) -> object:
        """Carry out one statement for each entry."""
        with _as_history_error(self.place):
            cursor = self.connection.cursor()
            cursor.executemany(in_postgresql(statement).encode(), [_given(each) for each in parameters])
            return cursor

    def close(self) -> None:
        """Close it; a transaction that has not ended is undone."""
        self._guard.cancel()
        self.connection.close()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Bound the time of what is done without a transaction."""
        self._begin_to_guard()
        yield
        self._guard.cancel()

    def _begin_to_guard(self) -> None:
        self._guard.cancel()
        self._guard = Timer(self.seconds, self._cut)
        self._guard.daemon = True
        self._guard.start()

    def _cut(self) -> None:
        """End a wait for a server that takes what it is sent and never answers, which libpq would go on with."""
        import psycopg

        with suppress(OSError, psycopg.Error), socket(fileno=os.dup(self.connection.fileno())) as same:
            same.shutdown(SHUT_RDWR)


@contextmanager
def _as_history_error(place: str) -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise HistoryError(f"history {place_text(place)}: found {why}, expected an answer of the server") from None


def connect_server(place: str, migrations: Sequence[str], *, writes: bool) -> ServerConnection:
    """Return a connection; with ``writes`` to a database that has the tables, which are made if there are none.

    Raises: HistoryError; NoHistoryError for a reader where there are no tables.
    """
    problem = postgresql_problem(place)
    if problem:
        raise HistoryError(f"history {place_text(place)}: found {problem}, expected {POSTGRESQL_WANTED}")
    try:
        import psycopg
    except ImportError:
        raise HistoryError(f"history {place_text(place)}: {MISSING}") from None
    address, schema = _split(place)
    try:
        made = psycopg.connect(address, autocommit=True, **_bounds(place))
    except psycopg.ProgrammingError:  # its text quotes the address
        wanted = "parameters that libpq knows"
        raise HistoryError(f"history {place_text(place)}: found others in the address, expected {wanted}") from None
    except psycopg.Error as error:
        why = " ".join(str(error).split())
        raise HistoryError(f"history {place_text(place)}: found {why}, expected a connection") from None
    connection = ServerConnection(place, made, _WRITE_SECONDS if writes else _READ_SECONDS)
    try:
        with _as_history_error(place), connection.guarded():
            _read_whole_numbers(made)
            made.execute((_WRITES if writes else _READS).encode())
            made.execute(f'SET search_path TO "{schema}"'.encode())
            _prepare(made, place, schema, migrations, writes=writes)
            if not writes:
                made.execute("SET default_transaction_isolation = 'repeatable read'")
    except BaseException:
        connection.close()
        raise
    return connection


def _bounds(place: str) -> dict[str, Any]:
    return {**parameters_of(place, os.environ)}


def _read_whole_numbers(connection: PsycopgConnection[Any]) -> None:
    """Have sums of integers, which PostgreSQL gives as numbers of any length, read as integers."""
    from psycopg.adapt import Loader

    class WholeLoader(Loader):
        """Reads a number without a fraction."""

        def load(self, data: Any) -> int:  # noqa: ANN401 - a buffer
            return int(bytes(data))

    connection.adapters.register_loader("numeric", WholeLoader)


def _prepare(
    connection: PsycopgConnection[Any], place: str, schema: str, migrations: Sequence[str], *, writes: bool
) -> None:
    found = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = 'version'"
    if not writes:
        if connection.execute(found, (schema,)).fetchone() is None:
            raise NoHistoryError(f"history {place_text(place)}: found no tables, expected a database of history")
        version = _version(connection, place, len(migrations))
        if version < len(migrations):
            wanted = f"expected {len(migrations)}: let kai write it"
            raise HistoryError(f"history {place_text(place)}: found version {version}, {wanted}")
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK_CLASS, schema))
        if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None:
            connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        if connection.execute(found, (schema,)).fetchone() is None:
            connection.execute("CREATE TABLE version (number BIGINT NOT NULL)")
            connection.execute("INSERT INTO version VALUES (0)")
        for step in migrations[_version(connection, place, len(migrations)) :]:
            for statement in filter(str.strip, step.split(";")):
                connection.execute(in_postgresql(statement).encode())
            connection.execute("UPDATE version SET number = number + 1")


def _version(connection: PsycopgConnection[Any], place: str, newest: int) -> int:
    row = connection.execute("SELECT number FROM version").fetchone()
    version = 0 if row is None else int(row[0])
    if version > newest:
        wanted = f"expected {newest} at most: use a newer kai"
        raise HistoryError(f"history {place_text(place)}: found version {version}, {wanted}")
    return version
