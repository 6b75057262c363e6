"""The committer: from decisions to writes, and what becomes of the writes. A machine without I/O.

`Committer.step` takes one event and returns effects; the shell (`kai.scheduler.publishing`) carries them out and
nothing else, so a simulation runs this very code. A statement is looked at once more against the newest store
(`kai.scheduler.verifying`), then *assumed*: the store shows its outcome at once, so that the next cycle does not decide
it again. An assumption outlives its write until the watch, a reply or a read decides.

Holds: what is written belongs to the present term; after `TermEnded` nothing is. An answer that was lost is neither a
success nor a failure: the object is read by quorum, and the same order, or the same UID's eviction, is written again if
it is not there.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from kai.api import plans
from kai.api.bindrequest import BindRequest
from kai.api.core import PodDisruptionBudget
from kai.api.kinds import ApiObject
from kai.api.node import Node
from kai.api.plans import Reason, Ref, Refusal
from kai.api.pod import Pod
from kai.cluster.port import BudgetExhausted, Key, NotLeading, Request, Term
from kai.framework.decisions import Bind, Decision, Evict, Nominate
from kai.intake.binding import has_failed
from kai.intake.nodes import is_wanted
from kai.scheduler import orders
from kai.scheduler.budgets import covering
from kai.scheduler.cooling import Cooling
from kai.scheduler.forms import BindForms
from kai.scheduler.settings import EvictBy, SchedulerSettings
from kai.scheduler.verifying import Reader, objection, pod_of
from kai.state.snapshot import Snapshot

_ATTEMPTS: Final = 8
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
_BUDGET_PAUSE: Final = 60.0
_PROMISES_KEPT: Final = 600


# --- Events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class TermBegan:
    """We lead. What an earlier life assumed is not known here."""

    term: Term


@attrs.frozen
class TermEnded:
    """We lead no more."""


@attrs.frozen(kw_only=True)
class Decided:
    """A statement became final in a cycle that began in ``term``."""

    term: Term
    cycle: int
    snapshot: Snapshot
    decisions: tuple[Decision, ...]
    trace: str = ""


@attrs.frozen
class Expired:
    """Bind requests that no snapshot counts any more."""

    requests: tuple[BindRequest, ...]


@attrs.frozen
class Answered:
    """The reply to the request that was sent under ``ticket``."""

    ticket: int
    reply: Any


@attrs.frozen
class Tick:
    """Time has passed."""


Event: TypeAlias = TermBegan | TermEnded | Decided | Expired | Answered | Tick


# --- Effects -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Send:
    """Perform a request in the present term and answer it; without a ticket nobody waits for the answer."""

    request: Request
    ticket: int = 0


@attrs.frozen
class Carry:
    """Have the binder of this process carry out an order that is not written, and answer it with `Carried`.

    Where no binder is at work, the order is written under the same ticket instead.
    """

    request: BindRequest
    ticket: int


@attrs.frozen
class Carried:
    """The answer to `Carry`: the pod is bound, unless `failure` says why it is not. The pod was told."""

    failure: str = ""


@attrs.frozen
class Assume:
    """Let the store show an object."""

    obj: ApiObject
    until: Callable[[Any], bool]


@attrs.frozen
class Adorn:
    """Let the store show annotations that need not be written."""

    cls: type[ApiObject]
    key: Key
    annotations: Mapping[str, str]


@attrs.frozen
class Forget:
    """Let the store show what is really there."""

    cls: type[ApiObject]
    key: Key


@attrs.frozen
class WakeAt:
    """Send a `Tick` then."""

    time: float


@attrs.frozen
class Noted:
    """Something worth a line in the log and a count in the metrics."""

    what: str
    facts: Mapping[str, object]


Effect: TypeAlias = Send | Carry | Assume | Forget | Adorn | WakeAt | Noted


# --- Work under way ------------------------------------------------------------------------------------------------


@attrs.define
class _Bind:
    """A bind request that is being written. ``stage``: create, look (read what is there), clear (delete that)."""

    pod: Pod
    request: BindRequest
    write: plans.Create | None
    """How the request is written; None for one that is to be carried out without being written."""
    since: float
    stage: str = "create"
    attempts: int = 0


@attrs.define
class _Eviction:
    """A pod that is being evicted. ``stage``: send, look."""

    pod: Pod
    request: Request
    event: plans.Emit | None
    since: float
    cause: str
    stage: str = "send"
    attempts: int = 0


@attrs.define
class _Removal:
    """A bind request that is being deleted. ``stage``: confirm that its node is gone, delete."""

    request: BindRequest
    stage: str
    attempts: int = 0


_Work: TypeAlias = _Bind | _Eviction | _Removal


@attrs.define
class Committer:
    """Writes that are to be done, and those under way."""

    settings: SchedulerSettings
    reader: Reader
    fresh_name: Callable[[], str]
    """Returns a name that no device ever had."""
    now: Callable[[], float]
    """Returns the wall clock, for what people read."""
    forms: BindForms = attrs.field(default=attrs.Factory(lambda self: BindForms(self.settings), takes_self=True))
    cooling: Cooling = attrs.field(factory=Cooling)
    _term: Term | None = None
    _tickets: int = 0
    _works: dict[int, _Work] = attrs.field(factory=dict)
    _waiting: list[tuple[float, int, _Work]] = attrs.field(factory=list)
    _busy: set[tuple[type[ApiObject], Key]] = attrs.field(factory=set)
    """Objects that are being written."""
    _devices: dict[str, str] = attrs.field(factory=dict)
    """Names of devices that were opened in this cycle."""
    _cycle: int = -1
    _promised: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    """Which node each pod was told that it was promised, and in which cycle last."""
    _blocked: dict[str, float] = attrs.field(factory=dict)
    """Pods, by UID, that a disruption budget protects: until when not to ask again."""

    def step(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Take an event at a time, and return what to do.

        Units: `now` in seconds of a clock that does not go back.
        """
        effects: list[Effect] = []
        match event:
            case TermBegan(term):
                effects += self._drop()
                self._term = term
            case TermEnded():
                effects += self._drop()
                self._term = None
            case Decided() if self._term is not None and event.term == self._term:
                effects += self._decided(event, now)
            case Expired(requests) if self._term is not None:
                effects += self._expired(requests, now)
            case Answered(ticket, reply):
                work = self._works.pop(ticket, None)
                if work is not None and self._term is not None:
                    effects += self._answered(work, reply, now)
            case _:
                pass
        effects += self._resume(now)
        if self._waiting:
            effects.append(WakeAt(self._waiting[0][0]))
        return tuple(effects)

    @property
    def under_way(self) -> int:
        """How many writes have not ended."""
        return len(self._works) + len(self._waiting)

    def _drop(self) -> list[Effect]:
        effects: list[Effect] = [Forget(cls, key) for cls, key in sorted(self._busy, key=lambda each: each[1])]
        self._works.clear()
        self._waiting.clear()
        self._busy.clear()
        self._devices.clear()
        return effects

    # --- Decisions -----------------------------------------------------------------------------------------------

    def _decided(self, event: Decided, now: float) -> list[Effect]:
        if event.cycle != self._cycle:
            self._cycle = event.cycle
            self._devices.clear()
            kept = self._promised.items()
            self._promised = {uid: told for uid, told in kept if told[1] > event.cycle - _PROMISES_KEPT}
        why = self._busy_with(event) or objection(self.reader, self.settings, event.snapshot, event.decisions)
        if why:
            return [Noted("statement rejected", {"why": why, "decisions": len(event.decisions)})]
        stamp = orders.Stamp(epoch=event.term.epoch if self.settings.leader_elect else 0, trace=event.trace)
        effects: list[Effect] = []
        victims = Counter(
            int(event.snapshot.pod_group[each.pod]) for each in event.decisions if isinstance(each, Evict)
        )
        for decision in event.decisions:
            pod = pod_of(self.reader, event.snapshot, decision.pod)
            if pod is None:
                continue
            match decision:
                case Bind():
                    effects += self._bind(decision, pod, event.snapshot, stamp, now)
                case Evict():
                    effects += self._evict(decision, pod, event.snapshot, victims, stamp, now)
                case Nominate():
                    effects += self._promise(pod, event.snapshot.nodes[decision.node].name)
        return effects

    def _busy_with(self, event: Decided) -> str:
        for decision in event.decisions:
            facts = event.snapshot.pods[decision.pod]
            key = (facts.namespace, facts.name)
            if (BindRequest, key) in self._busy or (Pod, key) in self._busy:
                return f"pod {facts.key}: is being written"
            if isinstance(decision, Evict) and self._blocked.get(facts.uid, 0.0) > self.now():
                return f"pod {facts.key}: a disruption budget protected it a moment ago"
        return ""

    def _bind(self, decision: Bind, pod: Pod, snapshot: Snapshot, stamp: orders.Stamp, now: float) -> list[Effect]:
        devices = tuple(self._device(name) for name in decision.devices)
        node = snapshot.nodes[decision.node].name
        request = orders.bind_request(decision, pod, node, devices, self.settings, stamp)
        self._promised.pop(pod.metadata.uid, None)
        self._busy.add((BindRequest, _key(request)))
        is_direct = self.settings.direct_binds and orders.takes_one_write(request, pod)
        write = None if is_direct else self.forms.create(decision, pod, node, devices, stamp)
        work = _Bind(pod, request, write, now)
        order = self._carry(work) if is_direct else self._create(work)
        effects: list[Effect] = [Assume(request, _is_there(request)), order]
        patch = orders.pool_patch(pod, self.settings)
        return effects if patch is None else [*effects, Send(patch)]

    def _device(self, name: str) -> str:
        """Return the final name of a device; one that is opened in this cycle has the same for all who share it."""
        if not name.startswith("+"):
            return name
        if name not in self._devices:
            self._devices[name] = self.fresh_name()
        return self._devices[name]

    def _evict(
        self,
        decision: Evict,
        pod: Pod,
        snapshot: Snapshot,
        victims: Counter[int],
        stamp: orders.Stamp,
        now: float,
    ) -> list[Effect]:
        if pod.metadata.deletion_timestamp is not None:
            return []
        budgets = self.reader.all(PodDisruptionBudget) if self.settings.evict_by is EvictBy.BUDGET else ()
        group = int(snapshot.pod_group[decision.pod])
        work = _Eviction(
            pod=pod,
            request=orders.eviction(pod, self.settings, stamp, budgeted=bool(covering(pod, budgets))),
            event=orders.eviction_event(decision, snapshot, group, victims[group]) if group >= 0 else None,
            since=now,
            cause=decision.cause.value,
        )
        self._busy.add((Pod, _key(pod)))
        leaving = attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, deletion_timestamp=self.now()))
        effects: list[Effect] = [Assume(leaving, _is_leaving(pod))]
        if self.settings.mark_victims:
            effects.append(Send(orders.victim_condition(pod, self.now())))
        return [*effects, self._send(work.request, work)]

    def _promise(self, pod: Pod, node: str) -> list[Effect]:
        told = self._promised.get(pod.metadata.uid)
        self._promised[pod.metadata.uid] = (node, self._cycle)
        return [] if told is not None and told[0] == node else [Send(orders.pipelined_event(pod, node))]

    def _expired(self, requests: Iterable[BindRequest], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for request in requests:
            target = (BindRequest, _key(request))
            if target in self._busy or self.reader.is_assumed(*target) or not request.metadata.uid:
                continue
            self._busy.add(target)
            if has_failed(request):
                owners = tuple(owner.uid for owner in request.metadata.owner_references)
                self.cooling.failed(owners, now)
                effects.append(self._delete(_Removal(request, "delete")))
            else:
                # The store may only lag, and a bind may be under way: nothing is deleted because a cache lacks it.
                node = Ref(Node, request.spec.selected_node)
                effects.append(self._send(plans.Get(ref=node, fresh=True), _Removal(request, "confirm")))
        return effects

    # --- Answers -------------------------------------------------------------------------------------------------

    def _answered(self, work: _Work, reply: object, now: float) -> list[Effect]:
        if isinstance(reply, NotLeading):
            return self._end(work, Noted("write dropped: the term is over", {}))
        if isinstance(reply, Refusal) and reply.reason is Reason.UNAVAILABLE:
            return self._later(work, now, reply.retry_after)
        match work:
            case _Bind():
                return self._bind_answered(work, reply, now)
            case _Eviction():
                return self._eviction_answered(work, reply, now)
            case _Removal():
                return self._removal_answered(work, reply, now)

    def _bind_answered(self, work: _Bind, reply: object, now: float) -> list[Effect]:
        if isinstance(reply, Carried):
            return self._bind_carried(work, reply, now)
        refusal = reply if isinstance(reply, Refusal) else None
        if work.stage == "look":
            return self._bind_looked(work, reply, now)
        if work.stage == "clear":
            if refusal is None or refusal.reason in {Reason.NOT_FOUND, Reason.CONFLICT}:
                return [self._create(work)]
            work.stage = "look"
            return self._later(work, now)
        if refusal is None:
            return self._bound(work, now)
        if refusal.reason is Reason.ALREADY_EXISTS:
            return self._look(work)
        if refusal.reason is Reason.UNKNOWN:
            work.stage = "look"
            return self._later(work, now)
        node = work.request.spec.selected_node
        self.cooling.failed((work.pod.metadata.uid,), now)
        said = orders.failed_binding(work.pod, node, refusal.message or refusal.reason.value, self.now())
        noted = Noted("bind refused", {"pod": _title(work.pod), "why": refusal.message})
        return [*self._end(work, noted), *(Send(request) for request in said)]

    def _bind_carried(self, work: _Bind, reply: Carried, now: float) -> list[Effect]:
        if not reply.failure:
            return self._bound(work, now)
        self.cooling.failed((work.pod.metadata.uid,), now)
        return self._end(work, Noted("bind refused", {"pod": _title(work.pod), "why": reply.failure}))

    def _bind_looked(self, work: _Bind, reply: object, now: float) -> list[Effect]:
        if isinstance(reply, BindRequest):
            if orders.is_same_order(reply, work.request) and not has_failed(reply):
                return self._bound(work, now)
            owners = {owner.uid for owner in reply.metadata.owner_references}
            if has_failed(reply) or work.pod.metadata.uid not in owners:
                # Of a pod of the past, or of an attempt that is over: it only stands in the way.
                work.stage = "clear"
                return [self._send(plans.Delete(ref=_ref(reply), uid=reply.metadata.uid), work)]
            return self._end(work, Noted("bind dropped: another order stands", {"pod": _title(work.pod)}))
        if isinstance(reply, Refusal) and reply.reason is Reason.NOT_FOUND:
            work.stage = "create"
            return self._later(work, now)
        return self._later(work, now)

    def _bound(self, work: _Bind, now: float) -> list[Effect]:
        created = work.pod.metadata.creation_timestamp
        facts = {
            "pod": _title(work.pod),
            "node": work.request.spec.selected_node,
            "seconds": now - work.since,
            "waited": 0.0 if created is None else max(0.0, self.now() - created),
        }
        effects = self._end(work, Noted("bind ordered", facts))
        if self.settings.announce_binds:
            effects.append(Send(orders.scheduled_event(work.pod, work.request.spec.selected_node, self.settings)))
        return effects

    def _eviction_answered(self, work: _Eviction, reply: object, now: float) -> list[Effect]:
        refusal = reply if isinstance(reply, Refusal) else None
        if work.stage == "look":
            if refusal is not None and refusal.reason is not Reason.NOT_FOUND:
                return self._later(work, now)
            gone = refusal is not None or not isinstance(reply, Pod) or reply.metadata.uid != work.pod.metadata.uid
            if gone or (isinstance(reply, Pod) and reply.metadata.deletion_timestamp is not None):
                return self._evicted(work, now)
            work.stage = "send"
            return [self._send(work.request, work)]
        if refusal is None:
            return self._evicted(work, now)
        if refusal.reason is Reason.UNKNOWN:
            work.stage = "look"
            return self._later(work, now)
        if isinstance(refusal, BudgetExhausted):
            self._blocked = {uid: until for uid, until in self._blocked.items() if until > self.now()}
            self._blocked[work.pod.metadata.uid] = self.now() + _BUDGET_PAUSE
        if refusal.reason is Reason.NOT_FOUND:
            return self._end(work, Noted("victim was gone", {"pod": _title(work.pod)}))
        return self._end(
            work, Noted("eviction refused", {"pod": _title(work.pod), "why": refusal.message, "cause": work.cause})
        )

    def _evicted(self, work: _Eviction, now: float) -> list[Effect]:
        # The reply holds no pod, so the pod stays assumed to be leaving until the watch shows that it is.
        self._busy.discard((Pod, _key(work.pod)))
        group = (work.event.ref.name, work.event.ref.namespace, work.event.uid) if work.event else None
        facts = {"pod": _title(work.pod), "cause": work.cause, "seconds": now - work.since, "group": group}
        effects: list[Effect] = [Noted("evicted", facts)]
        return effects if work.event is None else [*effects, Send(work.event)]

    def _removal_answered(self, work: _Removal, reply: object, now: float) -> list[Effect]:
        refusal = reply if isinstance(reply, Refusal) else None
        if refusal is not None and refusal.reason is Reason.UNKNOWN:
            return self._later(work, now)
        if work.stage == "confirm":
            is_gone = refusal is not None and refusal.reason is Reason.NOT_FOUND
            if is_gone or (isinstance(reply, Node) and not is_wanted(reply, self.settings.intake)):
                return [self._delete(work)]
            return self._end(work, Noted("bind request kept: its node is there", {"name": work.request.metadata.name}))
        return self._end(work, Noted("bind request deleted", {"name": work.request.metadata.name}))

    # --- Sending, again and for the last time --------------------------------------------------------------------

    def _send(self, request: Request, work: _Work) -> Send:
        self._tickets += 1
        self._works[self._tickets] = work
        return Send(request, self._tickets)

    def _carry(self, work: _Bind) -> Carry:
        self._tickets += 1
        self._works[self._tickets] = work
        return Carry(work.request, self._tickets)

    def _create(self, work: _Bind) -> Send:
        work.stage = "create"
        return self._send(work.write or orders.create_bind_request(work.request), work)

    def _look(self, work: _Bind) -> list[Effect]:
        work.stage = "look"
        return [self._send(plans.Get(ref=_ref(work.request), fresh=True), work)]

    def _delete(self, work: _Removal) -> Send:
        work.stage = "delete"
        return self._send(plans.Delete(ref=_ref(work.request), uid=work.request.metadata.uid), work)

    def _later(self, work: _Work, now: float, after: float | None = None) -> list[Effect]:
        work.attempts += 1
        if work.attempts > _ATTEMPTS:
            return self._end(work, Noted("write given up", {"what": type(work).__name__.strip("_").lower()}))
        pause = max(after or 0.0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (work.attempts - 1)))
        self._tickets += 1
        heapq.heappush(self._waiting, (now + pause, self._tickets, work))
        return []

    def _resume(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and self._waiting[0][0] <= now:
            _, _, work = heapq.heappop(self._waiting)
            match work:
                case _Bind(stage="look"):
                    effects += self._look(work)
                case _Bind():
                    effects += self._create_if_wanted(work)
                case _Eviction(stage="look"):
                    effects.append(self._send(plans.Get(ref=orders.pod_ref(work.pod), fresh=True), work))
                case _Eviction():
                    effects.append(self._send(work.request, work))
                case _Removal(stage="confirm"):
                    node = Ref(Node, work.request.spec.selected_node)
                    effects.append(self._send(plans.Get(ref=node, fresh=True), work))
                case _Removal():
                    effects.append(self._delete(work))
        return effects

    def _create_if_wanted(self, work: _Bind) -> list[Effect]:
        """Write the order once more, unless the pod has gone or found a node meanwhile."""
        pod = self.reader.get(Pod, work.pod.metadata.name, work.pod.metadata.namespace)
        if pod is None or pod.metadata.uid != work.pod.metadata.uid or pod.metadata.deletion_timestamp is not None:
            return self._end(work, Noted("bind dropped: the pod is gone", {"pod": _title(work.pod)}))
        if pod.spec.node_name:
            return self._end(work, Noted("bind dropped: the pod has a node", {"pod": _title(pod)}))
        return [self._create(work)]

    def _end(self, work: _Work, noted: Noted) -> list[Effect]:
        target: tuple[type[ApiObject], Key]
        target = (Pod, _key(work.pod)) if isinstance(work, _Eviction) else (BindRequest, _key(work.request))
        self._busy.discard(target)
        return [noted] if isinstance(work, _Removal) else [Forget(*target), noted]


def _is_there(request: BindRequest) -> Callable[[BindRequest | None], bool]:
    return lambda found: found is not None and orders.is_same_order(found, request) and not has_failed(found)


def _is_leaving(pod: Pod) -> Callable[[Pod | None], bool]:
    uid = pod.metadata.uid
    return lambda found: found is None or found.metadata.uid != uid or found.metadata.deletion_timestamp is not None


def _key(obj: Pod | BindRequest) -> Key:
    return obj.metadata.namespace, obj.metadata.name


def _ref(request: BindRequest) -> Ref[BindRequest]:
    return Ref(BindRequest, request.metadata.name, request.metadata.namespace)


def _title(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
