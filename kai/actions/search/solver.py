"""The search for victims: the fewest evictions with which a group can run.

    for each generator:
        k = 1, 2, 4 ... then bisection: find the largest part of the chunk that can be served;
        each step starts with the victims of the last successful one
        then the whole chunk, with the victims found so far
    each step: outer scenarios grow -> generator proposes -> evict and place all affected groups again
               -> plugins accept or not

A simulation is an open statement: evict, then place the aggressor and all victims in queue order, as promises only. If
plugins do not accept it, it is undone. On success the statement is committed. So a victim is never evicted unless its
aggressor has a place in the very same commit.

Reclaim, preempt and consolidate share this engine. They differ in the groups that may be victims, the plugins that
accept, and the messages.

Source: the peer's actions/common/solvers (job solver, by-pod solver).
"""

from collections.abc import Callable
from enum import Enum
from functools import cached_property

import attrs
import numpy as np

from kai.actions.search.group_states import GroupStates
from kai.actions.search.hopeless import Reach
from kai.actions.search.losses import Givers
from kai.actions.search.one_call import Explain, facts_of
from kai.actions.search.outer import CompiledVictims, Devices, Filters, PlainVictims, Terms, held_by
from kai.actions.search.plans import Planner
from kai.actions.search.replacing import Replacing, books_all_they_ask_for, finalize, try_at_once
from kai.actions.search.second_look import Found, Looks, SecondLook, could_stay, disturbed, is_enough
from kai.deciding.engine.eviction_caps import Cap
from kai.deciding.engine.host import BudgetAnswer
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import FIRST_PROBE, HOPELESS, LAST_PROBE, ONE_NODE
from kai.deciding.engine.statement import Statement
from kai.facts.kernels.columns import GPU, KIND_NONE, RELEASING
from kai.facts.kernels.prefix import NONE_PASSES, UNSUITED, is_final
from kai.facts.kernels.victims import free_gpus, losing
from kai.facts.model.axis import GroupRow, Int64s, NodeRows, PodRows
from kai.facts.model.pod import ACTIVE_ALLOCATED
from kai.framework.decisions import Cause
from kai.framework.hooks import VictimProposals
from kai.framework.scenario import NO_BATCHES, Batches, Scenario


class Outcome(Enum):
    """The end of a search."""

    PLACED = "placed"
    FAILED = "failed"
    STOPPED = "stopped"


class StopSearchError(Exception):
    """Raised when the budget ends the search."""


class Search:
    """The search for victims on behalf of one group."""

    def __init__(
        self,
        session: Session,
        aggressor: Portion,
        cause: Cause,
        victims: PlainVictims | CompiledVictims,
        states: GroupStates | None,
        rule: str,
        explain: Explain | None,
        looks: Looks,
    ) -> None:
        """Prepare; ``victims`` may be taken, ``rule`` and ``explain`` give the reason and the numbers in messages.

        ``states``: the state of groups, for shortcuts; None: use the plain forms.
        """
        self._session = session
        self._aggressor = aggressor
        self._cause = cause
        self._moves = cause is Cause.CONSOLIDATE
        self._victims = victims
        self._rule = rule
        self._explain = explain
        self._failed: set[object] = set()
        self._judges = [each for each in session.policy.victims if each.accept is not None]
        self._states = states
        self._looks = looks
        self._known_devices: dict[tuple[int, ...], Devices | None] = {}
        self._more = BudgetAnswer.GO
        """The budget's last answer on whether to add more victims."""
        self.cap: Cap | None = None
        """The cap that rejected victims; of several, the one that the whole group would need to raise least."""
        self._done: VictimProposals | None = None
        """The generator that is done: it proposes nothing, or its time is up."""

    @cached_property
    def _idle_and_releasing(self) -> tuple[Int64s, Int64s]:
        """[N] each: thousandths of GPUs when the search began."""
        session = self._session
        idle = np.zeros(len(session.all_nodes), np.int64)
        releasing = np.zeros(len(session.all_nodes), np.int64)
        free_gpus(session.facts, session.columns, idle, releasing)
        return idle, releasing

    @cached_property
    def _free(self) -> Int64s:
        """[N] Thousandths of GPUs that are idle or being released."""
        idle, releasing = self._idle_and_releasing
        free: Int64s = idle + releasing
        return free

    @cached_property
    def _replacing(self) -> Replacing:
        return Replacing(self._session, self._feasible, self._states)

    def run(self) -> Outcome:
        """Search, commit the victims that were found, and return the outcome."""
        session = self._session
        chunk = self._aggressor.chunk()
        if not len(chunk):
            return Outcome.FAILED
        if session.budget.begin_group() is BudgetAnswer.STOP:
            return Outcome.STOPPED
        # Messages name the usage before any eviction, so keep a copy.
        self._used = session.columns.queue_used.copy()
        if session.caps.are_set:
            self._wanted = len(chunk)
            self._gained = float(session.view.chunk_amounts(GroupRow(self._aggressor.group))[GPU])
        for each in session.policy.victims:
            if each.before_search is not None:
                each.before_search(GroupRow(self._aggressor.group), self._cause)
        occupied = self._occupied()
        try:
            found = self._find(chunk, occupied)
        except StopSearchError:
            return Outcome.STOPPED
        if found is None:
            return Outcome.FAILED
        finalize(session, found.failed)
        facts = facts_of(session, self._explain, self._used, found.batches.pods, self._aggressor.group)
        if found.looked:
            facts = {pod: {**facts.get(pod, {}), **found.looked} for pod in found.batches.pods.tolist()}
        found.statement.facts = facts
        found.statement.commit()
        return Outcome.PLACED

    def _find(self, chunk: Int64s, occupied: int) -> Found | None:
        """Return victims with which the whole chunk is placed and more pods than ``occupied`` have places."""
        free = self._free
        for plugin in self._session.policy.plugins:
            if plugin.proposals is None:
                continue
            self._session.budget.begin_generator(plugin.proposals.name or plugin.name)
            found = self._with_generator(plugin.proposals, chunk)
            if found is None:
                continue
            if self._serves(occupied):
                return self._look_again(found, chunk, free)
            found.statement.discard()
        found = self._second_look(chunk).search() if self._may_be_missed(chunk) else None
        if found is None or self._serves(occupied):
            return found
        found.statement.discard()
        return None

    def _serves(self, occupied: int) -> bool:
        return self._aggressor.is_gang_satisfied() and self._occupied() > occupied

    def _look_again(self, found: Found, chunk: Int64s, free: Int64s) -> Found:
        """Return ``found``, or cheaper victims from a second look; ``free`` [N] is room for victims that move."""
        session = self._session
        if not session.ranks_victims or is_enough(session, found.victims, chunk, self._victims.member):
            return found
        # Read while the statement is open: afterwards no pod shows what happened to it.
        before = disturbed(session, found.victims)
        asked = (int(session.facts.groups.queue[self._aggressor.group]), *session.facts.pods.shape[chunk].tolist())
        if self._moves and not could_stay(session, self._aggressor, chunk, before, free):
            smaller = len(np.unique(session.facts.pods.group[before]))
            return attrs.evolve(found, looked={"smaller": smaller, "spared": 0})
        is_left_out = self._looks.leaves_out(asked)
        if is_left_out and (self._moves or not could_stay(session, self._aggressor, chunk, before, free)):
            return found
        found.statement.discard()
        look = self._second_look(chunk)
        if is_left_out:
            better = look.give_back(before)
        else:
            better = look.look_again(before)
            # Equal requests find the same, so `Looks` skips looks that rarely find more than what can be given back.
            paid = better is not None and (self._moves or look.exchanged(better, before))
            self._looks.note(asked, in_vain=not paid)
        if better is not None:
            return better
        # Nothing better was found. The first result was undone for the trials of the look, so make it again.
        looked = look.looked_in_vain()
        part = self._aggressor if found.terms is None else found.terms.aggressor
        again = self._replacing.run(found.statement, part, found.scenario.victims())
        if again is None:
            raise AssertionError("victims that served were evicted again, and serve no more")
        return attrs.evolve(found, failed=again, looked=looked)

    def _second_look(self, chunk: Int64s) -> SecondLook:
        session, part, cause = self._session, self._part(chunk), self._cause
        givers = self._looks.givers = self._looks.givers or Givers(session)
        planner = Planner(session, part, cause, self._victims.member, self._free, self._used, givers)
        devices = self._devices(tuple(part.chunk().tolist()))
        accepted, moves = self._accepted, self._moves
        return SecondLook(session, part, devices, planner, self._replacing, self._begin, accepted, moves=moves)

    def _devices(self, waiting: tuple[int, ...]) -> Devices | None:
        """Return the check for the pods ``waiting``; memoized, since it is made where no statement is open."""
        if waiting not in self._known_devices:
            self._known_devices[waiting] = Devices.of(self._session, waiting)
        return self._known_devices[waiting]

    def _begin(self) -> Statement:
        return self._session.statement(self._cause.name, self._cause, self._aggressor.group, self._rule)

    def _may_be_missed(self, chunk: Int64s) -> bool:
        """Return whether generators may miss victims that serve; they cannot for one pod that may go to any node."""
        session = self._session
        if not session.ranks_victims or self._moves:
            return False
        alone = session.policy.leaves_alone(np.array([self._aggressor.group], np.int64))[0]
        return len(chunk) > 1 or not alone or bool(session.policy.dynamic[session.facts.pods.shape[chunk]].any())

    def _occupied(self) -> int:
        if self._session.facts.groups.simple[self._aggressor.group]:
            return self._aggressor.occupying(self._aggressor.root + 1)
        return sum(self._aggressor.occupying(leaf) for leaf in self._aggressor.leaves)

    def _with_generator(self, proposals: VictimProposals, chunk: Int64s) -> Found | None:
        """Find the largest part of the chunk that can be served, then serve the whole."""
        recorded = NO_BATCHES
        kept: Found | None = None

        def helps(count: int) -> bool:
            nonlocal recorded, kept
            found = self._first(proposals, chunk) if len(chunk) == 1 else None
            found = found or self._probe(proposals, chunk[:count], recorded)
            if found is None:
                return False
            # Pods of the next, larger part are most likely served by the same victims and a few more.
            recorded = found.batches
            if count == len(chunk) and self._is_the_last(proposals, found):
                kept = found
            else:
                found.statement.discard()
            return True

        solved, unsolved, count = 0, None, 1
        # Doubling, then bisection: a chunk of n pods takes O(log n) probes.
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
        return kept or (self._probe(proposals, chunk, recorded) if solved else None)

    def _probe(self, proposals: VictimProposals, pods: Int64s, recorded: Batches) -> Found | None:
        """Try scenarios until one places the aggressor's part with ``pods`` besides the pods that have a place."""
        part = self._part(pods)
        waiting = tuple(part.chunk().tolist())
        if not waiting or self._done is proposals:
            return None
        free, session = self._free, self._session
        terms = Terms(
            aggressor=part,
            waiting=waiting,
            recorded=recorded,
            free=free,
            feasible=self._feasible,
            filters=Filters(session, part, waiting, free, self._feasible, moves=self._moves),
            devices=self._devices(waiting),
            goes_on=self._may_grow,
            reach=Reach.of(session, part, self._feasible, recorded.pods),
            by_node=proposals.only_by_node and session.takes(ONE_NODE),
        )
        self._more = BudgetAnswer.GO
        for scenario in proposals.propose(self._victims.outers(terms)):
            # A failed scenario was undone, so it would fail again: skip it by its fingerprint.
            if (
                not len(scenario.victims())
                or (self._failed and scenario.fingerprint() in self._failed)
                or self._is_in_vain(scenario)
            ):
                if not self._goes_on(self._session.budget.pass_over()):
                    return None
                continue
            if not self._granted():
                return None
            found = self._simulate(scenario, terms) if self._could_serve(scenario, terms) else None
            if found is not None:
                return found
            self._failed.add(scenario.fingerprint())
        self._goes_on(self._more)
        return None

    def _could_serve(self, scenario: Scenario, terms: Terms) -> bool:
        """Return whether a simulation of the scenario might succeed, by the devices and nodes that its victims free."""
        victims = scenario.victims()
        if terms.filters.leaves_too_few(victims) or (terms.reach is not None and terms.reach.is_ruled_out(victims)):
            return False
        return terms.devices is None or terms.devices.begin().add(victims.tolist())

    def _is_in_vain(self, scenario: Scenario) -> bool:
        """Return whether a plugin is certain that the waiting pods find no nodes without these victims."""
        if not self._skeptics:
            return False
        waiting, victims = np.array(scenario.waiting, np.int64), scenario.victims()
        return any(each(waiting, victims) for each in self._skeptics)

    @cached_property
    def _skeptics(self) -> list[Callable[[PodRows, PodRows], bool]]:
        """The plugins' answers to that; none for an aggressor about whose pods no plugin is asked."""
        session = self._session
        shapes = session.facts.pods.shape[self._aggressor.pods()]
        if not session.takes(HOPELESS) or not session.policy.dynamic[shapes].any():
            return []
        return [each.in_vain for each in session.policy.victims if each.in_vain is not None]

    def _may_grow(self) -> bool:
        """Return whether there is time for more victims; on a no, the generator runs out and the probe ends."""
        self._more = self._session.budget.pass_over()
        return self._more is BudgetAnswer.GO

    def _first(self, proposals: VictimProposals, chunk: Int64s) -> Found | None:
        """Try the first scenario for a single pod in kernels; leave cases that they cannot decide to ``_probe``."""
        states, session = self._states, self._session
        if (
            states is None
            or not session.takes(FIRST_PROBE)
            or self._failed
            or not proposals.proposes_by_node
            or not isinstance(self._victims, CompiledVictims)
            or not states.exact[self._aggressor.group]
        ):
            return None
        ended = self._victims.propose_first(self._aggressor.group)
        if ended == UNSUITED:
            return None
        if ended == NONE_PASSES or not self._granted():
            self._done = proposals
            return None
        probe = states.probe
        count, parts, room, _ = probe.state.tolist()
        victims = probe.victims[:count].copy()
        batches = Batches(victims, probe.start[: parts + 1].copy())
        scenario = Scenario(aggressor=GroupRow(self._aggressor.group), waiting=tuple(chunk.tolist()), potential=batches)
        statement = self._begin()
        failed = try_at_once(session, states, statement, probe.aggressor, victims, room)
        if failed is None or not self._accepted(scenario, victims):
            statement.discard()
            self._failed.add(scenario.fingerprint())
            return None
        if not books_all_they_ask_for(session, states, self._aggressor.group, victims, moves=self._moves):
            statement.discard()
            return None
        sure = is_final(session.facts, session.columns, session.policy.vectors, probe)
        if not sure:
            batches = batches.chosen(losing(session.columns, batches.pods, batches.start, victims))
        return Found(
            statement=statement,
            scenario=scenario,
            terms=None,
            victims=victims,
            batches=batches,
            failed=failed,
            sure=sure,
        )

    def _part(self, pods: PodRows) -> Portion:
        """Return the part of the aggressor with ``pods`` besides the pods that have a place."""
        whole = self._aggressor
        kept = np.concatenate([whole.holding(ACTIVE_ALLOCATED), pods])
        simple = bool(self._session.facts.groups.simple[whole.group])
        # If nothing is left out, no minimum shrinks, and the part is the whole.
        if simple and len(kept) == len(whole.pods()) and not self._session.columns.status[pods].any():
            return whole
        return whole.part(kept, shrink=True)

    def _granted(self, found: Found | None = None) -> bool:
        """Return whether another scenario may be tried with this generator; if the search ends, undo ``found``."""
        return self._goes_on(self._session.budget.grant(), found)

    def _goes_on(self, answer: BudgetAnswer, found: Found | None = None) -> bool:
        """Return whether the search goes on with this generator; if it ends, undo ``found``."""
        match answer:
            case BudgetAnswer.STOP:
                if found is not None:
                    found.statement.discard()
                raise StopSearchError
            case BudgetAnswer.NEXT_GENERATOR:
                return False
            case BudgetAnswer.GO:
                return True

    def _simulate(self, scenario: Scenario, terms: Terms) -> Found | None:
        """Evict the scenario's victims, place all affected groups again, and let plugins judge.

        A rejected scenario is undone.
        """
        victims = scenario.victims()
        statement = self._begin()
        failed = self._replacing.run(statement, terms.aggressor, victims)
        if failed is not None and self._accepted(scenario, victims):
            batches = scenario.batches
            rows = losing(self._session.columns, batches.pods, batches.start, victims)
            group, moves = self._aggressor.group, self._moves
            # Requests that the ledger does not book in full could fail in the next cycle: prove the result from
            # scratch.
            is_booked = books_all_they_ask_for(self._session, self._states, group, victims, moves=moves)
            if not is_booked and not (len(terms.waiting) == 1 and self._replacing.is_held(terms.aggressor, victims)):
                holds = self._replacing.holds(statement, terms.aggressor, victims, all_return=moves)
                again = self._replacing.run(statement, terms.aggressor, victims)
                failed = again if holds else None
            if failed is not None:
                return Found(
                    statement=statement,
                    scenario=scenario,
                    terms=terms,
                    victims=victims,
                    batches=batches.chosen(rows),
                    failed=failed,
                )
        statement.discard()
        return None

    def _is_the_last(self, proposals: VictimProposals, found: Found) -> bool:
        """Return whether the probe of the whole chunk with the known victims would repeat this result; then skip it.

        It would if all victims are evicted, in the same order, and filters and plugins accept them as known victims.
        """
        session, terms = self._session, found.terms
        if not proposals.begins_with_recorded or not session.takes(LAST_PROBE):
            return False
        known = not self._moves and all(each.accepts_by_victims for each in self._judges)
        if found.sure and known:
            # The probe that is skipped would have asked the budget, which counts scenarios: it is asked all the same.
            return self._granted(found)
        tried = found.scenario
        again = Scenario(aggressor=tried.aggressor, waiting=tried.waiting, recorded=found.batches)
        if not found.sure:
            if terms is None or not np.array_equal(again.victims(), found.victims):
                return False
            if self._failed and again.fingerprint() in self._failed:
                return False
            if not (session.columns.status[found.victims] == RELEASING).all():
                return False
            if not terms.filters.accept(found.victims, held_by(session, found.victims)):
                return False
        return (known or self._accepted(again, found.victims)) and self._granted(found)

    def _accepted(self, scenario: Scenario, victims: PodRows) -> bool:
        if self._moves:
            # A consolidation evicts no pod for good: each victim has to have another place.
            accepted = not (self._session.columns.status[victims] == RELEASING).any()
        else:
            # As a loop: with one or two judges, a generator expression costs as much as they do.
            accepted = True
            for each in self._judges:
                if each.accept is not None and not each.accept(scenario, self._cause):
                    accepted = False
                    break
        return accepted and (not self._session.caps.are_set or self._is_within_caps(scenario, victims))

    def _is_within_caps(self, scenario: Scenario, victims: PodRows) -> bool:
        """Return whether the loss of the victims is within all caps; the gain is known only for the whole chunk."""
        helps_all = len(scenario.waiting) == self._wanted
        cap = self._session.caps.passed_by(victims, self._gained if helps_all else None)
        if cap is not None:
            self._note_cap(attrs.evolve(cap, is_for_part=not helps_all))
        return cap is None

    def _note_cap(self, cap: Cap) -> None:
        """Remember a rejecting cap, preferring the one with the least amount: its reader compares that with the cap."""
        known = self.cap
        if known is not None and cap.is_for_part == known.is_for_part:
            is_better = cap.name == known.name and cap.would_be < known.would_be
        else:
            is_better = known is None or known.is_for_part
        if is_better:
            self.cap = cap

    @cached_property
    def _feasible(self) -> NodeRows:
        """The nodes that may have room.

        These are all nodes if some pod of the group needs no GPU, else those with GPUs idle or being released.
        """
        session = self._session
        idle, releasing = self._idle_and_releasing
        shapes = session.facts.pods.shape[session.portion(self._aggressor.group).pods()]
        gpuless = (session.facts.shapes.kind[shapes] == KIND_NONE) & (session.facts.shapes.claimed[shapes] == 0)
        if gpuless.any():
            return session.all_nodes
        return np.flatnonzero((idle > 0) | (releasing > 0)).astype(np.int64)
