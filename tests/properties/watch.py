"""Cycles under watch: after every verb of every statement the ledger is audited and the laws of a cluster are tried."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import attrs
import numpy as np

from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import Action, CycleReport, Profile, report
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.deciding.engine.statement import Statement
from kai.facts.model.axis import GPU, GPU_UNIT, Bools, Int64s
from kai.facts.model.pod import ACTIVE_USED, GpuKind, Status, within
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind, Decision, Recorder
from tests.doubles.audit import audit

VERBS = ("evict", "place_pods", "promise_all", "roll_back", "discard", "commit")
PROFILE = default_profile()
Law = Callable[["Watch"], None]
Place = tuple[int, tuple[int, ...]]
"""A node, and slots on it."""
Holder = tuple[int, tuple[int, ...]]
"""A pod with the slots that it holds."""


def profile(*actions: str, **parameters: Any) -> Profile:
    """Return the default profile with these actions (all, if none is named), deciding everything the long way."""
    chosen = tuple(action for action in PROFILE.actions if not actions or action.name in actions)
    changed = attrs.evolve(PROFILE.parameters, **{"shortcuts": False, **parameters})
    return attrs.evolve(PROFILE, actions=chosen, parameters=changed)


@attrs.define(eq=False)
class Watch:
    """A session with what it was like when it opened, and when the last statement was committed."""

    session: Session
    sink: Recorder
    laws: tuple[Law, ...] = ()
    judges: tuple[Callable[["Watch", tuple[Decision, ...]], None], ...] = ()
    actions: tuple[Action, ...] = ()
    real: dict[int, Place] = attrs.field(init=False)
    """Where pods really are: where they stood when the session opened, or were bound to since."""
    opening_used: Int64s = attrs.field(init=False)
    opening_fixed: Int64s = attrs.field(init=False)
    opening_models: Int64s = attrs.field(init=False)
    opening_users: Int64s = attrs.field(init=False)
    used: Int64s = attrs.field(init=False)
    """What queues used after the last commit."""

    def __attrs_post_init__(self) -> None:
        self.opening_used = self.session.columns.queue_used.copy()
        self.opening_fixed = self.session.columns.queue_fixed.copy()
        self.opening_models = self.session.columns.queue_models.copy()
        self.opening_users = self.session.columns.user_used.copy()
        self.used = self.opening_used.copy()
        standing = self.session.pods_in(ACTIVE_USED)
        self.real = {int(pod): self.place_of(int(pod)) for pod in standing}

    def note(self, decisions: tuple[Decision, ...]) -> None:
        """Remember where pods are bound."""
        self.real |= {each.pod: self.place_of(each.pod) for each in decisions if isinstance(each, Bind)}

    @classmethod
    def of(cls, snapshot: Snapshot, using: Profile, **options: Any) -> "Watch":
        """Open a session on ``snapshot``."""
        sink = Recorder()
        return cls(Session(snapshot, using, sink, Silent()), sink, actions=using.actions, **options)

    def look(self) -> None:
        """Audit the ledger and try the laws."""
        audit(self.session.ledger)
        for law in self.laws:
            law(self)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look after every verb, and judge the decisions of every committed statement."""
        with mock.patch.multiple(Statement, **{verb: self._watched(getattr(Statement, verb)) for verb in VERBS}):
            yield

    def _watched(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def watched(statement: Statement, *args: Any, **options: Any) -> Any:
            seen = len(self.sink.statements)
            answer = verb(statement, *args, **options)
            for decisions in self.sink.statements[seen:]:
                self.note(decisions)
                for judge in self.judges:
                    judge(self, decisions)
                self.used = self.session.columns.queue_used.copy()
            self.look()
            return answer

        return watched

    def run(self) -> CycleReport:
        """Run all actions under watch."""
        with self.watching():
            self.look()
            for action in self.actions:
                action.run(self.session)
        return report(self.session)

    # ------------------------------------------------------------------ who is really where

    def holders(self, *, now: bool) -> dict[int, list[Holder]]:
        """Return, by node, the pods that hold something there, with their slots.

        ``now``: those that are there, which one that was only promised a place never was; else those that will be there
        when everybody who leaves has left.
        """
        columns = self.session.columns
        out: dict[int, list[Holder]] = {row: [] for row in range(len(self.session.all_nodes))}
        for pod in range(len(self.session.snapshot.pods)):
            status, place = int(columns.status[pod]), self.place_of(pod)
            if status == Status.ALLOCATED:
                real: Place | None = place
            else:
                real = self.real.get(pod)
            if not now:
                real = place if within(status, ACTIVE_USED) and status != Status.RELEASING else None
            elif real is not None and real != place and real[0] not in columns.left[pod] - 1:
                real = None
            if real is not None and real[0] >= 0:
                out[real[0]].append((pod, real[1]))
        return out

    def place_of(self, pod: int) -> Place:
        """Return the node of a pod and its slots there, as the ledger has them."""
        columns = self.session.columns
        slots = columns.placement_slots[int(columns.placement[pod])]
        return int(columns.node[pod]), tuple(map(int, slots[slots >= 0]))


# ---------------------------------------------------------------------------------------------------------------- laws


def nothing_is_overcommitted(watch: Watch) -> None:
    """No node gives more than it has and no device more memory, now and when those who leave have left."""
    for now in (True, False):
        for node, pods in watch.holders(now=now).items():
            _check_amounts(watch, node, pods)
            _check_devices(watch, node, pods)


def _check_amounts(watch: Watch, node: int, pods: list[Holder]) -> None:
    facts = watch.session.facts
    request = facts.shapes.request[facts.pods.shape[[pod for pod, _ in pods]]].sum(axis=0)
    for resource, amount in enumerate(request):
        if resource != GPU and facts.nodes.allocatable[node, resource]:
            assert amount <= facts.nodes.allocatable[node, resource], (node, resource, pods)


def _check_devices(watch: Watch, node: int, pods: list[Holder]) -> None:
    facts, shapes = watch.session.facts, watch.session.snapshot.shapes
    per_device = int(facts.nodes.gpu_memory[node])
    wholes, used = 0, dict[int, int]()
    for pod, slots in pods:
        shape = int(facts.pods.shape[pod])
        gpu = shapes[shape].gpu
        if not gpu.shared:
            wholes += 0 if facts.pods.reservation[pod] else int(facts.shapes.request[shape, GPU]) // GPU_UNIT
            continue
        memory = gpu.memory if gpu.kind is GpuKind.MEMORY else int(gpu.portion * per_device)
        for slot in slots:
            used[slot] = used.get(slot, 0) + memory
    assert all(memory <= per_device for memory in used.values()), (node, used, per_device)
    devices = int(facts.nodes.allocatable[node, GPU]) // GPU_UNIT
    assert wholes + len(used) <= devices, (node, wholes, used, devices)


def no_queue_exceeds_its_limit(watch: Watch) -> None:
    """No queue or user has more than its limit, nor more of what cannot be taken back than its quota, if not before."""
    queues, users, columns = watch.session.facts.queues, watch.session.facts.users, watch.session.columns
    for bounds, used, before in (
        (queues.limit, columns.queue_used, watch.opening_used),
        (queues.quota, columns.queue_fixed, watch.opening_fixed),
        (queues.model_limit, columns.queue_models, watch.opening_models),
        (users.limit, columns.user_used, watch.opening_users),
    ):
        over: Bools = (bounds >= 0) & (used > np.maximum(bounds, before))
        assert not over.any(), (np.argwhere(over), used[over], bounds[over])
