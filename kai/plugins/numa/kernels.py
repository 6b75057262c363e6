"""The NUMA zones of a node that a pod would draw from, under the node's alignment policy.

A pod has one aligned request as a whole, or one for each container. Requests of containers that run side by side share
the free amounts of zones, in their order. A container that runs in turn, such as an init container, only has to find
its zones while nothing else of the pod runs.

Shapes: N nodes, Z zones of all nodes, R resources, A requests side by side, B requests in turn, W zones of one node.

Source: the peer's plugins/numa, after the kubelet's topology manager.
"""

import numpy as np

from kai.framework.kernel import Bools, BoolTable, Int64s, Int64Table, Struct, inner, kernel

POLICY_NONE, POLICY_BEST_EFFORT, POLICY_RESTRICTED, POLICY_SINGLE = 0, 1, 2, 3

INFEASIBLE = -1
UNBOUNDED = 1 << 40


class Zones(Struct):
    """Zones of all nodes."""

    start: Int64s  # [N + 1] zones of node n: start[n] .. start[n + 1]
    policy: Int64s  # [N]
    whole_pod: Bools  # [N] the scope is the pod, not the container
    aware: BoolTable  # [N, R] resources that the zones of the node report and that are not ignored
    prefix: Int64Table  # [Z, R] at the k-th zone of a node: what its k + 1 largest zones have while no pod draws
    available: Int64Table  # [Z, R] amounts that are free


class Requests(Struct):
    """Requests of a pod in axis units; CPU counts only where whole CPUs are pinned."""

    pod: Int64Table  # [1, R]
    together: Int64Table  # [A, R]
    in_turn: Int64Table  # [B, R]
    aligned: Bools  # [R] resources that are aligned for this pod at all


@inner
def _left(zones: Zones, taken: Int64Table, first: int, zone: int, resource: int) -> int:
    return zones.available[first + zone, resource] - taken[zone, resource]


@inner
def _fits_in(
    zones: Zones, taken: Int64Table, first: int, picked: Int64s, count: int, counts: Bools, request: Int64s
) -> bool:
    for resource in range(request.shape[0]):
        if not counts[resource] or request[resource] <= 0:
            continue
        total = 0
        for at in range(count):
            total += _left(zones, taken, first, picked[at], resource)
        if total < request[resource]:
            return False
    return True


@inner
def _lowest(
    zones: Zones, taken: Int64Table, first: int, size: int, width: int, counts: Bools, request: Int64s, picked: Int64s
) -> int:
    """Fill ``picked`` with the lowest ``width`` of ``size`` zones that have enough together; return how many, or -1."""
    for at in range(width):
        picked[at] = at
    while True:
        if _fits_in(zones, taken, first, picked, width, counts, request):
            return width
        # The next choice in lexicographic order: of all that suffice, the kubelet takes the one with the lowest zones.
        at = width - 1
        while at >= 0 and picked[at] == size - width + at:
            at -= 1
        if at < 0:
            return INFEASIBLE
        picked[at] += 1
        for later in range(at + 1, width):
            picked[later] = picked[later - 1] + 1


@inner
def _width(zones: Zones, first: int, size: int, counts: Bools, request: Int64s) -> int:
    """Return over how many zones each resource would spread on an empty node; -1 if they disagree or it is too much."""
    width = 0
    for resource in range(request.shape[0]):
        if not counts[resource] or request[resource] <= 0:
            continue
        needed = 0
        for zone in range(size):
            if zones.prefix[first + zone, resource] >= request[resource]:
                needed = zone + 1
                break
        if needed == 0 or (width > 0 and needed != width):
            return INFEASIBLE
        width = needed
    return width


@inner
def _most_covering(
    zones: Zones, taken: Int64Table, first: int, size: int, counts: Bools, request: Int64s, picked: Int64s
) -> int:
    """Fill ``picked`` zone by zone, taking the zone that covers most of the rest; return the number, or -1."""
    unmet = request.copy()
    count = 0
    while True:
        met = True
        for resource in range(request.shape[0]):
            if counts[resource] and unmet[resource] > 0:
                met = False
        if met:
            return count
        best = -1
        best_cover = 0
        for zone in range(size):
            used = False
            for at in range(count):
                used = used or picked[at] == zone
            if used:
                continue
            cover = 0
            for resource in range(request.shape[0]):
                if counts[resource] and unmet[resource] > 0:
                    cover += min(unmet[resource], max(0, _left(zones, taken, first, zone, resource)))
            # Strictly more: of zones that cover as much the lowest is taken, as in the peer.
            if cover > best_cover:
                best = zone
                best_cover = cover
        if best < 0:
            return INFEASIBLE
        picked[count] = best
        count += 1
        for resource in range(request.shape[0]):
            # An overdrawn zone offers nothing; the peer would add its deficit to the demand.
            unmet[resource] -= max(0, _left(zones, taken, first, best, resource))


@inner
def _pick(zones: Zones, taken: Int64Table, node: int, counts: Bools, request: Int64s, picked: Int64s) -> int:
    """Fill ``picked`` with the zones of one request; return how many, or -1."""
    first = zones.start[node]
    size = zones.start[node + 1] - first
    if zones.policy[node] == POLICY_SINGLE:
        return _lowest(zones, taken, first, size, 1, counts, request, picked)
    if zones.policy[node] == POLICY_BEST_EFFORT:
        return _most_covering(zones, taken, first, size, counts, request, picked)
    width = _width(zones, first, size, counts, request)
    return _lowest(zones, taken, first, size, width, counts, request, picked) if width > 0 else width


@kernel
def place(zones: Zones, requests: Requests, node: int, drawn: Int64Table) -> int:
    """Work out which zones of ``node`` a pod draws from, and fill ``drawn`` [W, R] with the amounts.

    Returns how many zones it draws from, -1 if the policy of the node cannot align it. Cost: O(requests x zones x R),
    times the ways to choose zones where a restricted policy needs several.
    """
    drawn[:, :] = 0
    counts = zones.aware[node] & requests.aligned
    first = zones.start[node]
    picked = np.zeros(zones.start[node + 1] - first + 1, np.int64)
    together = requests.pod if zones.whole_pod[node] else requests.together
    for at in range(together.shape[0]):
        request = together[at]
        width = _pick(zones, drawn, node, counts, request, picked)
        if width < 0:
            return INFEASIBLE
        for resource in range(request.shape[0]):
            if not counts[resource]:
                continue
            wanted = request[resource]
            # From the lowest zone up, as the peer draws amounts.
            for place_at in range(width):
                if wanted <= 0:
                    break
                amount = min(wanted, _left(zones, drawn, first, picked[place_at], resource))
                if amount > 0:
                    drawn[picked[place_at], resource] += amount
                    wanted -= amount
    if not zones.whole_pod[node]:
        untouched = np.zeros_like(drawn)
        for at in range(requests.in_turn.shape[0]):
            if _pick(zones, untouched, node, counts, requests.in_turn[at], picked) < 0:
                return INFEASIBLE
    span = 0
    for zone in range(drawn.shape[0]):
        for resource in range(drawn.shape[1]):
            if drawn[zone, resource] > 0:
                span += 1
                break
    return span


@kernel
def is_aligned(zones: Zones, guaranteed: bool, devices: Bools, node: int) -> bool:
    """Return whether ``node`` aligns a pod: a guaranteed one always, others for ``devices`` [R] of its zones."""
    if zones.policy[node] == POLICY_NONE:
        return False
    if guaranteed:
        return True
    for resource in range(devices.shape[0]):
        if devices[resource] and zones.aware[node, resource]:
            return True
    return False


@kernel
def spans(
    zones: Zones, requests: Requests, guaranteed: bool, devices: Bools, widest: int, nodes: Int64s, out: Int64s
) -> None:
    """Fill ``out`` [n] with how many zones of each of ``nodes`` [n] a pod is taken to span; -1 if it cannot be aligned.

    Without zones a node counts as the worst of the cluster (``widest``); without alignment a pod spans all its zones.
    Cost: O(n) calls of ``place``.
    """
    for at in range(nodes.shape[0]):
        node = nodes[at]
        size = zones.start[node + 1] - zones.start[node]
        if size == 0:
            out[at] = widest
        elif not is_aligned(zones, guaranteed, devices, node):
            out[at] = size
        else:
            drawn = np.zeros((size, zones.aware.shape[1]), np.int64)
            span = place(zones, requests, node, drawn)
            out[at] = max(span, 1) if span >= 0 else INFEASIBLE


@kernel
def rooms(
    zones: Zones,
    requests: Requests,
    guaranteed: bool,
    devices: Bools,
    widest: int,
    most: int,
    live: Int64Table,
    nodes: Int64s,
    out: Int64Table,
) -> None:
    """Fill ``out`` [n, 3] with how many more such pods each of ``nodes`` [n] takes, and how it is rated for them.

    A row holds the number of pods, for all of which the node has the same span (``UNBOUNDED`` if they draw nothing);
    the span, as ``spans`` has it; and whether the node takes further pods, but with another span or an unknown one.
    No more than ``most`` pods are counted. ``live`` [Z, R] has the free amounts; ``zones.available`` is working memory.
    Cost: O(n * most) calls of ``place``.
    """
    for at in range(nodes.shape[0]):
        node = nodes[at]
        first = zones.start[node]
        size = zones.start[node + 1] - first
        out[at, 0] = UNBOUNDED
        out[at, 2] = 0
        if size == 0:
            out[at, 1] = widest
            continue
        if not is_aligned(zones, guaranteed, devices, node):
            out[at, 1] = size
            continue
        zones.available[first : first + size] = live[first : first + size]
        drawn = np.zeros((size, zones.aware.shape[1]), np.int64)
        count = 0
        while True:
            span = place(zones, requests, node, drawn)
            rating = max(span, 1) if span >= 0 else INFEASIBLE
            if count == 0:
                out[at, 1] = rating
            if rating != out[at, 1] or count == most:
                out[at, 0] = count
                # A strict node refuses a pod that it cannot align; others take it and are rated 0.
                out[at, 2] = int(rating != INFEASIBLE or zones.policy[node] < POLICY_RESTRICTED)
                break
            if rating == INFEASIBLE:
                if zones.policy[node] >= POLICY_RESTRICTED:
                    out[at, 0] = 0
                break
            if not drawn.any():
                break
            zones.available[first : first + size] -= drawn
            count += 1


@kernel
def draw(
    zones: Zones, requests: Requests, guaranteed: bool, devices: Bools, width: int, nodes: Int64s, out: Int64Table
) -> None:
    """Place one pod after the other on ``nodes`` [n] and fill ``out`` [n * ``width``, R] with what each draws.

    The zones of the n-th pod's node are the rows from n * ``width`` on. What is drawn is taken from
    ``zones.available``. Cost: O(n) calls of ``place``.
    """
    out[:, :] = 0
    for at in range(nodes.shape[0]):
        node = nodes[at]
        first = zones.start[node]
        size = zones.start[node + 1] - first
        if size == 0 or not is_aligned(zones, guaranteed, devices, node):
            continue
        drawn = out[at * width : at * width + size]
        if place(zones, requests, node, drawn) == INFEASIBLE:
            drawn[:, :] = 0
            continue
        zones.available[first : first + size] -= drawn
