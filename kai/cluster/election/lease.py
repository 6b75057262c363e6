"""Leader election by a Lease object, as a machine: what to read and write when, and in which term we lead.

`Election.step` takes what happened and returns what to do; it reads no clock and sends nothing. The rules are those of
the Go clients, so that ours and theirs can compete for one lease: the holder renews it every `retry` seconds, and
others, who look at it four times as often, wait until a record did not change for its duration, counted on their own
clock.

What is ours: a life of a process never leads under the name of an earlier one, so nothing it did can be taken for ours;
every beginning of a term counts ``leaseTransitions`` up, and that number is the epoch which decisions carry. It counts
on from the highest epoch that this process knows of, so that a lease that is deleted and made anew does not begin again
at 1, below the decisions of before.

Holds: a term ends `renew_within` seconds after the *sending* of the last renewal that succeeded, on a clock that does
not go back, whether this process noticed or not; others can begin theirs only after `duration`. So two lead at once
only if clocks run at speeds that differ by more than the quotient of the two, or if a write that was sent within a term
takes effect after it. The epoch, checked where writes land, and the barrier read at the beginning of a term help
against such a write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from kai.cluster.port import Draw, Term
from kai.errors import ConfigError

_JITTER: Final = 0.2
_SLACK: Final = 1.2
_MOST_RESIGNATIONS: Final = 3
_MOST_EPOCHS: Final = (1 << 31) - 1
"""What ``leaseTransitions`` can hold."""
_LOOKS: Final = 4.0
"""How often waiting processes look at a lease while its holder renews it once."""


@attrs.frozen(kw_only=True)
class LeaseSettings:
    """Which lease, and how long things take.

    `container` is how the identities of all lives of our container begin (an underscore follows), or empty. It is given
    only where the lives before this one are known to be over; a lease that one of them holds is taken over at once.

    Units: seconds.
    """

    namespace: str
    name: str
    identity: str
    container: str = ""
    duration: float = 15.0
    renew_within: float = 10.0
    retry: float = 2.0

    def __attrs_post_init__(self) -> None:
        """Refuse times with which two processes could lead at once, or none for long.

        Raises: ConfigError.
        """
        if not self.duration > self.renew_within > self.retry * _SLACK > 0:
            found = f"{self.duration:g}, {self.renew_within:g} and {self.retry:g} seconds"
            wanted = "a duration greater than the renew deadline, and that greater than 1.2 times the retry period"
            raise ConfigError.about("leader election", "durations", found=found, wanted=wanted)


@attrs.frozen(kw_only=True)
class Record:
    """What a lease says."""

    holder: str = ""
    duration: float = 15.0
    transitions: int = 0
    version: str = ""
    renewed: str = ""
    acquired: str = ""
    manifest: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """The whole lease: labels, annotations and whatever else others put there stay when it is written."""


# --- Events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Ticked:
    """The time that was asked for came, or nothing happened yet."""


@attrs.frozen
class ReadDone:
    """The lease was read; None if it does not exist."""

    record: Record | None


@attrs.frozen(kw_only=True)
class WriteDone:
    """A write succeeded; this is the lease now."""

    record: Record
    sent_at: float


@attrs.frozen
class WriteRefused:
    """A write failed for sure: another process wrote first, or the server did not do it."""


@attrs.frozen(kw_only=True)
class OutcomeUnknown:
    """The answer to a write was lost."""

    sent_at: float


@attrs.frozen
class ReadFailed:
    """The lease could not be read."""


@attrs.frozen
class Resigned:
    """This process wants to lead no more."""


Event: TypeAlias = Ticked | ReadDone | WriteDone | WriteRefused | OutcomeUnknown | ReadFailed | Resigned


# --- Effects -------------------------------------------------------------------------------------------------------


@attrs.frozen
class ReadLease:
    """Read the lease by quorum."""


@attrs.frozen(kw_only=True)
class WriteLease:
    """Write the lease, if it still has the version that it had before; where there was none, create it.

    ``begins`` says whether the time of acquisition is set to now, ``ends`` whether the lease is given back.
    """

    holder: str
    transitions: int
    before: Record = Record()
    begins: bool = False
    ends: bool = False


@attrs.frozen
class WakeAt:
    """Send `Ticked` then."""

    time: float


@attrs.frozen
class Finished:
    """The lease was given back, or was not ours; there is nothing more to do."""


Effect: TypeAlias = ReadLease | WriteLease | WakeAt | Finished


@attrs.define
class Election:
    """What this process knows of the lease.

    `step` returns exactly one effect; the next event is what came of it.
    """

    settings: LeaseSettings
    draw: Draw
    term: Term | None = None
    lasts_until: float = 0.0
    _seen: Record | None = None
    _changed_at: float = 0.0
    """When the record was first seen as it is."""
    _is_in_doubt: bool = False
    """The outcome of the last write is unknown, and the lease was not read since."""
    _doubtful_since: float | None = None
    """When the first write was sent that may have made of the record that was seen another one."""
    _wrote_at: float = float("-inf")
    """When the last write was wanted."""
    _ended_epoch: int = -1
    _highest: int = 0
    """The highest epoch that is known: a lease that was deleted, and is made anew, counts on from it."""
    _resigning: bool = False
    _resignations: int = 0

    def step(self, event: Event, now: float) -> Effect:
        """Take what happened and return what to do next.

        Units: `now` in seconds of a clock that does not go back.
        """
        if now >= self.lasts_until:
            self._end()
        effect = self._react(event, now)
        if isinstance(effect, WriteLease):
            self._wrote_at = now
        return effect

    def _react(self, event: Event, now: float) -> Effect:
        match event:
            case Ticked():
                return self._act(now)
            case ReadDone():
                return self._take_record(event.record, now)
            case WriteDone():
                return self._take_success(event, now)
            case OutcomeUnknown():
                self._is_in_doubt = True
                if self._doubtful_since is None:
                    self._doubtful_since = event.sent_at
                is_due = self.term is not None and now >= self._wrote_at + self.settings.retry
                return self._act(now) if is_due else ReadLease()
            case WriteRefused():
                # Another process was first, or the server is in trouble. A leader wants to know at once.
                is_urgent = self._resigning or self.term is not None
                return ReadLease() if is_urgent else WakeAt(now + self._retry())
            case ReadFailed():
                return WakeAt(now + self._retry() if self.term is None else self._next_renewal(now))
            case Resigned():
                return self._resign(now)

    @property
    def knows(self) -> bool:
        """Return whether it is known who leads."""
        return self._seen is not None

    @property
    def version(self) -> str:
        """Return the version of the lease as it was seen last; "" if it was not, or does not exist."""
        return "" if self._seen is None else self._seen.version

    def outgrow(self, epoch: int) -> None:
        """End the present term if it is not of a later epoch than this; the next ones are.

        An epoch that leaves no room for as many terms again is nonsense, and does nothing.
        """
        if epoch > _MOST_EPOCHS // 2:
            return
        self._highest = max(self._highest, epoch)
        if self.term is not None and self.term.epoch <= epoch:
            self._end()

    def is_leading(self, now: float) -> bool:
        """Return whether a term lasts at a time."""
        return self.term is not None and now < self.lasts_until and not self._resigning

    def is_held(self, now: float) -> bool:
        """Return whether others must wait for the lease to run out, as far as is known, since it names us."""
        seen = self._seen
        return (
            seen is not None
            and seen.holder == self.settings.identity
            and now < self._changed_at + self.settings.duration
        )

    # --- What there is to do ---------------------------------------------------------------------------------------

    def _act(self, now: float) -> Effect:
        """Renew the lease if it is ours, or look at it.

        A leader whose last answer was lost renews as well: that succeeds if the lost write did not land, and is refused
        if it did. A look first would take the time that a term has left for another try.
        """
        if self._resigning:
            return self._resign(now)
        if self.term is not None and self._seen is not None:
            return self._renewal(self._seen)
        return ReadLease()

    def _next_renewal(self, now: float) -> float:
        """Return when a leader writes again: as long after the last write as ever, however long its end took."""
        return max(now, self._wrote_at + self._retry())

    def _take_record(self, record: Record | None, now: float) -> Effect:
        was_in_doubt, self._is_in_doubt = self._is_in_doubt, False
        landed_after = None
        if record != self._seen:
            self._note(record, now)
            landed_after, self._doubtful_since = self._doubtful_since, None
        if record is not None and record.holder == self.settings.identity:
            return self._take_own(record, landed_after, now)
        self._end()
        if self._resigning:
            return Finished()
        is_free = record is None or not record.holder or self._is_earlier_life(record.holder)
        if not was_in_doubt and (is_free or self._ran_out(record, now)):
            return self._acquisition(record or Record())
        return WakeAt(self._next_look(record, now))

    def _note(self, record: Record | None, now: float) -> None:
        self._seen, self._changed_at = record, now
        if record is not None:
            self._highest = max(self._highest, record.transitions)

    def _next_look(self, record: Record | None, now: float) -> float:
        """Return when to look at the lease of another process again: often, and at the moment in which it runs out.

        A lease is taken to end as late as its last renewal was seen, and until then the cluster lacks a leader.
        """
        soon = now + self._retry() / _LOOKS
        end = soon if record is None else self._changed_at + record.duration
        return end if now < end < soon else soon

    def _take_own(self, record: Record, landed_after: float | None, now: float) -> Effect:
        """Take it that the lease is ours: a write whose answer was lost took effect, or we lead anyway.

        Several may have been sent for one record, and any of them may be the one that landed, however late: others have
        counted since then, and so we count from the first.
        """
        if self._resigning:
            return self._resign(now)
        if landed_after is not None:
            self._extend(record, landed_after, now)
        # If it is ours but was written too long ago, others may be about to take it: begin anew.
        return self._acquisition(record) if self.term is None else WakeAt(self._next_renewal(now))

    def _take_success(self, event: WriteDone, now: float) -> Effect:
        self._note(event.record, now)
        self._doubtful_since, self._is_in_doubt = None, False
        is_ours = event.record.holder == self.settings.identity
        if self._resigning:
            return self._resign(now) if is_ours else Finished()
        self._extend(event.record, event.sent_at, now)
        return self._acquisition(event.record) if self.term is None else WakeAt(event.sent_at + self._retry())

    def _extend(self, record: Record, sent_at: float, now: float) -> None:
        """Begin or prolong the term, counted from when its record was sent."""
        until = sent_at + self.settings.renew_within
        if until <= now or (self.term is None and record.transitions == self._ended_epoch):
            return
        self.lasts_until = until if self.term is None else max(self.lasts_until, until)
        if self.term is None or self.term.epoch != record.transitions:
            self.term = Term(record.transitions, self.settings.identity, self.settings.name)

    def _end(self) -> None:
        if self.term is not None:
            self._ended_epoch = self.term.epoch
            self.term = None

    def _resign(self, now: float) -> Effect:
        """Give the lease back, unless it is not ours, runs out by itself, or that does not succeed."""
        self._resigning = True
        self._end()
        seen = self._seen
        if seen is None or not self.is_held(now):
            return Finished()
        self._resignations += 1
        if self._resignations > _MOST_RESIGNATIONS:
            return Finished()
        return WriteLease(holder="", transitions=seen.transitions, before=seen, ends=True)

    def _ran_out(self, record: Record | None, now: float) -> bool:
        return record is not None and now >= self._changed_at + record.duration

    # --- Writes ----------------------------------------------------------------------------------------------------

    def _renewal(self, record: Record) -> WriteLease:
        return WriteLease(holder=self.settings.identity, transitions=record.transitions, before=record)

    def _acquisition(self, record: Record) -> WriteLease:
        transitions = max(record.transitions, self._highest) + 1
        return WriteLease(holder=self.settings.identity, transitions=transitions, before=record, begins=True)

    def _is_earlier_life(self, holder: str) -> bool:
        container = self.settings.container
        return bool(container) and holder.startswith(f"{container}_") and holder != self.settings.identity

    def _retry(self) -> float:
        return self.settings.retry * (1.0 + _JITTER * self.draw())
