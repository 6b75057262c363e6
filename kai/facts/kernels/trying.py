"""Simulates one set of victims: evicts them, and promises places to the aggressor and to all affected groups.

It is one call without Python objects. It serves victims and aggressors that have one leaf and whose pods need only
static answers of plugins, or answers from a table of states. The plain form is in ``kai.actions.search.solver``.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64s, Float64Table, Int64s, Struct
from kai.facts.kernels.arrays import ascending, copy
from kai.facts.kernels.booking import evict
from kai.facts.kernels.columns import SHARED_RESOURCES, Columns, Facts, Offsets, undo_to
from kai.facts.kernels.filling import Kept, Listing, fill_waiting, usable
from kai.facts.kernels.fit import ACCEPTED, Rules, Vectors, over_capacity
from kai.facts.kernels.groups import elastic_state, next_chunk
from kai.facts.kernels.order import Heap, pop, push
from kai.facts.kernels.place import NOT_ANSWERED, TransitionTable, leave, place_pods, promise_by_table

PLACED, REFUSED, UNPREPARED, UNANSWERED = 0, 1, 2, 3
FAILED, POD = 0, 1


class Trial(Struct):
    """The working memory of the trials of one search. Group states are those at the beginning of the search."""

    heap: Heap
    queued: Listing  # waiting groups, best first
    kept: Kept  # the heap as the trial before left it
    age: Float64s  # [G] the older, the smaller
    states: Float64s  # [G] elastic state
    wanting: Float64Table  # [G, 3] what the next chunk of each waiting group wants
    requested: Float64Table  # [K, 3] what a pod of each shape is assumed to request when groups are ordered
    limits: Float64Table  # [K, 3] what a pod of each shape is assumed to request when limits are checked
    prepared: Bools  # [K] shapes for which ``vectors`` hold the answers
    affected: Bools  # [G] groups that lose pods, and the aggressor's
    nodes: Int64s  # [N]
    extra: Float64s  # [N]
    chunk: Int64s  # [...]
    failed: Int64s  # [G] twice the group, plus one if some of its pods had found a place
    state: Int64s  # [2] how many failed; a pod of a shape that is not prepared
    table: TransitionTable  # what a plugin answers about nodes as pods leave and come


class Aggressor(Struct):
    """The part of a group to place."""

    group: Int64s  # [1]
    pods: Int64s
    elastic: Float64s  # [1]
    amounts: Float64s  # [3]
    feasible: Bools  # [N] nodes that may have room without taking anything


@inner
def _affect(facts: Facts, trial: Trial, victims: Int64s, mine: int) -> Int64s:
    """Return the groups of ``victims``, oldest first, and mark them."""
    trial.affected[:] = False
    groups = np.empty(victims.shape[0], np.int64)
    count = 0
    for pod in victims:
        group = facts.pods.group[pod]
        if not trial.affected[group] and group != mine:
            trial.affected[group] = True
            groups[count] = group
            count += 1
    trial.affected[mine] = True
    groups = groups[:count]
    ages = np.empty(count, np.float64)
    for at in range(count):
        ages[at] = trial.age[groups[at]]
    return groups[ascending(ages)]


@inner
def _describe(facts: Facts, columns: Columns, rules: Rules, trial: Trial, group: int) -> None:
    """Update key and amounts of an affected group in the heap, after its victims were evicted."""
    heap = trial.heap
    if rules.elastic_key >= 0:
        heap.keys[group, rules.elastic_key] = elastic_state(facts, columns, group)
    heap.amounts[group, :] = 0.0
    leaf = facts.groups.first_subgroup[group] + 1
    for at in range(next_chunk(facts, columns, leaf, trial.chunk)):
        for resource in range(SHARED_RESOURCES):
            heap.amounts[group, resource] += trial.requested[facts.pods.shape[trial.chunk[at]], resource]


@inner
def _fill(facts: Facts, columns: Columns, rules: Rules, trial: Trial, groups: Int64s, aggressor: Aggressor) -> None:
    """Fill the heap with waiting groups and the affected ``groups`` [n], as if pushed by age; then the aggressor."""
    heap, queued, mine = trial.heap, trial.queued, aggressor.group[0]
    if usable(facts, mine):
        queued.changed[heap.queue[mine]] = True
    fill_waiting(facts, columns, rules, heap, trial.kept, queued, trial.affected, trial.age, groups)
    if rules.elastic_key >= 0:
        heap.keys[mine, rules.elastic_key] = aggressor.elastic[0]
    copy(aggressor.amounts, heap.amounts[mine])
    push(facts, columns, rules, heap, mine)
    if usable(facts, mine):
        queued.changed[heap.queue[mine]] = True


@inner
def _reach(columns: Columns, trial: Trial, aggressor: Aggressor, victims: Int64s) -> Int64s:
    """Return the nodes that pods may go to, ascending."""
    marked = aggressor.feasible.copy()
    for pod in victims:
        if columns.node[pod] >= 0:
            marked[columns.node[pod]] = True
    count = 0
    for node in range(marked.shape[0]):
        if marked[node]:
            trial.nodes[count] = node
            count += 1
    return trial.nodes[:count]


@inner
def may_take(facts: Facts, columns: Columns, rules: Rules, trial: Trial, group: int, chunk: Int64s) -> bool:
    """Return whether the queues above ``group`` may take ``chunk``."""
    if not rules.limits or facts.groups.queue[group] < 0:
        return True
    cpu, memory, gpu = 0.0, 0.0, 0.0
    for pod in chunk:
        shape = facts.pods.shape[pod]
        cpu += trial.limits[shape, 0]
        memory += trial.limits[shape, 1]
        gpu += trial.limits[shape, 2]
    return over_capacity(facts, columns, group, cpu, memory, gpu, False) == ACCEPTED


@inner
def _restore(rules: Rules, trial: Trial, groups: Int64s, mine: int) -> None:
    """Restore in the heap the keys and amounts of ``groups`` and the aggressor from before the trial."""
    for at in range(groups.shape[0] + 1):
        group = groups[at] if at < groups.shape[0] else mine
        if rules.elastic_key >= 0:
            trial.heap.keys[group, rules.elastic_key] = trial.states[group]
        copy(trial.wanting[group], trial.heap.amounts[group])


@inner
def _last(facts: Facts, trial: Trial, groups: Int64s, aggressor: Aggressor) -> int:
    """Return the only group left of the affected ``groups`` and the aggressor; other turns no longer matter."""
    for group in groups:
        if trial.affected[group] and usable(facts, group):
            return group
    return aggressor.group[0]


@inner
def promise_chunk(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    vectors: Vectors,
    trial: Trial,
    chunk: Int64s,
    nodes: Int64s,
) -> int:
    """Promise places to the pods of ``chunk`` until one finds no node; return how many have one, or NOT_ANSWERED."""
    for pod in chunk:
        if trial.table.ask[facts.pods.shape[pod]] >= 0:
            table = trial.table
            return promise_by_table(facts, columns, offsets, rules, vectors, table, chunk, nodes, trial.extra)
    return place_pods(facts, columns, offsets, rules, vectors, chunk, nodes, trial.extra, True)


@inner
def _settle(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    vectors: Vectors,
    trial: Trial,
    nodes: Int64s,
    aggressor: Aggressor,
    groups: Int64s,
) -> int:
    """Give every affected group one attempt, in the order of the heap."""
    ended = REFUSED
    remaining = 1
    for group in groups:
        remaining += int(usable(facts, group))
    while remaining > 0:
        group = pop(facts, columns, rules, trial.heap) if remaining > 1 else _last(facts, trial, groups, aggressor)
        if group < 0:
            break
        # A pop moves queues on the way to its leaf, and no others.
        trial.queued.changed[trial.heap.queue[group]] = True
        if not trial.affected[group]:
            continue
        trial.affected[group] = False
        remaining -= 1
        mine = group == aggressor.group[0]
        chunk = aggressor.pods
        if not mine:
            chunk = trial.chunk[: next_chunk(facts, columns, facts.groups.first_subgroup[group] + 1, trial.chunk)]
        for pod in chunk:
            if not trial.prepared[facts.pods.shape[pod]]:
                trial.state[POD] = pod
                return UNPREPARED
        begun = columns.cursor[0]
        placed = 0
        if chunk.shape[0] > 0 and may_take(facts, columns, rules, trial, group, chunk):
            placed = promise_chunk(facts, columns, offsets, rules, vectors, trial, chunk, nodes)
        if placed == NOT_ANSWERED:
            return UNANSWERED
        # An empty chunk is a failure: the caller computes the next chunks of failed groups.
        fits = 0 < placed == chunk.shape[0]
        if fits:
            ended = PLACED if mine else ended
            continue
        if mine:
            return REFUSED
        undo_to(facts, columns, offsets, begun)
        trial.failed[trial.state[FAILED]] = 2 * group + int(placed > 0)
        trial.state[FAILED] += 1
    return ended


@kernel
def try_victims(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    vectors: Vectors,
    trial: Trial,
    aggressor: Aggressor,
    victims: Int64s,
) -> int:
    """Evict ``victims`` and place all affected groups again, the aggressor included; return the outcome.

    PLACED: the aggressor has its places. REFUSED: it does not. UNPREPARED: plugins have not answered yet for the shape
    of ``trial.state[POD]``. UNANSWERED: ``trial.table`` lacks an answer, see ``leave`` and ``promise_by_table``.
    The caller decides what to keep; only failed attempts of other groups are undone here.
    Holds: the same promises in the same order as the Python path.
    Cost: that of ``fill_waiting`` and of pops up to the aggressor's turn; O(nodes in reach) for each pod.
    """
    trial.state[:] = 0
    groups = _affect(facts, trial, victims, aggressor.group[0])
    nodes = _reach(columns, trial, aggressor, victims)
    for pod in victims:
        if not leave(facts, columns, trial.table, pod):
            return UNANSWERED
        evict(facts, columns, offsets, pod)
    for group in groups:
        _describe(facts, columns, rules, trial, group)
    _fill(facts, columns, rules, trial, groups, aggressor)
    ended = _settle(facts, columns, offsets, rules, vectors, trial, nodes, aggressor, groups)
    _restore(rules, trial, groups, aggressor.group[0])
    return ended
