"""Budgets of GPU-hours: which period is current, what a GPU of a model counts, and how long work is charged for.

All here is a function of a queue, a group and an instant, so intake, the history of usage, the webhook and lint agree.
A period begins at the times of a schedule (`kai.basics.schedules`), on the clock of a zone, and lasts to the next; the
instant at which one ends belongs to the next. Nothing decays.

A budget that cannot be read counts as absent: nothing waits because of a typing error, and the webhook refuses it.

Units: GPU-microseconds, thousandths of GPUs times milliseconds, as in the history of usage.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.conventions.gpu_sharing import is_of_model
from kai.api.conventions.quota_windows import BadEntry
from kai.api.scheduling.queue import MOST_BUDGETS, MOST_WEIGHTS, ModelWeight, Queue, QueueBudget
from kai.api.values import BadValue, instant
from kai.basics.parsing import GPU_HOUR, mappings_of, number_or, seconds_or, text_of
from kai.basics.schedules import Schedule, read_zone
from kai.basics.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ONCE: Final = "once"
PERIODS: Final[Mapping[str, str]] = {"monthly": "0 0 1 * *", "weekly": "0 0 * * 1", "daily": "0 0 * * *"}
UNIT: Final = 1000
"""Thousandths in 1, of weights and of GPUs."""
_MOST_HOURS: Final = 1e9
"""The largest amount that fits, with room for sums, into 64 bits."""
_SHORTEST_SLICE: Final = 60.0
_LONGEST_SLICE: Final = 30 * 86_400.0
_MOST_WEIGHT: Final = 1000.0
_DAY: Final = 86_400.0
_SOME_DAY: Final = 1_767_225_600.0
"""2026-01-01, from which on periods are looked at."""
# More than the months of a year, so that the longest one is among them.
_PERIODS_LOOKED_AT: Final = 16
_PERIOD_WANTED: Final = 'monthly, weekly, daily, once, or five fields of cron such as "0 6 1 * *"'


@attrs.frozen(kw_only=True)
class Period:
    """One period of a budget.

    Units: seconds since the epoch; infinite for no begin or no end.
    """

    since: float
    until: float

    @property
    def begin(self) -> int:
        """When it began, in milliseconds since the epoch; 0 for no begin."""
        return max(0, round(self.since * 1000)) if self.since > -inf else 0


def period_at(budget: QueueBudget, instant: float) -> Period | None:
    """Return the period of a budget at an instant; None for a budget that cannot be read.

    A budget with period ``once`` has that one period before and after it, too: see `is_open`.
    """
    if budget.period == ONCE:
        since, until = budget.from_, budget.until
        return Period(since=-inf if since is None else since, until=inf if until is None else until)
    return _period(budget.period, budget.time_zone, instant)


def period_before(budget: QueueBudget, period: Period) -> Period | None:
    """Return the period before ``period``; None for a budget without such."""
    if budget.period == ONCE or period.since == -inf:
        return None
    # The instant at which a period ends belongs to the next one, so ask just ahead of the begin.
    found = _period(budget.period, budget.time_zone, period.since - 1e-3)
    return None if found is None or found.since == -inf else found


def is_open(budget: QueueBudget, period: Period, instant: float) -> bool:
    """Return whether work may start under a budget at an instant: a budget for once gives nothing outside its time."""
    return budget.period != ONCE or period.since <= instant < period.until


def next_reset(period: Period, instant: float) -> float:
    """Return when the clock changes the remainder of a budget next, in seconds since the epoch."""
    return period.since if period.since > instant else period.until if period.until > instant else inf


def longest_days(budget: QueueBudget) -> float:
    """Return how many days a period of a budget has at most; 0 for one without begin or end, or that has no period."""
    if budget.period == ONCE:
        return 0.0 if budget.from_ is None or budget.until is None else (budget.until - budget.from_) / _DAY
    # Not from today on: lint says the same about a file each day.
    period, longest = period_at(budget, _SOME_DAY), 0.0
    for _ in range(_PERIODS_LOOKED_AT):
        if period is None or period.until == inf:
            break
        longest = max(longest, period.until - period.since)
        period = period_at(budget, period.until)
    return longest / _DAY if longest < inf else 0.0


@functools.lru_cache(maxsize=1 << 12)
def _schedule(text: str, zone: str) -> tuple[Schedule, dt.tzinfo] | None:
    try:
        schedule, read = Schedule.read(PERIODS.get(text, text)), read_zone(zone)
    except ValueError:
        return None
    # An interval such as @every 90m begins at no time of a calendar, so two readers would count other periods.
    return None if schedule.every is not None else (schedule, read)


@functools.lru_cache(maxsize=1 << 12)
def _edges(text: str, zone: str, second: int) -> Period | None:
    found = _schedule(text, zone)
    if found is None:
        return None
    schedule, read = found
    moment = dt.datetime.fromtimestamp(second, read)
    # before() includes the moment itself and after() does not: a begin lies in its own period.
    last, following = schedule.before(moment), next(schedule.after(moment), None)
    return Period(
        since=-inf if last is None else last.timestamp(), until=inf if following is None else following.timestamp()
    )


def _period(text: str, zone: str, instant: float) -> Period | None:
    # Times of cron are whole minutes, so every instant of a minute lies in one period.
    return _edges(text, zone, math.floor(instant / 60) * 60)


# --- Amounts ----------------------------------------------------------------------------------------------------------


def amount_of(budget: QueueBudget) -> int:
    """Return the amount of a budget in GPU-microseconds."""
    return round(budget.amount * GPU_HOUR)


def carried_over(budget: QueueBudget, spent_before: int) -> int:
    """Return what is added to a period after one in which ``spent_before`` was used, in GPU-microseconds.

    Only the amount itself is carried over, not what was carried over before: a remainder lasts for one period.
    """
    # Rounded down, as charges are rounded up: rounding never lets work exceed a budget.
    return math.floor(max(0, amount_of(budget) - spent_before) * min(1.0, max(0.0, budget.carry_over)))


def weight_of(budget: QueueBudget, model: str) -> int:
    """Return what an hour of a GPU of ``model`` counts, in thousandths of an hour."""
    # The first entry that fits decides, so a pattern may follow the models that it makes no rule for.
    return next((round(each.weight * UNIT) for each in budget.weights if is_of_model(model, each.model)), UNIT)


def weighted(gpus: int, weight: int) -> int:
    """Return thousandths of GPUs times a weight, rounded up, so that work is never charged too little."""
    return -(-gpus * weight // UNIT)


# --- How long work is charged for -------------------------------------------------------------------------------------


def usable_budgets(queue: Queue) -> Iterator[QueueBudget]:
    """Yield the budgets of a queue that can be read."""
    if queue.spec.budgets:
        bad = {each.at for each in bad_budgets(queue.spec.budgets)}
        # By place and not by name: of two budgets with one name only the second is bad.
        yield from (each for at, each in enumerate(queue.spec.budgets[:MOST_BUDGETS]) if at not in bad)


def slice_seconds(budgets: Iterable[QueueBudget]) -> float:
    """Return for how long work without an end is charged at a time: the shortest slice of the budgets above it."""
    # The shortest: no budget above is charged for longer ahead than it allows.
    return min((each.slice for each in budgets if each.enforce == "admit"), default=3600.0)


# --- What cannot be read ----------------------------------------------------------------------------------------------


def bad_budgets(budgets: Sequence[QueueBudget]) -> Iterator[BadEntry]:
    """Yield what of a queue's budgets cannot be used, in order."""
    names: set[str] = set()
    for at, each in enumerate(budgets):
        if not each.name or each.name in names:
            yield BadEntry(
                part="budgets", at=at, field="name", found=shown(each.name), wanted="a name that no earlier budget has"
            )
        names.add(each.name)
        if at >= MOST_BUDGETS:
            yield BadEntry(
                part="budgets", at=at, field="name", found=shown(each.name), wanted=f"at most {MOST_BUDGETS} budgets"
            )
        yield from (
            BadEntry(part="budgets", at=at, field=field, found=found, wanted=wanted)
            for field, found, wanted in _bad(each)
        )


def _bad(budget: QueueBudget) -> Iterator[tuple[str, str, str]]:
    if not 0 <= budget.amount <= _MOST_HOURS:
        yield "amount", f"{budget.amount:g}", f"GPU-hours from 0 to {_MOST_HOURS:g}"
    if not 0 <= budget.carry_over <= 1:
        yield "carryOver", f"{budget.carry_over:g}", "a number from 0 to 1"
    if not _SHORTEST_SLICE <= budget.slice <= _LONGEST_SLICE:
        yield "slice", f"{budget.slice:g}s", "a duration from 1m to 720h"
    yield from _bad_time(budget)
    if len(budget.weights) > MOST_WEIGHTS:
        yield "weights", f"{len(budget.weights)} weights", f"at most {MOST_WEIGHTS}"
    for at, each in enumerate(budget.weights):
        if not each.model:
            yield f"weights[{at}].model", '""', "a GPU model"
        if not 0 <= each.weight <= _MOST_WEIGHT:
            yield f"weights[{at}].weight", f"{each.weight:g}", f"a number from 0 to {_MOST_WEIGHT:g}"


def _bad_time(budget: QueueBudget) -> Iterator[tuple[str, str, str]]:
    # In UTC, so that a bad time zone is reported as such alone.
    if budget.period != ONCE and _schedule(budget.period, "") is None:
        yield "period", shown(budget.period), _PERIOD_WANTED
    try:
        read_zone(budget.time_zone)
    except ValueError:
        yield "timeZone", shown(budget.time_zone), 'an IANA time zone such as "Europe/Berlin"'
    if budget.period == ONCE:
        if budget.from_ is not None and budget.until is not None and budget.until <= budget.from_:
            yield "until", "an instant before from", "one after it"
    elif budget.from_ is not None or budget.until is not None:
        yield "from" if budget.from_ is not None else "until", "an instant", f"none with the period {budget.period}"


def beyond_parents(
    budgets: Sequence[QueueBudget], above: Mapping[str, Sequence[QueueBudget]]
) -> Iterator[tuple[QueueBudget, str, QueueBudget]]:
    """Yield each budget that is larger than one above it, with the owner of that and itself.

    ``above``: the budgets of the queues above, by name. Only budgets that count alike are compared: of one period, on
    the clock of one zone, with the same weights.
    """
    for budget in budgets:
        for owner, theirs in above.items():
            for other in theirs:
                ways = [(each.period, each.time_zone, each.weights) for each in (budget, other)]
                if ways[0] == ways[1] and budget.amount > other.amount:
                    yield budget, owner, other


def budgets_in(manifest: Mapping[str, Any]) -> tuple[QueueBudget, ...]:
    """Return the budgets of a manifest that may be invalid; what has a wrong type is left at its default."""
    return tuple(_budget_in(each) for each in mappings_of(manifest, "spec", "budgets"))


def _budget_in(manifest: Mapping[str, Any]) -> QueueBudget:
    enforce = text_of(manifest, "enforce")
    return QueueBudget(
        name=text_of(manifest, "name"),
        amount=number_or(manifest.get("amount"), 0.0),
        period=text_of(manifest, "period") or "monthly",
        time_zone=text_of(manifest, "timeZone"),
        from_=_instant(manifest.get("from")),
        until=_instant(manifest.get("until")),
        carry_over=number_or(manifest.get("carryOver"), 0.0),
        enforce="warn" if enforce == "warn" else "stop" if enforce == "stop" else "admit",
        slice=seconds_or(manifest.get("slice"), 3600.0),
        weights=tuple(
            ModelWeight(model=text_of(each, "model"), weight=number_or(each.get("weight"), 1.0))
            for each in mappings_of(manifest, "weights")
        ),
    )


def _instant(value: object) -> float | None:
    try:
        return instant(value) if isinstance(value, str) else None
    except BadValue:
        return None
