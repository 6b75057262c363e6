"""A small world for the committer: an API server in memory, a store that lags behind it, and the wire in between."""

from __future__ import annotations

import itertools
from operator import is_
from typing import TYPE_CHECKING, Any

import attrs

from kai.api import plans
from kai.api.codec.structuring import structure_as
from kai.api.kinds import BY_CLASS
from kai.api.kubernetes.meta import PodDisruptionBudget
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.port import Index, Term
from kai.cluster.requests import BudgetExhausted, NotLeading
from kai.cluster.requests import Evict as EvictRequest
from kai.framework.decisions import Bind, Cause, Evict, Nominate
from kai.intake import take_snapshot
from kai.intake.bind_requests import ExpiredRequest, has_failed
from kai.roles.scheduler.committing.committer import Committer
from kai.roles.scheduler.effects import (
    Answered,
    Assume,
    Carried,
    Carry,
    Decided,
    Expired,
    Forget,
    Looked,
    Send,
    Signal,
    TermBegan,
    TermEnded,
    Tick,
    WakeAt,
)
from kai.roles.scheduler.settings import SchedulerSettings
from tests.doubles.api_server import ApiServer
from tests.unit.intake import making

if TYPE_CHECKING:
    from kai.facts.state.snapshot import Snapshot

CLASSES = (Pod, Node, BindRequest, PodDisruptionBudget, PodGroup, Queue)
WALL = 1_700_000_000.0


@attrs.define
class Wire:
    """A request on its way."""

    send: Send
    term: Term | None


class World:
    """The server, what the store shows of it, and the committer between them."""

    def __init__(self, *manifests: dict[str, Any], settings: SchedulerSettings | None = None) -> None:
        self.server = ApiServer(manifests)
        self.settings = settings or SchedulerSettings()
        self.shown: dict[tuple[type, tuple[str, str]], Any] = {}
        self.assumed: dict[tuple[type, tuple[str, str]], tuple[Any, Any]] = {}
        self.listed: dict[type, tuple[Any, ...]] = {}
        self.wires: list[Wire] = []
        self.signals: list[Signal] = []
        self.carried: list[Carry] = []
        self.silence = 0.0
        self.time = 0.0
        self.wake: float | None = None
        self.term: Term | None = None
        self.protected: set[str] = set()
        self.sync()
        self.snapshot = self.take()
        self.start()

    def start(self) -> None:
        """Begin a new life: nothing is known but what the server holds."""
        fresh = (f"gpu-{count}" for count in itertools.count())
        self.wires.clear()
        self.committer = Committer(self.settings, self, lambda: next(fresh), lambda: WALL + self.time)

    # --- Reader --------------------------------------------------------------------------------------------------

    def get(self, cls: type, name: str, namespace: str = "") -> Any:
        key = (cls, (namespace, name))
        return self.assumed[key][0] if key in self.assumed else self.shown.get(key)

    def all(self, cls: type) -> tuple[Any, ...]:
        """Return the same tuple until something changes, as the store does."""
        now = tuple(obj for (found, _), obj in sorted(self.shown.items(), key=str) if found is cls)
        before = self.listed.get(cls, ())
        if len(now) != len(before) or not all(map(is_, now, before)):
            self.listed[cls] = now
        return self.listed.setdefault(cls, now)

    def find(self, index: Index[Any], key: str) -> tuple[Any, ...]:
        return tuple(obj for obj in self.all(index.cls) if key in index.keys(obj))

    def is_assumed(self, cls: type, key: tuple[str, str]) -> bool:
        return (cls, key) in self.assumed

    def is_overlaid(self, cls: type, key: tuple[str, str]) -> bool:
        return False

    def age(self) -> float:
        return self.silence

    # --- Store, for an outbox ------------------------------------------------------------------------------------

    def assume(self, obj: Any, until: Any) -> None:
        self.assumed[type(obj), (obj.metadata.namespace, obj.metadata.name)] = (obj, until)

    def forget(self, cls: type, key: tuple[str, str]) -> None:
        self.assumed.pop((cls, key), None)

    # --- The cluster ---------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Let the store catch up with the server."""
        self.shown = {}
        for (kind, namespace, name), manifest in self.server.objects.items():
            cls = next(cls for cls in CLASSES if BY_CLASS[cls].kind == kind)
            self.shown[cls, (namespace, name)] = structure_as(cls, manifest)
        for target, (_, until) in list(self.assumed.items()):
            if until(self.shown.get(target)):
                del self.assumed[target]

    def take(self) -> Snapshot:
        manifests = making.objects(*self.server.objects.values())
        return take_snapshot(manifests, making.NOW, self.settings.intake)

    def row(self, name: str) -> int:
        return [pod.name for pod in self.snapshot.pods].index(name)

    def bind(self, pod: str, node: str, **more: Any) -> Bind:
        return Bind(pod=self.row(pod), node=self.snapshot.node_rows[node], **more)

    def promise(self, pod: str, node: str) -> Nominate:
        return Nominate(pod=self.row(pod), node=self.snapshot.node_rows[node])

    def evict(self, pod: str, cause: Cause = Cause.RECLAIM, aggressor: int = -1) -> Evict:
        return Evict(pod=self.row(pod), cause=cause, aggressor=aggressor, gpus=1000)

    # --- Events --------------------------------------------------------------------------------------------------

    def step(self, event: Any) -> list[Any]:
        effects = self.committer.step(event, self.time)
        self.wake = None
        for effect in effects:
            match effect:
                case Send():
                    self.wires.append(Wire(effect, self.term))
                case Assume():
                    key = (effect.obj.metadata.namespace, effect.obj.metadata.name)
                    self.assumed[type(effect.obj), key] = (effect.obj, effect.until)
                case Forget():
                    self.assumed.pop((effect.cls, effect.key), None)
                case Carry():
                    self.carried.append(effect)
                case WakeAt():
                    self.wake = effect.time
                case _ if isinstance(effect, Signal):
                    self.signals.append(effect)
        return list(effects)

    def lead(self, epoch: int = 1) -> None:
        self.term = Term(epoch, f"life-{epoch}")
        self.assumed.clear()
        self.step(TermBegan(self.term))

    def lose(self) -> list[Any]:
        self.term = None
        return self.step(TermEnded())

    def decide(self, *decisions: Any, cycle: int = 1, term: Term | None = None) -> list[Any]:
        held = term or self.term
        assert held is not None
        return self.step(Decided(term=held, cycle=cycle, snapshot=self.snapshot, decisions=decisions))

    def expire(self, *names: str, lost: Ref[Node] | Ref[Queue] | None = None) -> list[Any]:
        """Have orders deleted that failed, or whose node, or what else is named, seems to be gone."""
        found = [self.get(BindRequest, name, "default") for name in names]
        gone = [None if has_failed(each) else lost or Ref(Node, each.spec.selected_node) for each in found]
        return self.step(Expired(tuple(map(ExpiredRequest, found, gone))))

    def deliver(self, at: int = 0, fault: str = "") -> list[Any]:
        """Let a request arrive, or not, and its answer come back, or not."""
        wire = self.wires.pop(at)
        if wire.term is None or wire.term != self.term:
            reply: Any = NotLeading()
        elif fault == "unavailable":
            reply = Refusal(reason=Reason.UNAVAILABLE)
        elif fault == "refused":
            reply = Refusal(reason=Reason.REJECTED, message="a webhook said no")
        elif fault == "lost before":
            reply = Refusal(reason=Reason.UNKNOWN)
        else:
            reply = self.perform(wire.send.request)
            if fault == "lost after" and not isinstance(reply, Refusal):
                reply = Refusal(reason=Reason.UNKNOWN)
        return self.step(Answered(wire.send.ticket, reply)) if wire.send.ticket else []

    def answer(self, failure: str = "") -> list[Any]:
        """Let the binder of this process say what became of the oldest order that it carries out."""
        carry = self.carried.pop(0)
        if not failure:
            pod = carry.request.spec.pod_name
            bind = plans.Bind(ref=plans.Ref(Pod, pod, "default"), node=carry.request.spec.selected_node)
            self.server.perform(bind)
        return self.step(Answered(carry.ticket, Carried(failure)))

    def carry_out(self) -> None:
        """Let another process bind what was ordered, and the scheduler look at it."""
        for name, node in self.requests().items():
            self.server.perform(plans.Bind(ref=plans.Ref(Pod, name, "default"), node=node))
        self.look()

    def look(self) -> None:
        """Let the store catch up, and a cycle begin."""
        self.sync()
        self.step(Looked())
        self.settle()

    def perform(self, request: Any) -> Any:
        if isinstance(request, EvictRequest):
            if request.ref.name in self.protected:
                return BudgetExhausted(message="the budget is exhausted")
            return self.server.perform(plans.Delete(ref=request.ref, uid=request.uid))
        return self.server.perform(request)

    def pass_time(self, seconds: float) -> list[Any]:
        self.time += seconds
        return self.step(Tick())

    def settle(self) -> None:
        """Let everything arrive and time pass until nothing is left to do."""
        for _ in range(400):
            if self.wires:
                self.deliver()
            elif self.wake is not None:
                self.pass_time(max(0.0, self.wake - self.time) + 0.001)
            else:
                break
        self.sync()
        assert not self.wires
        assert self.committer.under_way == 0

    # --- What came of it -----------------------------------------------------------------------------------------

    def requests(self) -> dict[str, str]:
        """Return the node of every bind request, by name."""
        found = (obj for (kind, _, _), obj in self.server.objects.items() if kind == "BindRequest")
        return {each["metadata"]["name"]: each["spec"]["selectedNode"] for each in found}

    def said(self) -> list[tuple[str, str]]:
        return [(event.ref.name, event.reason) for event in self.server.events]
