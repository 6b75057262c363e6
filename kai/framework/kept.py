"""Answers about nodes that a plugin keeps, and gives again wherever the state that they depend on is the same.

A plugin that searches, such as one for devices, asks the same many times: for pods that ask for the same, about nodes
that have not changed, and in searches for victims about states that were tried before. `NodeStates` numbers the states
of nodes: two nodes of one kind with the same numbers in their cells have the same state, and so has a node whose cells
are again what they were. `KeptAnswers` keeps one answer for each ask and state.

There is nothing to invalidate: a change of a cell, a rollback of one, and a new cycle all lead to a state by its
content. An answer that depends on anything but the ask, the kind of the node and its cells must not be kept.

    states = NodeStates(kinds=np.arange(nodes), nodes_of=[node_of_device])
    kept = KeptAnswers(states, np.bool_)
    ...
    states.read([in_use])
    return kept.of(ask_of(pod), nodes, search_each)

Both may live as long as ``kinds`` and ``nodes_of`` stay the same, cycle after cycle.

`KeptTransitions` keeps what states become as pods leave and come, for searches for victims.

``batch_of`` is for a plugin whose answer depends on where certain pods are, such as those of one app: it counts the
room of domains for pods that wait, and counts again where such a pod came or went.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from kai.facts.kernels.place import REFUSED, UNKNOWN, UNSURE, TransitionTable
from kai.facts.model.axis import Bools, Int64s, NodeRow, NodeRows, PodRow, PodRows
from kai.facts.model.pod import Status
from kai.facts.state.ledger import Tracked
from kai.framework.hooks import Batch, Effect, Transitions
from kai.framework.view import SessionView

__all__ = [
    "EVERYWHERE",
    "NOWHERE",
    "UNBOUNDED",
    "Given",
    "KeptAnswers",
    "KeptDetails",
    "KeptTransitions",
    "NodeStates",
    "RoomRule",
    "batch_of",
]

Value = TypeVar("Value", bound=np.generic)

EVERYWHERE: Final = -1
"""The node of a cell that answers about all nodes depend on."""
NOWHERE: Final = -2
"""The node of a cell that no answer depends on."""
MOST_STATES: Final = 1 << 13
"""The most states that have answers, and the most details, besides four for each node; then all are forgotten."""
MOST_ASKS: Final = 128
"""The most asks that have answers; beyond that, all are forgotten. Also the most asks that rooms are counted for."""
UNBOUNDED: Final = 1 << 40
"""The room of a domain that takes any number of pods."""
MOST_CELLS: Final = 1 << 20
"""The most cells of room that are counted, and of a table of states; other pods are asked about one by one."""
MOST_QUESTIONS: Final = 64
"""The most questions that a kernel gathers before it has to be told the answers."""


class NodeStates:
    """Numbers for the states of nodes. Shapes: N nodes, C cells of a column."""

    def __init__(self, kinds: Int64s, nodes_of: Sequence[Int64s]) -> None:
        """Begin without cells; ``read`` comes before each question.

        ``kinds`` [N] are equal numbers for nodes about which equal cells, in their order, give equal answers.
        ``nodes_of`` are, for each column, the node of each of its cells [C], `EVERYWHERE` or `NOWHERE`.
        """
        self._kinds: list[int] = kinds.tolist()
        self._nodes_of = tuple(nodes_of)
        self._cells = [_cells_of(owners, len(kinds)) for owners in nodes_of]
        self._everywhere = [np.flatnonzero(owners == EVERYWHERE) for owners in nodes_of]
        self._seen: list[Int64s] = []
        self._shared = b""
        self._numbers: dict[tuple[int, bytes, bytes], int] = {}
        self._keys: list[tuple[int, bytes, bytes]] = []
        """The kind of node, its cells and the shared cells of each state."""
        self.epoch = 0
        """How often all states were forgotten."""
        self.of_nodes: Int64s = np.zeros(len(kinds), np.int64)
        """[N] The state of each node when the cells were read last."""

    @property
    def most(self) -> int:
        """How many states have numbers at most."""
        return MOST_STATES + 4 * len(self._kinds)

    @property
    def count(self) -> int:
        """How many states have numbers."""
        return len(self._numbers)

    def read(self, columns: Sequence[Tracked]) -> None:
        """Update the states of nodes to the present numbers in ``columns``, in the order of ``nodes_of``.

        Cost: one comparison of all cells; little more for each node with a changed one.
        """
        values = [column.values.reshape(-1) for column in columns]
        if not self._seen:
            self._seen = [each.copy() for each in values]
            self._number_all()
            return
        # Whole columns are compared as bytes first: mostly nothing changed, and that comparison stops at the first
        # difference and makes no array.
        changed = [
            (at, (now != seen).nonzero()[0])
            for at, (now, seen) in enumerate(zip(values, self._seen, strict=True))
            if len(now) and now.tobytes() != seen.tobytes()
        ]
        if not changed:
            return
        nodes: set[int] = set()
        for at, cells in changed:
            # Copied cell by cell into arrays of our own: the columns themselves are changed in place by the engine, so
            # a kept reference would always look unchanged.
            self._seen[at][cells] = values[at][cells]
            nodes.update(self._nodes_of[at][cells].tolist())
        # A cell that all depend on enters the key of each node, so all need new numbers. The bound is looked at here as
        # well, while no answer is half made: `of` holds numbers of states across its call of `answer`.
        if EVERYWHERE in nodes or self.count > self.most:
            self._number_all()
            return
        for node in nodes - {NOWHERE}:
            self.of_nodes[node] = self._number(node)

    def _number_all(self) -> None:
        if self.count > self.most:
            self._numbers.clear()
            self._keys.clear()
            self.epoch += 1
        self._shared = b"".join(seen[at].tobytes() for seen, at in zip(self._seen, self._everywhere, strict=True))
        self.of_nodes = np.array([self._number(node) for node in range(len(self._kinds))], np.int64)

    def _number(self, node: int) -> int:
        content = b"".join([seen[at[node]].tobytes() for seen, at in zip(self._seen, self._cells, strict=True)])
        # The bytes themselves are the key and not a hash of them: two states that collide would share answers, and a
        # wrong answer about devices double-books one.
        return self._number_of((self._kinds[node], content, self._shared))

    def _number_of(self, key: tuple[int, bytes, bytes]) -> int:
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._keys):
            self._keys.append(key)
        return number

    def content(self, state: int) -> tuple[NodeRow, Int64s]:
        """Return a node of the kind that ``state`` is of, and the numbers in its cells, column after column."""
        kind, content, _ = self._keys[state]
        return NodeRow(self._kinds.index(kind)), np.frombuffer(content, np.int64)

    def changed(self, state: int, content: Int64s) -> int:
        """Return the state of a node in ``state`` whose cells come to hold ``content``."""
        kind, _, shared = self._keys[state]
        return self._number_of((kind, content.tobytes(), shared))

    def cells(self, node: NodeRow) -> list[Int64s]:
        """Return the cells of ``node`` in each column, ascending."""
        return [cells[node] for cells in self._cells]


def _cells_of(owners: Int64s, nodes: int) -> list[Int64s]:
    """Return the cells of each node, ascending."""
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(nodes + 1))
    return [order[bounds[node] : bounds[node + 1]] for node in range(nodes)]


class KeptAnswers(Generic[Value]):
    """One answer for each ask and state: a number, or a bool, by node."""

    def __init__(self, states: NodeStates, dtype: type[Value]) -> None:
        """Begin with no answer to keep; answers have the type ``dtype``."""
        self._states = states
        self._dtype = dtype
        self._epoch = states.epoch
        self._known: dict[Hashable, tuple[NDArray[np.bool_], NDArray[Value]]] = {}

    def of(self, ask: Hashable, nodes: NodeRows, answer: Callable[[NodeRows], NDArray[Value]]) -> NDArray[Value]:
        """Return the answers about ``nodes``; ``answer`` is called for nodes in states that are new to ``ask``.

        It gets one node of each of these states. ``ask`` stands for all that an answer depends on beside the state.

        Holds: the result equals ``answer(nodes)``.
        """
        states = self._states
        if self._epoch != states.epoch or len(self._known) > MOST_ASKS:
            self._known.clear()
            self._epoch = states.epoch
        kept = self._known.get(ask)
        # States got numbers since the arrays were made: rows beyond their end would be read.
        if kept is None or len(kept[0]) < states.count:
            kept = self._known[ask] = self._grown(kept)
        answered, answers = kept
        at = states.of_nodes[nodes]
        missing = np.flatnonzero(~answered[at])
        if len(missing):
            # Nodes in the same state are asked about once, through the first of them.
            new, first = np.unique(at[missing], return_index=True)
            answers[new] = answer(nodes[missing[first]])
            answered[new] = True
        return answers[at]

    def _grown(self, kept: tuple[NDArray[np.bool_], NDArray[Value]] | None) -> tuple[NDArray[np.bool_], NDArray[Value]]:
        # Doubling keeps the copying linear, although states are numbered a few at a time.
        room = 2 * self._states.count + 64
        answered, answers = np.zeros(room, np.bool_), np.zeros(room, self._dtype)
        if kept is not None:
            answered[: len(kept[0])], answers[: len(kept[1])] = kept
        return answered, answers


class KeptDetails:
    """One detail of a placement, such as devices, for each ask, node and state."""

    def __init__(self, states: NodeStates) -> None:
        """Begin with no detail."""
        self._states = states
        self._epoch = states.epoch
        self._known: dict[tuple[Hashable, int, int], object] = {}

    def of(self, ask: Hashable, node: NodeRow, make: Callable[[], object]) -> object:
        """Return what ``make`` returns, which may be None; it is called in a state that is new to ``ask``."""
        if self._epoch != self._states.epoch or len(self._known) > self._states.most:
            self._known.clear()
            self._epoch = self._states.epoch
        # The node is part of the key, unlike in `KeptAnswers`: a detail names devices, and these are of one node even
        # where another is in an equal state.
        key = ask, int(node), int(self._states.of_nodes[node])
        # Not `get`: None is an answer ("no detail here"), and it costs the most to find.
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


@attrs.frozen
class Given:
    """What a plugin gives a pod on a node."""

    detail: object | None
    """The detail of the placement, which can be hashed; None: the plugin refuses the node."""
    rating: float = 0.0
    is_sure: bool = True
    """Whether each pod with the ask gets this; otherwise the plugin is asked about each pod that comes to the node."""


Give = Callable[[PodRow, NodeRow, Int64s], Given]
"""Say what a pod like this one gets on a node whose cells hold these numbers, column after column."""
Draw = Callable[[NodeRow, object], Sequence[Effect]]
"""Return the effects of a placement with this detail on a node, on columns of the states alone."""


class KeptTransitions:
    """What states become as pods leave and come, for searches for victims. Shapes: S states, H holdings, A asks.

    Answers are kept like those of `KeptAnswers`: by content, cycle after cycle. A question is asked once.
    """

    def __init__(self, states: NodeStates) -> None:
        """Begin without answers; ``states`` has no cell that all nodes depend on."""
        self._states = states
        self._times_forgotten = 0
        self._forget()

    def _forget(self) -> None:
        self._times_forgotten += 1
        self._epoch = self._states.epoch
        self._asks: dict[Hashable, int] = {}
        self._holdings: dict[object, int] = {}
        self._details: list[object] = []
        self._make_tables(64, 16, 4)

    def _make_tables(self, states: int, holdings: int, asks: int) -> None:
        self._left = np.full((states, holdings), UNKNOWN, np.int64)
        self._taken = np.full((states, asks), UNKNOWN, np.int64)
        self._given = np.zeros((states, asks), np.int64)
        self._ratings = np.zeros((states, asks), np.float64)

    def open(
        self,
        view: SessionView,
        columns: Sequence[Tracked],
        asks: Callable[[], Sequence[tuple[Hashable, PodRow] | None]],
        give: Give,
        draw: Draw,
        recorded: Callable[[PodRow], object],
    ) -> Transitions:
        """Return the extension for one session; ``columns`` are those of the states.

        ``asks`` returns for each shape what its pods ask for and one of them, or None. ``recorded`` is as in
        ``Placement``.
        """
        if self._epoch != self._states.epoch or max(len(self._asks), len(self._holdings)) > MOST_ASKS:
            self._forget()
        session = _Session(columns, give, draw, self._times_forgotten)
        states = view.track(np.zeros(len(view.nodes), np.int64))
        holdings = view.track(np.full(len(view.snapshot.pods), -1, np.int64))
        return Transitions(
            asks=lambda: self._number_asks(session, asks()),
            states=states,
            holdings=holdings,
            read=lambda: self._read(session),
            held=partial(self._held, recorded),
            answer=lambda questions: self._answer(session, questions, states, holdings),
            details=lambda numbers: [self._details[number] for number in numbers.tolist()],
            changes=lambda wanted: self._changes(columns, wanted),
        )

    def _number_asks(self, session: "_Session", asks: Sequence[tuple[Hashable, PodRow] | None]) -> Int64s:
        out = np.full(len(asks), -1, np.int64)
        for shape, asked in enumerate(asks):
            if asked is not None:
                key, pod = asked
                out[shape] = self._asks.setdefault(key, len(self._asks))
                session.pods.setdefault(int(out[shape]), pod)
        session.asks = out
        return out

    def _read(self, session: "_Session") -> Int64s | None:
        # Another session may have been opened since, and have begun with other numbers.
        if session.times_forgotten != self._times_forgotten:
            return None
        self._states.read(session.columns)
        if self._epoch != self._states.epoch:
            # The numbers of states mean other ones now; those of asks and holdings stay.
            self._epoch = self._states.epoch
            self._make_tables(64, self._left.shape[1], self._taken.shape[1])
        wide = max(len(self._asks), len(self._holdings), *self._left.shape[1:], *self._taken.shape[1:])
        return self._states.of_nodes.copy() if self._states.count * wide <= MOST_CELLS else None

    def _held(self, recorded: Callable[[PodRow], object], pods: PodRows, details: Sequence[object]) -> Int64s:
        found = (
            recorded(PodRow(pod)) if detail is None else detail
            for pod, detail in zip(pods.tolist(), details, strict=True)
        )
        return np.array([self._holding_of(each) for each in found], np.int64)

    def _holding_of(self, detail: object) -> int:
        number = self._holdings.setdefault(detail, len(self._holdings))
        if number == len(self._details):
            self._details.append(detail)
        return number

    def _answer(self, session: "_Session", questions: Int64s, states: Tracked, holdings: Tracked) -> TransitionTable:
        self._grow()
        for state, move in dict.fromkeys(map(tuple, questions.tolist())):
            if move >= 0:
                self._left[state, move] = self._after(session, state, self._details[move], -1)
            else:
                self._take(session, state, -1 - move)
        # Answers have led to further states.
        self._grow()
        return TransitionTable(
            ask=session.asks,
            left=self._left,
            taken=self._taken,
            given=self._given,
            ratings=self._ratings,
            cells=np.array([states.offset, holdings.offset], np.int64),
            wanted=np.zeros((MOST_QUESTIONS, 2), np.int64),
            wants=np.zeros(1, np.int64),
        )

    def _take(self, session: "_Session", state: int, ask: int) -> None:
        node, content = self._states.content(state)
        given = session.give(session.pods[ask], node, content)
        self._ratings[state, ask] = given.rating
        if given.detail is None:
            self._taken[state, ask] = REFUSED
            return
        self._given[state, ask] = self._holding_of(given.detail)
        self._taken[state, ask] = self._after(session, state, given.detail, 1) if given.is_sure else UNSURE

    def _after(self, session: "_Session", state: int, detail: object, sign: int) -> int:
        """Return the state once a placement with ``detail`` is added (``sign`` 1) or taken away (-1)."""
        node, content = self._states.content(state)
        content, cells = content.copy(), self._states.cells(node)
        starts = np.cumsum([0, *map(len, cells)])
        for effect in session.draw(node, detail):
            at = next((at for at, column in enumerate(session.columns) if column is effect.column), -1)
            if at < 0 or not len(found := np.flatnonzero(cells[at] == effect.index)):
                return UNSURE
            content[starts[at] + found[0]] += sign * effect.delta
        return self._states.changed(state, content)

    def _grow(self) -> None:
        """Make room in the tables for all numbers; a table that has it stays the same array."""
        self._left = _with_room(self._left, self._states.count, len(self._holdings), UNKNOWN)
        asks = len(self._asks)
        self._taken = _with_room(self._taken, self._states.count, asks, UNKNOWN)
        self._given = _with_room(self._given, self._states.count, asks, 0)
        self._ratings = _with_room(self._ratings, self._states.count, asks, 0.0)

    def _changes(self, columns: Sequence[Tracked], wanted: Int64s) -> list[tuple[Tracked, Int64s, Int64s]]:
        out: list[tuple[Tracked, Int64s, Int64s]] = []
        for node in np.flatnonzero(wanted != self._states.of_nodes).tolist():
            _, content = self._states.content(int(wanted[node]))
            begin = 0
            for column, cells in zip(columns, self._states.cells(NodeRow(node)), strict=True):
                more = content[begin : begin + len(cells)] - column.values.reshape(-1)[cells]
                out.append((column, cells, more))
                begin += len(cells)
        return out


@attrs.define
class _Session:
    """What the answers of one session need."""

    columns: Sequence[Tracked]
    give: Give
    draw: Draw
    times_forgotten: int
    """How often all numbers had been forgotten when the session opened."""
    asks: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64))
    pods: dict[int, PodRow] = attrs.field(factory=dict)
    """A pod with each ask."""


def _with_room(table: NDArray[Value], rows: int, width: int, fill: float) -> NDArray[Value]:
    if table.shape[0] >= rows and table.shape[1] >= width:
        return table
    # Doubling keeps the copying linear.
    height = table.shape[0] if table.shape[0] >= rows else 2 * rows
    wider = np.full((height, table.shape[1] if table.shape[1] >= width else 2 * width), fill, table.dtype)
    wider[: table.shape[0], : table.shape[1]] = table
    return wider


@attrs.frozen(kw_only=True, eq=False)
class RoomRule:
    """How many more pods of one shape domains take, where that depends on the places of certain pods alone.

    Shapes: K shapes, N nodes, D cells of room.
    """

    key: Hashable
    """Equal for shapes with the same room."""
    meant: Bools
    """[K] The shapes of the pods whose places decide."""
    domains: Int64s
    """[N] The cell of room from which each node takes, as in ``Batch``."""
    room: Callable[[PodRows], Int64s | None]
    """int64[D] by cell, from all pods that are ``meant``; None where counting does not do now."""
    refill: int = 0
    """As in ``Batch``."""


def batch_of(view: SessionView, concerns: Bools, rule_of: Callable[[int], RoomRule | None]) -> Batch | None:
    """Return how pods that wait are placed in batches by rules about domains; None if none are.

    ``concerns`` [K] are the shapes that the plugin is asked about, ``rule_of`` gives the rule of one of them, if it has
    one. A rule that other pods which wait have a part in is left out: their placements would change the room.

    Cost: a call of ``rule_of`` for each shape that waits, and one of ``room`` for each rule.
    """
    snapshot = view.snapshot
    waiting = snapshot.pod_shape[snapshot.pod_status == Status.PENDING]
    counts = np.bincount(waiting, minlength=len(snapshot.shapes))
    shapes = np.flatnonzero((counts > 0) & concerns)
    found: dict[Hashable, tuple[RoomRule, list[int]]] = {}
    # The most frequent first, as the number of asks has a bound.
    for shape in shapes[np.argsort(-counts[shapes], kind="stable")].tolist():
        rule = rule_of(shape)
        if rule is not None:
            found.setdefault(rule.key, (rule, []))[1].append(shape)
    ask = np.full(len(snapshot.shapes), -1, np.int64)
    counted: list[_Counted] = []
    cells = 0
    for rule, own in found.values():
        others = rule.meant & (counts > 0)
        others[own] = False
        if others.any() or len(counted) == MOST_ASKS:
            continue
        pods = view.pods_of_shapes(rule.meant)
        row = rule.room(pods)
        if row is None or max(cells, len(row)) * (len(counted) + 1) > MOST_CELLS:
            continue
        cells = max(cells, len(row))
        ask[own] = len(counted)
        counted.append(_Counted(rule, pods, row))
    return _Rooms(view, counted).batch(ask) if counted else None


@attrs.frozen
class _Counted:
    """A rule, the pods that it means, and the room when it was counted first."""

    rule: RoomRule
    pods: PodRows
    row: Int64s


class _Rooms:
    """The room for the asks of one session, counted again where a pod that a rule means came or went."""

    def __init__(self, view: SessionView, counted: Sequence[_Counted]) -> None:
        self._view = view
        self._rules = [each.rule for each in counted]
        self._pods = [each.pods for each in counted]
        self._all = np.concatenate(self._pods)
        self._owners = np.repeat(np.arange(len(counted)), [len(each.pods) for each in counted])
        """The ask of each row of `_all`."""
        self._seen = self._places()
        # Cells that a rule does not have are no domain's.
        shape = len(counted), max(len(each.row) for each in counted)
        self._counted = np.full(shape, -UNBOUNDED, np.int64)
        for at, each in enumerate(counted):
            self._counted[at, : len(each.row)] = each.row

    def batch(self, ask: Int64s) -> Batch:
        """Return the extension for shapes with these asks [K]."""
        domains = np.stack([rule.domains for rule in self._rules])
        is_own = self._counted.shape == domains.shape and bool((domains == self._view.nodes).all())
        return Batch(
            ask=ask,
            room=self._view.track(self._counted),
            count=self.count,
            domains=None if is_own else domains,
            refill=np.array([rule.refill for rule in self._rules], np.int64),
            independent=True,
        )

    def count(self) -> Int64s | None:
        """Return int64[A, D]: the room now; None where a rule cannot say. Cost: one look at the places of all pods."""
        now = self._places()
        changed = np.flatnonzero((now != self._seen).any(axis=0))
        if not len(changed):
            return self._counted
        counted = self._counted.copy()
        for ask in np.unique(self._owners[changed]).tolist():
            row = self._rules[ask].room(self._pods[ask])
            if row is None:
                return None
            counted[ask, : len(row)] = row
        self._seen, self._counted = now, counted
        return counted

    def _places(self) -> Int64s:
        columns = self._view.columns
        return np.stack([columns.status[self._all], columns.node[self._all]])
