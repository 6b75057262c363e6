"""What reclaim, preempt and consolidation share: which groups search, which searches are skipped, and the loop.

Source: the peer's actions (reclaim, preempt, consolidation), its victim-invariant pre-filter and scheduling
    constraints signature.
"""

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from kai.actions.search.group_states import GroupStates
from kai.actions.search.hopeless import NoLess, of_own_user
from kai.actions.search.one_call import Explain, OneCall, Run
from kai.actions.search.outer import CompiledVictims, PlainVictims
from kai.actions.search.second_look import Looks
from kai.actions.search.solver import Outcome, Search
from kai.deciding.engine.heaps import GroupHeap, in_leaf_queues
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import ALIKE, HOPELESS, NO_LESS, SEARCH
from kai.facts.kernels.groups import find_placed
from kai.facts.kernels.victims import keep_queues
from kai.facts.model.axis import GPU, Bools, GroupRow, GroupRows, PodRow, PodRows, SubGroupRow
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status
from kai.facts.state.budgets import largest_amounts
from kai.framework.decisions import Cause
from kai.framework.verdict import ACCEPTED, Code, Reason, Verdict

Footprint = list[tuple[int, ...]]
FEW = 64
"""Up to this many waiting groups are asked one by one whether they may search; among more, many are mostly alike."""


@attrs.frozen(kw_only=True)
class EvictionPass:
    """The loop over waiting groups for one cause of evictions."""

    name: str
    cause: Cause
    may_search: Callable[[Session, Portion], Verdict] | None = None
    """Whether a group may search at all; if not, it is skipped but does not count as failed. None: each may.

    One answer holds for all groups of a class, until a statement is committed.
    """
    can_succeed: Callable[[Session, Portion], bool]
    """Whether a search has a chance; if not, the group counts as failed."""
    victims: Callable[[Session, Portion, Bools], Bools]
    """bool[G]: the groups that may lose pods, among the given preemptible groups with a place."""
    can_succeed_among: Callable[[Session, Portion, Bools], bool] = lambda *_: True
    """Whether a search among these groups, bool[G], has a chance; if not, the group counts as failed."""
    some_can_succeed: Callable[[Session, GroupRows], bool] = lambda *_: True
    """Whether any search of these groups has a chance; if not, none is tried."""
    per_queue: bool
    """Whether failures are remembered per leaf queue rather than for the whole cluster."""
    rule: str = ""
    """What allows the evictions; "" for the rule of the cause."""
    explain: Explain | None = None
    """The facts about the involved queues in messages on evictions; None: no facts."""
    pending_filter: Callable[[Session, GroupRows], GroupRows] = lambda _, groups: groups

    def run(self, session: Session) -> None:
        """Search victims for each waiting group once, best first."""
        waiting = _past_delays(session, self.pending_filter(session, session.waiting_groups()))
        if not len(waiting) or not self.some_can_succeed(session, waiting):
            return
        depth = session.parameters.queue_depth.get(self.name, -1)
        if depth < 0 and len(waiting) <= FEW and self._refuses_all(session, waiting):
            return
        heap = GroupHeap(session, depth=depth)
        heap.fill(waiting, again=True)
        self._serve(session, heap, Closed(session, waiting))

    def _refuses_all(self, session: Session, waiting: GroupRows) -> bool:
        """Return whether no group may search; then each has its reason, and their order does not matter."""
        if self.may_search is None:
            return False
        refused: list[tuple[int, Verdict]] = []
        for group in in_leaf_queues(session, waiting).tolist():
            session.attend(group)
            verdict = self.may_search(session, session.portion(group))
            if verdict:
                return False
            refused.append((group, verdict))
        session.attend(-1)
        for group, verdict in refused:
            session.records.note_alike(np.array([group], np.int64), verdict.reasons)
        return True

    def _serve(self, session: Session, heap: GroupHeap, closed: "Closed") -> None:
        """Pop groups in turn; groups of the same class as a skipped one are dropped with it."""
        state = PassState(session)
        while True:
            session.attend(-1)
            portion = None
            if closed.is_any:
                portion, dropped = heap.pop_open(closed.mask)
                closed.note(dropped)
            # If only closed groups were left, the heap is empty now, and the loop ends below.
            if portion is not None or not closed.is_any:
                run = self._search_in_one_call(session, heap, portion, state)
                portion = run.left
                if run.is_served:
                    closed.reopen()
            if portion is None:
                return
            session.attend(portion.group)
            # Check permission before memoized failures: a group that may not search gets its own reason.
            verdict = ACCEPTED if self.may_search is None else self.may_search(session, portion)
            failed = self._failure(session, portion, state) if verdict else None
            if not verdict or failed is not None:
                closed.close(portion.group, verdict)
                if failed is not None and self.may_search is None:  # else each group gets its own answer
                    closed.close_no_less(portion.group, failed, per_queue=self._is_per_queue(state))
                continue
            if _could_ever_run(session, portion):
                if not self._try(session, portion, state):
                    return
                closed.reopen()

    def _search_in_one_call(
        self, session: Session, heap: GroupHeap, portion: Portion | None, state: "PassState"
    ) -> Run:
        """Search for ``portion`` (None: the next group) and those after it in kernel calls; return the first one left.

        Only reclaim has this form, and only after some search has built the group states; otherwise no search is made.
        """
        if not state.is_prepared and self.cause is Cause.RECLAIM and state.known is not None:
            state.is_prepared = True
            state.one_call = OneCall.of(session, state.known, self._rule, self.explain, state.has_failed, state.looks)
        if state.one_call is not None:
            return state.one_call.run(heap, portion)
        return Run(heap.pop() if portion is None else portion, is_served=False)

    def _is_per_queue(self, state: "PassState") -> bool:
        """Return whether a failure says nothing of groups of other queues: limits of models differ from queue to queue.

        The limit of all GPUs differs as well, and as in the peer a failure counts for all queues all the same.
        """
        return self.per_queue or state.has_model_limits

    @property
    def _rule(self) -> str:
        return self.rule or self.cause.rule

    def _table(self, session: Session, portion: Portion, state: "PassState") -> dict[str, Footprint]:
        queue = int(session.facts.groups.queue[portion.group]) if self._is_per_queue(state) else -1
        users = session.facts.users
        account = int(users.binding[portion.group]) if len(users.limit) else -1
        return state.failed.setdefault((queue, account), {})

    def _failure(self, session: Session, portion: Portion, state: "PassState") -> Footprint | None:
        """Return the footprint of a failed group with the same signature if this group asks for no less."""
        table = self._table(session, portion, state)
        if not session.parameters.use_scheduling_signatures or not table:
            return None
        failed = table.get(signature_of(session, portion))
        return failed if failed is not None and not is_easier(session, portion, failed) else None

    def _try(self, session: Session, portion: Portion, state: "PassState") -> bool:
        """Search victims for one group, remember a failure, and return whether there is time for more."""
        outcome = Outcome.FAILED
        state.is_capped = False
        if self.can_succeed(session, portion):
            outcome = self._search(session, portion, state)
        if state.is_capped:  # a smaller group may stay within the cap, so this failure proves nothing about it
            return outcome is not Outcome.STOPPED
        # A failed search restored the state, so the group's signature and footprint are those from before it.
        if outcome is Outcome.FAILED and session.parameters.use_scheduling_signatures:
            remember(session, portion, self._table(session, portion, state), signature_of(session, portion))
            state.has_failed[session.facts.groups.queue[portion.group]] = True
        return outcome is not Outcome.STOPPED

    def _search(self, session: Session, portion: Portion, state: "PassState") -> Outcome:
        if state.known is not None:
            state.known.refresh()
        member = self._candidates(session, portion, state.known)
        if not session.snapshot.past.protected:
            return self._search_among(session, portion, state, member)
        spared = member & session.protected
        if not spared.any():
            return self._search_among(session, portion, state, member)
        # Pods of protected groups are spared for now: search without them, and name them as the reason on failure.
        outcome = self._search_among(session, portion, state, member & ~spared)
        if outcome is Outcome.FAILED:
            verdict = Verdict.refused(Code.VICTIMS_PROTECTED, groups=int(np.count_nonzero(spared)))
            session.refuse(portion.group, verdict)
        return outcome

    def _search_among(self, session: Session, portion: Portion, state: "PassState", member: Bools) -> Outcome:
        """Search victims in the groups ``member`` [G]."""
        if not member.any() or not self.can_succeed_among(session, portion, member):
            return Outcome.FAILED
        if self._is_hopeless(session, portion, state, member):
            return Outcome.FAILED
        states = state.group_states()
        victims: PlainVictims | CompiledVictims
        if states is None:
            victims = PlainVictims(session, session.oldest_first(np.flatnonzero(member).astype(np.int64)))
        else:
            victims = CompiledVictims(session, states, member)
        search = Search(session, portion, self.cause, victims, states, self._rule, self.explain, state.looks)
        outcome = search.run()
        if outcome is not Outcome.PLACED and search.cap is not None:
            state.is_capped = True
            session.refuse(portion.group, Verdict((search.cap.reason,)))
        return outcome

    def _is_hopeless(self, session: Session, portion: Portion, state: "PassState", member: Bools) -> bool:
        """Return whether a plugin knows that the search cannot succeed."""
        chunk = portion.chunk()
        if not session.takes(HOPELESS):
            return False
        if session.policy.dynamic[session.facts.pods.shape[chunk]].any():
            asked = [each.in_vain for each in session.policy.victims if each.in_vain is not None]
            if asked and any(in_vain(chunk, _placed_pods(session, member)) for in_vain in asked):
                return True
        # For a single pod, a successful search is as fast as asking. Only a failing one looks at all victims.
        if len(chunk) == 1 and not state.has_failed.any():
            return False
        rows = np.flatnonzero(member).astype(np.int64)
        asking = [each.hopeless for each in session.policy.victims if each.hopeless is not None]
        return any(hopeless(GroupRow(portion.group), chunk, rows, self.cause) for hopeless in asking)

    def _candidates(self, session: Session, portion: Portion, states: GroupStates | None) -> Bools:
        """Return bool[G]: the groups whose pods the group may take."""
        if states is None:
            placed = np.zeros(len(session.snapshot.groups), np.bool_)
            find_placed(session.facts, session.columns, placed)
        else:
            placed = states.placed
        # `&` makes a copy: all searches of the pass share the array, and members are struck out below.
        member = placed & session.facts.groups.preemptible
        member[portion.group] = False
        member = self.victims(session, portion, member)
        for each in session.policy.victims:
            queues = each.queues(GroupRow(portion.group), self.cause) if each.queues is not None else None
            if queues is not None:
                keep_queues(session.facts, queues, member)
        for each in session.policy.victims:
            if each.groups is None:
                continue
            rows = np.flatnonzero(member).astype(np.int64)
            if len(rows):
                member[rows] = each.groups(GroupRow(portion.group), rows, self.cause)
        return of_own_user(session, portion, member) if len(session.facts.users.limit) else member


def _placed_pods(session: Session, member: Bools) -> PodRows:
    """Return the pods with places of the groups in ``member`` [G]."""
    groups = session.facts.pods.group
    placed = ((ACTIVE_ALLOCATED >> session.columns.status) & 1).astype(np.bool_) & (groups >= 0)
    pods = np.flatnonzero(placed)
    return pods[member[groups[pods]]].astype(np.int64)


def _may_bind_models(session: Session) -> bool:
    """Return whether all pods of some queue together exceed its limit of a GPU model. Cost: O(P) with such limits."""
    queues, groups, pods = session.facts.queues, session.facts.groups, session.facts.pods
    limits = queues.model_limit
    if not (limits >= 0).any():
        return False
    gpus = largest_amounts(session.snapshot, session.facts.nodes)[:, GPU]
    rows = np.flatnonzero(pods.group >= 0)
    rising, asked = groups.queue[pods.group[rows]], np.zeros(len(limits))
    while len(rows := rows[rising >= 0]):
        rising = rising[rising >= 0]
        asked += np.bincount(rising, gpus[pods.shape[rows]], len(limits))
        rising = queues.parent[rising]
    return bool(((limits >= 0) & (limits < asked[:, np.newaxis])).any())


class PassState:
    """State that one run of an eviction pass keeps between searches."""

    def __init__(self, session: Session) -> None:
        """Begin without failures."""
        self._session = session
        self.failed: dict[tuple[int, int], dict[str, Footprint]] = {}
        """Footprints of failed groups, by queue, account of the user and signature."""
        self.has_failed: Bools = np.zeros(len(session.snapshot.queues), np.bool_)
        """[Q] Queues with failed groups."""

        self.has_model_limits = _may_bind_models(session)
        """Whether a limit of a GPU model may refuse something; asked for each group, and the same for all."""
        self.is_capped = False
        """Whether a cap on evictions rejected the victims of the last search."""
        self.known: GroupStates | None = None
        """The state of all groups; built by the first search that gets that far."""
        self.is_prepared = False
        """Whether it was determined if searches can be made in kernel calls."""
        self.one_call: OneCall | None = None
        self.looks = Looks()

    def group_states(self) -> GroupStates | None:
        """Return the state of all groups; None: use the plain forms."""
        if self.known is None and self._session.takes(SEARCH):
            self.known = GroupStates(self._session)
            self.known.refresh()
        return self.known


def _past_delays(session: Session, groups: GroupRows) -> GroupRows:
    """Return the ``groups`` that have waited long enough to evict others."""
    if not len(groups):
        return groups
    snapshot = session.snapshot
    objects = snapshot.groups

    def read(rows: Sequence[int]) -> tuple[Bools]:
        return (np.array([objects[row].preemption_delay is not None for row in rows], np.bool_),)

    (delayed,) = snapshot.memory.rows.columns("groups with delays", snapshot.versions.groups, len(objects), read)
    # Mostly no group has a delay, and then no object is looked at.
    if not delayed[groups].any():
        return groups
    past = [not delayed[group] or _past_delay(session, group) for group in groups.tolist()]
    return groups[np.array(past, np.bool_)]


def _past_delay(session: Session, group: int) -> bool:
    """Return whether the group has waited long enough to evict others; if not, record that as a reason."""
    facts = session.snapshot.groups[group]
    delay = facts.preemption_delay
    if delay is None or delay <= 0:
        return True
    evicted = session.last_eviction[group]
    # A group that was evicted waits its delay anew, so that two groups cannot evict each other in turn.
    until = max(facts.created, 0.0 if np.isnan(evicted) else float(evicted)) + delay
    if session.clock.is_past(until):
        return True
    session.refuse(group, Verdict.refused(Code.PREEMPTION_DELAY, seconds=delay, until=until))
    return False


def _could_ever_run(session: Session, portion: Portion) -> bool:
    """Return whether no pod of the chunk is refused for a reason that evictions cannot change."""
    if not session.policy.judges_pods:
        return True
    for pod in map(int, portion.chunk()):
        verdict = session.policy.admit_pod(PodRow(pod), int(session.facts.pods.shape[pod]))
        if not verdict:
            return False
    return True


class Closed:
    """Groups to skip, because nothing has changed since a group of the same class was skipped."""

    def __init__(self, session: Session, groups: GroupRows) -> None:
        """Begin with all of ``groups`` open."""
        self._session = session
        self._groups = groups
        self._no_less: NoLess | None = None
        self._classes = np.full(len(session.snapshot.groups), -1, np.int64)
        self._classes[groups] = session.equivalence.classes(groups)
        # By class: the groups of one class are a slice, found by bisection.
        self._ordered = groups[np.argsort(self._classes[groups], kind="stable")]
        self._numbers = self._classes[self._ordered]
        self._notes: dict[int, tuple[Reason, ...]] = {}
        self.mask = np.zeros(len(session.snapshot.groups), np.bool_)
        """bool[G]: the groups that are closed."""
        self.is_any = False
        """Whether any group is closed."""

    def close(self, group: int, verdict: Verdict) -> None:
        """Skip ``group`` and all of its class from now on; a refusing ``verdict`` becomes their reason."""
        number = int(self._classes[group])
        if not verdict:
            self._session.records.note_alike(np.array([group], np.int64), verdict.reasons)
        if number >= 0 and self._session.takes(ALIKE):
            begin, end = self._numbers.searchsorted((number, number + 1)).tolist()
            if end - begin > 1:  # otherwise the group is alone in its class, and already off the heap
                self._notes[number] = verdict.reasons
                self.mask[self._ordered[begin:end]] = True
                self.is_any = True

    def close_no_less(self, group: int, failed: Footprint, *, per_queue: bool) -> None:
        """Skip the groups that differ from ``group`` only in amounts and ask for no less than ``failed``.

        They get no reason. ``per_queue``: groups of other queues differ in more than amounts.
        """
        if len(failed) != 1 or not self._session.takes(NO_LESS):
            return
        if self._no_less is None:
            self._no_less = NoLess(self._session, self._groups, per_queue=per_queue)
        groups = self._no_less.than(group, failed[0])
        self.mask[groups] = True
        self.is_any = self.is_any or len(groups) > 0

    def note(self, dropped: GroupRows) -> None:
        """Copy to the ``dropped`` groups the reasons of the skipped group of their class."""
        if not len(dropped):
            return
        classes = self._classes[dropped]
        for number in np.unique(classes).tolist():
            if self._notes.get(number):
                self._session.records.note_alike(dropped[classes == number], self._notes[number])

    def reopen(self) -> None:
        """Open all groups again, because something changed."""
        if self.is_any:
            self.mask[:] = False
            self.is_any = False


def anything(session: Session, portion: Portion) -> bool:
    """Return True for every group."""
    del session, portion
    return True


# ---------------------------------------------------------------------- memoized failures


def signature_of(session: Session, portion: Portion) -> str:
    """Return the signature of groups with the same demands apart from amounts.

    It names, for each leaf, its constraints and those of its waiting pods; where the quota of some queue is to fall,
    also for how long a group demands them.
    """
    group = session.snapshot.groups[portion.group]
    pods = portion.pods()
    until = f".{session.facts.groups.ahead[portion.group]}" if len(session.facts.queues.falls) else "."
    if len(pods) == 1 and session.facts.groups.simple[portion.group]:
        return f"||{_signature_of_pod(session, int(pods[0]))}\n{until}"
    parts = []
    for leaf in portion.leaves:
        waiting = [
            int(pod) for pod in portion.pods_of(leaf) if not (ACTIVE_ALLOCATED >> session.columns.status[pod]) & 1
        ]
        if not waiting:
            parts.append("")
            continue
        at = leaf - portion.root
        asked = []
        while at >= 0:
            found = session.policy.together(GroupRow(portion.group), SubGroupRow(portion.root + at))
            asked.append(",".join(each.signature for each in found))
            at = group.subgroups[at].parent
        parts.append("|".join([*asked, *sorted(_signature_of_pod(session, pod) for pod in waiting)]))
    return "\n".join(sorted(parts)) + f"\n{until}"


def _signature_of_pod(session: Session, pod: int) -> str:
    return session.snapshot.pods[pod].signature + session.policy.signature(int(session.facts.pods.shape[pod]))


def _footprint(session: Session, portion: Portion) -> Footprint:
    pending = portion.holding(1 << Status.PENDING)
    return sorted(session.footprint(int(session.facts.pods.shape[pod])) for pod in pending)


def is_easier(session: Session, portion: Portion, failed: Footprint) -> bool:
    """Return whether a group may succeed although a group of its signature with the footprint ``failed`` did not."""
    mine = _footprint(session, portion)
    if not mine or not failed:
        return False
    if len(failed) > len(mine):
        return True
    for at, request in enumerate(mine):
        if at >= len(failed):
            return False
        if request != failed[at] and all(a <= b for a, b in zip(request, failed[at], strict=True)):
            return True
    return False


def remember(session: Session, portion: Portion, table: dict[str, Footprint], signature: str) -> None:
    """Keep the group's footprint as the failed one of its signature, if it is no larger than the one kept."""
    mine = _footprint(session, portion)
    known = table.get(signature)
    smaller = known is None or (
        len(mine) <= len(known)
        and all(a <= b for x, y in zip(mine, known, strict=False) for a, b in zip(x, y, strict=True))
    )
    if smaller:
        table[signature] = mine
