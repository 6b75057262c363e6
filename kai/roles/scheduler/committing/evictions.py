"""Evictions in flight, and the binds that must wait for them.

`EvictionOperation` is the state machine of one eviction: it sends the request, and reads the pod if the answer is lost.

`EvictionsInFlight` delays binds that depend on an unconfirmed eviction. Victims count as gone from their queues at
once, so that no further victims are searched for. A cycle waits for the answers, for a second at most. If one is still
missing then, the next cycle sees room in the queues that lose pods. If it bound pods there and the eviction failed, a
queue would hold more than its limit, or more than its quota of pods that cannot be preempted. So binds in such queues
wait for the answer. Binds in queues without limits do not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal

import attrs

from kai.api import plans
from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Reason, Ref, Refusal
from kai.cluster.requests import BudgetExhausted, NamespaceEnding, Request
from kai.facts.model.groups import UNLIMITED, Shares, path_to
from kai.framework.decisions import Bind, Decision
from kai.roles.scheduler.committing.operations import Ask, End, Moment, Pause, Step, title_of
from kai.roles.scheduler.reporting.signals import Evicted, EvictionRefused, VictimGone, WriteGivenUp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.facts.state.snapshot import Snapshot
    from kai.roles.scheduler.effects import Reader

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
