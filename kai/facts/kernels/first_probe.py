"""The first probe of a search for one pod: a kernel finds the victims of one node, another judges them.

Most searches are for one pod, and their first probe succeeds. Then extending the victims, choosing one of their nodes
and checking the result need no Python. Less simple cases are left to the plain form.
"""

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Int64s, Struct
from kai.facts.kernels.arrays import copy
from kai.facts.kernels.booking import accepted_gpu, requested_gpu
from kai.facts.kernels.columns import KIND_NONE, PENDING, PIPELINED, RELEASING, Columns, Facts
from kai.facts.kernels.fit import Rules, Vectors
from kai.facts.kernels.prefix import EXHAUSTED, NOT_PLAIN, PAUSED, PODS, Prefix, begin, extend
from kai.facts.kernels.trying import Aggressor
from kai.facts.kernels.victims import GroupState, losing_on, refresh_free_gpus

UNSUITED, NONE_PASSES, PROPOSED = 0, 1, 2
VICTIMS, PARTS, CHANGES = 0, 1, 2


class FirstProbe(Struct):
    """The inputs for first scenarios, and the scenario that was found."""

    prefix: Prefix  # of one waiting pod and one mask
    aggressor: Aggressor  # of one pod
    exact: Bools  # [G] groups of one leaf whose whole request the engine books itself
    plain: Bools  # [G] groups of one leaf that no plugin is asked about
    prepared: Bools  # [K] shapes for which ``vectors`` hold the answers
    idle: Int64s  # [N] thousandths of GPUs that are free
    releasing: Int64s  # [N] thousandths of GPUs that are being released
    seen: Int64s  # [1] the change of nodes up to which these are up to date, -1: never
    victims: Int64s  # [P] pods that would go
    start: Int64s  # [P + 1] where each batch of them begins
    state: Int64s  # [3] victims, batches, changes that trying them can make at most


@inner
def only_pod(facts: Facts, columns: Columns, group: int) -> int:
    """Return the only waiting pod of a group of one leaf whose other pods all have places; -1 otherwise."""
    leaf = facts.groups.first_subgroup[group] + 1
    first, last = facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]
    if columns.pending[leaf] != 1 or columns.active[leaf] + 1 != last - first:
        return -1
    for at in range(first, last):
        if columns.status[facts.groups.pods[at]] == PENDING:
            return facts.groups.pods[at]
    return -1


@inner
def _needs_no_gpu(facts: Facts, group: int) -> bool:
    """Return whether some pod of a group of one leaf requests no device."""
    leaf = facts.groups.first_subgroup[group] + 1
    for at in range(facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]):
        shape = facts.pods.shape[facts.groups.pods[at]]
        if facts.shapes.kind[shape] == KIND_NONE and facts.shapes.claimed[shape] == 0:
            return True
    return False


@inner
def _describe(
    facts: Facts, columns: Columns, vectors: Vectors, groups: GroupState, probe: FirstProbe, group: int, pod: int
) -> None:
    """Store the aggressor and the capacity of nodes, and begin without victims."""
    aggressor, prefix = probe.aggressor, probe.prefix
    aggressor.group[0] = group
    aggressor.pods[0] = pod
    aggressor.elastic[0] = groups.states[group]
    copy(groups.wanting[group], aggressor.amounts)
    refresh_free_gpus(facts, columns, probe.seen, probe.idle, probe.releasing)
    anywhere = _needs_no_gpu(facts, group)
    shape = facts.pods.shape[pod]
    mask = vectors.masks[facts.shapes.mask[shape]]
    everywhere, somewhere = True, False
    for node in range(probe.idle.shape[0]):
        aggressor.feasible[node] = anywhere or probe.idle[node] > 0 or probe.releasing[node] > 0
        prefix.capacity[node] = probe.idle[node] + probe.releasing[node]
        everywhere = everywhere and mask[node]
        somewhere = somewhere or (mask[node] and aggressor.feasible[node])
    prefix.wanted[0] = requested_gpu(facts, shape)
    prefix.masks[0] = facts.shapes.mask[shape]
    prefix.reached[0] = everywhere or somewhere
    begin(facts, columns, vectors, prefix, probe.victims[:0])


@inner
def _next_node(facts: Facts, columns: Columns, group: int, after: int) -> int:
    """Return the first node after ``after`` that a pod of the group is on; -1 if there is none."""
    found = -1
    first = facts.groups.pod_start[facts.groups.first_subgroup[group]]
    last = facts.groups.pod_start[facts.groups.first_subgroup[group + 1]]
    for at in range(first, last):
        node = columns.node[facts.groups.pods[at]]
        if node > after and (found < 0 or node < found):
            found = node
    return found


@inner
def _adopt(facts: Facts, probe: FirstProbe, pods: Int64s, start: Int64s) -> bool:
    """Store the victims that were found; return whether all are of plain groups."""
    changes = 0
    for batch in range(start.shape[0] - 1):
        group = facts.pods.group[pods[start[batch]]]
        if not probe.plain[group]:
            return False
        leaf = facts.groups.first_subgroup[group] + 1
        changes += facts.groups.pod_start[leaf + 1] - facts.groups.pod_start[leaf]
    copy(pods, probe.victims)
    copy(start, probe.start)
    probe.state[VICTIMS] = pods.shape[0]
    probe.state[PARTS] = start.shape[0] - 1
    probe.state[CHANGES] = 2 * (pods.shape[0] + changes + 1)
    return True


@kernel
def propose_first(
    facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, groups: GroupState, probe: FirstProbe, group: int
) -> int:
    """Return which first scenario there is for ``group``; victims come from ``groups.victims``, which alone changes.

    PROPOSED: ``probe`` has the victims: all batches of groups that would lose a pod on the first node of the group
    that was added last. NONE_PASSES: no scenario passes the filters. UNSUITED: the case is not for a kernel.
    """
    if not probe.plain[group]:
        return UNSUITED
    pod = only_pod(facts, columns, group)
    if pod < 0 or not probe.prepared[facts.pods.shape[pod]]:
        return UNSUITED
    _describe(facts, columns, vectors, groups, probe, group, pod)
    prefix = probe.prefix
    while True:
        ended = extend(facts, columns, rules, vectors, prefix)
        if ended == PAUSED:  # one pod costs too little to ask the budget
            continue
        if ended == EXHAUSTED:
            return NONE_PASSES
        if ended == NOT_PLAIN:
            return UNSUITED
        count = prefix.state[PODS]
        last = facts.pods.group[prefix.pods[count - 1]]
        node = _next_node(facts, columns, last, -1)
        while node >= 0:
            pods, start = losing_on(facts, columns, probe.victims[:0], prefix.pods[:count], node)
            if pods.shape[0] > 0:
                return PROPOSED if _adopt(facts, probe, pods, start) else UNSUITED
            node = _next_node(facts, columns, last, node)


@inner
def all_lose(columns: Columns, probe: FirstProbe) -> bool:
    """Return whether every victim loses its place."""
    for pod in probe.victims[: probe.state[VICTIMS]]:
        if columns.status[pod] != RELEASING:
            return False
    return True


@inner
def is_kept(columns: Columns, probe: FirstProbe) -> bool:
    """Return whether every victim got back the place that it had.

    Then the last probe knows no victims and tries the very same again.
    """
    for pod in probe.victims[: probe.state[VICTIMS]]:
        if columns.status[pod] == RELEASING or columns.status[pod] == PIPELINED:
            return False
    return True


@kernel
def is_final(facts: Facts, columns: Columns, vectors: Vectors, probe: FirstProbe) -> bool:
    """Return whether every victim goes, and the filters would accept exactly these victims.

    Call it once the aggressor has its place. Then trying them again would have the same result.
    """
    prefix = probe.prefix
    if probe.state[VICTIMS] == prefix.state[PODS]:
        # These are all victims that were taken when the filters accepted.
        return all_lose(columns, probe)
    reached = False
    mask = vectors.masks[prefix.masks[0]]
    everywhere = True
    for node in range(mask.shape[0]):
        prefix.capacity[node] = probe.idle[node] + probe.releasing[node]
        everywhere = everywhere and mask[node]
        reached = reached or (mask[node] and probe.aggressor.feasible[node])
    most = prefix.capacity.max()
    for at in range(probe.state[VICTIMS]):
        pod = probe.victims[at]
        node = columns.node[pod]
        if columns.status[pod] != RELEASING:
            return False
        prefix.capacity[node] += accepted_gpu(facts, facts.pods.shape[pod], node)
        most = max(most, prefix.capacity[node])
        reached = reached or mask[node]
    return (everywhere or reached) and (prefix.wanted[0] == 0 or most >= prefix.wanted[0])
