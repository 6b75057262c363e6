"""A statement: changes that take effect together or not at all.

The statement is the only writer of the ledger. Leaving the ``with`` block without a commit undoes all changes, by
subtraction.

    with session.statement("allocate") as statement:
        if place_group(...):
            statement.commit()
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from kai.deciding.engine.bindings import Bindings, Details
from kai.deciding.engine.eviction_caps import held_gpus
from kai.deciding.engine.portion import Portions
from kai.deciding.engine.world import World
from kai.facts.kernels import place
from kai.facts.kernels.columns import ALLOCATED, OP_ALLOCATE, OP_EVICT, OP_PIPELINE
from kai.facts.model.axis import Float64s, NodeRow, NodeRows, PodRow, PodRows
from kai.facts.model.pod import Status
from kai.framework.decisions import Cause, Decision, Evict, Nominate

if TYPE_CHECKING:
    from kai.framework.verdict import Fact


class Outlet(Protocol):
    """Where a committed statement hands its decisions out, and what turns them into binds and details."""

    details: Details
    bindings: Bindings
    portions: Portions

    def committed(self, action: str, decisions: tuple[Decision, ...], /) -> None:
        """Take the decisions of one statement."""


class Statement:
    """Allocations, nominations and evictions that become final together."""

    def __init__(
        self,
        world: World,
        outlet: Outlet,
        action: str,
        cause: Cause | None = None,
        aggressor: int = -1,
        rule: str = "",
    ) -> None:
        """Begin without changes; ``cause``, ``aggressor`` and ``rule`` explain the evictions that may follow.

        Without a ``cause`` the ``action`` is the cause; without a ``rule`` the rule of the cause applies.
        """
        self._world = world
        self._outlet = outlet
        self._ledger = world.ledger
        self.action = action
        self.cause = cause or Cause(action)
        self.aggressor = aggressor
        self.rule = rule or self.cause.rule
        self.facts: Mapping[int, Mapping[str, Fact]] = {}
        """The facts that messages about evictions are made from, by pod."""
        self.may_wait = True
        """Whether pods may go to nodes on which a plugin makes them wait (`NodeWait`)."""
        self.has_waited = False
        """Whether a pod went to a node on which a plugin makes it wait."""
        self._begin = world.ledger.mark

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo what was not committed."""
        self.discard()

    def discard(self) -> None:
        """Undo what was not committed."""
        self.roll_back(self._begin)

    # ------------------------------------------------------------------ marks

    def mark(self) -> int:
        """Return a point to roll back to."""
        return self._ledger.mark

    def roll_back(self, mark: int) -> None:
        """Undo all changes after ``mark``."""
        # The ledger first: details of undone placements are recognized by the count of placements, which it sets back.
        self._ledger.undo_to(mark)
        self._outlet.details.forget_undone()

    # ------------------------------------------------------------------ verbs

    def evict(self, pods: PodRows) -> None:
        """Release what ``pods`` hold."""
        world = self._world
        # Take effects back first: they may depend on the status and place that the eviction changes.
        for pod in map(int, pods):
            if world.policy.dynamic[world.facts.pods.shape[pod]]:
                self._apply(pod, -1, lasting=False)
            self._ledger.evict(pod)

    def place_pods(self, pods: PodRows, nodes: NodeRows, extra: Float64s, *, promise: bool) -> int:
        """Place ``pods`` one after the other on ``nodes`` (ascending) until one of them finds no node.

        Return the number of pods placed.

        ``extra`` [N] is added to the nodes' scores. With ``promise``, pods go on resources that are being released even
        where idle ones exist.
        """
        world = self._world
        world.policy.prepare_all(pods, world.all_nodes)
        if world.policy.dynamic[world.facts.pods.shape[pods]].any():
            return self._place_asking(pods, nodes, extra, promise=promise)
        self._ledger.reserve(2 * len(pods))
        return place.place_pods(
            world.facts,
            world.columns,
            self._ledger.offsets,
            world.policy.rules,
            world.policy.vectors,
            pods,
            nodes,
            extra,
            promise,
        )

    def _place_asking(self, pods: PodRows, nodes: NodeRows, extra: Float64s, *, promise: bool) -> int:
        """Place pods one by one, because plugins must be asked about each."""
        world = self._world
        # The compiled sums cover all nodes without extra scores; other cases are summed in Python.
        everywhere = nodes is world.all_nodes and extra is world.no_extra
        shapes = world.facts.pods.shape[pods].tolist()
        self._ledger.reserve(2 * len(shapes))
        for at, (pod, shape) in enumerate(zip(pods.tolist(), shapes, strict=True)):
            if everywhere and world.policy.scored[shape]:
                placed = self._place_scored(pod, shape, promise=promise)
            else:
                placed = self._place_one(pod, nodes, extra, promise=promise)
            if not placed:
                return at
        return len(pods)

    def _place_scored(self, pod: int, shape: int, *, promise: bool) -> bool:
        """Place a pod on any node in one kernel call: one plugin filters and rates nodes, and no other is asked."""
        world = self._world
        answers = world.answers(pod, shape)
        if shape not in world.term_scores:
            world.term_scores[shape] = np.empty(len(world.all_nodes), np.float64), np.full(3, -1, np.int64)
        return place.place_rated(
            world.facts,
            world.columns,
            self._ledger.offsets,
            world.policy.rules,
            world.policy.vectors,
            pod,
            world.all_nodes,
            world.no_extra,
            answers,
            promise,
            *world.term_scores[shape],
        )

    def _place_one(self, pod: int, nodes: NodeRows, extra: Float64s, *, promise: bool) -> bool:
        world = self._world
        shape = int(world.facts.pods.shape[pod])
        if world.policy.dynamic[shape] and not world.policy.admit_pod(PodRow(pod), shape):
            return False
        scores, waits = world.node_scores(pod, nodes, extra)
        if not self.may_wait:
            scores[waits] = np.nan
        group = int(world.facts.pods.group[pod])
        while True:
            at = place.best_node(
                world.facts,
                world.columns,
                world.policy.rules,
                world.policy.vectors,
                shape,
                group,
                nodes,
                scores,
            )
            if at < 0:
                return False
            if self._put(pod, int(nodes[at]), promise=promise, waits=bool(waits[at])):
                return True
            # A plugin or the devices refused the best node: exclude it and take the next.
            scores[at] = np.nan

    def _put(self, pod: int, node: int, *, promise: bool, waits: bool) -> bool:
        """Put a pod on a node; ``waits``: a plugin makes it wait there."""
        world = self._world
        self._ledger.reserve(2)
        details: dict[str, object] = {}
        for plugin in world.policy.asking(int(world.facts.pods.shape[pod])):
            if plugin.placement is not None and plugin.placement.choose is not None:
                detail = plugin.placement.choose(PodRow(pod), NodeRow(node))
                if detail is None:
                    return False
                details[plugin.kind] = detail
        was_evicted = bool(world.columns.evicted_status[pod])
        # A victim keeps its place only if the plugins' details are the same; else it moves, even if to its own node.
        moved = was_evicted and details != self._outlet.details.of_eviction(pod)
        keep = promise and not moved
        if waits and not promise:
            promise = self.has_waited = True
        if not self._put_on_devices(pod, node, promise=promise, keep=keep):
            return False
        # The victim is back in its old place: the eviction is undone, and details and lasting effects were never taken
        # off.
        if was_evicted and not world.columns.evicted_status[pod]:
            self._apply(pod, 1, lasting=False)
            return True
        # Before the effects are applied: each plugin gets its own detail of this very placement.
        if details:
            self._outlet.details.attach(pod, details)
        self._apply(pod, 1, lasting=False)
        self._apply(pod, 1, lasting=True)
        return True

    def _put_on_devices(self, pod: int, node: int, *, promise: bool, keep: bool) -> bool:
        world = self._world
        if promise and not keep:
            return place.put_anew(world.facts, world.columns, self._ledger.offsets, world.policy.rules, pod, node)
        return place.put(world.facts, world.columns, self._ledger.offsets, world.policy.rules, pod, node, promise)

    def _apply(self, pod: int, sign: int, *, lasting: bool) -> None:
        """Add (``sign`` 1) or subtract (-1) the effects of the placement of ``pod`` on plugins' columns."""
        world = self._world
        node = int(world.columns.node[pod])
        if node < 0:
            return
        for plugin in world.policy.asking(int(world.facts.pods.shape[pod])):
            if plugin.placement is None:
                continue
            hook = plugin.placement.lasting_effects if lasting else plugin.placement.effects
            if hook is None:
                continue
            effects = hook(PodRow(pod), NodeRow(node), self._outlet.details.of(pod).get(plugin.kind))
            self._ledger.add_all([(each.column, each.index, sign * each.delta) for each in effects])

    def promise_all(self, group: int) -> None:
        """Turn every allocation of ``group`` in this statement into a nomination: a gang starts or waits together."""
        world = self._world
        for kind, pod in self._ledger.operations():
            if (
                kind != OP_ALLOCATE
                or world.facts.pods.group[pod] != group
                or world.columns.status[pod] != Status.ALLOCATED
            ):
                continue
            node, placement = int(world.columns.node[pod]), int(world.columns.placement[pod])
            asks = bool(world.policy.dynamic[world.facts.pods.shape[pod]])
            if asks:
                # Effects may depend on whether a placement is a promise: subtract the old, add the new.
                self._apply(int(pod), -1, lasting=False)
                self._apply(int(pod), -1, lasting=True)
            self._ledger.unallocate(int(pod))
            self._ledger.pipeline(int(pod), node, placement, keep=False)
            if asks:
                self._apply(int(pod), 1, lasting=False)
                self._apply(int(pod), 1, lasting=True)

    # ------------------------------------------------------------------ the end

    def commit(self) -> tuple[Decision, ...]:
        """Make the changes final, hand the decisions out and return them."""
        world = self._world
        decisions = tuple(self._decisions())
        for decision in decisions:
            if isinstance(decision, Evict) and world.facts.pods.group[decision.pod] >= 0:
                world.note_time("last_eviction", int(world.facts.pods.group[decision.pod]), world.clock.read())
        self._ledger.settle()
        self._ledger.seal()
        # The end of the block undoes only what comes after this.
        self._begin = self._ledger.mark
        if decisions:
            self._outlet.committed(self.action, decisions)
        return decisions

    def _decisions(self) -> Sequence[Decision]:
        world = self._world
        columns = world.columns
        operations = self._ledger.operations()
        pods = operations[:, 1]
        statuses = columns.status[pods]
        bindings: Iterator[Decision] = iter(())
        bound = operations[:, 0] == OP_ALLOCATE
        if np.count_nonzero(bound):
            bound &= statuses == ALLOCATED
            if bound.all():
                return self._outlet.bindings.of(pods)
            # Binds are made in bulk, and taken below in the order in which the operations were made.
            bindings = iter(self._outlet.bindings.of(pods[bound]) if bound.any() else ())
        out: list[Decision] = []
        evicted: set[int] = set()
        for (kind, pod), status in zip(operations.tolist(), statuses.tolist(), strict=True):
            # The log may evict a pod twice: a search puts victims back and takes some again.
            if kind == OP_EVICT and columns.evicted_status[pod] and pod not in evicted:
                evicted.add(pod)
                if columns.evicted_status[pod] == 1 + Status.PIPELINED:
                    continue  # the pod has no place, only a nomination: there is nothing to delete
                out.append(self._eviction(pod, status))
            # Not `virtual`: the pod is back at the promise that it had before this statement, which is out already.
            elif kind == OP_PIPELINE and status == Status.PIPELINED and columns.virtual[pod]:
                out.append(
                    Nominate(
                        pod=pod,
                        node=int(columns.node[pod]),
                        devices=self._outlet.bindings.names_of(pod),
                        action=self.action,
                    )
                )
            elif kind == OP_ALLOCATE and status == Status.ALLOCATED:
                out.append(next(bindings))
        return out

    def _eviction(self, pod: int, status: int) -> Evict:
        world = self._world
        group = int(world.facts.pods.group[pod])
        return Evict(
            pod=pod,
            cause=self.cause,
            aggressor=self.aggressor,
            rule=self.rule,
            facts=self.facts.get(pod, {}),
            gang_size=self._outlet.portions.gang_size(group),
            moved_to=int(world.columns.node[pod]) if status == Status.PIPELINED else -1,
            gpus=held_gpus(world, pod),
        )
