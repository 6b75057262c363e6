"""A statement: changes that belong together. They are committed as one, or they never happened.

The only writer of the ledger. Leaving the ``with`` block without a commit undoes everything, by subtraction.

    with session.statement("allocate") as statement:
        if place_group(...):
            statement.commit()
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from kai.framework.decisions import Cause, Decision, Evict, Nominate
from kai.framework.verdict import Fact
from kai.kernels import place
from kai.kernels.columns import ALLOCATED, OP_ALLOCATE, OP_EVICT, OP_PIPELINE
from kai.model.rows import Float64s, NodeRow, NodeRows, PodRow, PodRows
from kai.model.status import Status

if TYPE_CHECKING:
    from kai.framework.policy import Named
    from kai.framework.session import Session


class Statement:
    """Allocations, promises and evictions that are final only together."""

    def __init__(
        self, session: "Session", action: str, cause: Cause | None = None, aggressor: int = -1, rule: str = ""
    ) -> None:
        """Begin with nothing done; ``cause``, ``aggressor`` and ``rule`` explain the evictions that may follow."""
        self._session = session
        self._ledger = session.ledger
        self.action = action
        self.cause = cause
        self.aggressor = aggressor
        self.rule = rule
        self.facts: Mapping[int, Mapping[str, Fact]] = {}
        """What the messages about evictions are made of, by pod."""
        self._begin = session.ledger.mark

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo whatever was not committed."""
        self.discard()

    def discard(self) -> None:
        """Undo everything that was not committed."""
        self._ledger.undo_to(self._begin)

    # ------------------------------------------------------------------ marks

    def mark(self) -> int:
        """Return a point to roll back to."""
        return self._ledger.mark

    def roll_back(self, mark: int) -> None:
        """Undo everything after ``mark``."""
        self._ledger.undo_to(mark)

    # ------------------------------------------------------------------ verbs

    def evict(self, pods: PodRows) -> None:
        """Release what ``pods`` hold."""
        session = self._session
        for pod in map(int, pods):
            if session.policy.dynamic[session.facts.pods.shape[pod]]:
                self._apply(pod, -1, lasting=False)
            self._ledger.evict(pod)

    def place_pods(self, pods: PodRows, nodes: NodeRows, extra: Float64s, *, promise: bool) -> int:
        """Place ``pods`` one after the other until one finds no node among ``nodes`` (ascending).

        Return how many were placed.

        ``extra`` [N] is added to the nodes' scores. ``promise``: place on what is being released even where something
        is idle.
        """
        session = self._session
        session.policy.prepare_all(pods, session.all_nodes)
        if session.policy.dynamic[session.facts.pods.shape[pods]].any():
            return self._place_asking(pods, nodes, extra, promise=promise)
        self._ledger.reserve(2 * len(pods))
        return place.place_pods(
            session.facts,
            session.columns,
            self._ledger.places,
            session.policy.rules,
            session.policy.vectors,
            pods,
            nodes,
            extra,
            promise,
        )

    def _place_asking(self, pods: PodRows, nodes: NodeRows, extra: Float64s, *, promise: bool) -> int:
        """Place pods that plugins must be asked about: one by one."""
        session = self._session
        # In parts of the cluster, and where topology rates nodes, the sums are made the long way.
        everywhere = nodes is session.all_nodes and extra is session.no_extra
        shapes = session.facts.pods.shape[pods].tolist()
        self._ledger.reserve(2 * len(shapes))
        for at, (pod, shape) in enumerate(zip(pods.tolist(), shapes, strict=True)):
            if everywhere and session.policy.scored[shape]:
                placed = self._place_scored(pod, shape, promise=promise)
            else:
                placed = self._place_one(pod, nodes, extra, promise=promise)
            if not placed:
                return at
        return len(pods)

    def _place_scored(self, pod: int, shape: int, *, promise: bool) -> bool:
        """Place a pod for which one plugin filters and rates nodes and no more is asked: in one call, on any node."""
        session = self._session
        answers = session.answers(pod, shape)
        if shape not in session.term_scores:
            session.term_scores[shape] = np.empty(len(session.all_nodes), np.float64), np.full(3, -1, np.int64)
        return place.place_rated(
            session.facts,
            session.columns,
            self._ledger.places,
            session.policy.rules,
            session.policy.vectors,
            pod,
            session.all_nodes,
            session.no_extra,
            answers,
            promise,
            *session.term_scores[shape],
        )

    def _place_one(self, pod: int, nodes: NodeRows, extra: Float64s, *, promise: bool) -> bool:
        session = self._session
        shape = int(session.facts.pods.shape[pod])
        if session.policy.dynamic[shape] and not session.policy.admit_pod(PodRow(pod), shape):
            return False
        scores = session.node_scores(pod, nodes, extra)
        group = int(session.facts.pods.group[pod])
        while True:
            at = place.best_node(
                session.facts,
                session.columns,
                session.policy.rules,
                session.policy.vectors,
                shape,
                group,
                nodes,
                scores,
            )
            if at < 0:
                return False
            if self._put(pod, int(nodes[at]), promise=promise):
                return True
            scores[at] = np.nan

    def _put(self, pod: int, node: int, *, promise: bool) -> bool:
        session = self._session
        self._ledger.reserve(2)
        details: dict[str, object] = {}
        for plugin in session.policy.asking(int(session.facts.pods.shape[pod])):
            if plugin.hooks.choose is not None:
                detail = plugin.hooks.choose(PodRow(pod), NodeRow(node))
                if detail is None:
                    return False
                details[plugin.hooks.detail or plugin.name] = detail
        was_evicted = bool(session.columns.evicted_status[pod])
        # A victim keeps its place only if its devices and zones stay the same; else it is moved, be it on its own node.
        moved = was_evicted and details != session.details.of_eviction(pod)
        keep = promise and not moved
        promise = promise or bool(session.policy.must_wait(PodRow(pod), np.array([node], np.int64))[0])
        if not self._put_on_devices(pod, node, promise=promise, keep=keep):
            return False
        if was_evicted and not session.columns.evicted_status[pod]:
            self._apply(pod, 1, lasting=False)
            return True
        if details:
            session.details.attach(pod, details)
        self._apply(pod, 1, lasting=False)
        self._apply(pod, 1, lasting=True)
        return True

    def _put_on_devices(self, pod: int, node: int, *, promise: bool, keep: bool) -> bool:
        session = self._session
        if promise and not keep:
            return place.put_anew(session.facts, session.columns, self._ledger.places, session.policy.rules, pod, node)
        return place.put(session.facts, session.columns, self._ledger.places, session.policy.rules, pod, node, promise)

    def _apply(self, pod: int, sign: int, *, lasting: bool) -> None:
        """Add (or take away) what the placement of ``pod`` does to plugins' columns."""
        session = self._session
        node = int(session.columns.node[pod])
        if node < 0:
            return
        for plugin in session.policy.asking(int(session.facts.pods.shape[pod])):
            hook = plugin.hooks.lasting_effects if lasting else plugin.hooks.effects
            if hook is None:
                continue
            for effect in hook(PodRow(pod), NodeRow(node), session.details.of(pod).get(_kind(plugin))):
                self._ledger.add(effect.column, effect.index, sign * effect.delta)

    def promise_all(self, group: int) -> None:
        """Turn every allocation of ``group`` in this statement into a promise: a gang waits together."""
        session = self._session
        for kind, pod in self._ledger.operations():
            if (
                kind != OP_ALLOCATE
                or session.facts.pods.group[pod] != group
                or session.columns.status[pod] != Status.ALLOCATED
            ):
                continue
            node, placement = int(session.columns.node[pod]), int(session.columns.placement[pod])
            asks = bool(session.policy.dynamic[session.facts.pods.shape[pod]])
            if asks:
                # What a placement changes may depend on whether it is a promise.
                self._apply(int(pod), -1, lasting=False)
                self._apply(int(pod), -1, lasting=True)
            self._ledger.unallocate(int(pod))
            self._ledger.pipeline(int(pod), node, placement, keep=False)
            if asks:
                self._apply(int(pod), 1, lasting=False)
                self._apply(int(pod), 1, lasting=True)

    # ------------------------------------------------------------------ the end

    def commit(self) -> tuple[Decision, ...]:
        """Make everything final, hand the decisions out and return them."""
        session = self._session
        decisions = tuple(self._decisions())
        for decision in decisions:
            if isinstance(decision, Evict) and session.facts.pods.group[decision.pod] >= 0:
                session.last_eviction[session.facts.pods.group[decision.pod]] = session.clock.read()
        self._ledger.settle()
        self._ledger.seal()
        self._begin = self._ledger.mark
        if decisions:
            session.stamp += 1
            session.emit(self.action, decisions)
        return decisions

    def _decisions(self) -> Sequence[Decision]:
        session = self._session
        columns = session.columns
        operations = self._ledger.operations()
        pods = operations[:, 1]
        statuses = columns.status[pods]
        bound = (operations[:, 0] == OP_ALLOCATE) & (statuses == ALLOCATED)
        if bound.all():
            return session.grants.bindings(pods)
        bindings = iter(session.grants.bindings(pods[bound]) if bound.any() else ())
        out: list[Decision] = []
        evicted: set[int] = set()
        for kind, pod, status in zip(*operations.T.tolist(), statuses.tolist(), strict=True):
            if kind == OP_EVICT and columns.evicted_status[pod] and pod not in evicted:
                evicted.add(pod)
                if columns.evicted_status[pod] == 1 + Status.PIPELINED:
                    continue  # it has no place but a promise: nothing is there to be deleted, or it is already
                out.append(self._eviction(pod, status))
            elif kind == OP_PIPELINE and status == Status.PIPELINED and columns.virtual[pod]:
                out.append(
                    Nominate(pod=pod, node=int(columns.node[pod]), devices=session.devices_of(pod), action=self.action)
                )
            elif kind == OP_ALLOCATE and status == Status.ALLOCATED:
                out.append(next(bindings))
        return out

    def _eviction(self, pod: int, status: int) -> Evict:
        session = self._session
        group = int(session.facts.pods.group[pod])
        return Evict(
            pod=pod,
            cause=self.cause or Cause.STALE,
            aggressor=self.aggressor,
            rule=self.rule,
            facts=self.facts.get(pod, {}),
            gang_size=session.gang_size(group),
            moved_to=int(session.columns.node[pod]) if status == Status.PIPELINED else -1,
        )


def _kind(plugin: "Named") -> str:
    return plugin.hooks.detail or plugin.name
