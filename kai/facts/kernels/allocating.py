"""The allocate loop as one kernel: pop the next group, place its chunk, keep or undo it, push the group back.

It serves *plain* groups: those with one leaf whose pods need only static answers of plugins. It also serves groups that
differ from these only in a tree of domains: one domain takes all their pods. It returns to Python for any other
group, for a group that does not fit into the first domain, and for a refusal that needs a message; then it is called
again. ``kai.actions.allocate`` is the plain form; the test suite compares the two.

For some shapes a plugin has counted how many more pods each node takes (``kai.framework.hooks.Batch``). The kernel
counts on from there, and the plugin says what each pod got once the kernel has returned. Until then nothing else may
change what the plugin counts: groups that would are left to Python.
"""

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.booking import is_shared, pipeline, set_status, unallocate
from kai.facts.kernels.columns import (
    ALLOCATED,
    BINDING,
    CPU,
    GPU,
    MEMORY,
    OP_ALLOCATE,
    OP_PIPELINE,
    PIPELINED,
    Columns,
    Facts,
    Offsets,
    add,
    make_final,
    undo_to,
)
from kai.facts.kernels.domains import DomainTrees, place_in_domain
from kai.facts.kernels.fit import (
    ACCEPTED,
    REFUSED_OVER_BUDGET,
    Rules,
    Vectors,
    gpu_on_node,
    over_capacity,
    over_model,
)
from kai.facts.kernels.groups import elastic_state, next_chunk
from kai.facts.kernels.order import Heap, pop_steady, push
from kai.facts.kernels.place import put
from kai.facts.kernels.score import ShapeIndex, best, drop, forget_room, refresh, room_left, take_room

FINISHED, NOT_PLAIN, NO_ROOM, REFUSED, RECOUNT = 0, 1, 2, 3, 4
SAME_REFUSALS = 4096


class Work(Struct):
    """The working memory and results of the loop, besides the session's columns."""

    plain: Bools  # [G] plain groups
    amounts: Float64Table  # [K, 3] what a pod of each shape is assumed to request when groups are ordered
    limits: Float64Table  # [K, 3] what a pod of each shape is assumed to request when limits are checked
    decided: Int64Table  # [D, 3] operation, pod, statement; in order
    statements: Int64Table  # [D, 3] group, whether it waits, whether it had started before
    refused: Int64Table  # [D, 3] group, pod (-1: the queues are full), group whose refusal was put into words
    short: Int64Table  # [K, 2] shapes for which all nodes lack something: at which stamp, group put into words
    refusals: Int64Table  # [4096, 4] class of groups, stamp, group put into words, pods that the queues refused at once
    state: Int64s  # [9] the numbers below: where logs end, the refusal at hand, and a group whose turn it is
    chunk: Int64s  # [...] pods of the chunk at hand
    counting: Int64s  # [1] where the room begins that pods took since plugins completed the last batch, -1: none


DECISIONS, STATEMENTS, REFUSALS, STAMP, GROUP, POD, PLACED, CODE, HELD = 0, 1, 2, 3, 4, 5, 6, 7, 8
# GROUP to CODE are about the refusal at hand; HELD is the group whose turn it is once room is counted again, -1: none.


@inner
def _class_of(facts: Facts, shape: int, group: int) -> int:
    """Return the class of groups whose first pods are refused alike: same shape, queue, preemptibility, user and end.

    Two ends count as one if the quota of no queue falls between them.
    """
    queues, falls = facts.queues.parent.shape[0], facts.queues.falls.shape[0]
    alike = (shape * queues + facts.groups.queue[group]) * 2 + int(facts.groups.preemptible[group])
    accounts = facts.users.limit.shape[0]
    if accounts > 0:
        alike = alike * (accounts + 1) + facts.users.binding[group] + 1
    return alike * (falls + 1) + facts.groups.ahead[group]


@inner
def _place(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    free_rules: Rules,
    vectors: Vectors,
    index: ShapeIndex,
    pod: int,
    group: int,
) -> bool:
    """Place one pod on the best node that takes it. ``free_rules`` are the rules without the check of capacity."""
    shape = facts.pods.shape[pod]
    refresh(facts, columns, free_rules, vectors, index, shape)
    dropped = False
    placed = False
    while True:
        node = best(index, shape)
        if node < 0:
            break
        fits = True
        if rules.limits and is_shared(facts, shape):
            cpu, memory = facts.shapes.request[shape, CPU], facts.shapes.request[shape, MEMORY]
            gpu = gpu_on_node(facts, shape, node)
            fits = over_capacity(facts, columns, group, float(cpu), float(memory), float(gpu), False) == ACCEPTED
        if rules.limits and fits:
            fits = not over_model(facts, columns, shape, group, node)
        if fits and put(facts, columns, offsets, rules, pod, node, False):
            if index.rooms.start[index.row[shape]] >= 0:
                take_room(columns, offsets, index.rooms, index.row[shape], node)
            placed = True
            break
        drop(index, shape, node)
        dropped = True
    if dropped:
        # Nodes were dropped for this pod alone. The next pod of the shape must find them again.
        index.seen[index.row[shape]] = -1
    return placed


@inner
def _promise_all(facts: Facts, columns: Columns, offsets: Offsets) -> None:
    """Turn the allocations of the open statement into promises."""
    for at in range(columns.counters[0]):
        pod = columns.operations[at, 1]
        if columns.operations[at, 0] == OP_ALLOCATE and columns.status[pod] == ALLOCATED:
            node, placement = columns.node[pod], columns.placement[pod]
            unallocate(facts, columns, offsets, pod)
            pipeline(facts, columns, offsets, pod, node, placement, False)


@inner
def _commit(
    facts: Facts, columns: Columns, offsets: Offsets, work: Work, group: int, waits: bool, started: bool
) -> None:
    """Commit the open statement and append its decisions to ``work``."""
    statement = work.state[STATEMENTS]
    for at in range(columns.counters[0]):
        kind, pod = columns.operations[at, 0], columns.operations[at, 1]
        bound = kind == OP_ALLOCATE and columns.status[pod] == ALLOCATED
        if not bound and not (kind == OP_PIPELINE and columns.status[pod] == PIPELINED):
            continue
        if bound:
            set_status(facts, columns, offsets, pod, BINDING)
        add(columns, offsets.virtual + pod, -columns.virtual[pod])
        row = work.state[DECISIONS]
        work.decided[row, 0] = kind
        work.decided[row, 1] = pod
        work.decided[row, 2] = statement
        work.state[DECISIONS] = row + 1
    work.statements[statement, 0] = group
    work.statements[statement, 1] = int(waits)
    work.statements[statement, 2] = int(started)
    work.state[STATEMENTS] = statement + 1
    work.state[STAMP] += 1
    make_final(columns)


@inner
def _describe(facts: Facts, columns: Columns, rules: Rules, heap: Heap, work: Work, group: int) -> None:
    """Bring the group's key and amounts in the heap up to date."""
    leaf = facts.groups.first_subgroup[group] + 1
    if rules.elastic_key >= 0:
        heap.keys[group, rules.elastic_key] = elastic_state(facts, columns, group)
    heap.amounts[group, :] = 0.0
    for at in range(next_chunk(facts, columns, leaf, work.chunk)):
        for resource in range(3):
            heap.amounts[group, resource] += work.amounts[facts.pods.shape[work.chunk[at]], resource]


@inner
def _refuse(work: Work, group: int, pod: int, placed: int, code: int) -> int:
    work.state[GROUP] = group
    work.state[POD] = pod
    work.state[PLACED] = placed
    work.state[CODE] = code
    return REFUSED


@inner
def _is_known(work: Work, alike: int, count: int) -> bool:
    """Return whether a refusal of this class has a message already and still holds.

    ``count``: the number of pods that the queues refused at once, 0 for a first pod that no node took.
    """
    row = alike % SAME_REFUSALS
    return (
        work.refusals[row, 0] == alike and work.refusals[row, 1] == work.state[STAMP] and work.refusals[row, 3] == count
    )


@inner
def _remember(work: Work, alike: int, group: int, count: int) -> None:
    row = alike % SAME_REFUSALS
    # A table of fixed size without chains: a class that another one displaced is explained once more, which is slow and
    # right.
    work.refusals[row, 0] = alike
    work.refusals[row, 1] = work.state[STAMP]
    work.refusals[row, 2] = group
    work.refusals[row, 3] = count


@inner
def _note_same(work: Work, group: int, pod: int, source: int) -> None:
    """Note that ``group`` is refused for the reason that the group ``source`` got."""
    row = work.state[REFUSALS]
    work.refused[row, 0] = group
    work.refused[row, 1] = pod
    work.refused[row, 2] = source
    work.state[REFUSALS] = row + 1


@inner
def _source(columns: Columns, work: Work, alike: int, shape: int, leaf: int) -> int:
    """Return the group whose reason a first pod of ``shape`` gets that no node takes; -1 if that is not known.

    A group of the same class has the same reason. Where all nodes are short of something, queues do not matter, and
    any group without a running pod has it.
    """
    if _is_known(work, alike, 0):
        return work.refusals[alike % SAME_REFUSALS, 2]
    is_short = work.short[shape, 0] == work.state[STAMP] and columns.occupying[leaf] == 0
    return work.short[shape, 1] if is_short else -1


@inner
def _is_short(columns: Columns, work: Work, room: int) -> bool:
    """Return whether some log might lack room for one more group."""
    return (
        columns.journal.shape[0] - columns.cursor[0] < room
        or work.decided.shape[0] - work.state[DECISIONS] < work.chunk.shape[0]
        or work.statements.shape[0] - work.state[STATEMENTS] < 1
        or work.refused.shape[0] - work.state[REFUSALS] < 1
        or columns.placement_slots.shape[0] - columns.counters[1] < work.chunk.shape[0] + 2
    )


@inner
def _sum(facts: Facts, work: Work, first: int, count: int) -> tuple[bool, float, float, float]:
    """Return whether the chunk's pods all have shape ``first``, and their total request for limits."""
    uniform = True
    cpu, memory, gpu = 0.0, 0.0, 0.0
    for at in range(count):
        shape = facts.pods.shape[work.chunk[at]]
        uniform = uniform and shape == first
        cpu += work.limits[shape, CPU]
        memory += work.limits[shape, MEMORY]
        gpu += work.limits[shape, GPU]
    return uniform, cpu, memory, gpu


@inner
def _room_of(facts: Facts, index: ShapeIndex, work: Work, count: int) -> int:
    """Return where the room for the chunk's pods begins, -1 if none is counted, -2 if it is not the same for all."""
    found = -3
    for at in range(count):
        row = index.row[facts.pods.shape[work.chunk[at]]]
        room = -1 if row < 0 else index.rooms.start[row]
        if found != -3 and room != found:
            return -2
        found = room
    return found


@inner
def _is_spent(columns: Columns, index: ShapeIndex, shape: int, node: int) -> bool:
    """Return whether the plugin rates ``node`` anew from here on for pods that ask for what ``shape`` does.

    The node may be full for this shape. Others with the same ask may request less of what the engine counts.
    """
    row = index.row[shape]
    if index.rated[row] < 0 or not index.ends[index.rated[row], node]:
        return False
    return room_left(columns, index.rooms, row, node) <= 0


@inner
def _may_draw(index: ShapeIndex, work: Work, shape: int) -> bool:
    """Return whether the count for pods of ``shape`` holds, whatever was placed by another one since then."""
    row = index.row[shape]
    return index.rooms.independent[row] or work.counting[0] < 0 or work.counting[0] == index.rooms.start[row]


@inner
def _only_allocated(columns: Columns, work: Work, count: int) -> bool:
    """Return whether all pods of the chunk that got a place may start now."""
    for at in range(count):
        if columns.status[work.chunk[at]] != ALLOCATED:
            return False
    return True


@kernel
def allocate_groups(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    free_rules: Rules,
    vectors: Vectors,
    index: ShapeIndex,
    trees: DomainTrees,
    heap: Heap,
    work: Work,
    room: int,
) -> int:
    """Serve groups from ``heap`` until one needs Python; return the reason.

    FINISHED: the heap is empty. NOT_PLAIN: ``work.state[GROUP]`` was popped and needs Python. NO_ROOM: the logs
    have room for fewer than ``room`` more changes, the least that any group needs. RECOUNT: the plugin must count and
    rate again, because the room of a node ended where its rating changes, or because ``work.state[HELD]``, which was
    popped and comes next, has another ask. REFUSED: the group of ``work.state``
    could not be placed; its statement is still open, so that the refusal can be explained. Undo it and go on.
    Holds: the same decisions in the same order as the Python path.
    Cost:  a few microseconds for each group, and O(log N) for each pod.
    """
    while True:
        if _is_short(columns, work, room):
            return NO_ROOM
        # Serving a group changes only its own key, so the other entries stay valid in the heap.
        group, work.state[HELD] = work.state[HELD], -1
        if group < 0:
            group = pop_steady(facts, columns, rules, heap)
        if group < 0:
            return FINISHED
        work.state[GROUP] = group
        kind = trees.kind[group]
        if not work.plain[group] and kind < 0:
            return NOT_PLAIN
        leaf = facts.groups.first_subgroup[group] + 1
        count = next_chunk(facts, columns, leaf, work.chunk)
        if count == 0:
            continue
        first = facts.pods.shape[work.chunk[0]]
        room_at = -1 if kind >= 0 else _room_of(facts, index, work, count)
        # What is left of a count depends on all that was placed by another one, which its plugin does not know yet.
        if room_at == -2 or (room_at >= 0 and columns.pipelined[leaf] > 0):
            return NOT_PLAIN
        if room_at >= 0 and not _may_draw(index, work, first):
            work.state[HELD] = group
            return RECOUNT
        alike = _class_of(facts, first, group)
        uniform, cpu, memory, gpu = _sum(facts, work, first, count)
        # A tree counts the places for one shape; pods of several shapes would have to be counted together.
        if kind >= 0 and (not uniform or trees.counted[first] < 0):
            return NOT_PLAIN
        if rules.limits:
            code = over_capacity(facts, columns, group, cpu, memory, gpu, False)
            if code == REFUSED_OVER_BUDGET:
                return _refuse(work, group, -1, 0, code)  # groups of a class may run for different times
            if code != ACCEPTED:
                if uniform and _is_known(work, alike, count):
                    _note_same(work, group, -1, work.refusals[alike % SAME_REFUSALS, 2])
                    continue
                if uniform:
                    _remember(work, alike, group, count)
                return _refuse(work, group, -1, 0, code)
        started = columns.counted[group] > 0
        placed, spent = 0, False
        if kind >= 0:
            mark, pods = columns.cursor[0], work.chunk[:count]
            if place_in_domain(facts, columns, offsets, rules, vectors, trees, kind, leaf, pods) < count:
                # Python tries the other domains, so it has to begin without the pods of this try.
                undo_to(facts, columns, offsets, mark)
                return NOT_PLAIN
        else:
            source = _source(columns, work, alike, first, leaf)
            if source >= 0:
                _note_same(work, group, work.chunk[0], source)
                continue
            mark = columns.cursor[0]
            while (
                placed < count
                and not spent
                and _place(facts, columns, offsets, rules, free_rules, vectors, index, work.chunk[placed], group)
            ):
                pod = work.chunk[placed]
                placed += 1
                spent = room_at >= 0 and _is_spent(columns, index, facts.pods.shape[pod], columns.node[pod])
            if room_at >= 0 and placed > 0:
                if placed < count or not _only_allocated(columns, work, placed):
                    # Plugins would be asked for reasons, or about promises, without what they do not know of yet.
                    undo_to(facts, columns, offsets, mark)
                    forget_room(index, room_at)
                    return NOT_PLAIN
                if not index.rooms.independent[index.row[first]]:
                    work.counting[0] = room_at
            if placed < count:
                # On a node, a budget may refuse the part of a device that pods share, by the run time of their group.
                if placed == 0 and not (facts.budgets.left.shape[0] > 0 and is_shared(facts, first)):
                    _remember(work, alike, group, 0)
                return _refuse(work, group, work.chunk[placed], placed, ACCEPTED)
        promised = columns.pipelined[leaf]
        # A gang starts together: while places for its minimum are only promised, idle ones are promised, too.
        waits = promised > 0 and columns.active[leaf] - promised < facts.groups.minimum[leaf]
        if waits:
            _promise_all(facts, columns, offsets)
        _commit(facts, columns, offsets, work, group, waits, started)
        if columns.pending[leaf] > 0:
            _describe(facts, columns, rules, heap, work, group)
            push(facts, columns, rules, heap, group)
        if spent:
            return RECOUNT
