"""Dividing a resource among sibling queues: quota first, then the surplus by priority and weight, then the remainders.

All numbers are float64, in the unit in which remainders are handed out: a device, a millicore, a byte.

Source: the peer's plugins/proportion/resource_division; the idea is weighted water-filling (Bertsekas and Gallager,
    section 6.5).
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Float64s, Float64Table, Int64s, Int64Table
from kai.facts.kernels.arrays import ascending


@kernel
def give_quota(total: float, quota: Float64s, requestable: Float64s, shares: Float64s) -> float:
    """Add min(quota, requestable) to each of ``shares`` [Q]; return the rest of ``total``, possibly negative.

    An unlimited quota (-1) stands for ``total``. Quotas can be oversubscribed, so their sum may exceed ``total``.
    """
    remaining = total
    for queue in range(shares.shape[0]):
        # Quotas are not cut to the rest of the total: where they are oversubscribed each queue keeps its claim, and
        # the rest is negative.
        granted = min(total if quota[queue] == -1.0 else quota[queue], requestable[queue])
        shares[queue] += granted
        remaining -= granted
    return remaining


@inner
def _rates(
    band: Int64s,
    weight: Float64s,
    usage: Float64s,
    request: Float64s,
    limit: Float64s,
    requestable: Float64s,
    k: float,
    shares: Float64s,
    rates: Float64s,
) -> float:
    """Compute the ``rates`` at which the surplus flows to each hungry queue of the band; return their sum."""
    weights = 0.0
    for queue in band:
        # Weights of queues that are full count no more, so the rest of the band divides the whole surplus and not just
        # its former part.
        if requestable[queue] > shares[queue]:
            weights += weight[queue]
    if weights == 0.0:
        return 0.0
    total = 0.0
    for queue in band:
        rates[queue] = -1.0
        if request[queue] > shares[queue] and (limit[queue] == -1.0 or limit[queue] > shares[queue]):
            portion = weight[queue] / weights
            # A queue that used more in the past than its weight gives it gets less now; `k` says by how much.
            rates[queue] = max(0.0, portion + k * (portion - usage[queue]))
            total += rates[queue]
    return total


@inner
def _share_surplus(
    surplus: float,
    band: Int64s,
    weight: Float64s,
    usage: Float64s,
    request: Float64s,
    limit: Float64s,
    requestable: Float64s,
    k: float,
    shares: Float64s,
    leftovers: Float64s,
) -> float:
    rates = np.zeros(shares.shape[0], np.float64)
    again = True
    # Each further round needs a queue that took less than its part and so became full. A full queue has no rate, so
    # there are at most Q + 1 rounds.
    while again and surplus != 0.0:
        again = False
        total = _rates(band, weight, usage, request, limit, requestable, k, shares, rates)
        if total == 0.0:
            break
        # One surplus for the whole round: with what each queue leaves to the next, the order of queues would decide.
        offered = surplus
        for queue in band:
            # A queue of weight 0 gets nothing of the surplus: no units, and no remainder either, since it never has a
            # leftover.
            if rates[queue] < 0.0 or weight[queue] <= 0.0:
                continue
            if surplus == 0.0:
                break
            wanted = requestable[queue] - shares[queue]
            part = offered * (rates[queue] / total)
            if wanted <= part:
                given = wanted
                leftovers[queue] = 0.0
            else:
                given = max(0.0, np.floor(part))  # rounded sums can leave a negative surplus
                if part - given > 0.0:
                    # Whole units are given in rounds. What is cut off here is given at the end, to the largest
                    # remainders first.
                    leftovers[queue] = part - given
            shares[queue] += given
            surplus -= given
            # The rest of its part is for the others. Where nothing was given, another round would offer the same again.
            if given > 0.0 and wanted < part:
                again = True
    return surplus


@inner
def _past_level(priority: Int64s, falling: Int64s, first: int) -> int:
    """Return the position in ``falling`` after the last queue with the priority of that at ``first``."""
    past = first + 1
    while past < falling.shape[0] and priority[falling[past]] == priority[falling[first]]:
        past += 1
    return past


@kernel
def give_surplus(
    surplus: float,
    order: Int64s,
    priority: Int64s,
    weight: Float64s,
    usage: Float64s,
    request: Float64s,
    limit: Float64s,
    k: float,
    shares: Float64s,
) -> float:
    """Divide ``surplus`` among the queues and add it to ``shares``; return the rest that no queue may have.

    Shapes: all arrays [Q]; ``order`` lists the queues oldest first, which breaks ties of remainders.
    Holds:  higher priority is served first; a share stays at or below what the queue can use, except for a remainder of
        less than one unit.
    Cost:   O(rounds x Q) for each priority.
    """
    count = shares.shape[0]
    requestable = np.empty(count, np.float64)
    for queue in range(count):
        requestable[queue] = request[queue] if limit[queue] == -1.0 else min(limit[queue], request[queue])
    leftovers = np.zeros(count, np.float64)
    # As floats, because sorting floats is compiled elsewhere anyway; sorting integers would be compiled for this only.
    lowness = np.empty(count, np.float64)
    for queue in range(count):
        lowness[queue] = -priority[queue]
    falling = ascending(lowness)
    first = 0
    while first < count:
        past = _past_level(priority, falling, first)
        band = falling[first:past]
        surplus = _share_surplus(surplus, band, weight, usage, request, limit, requestable, k, shares, leftovers)
        first = past
    # Remainders only now: whole units of the surplus go before fractions, also those of a lower priority.
    first = 0
    while first < count:
        level = priority[falling[first]]
        first = _past_level(priority, falling, first)
        # At most one unit for each queue, the largest remainder first; the strict comparison leaves ties to the older
        # one.
        while surplus > 0.0:
            best = -1
            for queue in order:
                if (
                    priority[queue] == level
                    and leftovers[queue] > 0.0
                    and (best < 0 or leftovers[queue] > leftovers[best])
                ):
                    best = queue
            if best < 0:
                break
            given = min(1.0, surplus)
            shares[best] += given
            surplus -= given
            leftovers[best] = 0.0
    return surplus


@kernel
def divide(
    total: float,
    order: Int64s,
    priority: Int64s,
    quota: Float64s,
    limit: Float64s,
    weight: Float64s,
    usage: Float64s,
    request: Float64s,
    k: float,
    shares: Float64s,
) -> float:
    """Divide ``total`` of one resource among sibling queues into ``shares``; return the remainder, never negative.

    Shapes: all arrays [Q]. Units: one unit is what a remainder hands out.
    Cost:   O(rounds x Q).
    """
    count = shares.shape[0]
    requestable = np.empty(count, np.float64)
    for queue in range(count):
        requestable[queue] = request[queue] if limit[queue] == -1.0 else min(limit[queue], request[queue])
    remaining = give_quota(total, quota, requestable, shares)
    # Oversubscribed quotas left nothing, or less than nothing: there is no surplus to divide, and none to take back
    # either.
    if remaining <= 0.0:
        return 0.0
    return max(0.0, give_surplus(remaining, order, priority, weight, usage, request, limit, k, shares))


@kernel
def divide_models(
    order: Int64s,
    parent: Int64s,
    quota: Float64Table,
    pools: Int64s,
    held: Int64Table,
    waiting: Int64Table,
    deserved: Int64Table,
) -> None:
    """Fill ``deserved`` with what each queue is owed of each GPU model, and add up ``waiting`` along the tree.

    A queue is owed its quota, as far as it holds GPUs of the model and bound pods wait for more; one without a quota is
    owed what the queues below it are. Where the pool, or what the parent is owed, is smaller than the sum of siblings,
    each is owed the same part of its own.

    Shapes: order [Q] parents before their children, parent [Q] (-1: top), pools [M] → quota, held (summed up the tree),
        waiting (of each queue alone), deserved [Q, M].
    Units:  thousandths of GPUs; a quota of -1 is unlimited, and 0 is none.
    Holds:  deserved <= held + waiting; deserved <= quota where there is one; the sum over siblings is at most the pool,
        and what their parent is owed.
    Cost:   O(Q x M).
    """
    queues, models = deserved.shape
    # Row q + 1 is of the children of q, row 0 of the queues at the top.
    claimed = np.zeros((queues + 1, models), np.int64)
    for at in range(queues - 1, -1, -1):
        queue = order[at]
        above = parent[queue]
        for model in range(models):
            own, demand = quota[queue, model], held[queue, model] + waiting[queue, model]
            owed = claimed[queue + 1, model] if own == 0 else demand if own < 0 else int(own)
            deserved[queue, model] = min(owed, demand)
            claimed[above + 1, model] += deserved[queue, model]
            if above >= 0:
                waiting[above, model] += waiting[queue, model]
    for queue in order:
        above = parent[queue]
        for model in range(models):
            most, claims = pools[model] if above < 0 else deserved[above, model], claimed[above + 1, model]
            if claims > most:
                # In integers and downwards: sums stay within the pool.
                deserved[queue, model] = deserved[queue, model] * most // claims
