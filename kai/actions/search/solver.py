"""The search for victims: how few must go so that a group can run?

    for each generator:
        k = 1, 2, 4 ... then bisection: the largest part of the chunk that can be helped;
        the victims of one step are known to the next
        then the whole chunk, with what is known
    each step: outer scenarios grow -> generator proposes -> evict and place everybody affected again
               -> plugins accept or not

A simulation is an open statement: evict, then place the aggressor and all victims in queue order, promises only. What
nobody accepts is undone. On success the statement is committed, so a victim is never evicted unless its aggressor has
a place in the very same commit.

One engine for three causes: reclaim, preempt and consolidate differ in who may be a victim, who accepts, and what is
said about it.

Source: the peer's actions/common/solvers (job solver, by-pod solver).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import attrs
import numpy as np

from kai.actions.placing import place_group
from kai.actions.search.outer import outer_scenarios
from kai.framework.budget import Grant
from kai.framework.decisions import Cause
from kai.framework.heaps import GroupHeap
from kai.framework.hooks import Propose
from kai.framework.portion import Portion
from kai.framework.scenario import Batch, Scenario
from kai.framework.session import Session
from kai.framework.statement import Statement
from kai.framework.verdict import Fact
from kai.kernels.groups import find_waiting
from kai.kernels.victims import free_gpus
from kai.model.pod import GpuKind
from kai.model.rows import Float64s, GroupRow, Int64s, NodeRows
from kai.model.status import ACTIVE_ALLOCATED, Status

Explain = Callable[[Session, int, Float64s], Mapping[str, Fact]]
"""The numbers of a queue, given what it held before anything was evicted."""


_SHARING = (GpuKind.FRACTION, GpuKind.MEMORY)
_LOST = 1 << Status.RELEASING | 1 << Status.PIPELINED


class Outcome(Enum):
    """How a search ended."""

    PLACED = "placed"
    FAILED = "failed"
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class Found:
    """A simulation that was accepted.

    The statement, still open, and the batches that really lose something, evicted ones first.
    """

    statement: Statement
    batches: tuple[Batch, ...]


class StopSearchError(Exception):
    """The budget ends the search."""


class Search:
    """The search on behalf of one group."""

    def __init__(
        self,
        session: Session,
        aggressor: Portion,
        cause: Cause,
        victims: Callable[[], GroupHeap],
        rule: str,
        explain: Explain | None,
    ) -> None:
        """Prepare; ``victims`` makes a full victim heap, ``rule`` and ``explain`` say why and with which numbers."""
        self._session = session
        self._aggressor = aggressor
        self._cause = cause
        self._victims = victims
        self._rule = rule
        self._explain = explain
        self._failed: set[object] = set()
        idle = np.zeros(len(session.all_nodes), np.int64)
        releasing = np.zeros(len(session.all_nodes), np.int64)
        free_gpus(session.facts, session.columns, idle, releasing)
        self._free: Int64s = idle + releasing
        self._feasible = self._feasible_nodes(idle, releasing)
        self._is_exact = self._books_all_it_asks_for()
        self.tried = 0

    def run(self) -> Outcome:
        """Search, commit what was found, and say how it ended."""
        session = self._session
        chunk = self._aggressor.chunk()
        if not len(chunk):
            return Outcome.FAILED
        if session.budget.begin_group() is Grant.STOP:
            return Outcome.STOPPED
        self._used = session.columns.queue_used.copy()
        for plugin in session.policy.plugins:
            if plugin.hooks.before_search is not None:
                plugin.hooks.before_search(GroupRow(self._aggressor.group), self._cause)
        occupied = self._occupied()
        try:
            for plugin in session.policy.plugins:
                if plugin.hooks.propose is None:
                    continue
                session.budget.begin_generator(plugin.hooks.proposer or plugin.name)
                found = self._with_generator(plugin.hooks.propose, chunk)
                if found is None:
                    continue
                if self._aggressor.is_gang_satisfied() and self._occupied() > occupied:
                    found.statement.facts = self._facts_of(found)
                    found.statement.commit()
                    return Outcome.PLACED
                found.statement.discard()
        except StopSearchError:
            return Outcome.STOPPED
        return Outcome.FAILED

    def _facts_of(self, found: Found) -> dict[int, Mapping[str, Fact]]:
        """Return, for each victim, the numbers of its queue and of the aggressor's where their paths part."""
        session = self._session
        if self._explain is None:
            return {}
        parents = session.facts.queues.parent
        out: dict[int, Mapping[str, Fact]] = {}
        for pod in (pod for batch in found.batches for pod in batch):
            pair = (
                session.facts.groups.queue[session.facts.pods.group[pod]],
                session.facts.groups.queue[self._aggressor.group],
            )
            victim, mine = map(int, pair)
            if parents[victim] != parents[mine]:
                victim, mine = (int(parents[row]) if parents[row] >= 0 else row for row in (victim, mine))
            out[pod] = {
                "victim": self._explain(session, victim, self._used[victim]),
                "aggressor": self._explain(session, mine, self._used[mine]),
            }
        return out

    def _occupied(self) -> int:
        return sum(self._aggressor.occupying(leaf) for leaf in self._aggressor.leaves)

    def _with_generator(self, propose: Propose, chunk: Int64s) -> Found | None:
        """Find the largest part of the chunk that can be helped, then help the whole."""
        recorded: tuple[Batch, ...] = ()

        def helps(count: int) -> bool:
            nonlocal recorded
            found = self._probe(propose, chunk[:count], recorded)
            if found is None:
                return False
            recorded = found.batches
            found.statement.discard()
            return True

        solved, unsolved, count = 0, None, 1
        while helps(count):
            solved = count
            if count == len(chunk):
                break
            count = min(2 * count, len(chunk))
        else:
            unsolved = count
        while unsolved is not None and unsolved - solved > 1:
            middle = (solved + unsolved) // 2
            if helps(middle):
                solved = middle
            else:
                unsolved = middle
        return self._probe(propose, chunk, recorded) if solved else None

    def _probe(self, propose: Propose, pods: Int64s, recorded: Sequence[Batch]) -> Found | None:
        """Try scenarios until one places the part of the aggressor that has ``pods`` besides those with a place."""
        part = self._aggressor.part(np.concatenate([self._aggressor.holding(ACTIVE_ALLOCATED), pods]), shrink=True)
        outers = outer_scenarios(self._session, part, recorded, self._victims(), self._free, self._feasible)
        for scenario in propose(outers):
            if not scenario.batches or scenario.fingerprint() in self._failed:
                continue
            match self._session.budget.grant():
                case Grant.STOP:
                    raise StopSearchError
                case Grant.NEXT_GENERATOR:
                    return None
                case Grant.GO:
                    pass
            found = self._simulate(scenario, part)
            if found is not None:
                return found
            self._failed.add(scenario.fingerprint())
        return None

    def _simulate(self, scenario: Scenario, part: Portion) -> Found | None:
        """Evict the scenario's victims, place everybody who is affected again, and let plugins judge.

        On refusal nothing has happened.
        """
        session = self._session
        self.tried += 1
        victims = scenario.victims()
        statement = session.statement(self._cause.value, self._cause, self._aggressor.group, self._rule)
        nodes = session.columns.node[victims]
        reachable = np.union1d(self._feasible, nodes[nodes >= 0])
        statement.evict(victims)
        if self._place_again(statement, part, victims, reachable) and self._accepted(scenario):
            found = Found(statement=statement, batches=self._losing(scenario, victims))
            if self._is_exact or self._can_be_repeated(statement, part, victims, reachable):
                return found
        statement.discard()
        return None

    def _place_again(self, statement: Statement, part: Portion, victims: Int64s, nodes: NodeRows) -> bool:
        """Promise places to the aggressor and then to whoever comes next by queue order.

        Say whether the aggressor got its own.
        """
        session = self._session
        affected = np.zeros(len(session.snapshot.groups), np.bool_)
        affected[session.facts.pods.group[victims]] = True
        affected[part.group] = False
        waiting = np.zeros_like(affected)
        find_waiting(session.facts, session.columns, waiting)
        others = waiting | affected
        others[part.group] = False
        affected[part.group] = True
        heap = GroupHeap(session)
        heap.fill(session.oldest_first(np.flatnonzero(others).astype(np.int64)))
        heap.push(part)
        placed = False
        remaining = int(affected.sum())
        while remaining and (portion := heap.pop_among(affected)) is not None:
            remaining -= 1
            mark = statement.mark()
            if place_group(session, statement, portion, nodes, promise=True):
                placed = placed or portion is part
            elif portion is part:
                return False
            else:
                statement.roll_back(mark)
                # What it would be given next is worked out now, as the peer does, and kept when the search is
                # committed; what that chunk wants is not.
                portion.chunk()
        return placed

    def _can_be_repeated(self, statement: Statement, part: Portion, victims: Int64s, nodes: NodeRows) -> bool:
        """Say whether the aggressor, with just those gone who lose their places, finds its own again.

        What it asks for may be more than what is booked: a place for a reservation pod, room in a domain by a rule of
        thumb. Where that went to a victim that was placed again, the next cycle would refuse the aggressor, the evicted
        pods would come back, and be evicted again. Afterwards everything is as the simulation left it.
        """
        losing = victims[(_LOST >> self._session.columns.status[victims]) & 1 == 1]
        statement.discard()
        statement.evict(losing)
        repeated = place_group(self._session, statement, part, self._session.all_nodes, promise=True)
        statement.discard()
        statement.evict(victims)
        return self._place_again(statement, part, victims, nodes) and repeated

    def _accepted(self, scenario: Scenario) -> bool:
        hooks = [plugin.hooks.accept for plugin in self._session.policy.plugins]
        if self._cause is Cause.CONSOLIDATE:
            return not (self._session.columns.status[scenario.victims()] == Status.RELEASING).any()
        return all(bool(accept(scenario, self._cause)) for accept in hooks if accept is not None)

    def _losing(self, scenario: Scenario, victims: Int64s) -> tuple[Batch, ...]:
        """Return the batches with an evicted or moved pod, whole, in victim order: those with evicted pods first."""
        batch_of: dict[int, Batch] = {}
        for batch in scenario.batches:
            for pod in batch:
                batch_of.setdefault(pod, batch)
        status = self._session.columns.status
        losing = [
            pod for wanted in (Status.RELEASING, Status.PIPELINED) for pod in map(int, victims) if status[pod] == wanted
        ]
        # Batches are compared by identity: two of the same pods stay two.
        return tuple({id(batch_of[pod]): batch_of[pod] for pod in losing}.values())

    def _books_all_it_asks_for(self) -> bool:
        """Say whether the group fits wherever there is as much as its pods will take, no more being asked for."""
        session, group = self._session, self._aggressor.group
        shapes = np.unique(session.facts.pods.shape[self._aggressor.pods()])
        sharing = np.isin(session.facts.shapes.kind[shapes], _SHARING)
        alone = bool(session.policy.leaves_alone(np.array([group], np.int64))[0])
        return alone and not bool((sharing | session.policy.dynamic[shapes]).any())

    def _feasible_nodes(self, idle: Int64s, releasing: Int64s) -> NodeRows:
        """Return the nodes that may have room.

        All if some pod of the group needs no GPU, else those with GPUs idle or being released.
        """
        session = self._session
        shapes = np.unique(session.facts.pods.shape[session.portion(self._aggressor.group).pods()])
        gpuless = (session.facts.shapes.kind[shapes] == GpuKind.NONE) & (session.facts.shapes.claimed[shapes] == 0)
        if gpuless.any():
            return session.all_nodes
        return np.flatnonzero((idle > 0) | (releasing > 0)).astype(np.int64)
