"""The committer: turns decisions into writes, and follows each write to its end. A state machine without I/O.

`Committer.step` takes one event and returns effects (`kai.roles.scheduler.effects`). The shell (`outbox`) only carries
them out, so a simulation runs this very code. A statement is first verified against the newest store (`binds`), and
then *assumed*: the store shows its outcome at once, so that the next cycle does not decide it again. An assumption
outlives its write, until the watch, a reply or a read confirms or refutes it. Each write is an operation that chooses
its own next step (`operations`). What the next cycles must know of the outcome goes to `kai.roles.scheduler.feedback`.

Holds: all writes belong to the present term; after `TermEnded` nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import attrs

from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.deadlines import Deadlines, doubling_pause
from kai.cluster.port import Term
from kai.cluster.requests import NotLeading, Request
from kai.deciding.explain.recorded import least_pods
from kai.framework.decisions import Bind, Evict, Nominate
from kai.intake.bind_requests import ExpiredRequest, has_failed
from kai.roles.scheduler.committing import orders
from kai.roles.scheduler.committing.binds import (
    BindOperation,
    BindTemplates,
    LatestBudgets,
    is_being_bound,
    pod_of,
    verify,
)
from kai.roles.scheduler.committing.messages import BindEvents, GangEvents, MessageRetries, Promises
from kai.roles.scheduler.committing.operations import (
    Ask,
    BindEvent,
    End,
    EvictionOperation,
    EvictionsInFlight,
    Gang,
    HandOver,
    KeptRequests,
    Moment,
    Operation,
    RemovalOperation,
    Step,
)
from kai.roles.scheduler.committing.orders import Stamp
from kai.roles.scheduler.effects import (
    Answered,
    Assume,
    BindOrdered,
    Carry,
    Decided,
    Effect,
    Event,
    Expired,
    Forget,
    Looked,
    Reader,
    Send,
    StatementRejected,
    TermBegan,
    TermEnded,
    WakeAt,
    WriteDropped,
    WriteGivenUp,
)
from kai.roles.scheduler.feedback import Feedback
from kai.roles.scheduler.feedback.refusals import EXHAUSTED, REFUSED
from kai.roles.scheduler.settings import BindEventsOf, EvictBy, SchedulerSettings

if TYPE_CHECKING:
    from kai.facts.model.placement import NoRoom
    from kai.facts.state.snapshot import Snapshot

_ATTEMPTS: Final = 8
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
_SMALLEST_GANG: Final = 2
_ELSEWHERE_AT_ONCE: Final = 2
"""How often a pod may try another node without a back-off, after a node lacked room for it."""


@attrs.define
class Committer:
    """The writes in flight, and the events that advance them."""

    settings: SchedulerSettings
    reader: Reader
    fresh_name: Callable[[], str]
    """Returns a device name that was never used before."""
    now: Callable[[], float]
    """Returns the wall clock time for timestamps that users read."""
    feedback: Feedback = attrs.field(init=False)
    """What the next cycles must know."""
    _bind_events: BindEvents = attrs.field(factory=BindEvents)
    _gang_events: GangEvents = attrs.field(init=False)
    _messages: MessageRetries = attrs.field(init=False)
    _templates: BindTemplates = attrs.field(init=False)
    _term: Term | None = None
    _tickets: int = 0
    _operations: dict[int, Operation] = attrs.field(factory=dict)
    """Writes that have not ended, by the ticket of their request in flight or of their pause."""
    _pauses: Deadlines[int] = attrs.field(factory=Deadlines)
    _busy: set[tuple[type[ApiObject], Key]] = attrs.field(factory=set)
    """Objects with a write in flight."""
    _evictions: EvictionsInFlight = attrs.field(factory=EvictionsInFlight)
    _devices: dict[str, str] = attrs.field(factory=dict)
    """Final names of the devices that were opened in this cycle."""
    _cycle: int = -1
    _budgets: LatestBudgets = attrs.field(factory=LatestBudgets)
    _promises: Promises = attrs.field(factory=Promises)
    _kept: KeptRequests = attrs.field(factory=KeptRequests)

    def __attrs_post_init__(self) -> None:
        """Begin with empty templates, feedback and retries."""
        self.feedback = Feedback(self.settings)
        self._messages = MessageRetries(self.reader)
        self._templates = BindTemplates(self.settings)
        self._gang_events = GangEvents(self.settings.pool)

    def step(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Handle an event at the time ``now``, and return the effects that follow.

        Units: ``now`` in seconds of a monotonic clock.
        """
        effects: list[Effect] = []
        match event:
            case TermBegan(term):
                effects += self._drop()
                self._term = term
                self._messages.recall(now)
            case TermEnded():
                effects += self._drop()
                self._term = None
            # Statements of an ended term may still arrive from the cycle's thread; they match no case.
            case Decided() if self._term is not None and event.term == self._term:
                effects += self._decided(event, now)
            case Expired(requests) if self._term is not None:
                effects += self._expired(requests, now)
            case Looked() if self._term is not None:
                self.feedback.recent_binds.begin_cycle()
                effects += self._report(self._bind_events.take(self.reader), now)
            case Answered(ticket, reply) if not self._messages.answered(ticket, reply, now):
                operation = self._operations.pop(ticket, None)
                if operation is not None and self._term is not None:
                    effects += self._answered(operation, reply, now)
            case _:
                pass
        for ticket in self._pauses.take(now):
            operation = self._operations.pop(ticket, None)
            if operation is not None:
                effects += self._follow(operation, operation.resumed(self.reader), now)
        if self._term is not None:
            effects += self._messages.due(now)
            effects += map(Send, self._gang_events.take(now))
        if (due := self._next_due()) is not None:
            effects.append(WakeAt(due))
        return tuple(effects)

    def _next_due(self) -> float | None:
        messages = () if self._term is None else (self._messages.next_due(), self._gang_events.next_due())
        return min((due for due in (self._pauses.first(), *messages) if due is not None), default=None)

    @property
    def is_evicting(self) -> bool:
        """Whether an eviction is in flight whose outcome is unknown."""
        return bool(self._evictions)

    @property
    def under_way(self) -> int:
        """Count of writes that have not ended."""
        return len(self._operations)

    def hurry(self, now: float) -> None:
        """End all pauses with the next event, because the API server answers again."""
        for ticket in tuple(self._pauses):
            self._pauses.hasten(ticket, now)
        self._messages.hurry(now)

    def _send_message(self, request: Request, now: float) -> Send:
        """Return the effect that sends a request; events and patches for users are retried if they are not written."""
        if not isinstance(request, Emit | Patch):
            return Send(request)
        self._tickets += 1
        return self._messages.send(request, self._tickets, now)

    def _drop(self) -> list[Effect]:
        # Sorted, because a set of classes iterates differently in each process, and a simulation has to repeat.
        effects: list[Effect] = [Forget(cls, key) for cls, key in sorted(self._busy, key=lambda each: each[1])]
        self._operations.clear()
        self._pauses.clear()
        self._busy.clear()
        self._evictions.clear()
        self._devices.clear()
        self._bind_events.forget()
        self._gang_events.forget()
        self.feedback.end_term()
        return effects

    # --- Decisions -----------------------------------------------------------------------------------------------

    def _decided(self, event: Decided, now: float) -> list[Effect]:
        if event.cycle != self._cycle:
            self._cycle = event.cycle
            self._devices.clear()
            self._promises.begin_cycle(event.cycle)
        pods = (
            # The cheap looks first, which need no object. `verify` reads each pod and its node in the store, and
            # returns the pods.
            self._busy_with(event, now)
            or self._evictions.objection(event.snapshot, event.decisions, event.cycle)
            or self._being_bound(event, now)
            or verify(self.reader, self.settings, event.snapshot, event.decisions, self._budgets)
        )
        if isinstance(pods, str):
            # The next cycle decides on the same facts: without this it would choose the same victims and be rejected
            # again.
            self._note_spared(event, now)
            return [StatementRejected(why=pods, decisions=len(event.decisions))]
        epoch = event.term.epoch if self.settings.leader_elect else 0
        stamp = Stamp(epoch=epoch, lease=self.settings.lease_name, trace=event.trace)
        victims = Counter(
            int(event.snapshot.pod_group[each.pod]) for each in event.decisions if isinstance(each, Evict)
        )
        if victims:
            self.feedback.moved_pods.note(event.snapshot, event.decisions, pods, self._device, now)
        effects: list[Effect] = []
        for decision, pod in zip(event.decisions, pods, strict=True):
            match decision:
                case Bind():
                    effects += self._bind(decision, pod, event.snapshot, stamp, now)
                case Evict():
                    effects += self._evict(decision, pod, event.snapshot, victims, stamp, now)
                case Nominate():
                    effects += self._promise(pod, event.snapshot.nodes[decision.node].name, now)
        if effects:
            self.feedback.recent_binds.decided()
        return effects

    def abandon(self, event: Decided) -> None:
        """Roll back a statement at which `step` raised: none of it is in flight."""
        for decision in event.decisions:
            facts = event.snapshot.pods[decision.pod]
            self._busy -= {(BindRequest, (facts.namespace, facts.name)), (Pod, (facts.namespace, facts.name))}
            self._evictions.end((facts.namespace, facts.name))
            self.feedback.recent_evictions.forget(facts.uid)
            self.feedback.moved_pods.forget(facts.uid)
        self._operations = {
            ticket: operation for ticket, operation in self._operations.items() if operation.target in self._busy
        }

    def _busy_with(self, event: Decided, now: float) -> str:
        for decision in event.decisions:
            facts = event.snapshot.pods[decision.pod]
            key = (facts.namespace, facts.name)
            if (BindRequest, key) in self._busy or (Pod, key) in self._busy:
                return f"pod {facts.key}: is being written"
            if isinstance(decision, Evict) and self.feedback.protected_pods.holds(facts.uid, now):
                return f"pod {facts.key}: a disruption budget protected it a moment ago"
        return ""

    def _being_bound(self, event: Decided, now: float) -> str:
        """Return why a statement must wait: the bind of a victim is ordered, and neither done nor failed."""
        for decision in event.decisions:
            facts = event.snapshot.pods[decision.pod]
            if isinstance(decision, Evict) and self.feedback.recent_binds.holds(facts.uid, now):
                pod = pod_of(self.reader, event.snapshot, decision.pod)
                if pod is not None and is_being_bound(self.reader, pod):
                    self.feedback.recent_binds.wait_for(facts.uid)
                    return f"pod {facts.key}: may not be evicted while it is being bound"
        return ""

    def _note_spared(self, event: Decided, now: float) -> None:
        """Remember the victims of a rejected statement that disruption budgets protect."""
        if self.settings.evict_by is EvictBy.DELETE:
            return
        rows = [each.pod for each in event.decisions if isinstance(each, Evict)]
        victims = [pod for pod in (pod_of(self.reader, event.snapshot, row) for row in rows) if pod is not None]
        for pod in self._budgets.of(self.reader).obstacle(victims)[1]:
            self.feedback.protected_pods.note(pod.metadata.uid, now, EXHAUSTED)

    def _bind(self, decision: Bind, pod: Pod, snapshot: Snapshot, stamp: Stamp, now: float) -> list[Effect]:
        node = snapshot.nodes[decision.node].name
        stamp = stamp.granting(orders.grant(decision, snapshot))
        devices = tuple([self._device(name) for name in decision.devices])
        request = orders.bind_request(decision, pod, node, devices, self.settings, stamp)
        self._promises.forget(pod.metadata.uid)
        is_direct = self.settings.direct_binds and orders.takes_one_write(request, pod)
        write = None if is_direct else self._templates.create(decision, pod, node, devices, stamp)
        # Assumed before it is sent: the next cycle must not give the same room away.
        effects: list[Effect] = [Assume(request, _is_there(request))]
        gang = self._gang(snapshot, int(snapshot.pod_group[decision.pod]))
        effects += self._begin(BindOperation(pod, request, write, self.settings, now, gang), now)
        patch = orders.pool_patch(pod, self.settings)
        return effects if patch is None else [*effects, Send(patch)]

    def _gang(self, snapshot: Snapshot, group: int) -> Gang | None:
        """Return the gang that has the event of a bind in place of the pod; None if the pod has an event of its own."""
        if self.settings.bind_events is not BindEventsOf.GANG or group < 0:
            return None
        facts = snapshot.groups[group]
        # The group of a pod without an owner may be in memory only, and an event on it would be on nothing.
        if not facts.uid or least_pods(facts) < _SMALLEST_GANG:
            return None
        return Gang(Ref(PodGroup, facts.name, facts.namespace), facts.uid)

    def _report(self, binds: Iterable[BindEvent], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for bound in binds:
            if bound.gang is None:
                effects.append(self._send_message(bound.event, now))
            else:
                self._gang_events.add(bound.gang, bound.node, now)
        return effects

    def _device(self, name: str) -> str:
        """Return the final name of a device; pods that share a device opened in this cycle get the same name."""
        if not name.startswith("+"):
            return name
        # The engine names a new device by its node and the number of its slot there. Another cycle may name another
        # GPU so, and the name in the cluster is therefore one that was never used.
        if name not in self._devices:
            self._devices[name] = self.fresh_name()
        return self._devices[name]

    def _evict(
        self, decision: Evict, pod: Pod, snapshot: Snapshot, victims: Counter[int], stamp: Stamp, now: float
    ) -> list[Effect]:
        # It is leaving already, and its place becomes free all the same.
        if pod.metadata.deletion_timestamp is not None:
            return []
        queue = snapshot.groups[group].queue if (group := int(snapshot.pod_group[decision.pod])) >= 0 else ""
        if self.feedback.counts_the_hour:
            self.feedback.recent_evictions.note(pod.metadata.uid, queue, decision.gpus, now)
        self._evictions.begin(key_of(pod), queue, self._cycle)
        budgeted = self.settings.evict_by is EvictBy.BUDGET and self._budgets.of(self.reader).may_cover(pod)
        said = (
            orders.eviction_event(decision, snapshot, group, victims[group], names_others=self.settings.names_others)
            if group >= 0
            else None
        )
        request = orders.eviction(pod, self.settings, stamp, budgeted=budgeted)
        leaving = attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, deletion_timestamp=self.now()))
        effects: list[Effect] = [Assume(leaving, _is_leaving(pod))]
        if self.settings.mark_victims:
            effects.append(self._send_message(orders.victim_condition(pod, self.now()), now))
        return [
            *effects,
            *self._begin(EvictionOperation(pod, request, said, now, decision.cause.name, decision.gpus), now),
        ]

    def _promise(self, pod: Pod, node: str, now: float) -> list[Effect]:
        is_news = self._promises.note(pod.metadata.uid, node)
        return [self._send_message(orders.pipelined_event(pod, node), now)] if is_news else []

    def _expired(self, found: Iterable[ExpiredRequest], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for expired in found:
            request = expired.request
            target = (BindRequest, key_of(request))
            uid = request.metadata.uid
            if target in self._busy or self.reader.is_assumed(*target) or not uid or self._kept.rests(uid, now):
                continue
            # Counted once: a request whose deletion was refused is kept, and comes here again with the same failure.
            if expired.lost is None and uid not in self._kept:
                for owner in request.metadata.owner_references:
                    why = request.status.reason
                    self._failed(owner.uid, why, orders.lack_of_room(request, owner.uid, why), now)
            effects += self._begin(RemovalOperation(expired, self.settings), now)
        return effects

    def _failed(self, uid: str, why: str, refusal: NoRoom | None, now: float) -> None:
        """Let a pod whose bind failed back off; if its node lacked room, it may first try others at once."""
        if refusal is None or self.feedback.node_refusals.note(refusal, now) > _ELSEWHERE_AT_ONCE:
            self.feedback.bind_backoff.failed(uid, why, now, self.now())

    # --- Operations ----------------------------------------------------------------------------------------------

    def _begin(self, operation: Operation, now: float) -> list[Effect]:
        self._busy.add(operation.target)
        return self._follow(operation, operation.begin(), now)

    def _answered(self, operation: Operation, reply: object, now: float) -> list[Effect]:
        if isinstance(reply, NotLeading):
            return self._follow(operation, End(signal=WriteDropped(what=operation.name)), now)
        # The request had no effect, so the operation is still where it was and need not know.
        if isinstance(reply, Refusal) and reply.reason is Reason.UNAVAILABLE:
            return self._pause(operation, now, reply.retry_after or 0.0)
        return self._follow(operation, operation.answered(reply, Moment(now, self.now())), now)

    def _follow(self, operation: Operation, step: Step, now: float) -> list[Effect]:
        match step:
            case Ask(request):
                return [Send(request, self._ticket(operation))]
            case HandOver(order):
                return [Carry(order, self._ticket(operation))]
            case End():
                return self._end(operation, step, now)
        return self._pause(operation, now)

    def _ticket(self, operation: Operation) -> int:
        self._tickets += 1
        self._operations[self._tickets] = operation
        return self._tickets

    def _pause(self, operation: Operation, now: float, at_least: float = 0.0) -> list[Effect]:
        operation.attempts += 1
        pause = max(at_least, doubling_pause(operation.attempts, _FIRST_PAUSE, _LONGEST_PAUSE))
        is_over = operation.attempts > _ATTEMPTS
        if isinstance(operation, EvictionOperation):
            is_over = is_over or operation.is_stale(now + pause)
        # An operation with an unknown outcome is never given up: it is read until the API server answers.
        if is_over and not operation.is_open:
            return self._end(operation, End(signal=WriteGivenUp(what=operation.name)), now)
        self._pauses[self._ticket(operation)] = now + pause
        return []

    def _end(self, operation: Operation, end: End, now: float) -> list[Effect]:
        self._busy.discard(operation.target)
        if isinstance(operation, EvictionOperation):
            self._evictions.end(operation.target[1])
            if not end.stands:
                self.feedback.recent_evictions.forget(operation.pod.metadata.uid)
                self.feedback.moved_pods.forget(operation.pod.metadata.uid)
        if end.backs_off:
            self._failed(end.backs_off, end.why, end.refusal, now)
        if isinstance(operation, BindOperation) and isinstance(end.signal, BindOrdered):
            self.feedback.recent_binds.note(operation.pod.metadata.uid, now)
        # Ordered and not done: the binder may still refuse, and an event cannot be taken back.
        if end.ordered is not None:
            self._bind_events.await_bind(end.ordered)
        if end.shielded:
            self.feedback.protected_pods.note(end.shielded, now, REFUSED)
        effects: list[Effect] = [] if end.stands else [Forget(*operation.target)]
        if end.kept and self._kept.note(end.kept, now):
            return effects
        effects += [end.signal, *(self._send_message(request, now) for request in end.then)]
        return effects if end.bound is None else [*effects, *self._report((end.bound,), now)]


def _is_there(request: BindRequest) -> Callable[[BindRequest | None], bool]:
    return lambda found: found is not None and orders.is_same_order(found, request) and not has_failed(found)


def _is_leaving(pod: Pod) -> Callable[[Pod | None], bool]:
    uid = pod.metadata.uid
    return lambda found: found is None or found.metadata.uid != uid or found.metadata.deletion_timestamp is not None
