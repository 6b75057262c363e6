"""Keeping a group together: the domain of nodes that it goes to first, and placing it there.

What the topology plugin does for any tree of sub-groups, for the groups that most are: one leaf, alike pods. Only the
first domain is tried. Where none has room, or the pods find no place in it, Python looks again the long way, and finds
the words.

Domains of a kind of constraint are a tree. They are numbered depth by depth, by name within a depth, from 0, the
narrowest that holds all nodes; parents come before their children.
"""

import math

import numpy as np

from kai.kernels._jit import inner, kernel
from kai.kernels.columns import ACTIVE_ALLOCATED, PODS, Columns, Facts, Places
from kai.kernels.fit import Rules, Vectors
from kai.kernels.place import place_pods
from kai.kernels.struct import Bools, Float64s, Int64s, Int64Table, Struct
from kai.kernels.topology import domain_room, pods_on_node

STEP = 100_000.0
"""Score of one tenth of the preferred domains."""
NOWHERE = -1


class Nests(Struct):
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
    required: Bools  # [C] pods go where pods of their leaf are: into the same domains of the coarsest depth
    counted: Int64s  # [K] row of ``fitting`` of each shape, -1: its pods are not counted
    fitting: Int64Table  # [F, N] how many pods fit on each node
    seen: Int64s  # [F] the changes of nodes that ``fitting`` knows of, -1: none
    extra: Float64s  # [N] what is added to scores, for the nodes of the domain at hand


@inner
def _ancestor(nests: Nests, kind: int, domain: int, depth: int) -> int:
    """Return the domain of ``depth`` that ``domain`` lies in; itself if it is of that depth."""
    first = nests.domain_start[kind]
    past = nests.depth_start[kind, depth + 1]
    while domain >= past:
        domain = nests.parents[first + domain]
    return domain


@inner
def count_fitting(facts: Facts, columns: Columns, nests: Nests, shape: int) -> None:
    """Bring the counts of ``shape`` up to date. Cost: O(N) the first time, then a count for each node that changed."""
    row = nests.counted[shape]
    request = facts.shapes.request[shape]
    nodes, ring = nests.fitting.shape[1], columns.touched.shape[0]
    seen, now = nests.seen[row], columns.touches[0]
    if seen < 0 or now - seen > min(ring, nodes):
        for node in range(nodes):
            nests.fitting[row, node] = pods_on_node(facts, columns, request, 0, node)
    else:
        for change in range(seen, now):
            node = columns.touched[change % ring]
            nests.fitting[row, node] = pods_on_node(facts, columns, request, 0, node)
    nests.seen[row] = now


@inner
def _rank(nests: Nests, kind: int, parents: Int64s, tightness: Float64s, ranks: Int64s) -> None:
    """Fill ``ranks`` [D]: the place of each domain among those of its depth.

    Domains below one parent stay together. There the tightest goes first, then the first by name.
    """
    ranks[0] = 0
    for depth in range(1, nests.finest[kind] + 1):
        above, first, past = (
            nests.depth_start[kind, depth - 1],
            nests.depth_start[kind, depth],
            nests.depth_start[kind, depth + 1],
        )
        if depth <= nests.ordered[kind]:
            order = np.argsort(-tightness[first:past], kind="mergesort")
        else:
            order = np.arange(past - first)
        begins = np.zeros(first - above + 1, np.int64)
        for domain in range(first, past):
            begins[ranks[parents[domain]] + 1] += 1
        for at in range(1, begins.shape[0]):
            begins[at] += begins[at - 1]
        for at in order:
            parent = ranks[parents[first + at]]
            ranks[first + at] = begins[parent]
            begins[parent] += 1


@inner
def _mark_held(facts: Facts, columns: Columns, nests: Nests, kind: int, leaf: int, held: Bools) -> bool:
    """Mark the coarsest domains with pods of ``leaf``; say whether a pod of it has a place anywhere."""
    found = False
    for at in range(facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]):
        pod = facts.groups.pods[at]
        if (ACTIVE_ALLOCATED >> columns.status[pod]) & 1:
            found = True
            node = columns.node[pod]
            if node >= 0 and nests.finest_of[kind, node] >= 0:
                held[_ancestor(nests, kind, nests.finest_of[kind, node], nests.coarsest[kind])] = True
    return found


@inner
def choose_domain(
    facts: Facts, columns: Columns, nests: Nests, kind: int, leaf: int, shape: int, count: int, ranks: Int64s
) -> int:
    """Return the domain that ``count`` pods of ``shape`` go to first, NOWHERE if none holds that many; fills ``ranks``.

    The finest depth goes first, and within it the order of the tree. Cost: O(nodes x resources + D log D).
    """
    rows = nests.rows[nests.row_start[kind] : nests.row_start[kind + 1]]
    domains = nests.domains[nests.row_start[kind] : nests.row_start[kind + 1]]
    parents = nests.parents[nests.domain_start[kind] : nests.domain_start[kind + 1]]
    count_fitting(facts, columns, nests, shape)
    fitting = np.empty(rows.shape[0], np.int64)
    for at in range(rows.shape[0]):
        fitting[at] = nests.fitting[nests.counted[shape], rows[at]]
    wanted = facts.shapes.request[shape] * count
    wanted[PODS] = 0
    tightness, room = np.empty(parents.shape[0], np.float64), np.empty(parents.shape[0], np.int64)
    domain_room(columns, rows, domains, parents, wanted, fitting, tightness, room)
    if room[0] < count:
        return NOWHERE
    _rank(nests, kind, parents, tightness, ranks)
    held = np.zeros(parents.shape[0], np.bool_)
    stays = nests.required[kind] and _mark_held(facts, columns, nests, kind, leaf, held)
    for depth in range(nests.finest[kind], nests.coarsest[kind] - 1, -1):
        best = NOWHERE
        for domain in range(nests.depth_start[kind, depth], nests.depth_start[kind, depth + 1]):
            if room[domain] < count or (best >= 0 and ranks[domain] > ranks[best]):
                continue
            if not stays or held[_ancestor(nests, kind, domain, nests.coarsest[kind])]:
                best = domain
        if best >= 0:
            return best
    return NOWHERE


@inner
def _nodes_of(nests: Nests, kind: int, domain: int) -> Int64s:
    """Return the nodes of ``domain``, ascending."""
    depth = 0
    while nests.depth_start[kind, depth + 1] <= domain:
        depth += 1
    out = np.empty(nests.row_start[kind + 1] - nests.row_start[kind], np.int64)
    count = 0
    for at in range(nests.row_start[kind], nests.row_start[kind + 1]):
        if _ancestor(nests, kind, nests.domains[at], depth) == domain:
            out[count] = nests.rows[at]
            count += 1
    return out[:count]


@inner
def _rate(nests: Nests, kind: int, nodes: Int64s, ranks: Int64s) -> None:
    """Fill ``extra`` for ``nodes``: ten steps over the preferred domains in tree order, the roomiest highest."""
    preferred = nests.preferred[kind]
    for node in nodes:
        nests.extra[node] = 0.0
        if preferred >= 0:
            count = nests.depth_start[kind, preferred + 1] - nests.depth_start[kind, preferred]
            place = ranks[_ancestor(nests, kind, nests.finest_of[kind, node], preferred)]
            nests.extra[node] = math.floor((place + 1) / count * 10) * STEP


@kernel
def place_nested(
    facts: Facts,
    columns: Columns,
    places: Places,
    rules: Rules,
    vectors: Vectors,
    nests: Nests,
    kind: int,
    leaf: int,
    pods: Int64s,
) -> int:
    """Place ``pods`` [n] of ``leaf``, all of one shape that is counted, in the first domain that holds them.

    Return how many were placed, NOWHERE if no domain holds them all.
    """
    ranks = np.empty(nests.domain_start[kind + 1] - nests.domain_start[kind], np.int64)
    shape = facts.pods.shape[pods[0]]
    domain = choose_domain(facts, columns, nests, kind, leaf, shape, pods.shape[0], ranks)
    if domain == NOWHERE:
        return NOWHERE
    nodes = _nodes_of(nests, kind, domain)
    _rate(nests, kind, nodes, ranks)
    return place_pods(facts, columns, places, rules, vectors, pods, nodes, nests.extra, False)
