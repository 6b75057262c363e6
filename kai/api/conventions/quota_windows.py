"""Quotas by the clock: what a queue may have at an instant, when that changes, and how its windows close.

A schedule of a queue opens a window again and again (`kai.basics.schedules.Openings`), and replaces some of the queue's
amounts while the window is open. Where several windows are open, later entries win. All here is a function of a queue
and an instant, so intake, the webhook, lint and pictures of a week agree.

An entry that cannot be read counts as absent: the queue keeps the amounts that it has outside of it.
"""

from __future__ import annotations

import functools
import math
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from kai.api.scheduling.queue import (
    MOST_SCHEDULES,
    Queue,
    QueueModel,
    QueueResource,
    QueueResources,
    QueueSchedule,
    QueueSpec,
    ScheduledModel,
    ScheduledResource,
    ScheduledResources,
    ScheduledUser,
    ScheduledUsers,
    UserResource,
    UserResources,
)
from kai.basics.parsing import mapping_of, mappings_of, number_or, part_of, seconds_or, text_of
from kai.basics.schedules import Openings, read_zone
from kai.basics.wording import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

AHEAD_SECONDS: Final = 8 * 86_400.0
"""How far the amounts to come are looked at: a week, and a day for a change of clocks."""
_MOST_EDGES: Final = 1_000
_NONE: Final = QueueResources()
_FREE_USERS: Final = UserResources()
_SAME_USERS: Final = ScheduledUsers()
_PARTS: Final = ("gpu", "cpu", "memory")
_AMOUNTS: Final = ("quota", "over_quota_weight", "limit")
_WIRE: Final[Mapping[str, str]] = {"quota": "quota", "over_quota_weight": "overQuotaWeight", "limit": "limit"}


@attrs.frozen(kw_only=True)
class BadEntry:
    """A part of an entry in a list of a queue's spec that cannot be used."""

    part: str = "schedules"
    """The list."""
    at: int
    """The place of the entry in the list."""
    field: str
    """Its field, as written in a manifest."""
    found: str
    wanted: str

    def __str__(self) -> str:
        """Return the fault as messages state it."""
        return f"spec.{self.part}[{self.at}].{self.field}: found {self.found}, expected {self.wanted}"


@functools.lru_cache(maxsize=1 << 14)
def openings_of(start: str, zone: str, seconds: float) -> Openings | None:
    """Return the windows of an entry; None if it cannot be read."""
    try:
        return Openings.read(start, zone, seconds)
    except ValueError:
        return None


def is_usable(entry: QueueSchedule) -> bool:
    """Return whether the windows of an entry can be read."""
    return openings_of(entry.start, entry.time_zone, entry.duration) is not None


def bad_entries(schedules: Sequence[QueueSchedule]) -> Iterator[BadEntry]:
    """Yield what of a queue's schedules cannot be used, in order."""
    names: set[str] = set()
    for at, each in enumerate(schedules):
        if not each.name or each.name in names:
            yield BadEntry(at=at, field="name", found=shown(each.name), wanted="a name that no earlier entry has")
        names.add(each.name)
        if at >= MOST_SCHEDULES:
            yield BadEntry(at=at, field="name", found=shown(each.name), wanted=f"at most {MOST_SCHEDULES} entries")
        if is_usable(each):
            continue
        # Each field is read beside valid others, so that a fault shows at its own field alone.
        readers = (
            ("start", lambda each=each: Openings.read(each.start, "", 60.0)),
            ("timeZone", lambda each=each: read_zone(each.time_zone)),
            ("duration", lambda each=each: Openings.read("0 0 * * *", "", each.duration)),
        )
        for field, read in readers:
            try:
                read()
            except ValueError as error:
                found, _, wanted = str(error).removeprefix("found ").partition(", expected ")
                yield BadEntry(at=at, field=field, found=found, wanted=wanted)


@attrs.frozen(kw_only=True)
class InForce:
    """The amounts of a queue at an instant, and what is known of those to come."""

    resources: QueueResources | None
    until: float
    """When they may change; infinity for never. Units: seconds since the epoch."""
    names: tuple[str, ...] = ()
    """The entries whose windows are open."""
    draining: tuple[Openings, ...] = ()
    """Closed windows that let their work run to its end."""
    ended_at: float | None = None
    """When a window with ``onClose: evict`` closed last; None while it is open, or if there is none."""
    ended: str = ""
    """The name of that entry."""
    ending: tuple[float, str] | None = None
    """When a window with ``onClose: evict`` closes that has to be announced by now, and its name."""


def in_force(spec: QueueSpec, instant: float) -> InForce:
    """Return what is in force of a queue at ``instant``, in seconds since the epoch."""
    found, until, names = spec.resources, inf, []
    draining: list[Openings] = []
    ended_at, ended = None, ""
    ending: tuple[float, str] | None = None
    for entry in spec.schedules[:MOST_SCHEDULES]:
        openings = openings_of(entry.start, entry.time_zone, entry.duration)
        if openings is None:
            continue
        is_open, edge, closed = _state(entry.start, entry.time_zone, entry.duration, instant)
        until = min(until, edge)
        if is_open:
            found = _replaced(found or _NONE, entry)
            names.append(entry.name)
            if entry.on_close == "evict" and entry.notice > 0 and edge < inf:
                if instant >= edge - entry.notice:
                    ending = min(ending or (edge, entry.name), (edge, entry.name))
                else:
                    # Amounts stay as they are, but a cycle has to come by then to announce the end.
                    until = min(until, edge - entry.notice)
        elif entry.on_close == "drain":
            draining.append(openings)
        elif entry.on_close == "evict" and closed is not None and (ended_at is None or closed > ended_at):
            ended_at, ended = closed, entry.name
    return InForce(
        resources=found,
        until=until,
        names=tuple(names),
        draining=tuple(draining),
        ended_at=ended_at,
        ended=ended,
        ending=ending,
    )


@functools.lru_cache(maxsize=1 << 14)
def _state(start: str, zone: str, seconds: float, instant: float) -> tuple[bool, float, float | None]:
    """Return whether an entry that can be read is open, until when that holds, and when it closed last.

    Many queues have the same hours, and all are looked at at once when a window opens.
    """
    openings = openings_of(start, zone, seconds)
    if openings is None:
        return False, inf, None
    is_open, edge = openings.at(instant)
    return is_open, edge, None if is_open else openings.closed(instant)


def slices(spec: QueueSpec, since: float, until: float) -> Iterator[tuple[float, InForce]]:
    """Yield the amounts from ``since`` on, each with the instant from which it holds, until ``until``; nothing without.

    Only amounts, open windows and the end of the slice are given. More than `AHEAD_SECONDS` are not looked at.
    """
    entries = spec.schedules[:MOST_SCHEDULES]
    known: dict[tuple[int, ...], tuple[QueueResources | None, tuple[str, ...]]] = {}
    timing = tuple([(each.start, each.time_zone, each.duration) for each in entries])
    for at, end, opened in _timeline(timing, since) if timing else ():
        if at >= until:
            return
        # The same few windows are open again and again, and each set is put together once.
        if opened not in known:
            found = spec.resources
            for place in opened:
                found = _replaced(found or _NONE, entries[place])
            known[opened] = found, tuple([entries[place].name for place in opened])
        resources, names = known[opened]
        yield at, InForce(resources=resources, until=end, names=names)


_Slice: TypeAlias = tuple[float, float, tuple[int, ...]]
"""Begin, end, and the places of the entries that are open."""


class _Timeline:
    """The slices of the days to come. They are found as they are asked for: most queues need the first few only."""

    def __init__(self, timing: tuple[tuple[str, str, float], ...], since: float) -> None:
        self._found: list[_Slice] = []
        self._coming = _coming(timing, since)

    def __iter__(self) -> Iterator[_Slice]:
        """Yield the slices; what was found for one queue is there for the others."""
        # A window that opens each minute would have thousands of slices in a week, for every queue.
        for at in range(_MOST_EDGES):
            if at == len(self._found):
                following = next(self._coming, None)
                if following is None:
                    return
                self._found.append(following)
            yield self._found[at]


_timeline = functools.lru_cache(maxsize=1 << 12)(_Timeline)


def _coming(timing: tuple[tuple[str, str, float], ...], since: float) -> Iterator[_Slice]:
    at = since
    while at < since + AHEAD_SECONDS:
        states = [_state(*each, at) for each in timing]
        end = min(edge for _, edge, _ in states)
        yield at, end, tuple([place for place, (is_open, _, _) in enumerate(states) if is_open])
        at = end


def lower_quotas(spec: QueueSpec, instant: float) -> tuple[tuple[float, QueueResources], ...]:
    """Return the quotas to come that are lower than all before them, each with the instant from which it holds.

    Only quotas are looked at, and each resource by itself: an element has the least of each that was in force by then.
    """
    floor = _floor(spec)
    found: list[tuple[float, QueueResources]] = []
    lowest: QueueResources | None = None
    for at, now in slices(spec, instant, instant + AHEAD_SECONDS):
        lower = _least(now.resources if lowest is None else lowest, now.resources)
        if lowest is not None and lower != lowest:
            found.append((at, lower))
        lowest = lower
        # Nothing lower can come, so the days after need not be computed.
        if lowest == floor:
            break
    return tuple(found)


def first_shortage(spec: QueueSpec, part: str, needed: float, since: float, until: float = inf) -> float | None:
    """Return when the quota of one resource is first below ``needed``, from ``since`` to before ``until``.

    None: never, as far as quotas to come are looked at.
    """
    always = ((since, InForce(resources=spec.resources, until=inf)),)
    for at, now in slices(spec, since, until) if spec.schedules else always:
        quota: float = getattr(now.resources or _NONE, part).quota
        # A negative quota is unlimited and never short.
        if 0 <= quota < needed:
            return at
    return None


def first_start(needs: Sequence[tuple[QueueSpec, float]], part: str, now: float, seconds: float) -> float | None:
    """Return the first instant from which every queue has what is needed of it for ``seconds``; None: not in 8 days.

    Only the begin of a slice can be one, since quotas that held before hold as well a little later.
    """
    begins = {at for spec, _ in needs for at, _ in slices(spec, now, inf)}
    for at in sorted({now, *begins}):
        if all(first_shortage(spec, part, needed, at, at + seconds) is None for spec, needed in needs):
            return at
    return None


def turning_at(spec: QueueSpec, edge: float) -> str:
    """Return which windows close or open at an edge, as a part of a sentence; "" if none does."""
    before, after = in_force(spec, edge - 1.0).names, in_force(spec, edge).names
    closing, opening = [each for each in before if each not in after], [each for each in after if each not in before]
    named, verb = (closing, "close") if closing else (opening, "open")
    what = f"window {named[0]} {verb}s" if len(named) == 1 else f"windows {', '.join(named)} {verb}"
    return f"when {what}" if named else ""


def varieties(spec: QueueSpec) -> Iterator[tuple[str, QueueResources]]:
    """Yield the amounts outside of windows as "", then those in each entry's window alone, by its name."""
    if spec.resources is not None:
        yield "", spec.resources
    for entry in spec.schedules:
        yield entry.name, while_open(spec, entry)


def while_open(spec: QueueSpec, entry: QueueSchedule) -> QueueResources:
    """Return the amounts of a queue while the window of one entry is open and no other."""
    return _replaced(spec.resources or _NONE, entry)


def next_limit(spec: QueueSpec, instant: float) -> tuple[float, QueueResources] | None:
    """Return the first resources to come with another limit, and the instant from which they hold."""
    # Most schedules change quotas alone; for them no week has to be computed.
    if not any(getattr(entry.resources, part).limit is not None for entry in spec.schedules for part in _PARTS):
        return None
    return _next(spec, instant, lambda resources: [getattr(resources, part).limit for part in _PARTS])


def next_user_limit(spec: QueueSpec, instant: float) -> tuple[float, QueueResources] | None:
    """Return the first resources to come with another limit of users, and the instant from which they hold."""
    if all(entry.resources.per_user == _SAME_USERS for entry in spec.schedules):
        return None
    return _next(spec, instant, lambda resources: resources.per_user or _FREE_USERS)


def _next(
    spec: QueueSpec, instant: float, limits_of: Callable[[QueueResources], object]
) -> tuple[float, QueueResources] | None:
    first: object = None
    for at, now in slices(spec, instant, instant + AHEAD_SECONDS):
        resources = now.resources or _NONE
        found = limits_of(resources)
        if first is not None and found != first:
            return at, resources
        first = found
    return None


def resolved(queues: Iterable[Queue], instant: float) -> tuple[tuple[Queue, ...], float]:
    """Return the queues with the amounts of ``instant``, and until when these hold; infinity for ever.

    Queues without schedules are returned as they are.
    """
    until, found = inf, []
    for queue in queues:
        if queue.spec.schedules:
            now = in_force(queue.spec, instant)
            until = min(until, now.until)
            found.append(attrs.evolve(queue, spec=attrs.evolve(queue.spec, resources=now.resources)))
        else:
            found.append(queue)
    return tuple(found), until


def spec_in(manifest: Mapping[str, Any]) -> QueueSpec | None:
    """Return the resources and schedules of a manifest that may be invalid; None without schedules.

    What is missing or of another type counts as empty, so that `bad_entries` names it.
    """
    spec = mapping_of(manifest, "spec")
    entries = mappings_of(spec, "schedules")
    if not entries:
        return None
    resources = mapping_of(spec, "resources")
    read: dict[str, Any] = {part: QueueResource(**_numbers(resources, part)) for part in _PARTS}
    if "perUser" in resources:
        limits = {part: limit for part, limit in _user_limits(resources).items() if limit is not None}
        read["per_user"] = UserResources(**{part: UserResource(limit=limit) for part, limit in limits.items()})
    return QueueSpec(
        resources=QueueResources(**read) if "resources" in spec else None, schedules=tuple(map(_entry_in, entries))
    )


def _entry_in(written: Mapping[str, Any]) -> QueueSchedule:
    resources = mapping_of(written, "resources")
    parts: dict[str, Any] = {part: ScheduledResource(**_numbers(resources, part)) for part in _PARTS}
    users: dict[str, Any] = {part: ScheduledUser(limit=limit) for part, limit in _user_limits(resources).items()}
    on_close = text_of(written, "onClose")
    return QueueSchedule(
        name=text_of(written, "name"),
        start=text_of(written, "start"),
        time_zone=text_of(written, "timeZone"),
        duration=seconds_or(written.get("duration"), 0.0),
        resources=ScheduledResources(**parts, per_user=ScheduledUsers(**users)),
        on_close="evict" if on_close == "evict" else "drain" if on_close == "drain" else "reclaim",
    )


def _user_limits(resources: Mapping[str, Any]) -> dict[str, float | None]:
    limits = mapping_of(resources, "perUser")
    return {part: _numbers(limits, part).get("limit") for part in _PARTS}


def _numbers(resources: Mapping[str, Any], part: str) -> dict[str, float]:
    found = {name: part_of(resources, part, wire) for name, wire in _WIRE.items()}
    # NaN stands for what is missing: 0 and -1 are amounts with meanings.
    numbers = {name: number_or(value, math.nan) for name, value in found.items()}
    return {name: number for name, number in numbers.items() if not math.isnan(number)}


def _replaced(before: QueueResources, entry: QueueSchedule) -> QueueResources:
    parts: dict[str, Any] = {}
    for part in _PARTS:
        there: ScheduledResource = getattr(entry.resources, part)
        changes = {name: getattr(there, name) for name in _AMOUNTS if getattr(there, name) is not None}
        if changes:
            parts[part] = attrs.evolve(getattr(before, part), **changes)
    if entry.resources.models:
        # What the window does not name stays, models and amounts of models alike.
        parts["models"] = {**before.models, **dict(_replaced_models(before.models, entry.resources.models))}
    if entry.resources.per_user != _SAME_USERS:
        parts["per_user"] = _replaced_users(before.per_user or _FREE_USERS, entry.resources.per_user)
    return attrs.evolve(before, **parts) if parts else before


def _replaced_models(
    before: Mapping[str, QueueModel], changes: Mapping[str, ScheduledModel]
) -> Iterator[tuple[str, QueueModel]]:
    for model, there in changes.items():
        named = {name: value for name, value in attrs.asdict(there).items() if value is not None}
        yield model, attrs.evolve(before.get(model, QueueModel()), **named)


def _replaced_users(before: UserResources, changes: ScheduledUsers) -> UserResources:
    limits = {part: getattr(changes, part).limit for part in _PARTS}
    named: dict[str, Any] = {part: UserResource(limit=limit) for part, limit in limits.items() if limit is not None}
    return attrs.evolve(before, **named)


def _least(one: QueueResources | None, other: QueueResources | None) -> QueueResources:
    parts: dict[str, Any] = {}
    for part in _PARTS:
        quotas = [getattr(each or _NONE, part).quota for each in (one, other)]
        # A negative quota is unlimited: it is the largest, not the least.
        parts[part] = QueueResource(quota=min(quotas, key=lambda quota: inf if quota < 0 else quota))
    return QueueResources(**parts)


def _floor(spec: QueueSpec) -> QueueResources:
    """Return the least quota of each resource that can come."""
    parts = [each for _, each in varieties(attrs.evolve(spec, resources=spec.resources or _NONE))]
    return functools.reduce(_least, parts, parts[0])


@functools.lru_cache(maxsize=1 << 14)
def never_opens(entry: QueueSchedule, instant: float) -> bool:
    """Return whether the schedule of an entry that can be read has no start in the years after ``instant``."""
    openings = openings_of(entry.start, entry.time_zone, entry.duration)
    return openings is not None and openings.at(instant) == (False, inf)
