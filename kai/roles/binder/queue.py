"""The state of the binder between events: when each bind request is attempted, and which GPU groups are swept.

`BindQueue.step` takes one event and returns the plans to start. It is a state machine and not a plan, because it waits
for many things at once. The shell around it feeds watch events and the clock, runs the plans and reports their ends,
and does nothing else, so a simulation runs this very code.

Holds: one plan at a time attempts a request, and at most ``concurrency`` plans work at once. A plan that waits for a
volume or a device gives up its slot until it ends: users choose what their pods wait for, and could otherwise hold up
all binds. A request that failed leaves its capacity to others during its back-off, also across a restart, since the
count of attempts is in the request; a limit on attempts holds across restarts as well. A request whose attempts end
with bugs in kai is tried three times.

`LeaderTerms` finds late requests of former leaders. The writes of a leader that was suspended may arrive when another
leads already. Its decisions are based on an outdated cluster, so the binder refuses them. A request of an earlier term
is not late for that reason alone: the next leader may have seen it, and then counts on it. It is late if it was created
after a request of a later term.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, TypeAlias

import attrs

from kai.api import names
from kai.api.kinds import Key, key_of, title
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.basics.deadlines import Deadlines, doubling_pause
from kai.basics.parsing import signed
from kai.roles.binder.attempt import bind_delay, is_finished
from kai.roles.binder.outcome import BindOutcome, BindVerdict
from kai.roles.binder.sharers import BinderSettings
from kai.roles.binder.sweep import groups_to_sweep

_KEPT: Final = 8
"""Count of terms to remember for each lease."""


@attrs.define
class LeaderTerms:
    """When the terms of leaders began, as far as bind requests show it."""

    _began: dict[str, dict[int, float]] = attrs.field(factory=dict)
    """By lease and epoch: creation time of the first request of that term."""

    def see(self, request: BindRequest) -> None:
        """Record a request."""
        lease, epoch, created = _read(request)
        if epoch is None or created is None:
            return
        began = self._began.setdefault(lease, {})
        began[epoch] = min(created, began.get(epoch, created))
        if len(began) > _KEPT:
            # The term that began first goes, not the lowest epoch: a lease that is made anew may count from 1 again.
            del began[min(began, key=began.__getitem__)]

    def refuse(self, request: BindRequest) -> str:
        """Return why a request must not be carried out; "" if it may."""
        lease, epoch, created = _read(request)
        if epoch is None or created is None:
            return ""
        later = [each for each, began in self._began.get(lease, {}).items() if each > epoch and began < created]
        if not later:
            return ""
        return f"{title(request)} was decided in epoch {epoch} of lease {lease} and came after epoch {min(later)} began"


def _read(request: BindRequest) -> tuple[str, int | None, float | None]:
    """Return lease, epoch and creation time of a request."""
    annotations = request.metadata.annotations
    epoch = signed(annotations.get(names.EPOCH, ""))
    return annotations.get(names.LEASE, ""), epoch, request.metadata.creation_timestamp


_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_MOST_BUGS: Final = 3
"""How often an attempt may end with a bug in kai; some bugs go away with the state that triggered them."""

_MOST_LEFT: Final = 1 << 10


# --- Events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Started:
    """The process began or took over: leftovers are unknown."""


@attrs.frozen
class RequestSeen:
    """A bind request exists in this form."""

    request: BindRequest


@attrs.frozen
class RequestGone:
    """A bind request was deleted; ``request`` is its last form."""

    request: BindRequest


@attrs.frozen
class PodSeen:
    """A pod was created, changed or deleted; a side is None where it did not exist."""

    before: Pod | None
    after: Pod | None


@attrs.frozen
class AttemptWaits:
    """An attempt waits for others, and has little to do afterwards."""

    ref: Ref[BindRequest]


@attrs.frozen
class AttemptEnded:
    """An attempt ended."""

    ref: Ref[BindRequest]
    outcome: BindOutcome


@attrs.frozen
class SweepEnded:
    """A sweep of a group, or of everything, ended."""

    group: str
    succeeded: bool


@attrs.frozen
class ServerBack:
    """The API server answers again: interrupted attempts need not wait any longer."""


@attrs.frozen
class Tick:
    """Time has passed."""


Event: TypeAlias = (
    Started | RequestSeen | RequestGone | PodSeen | AttemptWaits | AttemptEnded | SweepEnded | ServerBack | Tick
)


# --- Effects -------------------------------------------------------------------------------------------------------


@attrs.frozen
class StartAttempt:
    """Run `kai.roles.binder.attempt.attempt` on a request."""

    ref: Ref[BindRequest]
    patient: bool = True
    is_last: bool = False
    """Whether to fail the request for good if this attempt, too, ends with a bug in kai."""


@attrs.frozen
class StartSweep:
    """Run a sweep of a GPU group; of everything if ``group`` is empty."""

    group: str = ""


@attrs.frozen
class WakeAt:
    """Send a `Tick` at ``time``, unless another event comes first."""

    time: float


Effect: TypeAlias = StartAttempt | StartSweep | WakeAt


# --- The machine ---------------------------------------------------------------------------------------------------


@attrs.define
class _Entry:
    """A request that is not finished."""

    request: BindRequest
    interruptions: int = 0
    bugs: int = 0
    running: bool = False
    gave_way: bool = False
    """Whether its attempt gave up its slot, because it waits for others."""
    replaced: bool = False
    """Whether a new request of the same name appeared during the attempt."""


@attrs.define
class BindQueue:
    """The unfinished requests, and the pending sweeps."""

    settings: BinderSettings
    _entries: dict[Key, _Entry] = attrs.field(factory=dict)
    _dues: Deadlines[Key] = attrs.field(factory=Deadlines)
    """When the next attempt at each request is due that is not being attempted."""
    _running: int = 0
    """Count of attempts that hold a slot."""
    _waiting: int = 0
    """Count of attempts that gave up their slot."""
    _sweeps: dict[str, int] = attrs.field(factory=dict)
    """Pending sweeps, with the count of their failures."""
    _sweep_dues: Deadlines[str] = attrs.field(factory=Deadlines)
    _sweeping: dict[str, bool] = attrs.field(factory=dict)
    """Running sweeps, and whether another must follow."""
    _left: set[str] = attrs.field(factory=set)
    """Groups that a pod left while requests were unfinished: a sweep spares the groups that these still claim."""

    def step(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Handle an event at the time ``now``, and return the plans to start.

        Units: ``now`` in seconds of a monotonic clock.
        """
        effects: list[Effect] = []
        match event:
            case Started():
                self._want_sweep("", now)
            case RequestSeen(request):
                self._see(request, now)
            case RequestGone(request):
                self._forget(request, now)
            case PodSeen(before, after):
                for group in groups_to_sweep(before, after, self.settings.scheduler_name):
                    self._want_sweep(group, now)
                    # Without an unfinished request no sweep spares the group, and the one that was just requested is
                    # enough.
                    if self._entries:
                        self._note_left(group)
            case AttemptWaits(ref):
                self._give_way(ref)
            case AttemptEnded(ref, outcome):
                self._end_attempt(ref, outcome, now)
            case SweepEnded(group, succeeded):
                self._end_sweep(group, succeeded=succeeded, now=now)
            case ServerBack():
                self._hurry(now)
        effects += self._start_sweeps(now)
        effects += self._start_attempts(now)
        wake = self._next_due()
        if wake is not None:
            effects.append(WakeAt(wake))
        return tuple(effects)

    @property
    def waiting(self) -> int:
        """Count of unfinished requests that are not being attempted."""
        return len(self._entries) - self.running

    @property
    def running(self) -> int:
        """Count of requests that are being attempted."""
        return self._running + self._waiting

    # --- Requests ------------------------------------------------------------------------------------------------

    def _see(self, request: BindRequest, now: float) -> None:
        key = key_of(request)
        entry = self._entries.get(key)
        if entry is not None and entry.running:
            # The watch also delivers the attempt's own writes; its end decides what follows.
            entry.replaced = entry.replaced or request.metadata.uid != entry.request.metadata.uid
            entry.request = request
            return
        if is_finished(request):
            self._entries.pop(key, None)
            self._dues.pop(key, None)
            return
        if entry is not None and entry.request.metadata.uid == request.metadata.uid:
            entry.request = request
            return
        attempts = request.status.failed_attempts
        failed = request.status.phase == "Failed"
        delay = bind_delay(attempts, self.settings) if failed else 0.0
        self._schedule(key, _Entry(request), now + delay)

    def _forget(self, request: BindRequest, now: float) -> None:
        # A request in an attempt is not due: the end of its attempt removes the entry.
        if self._dues.pop(key_of(request), None) is not None:
            del self._entries[key_of(request)]
        if request.spec.received_resource_type == names.FRACTION:
            for group in request.spec.selected_gpu_groups:
                self._want_sweep(group, now)

    def _note_left(self, group: str) -> None:
        """Remember that a pod left a group; beyond a limit forget groups that no request claims."""
        self._left.add(group)
        if len(self._left) > _MOST_LEFT + len(self._entries):
            self._left &= {each for entry in self._entries.values() for each in entry.request.spec.selected_gpu_groups}

    def _give_way(self, ref: Ref[BindRequest]) -> None:
        entry = self._entries.get((ref.namespace, ref.name))
        if entry is not None and entry.running and not entry.gave_way:
            entry.gave_way = True
            self._running -= 1
            self._waiting += 1

    def _leave_place(self, entry: _Entry) -> None:
        if entry.gave_way:
            self._waiting -= 1
        else:
            self._running -= 1

    def _end_attempt(self, ref: Ref[BindRequest], outcome: BindOutcome, now: float) -> None:
        key = (ref.namespace, ref.name)
        entry = self._entries.get(key)
        if entry is None or not entry.running:
            return
        del self._entries[key]
        self._leave_place(entry)
        for group in entry.request.spec.selected_gpu_groups:
            # A sweep during the attempt spared its groups, because the request still claimed them.
            if outcome.leftovers or group in self._left:
                self._left.discard(group)
                self._want_sweep(group, now)
        if not self._entries:
            self._left.clear()
        if entry.replaced:
            self._see(entry.request, now)
        elif outcome.verdict is BindVerdict.RETRY:
            self._schedule(key, _Entry(entry.request), now + (outcome.delay or 0.0))
        elif outcome.verdict is BindVerdict.INTERRUPTED:
            count = entry.interruptions + 1
            pause = max(outcome.delay or 0.0, doubling_pause(count, _FIRST_PAUSE, _LONGEST_PAUSE))
            self._schedule(key, _Entry(entry.request, interruptions=count, bugs=entry.bugs), now + pause)
        elif outcome.verdict is BindVerdict.BUG:
            pause = doubling_pause(entry.bugs + 1, _FIRST_PAUSE, _LONGEST_PAUSE)
            self._schedule(key, _Entry(entry.request, bugs=entry.bugs + 1), now + pause)

    def _hurry(self, now: float) -> None:
        """Resume interrupted attempts at once; failed binds stay in back-off."""
        for key, entry in self._entries.items():
            if entry.interruptions and not entry.running:
                self._dues.hasten(key, now)
        for group in tuple(self._sweep_dues):
            self._sweep_dues.hasten(group, now)

    def _schedule(self, key: Key, entry: _Entry, due: float) -> None:
        self._entries[key] = entry
        self._dues[key] = due

    def _start_attempts(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        # `take` removes each key as it yields it, so the limit must stop the iterator before the next one.
        for key in islice(self._dues.take(now), self.settings.concurrency - self._running):
            entry = self._entries[key]
            entry.running = True
            self._running += 1
            patient = entry.interruptions < self.settings.patience
            is_last = entry.bugs + 1 >= _MOST_BUGS
            effects.append(StartAttempt(Ref.to(entry.request), patient=patient, is_last=is_last))
        return effects

    # --- Sweeps --------------------------------------------------------------------------------------------------

    def _want_sweep(self, group: str, now: float) -> None:
        # What leads to this may have happened after the sweep that runs has read the group.
        if group in self._sweeping:
            self._sweeping[group] = True
        elif group not in self._sweeps:
            self._sweeps[group] = 0
            self._sweep_dues[group] = now

    def _start_sweeps(self, now: float) -> list[Effect]:
        groups = tuple(self._sweep_dues.take(now))
        self._sweeping.update(dict.fromkeys(groups, False))
        return [StartSweep(group) for group in groups]

    def _end_sweep(self, group: str, *, succeeded: bool, now: float) -> None:
        again = self._sweeping.pop(group, False)
        failures = self._sweeps.pop(group, 0)
        if not succeeded:
            self._sweeps[group] = failures + 1
            self._sweep_dues[group] = now + doubling_pause(failures + 1, _FIRST_PAUSE, _LONGEST_PAUSE)
        elif again:
            self._want_sweep(group, now)

    def _next_due(self) -> float | None:
        # While all slots are taken, only the end of an attempt can start another.
        attempt = self._dues.first() if self._running < self.settings.concurrency else None
        return min((due for due in (attempt, self._sweep_dues.first()) if due is not None), default=None)
