"""Writes under way: what a bind, an eviction or a removal does next, reply by reply. Machines without I/O.

An operation answers whatever happens to it with a step: ask for a request, hand the order over to the binder, pause and
try again, or end. Under which ticket, how long a pause is and how many there are is the committer's business.

Holds: an answer that was lost is neither a success nor a failure. The object is read by quorum, and the same order, or
the same UID's eviction, is written again if it is not there.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, Protocol, TypeAlias

import attrs

from kai.api import plans
from kai.api.bindrequest import BindRequest
from kai.api.kinds import ApiObject, title
from kai.api.node import Node
from kai.api.plans import Reason, Ref, Refusal
from kai.api.pod import Pod
from kai.cluster.port import Key
from kai.cluster.requests import BudgetExhausted, Request
from kai.intake.binding import has_failed
from kai.intake.nodes import is_wanted
from kai.model.noroom import NoRoom
from kai.scheduler import orders
from kai.scheduler.effects import Carried
from kai.scheduler.settings import SchedulerSettings
from kai.scheduler.signals import (
    BindDropped,
    BindOrdered,
    BindRefused,
    Evicted,
    EvictionRefused,
    RequestDeleted,
    RequestKept,
    Signal,
    VictimGone,
    WriteGivenUp,
)
from kai.scheduler.verifying import Reader

_STALE: Final = 5.0
"""An eviction that was not done for so many seconds is decided again: who was to gain by it may be gone."""
_PATIENCE: Final = 3
"""How often a bind pauses for an old request to go before its pod is told."""


@attrs.frozen
class Moment:
    """The time, twice."""

    now: float
    """Of a clock that does not go back."""
    wall: float
    """What people read."""


# --- Steps ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Ask:
    """Send a request and say what was answered."""

    request: Request


@attrs.frozen
class HandOver:
    """Have the binder of this process carry out the order."""

    request: BindRequest


@attrs.frozen
class Pause:
    """Go on a little later."""


@attrs.frozen(kw_only=True)
class End:
    """There is nothing more to do."""

    signal: Signal
    """What became of the write."""
    then: tuple[Request, ...] = ()
    """Requests that are to be written besides; the committer does not wait for the answers."""
    stands: bool = False
    """What was assumed is true, although no reply shows it: it is shown until the watch does."""
    backs_off: str = ""
    """The UID of a pod whose bind failed."""
    refusal: NoRoom | None = None
    """The node that had no room for it, if that was why."""
    shielded: str = ""
    """The UID of a pod that a disruption budget protected."""
    kept: str = ""
    """The UID of a bind request that was not deleted, because its node is there after all."""
    ordered: plans.Emit | None = None
    """What to tell the pod once it is bound: that was ordered, and is not so yet."""


Step: TypeAlias = Ask | HandOver | Pause | End


class Operation(Protocol):
    """A write under way."""

    name: ClassVar[str]
    attempts: int
    """How often it paused."""

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The object that is being written, of which something may be assumed."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it is asked what became of a write: it is not given up before that is known."""
        ...

    def begin(self) -> Step:
        """Return the first step."""
        ...

    def answered(self, reply: object, at: Moment) -> Step:
        """Return the step that follows a reply of the API server, other than that it was not there."""
        ...

    def resumed(self, reader: Reader) -> Step:
        """Return the step that follows a pause."""
        ...


# --- Binds ---------------------------------------------------------------------------------------------------------


@attrs.define
class BindOperation:
    """A bind request that is being written, or carried out unwritten.

    Stages: create, look (read what is there), clear (delete that).
    """

    name: ClassVar[str] = "bind"
    pod: Pod
    request: BindRequest
    write: plans.Create | None
    """How the request is written; None for one that is to be carried out without being written."""
    settings: SchedulerSettings
    since: float
    attempts: int = 0
    _stage: Literal["create", "look", "clear"] = "create"

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The bind request."""
        return BindRequest, key_of(self.request)

    @property
    def is_open(self) -> bool:
        """Whether it is asked what became of the order."""
        return self._stage == "look"

    def begin(self) -> Step:
        """Write the order, or have it carried out."""
        return HandOver(self.request) if self.write is None else self._create()

    def answered(self, reply: object, at: Moment) -> Step:
        """Go on after a reply."""
        if isinstance(reply, Carried):
            return self._refused(reply.failure) if reply.failure else self._done(at, is_bound=True)
        if self._stage == "look":
            return self._looked(reply, at)
        refusal = reply if isinstance(reply, Refusal) else None
        if self._stage == "clear":
            if refusal is None or refusal.reason in {Reason.NOT_FOUND, Reason.CONFLICT}:
                return self._create()
            self._stage = "look"
            return Pause()
        if refusal is None:
            return self._done(at)
        if refusal.reason is Reason.ALREADY_EXISTS:
            return self._look()
        if refusal.reason is Reason.UNKNOWN:
            self._stage = "look"
            return Pause()
        node, why = self.request.spec.selected_node, refusal.message or refusal.reason.value
        return self._refused(refusal.message, orders.failed_binding(self.pod, node, why, at.wall))

    def resumed(self, reader: Reader) -> Step:
        """Look again, or write the order once more unless the pod has gone or found a node meanwhile."""
        if self._stage == "look":
            return self._look()
        pod = reader.get(Pod, self.pod.metadata.name, self.pod.metadata.namespace)
        if pod is None or pod.metadata.uid != self.pod.metadata.uid or pod.metadata.deletion_timestamp is not None:
            return self._dropped("the pod is gone")
        if pod.spec.node_name:
            return self._dropped("the pod has a node")
        return self._create()

    def _create(self) -> Step:
        self._stage = "create"
        return Ask(self.write or orders.create_bind_request(self.request))

    def _look(self) -> Step:
        self._stage = "look"
        return Ask(plans.Get(ref=_ref(self.request), fresh=True))

    def _looked(self, found: object, at: Moment) -> Step:
        if isinstance(found, BindRequest):
            if orders.is_same_order(found, self.request) and not has_failed(found):
                return self._done(at)
            owners = {owner.uid for owner in found.metadata.owner_references}
            if has_failed(found) or self.pod.metadata.uid not in owners:
                # Of a pod of the past, or of an attempt that is over: it only stands in the way.
                if found.metadata.deletion_timestamp is not None:
                    return self._blocked(found, at)
                self._stage = "clear"
                return Ask(plans.Delete(ref=_ref(found), uid=found.metadata.uid))
            return self._dropped("another bind request for the pod is there")
        if isinstance(found, Refusal) and found.reason is Reason.NOT_FOUND:
            self._stage = "create"
        return Pause()

    def _blocked(self, found: BindRequest, at: Moment) -> Step:
        """Wait a little for a request that is being deleted, then say what keeps it and leave the pod for a while."""
        if self.attempts < _PATIENCE:
            return Pause()
        held = ", ".join(found.metadata.finalizers) or "none"
        why = f"{title(found)} of an earlier bind is being deleted, but is still there (finalizers: {held})"
        return self._refused(why, orders.failed_binding(self.pod, self.request.spec.selected_node, why, at.wall))

    def _done(self, at: Moment, *, is_bound: bool = False) -> Step:
        created, node = self.pod.metadata.creation_timestamp, self.request.spec.selected_node
        waited = 0.0 if created is None else max(0.0, at.wall - created)
        ordered = BindOrdered(pod=_title(self.pod), node=node, seconds=at.now - self.since, waited=waited)
        if not self.settings.announce_binds:
            return End(signal=ordered)
        said = orders.scheduled_event(self.pod, node, self.settings)
        return End(signal=ordered, then=(said,)) if is_bound else End(signal=ordered, ordered=said)

    def _refused(self, why: str, said: tuple[Request, ...] = ()) -> Step:
        refused = BindRefused(pod=_title(self.pod), why=why)
        refusal = orders.lack_of_room(self.request, self.pod.metadata.uid, why)
        return End(signal=refused, then=said, backs_off=self.pod.metadata.uid, refusal=refusal)

    def _dropped(self, why: str) -> Step:
        return End(signal=BindDropped(pod=_title(self.pod), why=why))


# --- Evictions -----------------------------------------------------------------------------------------------------


@attrs.define
class EvictionOperation:
    """A pod that is being evicted.

    Stages: send, look (read whether the pod is gone).
    """

    name: ClassVar[str] = "eviction"
    pod: Pod
    request: Request
    event: plans.Emit | None
    since: float
    cause: str
    gpus: int = 0
    """Thousandths of GPUs that the pod holds."""
    attempts: int = 0
    _stage: Literal["send", "look"] = "send"

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The pod."""
        return Pod, key_of(self.pod)

    @property
    def is_open(self) -> bool:
        """Whether it is asked what became of the eviction."""
        return self._stage == "look"

    def is_stale(self, now: float) -> bool:
        """Return whether it is to be decided again by then."""
        return now > self.since + _STALE

    def begin(self) -> Step:
        """Ask for the eviction."""
        return Ask(self.request)

    def answered(self, reply: object, at: Moment) -> Step:
        """Go on after a reply."""
        refusal = reply if isinstance(reply, Refusal) else None
        if self._stage == "look":
            return self._looked(reply, at)
        if refusal is None:
            return self._evicted(at)
        if refusal.reason is Reason.UNKNOWN:
            self._stage = "look"
            return Pause()
        if refusal.reason is Reason.NOT_FOUND:
            return End(signal=VictimGone(pod=_title(self.pod)))
        refused = EvictionRefused(pod=_title(self.pod), why=refusal.message, cause=self.cause)
        shielded = self.pod.metadata.uid if isinstance(refusal, BudgetExhausted) else ""
        return End(signal=refused, shielded=shielded)

    def resumed(self, reader: Reader) -> Step:
        """Look again, or ask again; the API server knows whether the pod is there."""
        del reader
        return self._look() if self._stage == "look" else Ask(self.request)

    def _look(self) -> Step:
        return Ask(plans.Get(ref=orders.pod_ref(self.pod), fresh=True))

    def _looked(self, found: object, at: Moment) -> Step:
        if isinstance(found, Refusal) and found.reason is not Reason.NOT_FOUND:
            return Pause()
        stays = isinstance(found, Pod) and found.metadata.uid == self.pod.metadata.uid
        if not stays or (isinstance(found, Pod) and found.metadata.deletion_timestamp is not None):
            return self._evicted(at)
        if self.is_stale(at.now):
            return End(signal=WriteGivenUp(what=self.name))
        self._stage = "send"
        return Ask(self.request)

    def _evicted(self, at: Moment) -> Step:
        event = self.event
        group = None if event is None else (event.ref.name, event.ref.namespace, event.uid)
        evicted = Evicted(
            pod=_title(self.pod), cause=self.cause, seconds=at.now - self.since, group=group, gpus=self.gpus
        )
        return End(signal=evicted, then=() if event is None else (event,), stands=True)


# --- Removals ------------------------------------------------------------------------------------------------------


@attrs.define
class RemovalOperation:
    """A bind request that is being deleted: one that failed, or, once that is confirmed, one whose node is gone."""

    name: ClassVar[str] = "removal"
    request: BindRequest
    settings: SchedulerSettings
    attempts: int = 0
    _stage: Literal["confirm", "delete"] = "confirm"

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The bind request."""
        return BindRequest, key_of(self.request)

    @property
    def is_open(self) -> bool:
        """Nothing is asked: to delete it once more does no harm."""
        return False

    def begin(self) -> Step:
        """Delete it if it failed, else look for its node."""
        return self._delete() if self._stage == "delete" or has_failed(self.request) else self._confirm()

    def answered(self, reply: object, at: Moment) -> Step:
        """Go on after a reply."""
        del at
        refusal = reply if isinstance(reply, Refusal) else None
        if refusal is not None and refusal.reason is Reason.UNKNOWN:
            return Pause()
        is_gone = refusal is not None and refusal.reason is Reason.NOT_FOUND
        if self._stage == "delete":
            if refusal is None or is_gone or refusal.reason is Reason.CONFLICT:  # another has its name
                return End(signal=RequestDeleted(name=self.request.metadata.name))
            return self._keep(refusal.message or refusal.reason.value)
        if is_gone or (isinstance(reply, Node) and not is_wanted(reply, self.settings.intake)):
            return self._delete()
        return self._keep("its node is there")

    def _keep(self, why: str) -> Step:
        return End(signal=RequestKept(name=self.request.metadata.name, why=why), kept=self.request.metadata.uid)

    def resumed(self, reader: Reader) -> Step:
        """Do what was interrupted."""
        del reader
        return self.begin()

    def _confirm(self) -> Step:
        # The store may only lag, and a bind may be under way: nothing is deleted because a cache lacks it.
        return Ask(plans.Get(ref=Ref(Node, self.request.spec.selected_node), fresh=True))

    def _delete(self) -> Step:
        self._stage = "delete"
        return Ask(plans.Delete(ref=_ref(self.request), uid=self.request.metadata.uid))


def key_of(obj: Pod | BindRequest) -> Key:
    """Return namespace and name."""
    return obj.metadata.namespace, obj.metadata.name


def _ref(request: BindRequest) -> Ref[BindRequest]:
    return Ref(BindRequest, request.metadata.name, request.metadata.namespace)


def _title(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
