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

``batch_of`` is for a plugin whose answer depends on where certain pods are, such as those of one app: it counts the
room of domains for pods that wait, and counts again where such a pod came or went.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from kai.facts.model.axis import Bools, Int64s, NodeRow, NodeRows, PodRows
from kai.facts.model.pod import Status
from kai.facts.state.ledger import Tracked
from kai.framework.hooks import Batch
from kai.framework.view import SessionView

__all__ = ["EVERYWHERE", "NOWHERE", "UNBOUNDED", "KeptAnswers", "KeptDetails", "NodeStates", "RoomRule", "batch_of"]

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
"""The most cells of room that are counted; pods with further asks are asked about one by one."""


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
            self.epoch += 1
        self._shared = b"".join(seen[at].tobytes() for seen, at in zip(self._seen, self._everywhere, strict=True))
        self.of_nodes = np.array([self._number(node) for node in range(len(self._kinds))], np.int64)

    def _number(self, node: int) -> int:
        content = b"".join([seen[at[node]].tobytes() for seen, at in zip(self._seen, self._cells, strict=True)])
        # The bytes themselves are the key and not a hash of them: two states that collide would share answers, and a
        # wrong answer about devices double-books one.
        return self._numbers.setdefault((self._kinds[node], content, self._shared), len(self._numbers))


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
