"""The database of usage history: a file of SQLite with intervals, and the one writer that adds to it.

Each row of ``held`` says that a job held an amount on a node from ``since`` to ``until``; each row of ``capacity`` says
what a node had. A row that is still true has the ``until`` of `OPEN`, and counts up to ``writer.heard``, the instant up
to which all is known. So nothing is sampled: a job of a second counts a second.

One process writes: the scheduler that leads. Each transaction checks the ``writer`` row, so that a scheduler that leads
no more is refused (`DeposedError`). A transaction holds everything up to its instant. Whenever a process is killed, the
file says what was true at ``heard``, and the next writer goes on from there: what is still held was held meanwhile,
what is gone counts up to ``heard`` and no longer. ``gap`` lists the times in which no scheduler recorded.

Time only goes forward: an instant before ``heard`` counts as ``heard``, so a clock that is set back adds nothing.

Units: see `kai.history.facts`.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import attrs

from kai.basics.parsing import is_postgresql, place_text
from kai.history.facts import (
    Amounts,
    Connection,
    DeposedError,
    Ended,
    Held,
    HistoryError,
    JobFacts,
    Key,
    NodeState,
    NoHistoryError,
    QueueFacts,
    uid_packed,
    uid_text,
)
from kai.history.server import connect_server
from kai.history.sums import DAY, SCHEMA, TALLY, Hours, Tally, put_tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OPEN: Final = 1 << 62
"""The ``until`` of a row that is still true: later than every instant."""
MEMORY: Final = ":memory:"
"""The place of a database that is lost with its process."""
# Under WAL readers and the writer do not wait for each other: this is for two writers at a change of leaders.
_BUSY_SECONDS: Final = 5.0
_STATE: Final = "gpu, cpu, memory, gpu_down, cpu_down, memory_down, gpu_over, cpu_over, memory_over"
_OF_NODES: Final = f"place, {_STATE}, since, until"
_MOST_REMEMBERED: Final = 1 << 16

_FIRST: Final = """
CREATE TABLE writer (
  one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, identity TEXT NOT NULL, heard INTEGER NOT NULL
);
CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE queue (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL, name TEXT NOT NULL, display_name TEXT NOT NULL, parent INTEGER NOT NULL,
  UNIQUE (uid, name, display_name, parent)
);
CREATE TABLE job (
  id INTEGER PRIMARY KEY, uid NOT NULL UNIQUE, namespace INTEGER NOT NULL, name TEXT NOT NULL,
  kind INTEGER NOT NULL, user INTEGER NOT NULL, created INTEGER NOT NULL, gpu INTEGER NOT NULL
);
CREATE TABLE place (id INTEGER PRIMARY KEY, node TEXT NOT NULL, model TEXT NOT NULL, UNIQUE (node, model));
CREATE TABLE held (
  id INTEGER PRIMARY KEY, job INTEGER NOT NULL, queue INTEGER NOT NULL, user INTEGER NOT NULL, place INTEGER NOT NULL,
  gpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL,
  since INTEGER NOT NULL, until INTEGER NOT NULL, ended INTEGER
);
CREATE INDEX held_until ON held (until);
CREATE TABLE capacity (
  id INTEGER PRIMARY KEY, place INTEGER NOT NULL,
  gpu INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL,
  gpu_down INTEGER NOT NULL, cpu_down INTEGER NOT NULL, memory_down INTEGER NOT NULL,
  gpu_over INTEGER NOT NULL, cpu_over INTEGER NOT NULL, memory_over INTEGER NOT NULL,
  since INTEGER NOT NULL, until INTEGER NOT NULL
);
CREATE INDEX capacity_until ON capacity (until);
CREATE TABLE gap (since INTEGER PRIMARY KEY, until INTEGER NOT NULL);
"""
_BY_JOB: Final = "CREATE INDEX held_job ON held (job)"
MIGRATIONS: Final = (_FIRST, SCHEMA, _BY_JOB, TALLY)
"""What brings a database from each version to the next. Only ever add to the end: files of all versions exist."""


# ------------------------------------------------------------------------------------------------------------ opening


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        wanted = "a database of history, or no file, in a folder that can be written"
        raise HistoryError(f"history {path}: found {error}, expected {wanted}") from None


def connect(path: str, *, writes: bool) -> Connection:
    """Return a connection to a file, or to a server; with ``writes`` what is not there is made.

    Raises: HistoryError for a place that is no such database, or was written by a newer kai; NoHistoryError for one
        where there is nothing yet.
    """
    if is_postgresql(path):
        return connect_server(path, MIGRATIONS, writes=writes)
    with _told(path):
        if path == MEMORY:
            # Transactions begin where our own statements say so, and worker threads call one after the other.
            made = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        else:
            if not writes and not Path(path).is_file():
                raise NoHistoryError(f"history {path}: found no file, expected a database of history")
            # A reader makes no file: a wrong path must not leave an empty database behind.
            place = f"file:{quote(str(Path(path).absolute()))}?mode={'rwc' if writes else 'ro'}"
            made = sqlite3.connect(
                place, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            _prepare(made, path, writes=writes)
        except BaseException:
            made.close()
            raise
    return made


def _prepare(connection: sqlite3.Connection, path: str, *, writes: bool) -> None:
    _add_functions(connection)
    if writes:
        # With a write-ahead log a report that reads for a minute does not hold back the scheduler that records.
        connection.execute("PRAGMA journal_mode = WAL")
        # A loss of power may cost the last transactions, never the file: writing goes on from an earlier `heard`.
        connection.execute("PRAGMA synchronous = NORMAL")
        # A long reader lets the log grow; without a limit it would keep that size for good.
        connection.execute(f"PRAGMA journal_size_limit = {1 << 24}")
        # The lock before the version is read: two processes that start together would both migrate.
        connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise HistoryError(
            f"history {path}: found version {version}, expected {len(MIGRATIONS)} at most: use a newer kai"
        )
    if not writes:
        if version < len(MIGRATIONS):
            raise HistoryError(f"history {path}: found version {version}, expected {len(MIGRATIONS)}: let kai write it")
        return
    # SQLite gives an empty file version 0 as well, so tables tell a foreign database from a new one.
    if version == 0 and connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]:
        raise HistoryError(f"history {path}: found tables of another program, expected a database of history")
    for number, step in enumerate(MIGRATIONS[version:], version + 1):
        # Not `executescript`, which commits first: all steps and the version are one transaction.
        for statement in step.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")
    connection.execute("COMMIT")


def _add_functions(connection: sqlite3.Connection) -> None:
    """Add the functions of decay where SQLite was built without them."""
    functions: tuple[tuple[str, Callable[[float], float]], ...] = (("exp", math.exp), ("tanh", math.tanh))
    for name, function in functions:
        try:
            connection.execute(f"SELECT {name}(0.0)")
        except sqlite3.OperationalError:
            connection.create_function(name, 1, function, deterministic=True)


@contextmanager
def reading(path: str) -> Iterator[Connection]:
    """Give a connection that sees one state of the database throughout.

    Raises: HistoryError.
    """
    connection = connect(path, writes=False)
    try:
        with _told(path):
            # Without it each statement sees the newest state, and the sums of one report need not fit together.
            connection.execute("BEGIN")
            yield connection
    finally:
        connection.close()


def file_of(connection: Connection) -> bytes:
    """Return a database in memory, or in a file, as the bytes of a file.

    Holds: the same writes give the same bytes.
    Raises: HistoryError for one on a server, which is no file.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise HistoryError("history: found a server, expected a database in memory or in a file")
    connection.execute("VACUUM")  # what was deleted would stay in the file, and go wherever it is sent
    return connection.serialize()


def heard_until(connection: Connection) -> int | None:
    """Return the instant up to which all is recorded; None in an empty database."""
    row = connection.execute("SELECT heard FROM writer").fetchone()
    return None if row is None else int(row[0])


def queues_by_row(connection: Connection) -> dict[int, QueueFacts]:
    """Return all queues that were ever recorded by row, each in each place that it had, the oldest first."""
    found: dict[int, QueueFacts] = {}
    rows = connection.execute("SELECT id, uid, name, display_name, parent FROM queue ORDER BY id")
    for row, uid, name, display_name, parent in rows:  # a parent has an earlier row
        found[row] = QueueFacts(uid=uid, name=name, display_name=display_name, parent=found.get(parent))
    return found


# ------------------------------------------------------------------------------------------------------------ writing


@attrs.frozen(kw_only=True)
class Author:
    """The process that writes. Epochs of one lease only grow; without a lease, ``epoch`` is None."""

    epoch: int | None
    identity: str


@attrs.define
class _OpenHeld:
    row: int
    facts: Held


@attrs.define
class _OpenNode:
    row: int
    state: NodeState


@attrs.define(eq=False)
class Writer:
    """The one connection that writes. Its methods block: call them in a thread, one at a time.

    A writer that raised is of no more use: begin a new one.
    """

    path: str
    author: Author
    connection: Connection
    epoch: int
    heard: int
    """The instant up to which all is recorded."""
    retention: int
    """For how long intervals are kept after their end, in milliseconds."""
    hours: Hours
    _held: dict[Key, _OpenHeld] = attrs.field(factory=dict)
    _nodes: dict[str, _OpenNode] = attrs.field(factory=dict)
    _gpus: dict[str, int] = attrs.field(factory=dict)
    """The GPUs that each job holds, on all nodes; jobs that hold none are left out."""
    _words: dict[str, int] = attrs.field(factory=dict)
    _queues: dict[QueueFacts, int] = attrs.field(factory=dict)
    _places: dict[tuple[str, str], int] = attrs.field(factory=dict)
    _swept: int = 0

    @classmethod
    def begin(
        cls,
        path: str,
        author: Author,
        at: int,
        held: Mapping[Key, Held],
        nodes: Mapping[str, NodeState],
        *,
        retention: int,
        half_life: int = 0,
        connection: Connection | None = None,
    ) -> Writer:
        """Return the writer of a term that begins now, when ``held`` and ``nodes`` are all there is.

        What earlier writers left open goes on if it is still true. Else it ends when it was last known to be true.
        Integrals of past usage are kept for ``half_life``, in milliseconds (0: usage does not fade).

        Raises: HistoryError; DeposedError if a process of a later term writes.
        """
        connection = connection or connect(path, writes=True)
        try:
            with _told(path), _transaction(connection):
                before = connection.execute("SELECT epoch, identity, heard FROM writer").fetchone()
                epoch = _next_epoch(path, author, before)
                # A clock that was set back must not open a term before what is recorded: intervals would overlap.
                at = at if before is None else max(at, int(before[2]))
                connection.execute(
                    "INSERT INTO writer (one, epoch, identity, heard) VALUES (1, ?, ?, ?) ON CONFLICT (one)"
                    " DO UPDATE SET epoch = excluded.epoch, identity = excluded.identity, heard = excluded.heard",
                    (epoch, author.identity, at),
                )
                last = at if before is None else int(before[2])
                hours = Hours.begin(connection, None if before is None else last, at, half_life)
                writer = cls(path, author, connection, epoch, at, retention, hours)
                # Nothing was recorded meanwhile. What goes on counts all the same, so reports name the gap.
                if last < at:
                    connection.execute(
                        "INSERT INTO gap (since, until) VALUES (?, ?) ON CONFLICT (since)"
                        " DO UPDATE SET until = excluded.until",
                        (last, at),
                    )
                writer._resume(last, at, held, nodes)
                hours.close(at)
        except BaseException:
            connection.close()
            raise
        return writer

    def write(
        self,
        at: int,
        held: Mapping[Key, Held | Ended] | None = None,
        nodes: Mapping[str, NodeState | None] | None = None,
        tally: Tally | None = None,
    ) -> None:
        """Record changes at an instant, and that all else stayed as it was up to then; ``tally`` replaces the last one.

        Raises: HistoryError; DeposedError.
        """
        at = max(at, self.heard)
        with _told(self.path), _transaction(self.connection):
            self._check()
            # In the transaction of the changes: after a kill both are there, or neither.
            self.connection.execute("UPDATE writer SET heard = ?", (at,))
            for key, now in (held or {}).items():
                self._put_held(key, now, at)
            for node, state in (nodes or {}).items():
                self._put_node(node, state, at)
            self.hours.close(at)
            self._forget(at)
            if tally is not None:
                put_tally(self.connection, tally)
        self.heard = at

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _check(self) -> None:
        row = self.connection.execute("SELECT epoch, identity FROM writer").fetchone()
        if row != (self.epoch, self.author.identity):
            place = place_text(self.path)
            raise DeposedError(f"history {place}: found the writer {row[1]}, expected {self.author.identity}")

    # --- Rows --------------------------------------------------------------------------------------------------------

    def _resume(self, last: int, at: int, held: Mapping[Key, Held], nodes: Mapping[str, NodeState]) -> None:
        """Compare the intervals that were open at ``last`` with what holds GPUs at ``at``."""
        for key, left in self._left_open().items():
            now = held.get(key)
            # If even the first of its pods was bound after `last`, the job left the node and came back: a new interval.
            is_same = now is not None and _same(now, left.facts) and not _bound_after(now.first_bound, last)
            self._held[key] = left
            self._gpus[key[0]] = self._gpus.get(key[0], 0) + left.facts.amounts.gpu
            if not is_same:
                self._end_held(key, last, Ended.UNSEEN if now is None else Ended.CHANGED)
        for key, now in held.items():
            if key not in self._held:
                # As late as its last pod: the amount is that of all its pods, and before that there were fewer.
                began = at if now.last_bound is None else min(max(now.last_bound, last), at)
                self._begin_held(key, now, began)
        for node, left_node in self._nodes_left_open().items():
            self._nodes[node] = left_node
            if nodes.get(node) != left_node.state:
                self._end_node(node, last)
        for node, state in nodes.items():
            if node not in self._nodes:
                self._begin_node(node, state, at)

    def _left_open(self) -> dict[Key, _OpenHeld]:
        queues = queues_by_row(self.connection)
        rows = self.connection.execute(
            "SELECT held.id, job.uid, place.node, place.model, held.gpu, held.cpu, held.memory,"
            " held.queue FROM held JOIN job ON job.id = held.job JOIN place ON place.id = held.place"
            " WHERE held.until = ?",
            (OPEN,),
        )
        return {
            (uid_text(uid), node): _OpenHeld(
                row,
                Held(
                    job=JobFacts(uid=uid_text(uid), namespace="", name=""),
                    queue=queues[queue],
                    model=model,
                    amounts=Amounts(gpu, cpu, memory),
                ),
            )
            for row, uid, node, model, gpu, cpu, memory, queue in rows
        }

    def _nodes_left_open(self) -> dict[str, _OpenNode]:
        rows = self.connection.execute(
            f"SELECT capacity.id, node, model, {_STATE} FROM capacity JOIN place ON place.id = capacity.place"
            " WHERE until = ?",
            (OPEN,),
        )
        return {
            node: _OpenNode(
                row,
                NodeState(model=model, capacity=Amounts(*some[:3]), down=Amounts(*some[3:6]), over=Amounts(*some[6:])),
            )
            for row, node, model, *some in rows
        }

    def _put_held(self, key: Key, now: Held | Ended, at: int) -> None:
        before = self._held.get(key)
        if isinstance(now, Ended):
            if before is not None:
                self._end_held(key, at, now)
            return
        if before is not None:
            if _same(now, before.facts):
                return
            if now.left is not Ended.CHANGED and _is_part(now, before.facts):
                self._part_held(key, now, at)
                return
            self._end_held(key, at, Ended.CHANGED)
        self._begin_held(key, now, at)

    def _begin_held(self, key: Key, now: Held, at: int) -> None:
        job, user = self._job(now.job), self._word(now.job.user)
        values = (job, self._queue(now.queue), user, self._place(key[1], now.model), *now.amounts, at, OPEN)
        made = self.connection.execute(
            "INSERT INTO held (job, queue, user, place, gpu, cpu, memory, since, until) VALUES (?,?,?,?,?,?,?,?,?)",
            values,
        )
        self._held[key] = _OpenHeld(int(made.lastrowid or 0), now)
        gpus = self._gpus[key[0]] = self._gpus.get(key[0], 0) + now.amounts.gpu
        # Kept with the job: reports by size would else have to read all intervals of each.
        self.connection.execute("UPDATE job SET gpu = ? WHERE id = ? AND gpu < ?", (gpus, job, gpus))

    def _end_held(self, key: Key, at: int, why: Ended) -> None:
        """End a row; one that lasted for no time is as if it had never been."""
        ended = self._held.pop(key)
        row, gpus = ended.row, self._gpus.get(key[0], 0) - ended.facts.amounts.gpu
        self._gpus[key[0]] = gpus
        if not gpus:
            del self._gpus[key[0]]
        self.connection.execute("UPDATE held SET until = ?, ended = ? WHERE id = ?", (at, int(why), row))
        self.connection.execute("DELETE FROM held WHERE id = ? AND since >= until", (row,))

    def _part_held(self, key: Key, now: Held, at: int) -> None:
        """End a part of what a job holds, as a row of its own, and let the rest go on.

        So what left is known to have been lost from its begin, although other pods of the job are still there.
        """
        before = self._held[key]
        gone = before.facts.amounts.plus(now.amounts, -1)
        self.connection.execute(
            "INSERT INTO held (job, queue, user, place, gpu, cpu, memory, since, until, ended)"
            " SELECT job, queue, user, place, ?, ?, ?, since, ?, ? FROM held WHERE id = ? AND since < ?",
            (*gone, at, int(now.left), before.row, at),
        )
        self.connection.execute("UPDATE held SET gpu = ?, cpu = ?, memory = ? WHERE id = ?", (*now.amounts, before.row))
        self._held[key] = _OpenHeld(before.row, now)
        self._gpus[key[0]] -= gone.gpu
        if not self._gpus[key[0]]:
            del self._gpus[key[0]]

    def _put_node(self, node: str, state: NodeState | None, at: int) -> None:
        before = self._nodes.get(node)
        if before is not None:
            if before.state == state:
                return
            self._end_node(node, at)
        if state is not None:
            self._begin_node(node, state, at)

    def _begin_node(self, node: str, state: NodeState, at: int) -> None:
        values = (self._place(node, state.model), *state.capacity, *state.down, *state.over, at, OPEN)
        made = self.connection.execute(
            f"INSERT INTO capacity ({_OF_NODES}) VALUES (?{',?' * (len(values) - 1)})", values
        )
        self._nodes[node] = _OpenNode(int(made.lastrowid or 0), state)

    def _end_node(self, node: str, at: int) -> None:
        row = self._nodes.pop(node).row
        self.connection.execute("UPDATE capacity SET until = ? WHERE id = ?", (at, row))
        self.connection.execute("DELETE FROM capacity WHERE id = ? AND since >= until", (row,))

    # --- What rows refer to ------------------------------------------------------------------------------------------

    def _job(self, facts: JobFacts) -> int:
        # Not remembered as queues and places are: jobs only grow in number, and most begin once.
        uid = uid_packed(facts.uid)
        row = self.connection.execute("SELECT id FROM job WHERE uid = ?", (uid,)).fetchone()
        if row is not None:
            return int(row[0])
        words = (self._word(facts.namespace), facts.name, self._word(facts.kind), self._word(facts.user))
        made = self.connection.execute(
            "INSERT INTO job (uid, namespace, name, kind, user, created, gpu) VALUES (?,?,?,?,?,?,0)",
            (uid, *words, facts.created),
        )
        return int(made.lastrowid or 0)

    def _queue(self, facts: QueueFacts) -> int:
        known = self._queues.get(facts)
        if known is None:
            parent = 0 if facts.parent is None else self._queue(facts.parent)
            values = (facts.uid, facts.name, facts.display_name, parent)
            known = self._queues[facts] = self._id_of("queue", "uid, name, display_name, parent", values)
        return known

    def _place(self, node: str, model: str) -> int:
        known = self._places.get((node, model))
        if known is None:
            known = self._places[node, model] = self._id_of("place", "node, model", (node, model))
        return known

    def _word(self, text: str) -> int:
        known = self._words.get(text)
        if known is None:
            # Namespaces that CI makes for each run would fill memory without a bound.
            if len(self._words) >= _MOST_REMEMBERED:
                self._words.clear()
            known = self._words[text] = self._id_of("word", "text", (text,))
        return known

    def _id_of(self, table: str, columns: str, values: tuple[str | int, ...]) -> int:
        matches = " AND ".join(f"{each} = ?" for each in columns.split(", "))
        # Looked up first: an INSERT that ignores a conflict does not say the id of the row that was there.
        row = self.connection.execute(f"SELECT id FROM {table} WHERE {matches}", values).fetchone()
        if row is not None:
            return int(row[0])
        marks = ", ".join("?" for _ in values)
        made = self.connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)
        return int(made.lastrowid or 0)

    # --- Retention ---------------------------------------------------------------------------------------------------

    def _forget(self, at: int) -> None:
        """Delete once a day what ended before the day in which the retention began, and jobs without any of it."""
        if at // DAY == self._swept // DAY:
            return
        oldest = (at - self.retention) // DAY * DAY
        for table in ("held", "capacity", "gap"):
            self.connection.execute(f"DELETE FROM {table} WHERE until < ?", (oldest,))
        self.hours.forget(at, oldest)
        # Words, queues and places stay: sums name queues by row, and this process remembers rows of all three.
        self.connection.execute("DELETE FROM job WHERE id NOT IN (SELECT job FROM held)")
        self._swept = at


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    # A transaction that begins as a reader cannot wait for the lock later: SQLite fails it at once.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors, such as a full disk, SQLite has rolled back already; a second time would hide that error.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _next_epoch(path: str, author: Author, before: tuple[Any, ...] | None) -> int:
    """Return the epoch of a new writer.

    Raises: DeposedError for one that is not after the last, if epochs come from a lease.
    """
    last = 0 if before is None else int(before[0])
    # Without a lease nothing orders two processes: the one that begins last writes.
    if author.epoch is None:
        return last + 1
    # The same epoch and identity is this term again, which replaces a writer that raised.
    if before is not None and (author.epoch < last or (author.epoch == last and before[1] != author.identity)):
        found = f"found epoch {author.epoch} after {last} of {before[1]}"
        raise DeposedError(f"history {place_text(path)}: {found}, expected a later one", last)
    return author.epoch


def _same(one: Held, other: Held) -> bool:
    """Return whether two values are the same to a reader of the row that the first was written to."""
    return (one.amounts, one.model, one.queue) == (other.amounts, other.model, other.queue)


def _is_part(one: Held, other: Held) -> bool:
    """Return whether the first value is the rest of the second, from which something left."""
    is_less = all(now <= before for now, before in zip(one.amounts, other.amounts, strict=True))
    return is_less and (one.model, one.queue) == (other.model, other.queue)


def _bound_after(bound: int | None, instant: int) -> bool:
    return bound is not None and bound > instant
