"""Budgets of GPU-hours at the instant of a snapshot: what of each is left, and for how long groups are charged.

What was used comes from the history of usage (``Past.spent``); where a cycle is decided without one, as commands do,
from the status of queues. The core then sees plain amounts: it knows neither the clock nor a database.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final

import attrs
import numpy as np

from kai.api import names
from kai.api.conventions.budgets import (
    Period,
    amount_of,
    charged_until,
    is_open,
    next_reset,
    period_at,
    slice_seconds,
    usable_budgets,
    weight_of,
)
from kai.api.conventions.runtime_limits import queue_chain
from kai.api.scheduling.queue import BudgetStatus, QueueBudget
from kai.api.scheduling.queue import Queue as ApiQueue
from kai.basics.parsing import GPU_HOUR
from kai.facts.model.axis import Int64s
from kai.facts.model.budgets import STOP, Budget, Key, Spent
from kai.facts.model.groups import PodGroup, Queue, RunBound, path_to
from kai.facts.model.pod import ACTIVE_ALLOCATED, Node, Shape
from kai.facts.state.snapshot import BudgetTable, Snapshot

_NO_END: Final = -1
_UNBOUNDED: Final = RunBound()


@attrs.frozen(kw_only=True)
class Around:
    """What budgets are read from, besides the queues as objects."""

    queues: Sequence[Queue]
    groups: Sequence[PodGroup]
    nodes: Sequence[Node]
    shapes: Sequence[Shape]
    pod_group: Int64s
    pod_shape: Int64s
    pod_status: Int64s
    spent: Mapping[Key, Spent] | None


def read_budgets(queues: Iterable[ApiQueue], around: Around, now: float) -> BudgetTable | None:
    """Return the budgets at ``now``; None where no queue has one.

    Cost: O(queues) without budgets; else that of the groups in and below the queues that have some.
    """
    sources = {each.metadata.name: each for each in queues}
    if not any(each.spec.budgets for each in sources.values()):
        return None
    usable = {name: tuple(usable_budgets(each)) for name, each in sources.items() if each.spec.budgets}
    products = [each.labels.get(names.NODE_GPU_PRODUCT, "") for each in around.nodes]
    models = tuple(sorted({*products}))
    place = {model: at for at, model in enumerate(models)}
    budgets = [
        found
        for row, queue in enumerate(around.queues)
        for each in usable.get(queue.name, ())
        if (found := _budget(row, sources[queue.name], each, models, around.spent, now)) is not None
    ]
    duration, sliced, unending, over = _durations(sources, usable, around, now)
    resets = (each.until if each.until > now else inf for each in budgets)
    begins = (each.since if each.since > now else inf for each in budgets)
    return BudgetTable(
        budgets=tuple(budgets),
        models=models,
        node_model=np.array([place[each] for each in products], np.int64),
        group_model=_models_of(around, place),
        duration=duration,
        sliced=sliced,
        unending=unending,
        next_change=min(min(resets, default=inf), min(begins, default=inf), over, _used_up(budgets, now)),
    )


def _durations(
    sources: Mapping[str, ApiQueue], usable: Mapping[str, Sequence[QueueBudget]], around: Around, now: float
) -> tuple[Int64s, Int64s, frozenset[int], float]:
    """Return the milliseconds that groups are charged for, sliced and unending groups, and when a slice ends."""
    active = np.zeros(len(around.groups) + 1, np.bool_)  # the last one is for pods without a group
    active[around.pod_group[(ACTIVE_ALLOCATED >> around.pod_status) & 1 > 0]] = True
    out, sliced, over = np.zeros(len(around.groups), np.int64), list[int](), inf
    unending: set[int] = set()
    lengths: dict[str, float | None] = {}
    for row, group in enumerate(around.groups):
        if group.queue not in lengths:
            lengths[group.queue] = _slice_length(queue_chain(group.queue, sources.get), usable)
        length = lengths[group.queue]
        if length is None:
            continue
        limits, runs = group.bound or _UNBOUNDED, bool(active[row])
        since = limits.since or group.last_start or now
        until = charged_until(limits.left, since if runs else None, now, length)
        if limits.left == inf:
            unending.add(row)
            if not runs and not group.preemptible:
                out[row] = _NO_END
                continue
            # Of work that starts in this cycle, too: nothing else may happen until its slice is over.
            over = min(over, until)
            if runs:
                sliced.append(row)
        out[row] = math.ceil((until - now) * 1000)
    return out, np.array(sliced, np.int64), frozenset(unending), over


def _slice_length(chain: Sequence[ApiQueue], usable: Mapping[str, Sequence[QueueBudget]]) -> float | None:
    """Return for how long work without an end is charged in a queue; None where nothing in ``chain`` has budgets."""
    found = [usable[each.metadata.name] for each in chain if each.metadata.name in usable]
    return slice_seconds(budget for budgets in found for budget in budgets) if found else None


def _budget(
    row: int,
    queue: ApiQueue,
    budget: QueueBudget,
    models: Sequence[str],
    spent: Mapping[Key, Spent] | None,
    now: float,
) -> Budget | None:
    period = period_at(budget, now)
    if period is None:
        return None
    key = (queue.metadata.name, budget.name)
    found = _written(queue, budget, period) if spent is None else spent.get(key)
    carried = 0 if found is None or found.since < period.begin else found.carried
    return Budget(
        queue=row,
        name=budget.name,
        enforce=budget.enforce,
        amount=amount_of(budget) + carried,
        spent=None if found is None else found.total_at(round(now * 1000), period.begin),
        since=period.since,
        until=period.until if period.until > now else next_reset(period, now),
        timezone=budget.time_zone,
        is_open=is_open(budget, period, now),
        carried=carried,
        pace=0 if found is None else found.pace,
        weights={model: weight_of(budget, model) for model in models},
        users=() if found is None else found.users,
        jobs=() if found is None else found.jobs,
    )


def _written(queue: ApiQueue, budget: QueueBudget, period: Period) -> Spent | None:
    """Return what the status of a queue says; of a budget that no scheduler has written yet, that nothing was used."""
    status = next((each for each in queue.status.budgets if each.name == budget.name), None)
    if status is None:
        return Spent(since=period.begin, at=period.begin, total=0)
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


def budget_statuses(snapshot: Snapshot, budget_used: Int64s) -> dict[str, tuple[BudgetStatus, ...]]:
    """Return what was used of the budgets of each queue; nothing for a queue with a budget whose use is unknown.

    ``budget_used`` [B]: what running work may still cost, for each budget that bounds starts.
    """
    table, out = snapshot.budgets, dict[str, tuple[BudgetStatus, ...]]()
    if table is None:
        return out
    held = table.held(budget_used)
    unknown = {each.queue for each in table.budgets if each.spent is None}
    for each in table.budgets:
        if each.queue in unknown or each.spent is None:
            continue
        status = BudgetStatus(
            name=each.name,
            since=max(0.0, each.since),
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


def _models_of(around: Around, place: Mapping[str, int]) -> Int64s:
    """Return the model that each group is bound to by the selectors of its pods; the number of models for any."""
    chosen = [dict(each.constraints.node_selector).get(names.NODE_GPU_PRODUCT) for each in around.shapes]
    bound_to = [len(place) if each is None else place.get(each, len(place)) for each in chosen]
    out = np.full(len(around.groups), -1, np.int64)
    for group, shape in np.unique(np.column_stack([around.pod_group, around.pod_shape]), axis=0).tolist():
        if group >= 0:
            model = bound_to[shape]
            out[group] = model if out[group] in {-1, model} else len(place)
    out[out < 0] = len(place)
    return out


def _used_up(budgets: Iterable[Budget], now: float) -> float:
    """Return when a budget that takes back work is used up next, at the pace at which it is used now."""
    taking = [each for each in budgets if each.enforce == STOP and each.pace > 0 and each.left > 0]
    return min((now + math.ceil(each.left / each.pace) / 1000 for each in taking), default=inf)


def used_up(queues: Iterable[ApiQueue], spent: Mapping[Key, Spent] | None, now: float) -> frozenset[str]:
    """Return the queues with a budget that is used up and lets other queues take back what runs."""
    return frozenset(
        queue.metadata.name
        for queue in queues
        if queue.spec.budgets
        for each in usable_budgets(queue)
        if each.enforce == STOP and (found := _budget(-1, queue, each, (), spent, now)) is not None and found.is_used_up
    )


def without_shares(queues: Sequence[Queue], names_used_up: frozenset[str]) -> tuple[Queue, ...]:
    """Return the queues; those that are used up, and all below them, without a share of the GPUs.

    Others may then take back what runs there, by the ordinary rules.
    """
    gone = {row for row, queue in enumerate(queues) if queue.name in names_used_up}
    return tuple(
        attrs.evolve(queue, quota=attrs.evolve(queue.quota, gpu=0.0), weight=attrs.evolve(queue.weight, gpu=0.0))
        if gone.intersection(path_to(queues, row))
        else queue
        for row, queue in enumerate(queues)
    )
