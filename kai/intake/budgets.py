"""Budgets of GPU-hours at the instant of a snapshot: what of each is left, and for how long groups are charged.

What was used comes from the history of usage (``Past.spent``); where a cycle is decided without one, as commands do,
from the status of queues. The core then sees plain amounts: it knows neither the clock nor a database.

`usable` says which budgets there are, `standings` what of each is left at an instant, and `read_budgets` makes the
table of a snapshot. Charges begin at a whole millisecond, as the history ends: what work used up to now and what it is
charged from now on then add up to the same at each instant.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final

import attrs
import numpy as np

from kai.api import names
from kai.api.conventions.budgets import (
    UNIT,
    Period,
    amount_of,
    is_open,
    next_reset,
    period_at,
    slice_seconds,
    usable_budgets,
    weight_of,
)
from kai.api.conventions.gpu_sharing import weighed_model
from kai.api.scheduling.queue import BudgetStatus, QueueBudget
from kai.api.scheduling.queue import Queue as ApiQueue
from kai.basics.parsing import GPU_HOUR
from kai.facts.model.axis import Bools, Float64s, Int64s
from kai.facts.model.budgets import STOP, Budget, Key, Spent
from kai.facts.model.groups import Queue, RunBound, path_to
from kai.facts.model.pod import ACTIVE_ALLOCATED, Node
from kai.facts.state.snapshot import BudgetTable, Snapshot

_NO_END: Final = -1
_NEVER: Final = Period(since=inf, until=inf)
_UNBOUNDED: Final = RunBound()
_NOISE: Final = 1e-3
"""Milliseconds by which a sum of fractions may be off; work is charged to the next whole millisecond but for that."""


@attrs.frozen(eq=False)
class Usable:
    """The budgets of queues that can be read, in the order of the rows of queues."""

    entries: tuple[tuple[int, ApiQueue, QueueBudget], ...]
    """The row of the queue, the queue and the budget."""
    slices: Float64s
    """[Q + 1] For how long work without an end is charged at a time in each queue, in seconds; NaN where no budget
    counts, and for groups without a queue, the last."""


def usable(sources: Iterable[ApiQueue], queues: Sequence[Queue]) -> Usable | None:
    """Return the budgets of the queues of a snapshot; None where no queue has one. Cost: O(queues)."""
    budgeted = {each.metadata.name: each for each in sources if each.spec.budgets}
    if not budgeted:
        return None
    entries: list[tuple[int, ApiQueue, QueueBudget]] = []
    own: dict[int, list[QueueBudget]] = {}
    for row, queue in enumerate(queues):
        if queue.name in budgeted:
            source = budgeted[queue.name]
            own[row] = list(usable_budgets(source))
            entries += [(row, source, each) for each in own[row]]
    slices = np.full(len(queues) + 1, np.nan)
    for row in range(len(queues)):
        above = [own[each] for each in path_to(queues, row) if each in own]
        if above:
            slices[row] = slice_seconds(budget for budgets in above for budget in budgets)
    return Usable(tuple(entries), slices)


def standings(found: Usable | None, spent: Mapping[Key, Spent] | None, now: float) -> tuple[Budget, ...]:
    """Return what of each budget is left at ``now``. Cost: O(budgets)."""
    entries = () if found is None else found.entries
    return tuple([_budget(row, queue, budget, spent, now) for row, queue, budget in entries])


def read_budgets(found: Usable | None, budgets: Sequence[Budget], snapshot: Snapshot) -> BudgetTable | None:
    """Return the table of budgets of a snapshot that has none; None where no queue has one.

    ``budgets`` are the `standings` at its instant.

    Cost: O(budgets), and O(G) in columns.
    """
    if found is None:
        return None
    once, nodes = snapshot.memory.once, snapshot.nodes
    models, node_model = once("GPU products", (nodes,), lambda: _products(nodes))
    now = round(snapshot.now * 1000)
    charges = _Charges.of(found, snapshot, now)
    # Until the first of these nothing changes by time alone, so the scheduler may rest.
    edges = [edge for each in budgets for edge in (each.since, each.until) if edge > snapshot.now]
    return BudgetTable(
        budgets=tuple(budgets),
        weights=once("weights of budgets", (found, models), lambda: _weights(found, models)),
        node_model=node_model,
        group_model=once(
            "products of groups",
            (snapshot.pod_group, snapshot.pod_shape, snapshot.shapes, models),
            lambda: _models_of(snapshot, models),
        ),
        duration=charges.duration,
        sliced=charges.sliced,
        unending=charges.unending,
        at=now,
        next_change=min([*edges, charges.over, _used_up(budgets, snapshot.now)]),
    )


def _products(nodes: Sequence[Node]) -> tuple[tuple[str, ...], Int64s]:
    """Return the GPU models of nodes, and the place of that of each node among them."""
    products = [weighed_model(each.labels) for each in nodes]
    models = tuple(sorted({*products}))
    place = {model: at for at, model in enumerate(models)}
    return models, np.array([place[each] for each in products], np.int64)


def _weights(found: Usable, models: Sequence[str]) -> Int64s:
    """Return int64[A, M + 1]: what a GPU of each model counts at each budget, and the most."""
    known = [[weight_of(budget, model) for model in models] for _, _, budget in found.entries]
    return np.array([[*row, max(row, default=UNIT)] for row in known], np.int64).reshape(len(known), len(models) + 1)


def _limits(snapshot: Snapshot) -> tuple[Float64s, Float64s, Bools, Int64s]:
    """Return of each group how long it may run, since when it runs, whether it may be preempted, and its queue."""
    groups = snapshot.groups

    def read(rows: Sequence[int]) -> tuple[Float64s, Float64s, Bools, Int64s]:
        some = [groups[row] for row in rows]
        bounds = [each.bound or _UNBOUNDED for each in some]
        begun = [bound.since or each.last_start for each, bound in zip(some, bounds, strict=True)]
        return (
            np.array([each.left for each in bounds], np.float64),
            np.array([np.nan if each is None else each for each in begun], np.float64),
            np.array([each.preemptible for each in some], np.bool_),
            np.array([each.queue_row for each in some], np.int64),
        )

    left, since, preemptible, queue = snapshot.memory.rows.columns(
        "limits for budgets", snapshot.versions.groups, len(groups), read
    )
    return left, since, preemptible.astype(np.bool_), queue


@attrs.frozen(eq=False)
class _Charges:
    """For how long the pods of each group are charged."""

    duration: Int64s
    sliced: Int64s
    unending: Bools
    over: float
    """When a slice ends next, in seconds; infinity for never."""

    @classmethod
    def of(cls, found: Usable, snapshot: Snapshot, now: int) -> "_Charges":
        """Return the charges at ``now``, in milliseconds.

        Work with an end is charged until then, and no more once it is late; other work until its present slice is over,
        counted from its start. What may not be preempted starts with an end only.
        """
        left, begun, preemptible, queue = _limits(snapshot)
        runs = np.zeros(len(left) + 1, np.bool_)  # the last one is for pods without a group
        runs[snapshot.pod_group[(ACTIVE_ALLOCATED >> snapshot.pod_status) & 1 > 0]] = True
        runs = runs[:-1]
        length = found.slices[queue]
        counts = ~np.isnan(length)
        sliced, ends = counts & ~np.isfinite(left), counts & np.isfinite(left)
        # What does not run yet is charged as if it began now.
        since = np.where(runs & ~np.isnan(begun), begun * 1000, float(now))
        duration = np.zeros(len(left), np.int64)
        duration[ends] = np.maximum(_whole(since[ends] + left[ends] * 1000) - now, 0)
        steps, start = _whole(length[sliced] * 1000), _whole(since[sliced])
        passed = np.maximum(now - start, 0)
        duration[sliced] = start + (passed // steps + 1) * steps - now
        charged = sliced & (runs | preemptible)
        duration[sliced & ~charged] = _NO_END
        over = (now + int(duration[charged].min())) / 1000 if charged.any() else inf
        return cls(duration, np.flatnonzero(sliced & runs), sliced, over)


def _whole(milliseconds: Float64s) -> Int64s:
    return np.ceil(milliseconds - _NOISE).astype(np.int64)


def _budget(row: int, queue: ApiQueue, budget: QueueBudget, spent: Mapping[Key, Spent] | None, now: float) -> Budget:
    period = period_at(budget, now) or _NEVER  # what can be read has a period
    begin = period.begin
    found = _written(queue, budget, begin) if spent is None else spent.get((queue.metadata.name, budget.name))
    # What was read in an earlier period does not say what is carried into this one.
    carried = 0 if found is None or found.since < begin else found.carried
    return Budget(
        queue=row,
        name=budget.name,
        enforce=budget.enforce,
        amount=amount_of(budget) + carried,
        spent=None if found is None else found.total_at(round(now * 1000), begin),
        since=period.since,
        until=period.until if period.until > now else next_reset(period, now),
        timezone=budget.time_zone,
        is_open=is_open(budget, period, now),
        carried=carried,
        pace=0 if found is None else found.pace,
        users=() if found is None else found.users,
        jobs=() if found is None else found.jobs,
    )


def _written(queue: ApiQueue, budget: QueueBudget, begin: int) -> Spent | None:
    """Return what the status of a queue says; of a budget that no scheduler has written yet, that nothing was used."""
    status = next((each for each in queue.status.budgets if each.name == budget.name), None)
    if status is None:
        return Spent(since=begin, at=begin, total=0)
    return spent_in(status)


def spent_in(status: BudgetStatus) -> Spent:
    """Return what a status says; what was held at its instant is not known, so it stays at that."""
    return Spent(
        since=round(status.since * 1000),
        at=round(status.at * 1000),
        total=round(status.spent * GPU_HOUR),
        carried=round(status.carried * GPU_HOUR),
        users=tuple(sorted(((user, round(hours * GPU_HOUR)) for user, hours in status.user_hours.items()), key=_most)),
    )


def budget_statuses(
    snapshot: Snapshot, budget_used: Int64s, budget_left: Int64s
) -> dict[str, tuple[BudgetStatus, ...]]:
    """Return what was used of the budgets of each queue; nothing for a queue with a budget whose use is unknown.

    ``budget_used`` [B]: what running work may still cost, for each budget that bounds starts, as of the instant at
    which ``budget_left`` [B] was left.
    """
    table, out = snapshot.budgets, dict[str, tuple[BudgetStatus, ...]]()
    if table is None:
        return out
    held = table.held(budget_used, budget_left)
    unknown = {each.queue for each in table.budgets if each.spent is None}
    for each in table.budgets:
        # The status of a queue is written as one: a list without a budget would say that it has none.
        if each.queue in unknown or each.spent is None:
            continue
        status = BudgetStatus(
            name=each.name,
            since=max(0.0, each.since),
            # JSON has no infinity.
            until=each.until if math.isfinite(each.until) else None,
            at=snapshot.now,
            spent=_hours(each.spent),
            committed=_hours(held.get((each.queue, each.name), 0)),
            carried=_hours(each.carried),
            user_hours={user: _hours(used) for user, used in each.users if user},
        )
        name = snapshot.queues[each.queue].name
        out[name] = (*out.get(name, ()), status)
    return out


def _hours(microseconds: int) -> float:
    return max(0.0, round(microseconds / GPU_HOUR, 4))


def _most(each: tuple[str, int]) -> tuple[int, str]:
    return -each[1], each[0]


def _models_of(snapshot: Snapshot, models: Sequence[str]) -> Int64s:
    """Return the model that each group is bound to by the selectors of its pods; the number of models for any."""
    place, none = {model: at for at, model in enumerate(models)}, len(models)
    selectors = [dict(each.constraints.node_selector) for each in snapshot.shapes]
    chosen = [each.get(names.NODE_GPU_MODEL) or each.get(names.NODE_GPU_PRODUCT) for each in selectors]
    out = np.full(len(snapshot.groups), none, np.int64)
    # Most clusters have no such selector, and then no pod is looked at.
    if all(each is None for each in chosen):
        return out
    bound_to = np.array([none if each is None else place.get(each, none) for each in chosen], np.int64)
    pods = np.flatnonzero(snapshot.pod_group >= 0)
    groups, of_pods = snapshot.pod_group[pods], bound_to[snapshot.pod_shape[pods]]
    # A group is bound to a model if all its pods are: then the least and the most are the same.
    least, most = np.full(len(out), none, np.int64), np.full(len(out), -1, np.int64)
    np.minimum.at(least, groups, of_pods)
    np.maximum.at(most, groups, of_pods)
    return np.where(least == most, least, out)


def _used_up(budgets: Iterable[Budget], now: float) -> float:
    """Return when a budget that takes back work is used up next, at the pace at which it is used now."""
    taking = [each for each in budgets if each.enforce == STOP and each.pace > 0 and each.left > 0]
    return min((now + math.ceil(each.left / each.pace) / 1000 for each in taking), default=inf)


def without_shares(queues: Sequence[Queue], gone: frozenset[int]) -> tuple[Queue, ...]:
    """Return the queues; those in some rows, and all below them, without a share of the GPUs.

    Others may then take back what runs there, by the ordinary rules.
    """
    return tuple(
        attrs.evolve(queue, quota=attrs.evolve(queue.quota, gpu=0.0), weight=attrs.evolve(queue.weight, gpu=0.0))
        if gone.intersection(path_to(queues, row))
        else queue
        for row, queue in enumerate(queues)
    )
