"""The growing set of possible victims, and cheap filters that reject sets before a simulation.

Batches of victims come off the victim heap until the filters see a chance for the aggressor.

A filter tests a necessary condition: it may only reject sets that a simulation would reject too. (The test of domains
also counts running pods of the aggressor, as the peer's does; see docs/differences.md.)

Source: the peer's actions/common/solvers/scenario (by pod, accumulated scenario builder), and
actions/common/solvers/accumulated_scenario_filters.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs
import numpy as np

from kai.actions.search.group_states import GroupStates
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.facts.kernels import prefix
from kai.facts.kernels.booking import requested_gpu
from kai.facts.kernels.first_probe import propose_first
from kai.facts.kernels.prefix import Prefix
from kai.facts.kernels.victims import add_held
from kai.facts.model.axis import Bools, GroupRow, GroupRows, Int64s, NodeRows, SubGroupRow
from kai.framework.scenario import Batch, Batches, Outer


def held_by(session: Session, pods: Sequence[int] | Int64s) -> Int64s:
    """Return int64[N]: thousandths of GPUs that ``pods`` hold on each node."""
    out = np.zeros(len(session.all_nodes), np.int64)
    add_held(session.facts, session.columns, np.asarray(pods, np.int64), out)
    return out


def wanted_by(session: Session, pods: Sequence[int]) -> tuple[int, ...]:
    """Return the thousandths of GPUs that each pod requests; a request by memory counts 0 without a node."""
    return tuple(int(requested_gpu(session.facts, int(session.facts.pods.shape[pod]))) for pod in pods)


def fits_greedily(wanted: Sequence[int], capacities: Sequence[int], *, stop_at_zero: bool = False) -> bool:
    """Return whether each amount fits into a holder, taking the largest amount first and the largest holder first.

    ``stop_at_zero``: return True at the first amount of 0, since all after it are 0 too.

    Cost: one look at each holder for each distinct amount, besides sorting.
    """
    left = sorted(capacities, reverse=True)
    at, before = 0, -1
    for amount in sorted(wanted, reverse=True):
        if stop_at_zero and amount == 0:
            return True
        if amount != before:  # holders that were too small for an equal amount are still too small
            at, before = 0, amount
        while at < len(left) and left[at] < amount:
            at += 1
        if at == len(left):
            return False
        left[at] -= amount
    return True


class Filters:
    """The filters for one aggressor; whatever does not depend on the victims is computed once."""

    def __init__(
        self, session: Session, aggressor: Portion, waiting: Sequence[int], free: Int64s, feasible: Int64s
    ) -> None:
        """Prepare the aggressor's requirements; ``free`` [N] is the capacity of nodes without evictions."""
        self._session = session
        self._free = free
        self.wanted = wanted_by(session, waiting)
        """The request of each waiting pod."""
        self._open = np.zeros(len(free), np.bool_)
        self._open[feasible] = True
        session.policy.prepare_all(np.array(waiting, np.int64), session.all_nodes)
        self._masks = {row: mask for row, mask in self._static_masks(waiting).items() if not mask.all()}
        self._domains = self._requirements(aggressor)

    def accept(self, victims: Int64s, held: Int64s) -> bool:
        """Return whether the aggressor might fit without all ``victims``; ``held`` [N] is what they hold."""
        capacity = self._free + held
        return self._some_node_matches(victims) and self.domains_can_hold(capacity) and self._nodes_can_hold(capacity)

    def unmatched(self) -> Int64s:
        """Return the rows of the static masks that no node with room satisfies before any eviction."""
        return np.array([row for row, mask in self._masks.items() if not (mask & self._open).any()], np.int64)

    def _static_masks(self, waiting: Sequence[int]) -> dict[int, Bools]:
        rows = self._session.facts.shapes.mask[self._session.facts.pods.shape[list(waiting)]].tolist()
        return {row: self._session.policy.vectors.masks[row] for row in sorted(set(rows))}

    def _some_node_matches(self, victims: Int64s) -> bool:
        if not self._masks:
            return True
        reachable = self._open.copy()
        nodes = self._session.columns.node[victims]
        reachable[nodes[nodes >= 0]] = True
        return all(bool((mask & reachable).any()) for mask in self._masks.values())

    def _requirements(self, aggressor: Portion) -> list[tuple[Int64s, list[int]]]:
        """Return, for each required level of inner sub-groups, every node's domain and the amounts to hold."""
        session = self._session
        group = session.snapshot.groups[aggressor.group]
        wanted: dict[tuple[str, str], list[int]] = {}
        for at, subgroup in enumerate(group.subgroups):
            row = SubGroupRow(aggressor.root + at)
            asked = [] if subgroup.leaf else session.policy.together(GroupRow(aggressor.group), row)
            for tree, level in [(each.tree, each.level) for each in asked if each.level]:
                amount = sum(wanted_by(session, [int(pod) for pod in aggressor.pods(row)]))
                wanted.setdefault((tree, level), []).append(amount)
        return [(session.view.label_codes(level), amounts) for (_, level), amounts in wanted.items()]

    def domains_can_hold(self, capacity: Int64s) -> bool:
        """Return whether the domains of each required level can hold their amounts; ``capacity`` [N] is by node."""
        for codes, amounts in self._domains:
            sums = np.bincount(codes, weights=capacity)[1:]
            if not fits_greedily(amounts, [int(c) for c in sums]):
                return False
        return True

    def _nodes_can_hold(self, capacity: Int64s) -> bool:
        largest = np.sort(capacity)[::-1][: max(1, len(self.wanted))]
        return fits_greedily(self.wanted, [int(c) for c in largest], stop_at_zero=True)


AT_A_TIME: Final = 64
"""The number of victim sets rejected by domains after which the budget is asked again."""


@attrs.frozen(kw_only=True)
class Terms:
    """The inputs for the outer scenarios of one probe."""

    aggressor: Portion
    waiting: tuple[int, ...]
    recorded: Batches
    free: Int64s
    """[N] Thousandths of GPUs that nodes have without evictions."""
    feasible: NodeRows
    filters: Filters
    goes_on: Callable[[], bool]
    """Whether there is time for more victims, asked because filters may reject sets up to the whole cluster."""

    def outer(self, session: Session, batches: Batches) -> Outer:
        """Return the outer scenario with ``batches``."""
        return Outer(
            view=session.view,
            aggressor=GroupRow(self.aggressor.group),
            waiting=self.waiting,
            wanted=self.filters.wanted,
            recorded=self.recorded,
            batches=batches,
            free=self.free,
            feasible=self.feasible,
        )


class PlainVictims:
    """Victims taken group by group in Python: the plain form."""

    def __init__(self, session: Session, victims: GroupRows) -> None:
        """Fill a heap with the groups ``victims``."""
        self._session = session
        self._template = GroupHeap(session, victims=True)
        self._template.fill(victims)
        self.member: Bools = np.zeros(len(session.snapshot.groups), np.bool_)
        """[G] The groups that may lose pods."""
        self.member[victims] = True

    def outers(self, terms: Terms) -> Iterator[Outer]:
        """Yield the outer scenarios that pass the filters: first without new victims, then after each added batch."""
        session = self._session
        victims = self._template.copy()
        known = set(terms.recorded.pods.tolist())
        held = held_by(session, sorted(known))
        batches: list[Batch] = []
        while True:
            taken = Batches.of(batches)
            if terms.filters.accept(np.concatenate([terms.recorded.pods, taken.pods]), held):
                yield terms.outer(session, taken)
            batch = _next_batch(victims, known)
            if batch is None:
                return
            batches.append(batch)
            held = held + held_by(session, batch)


def _next_batch(victims: GroupHeap, known: set[int]) -> Batch | None:
    """Return the batch of the last-ranked group, and push the rest of that group back."""
    while (portion := victims.pop()) is not None:
        pods, rest = give_up(portion, known)
        if rest is not None:
            victims.push(rest)
        if len(pods):
            return tuple(pods.tolist())
    return None


def give_up(portion: Portion, known: set[int]) -> tuple[Int64s, Portion | None]:
    """Return the pods that ``portion`` gives up next, and its rest, if any.

    A group with ``known`` victims gives up nothing in this step, and its remaining pods later.
    """
    pods, more = portion.next_victims()
    if not len(pods):
        return pods, None
    everything = portion.pods()
    if known.intersection(pods.tolist()):
        rest = everything[[int(pod) not in known for pod in everything]]
        return rest[:0], portion.part(rest) if len(rest) else None
    return pods, portion.part(everything[~np.isin(everything, pods)]) if more else None


class CompiledVictims:
    """Victims from a kernel, which takes group after group as long as the filters reject the set."""

    def __init__(self, session: Session, states: GroupStates, member: Bools) -> None:
        """Prepare to take from the groups in ``member`` [G]."""
        self._session = session
        self._states = states
        self.member = member
        """[G] The groups that may lose pods."""

    def outers(self, terms: Terms) -> Iterator[Outer]:
        """Yield the outer scenarios that pass the filters: first without new victims, then after each added batch.

        They end when the budget allows no more.
        """
        session = self._session
        state = self._begin(terms)
        parts: dict[int, Portion] = {}
        known = set(terms.recorded.pods.tolist())
        found, refused = prefix.accepts(state), 0
        while True:
            if found and terms.filters.domains_can_hold(state.capacity):
                count, pods = state.state[prefix.BATCHES], state.state[prefix.PODS]
                yield terms.outer(session, Batches(state.pods[:pods], state.start[: count + 1]))
            elif found:
                refused += 1
                if refused % AT_A_TIME == 0 and not terms.goes_on():
                    return
            ended = prefix.extend(session.facts, session.columns, session.policy.rules, session.policy.vectors, state)
            if ended == prefix.EXHAUSTED or (ended == prefix.PAUSED and not terms.goes_on()):
                return
            found = self._take(state, parts, known) if ended == prefix.NOT_PLAIN else ended == prefix.ACCEPTED

    def propose_first(self, group: int) -> int:
        """Find the first scenario for ``group`` whose victims are on one node, and leave it in ``states.probe``.

        Return the result of ``kai.facts.kernels.first_probe.propose_first``.
        """
        session, states = self._session, self._states
        states.fill(self.member)
        return propose_first(
            session.facts,
            session.columns,
            session.policy.rules,
            session.policy.vectors,
            states.arrays,
            states.probe,
            group,
        )

    def _begin(self, terms: Terms) -> Prefix:
        session = self._session
        self._states.fill(self.member)
        wanted, masks = sorted(terms.filters.wanted, reverse=True), terms.filters.unmatched()
        state = self._states.prefix(len(wanted), len(masks))
        state.capacity[:] = terms.free
        state.wanted[:] = wanted
        state.masks[:] = masks
        state.reached[:] = False
        prefix.begin(session.facts, session.columns, session.policy.vectors, state, terms.recorded.pods)
        return state

    def _take(self, state: Prefix, parts: dict[int, Portion], known: set[int]) -> bool:
        """Take victims from a group that the kernel cannot handle; return whether the filters accept the set."""
        session = self._session
        group = int(state.state[prefix.GROUP])
        pods, rest = give_up(parts.pop(group) if group in parts else session.portion(group), known)
        if rest is not None:
            parts[group] = rest
            if session.policy.rules.elastic_key >= 0:
                state.heap.keys[group, session.policy.rules.elastic_key] = rest.elastic_state()
            state.heap.amounts[group] = rest.counted_amounts()
            prefix.put_back(session.facts, session.columns, session.policy.rules, state)
        if not len(pods):
            return False
        prefix.take(session.facts, session.columns, session.policy.vectors, state, pods)
        return prefix.accepts(state)
