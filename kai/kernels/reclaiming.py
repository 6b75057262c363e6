"""A whole search of reclaim in one call: for a group of one pod, by the rules of fair shares, with its first scenario.

Most searches of reclaim are that. Whether the group may take, from whom, whose turn it is to lose, what happens then
and whether that is fair follows from columns, so the search needs no Python before it has succeeded. Any other search,
and each that does not succeed at once, is left as if it had not been tried.
"""

from kai.kernels._jit import inner, kernel
from kai.kernels.columns import Columns, Facts, Offsets, undo_to
from kai.kernels.fairness import FAIR, Fairness, judge, mark_greedy, may_reclaim, remember
from kai.kernels.filling import fill_victims
from kai.kernels.first_probe import CHANGES, PROPOSED, VICTIMS, FirstProbe, is_final, only_pod, propose_first
from kai.kernels.fit import Rules, Vectors
from kai.kernels.group_state import CHANGED, UNKNOWN, GroupState, look_again
from kai.kernels.struct import Bools, Struct
from kai.kernels.trying import PLACED, Trial, try_victims

LEFT, SERVED, LOOK, NO_ROOM = 0, 1, 2, 3


class Reclaiming(Struct):
    """What searches of reclaim work with."""

    groups: GroupState
    trial: Trial
    probe: FirstProbe
    fairness: Fairness
    greedy: Bools  # [Q] queues that may lose to the aggressor
    few: int  # how many groups are listed again one by one
    per_change: int  # entries of the journal that one more placement or eviction may take


@inner
def _forget_rests(rules: Rules, groups: GroupState, probe: FirstProbe) -> None:
    """Let entries of the heap of victims stand for whole groups again."""
    if probe.prefix.changed[0] > 0:
        groups.victims.amounts[:, :] = groups.holding
        if rules.elastic_key >= 0:
            groups.victims.keys[:, rules.elastic_key] = groups.states
        probe.prefix.changed[0] = 0


@inner
def _has_room(columns: Columns, reclaiming: Reclaiming) -> bool:
    """Say whether the logs hold what trying the victims can make of changes."""
    changes = reclaiming.probe.state[CHANGES]
    return (
        columns.journal.shape[0] - columns.cursor[0] >= (changes + 1) * reclaiming.per_change
        and columns.operations.shape[0] - columns.counters[0] > changes
        and columns.placement_slots.shape[0] - columns.counters[1] > changes + 1
    )


@kernel
def reclaim_first(
    facts: Facts, columns: Columns, offsets: Offsets, rules: Rules, vectors: Vectors, work: Reclaiming, group: int
) -> int:
    """Search for ``group``; return how that ended.

    SERVED: victims are evicted and the group's pod is promised its place; ``work.probe`` has the victims,
    ``work.trial`` the groups that found no other place. Nothing is committed. LEFT: nothing was changed, it is for the
    plain form. LOOK: groups changed that only the caller can describe or list, then call again. NO_ROOM: the logs hold
    fewer than ``work.probe.state[CHANGES]`` changes.
    Holds: the same eviction and promise as the search the long way, which would succeed with its first scenario.
    Cost: a look at the epoch of each group, at what is listed of greedy queues, and at each node.
    """
    groups, trial, probe = work.groups, work.trial, work.probe
    if not probe.exact[group] or only_pod(facts, columns, group) < 0:
        return LEFT
    look_again(facts, columns, rules, groups, work.few)
    if groups.state[UNKNOWN] > 0 or groups.state[CHANGED] > work.few:
        return LOOK
    wanted = groups.wanting[group]
    if not may_reclaim(facts, columns, group, wanted):
        return LEFT
    remember(columns, work.fairness.claim, group, wanted)
    mark_greedy(facts, columns, wanted, facts.groups.queue[group], groups.losing.length, work.greedy)
    _forget_rests(rules, groups, probe)
    listing = groups.losing
    fill_victims(facts, columns, rules, groups.victims, listing, groups.by_age, work.greedy, listing.member)
    if propose_first(facts, columns, rules, vectors, groups, probe, group) != PROPOSED:
        return LEFT
    if not _has_room(columns, work):
        return NO_ROOM
    mark = columns.cursor[0]
    victims = probe.victims[: probe.state[VICTIMS]]
    if try_victims(facts, columns, offsets, rules, vectors, trial, probe.aggressor, victims) == PLACED:
        leaf = facts.groups.first_subgroup[group] + 1
        if (
            columns.occupying[leaf] >= facts.groups.minimum[leaf]
            and judge(facts, columns, work.fairness.claim, work.fairness.loss, victims) == FAIR
            and is_final(facts, columns, vectors, probe)
        ):
            return SERVED
    undo_to(facts, columns, offsets, mark)
    return LEFT
