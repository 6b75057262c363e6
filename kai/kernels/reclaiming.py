"""Searches of reclaim, many in one call: for groups of one pod, by the rules of fair shares, by first scenarios.

Most searches of reclaim are that. Whether a group may take, from whom, whose turn it is to lose, what happens then
and whether that is fair follows from columns, so the searches need no Python. One after the other is made final, and
what it decided is written down. Any other search, and each that does not succeed at once, is left as if it had not been
tried: the caller makes it, and calls again.
"""

from kai.kernels._jit import inner, kernel
from kai.kernels.arrays import copy_table
from kai.kernels.booking import accepted_gpu, evict, requested_gpu
from kai.kernels.columns import (
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
from kai.kernels.fairness import FAIR, Claim, Fairness, judge, mark_greedy, may_reclaim, remember
from kai.kernels.filling import fill_victims
from kai.kernels.first_probe import (
    CHANGES,
    PROPOSED,
    VICTIMS,
    FirstProbe,
    all_lose,
    is_final,
    is_kept,
    only_pod,
    propose_first,
)
from kai.kernels.fit import Rules, Vectors
from kai.kernels.order import Heap, pop
from kai.kernels.place import place_pods
from kai.kernels.struct import Bools, Float64Table, Int64s, Int64Table, Struct
from kai.kernels.trying import FAILED, PLACED, Trial, may_take, try_victims
from kai.kernels.victims import CHANGED, UNKNOWN, GroupState, look_again, look_again_at

LEFT, SERVED, LOOK, NO_ROOM, ALONE, FINISHED = 0, 1, 2, 3, 4, 5
GROUP, STATEMENTS, DECISIONS = 0, 1, 2
KIND, POD, NODE, PLACEMENT, VICTIM, AGGRESSOR = 0, 1, 2, 3, 4, 5
COUNT, WIDTH = 3, 6


class Reclaiming(Struct):
    """What searches of reclaim work with, and what they leave behind."""

    groups: GroupState
    trial: Trial
    probe: FirstProbe
    fairness: Fairness
    greedy: Bools  # [Q] queues that may lose to the aggressor
    failed: Bools  # [Q] queues with a group whose search failed: others of them may be passed over
    nodes: Int64s  # [N] all nodes
    node: Int64s  # [1] one of them
    few: int  # how many groups are listed again one by one
    per_change: int  # entries of the journal that one more placement or eviction may take
    served: Int64Table  # [S, 2] aggressor of each statement, its first decision
    decided: Int64Table  # [D, 6] kind, pod, node (-1: none), placement; queues of victim and aggressor that are told of
    used: Float64Table  # [D, 6] what these two queues held before
    state: Int64s  # [3] group at hand, statements, decisions
    ranked: bool  # victims are chosen by what they lose, so some searches want a second look
    surplus: Bools  # [1] some group that may lose pods has more than it needs


@inner
def _forget_rests(rules: Rules, groups: GroupState, probe: FirstProbe) -> None:
    """Let entries of the heap of victims stand for whole groups again."""
    if probe.prefix.changed[0] > 0:
        copy_table(groups.holding, groups.victims.amounts)
        if rules.elastic_key >= 0:
            for group in range(groups.states.shape[0]):
                groups.victims.keys[group, rules.elastic_key] = groups.states[group]
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


@inner
def _is_simple(columns: Columns, probe: FirstProbe, first: int) -> bool:
    """Say whether the statement evicted all victims and placed the aggressor, and did nothing else."""
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
    """Say whether the aggressor finds a place with only those victims gone that lost theirs, then try them all again.

    Asked where an aggressor asks for more than is booked for it, see ``kai.actions.search.replacing.Replacing.repeat``.
    """
    probe, aggressor = work.probe, work.probe.aggressor
    if _is_simple(columns, probe, first):  # it found its place just so
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
        evict(facts, columns, offsets, pod)
    fits = may_take(facts, columns, waiting_rules, work.trial, aggressor.group[0], aggressor.pods)
    if fits:
        # Where it found its place it will find it again, most likely, and any node is as good.
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
    """Promise the aggressor, a group of one pod, a place on one of ``nodes``; say whether there is one."""
    pods, extra = work.probe.aggressor.pods, work.trial.extra
    return place_pods(facts, columns, offsets, rules, vectors, pods, nodes, extra, True) == pods.shape[0]


@inner
def _wants_a_look(facts: Facts, columns: Columns, work: Reclaiming) -> bool:
    """Say whether a second look may find other victims than those of the open statement.

    See ``kai.actions.search.second_look.is_enough``, which says no oftener.
    """
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
    if count > 1 or held != requested_gpu(facts, facts.pods.shape[aggressor]):
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
    """Search for ``group``, and leave open what is found; see ``reclaim_groups``. What is known of groups is new."""
    groups, trial, probe = work.groups, work.trial, work.probe
    if not probe.plain[group] or only_pod(facts, columns, group) < 0:
        return LEFT
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
    mark, first = columns.cursor[0], columns.counters[0]
    victims = probe.victims[: probe.state[VICTIMS]]
    if try_victims(facts, columns, offsets, rules, vectors, trial, probe.aggressor, victims) == PLACED:
        leaf = facts.groups.first_subgroup[group] + 1
        if (
            columns.occupying[leaf] >= facts.groups.minimum[leaf]
            and judge(facts, columns, work.fairness.claim, work.fairness.loss, victims) == FAIR
            and (
                probe.exact[group]
                or _fits_without_them(facts, columns, offsets, rules, waiting_rules, vectors, work, mark, first)
            )
            and (is_kept(columns, probe) or is_final(facts, columns, vectors, probe))
            and not _wants_a_look(facts, columns, work)
        ):
            return SERVED
    undo_to(facts, columns, offsets, mark)
    return LEFT


@inner
def _is_plain(facts: Facts, columns: Columns, work: Reclaiming, first: int) -> bool:
    """Say whether what was found can be made final here: no group that lost waits, and it can all be written down."""
    for code in work.trial.failed[: work.trial.state[FAILED]]:
        if columns.pending[facts.groups.first_subgroup[code // 2] + 1] > 0:
            return False
    return work.decided.shape[0] - work.state[DECISIONS] >= columns.counters[0] - first


@inner
def _tell(facts: Facts, claim: Claim, work: Reclaiming, row: int, pod: int) -> None:
    """Note which two queues a message about ``pod`` is of, where their paths part, and what they held before."""
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
    """Write a decision down; return its row."""
    row = work.state[DECISIONS]
    work.state[DECISIONS] = row + 1
    work.decided[row, KIND] = kind
    work.decided[row, POD] = pod
    work.decided[row, NODE] = columns.node[pod] if columns.status[pod] == PIPELINED else -1
    work.decided[row, PLACEMENT] = columns.placement[pod]
    return row


@inner
def _make_final(facts: Facts, columns: Columns, offsets: Offsets, work: Reclaiming, group: int, first: int) -> None:
    """Write down what the statement decided whose operations begin with ``first``, and let it be no open one.

    All of it can still be undone.
    """
    statement = work.state[STATEMENTS]
    work.served[statement, 0] = group
    work.served[statement, 1] = work.state[DECISIONS]
    work.state[STATEMENTS] = statement + 1
    for at in range(first, columns.counters[0]):
        kind, pod = columns.operations[at, 0], columns.operations[at, 1]
        before = columns.evicted_status[pod]
        if kind == OP_EVICT and before > 0 and before != 1 + PIPELINED:
            _tell(facts, work.fairness.claim, work, _write(columns, work, kind, pod), pod)
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
    """Search for ``group`` (-1: the next one) and for those that come off ``heap`` then; return why that ended.

    SERVED: there are ``most`` statements; FINISHED: the heap is empty. For any other end ``work.state[GROUP]`` was
    popped and not served. LEFT: it is for the plain form. LOOK: groups changed that only the caller can describe or
    list, then call again. NO_ROOM: the logs hold fewer than ``work.probe.state[CHANGES]`` changes. ALONE: it would be
    served, but that cannot be made final here: call with ``most`` 0 for that group. Then it is SERVED with its
    statement open: ``work.probe`` has the victims, ``work.trial`` the groups that found no other place.
    Holds: the same evictions and promises as the searches the long way, which would succeed with their first scenarios.
        Everything since the call can be undone.
    Cost: for each search a look at the epoch of each group, at what is listed of greedy queues, and at each node.
    """
    groups, looked = work.groups, False
    while most == 0 or work.state[STATEMENTS] < most:
        if group < 0:
            group = pop(facts, columns, rules, heap)
        if group < 0:
            return FINISHED
        work.state[GROUP] = group
        if work.failed[facts.groups.queue[group]]:
            return LEFT
        if not looked:
            look_again(facts, columns, rules, groups, work.few)
        if groups.state[UNKNOWN] > 0 or groups.state[CHANGED] > work.few:
            return LOOK
        mark, first = columns.cursor[0], columns.counters[0]
        ended = _search(facts, columns, offsets, rules, waiting_rules, vectors, work, group)
        if ended != SERVED or most == 0:
            return ended
        if not _is_plain(facts, columns, work, first):
            undo_to(facts, columns, offsets, mark)
            return ALONE
        _make_final(facts, columns, offsets, work, group, first)
        leaf = facts.groups.first_subgroup[group] + 1
        work.surplus[0] = work.surplus[0] or columns.active[leaf] > facts.groups.minimum[leaf]
        # Whatever else changed in between was undone.
        operations = columns.operations[first : columns.counters[0]]
        look_again_at(facts, columns, rules, groups, work.few, operations)
        group, looked = -1, True
    return SERVED
