"""Topology domains in kernels: capacity of domains, the choice of one for a group, and placement in it.

Plugins split nodes into domains for any tree of sub-groups. This module covers the most frequent groups: one leaf,
equal pods, and domains that form a tree. Only the first domain is tried. If no domain has room, or the pods do not fit
into the first, Python asks the plugin, which also finds the message.

The domains of one kind of constraint form a tree. They are numbered depth by depth, by name within a depth. Domain 0 is
the narrowest that holds all nodes; parents come before their children.

Capacity counts resources that are being released.
"""

import math

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64s, Int64s, Int64Table, Struct
from kai.facts.kernels.arrays import ascending
from kai.facts.kernels.columns import ACTIVE_ALLOCATED, GPU, GPU_UNIT, PODS, Columns, Facts, Offsets
from kai.facts.kernels.fit import Rules, Vectors
from kai.facts.kernels.place import place_pods

NO_ROOM = 1000.0
"""Stands for the ratio of a positive amount to zero."""


@inner
def pods_on_node(facts: Facts, columns: Columns, request: Int64s, most: int, node: int) -> int:
    """Return how many pods of ``request`` [R] fit on ``node``; ``most`` if they request nothing but a place.

    An overcommitted node holds none, as in ``fit.shortage``.

    For a request of less than one GPU, the free parts of shared devices count too.
    """
    count, overdrawn = -1, False
    for resource in range(request.shape[0]):
        amount = request[resource]
        # A place of its own is no request: it is counted at the end, as a bound on what the others allow.
        if resource == PODS and amount <= 1:
            continue
        free = columns.idle[node, resource] + columns.releasing[node, resource]
        if amount <= 0:
            overdrawn = overdrawn or free < 0
            continue
        if resource == GPU and amount < GPU_UNIT:
            memory = facts.nodes.gpu_memory[node]
            for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
                if columns.slot_used[slot] > 0:
                    # An estimate from above: parts of several devices are added up, though no pod can use two halves.
                    # The placement decides.
                    left = memory - columns.slot_allocated[slot] + columns.slot_releasing[slot]
                    free += left * GPU_UNIT // memory
        here = free // amount if free >= amount else 0
        count = here if count < 0 else min(count, here)
    if count < 0:
        return most
    if overdrawn:
        return 0
    # Once anything is requested, the pod slot counts like every other resource.
    return max(0, min(count, columns.idle[node, PODS] + columns.releasing[node, PODS]))


@kernel
def domain_room(
    columns: Columns,
    nodes: Int64s,
    domains: Int64s,
    parents: Int64s,
    wanted: Int64s,
    fitting: Int64s,
    tightness: Float64s,
    held: Int64s,
) -> None:
    """Compute, for each domain, what fraction of its free resources the pods want, and how many such pods it holds.

    The fraction is that of the scarcest resource: 1 if it just suffices, ``NO_ROOM`` if nothing is free.

    Shapes: nodes [n]; domains [n] of the deepest level; parents [C], each less than its child, the first one -1; wanted
        [R], 0 for resources that do not count; fitting [n] pods that fit on each node; tightness, held [C].
    """
    tightness[:] = 0.0
    held[:] = 0
    for at in range(nodes.shape[0]):
        held[domains[at]] += fitting[at]
    # Children come after their parents: each sum is complete when it is added to the one above.
    for domain in range(held.shape[0] - 1, 0, -1):
        held[parents[domain]] += held[domain]
    amounts = np.empty(tightness.shape[0], np.int64)
    for resource in range(wanted.shape[0]):
        if wanted[resource] <= 0:
            continue
        amounts[:] = 0
        for at in range(nodes.shape[0]):
            node = nodes[at]
            amounts[domains[at]] += columns.idle[node, resource] + columns.releasing[node, resource]
        for domain in range(amounts.shape[0] - 1, 0, -1):
            amounts[parents[domain]] += amounts[domain]
        for domain in range(amounts.shape[0]):
            # Overcommitted nodes can make a sum negative, and a negative ratio would look like the most room of all.
            share = wanted[resource] / amounts[domain] if amounts[domain] > 0 else NO_ROOM
            tightness[domain] = max(tightness[domain], share)


NOWHERE = -1


class DomainTrees(Struct):
    """Kinds of constraints. Shapes: C kinds, X the most depths of one, F shapes that are counted; domains as above."""

    kind: Int64s  # [G] of each group, -1: none of these
    rows: Int64s  # [...] nodes of each kind, ascending
    row_start: Int64s  # [C + 1]
    domains: Int64s  # [...] the finest domain of each of ``rows``
    parents: Int64s  # [...] the domain above each one, -1 for the first of a kind
    domain_start: Int64s  # [C + 1]
    depth_start: Int64Table  # [C, X + 1] the first domain of each depth, and at the end how many there are
    finest_of: Int64Table  # [C, N] the finest domain of each node, -1: outside
    finest: Int64s  # [C] the depth of the finest domains
    coarsest: Int64s  # [C] the depth of the coarsest ones that pods may be placed in
    ordered: Int64s  # [C] the deepest depth at which the tightest domain goes first; beyond it, names decide
    preferred: Int64s  # [C] the depth that is preferred, -1: none
    step: Float64s  # [C] the score of one tenth of the domains of that depth
    required: Bools  # [C] pods go where pods of their leaf are: into the same domains of the coarsest depth
    counted: Int64s  # [K] row of ``fitting`` of each shape, -1: its pods are not counted
    fitting: Int64Table  # [F, N] how many pods fit on each node
    seen: Int64s  # [F] the changes of nodes that ``fitting`` knows of, -1: none
    extra: Float64s  # [N] what is added to scores, for the nodes of the domain at hand


@inner
def _ancestor(trees: DomainTrees, kind: int, domain: int, depth: int) -> int:
    """Return the domain of ``depth`` that ``domain`` lies in; itself if it is of that depth."""
    first = trees.domain_start[kind]
    past = trees.depth_start[kind, depth + 1]
    while domain >= past:
        domain = trees.parents[first + domain]
    return domain


@inner
def count_fitting(facts: Facts, columns: Columns, trees: DomainTrees, shape: int) -> None:
    """Update the counts of ``shape``. Cost: O(N) the first time, then one count for each changed node."""
    row = trees.counted[shape]
    request = facts.shapes.request[shape]
    nodes, ring = trees.fitting.shape[1], columns.touched.shape[0]
    seen, now = trees.seen[row], columns.touches[0]
    # With more changes than nodes a count of all is no dearer; with more than the ring holds the oldest are lost.
    if seen < 0 or now - seen > min(ring, nodes):
        for node in range(nodes):
            trees.fitting[row, node] = pods_on_node(facts, columns, request, 0, node)
    else:
        for change in range(seen, now):
            node = columns.touched[change % ring]
            trees.fitting[row, node] = pods_on_node(facts, columns, request, 0, node)
    trees.seen[row] = now


@inner
def _rank(trees: DomainTrees, kind: int, parents: Int64s, tightness: Float64s, ranks: Int64s) -> None:
    """Fill ``ranks`` [D]: the place of each domain among those of its depth.

    Domains below one parent stay together. There the tightest goes first, then the first by name.
    """
    ranks[0] = 0
    for depth in range(1, trees.finest[kind] + 1):
        above, first, past = (
            trees.depth_start[kind, depth - 1],
            trees.depth_start[kind, depth],
            trees.depth_start[kind, depth + 1],
        )
        if depth <= trees.ordered[kind]:
            order = ascending(-tightness[first:past])
        else:
            order = np.arange(past - first)
        begins = np.zeros(first - above + 1, np.int64)
        for domain in range(first, past):
            begins[ranks[parents[domain]] + 1] += 1
        for at in range(1, begins.shape[0]):
            begins[at] += begins[at - 1]
        # Parents are ranked before, so domains are dealt to the places of their parents, as in a counting sort.
        for at in order:
            parent = ranks[parents[first + at]]
            ranks[first + at] = begins[parent]
            begins[parent] += 1


@inner
def _mark_held(facts: Facts, columns: Columns, trees: DomainTrees, kind: int, leaf: int, held: Bools) -> bool:
    """Mark the coarsest domains with pods of ``leaf``; return whether any pod of it has a place."""
    found = False
    for at in range(facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]):
        pod = facts.groups.pods[at]
        if (ACTIVE_ALLOCATED >> columns.status[pod]) & 1:
            found = True
            node = columns.node[pod]
            if node >= 0 and trees.finest_of[kind, node] >= 0:
                held[_ancestor(trees, kind, trees.finest_of[kind, node], trees.coarsest[kind])] = True
    return found


@inner
def choose_domain(
    facts: Facts, columns: Columns, trees: DomainTrees, kind: int, leaf: int, shape: int, count: int, ranks: Int64s
) -> int:
    """Return the first domain for ``count`` pods of ``shape``, NOWHERE if none holds that many; fill ``ranks``.

    The finest depth goes first, and within it the order of the tree. Cost: O(nodes x resources + D log D).
    """
    rows = trees.rows[trees.row_start[kind] : trees.row_start[kind + 1]]
    domains = trees.domains[trees.row_start[kind] : trees.row_start[kind + 1]]
    parents = trees.parents[trees.domain_start[kind] : trees.domain_start[kind + 1]]
    count_fitting(facts, columns, trees, shape)
    fitting = np.empty(rows.shape[0], np.int64)
    for at in range(rows.shape[0]):
        fitting[at] = trees.fitting[trees.counted[shape], rows[at]]
    wanted = facts.shapes.request[shape] * count
    wanted[PODS] = 0
    tightness, room = np.empty(parents.shape[0], np.float64), np.empty(parents.shape[0], np.int64)
    domain_room(columns, rows, domains, parents, wanted, fitting, tightness, room)
    # Domain 0 holds all nodes, so no other has more room.
    if room[0] < count:
        return NOWHERE
    _rank(trees, kind, parents, tightness, ranks)
    held = np.zeros(parents.shape[0], np.bool_)
    stays = trees.required[kind] and _mark_held(facts, columns, trees, kind, leaf, held)
    for depth in range(trees.finest[kind], trees.coarsest[kind] - 1, -1):
        best = NOWHERE
        for domain in range(trees.depth_start[kind, depth], trees.depth_start[kind, depth + 1]):
            # Room comes from sums over nodes, and so may promise too much; then the pods do not fit and Python asks the
            # plugin.
            if room[domain] < count or (best >= 0 and ranks[domain] > ranks[best]):
                continue
            if not stays or held[_ancestor(trees, kind, domain, trees.coarsest[kind])]:
                best = domain
        if best >= 0:
            return best
    return NOWHERE


@inner
def _nodes_of(trees: DomainTrees, kind: int, domain: int) -> Int64s:
    """Return the nodes of ``domain``, ascending."""
    depth = 0
    while trees.depth_start[kind, depth + 1] <= domain:
        depth += 1
    out = np.empty(trees.row_start[kind + 1] - trees.row_start[kind], np.int64)
    count = 0
    for at in range(trees.row_start[kind], trees.row_start[kind + 1]):
        if _ancestor(trees, kind, trees.domains[at], depth) == domain:
            out[count] = trees.rows[at]
            count += 1
    return out[:count]


@inner
def _rate(trees: DomainTrees, kind: int, nodes: Int64s, ranks: Int64s) -> None:
    """Fill ``extra`` for ``nodes``: ten steps over the preferred domains in tree order, the roomiest highest."""
    preferred, step = trees.preferred[kind], trees.step[kind]
    for node in nodes:
        trees.extra[node] = 0.0
        if preferred >= 0:
            count = trees.depth_start[kind, preferred + 1] - trees.depth_start[kind, preferred]
            place = ranks[_ancestor(trees, kind, trees.finest_of[kind, node], preferred)]
            trees.extra[node] = math.floor((place + 1) / count * 10) * step


@kernel
def place_in_domain(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    vectors: Vectors,
    trees: DomainTrees,
    kind: int,
    leaf: int,
    pods: Int64s,
) -> int:
    """Place ``pods`` [n] of ``leaf``, all of one counted shape, in the first domain that holds them.

    Return the number placed, NOWHERE if no domain holds them all.
    """
    ranks = np.empty(trees.domain_start[kind + 1] - trees.domain_start[kind], np.int64)
    shape = facts.pods.shape[pods[0]]
    domain = choose_domain(facts, columns, trees, kind, leaf, shape, pods.shape[0], ranks)
    if domain == NOWHERE:
        return NOWHERE
    nodes = _nodes_of(trees, kind, domain)
    _rate(trees, kind, nodes, ranks)
    return place_pods(facts, columns, offsets, rules, vectors, pods, nodes, trees.extra, False)
