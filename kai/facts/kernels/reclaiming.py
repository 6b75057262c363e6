"""Searches of reclaim, many in one call: for groups of one pod, by fair-share rules, with first scenarios.

Most searches of reclaim are of this kind. Whether a group may reclaim, from whom, which queue loses next, and whether
the result is fair follows from columns, so these searches need no Python. Each success is made final and its decisions
are recorded. A group that may not reclaim is noted. A search whose victims get their places back goes on with the next
scenario. Any other search, and each that does not succeed so, is left as if it had not been tried: the caller makes it,
and calls again.
"""

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.arrays import copy_table
from kai.facts.kernels.booking import accepted_gpu, evict, requested_gpu
from kai.facts.kernels.columns import (
    CPU,
    GPU,
    MEMORY,
    OP_EVICT,
    OP_PIPELINE,
    PIPELINED,
    RELEASING,
    Columns,
    Facts,
    Offsets,
    add,
    undo_to,
)
from kai.facts.kernels.fairness import (
    FAIR,
    Claim,
    Fairness,
    judge,
    mark_greedy,
    may_reclaim,
    may_take_by_model,
    remember,
)
from kai.facts.kernels.filling import fill_victims
from kai.facts.kernels.fit import Rules, Vectors, is_over_user
from kai.facts.kernels.order import Heap, pop
from kai.facts.kernels.place import leave
from kai.facts.kernels.prefix import (
    CHANGES,
    PROPOSED,
    VICTIMS,
    FirstProbe,
    all_lose,
    is_final,
    is_kept,
    only_pod,
    propose_first,
    propose_next,
)
from kai.facts.kernels.trying import FAILED, PLACED, REFUSED, Trial, may_take, promise_chunk, try_victims
from kai.facts.kernels.victims import CHANGED, UNKNOWN, GroupState, least_held, look_again, look_again_at

LEFT, SERVED, LOOK, NO_ROOM, ALONE, FINISHED, INELIGIBLE, ASK = 0, 1, 2, 3, 4, 5, 6, 7
GROUP, STATEMENTS, DECISIONS, LEAST_KNOWN, LEFT_OUT, FAILURES, INELIGIBLES = 0, 1, 2, 3, 4, 5, 6
KIND, POD, NODE, PLACEMENT, VICTIM, AGGRESSOR = 0, 1, 2, 3, 4, 5
COUNT, WIDTH = 3, 6
MOST_FAILURES = 32
"""The most scenarios that may fail in a search before it is left."""


class Reclaiming(Struct):
    """The working memory and results of searches of reclaim."""

    groups: GroupState
    trial: Trial
    probe: FirstProbe
    fairness: Fairness
    greedy: Bools  # [Q] queues that may lose to the aggressor
    pairs: Int64Table  # [Q + 1, 2] memory for finding these
    failed: Bools  # [Q] queues with a group whose search failed: others of them may be passed over
    nodes: Int64s  # [N] all nodes
    node: Int64s  # [1] one of them
    few: int  # how many groups are listed again one by one
    per_change: int  # entries of the journal that one more placement or eviction may take
    # [S, 4] aggressor of each statement, its first decision, how many scenarios failed before, how many groups before
    # it may not reclaim
    served: Int64Table
    ineligible: Int64s  # [G] groups that may not reclaim, in their order
    decided: Int64Table  # [D, 6] kind, pod, node (-1: none), placement; queues of victim and aggressor in messages
    used: Float64Table  # [D, 6] what these two queues held before
    state: Int64s  # [7] group at hand, statements, decisions, whether ``least`` is known, whether a look was left out,
    # scenarios that failed, groups that may not reclaim
    grows: Bools  # [1] a search may go on after a scenario in which the aggressor finds no place
    ranked: bool  # victims are chosen by what they lose, so some searches want a second look
    surplus: Bools  # [1] some group that may lose pods has more than it needs
    skips: Int64s  # [K] second looks to leave out for pods of a shape, if ``asking`` [K] is their queue
    asking: Int64s
    least: Int64s  # [Q] the fewest thousandths of GPUs that a pod of the queue holds that may go; 0: none does


@inner
def _forget_rests(rules: Rules, groups: GroupState, probe: FirstProbe) -> None:
    """Let entries in the heap of victims stand for whole groups again."""
    # Restoring costs a pass over all groups, so it is done only if some entry stands for the rest of its group.
    if probe.prefix.changed[0] > 0:
        copy_table(groups.holding, groups.victims.amounts)
        if rules.elastic_key >= 0:
            for group in range(groups.states.shape[0]):
                groups.victims.keys[group, rules.elastic_key] = groups.states[group]
        probe.prefix.changed[0] = 0


@inner
def _has_room(columns: Columns, reclaiming: Reclaiming) -> bool:
    """Return whether the logs have room for all changes that trying the victims can make."""
    changes = reclaiming.probe.state[CHANGES]
    return (
        columns.journal.shape[0] - columns.cursor[0] >= (changes + 1) * reclaiming.per_change
        and columns.operations.shape[0] - columns.counters[0] > changes
        and columns.placement_slots.shape[0] - columns.counters[1] > changes + 1
    )


@inner
def _is_simple(columns: Columns, probe: FirstProbe, first: int) -> bool:
    """Return whether the statement did nothing but evict all victims and place the aggressor."""
    done = columns.counters[0] - first
    return done == probe.state[VICTIMS] + probe.aggressor.pods.shape[0] and all_lose(columns, probe)


@inner
def _fits_without_them(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    waiting_rules: Rules,
    vectors: Vectors,
    work: Reclaiming,
    mark: int,
    first: int,
) -> bool:
    """Return whether the aggressor fits with only the losing victims gone; then try all victims again.

    Used for an aggressor that requests more than is booked, see ``kai.actions.search.replacing.Replacing.holds``.
    """
    probe, aggressor = work.probe, work.probe.aggressor
    if _is_simple(columns, probe, first):  # the trial itself has shown it
        return True
    victims = probe.victims[: probe.state[VICTIMS]]
    losing = victims.copy()
    count = 0
    for pod in victims:
        if columns.status[pod] == RELEASING or columns.status[pod] == PIPELINED:
            losing[count] = pod
            count += 1
    work.node[0] = columns.node[aggressor.pods[0]]
    undo_to(facts, columns, offsets, mark)
    for pod in losing[:count]:
        if not leave(facts, columns, work.trial.table, pod):
            return False
        evict(facts, columns, offsets, pod)
    fits = may_take(facts, columns, waiting_rules, work.trial, aggressor.group[0], aggressor.pods)
    if fits:
        # It most likely finds its place on the same node again, and any node proves the point: try that one first.
        fits = _places(facts, columns, offsets, waiting_rules, vectors, work, work.node) or _places(
            facts, columns, offsets, waiting_rules, vectors, work, work.nodes
        )
    undo_to(facts, columns, offsets, mark)
    return fits and try_victims(facts, columns, offsets, rules, vectors, work.trial, aggressor, victims) == PLACED


@inner
def _places(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    vectors: Vectors,
    work: Reclaiming,
    nodes: Int64s,
) -> bool:
    """Promise the aggressor, a group of one pod, a place on one of ``nodes``; return whether there is one."""
    pods = work.probe.aggressor.pods
    return promise_chunk(facts, columns, offsets, rules, vectors, work.trial, pods, nodes) == pods.shape[0]


@inner
def _could_stay(facts: Facts, columns: Columns, vectors: Vectors, work: Reclaiming) -> bool:
    """Return whether sums allow that some victim stays; see ``kai.actions.search.second_look.could_stay``."""
    probe = work.probe
    shape = facts.pods.shape[probe.aggressor.pods[0]]
    wanted, mask = requested_gpu(facts, shape), vectors.masks[facts.shapes.mask[shape]]
    if wanted <= 0:
        return True
    room = probe.idle + probe.releasing
    for pod in probe.victims[: probe.state[VICTIMS]]:
        node = columns.evicted_node[pod]
        if columns.status[pod] == RELEASING:
            room[node] += accepted_gpu(facts, facts.pods.shape[pod], node)
    places = 0
    for node in range(room.shape[0]):
        # One pod waits, so no node gives more than one place. An overcommitted node counts below zero, as there.
        places += min(room[node] // wanted, 1) if mask[node] else 0
    for pod in probe.victims[: probe.state[VICTIMS]]:
        node = columns.evicted_node[pod]
        if columns.status[pod] != RELEASING:
            continue
        held, left = accepted_gpu(facts, facts.pods.shape[pod], node), places
        if mask[node]:
            left += min((room[node] - held) // wanted, 1) - min(room[node] // wanted, 1)
        if left >= 1:
            return True
    return False


@inner
def _wants_a_look(facts: Facts, columns: Columns, vectors: Vectors, work: Reclaiming) -> bool:
    """Return whether a second look may find victims other than those of the open statement.

    See ``kai.actions.search.second_look.is_enough``, which rules a look out more often. A look that is left out for a
    while is marked in ``work.state[LEFT_OUT]``.
    """
    work.state[LEFT_OUT] = 0
    if not work.ranked:
        return False
    lost, count = -1, 0
    for pod in work.probe.victims[: work.probe.state[VICTIMS]]:
        if columns.status[pod] == PIPELINED:
            return True
        if columns.status[pod] == RELEASING:
            lost = pod
            count += 1
    if count == 0:
        return False
    aggressor, shape = work.probe.aggressor.pods[0], facts.pods.shape[lost]
    held = accepted_gpu(facts, shape, columns.node[lost])
    wanted = requested_gpu(facts, facts.pods.shape[aggressor])
    if count > 1:
        asked = facts.pods.shape[aggressor]
        queue = facts.groups.queue[work.probe.aggressor.group[0]]
        work.state[LEFT_OUT] = work.skips[asked] > 0 and work.asking[asked] == queue
        return work.state[LEFT_OUT] == 0 or _could_stay(facts, columns, vectors, work)
    if wanted == 0 and held > 0:
        return True
    if held != wanted:
        if work.state[LEAST_KNOWN] == 0:
            least_held(facts, columns, work.groups.losing.member, work.least)
            work.state[LEAST_KNOWN] = 1
        for queue in range(work.least.shape[0]):
            if work.greedy[queue] and 0 < work.least[queue] < held:
                return True
    leaf = facts.pods.leaf[lost]
    return work.surplus[0] and columns.active[leaf] < facts.groups.minimum[leaf]


@inner
def _search(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    waiting_rules: Rules,
    vectors: Vectors,
    work: Reclaiming,
    group: int,
) -> int:
    """Search for ``group``, and leave the result open; see ``reclaim_groups``. Group states must be up to date."""
    groups, trial, probe = work.groups, work.trial, work.probe
    if not probe.plain[group] or only_pod(facts, columns, group) < 0:
        return LEFT
    wanted = groups.wanting[group]
    if not may_reclaim(facts, columns, group, wanted):
        return INELIGIBLE
    # Queues of few groups are owed more of the GPU model that the group is bound to.
    if may_take_by_model(facts, columns, facts.groups.queue[group], facts.groups.bound[group], wanted):
        return LEFT
    if facts.users.limit.shape[0] > 0:
        limits = trial.limits[facts.pods.shape[only_pod(facts, columns, group)]]
        # It may take from its own user alone, which the plain form knows.
        if is_over_user(facts, columns, group, limits[CPU], limits[MEMORY], limits[GPU]):
            return LEFT
    remember(facts, columns, work.fairness.claim, group, wanted)
    mark_greedy(facts, columns, wanted, facts.groups.queue[group], groups.losing.length, work.greedy, work.pairs)
    _forget_rests(rules, groups, probe)
    listing = groups.losing
    fill_victims(facts, columns, rules, groups.victims, listing, groups.by_age, work.greedy, listing.member)
    work.state[FAILURES], trial.table.wants[0] = 0, 0
    mark, first = columns.cursor[0], columns.counters[0]
    found = propose_first(facts, columns, rules, vectors, groups, probe, group)
    while found == PROPOSED:
        if not _has_room(columns, work):
            return NO_ROOM
        victims = probe.victims[: probe.state[VICTIMS]]
        ended = try_victims(facts, columns, offsets, rules, vectors, trial, probe.aggressor, victims)
        if ended == PLACED and _serves(facts, columns, offsets, rules, waiting_rules, vectors, work, mark, first):
            return SERVED
        undo_to(facts, columns, offsets, mark)
        if trial.table.wants[0] > 0:
            return ASK
        work.state[FAILURES] += 1
        if ended != REFUSED or not work.grows[0] or not probe.exact[group] or work.state[FAILURES] > MOST_FAILURES:
            return LEFT
        found = propose_next(facts, columns, rules, vectors, probe)
    return LEFT


@inner
def _serves(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    waiting_rules: Rules,
    vectors: Vectors,
    work: Reclaiming,
    mark: int,
    first: int,
) -> bool:
    """Return whether the trial in which the aggressor found its place, begun at ``mark``, is the result of the search.

    ``first`` is its first operation.
    """
    probe = work.probe
    group = probe.aggressor.group[0]
    victims = probe.victims[: probe.state[VICTIMS]]
    leaf = facts.groups.first_subgroup[group] + 1
    return (
        columns.occupying[leaf] >= facts.groups.minimum[leaf]
        and judge(facts, columns, work.fairness.claim, work.fairness.loss, victims) == FAIR
        and (
            probe.exact[group]
            or _fits_without_them(facts, columns, offsets, rules, waiting_rules, vectors, work, mark, first)
        )
        # Where all victims keep their places, a last probe without known victims begins with the failed scenarios.
        and ((work.state[FAILURES] == 0 and is_kept(columns, probe)) or is_final(facts, columns, vectors, probe))
        and not _wants_a_look(facts, columns, vectors, work)
    )


@inner
def _is_plain(facts: Facts, columns: Columns, work: Reclaiming, first: int) -> bool:
    """Return whether the result can be made final here: no losing group waits, and all decisions fit."""
    for code in work.trial.failed[: work.trial.state[FAILED]]:
        if columns.pending[facts.groups.first_subgroup[code // 2] + 1] > 0:
            return False
    return work.decided.shape[0] - work.state[DECISIONS] >= columns.counters[0] - first


@inner
def _record_queues(facts: Facts, claim: Claim, work: Reclaiming, row: int, pod: int) -> None:
    """Record the two queues in the message about ``pod``, where their paths part, and their usage before."""
    parents = facts.queues.parent
    victim, mine = facts.groups.queue[facts.pods.group[pod]], facts.groups.queue[claim.group[0]]
    if parents[victim] != parents[mine]:
        victim = parents[victim] if parents[victim] >= 0 else victim
        mine = parents[mine] if parents[mine] >= 0 else mine
    work.decided[row, VICTIM] = victim
    work.decided[row, AGGRESSOR] = mine
    for resource in range(COUNT):
        work.used[row, resource] = claim.used[victim, resource]
        work.used[row, COUNT + resource] = claim.used[mine, resource]


@inner
def _write(columns: Columns, work: Reclaiming, kind: int, pod: int) -> int:
    """Record a decision; return its row."""
    row = work.state[DECISIONS]
    work.state[DECISIONS] = row + 1
    work.decided[row, KIND] = kind
    work.decided[row, POD] = pod
    work.decided[row, NODE] = columns.node[pod] if columns.status[pod] == PIPELINED else -1
    work.decided[row, PLACEMENT] = columns.placement[pod]
    return row


@inner
def _make_final(facts: Facts, columns: Columns, offsets: Offsets, work: Reclaiming, group: int, first: int) -> None:
    """Record the decisions of the statement that begins at operation ``first``, and close the statement.

    All of it can still be undone.
    """
    statement = work.state[STATEMENTS]
    work.served[statement, 0] = group
    work.served[statement, 1] = work.state[DECISIONS]
    work.served[statement, 2] = work.state[FAILURES]
    work.served[statement, 3] = work.state[INELIGIBLES]
    work.state[STATEMENTS] = statement + 1
    for at in range(first, columns.counters[0]):
        kind, pod = columns.operations[at, 0], columns.operations[at, 1]
        before = columns.evicted_status[pod]
        if kind == OP_EVICT and before > 0 and before != 1 + PIPELINED:
            _record_queues(facts, work.fairness.claim, work, _write(columns, work, kind, pod), pod)
        elif kind == OP_PIPELINE and columns.status[pod] == PIPELINED and columns.virtual[pod] > 0:
            _write(columns, work, kind, pod)
    for at in range(first, columns.counters[0]):
        pod = columns.operations[at, 1]
        add(columns, offsets.virtual + pod, -columns.virtual[pod])
        add(columns, offsets.evicted_status + pod, -columns.evicted_status[pod])
        add(columns, offsets.evicted_node + pod, -columns.evicted_node[pod])
        add(columns, offsets.evicted_placement + pod, -columns.evicted_placement[pod])


@kernel
def reclaim_groups(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    waiting_rules: Rules,
    vectors: Vectors,
    heap: Heap,
    work: Reclaiming,
    group: int,
    most: int,
) -> int:
    """Search for ``group`` (-1: the next one) and then for groups popped off ``heap``; return why that ended.

    SERVED: there are ``most`` statements. FINISHED: the heap is empty. For any other end, ``work.state[GROUP]`` was
    popped, and neither served nor noted. LEFT: it needs the plain form. ASK: the plugin has to give the answers of
    ``work.trial.table.wanted``; do so and call again. LOOK: groups changed that only the caller can
    describe or list; do so and call again. NO_ROOM: the logs have room for fewer than ``work.probe.state[CHANGES]``
    changes. ALONE: the search succeeds, but cannot be made final here. Then call with ``most`` 0 for that group: the
    result is SERVED with an open statement, ``work.probe`` has the victims, ``work.trial`` the groups that found no
    other place. Groups that may not reclaim are noted in ``work.ineligible``.
    Holds: the same evictions and promises as plain searches. All changes since the call can be undone.
    Cost: for each search a look at the epoch of each group, at the lists of greedy queues, and at each node.
    """
    groups, looked = work.groups, False
    while most == 0 or work.state[STATEMENTS] < most:
        if group < 0:
            group = pop(facts, columns, rules, heap)
        if group < 0:
            return FINISHED
        work.state[GROUP] = group
        # The plain form can compare this group with the one that failed, and pass it over with a reason.
        if work.failed[facts.groups.queue[group]]:
            return LEFT
        if not looked:
            look_again(facts, columns, rules, groups, work.few)
        if groups.state[UNKNOWN] > 0 or groups.state[CHANGED] > work.few:
            return LOOK
        mark, first = columns.cursor[0], columns.counters[0]
        ended = _search(facts, columns, offsets, rules, waiting_rules, vectors, work, group)
        if ended == INELIGIBLE and most > 0:
            work.ineligible[work.state[INELIGIBLES]] = group
            work.state[INELIGIBLES] += 1
            group, looked = -1, True
            continue
        if ended != SERVED:
            return ended
        if most > 0 and not _is_plain(facts, columns, work, first):
            undo_to(facts, columns, offsets, mark)
            return ALONE
        if work.state[LEFT_OUT]:
            work.skips[facts.pods.shape[work.probe.aggressor.pods[0]]] -= 1
        if most == 0:
            return ended
        _make_final(facts, columns, offsets, work, group, first)
        leaf = facts.groups.first_subgroup[group] + 1
        work.surplus[0] = work.surplus[0] or columns.active[leaf] > facts.groups.minimum[leaf]
        # All other changes in between were undone.
        operations = columns.operations[first : columns.counters[0]]
        look_again_at(facts, columns, rules, groups, work.few, operations)
        group, looked = -1, True
    return SERVED
