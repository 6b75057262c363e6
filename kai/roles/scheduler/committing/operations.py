"""Writes in flight as state machines without I/O: each operation maps a reply to its next step.

The steps are: send a request, hand the bind to the binder, pause and try again, or end. The committer assigns tickets,
and decides how long a pause is and how many there are.

The operations are `BindOperation` in `binds`, and here `RemovalOperation` and `EvictionOperation`. The first deletes a
bind request: at once if it failed, else after a read confirms that its node or queue is gone. The second evicts a pod.

Holds: a lost answer is neither a success nor a failure. The object is read by quorum, and if the same bind request, or
the eviction of the same UID, is not there, it is written again.

`EvictionsInFlight` delays binds that depend on an unconfirmed eviction. Victims count as gone from their queues at
once, so that no further victims are searched for. A cycle waits for the answers, for a second at most. If one is still
missing then, the next cycle sees room in the queues that lose pods. If it bound pods there and the eviction failed, a
queue would hold more than its limit, or more than its quota of pods that cannot be preempted. So binds in such queues
wait for the answer. Binds in queues without limits do not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol, TypeAlias

import attrs

from kai.api import plans
from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.deadlines import Deadlines
from kai.cluster.requests import BudgetExhausted, NamespaceEnding, Request
from kai.facts.model.groups import UNLIMITED, Shares, path_to
from kai.facts.model.placement import NoRoom
from kai.framework.decisions import Bind, Decision
from kai.intake.bind_requests import ExpiredRequest
from kai.intake.nodes import is_wanted
from kai.roles.scheduler.effects import (
    Evicted,
    EvictionRefused,
    RequestDeleted,
    RequestKept,
    Signal,
    VictimGone,
    WriteGivenUp,
)
from kai.roles.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.facts.state.snapshot import Snapshot
    from kai.roles.scheduler.effects import Reader


@attrs.frozen
class Moment:
    """The present time on two clocks."""

    now: float
    """Monotonic clock."""
    wall: float
    """Wall clock, for timestamps that users read."""


# --- Steps ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Ask:
    """Send a request, and pass the answer to the operation."""

    request: Request


@attrs.frozen
class HandOver:
    """Let the binder of this process carry out the bind."""

    request: BindRequest


@attrs.frozen
class Pause:
    """Resume after a pause."""


@attrs.frozen
class Gang:
    """A pod group whose pods share one event."""

    ref: plans.Ref[PodGroup]
    uid: str


@attrs.frozen
class BindEvent:
    """The event of one bind."""

    event: plans.Emit
    """About the pod."""
    node: str
    gang: Gang | None = None
    """The gang that has the event in place of the pod."""


@attrs.frozen(kw_only=True)
class End:
    """The operation has ended."""

    signal: Signal
    """How the write ended."""
    then: tuple[Request, ...] = ()
    """Further requests to send; their answers are not awaited."""
    stands: bool = False
    """Whether the assumption holds although no reply confirms it: the store keeps it until the watch does."""
    backs_off: str = ""
    """UID of a pod that must back off because its bind failed."""
    why: str = ""
    """Why the bind failed."""
    refusal: NoRoom | None = None
    """The node that lacked room, if that is why the bind failed."""
    shielded: str = ""
    """UID of a pod that a disruption budget protected."""
    kept: str = ""
    """UID of a bind request that was kept because its node still exists."""
    bound: BindEvent | None = None
    """The event of a bind that is done."""
    ordered: BindEvent | None = None
    """The event of a bind that is ordered, but not done: it waits until the store shows the pod on its node."""


Step: TypeAlias = Ask | HandOver | Pause | End


class Operation(Protocol):
    """A write in flight."""

    name: ClassVar[str]
    attempts: int
    """Count of pauses so far."""

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The object that is written, which may be assumed in the store."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the outcome of a write is unknown; the operation is not given up before it is read."""
        ...

    def begin(self) -> Step:
        """Return the first step."""
        ...

    def answered(self, reply: object, at: Moment) -> Step:
        """Return the step after a reply of the API server; a server that was unavailable is no reply."""
        ...

    def resumed(self, reader: Reader) -> Step:
        """Return the step after a pause."""
        ...


# --- Names ---------------------------------------------------------------------------------------------------------


def title_of(pod: Pod) -> str:
    """Return the name of a pod in signals."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


_KEPT_PAUSE: Final = 30.0
"""How long to keep a bind request without another check, if its node and queue exist but the store lacks one."""


@attrs.define
class KeptRequests:
    """Bind requests, by UID, whose node or queue exists after all, and when to check each again.

    Units: seconds of a monotonic clock.
    """

    _until: Deadlines[str] = attrs.field(factory=Deadlines)

    def __contains__(self, uid: str) -> bool:
        """Return whether a bind request was kept recently."""
        return uid in self._until

    def rests(self, uid: str, now: float) -> bool:
        """Return whether it is too early to check a bind request again."""
        return self._until.get(uid, 0.0) > now

    def note(self, uid: str, now: float) -> bool:
        """Pause the checks of a bind request; return whether it was logged already that it is kept."""
        is_known = uid in self._until
        self._until.forget(now - _KEPT_PAUSE)
        self._until[uid] = now + _KEPT_PAUSE
        return is_known


@attrs.define
class RemovalOperation:
    """The deletion of a bind request that failed, or whose node or queue is gone."""

    name: ClassVar[str] = "removal"
    expired: ExpiredRequest
    settings: SchedulerSettings
    attempts: int = 0
    _stage: Literal["confirm", "delete"] = "confirm"

    @property
    def request(self) -> BindRequest:
        """The bind request."""
        return self.expired.request

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The bind request."""
        return BindRequest, key_of(self.request)

    @property
    def is_open(self) -> bool:
        """False: a deletion may safely be repeated."""
        return False

    def begin(self) -> Step:
        """Delete the request if it failed, else read the node or queue that the store lacks."""
        lost = self.expired.lost
        # The store may lag behind while a bind is in flight: a cache miss alone must not delete anything.
        return self._delete() if self._stage == "delete" or lost is None else Ask(plans.Get(ref=lost, fresh=True))

    def answered(self, reply: object, at: Moment) -> Step:
        """Return the step after a reply."""
        del at
        refusal = reply if isinstance(reply, Refusal) else None
        if refusal is not None and refusal.reason is Reason.UNKNOWN:
            return Pause()
        is_gone = refusal is not None and refusal.reason is Reason.NOT_FOUND
        if self._stage == "delete":
            if refusal is None or is_gone or refusal.reason is Reason.CONFLICT:  # another has its name
                return End(signal=RequestDeleted(name=self.request.metadata.name))
            return self._keep(refusal.why)
        if is_gone or (isinstance(reply, Node) and not is_wanted(reply, self.settings.intake)):
            return self._delete()
        if refusal is not None:
            return self._keep(refusal.why)
        return self._keep(f"its {'node' if isinstance(reply, Node) else 'queue'} is there")

    def _keep(self, why: str) -> Step:
        return End(signal=RequestKept(name=self.request.metadata.name, why=why), kept=self.request.metadata.uid)

    def resumed(self, reader: Reader) -> Step:
        """Repeat the present stage."""
        del reader
        return self.begin()

    def _delete(self) -> Step:
        self._stage = "delete"
        return Ask(plans.Delete(ref=Ref.to(self.request), uid=self.request.metadata.uid))


_STALE: Final = 5.0
"""After this time an unfinished eviction is given up and decided anew: its aggressor may be gone.

Units: seconds.
"""


@attrs.define
class EvictionOperation:
    """An eviction in flight.

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
        """Whether the outcome of the eviction is unknown and has to be read."""
        return self._stage == "look"

    def is_stale(self, now: float) -> bool:
        """Return whether the eviction is too old at ``now`` and must be decided anew."""
        return now > self.since + _STALE

    def begin(self) -> Step:
        """Send the eviction."""
        return Ask(self.request)

    def answered(self, reply: object, at: Moment) -> Step:
        """Return the step after a reply."""
        refusal = reply if isinstance(reply, Refusal) else None
        if self._stage == "look":
            return self._looked(reply, at)
        if refusal is None:
            return self._evicted(at)
        if refusal.reason is Reason.UNKNOWN:
            self._stage = "look"
            return Pause()
        if refusal.reason is Reason.NOT_FOUND or isinstance(refusal, NamespaceEnding):
            return End(signal=VictimGone(pod=title_of(self.pod), cause=self.cause))
        refused = EvictionRefused(pod=title_of(self.pod), why=refusal.message, cause=self.cause)
        shielded = self.pod.metadata.uid if isinstance(refusal, BudgetExhausted) else ""
        return End(signal=refused, shielded=shielded)

    def resumed(self, reader: Reader) -> Step:
        """Read again, or send again; the API server knows whether the pod exists, so the store is not needed."""
        del reader
        return self._look() if self._stage == "look" else Ask(self.request)

    def _look(self) -> Step:
        return Ask(plans.Get(ref=Ref.to(self.pod), fresh=True))

    def _looked(self, found: object, at: Moment) -> Step:
        if isinstance(found, Refusal) and found.reason is not Reason.NOT_FOUND:
            return Pause()
        stays = isinstance(found, Pod) and found.metadata.uid == self.pod.metadata.uid
        # Gone, or leaving because another process deleted it: its place becomes free either way.
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
            pod=title_of(self.pod), cause=self.cause, seconds=at.now - self.since, group=group, gpus=self.gpus
        )
        return End(signal=evicted, then=() if event is None else (event,), stands=True)


_NO_BOUND: Final = Shares(cpu=UNLIMITED, memory=UNLIMITED, gpu=UNLIMITED)


@attrs.define
class EvictionsInFlight:
    """Evictions in flight, by pod: the cycle that decided each, and the queue that loses the pod."""

    _known: dict[Key, tuple[int, str]] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        """Return whether any eviction is in flight."""
        return bool(self._known)

    def begin(self, pod: Key, queue: str, cycle: int) -> None:
        """Note an eviction that was sent."""
        self._known[pod] = cycle, queue

    def end(self, pod: Key) -> None:
        """Forget an eviction whose outcome is known."""
        self._known.pop(pod, None)

    def clear(self) -> None:
        """Forget all evictions."""
        self._known.clear()

    def objection(self, snapshot: Snapshot, decisions: Iterable[Decision], cycle: int) -> str:
        """Return why decisions of a cycle have to wait; "" if they depend on no eviction of an earlier cycle.

        Cost: nothing while all evictions are answered, else the paths from the queues of bound pods to the root.
        """
        losing = {queue for since, queue in self._known.values() if since < cycle}
        if not losing:
            return ""
        rows = {queue.name: row for row, queue in enumerate(snapshot.queues)}
        above = {each for name in losing if name in rows for each in path_to(snapshot.queues, rows[name])}
        for decision in decisions:
            group = int(snapshot.pod_group[decision.pod]) if isinstance(decision, Bind) else -1
            if group < 0:
                continue
            facts = snapshot.groups[group]
            for row in reversed(path_to(snapshot.queues, facts.queue_row)):
                queue = snapshot.queues[row]
                is_bounded = queue.limit != _NO_BOUND or (not facts.preemptible and queue.quota != _NO_BOUND)
                if row in above and is_bounded:
                    pod = snapshot.pods[decision.pod].key
                    return f"pod {pod}: queue {queue.name} is to lose another, which is not answered yet"
        return ""
