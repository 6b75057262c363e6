"""Questions about many groups at once: which wait and are complete, what each requests next, what each holds."""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64s, Float64Table, Int64s
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.kernels.columns import ACTIVE_ALLOCATED, COUNTED, CPU, GPU, MEMORY, PENDING, RELEASING, Columns, Facts

ROOT_AND_LEAF = 2
"""The number of sub-groups of a group that declares none: the root and one leaf."""


@kernel
def next_chunk(facts: Facts, columns: Columns, leaf: int, out: Int64s) -> int:
    """Fill ``out`` with the pods of a group's only leaf that the next attempt places; return their number.

    These are all pods missing to the minimum, or one more if it is reached, in pod order. Candidates are pending, or
    evicted by the open statement.
    """
    active = columns.active[leaf]
    missing = facts.groups.minimum[leaf] - active
    # A gang needs all of its minimum at once. Beyond it pods are tried one at a time, so that other groups get their
    # turn in between.
    wanted = missing if missing > 0 else 1
    count = 0
    for at in range(facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]):
        if count == wanted:
            break
        pod = facts.groups.pods[at]
        status = columns.status[pod]
        if status == PENDING or (status == RELEASING and columns.virtual[pod] == 1):
            out[count] = pod
            count += 1
    return count


@inner
def has_pending(facts: Facts, columns: Columns, group: int) -> bool:
    """Return whether some pod of the group is pending."""
    for row in range(facts.groups.first_subgroup[group], facts.groups.first_subgroup[group + 1]):
        if columns.pending[row] > 0:
            return True
    return False


@inner
def has_place(facts: Facts, columns: Columns, group: int) -> bool:
    """Return whether some pod of the group has a place."""
    for row in range(facts.groups.first_subgroup[group], facts.groups.first_subgroup[group + 1]):
        if columns.active[row] > 0:
            return True
    return False


@kernel
def find_waiting(facts: Facts, columns: Columns, out: Bools) -> None:
    """Fill ``out`` [G]: the group has a pending pod. Cost: O(B)."""
    for group in range(out.shape[0]):
        out[group] = has_pending(facts, columns, group)


@kernel
def find_placed(facts: Facts, columns: Columns, out: Bools) -> None:
    """Fill ``out`` [G]: the group has a pod with a place. Cost: O(B)."""
    for group in range(out.shape[0]):
        out[group] = has_place(facts, columns, group)


@kernel
def nodes_of_group(facts: Facts, columns: Columns, group: int) -> Int64s:
    """Return the node of each pod of ``group`` that has a place, in pod order."""
    first = facts.groups.pod_start[facts.groups.first_subgroup[group]]
    last = facts.groups.pod_start[facts.groups.first_subgroup[group + 1]]
    out = np.empty(max(0, last - first), np.int64)
    count = 0
    for at in range(first, last):
        pod = facts.groups.pods[at]
        if (ACTIVE_ALLOCATED >> columns.status[pod]) & 1 and columns.node[pod] >= 0:
            out[count] = columns.node[pod]
            count += 1
    return out[:count]


@inner
def is_flat(facts: Facts, group: int) -> bool:
    """Return whether the group is a root that needs its only leaf, with or without topology constraints."""
    root = facts.groups.first_subgroup[group]
    return facts.groups.first_subgroup[group + 1] - root == ROOT_AND_LEAF and facts.groups.minimum[root] == 1


@inner
def is_plain(facts: Facts, columns: Columns, group: int) -> bool:
    """Return whether the group has one leaf and no terminating pods: then statuses alone give its next chunk."""
    leaf = facts.groups.first_subgroup[group] + 1
    # A terminating pod still occupies its place in the group. Whether it will be replaced depends on more than
    # statuses, and Python decides about that.
    return is_flat(facts, group) and columns.occupying[leaf] == columns.active[leaf]


@kernel
def find_plain(facts: Facts, columns: Columns, groups: Int64s, out: Bools) -> None:
    """Fill ``out`` [n]: which of ``groups`` [n] are plain."""
    for at in range(groups.shape[0]):
        out[at] = is_plain(facts, columns, groups[at])


@inner
def _state_by_leaf(facts: Facts, columns: Columns, root: int, end: int) -> float:
    state = 1.0
    for row in range(root, end):
        spare = columns.active[row] - facts.groups.minimum[row]
        if facts.groups.leaf[row] and spare < 0:
            return 0.0
        if facts.groups.leaf[row] and spare > 0:
            state = 2.0
    return state


@inner
def elastic_state(facts: Facts, columns: Columns, group: int) -> float:
    """Return 0 for a group below its minimum, 1 for one at its minimum, 2 for one that can give up pods.

    It can give up pods above a minimum, sub-groups above the least number, and pods of optional sub-groups that lack
    pods. With ``each_leaf`` the minimum of each leaf decides. Cost: one look at each sub-group.
    """
    root, end = facts.groups.first_subgroup[group], facts.groups.first_subgroup[group + 1]
    # Nearly all groups are of this form; it needs no arrays.
    if end - root == ROOT_AND_LEAF:
        spare = columns.active[root + 1] - facts.groups.minimum[root + 1]
        return 0.0 if spare < 0 else (1.0 if spare == 0 else 2.0)
    if facts.groups.each_leaf:
        return _state_by_leaf(facts, columns, root, end)
    reached = np.zeros(end - root, np.int64)
    held = np.zeros(end - root, np.int64)
    spared = False
    # Parents come before their children in rows, so this order finishes all children of a row before the row itself.
    for row in range(end - 1, root - 1, -1):
        at = row - root
        if facts.groups.leaf[row]:
            reached[at] = held[at] = columns.active[row]
        spare = reached[at] - facts.groups.minimum[row]
        spared = spared or (held[at] > 0 and spare != 0)
        if row > root:
            above = facts.groups.parent[row] - root
            # An optional sub-group that lacks pods still holds what it has. That can be given up, hence `held` beside
            # `reached`.
            held[above] += held[at]
            reached[above] += 1 if spare >= 0 else 0
        elif spare < 0:
            return 0.0
    return 2.0 if spared else 1.0


@inner
def want(
    facts: Facts, columns: Columns, requested: Float64Table, group: int, chunk: Int64s, amounts: Float64Table
) -> None:
    """Fill the row of a plain ``group`` in ``amounts`` [G, 3] with the request of its next ``chunk`` [...]."""
    amounts[group, :] = 0.0
    for at in range(next_chunk(facts, columns, facts.groups.first_subgroup[group] + 1, chunk)):
        for resource in range(3):
            amounts[group, resource] += requested[facts.pods.shape[chunk[at]], resource]


@inner
def hold(facts: Facts, columns: Columns, group: int, elastic: Float64s, amounts: Float64Table) -> None:
    """Fill the row of ``group`` in ``elastic`` [G] and ``amounts`` [G, 3].

    These get the elastic state, and the amounts that count as used by its queue.
    """
    elastic[group] = elastic_state(facts, columns, group)
    amounts[group, :] = 0.0
    first = facts.groups.pod_start[facts.groups.first_subgroup[group]]
    last = facts.groups.pod_start[facts.groups.first_subgroup[group + 1]]
    for at in range(first, last):
        pod = facts.groups.pods[at]
        if (COUNTED >> columns.status[pod]) & 1:
            shape = facts.pods.shape[pod]
            amounts[group, CPU] += facts.shapes.request[shape, CPU]
            amounts[group, MEMORY] += facts.shapes.request[shape, MEMORY]
            amounts[group, GPU] += accepted_gpu(facts, shape, columns.node[pod])


@kernel
def describe_waiting(
    facts: Facts, columns: Columns, requested: Float64Table, groups: Int64s, elastic: Float64s, amounts: Float64Table
) -> None:
    """Fill the rows of plain ``groups`` [n] in ``elastic`` [G] and ``amounts`` [G, 3]; skip other groups.

    These get the elastic state, and the request of the next chunk.

    ``requested`` [K, 3] is the assumed request of one pod of each shape.
    Cost: O(pods looked at).
    """
    longest = 1
    for group in groups:
        leaf = facts.groups.first_subgroup[group] + 1
        if is_flat(facts, group):
            longest = max(longest, facts.groups.pod_start[leaf + 1] - facts.groups.pod_start[leaf])
    chunk = np.empty(longest, np.int64)
    for group in groups:
        if not is_plain(facts, columns, group):
            continue
        elastic[group] = elastic_state(facts, columns, group)
        want(facts, columns, requested, group, chunk, amounts)


@kernel
def sum_waiting(facts: Facts, columns: Columns, requested: Float64Table, pods: Int64s) -> Float64s:
    """Return float64[3]: the sum of the requests of ``pods`` that are pending or evicted by the open statement.

    ``requested`` [K, 3] is the assumed request of one pod of each shape.
    """
    out = np.zeros(3, np.float64)
    for pod in pods:
        if columns.status[pod] == PENDING or (columns.status[pod] == RELEASING and columns.virtual[pod] > 0):
            for resource in range(3):
                out[resource] += requested[facts.pods.shape[pod], resource]
    return out


@kernel
def describe_holding(facts: Facts, columns: Columns, groups: Int64s, elastic: Float64s, amounts: Float64Table) -> None:
    """Fill the rows of ``groups`` [n] in ``elastic`` [G] and ``amounts`` [G, 3].

    These get the elastic state, and the amounts that count as used by their queues.
    """
    for group in groups:
        hold(facts, columns, group, elastic, amounts)


@kernel
def sort_by_leaf(leaf: Int64s, order: Int64s, start: Int64s, out: Int64s) -> None:
    """Sort pods by leaf and, within a leaf, as they come in ``order`` [P]; fill the first start[B] of ``out`` [P].

    ``start`` [B + 1], all zeros at first, gets the position of the first pod of each sub-group. Cost: O(P + B).
    """
    for pod in range(leaf.shape[0]):
        if leaf[pod] >= 0:
            start[leaf[pod] + 1] += 1
    for row in range(1, start.shape[0]):
        start[row] += start[row - 1]
    used = start.copy()
    for at in range(order.shape[0]):
        row = leaf[order[at]]
        if row >= 0:
            # A counting sort, stable by construction: two passes instead of comparisons, and the order within a leaf is
            # the caller's.
            out[used[row]] = order[at]
            used[row] += 1


@kernel
def find_places(created: Float64s, order: Int64s, rows: Int64s, places: Int64s) -> bool:
    """Find the position of each of ``rows`` in ``order`` [n], which is sorted by ``created`` [n]; return whether done.

    It gives up when a scan of all rows would be faster, because very many rows share a time.
    Cost: O(log n) for each row, and one look at those of its time.
    """
    looks = 0
    for at in range(rows.shape[0]):
        time = created[rows[at]]
        first, last = 0, order.shape[0]
        while first < last:
            middle = (first + last) // 2
            if created[order[middle]] < time:
                first = middle + 1
            else:
                last = middle
        # Rows of one time are in no order that could be searched. Pods of one job often share their second, so these
        # looks are counted.
        while order[first] != rows[at]:
            first += 1
            looks += 1
            if looks > order.shape[0]:
                return False
        places[at] = first
    return True
