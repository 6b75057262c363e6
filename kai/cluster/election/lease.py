"""Leader election by a Lease object, as a state machine: the reads and writes of the lease, and our terms.

`Election.step` takes an event and returns an effect; it reads no clock and sends nothing. It follows the rules of the
Go clients, so that both can compete for one lease. The holder renews the lease every ``retry`` seconds. Others read it
four times as often, and wait until a record did not change for its duration, measured on their own clock.

Two rules are our own. A restarted process never leads under its old identity, so that writes of the old one cannot be
taken for its own. And each new term increments ``leaseTransitions``; that number is the epoch in decisions. It
continues from the highest epoch that this process knows, so that a lease that is deleted and created anew does not
begin at 1, below earlier decisions.

Holds: a term ends ``renew_within`` seconds after the last successful renewal was *sent*, on a monotonic clock, whether
this process notices or not; others can begin theirs only after ``duration``. So two processes lead at once only if the
speeds of their clocks differ by more than the ratio of the two, or if a write that was sent within a term takes effect
after it. Against such a write there are the epoch, which is checked where writes arrive, and the quorum list at the
beginning of a term.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from kai.basics.errors import ConfigError
from kai.cluster.port import Draw, Term

_JITTER: Final = 0.2
_SLACK: Final = 1.2
_MOST_RESIGNATIONS: Final = 3
_MOST_EPOCHS: Final = (1 << 31) - 1
"""The highest value of ``leaseTransitions``."""
_LOOKS: Final = 4.0
"""How often waiting processes read a lease per renewal by its holder."""


@attrs.frozen(kw_only=True)
class LeaseSettings:
    """The lease, and its timing.

    ``container`` is the prefix of the identities of all processes in our container (followed by an underscore), or
    empty. It is set only if earlier processes there are known to have ended; a lease that one of them holds is taken
    over at once.

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
        """Refuse times that would let two processes lead at once, or leave the cluster without a leader for long.

        Raises: ConfigError.
        """
        if not self.duration > self.renew_within > self.retry * _SLACK > 0:
            found = f"{self.duration:g}, {self.renew_within:g} and {self.retry:g} seconds"
            wanted = "a duration greater than the renew deadline, and that greater than 1.2 times the retry period"
            raise ConfigError.about("leader election", "durations", found=found, wanted=wanted)


@attrs.frozen(kw_only=True)
class Record:
    """The content of a lease."""

    holder: str = ""
    duration: float = 15.0
    transitions: int = 0
    version: str = ""
    renewed: str = ""
    acquired: str = ""
    manifest: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """The whole lease, so that a write keeps the labels, annotations and other fields of other clients."""


# --- Events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Ticked:
    """The requested time has come, or the election begins."""


@attrs.frozen
class ReadDone:
    """The lease was read; None if it does not exist."""

    record: Record | None


@attrs.frozen(kw_only=True)
class WriteDone:
    """A write succeeded; ``record`` is the new lease."""

    record: Record
    sent_at: float


@attrs.frozen
class WriteRefused:
    """A write certainly failed: another process was faster, or the server refused it."""


@attrs.frozen(kw_only=True)
class OutcomeUnknown:
    """The answer to a write was lost."""

    sent_at: float


@attrs.frozen
class ReadFailed:
    """The lease could not be read."""


@attrs.frozen
class Resigned:
    """This process gives up leading."""


Event: TypeAlias = Ticked | ReadDone | WriteDone | WriteRefused | OutcomeUnknown | ReadFailed | Resigned


# --- Effects -------------------------------------------------------------------------------------------------------


@attrs.frozen
class ReadLease:
    """Read the lease with a quorum."""


@attrs.frozen(kw_only=True)
class WriteLease:
    """Write the lease if its version is unchanged; create it if there was none.

    ``begins``: set the time of acquisition to now. ``ends``: release the lease.
    """

    holder: str
    transitions: int
    before: Record = Record()
    begins: bool = False
    ends: bool = False


@attrs.frozen
class WakeAt:
    """Send `Ticked` at ``time``."""

    time: float


@attrs.frozen
class Finished:
    """The lease was released, or was not ours; there is nothing more to do."""


Effect: TypeAlias = ReadLease | WriteLease | WakeAt | Finished


@attrs.define
class Election:
    """The lease as this process knows it.

    `step` returns exactly one effect; the next event is its result.
    """

    settings: LeaseSettings
    draw: Draw
    term: Term | None = None
    lasts_until: float = 0.0
    _seen: Record | None = None
    _changed_at: float = 0.0
    """When the present record was first seen."""
    _is_in_doubt: bool = False
    """Whether the outcome of the last write is unknown, and the lease was not read since."""
    _doubtful_since: float | None = None
    """When the first write of unknown outcome was sent that may have replaced the record last seen."""
    _wrote_at: float = float("-inf")
    """When the last write was requested."""
    _ended_epoch: int = -1
    _highest: int = 0
    """The highest known epoch: a lease that is created anew continues from it."""
    _resigning: bool = False
    _resignations: int = 0

    def step(self, event: Event, now: float) -> Effect:
        """Handle an event and return the next effect.

        Units: ``now`` in seconds of a monotonic clock.
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
                # Another process was faster, or the server has a problem. A leader has to know at once.
                is_urgent = self._resigning or self.term is not None
                return ReadLease() if is_urgent else WakeAt(now + self._retry())
            case ReadFailed():
                return WakeAt(now + self._retry() if self.term is None else self._next_renewal(now))
            case Resigned():
                return self._resign(now)

    @property
    def knows(self) -> bool:
        """Whether it is known who leads."""
        return self._seen is not None

    @property
    def version(self) -> str:
        """The last known version of the lease; "" if it was not read, or does not exist."""
        return "" if self._seen is None else self._seen.version

    def outgrow(self, epoch: int) -> None:
        """End the present term unless its epoch is above ``epoch``; later terms begin above it.

        An epoch that leaves no room for as many terms again is invalid, and ignored.
        """
        if epoch > _MOST_EPOCHS // 2:
            return
        self._highest = max(self._highest, epoch)
        if self.term is not None and self.term.epoch <= epoch:
            self._end()

    def is_leading(self, now: float) -> bool:
        """Return whether a term lasts at the time ``now``."""
        return self.term is not None and now < self.lasts_until and not self._resigning

    def is_held(self, now: float) -> bool:
        """Return whether the lease still names us, as far as is known, so that others must wait for it to expire."""
        seen = self._seen
        return (
            seen is not None
            and seen.holder == self.settings.identity
            and now < self._changed_at + self.settings.duration
        )

    # --- What there is to do ---------------------------------------------------------------------------------------

    def _act(self, now: float) -> Effect:
        """Renew the lease if it is ours, else read it.

        A leader whose last answer was lost renews as well: that succeeds if the lost write had no effect, and is
        refused if it had. To read first would use up the time that the term has left for another try.
        """
        if self._resigning:
            return self._resign(now)
        if self.term is not None and self._seen is not None:
            return self._renewal(self._seen)
        return ReadLease()

    def _next_renewal(self, now: float) -> float:
        """Return when a leader writes again: the usual interval after the last write, however long that took."""
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
        # After a lost answer the read may precede our own write: look once more before another one is sent.
        if not was_in_doubt and (is_free or self._ran_out(record, now)):
            return self._acquisition(record or Record())
        return WakeAt(self._next_look(record, now))

    def _note(self, record: Record | None, now: float) -> None:
        self._seen, self._changed_at = record, now
        if record is not None:
            self._highest = max(self._highest, record.transitions)

    def _next_look(self, record: Record | None, now: float) -> float:
        """Return when to read the lease of another process again: often, and at the moment of its expiry.

        A lease expires a duration after its last renewal was seen, and until then the cluster lacks a leader.
        """
        soon = now + self._retry() / _LOOKS
        end = soon if record is None else self._changed_at + record.duration
        return end if now < end < soon else soon

    def _take_own(self, record: Record, landed_after: float | None, now: float) -> Effect:
        """Handle a record that names us: a write whose answer was lost took effect, or we lead anyway.

        Several writes may have been sent for one record, and any of them may be the one that took effect, however late.
        Others count the duration from then, so we count ours from the first.
        """
        if self._resigning:
            return self._resign(now)
        if landed_after is not None:
            self._extend(record, landed_after, now)
        # If it is ours but was written too long ago, others may be about to take it: begin a new term.
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
        """Begin or extend the term, counted from the sending of its record."""
        until = sent_at + self.settings.renew_within
        # A term that has ended never resumes, even if its renewal arrives late: its writes were given up.
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
        """Release the lease, unless it is not ours, is about to expire, or several tries have failed."""
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
        # From the moment when we saw the record change: its renewTime is by the clock of another machine.
        return record is not None and now >= self._changed_at + record.duration

    # --- Writes ----------------------------------------------------------------------------------------------------

    def _renewal(self, record: Record) -> WriteLease:
        return WriteLease(holder=self.settings.identity, transitions=record.transitions, before=record)

    def _acquisition(self, record: Record) -> WriteLease:
        # Go clients count changes of the holder. As an epoch the number must grow with each term of ours as well.
        transitions = max(record.transitions, self._highest) + 1
        return WriteLease(holder=self.settings.identity, transitions=transitions, before=record, begins=True)

    def _is_earlier_life(self, holder: str) -> bool:
        container = self.settings.container
        return bool(container) and holder.startswith(f"{container}_") and holder != self.settings.identity

    def _retry(self) -> float:
        return self.settings.retry * (1.0 + _JITTER * self.draw())
