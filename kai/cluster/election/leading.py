"""The shell of leader election: reads, writes and watches the lease, and tells tasks when terms begin and end."""

from __future__ import annotations

import datetime as dt
import math
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import anyio
import attrs
import structlog

from kai.api.plans import Reason
from kai.basics.parsing import mapping_of, part_of
from kai.cluster.election.lease import (
    Effect,
    Election,
    Event,
    Finished,
    LeaseSettings,
    OutcomeUnknown,
    ReadDone,
    ReadFailed,
    ReadLease,
    Record,
    Resigned,
    Ticked,
    WakeAt,
    WriteDone,
    WriteLease,
    WriteRefused,
)
from kai.cluster.port import Clock, Draw, Term
from kai.cluster.transport.calls import Answer, Call, LineSplitter, NoAnswer, Transport, decoded, refusal_of
from kai.cluster.transport.encoding import to_json

_GIVING_BACK: Final = 10.0
"""Timeout for releasing a lease: two calls of maximum length, a third of a pod's grace period.

Units: seconds.
"""
_APART: Final = 2.0
"""Pause between two watches of a lease.

Units: seconds.
"""
_LONGEST_WATCH: Final = 300.0


def fresh_identity(base: str) -> str:
    """Return the identity of this process, unique for each start; ``base`` names its container or machine."""
    return f"{base}_{secrets.token_hex(6)}"


class LeaseLeadership:
    """Leads while a Lease is held; see `kai.cluster.port.Leadership`."""

    def __init__(self, settings: LeaseSettings, transport: Transport, clock: Clock, draw: Draw) -> None:
        self._settings = settings
        self._transport = transport
        self._clock = clock
        self._election = Election(settings, draw)
        self._changed = anyio.Event()
        self._wake: anyio.CancelScope | None = None
        self._is_resigning = False
        self._wants_look = False
        """Whether to read the lease before the present pause is over."""
        self._is_over = anyio.Event()
        self._awaited = ""
        """The holder that was logged last as awaited."""
        self.problem = ""
        """Why the lease cannot be read or written, as text; "" if it can."""

    @property
    def identity(self) -> str:
        """Our identity in the lease."""
        return self._settings.identity

    @property
    def has_rivals(self) -> bool:
        """True: other processes compete for the lease."""
        return True

    @property
    def is_known(self) -> bool:
        """Whether the lease was read, so that the leader is known."""
        return self._election.knows

    @property
    def term(self) -> Term | None:
        """The present term; None once the lease has expired, even if `run` is stuck in a call."""
        is_leading = not self._is_resigning and self._election.is_leading(self._clock.monotonic())
        return self._election.term if is_leading else None

    def holds(self, term: Term) -> bool:
        """Return whether a term still lasts."""
        return self.term == term

    async def begun(self) -> Term:
        """Wait until this process leads."""
        while True:
            term = self.term
            if term is not None:
                return term
            await self._changed.wait()

    async def ended(self, term: Term) -> None:
        """Wait until a term is over."""
        while self.holds(term):
            left = self._election.lasts_until - self._clock.monotonic()
            # Slightly later than the end: a timer that fires early would make this loop spin.
            with anyio.move_on_after(max(0.0, left) + 0.001):
                await self._changed.wait()

    def resign(self) -> None:
        """End the term now; `run` releases the lease and returns."""
        self._is_resigning = True
        self._wake_waiting()
        if self._wake is not None:
            self._wake.cancel()

    def outgrow(self, epoch: int) -> None:
        """Lead only in epochs after ``epoch`` from now on."""
        self._election.outgrow(epoch)
        self._wake_waiting()
        self._look()

    async def give_back(self) -> None:
        """Resign and wait until the lease is released, or until the timeout if the API server does not answer.

        The term ends as soon as we resign, but the lease is free only when the server has stored that. A process that
        exits in between makes the next leader wait for the whole duration of the lease.
        """
        self.resign()
        with anyio.move_on_after(_GIVING_BACK):
            await self._is_over.wait()
        if self._election.is_held(self._clock.monotonic()):
            why = self.problem or "the API server does not answer"
            structlog.get_logger().warning("lease not given back", lease=self._name, why=why)

    async def run(self) -> None:
        """Compete for the lease until `resign`; if cancelled, let the lease expire."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            await self._compete()
            tasks.cancel_scope.cancel()

    async def _compete(self) -> None:
        event: Event = Ticked()
        while True:
            effect = self._step(event)
            if isinstance(effect, Finished):
                self._is_over.set()
                return
            event = await self._do(effect)

    def _step(self, event: Event) -> Effect:
        before = self._election.term
        if self._is_resigning and isinstance(event, Ticked):
            event = Resigned()
        effect = self._election.step(event, self._clock.monotonic())
        if self._election.term != before:
            self._wake_waiting()
        return effect

    def _wake_waiting(self) -> None:
        """Wake the tasks that wait for a term to begin or end."""
        self._changed.set()
        self._changed = anyio.Event()

    async def _do(self, effect: Effect) -> Event:
        match effect:
            case ReadLease():
                return await self._read()
            case WriteLease():
                return await self._write(effect)
            case WakeAt():
                # A wake-up during a call finds no sleep to cancel; these flags keep it until here.
                if self._is_resigning or self._wants_look:
                    await self._clock.sleep(0)
                else:
                    with anyio.CancelScope() as self._wake:
                        await self._clock.sleep(effect.time - self._clock.monotonic())
                    self._wake = None
                self._wants_look = False
        return Ticked()

    # --- Listening -------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Read another leader's lease at once when it is released.

        A watch shows the release immediately. The reads of `Election` continue nevertheless: a watch may be refused,
        late or silent, and does not show that a holder died.
        """
        while True:
            term = self.term
            if term is not None:
                await self.ended(term)
            if self._election.version:
                await self._hear(self._election.version)
            await self._clock.sleep(_APART)

    async def _hear(self, version: str) -> None:
        """Watch the lease from a version until this process leads or the watch ends."""
        query = (
            ("fieldSelector", f"metadata.name={self._settings.name}"),
            ("watch", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(math.ceil(_LONGEST_WATCH))),
        )
        call = attrs.evolve(self._call("GET", self._path().rpartition("/")[0]), query=query)
        async with self._transport.stream(call) as stream:
            if isinstance(stream, Answer | NoAnswer):
                return
            lines = LineSplitter()
            while self.term is None:
                data: bytes | NoAnswer = b""
                with anyio.move_on_after(self._settings.duration):  # a living holder renews more often
                    data = await stream.read()
                if isinstance(data, NoAnswer) or not data:
                    return
                try:
                    if any(self._is_given_back(line) for line in lines.feed(data)):
                        self._look()
                except ValueError:  # a line longer than any object
                    return

    def _look(self) -> None:
        """Read the lease now; once more if a read is in progress."""
        self._wants_look = True
        if self._wake is not None:
            self._wake.cancel()

    def _is_given_back(self, line: bytes) -> bool:
        """Return whether a watch event shows that our lease has no holder."""
        event = mapping_of(decoded(line))
        lease = mapping_of(event, "object")
        if part_of(lease, "metadata", "name") != self._settings.name:
            return False
        return event.get("type") == "DELETED" or not part_of(lease, "spec", "holderIdentity")

    # --- Calls -----------------------------------------------------------------------------------------------------

    async def _read(self) -> Event:
        # Without a resourceVersion a GET is a quorum read: an older record would let us take over a lease in use.
        answer = await self._transport.request(self._call("GET", self._path()))
        record = _record(answer)
        if record is not None:
            self.problem = ""
            self._say(record.holder)
            return ReadDone(record)
        if isinstance(answer, Answer) and answer.status == 404:
            return ReadDone(None)
        self._note(answer)
        return ReadFailed()

    def _say(self, holder: str) -> None:
        """Log each other holder once as awaited: nothing else says why this process does not work."""
        if holder in {"", self.identity}:
            self._awaited = ""
        elif holder != self._awaited:
            self._awaited = holder
            structlog.get_logger().info("waiting", lease=self._name, holder=holder)

    async def _write(self, effect: WriteLease) -> Event:
        body = to_json(self._manifest(effect))
        # The term counts from the sending. Others count from when they see the record, which is later.
        sent_at = self._clock.monotonic()
        # The manifest keeps the resourceVersion that was read: the server answers 409 if another process wrote since.
        if effect.before.version:
            answer = await self._transport.request(self._call("PUT", self._path(), body))
        else:
            answer = await self._transport.request(self._call("POST", self._path().rpartition("/")[0], body))
        record = _record(answer)
        if record is not None:
            self.problem = ""
            return WriteDone(record=record, sent_at=sent_at)
        refusal = refusal_of(answer, is_write=True, now=self._clock.now())
        if refusal.reason is Reason.UNKNOWN:
            self._note(answer)
            return OutcomeUnknown(sent_at=sent_at)
        # To lose the race for a lease is no problem of the lease.
        if refusal.reason not in {Reason.CONFLICT, Reason.ALREADY_EXISTS}:
            self._note(answer)
        return WriteRefused()

    def _note(self, answer: Answer | NoAnswer) -> None:
        refusal = refusal_of(answer, is_write=False, now=self._clock.now())
        self.problem = f"lease {self._name}: {refusal.message}"

    @property
    def _name(self) -> str:
        return f"{self._settings.namespace}/{self._settings.name}"

    def _call(self, method: str, path: str, body: bytes | None = None) -> Call:
        # Half of a term, so that one lost answer leaves time for another try.
        return Call(method=method, path=path, body=body, timeout=self._settings.renew_within / 2)

    def _path(self) -> str:
        settings = self._settings
        return f"/apis/coordination.k8s.io/v1/namespaces/{quote(settings.namespace)}/leases/{quote(settings.name)}"

    def _manifest(self, effect: WriteLease) -> Mapping[str, Any]:
        settings, before = self._settings, effect.before
        now = dt.datetime.fromtimestamp(self._clock.now(), tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        kept = before.manifest
        metadata = {**mapping_of(kept, "metadata"), "name": settings.name, "namespace": settings.namespace}
        spec = {
            **mapping_of(kept, "spec"),
            "holderIdentity": effect.holder,
            # For clients that only look at the duration, a released lease expires after a second.
            "leaseDurationSeconds": 1 if effect.ends else math.ceil(settings.duration),
            "leaseTransitions": effect.transitions,
            "renewTime": now,
            "acquireTime": now if effect.begins or not before.acquired else before.acquired,
        }
        return {**kept, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


@attrs.frozen
class SoleLeadership:
    """Leads from the start to the end: for a role with a single replica, and for tests."""

    identity: str
    epoch: int = 0

    @property
    def has_rivals(self) -> bool:
        """False: no other process leads."""
        return False

    @property
    def term(self) -> Term | None:
        """The only term."""
        return Term(epoch=self.epoch, identity=self.identity)

    def holds(self, term: Term) -> bool:
        """Return whether this is the only term."""
        return term == self.term

    def outgrow(self, epoch: int) -> None:
        """Do nothing: without a lease bind requests carry no epoch."""

    async def begun(self) -> Term:
        """Return the only term."""
        return Term(epoch=self.epoch, identity=self.identity)

    async def ended(self, term: Term) -> None:
        """Wait for ever, unless it is another term."""
        if self.holds(term):
            await anyio.sleep_forever()


def _record(answer: Answer | NoAnswer) -> Record | None:
    """Return the lease in an answer; None if there is none."""
    body = decoded(answer.body) if isinstance(answer, Answer) and answer.is_good else None
    if not isinstance(body, Mapping) or body.get("kind") != "Lease":
        return None
    metadata, spec = mapping_of(body, "metadata"), mapping_of(body, "spec")
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    return Record(
        holder=str(spec.get("holderIdentity") or ""),
        duration=float(duration) if isinstance(duration, int) and duration > 0 else 15.0,
        transitions=transitions if isinstance(transitions, int) and transitions >= 0 else 0,
        version=str(metadata.get("resourceVersion") or ""),
        renewed=str(spec.get("renewTime") or ""),
        acquired=str(spec.get("acquireTime") or ""),
        manifest=body,
    )
