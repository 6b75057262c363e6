"""Growing the set of possible victims, batch by batch off the victim heap, until the filters see a chance.

Source: the peer's actions/common/solvers/scenario (by pod, accumulated scenario builder).
"""

from collections.abc import Callable, Iterator
from typing import Final

import attrs
import numpy as np

from kai.actions.search.filters import Filters, held_by
from kai.actions.search.group_states import GroupStates
from kai.engine.heaps import GroupHeap
from kai.engine.portion import Portion
from kai.engine.session import Session
from kai.framework.scenario import Batch, Batches, Outer
from kai.kernels import prefix
from kai.kernels.first_probe import propose_first
from kai.kernels.prefix import Prefix
from kai.model.rows import Bools, GroupRow, GroupRows, Int64s, NodeRows

AT_A_TIME: Final = 64
"""Sets of victims that domains refuse before it is asked whether to go on."""


@attrs.frozen(kw_only=True)
class Terms:
    """What outer scenarios of one probe are made from."""

    aggressor: Portion
    waiting: tuple[int, ...]
    recorded: Batches
    free: Int64s
    """[N] thousandths of GPUs that nodes have without taking anything."""
    feasible: NodeRows
    filters: Filters
    goes_on: Callable[[], bool]
    """Whether there is time for more victims: filters may refuse those of a whole cluster."""

    def outer(self, session: Session, batches: Batches) -> Outer:
        """Return the outer scenario with these batches."""
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
    """Victims group by group: the long way."""

    def __init__(self, session: Session, victims: GroupRows) -> None:
        """Fill a heap with the groups ``victims``."""
        self._session = session
        self._template = GroupHeap(session, victims=True)
        self._template.fill(victims)
        self.member: Bools = np.zeros(len(session.snapshot.groups), np.bool_)
        """[G] the groups that may be taken from."""
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
    """Return what the last-ranked group gives up next; what is left of it goes back."""
    while (portion := victims.pop()) is not None:
        pods, rest = give_up(portion, known)
        if rest is not None:
            victims.push(rest)
        if len(pods):
            return tuple(pods.tolist())
    return None


def give_up(portion: Portion, known: set[int]) -> tuple[Int64s, Portion | None]:
    """Return the pods that ``portion`` gives up next, and what is left of it, if anything is.

    Groups with ``known`` victims give up nothing now, and the rest later.
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
    """Victims by a kernel, as many groups in one go as the filters refuse."""

    def __init__(self, session: Session, states: GroupStates, member: Bools) -> None:
        """Prepare to take from the groups that are ``member`` [G]."""
        self._session = session
        self._states = states
        self.member = member
        """[G] the groups that may be taken from."""

    def outers(self, terms: Terms) -> Iterator[Outer]:
        """Yield the outer scenarios that pass the filters: first without new victims, then after each added batch.

        They end when there is no time for more.
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
        """Look for the first scenario that victims of one node make for ``group``; it is in ``states.probe`` then.

        Return what ``kai.kernels.first_probe.propose_first`` does.
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
        """Take from the group that the kernel left to us; say whether the filters accept what there is then."""
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
