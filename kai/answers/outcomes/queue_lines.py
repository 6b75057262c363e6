"""Queues for people: one line for each, as a tree, with its shares of the cluster; and the week of a queue.

A queue whose amounts follow the clock has a week: its slices, and half hours for a picture. A week begins at midnight
of the day of an instant, on the clock of the queue's zone. The same values make the picture of a terminal, that of the
dashboard, and the document.
"""

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from kai.answers.offline.run import Cycle
from kai.api.conventions.quota_windows import is_usable, slices
from kai.api.scheduling.queue import Queue, QueueResources
from kai.basics.parsing import GPU_HOUR
from kai.basics.schedules import read_zone
from kai.basics.trees import descendants
from kai.basics.wording import number_text
from kai.deciding.explain.code_texts import date_text
from kai.facts.model.axis import LEADING, SHARED_RESOURCES
from kai.facts.model.budgets import ADMIT, STOP
from kai.facts.state.budgets import users_of
from kai.facts.state.facts import named_models


@attrs.frozen(kw_only=True)
class Share:
    """One resource of a queue in axis units; None is unlimited."""

    quota: float | None
    limit: float | None
    fair_share: float
    used: float
    used_non_preemptible: float
    wanted: float


@attrs.frozen(kw_only=True)
class ModelUse:
    """What a queue may use, and uses, of one model of GPU, in thousandths of GPUs; None is unlimited."""

    model: str
    limit: float | None
    used: float
    quota: float | None = 0.0
    deserved: float = 0.0
    """The part of the quota that it is owed now: it holds that many, or bound jobs wait for them."""


@attrs.frozen(kw_only=True)
class UserUse:
    """What one user may hold, and holds, of one resource in a queue that limits users, in axis units."""

    user: str
    resource: str
    """``cpu``, ``memory`` or ``gpu``."""
    limit: float
    used: float


@attrs.frozen(kw_only=True)
class QueueLine:
    """One queue after the last cycle, in tree order. ``last``: whether it is the last child, for each level."""

    name: str
    parent: str
    leaf: bool
    priority: int
    depth: int
    last: tuple[bool, ...]
    running: int
    waiting: int
    shares: tuple[Share, Share, Share]
    """CPU, memory, GPU."""
    models: tuple[ModelUse, ...] = ()
    """The models of GPUs that the queue bounds."""
    users: tuple[UserUse, ...] = ()
    """The users with jobs in a queue that limits users, or below it, by name."""


def queue_lines(cycle: Cycle, *, running: Mapping[str, int], waiting: Mapping[str, int]) -> tuple[QueueLine, ...]:
    """Return the queues as a tree; ``running`` and ``waiting`` are the job counts of each leaf."""
    queues = cycle.snapshot.queues
    children: dict[int, list[int]] = {}
    for row, queue in enumerate(queues):
        children.setdefault(queue.parent, []).append(row)
    users = users_of(cycle.snapshot, cycle.report.accounts)
    out: list[QueueLine] = []
    # A stack and not recursion: the depth of a tree comes from manifests.
    todo: list[tuple[int, tuple[bool, ...]]] = [(top, ()) for top in reversed(children.get(-1, []))]
    while todo:
        row, last = todo.pop()
        below = children.get(row, [])
        leaves = {queues[leaf].name for leaf in descendants(row, lambda at: children.get(at, ()))}
        queue = queues[row]
        out.append(
            QueueLine(
                name=queue.name,
                parent=queues[queue.parent].name if queue.parent >= 0 else "",
                leaf=not below,
                priority=queue.priority,
                depth=len(last),
                last=last,
                running=sum(running.get(leaf, 0) for leaf in leaves),
                waiting=sum(waiting.get(leaf, 0) for leaf in leaves),
                shares=_shares(cycle, row),
                models=_models(cycle, row),
                users=_users(cycle, row, users),
            )
        )
        todo += [(child, (*last, child == below[-1])) for child in reversed(below)]
    return tuple(out)


def _models(cycle: Cycle, row: int) -> tuple[ModelUse, ...]:
    named, used, deserved = named_models(cycle.snapshot), cycle.report.queue_models, cycle.report.models_deserved
    return tuple(
        ModelUse(
            model=model,
            limit=None if each.limit < 0 else each.limit,
            used=float(used[row, at]),
            quota=None if each.quota < 0 else each.quota,
            deserved=0.0 if deserved is None else float(deserved[row, at]),
        )
        for model, each in sorted(cycle.snapshot.queues[row].models.items())
        for at in [named.index(model)]
    )


def _users(cycle: Cycle, row: int, names: Sequence[str]) -> tuple[UserUse, ...]:
    accounts, report = cycle.report.accounts, cycle.report
    if cycle.snapshot.queues[row].per_user is None:
        return ()
    found = sorted((names[each], each) for each in np.flatnonzero(accounts.queue == row).tolist())
    return tuple(
        UserUse(user=user, resource=resource, limit=limit, used=float(report.user_used[account, at]))
        for user, account in found
        for at, resource in enumerate(LEADING[:SHARED_RESOURCES])
        for limit in [float(accounts.limit[account, at])]
        if limit >= 0
    )


def _shares(cycle: Cycle, row: int) -> tuple[Share, Share, Share]:
    queue, report = cycle.snapshot.queues[row], cycle.report
    quota = (queue.quota.cpu, queue.quota.memory, queue.quota.gpu)
    limit = (queue.limit.cpu, queue.limit.memory, queue.limit.gpu)
    cpu, memory, gpu = (
        Share(
            quota=None if quota[at] < 0 else quota[at],
            limit=None if limit[at] < 0 else limit[at],
            fair_share=float(report.fair_share[row, at]),
            used=float(report.queue_used[row, at]),
            used_non_preemptible=float(report.queue_fixed[row, at]),
            wanted=float(report.queue_requested[row, at]),
        )
        for at in range(3)
    )
    return cpu, memory, gpu


@attrs.frozen(kw_only=True)
class BudgetLine:
    """One budget of a queue after the last cycle.

    Units: GPU-hours, weighted by GPU model.
    """

    queue: str
    name: str
    enforce: str
    amount: float
    """With what was carried over."""
    used: float | None
    """None where it is not known."""
    held: float
    """What running work may still use, as far as the budget bounds starts."""
    until: float
    """When it begins anew, in seconds since the epoch; infinity for never."""
    timezone: str = ""

    @property
    def begins_anew(self) -> str:
        """When it begins anew, on the clock of its zone; "" for never."""
        return date_text(self.until, self.timezone) if math.isfinite(self.until) else ""

    @property
    def is_used_up(self) -> bool:
        """Whether all of it was used, by work that is over or runs."""
        return self.used is not None and self.used >= self.amount

    @property
    def left(self) -> float | None:
        """What new work may use; None where it is not known."""
        return None if self.used is None else max(0.0, self.amount - self.used - self.held)


def budget_lines(cycle: Cycle) -> tuple[BudgetLine, ...]:
    """Return the budgets of all queues, by the names of queues."""
    table, report = cycle.snapshot.budgets, cycle.report
    if table is None:
        return ()
    held = table.held(report.budget_used, report.budget_left)
    return tuple(
        BudgetLine(
            queue=cycle.snapshot.queues[each.queue].name,
            name=each.name,
            enforce=each.enforce,
            amount=each.amount / GPU_HOUR,
            used=None if each.spent is None else each.spent / GPU_HOUR,
            # A budget that stops work bounds what runs, not what starts, so nothing is held back for running work.
            held=0.0 if each.enforce == STOP else held.get((each.queue, each.name), 0) / GPU_HOUR,
            until=each.until,
            timezone=each.timezone,
        )
        for each in table.budgets
    )


def budget_text(line: BudgetLine) -> str:
    """Return the remainder of a budget, when it resets, and what happens once it is used up, as one sentence."""
    name, amount = f"budget {line.name} of queue {line.queue}", _hours(line.amount)
    if line.used is None or line.left is None:
        follows = "new work waits" if line.enforce == ADMIT else "nothing waits for it"
        return f"It is not known what was used of {name}, so {follows}."
    if line.is_used_up:
        after = {ADMIT: "nothing more starts", STOP: "nothing starts, and other queues may take back what runs"}
        follows = after.get(line.enforce, "it only warns, so work goes on")
        again = f" It begins anew on {line.begins_anew}." if line.begins_anew else ""
        return f"B{name[1:]} is used up, with {_hours(line.used)} of {amount} GPU-hours: {follows}.{again}"
    again = f" until {line.begins_anew}" if line.begins_anew else ""
    held = f", and {_hours(line.held)} are held for running work" if line.held else ""
    return f"B{name[1:]} has {_hours(line.left)} of {amount} GPU-hours left{again}{held}."


def _hours(amount: float) -> str:
    return number_text(round(amount, 1), 9)


# --- Weeks -----------------------------------------------------------------------------------------------------------

PARTS: Final = ("gpu", "cpu", "memory")
DAYS: Final = 7
CELLS: Final = 48
"""The cells of a day in a picture: half hours."""
_DAY_SECONDS: Final = 86_400.0
_NO_RESOURCES: Final = QueueResources()


@attrs.frozen(kw_only=True)
class WeekSlice:
    """A time in which the amounts of a queue do not change. Units: seconds since the epoch."""

    since: float
    until: float
    windows: tuple[str, ...]
    """The windows that are open."""
    resources: QueueResources


@attrs.frozen(kw_only=True)
class QueueWeek:
    """The week of one queue."""

    queue: str
    zone: str
    """The IANA zone of its clock; "" for UTC."""
    slices: tuple[WeekSlice, ...]

    def days(self, part: str) -> Iterator[tuple[str, list[float]]]:
        """Yield each day of the week with the quota of one resource in its half hours; -1 is unlimited.

        A day on which clocks change has as many cells as it has half hours.
        """
        zone = read_zone(self.zone)
        day = dt.datetime.fromtimestamp(self.slices[0].since, zone).date()
        for _ in range(DAYS):
            begin = dt.datetime.combine(day, dt.time(), tzinfo=zone).timestamp()
            end = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), tzinfo=zone).timestamp()
            halves = range(round((end - begin) / 1_800))
            yield f"{day:%a}", [getattr(self.at(begin + 1_800 * at).resources, part).quota for at in halves]
            day += dt.timedelta(days=1)

    def at(self, instant: float) -> WeekSlice:
        """Return the slice of an instant."""
        return next((each for each in reversed(self.slices) if each.since <= instant), self.slices[0])


def weeks_of(queues: Iterable[Queue], now: float) -> tuple[QueueWeek, ...]:
    """Return the week of each queue whose amounts follow the clock, by name."""
    found = [each for each in queues if any(map(is_usable, each.spec.schedules))]
    return tuple(_week(each, now) for each in sorted(found, key=lambda queue: queue.metadata.name))


def _week(queue: Queue, now: float) -> QueueWeek:
    name = next(each.time_zone for each in queue.spec.schedules if is_usable(each))
    zone = read_zone(name)
    day = dt.datetime.fromtimestamp(now, zone).date()
    begin = dt.datetime.combine(day, dt.time(), tzinfo=zone).timestamp()
    end = dt.datetime.combine(day + dt.timedelta(days=DAYS), dt.time(), tzinfo=zone).timestamp()
    made = [
        WeekSlice(
            since=since,
            until=min(now.until, end),
            windows=now.names,
            resources=now.resources or _NO_RESOURCES,
        )
        for since, now in slices(queue.spec, begin, end)
    ]
    return QueueWeek(queue=queue.metadata.name, zone=name, slices=tuple(made))
