"""What is known of a workload while it is there: jobs, their tasks, the slots of pods and the lives of pods.

    Job ─ Task ─ Slot ─ Life      a slot outlives its pods: whenever one is evicted, its owner makes another

A life begins when a pod is created and ends when it is gone; it holds devices from its binding to its end.

The calendar: what happens when. Events of one instant happen in the order in which they were entered.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import Enum
from math import inf, isnan, nan
from typing import TypeAlias

import attrs

from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.virtual.scenes.job_plans import JobPlan, PodPlan, TaskPlan

Action: TypeAlias = Callable[[], None]


@attrs.define
class Calendar:
    """Actions by instant and by sequence, so that two runs never differ in the order of what happens at once.

    Units: seconds of virtual time.
    """

    now: float = 0.0
    _heap: list[tuple[float, int, Action]] = attrs.field(factory=list)
    _sequence: int = 0

    def enter(self, at: float, action: Action) -> None:
        """Have ``action`` happen at an instant; one that is past happens now."""
        self._sequence += 1
        heapq.heappush(self._heap, (max(at, self.now), self._sequence, action))

    @property
    def next(self) -> float:
        """The instant of the next action; infinity if there is none."""
        return self._heap[0][0] if self._heap else inf

    def advance(self, to: float) -> None:
        """Move the clock."""
        self.now = to

    def pop(self) -> Action:
        """Take the next action out and move the clock to it."""
        self.now, _, action = heapq.heappop(self._heap)
        return action

    def __len__(self) -> int:
        """Return how many actions are to come."""
        return len(self._heap)


class State(Enum):
    """Where a pod stands."""

    WAITING = "waiting"
    RUNNING = "running"
    LEAVING = "leaving"
    """It has been told to go and holds what it has until it is gone."""


@attrs.define(eq=False)
class Life:
    """One pod from its creation to its end."""

    slot: Slot
    pod: Pod
    group: PodGroup
    state: State = State.WAITING
    node: str = ""
    gpus: float = 0.0
    """GPUs that it holds."""
    since: float = nan
    """When it was bound."""

    @property
    def key(self) -> Key:
        """Namespace and name of the pod."""
        return key_of(self.pod)


@attrs.define(eq=False)
class Slot:
    """The place of one pod in its task."""

    task: Task
    plan: PodPlan
    life: Life | None = None
    """The pod that fills it; None while there is none, or only one that leaves."""
    lives: int = 0


@attrs.define(eq=False)
class Task:
    """Pods that progress together.

    Units: seconds of virtual time.
    """

    job: Job
    plan: TaskPlan
    slots: tuple[Slot, ...] = ()
    running: int = 0
    """How many of its pods run."""
    progress: float = 0.0
    """Work that is saved."""
    since: float = nan
    """Since when enough of its pods run; NaN while they do not."""
    idle_since: float = 0.0
    """Since when they do not, while they do not."""
    run: int = 0
    """The number of its start: what was expected of an earlier one does not happen."""
    is_over: bool = False
    has_late: bool = True
    """Whether all of its pods may be there; False while some wait for others of it to run."""
    _gone: tuple[float, float] = (nan, 0.0)
    """When pods of it last ceased to run, and the GPUs that those of this instant held."""

    @property
    def open_slots(self) -> tuple[Slot, ...]:
        """The places for which there may be pods now."""
        return self.slots if self.has_late else self.slots[: len(self.slots) - self.plan.late]

    @property
    def runs(self) -> bool:
        """Whether enough of its pods run."""
        return not isnan(self.since)

    @property
    def is_complete(self) -> bool:
        """Whether enough of its pods run at this moment."""
        return self.running >= self.plan.needed

    def let_go(self, gpus: float, now: float) -> None:
        """Note that a pod with so many GPUs ceases to run."""
        self._gone = (now, self.gone_at(now) + gpus)

    def gone_at(self, now: float) -> float:
        """Return the GPUs of the pods that ceased to run at this instant: of a gang all are told to go in turn."""
        at, gpus = self._gone
        return gpus if at == now else 0.0

    def work_at(self, now: float) -> float:
        """Return how much work is done by now, saved or not."""
        if not self.runs:
            return self.progress
        return self.progress + max(0.0, now - self.since - self.job.plan.behaviour.startup)


@attrs.define(eq=False)
class Job:
    """A job while it is there."""

    plan: JobPlan
    number: int
    """Its place in the results."""
    group: PodGroup
    tasks: list[Task] = attrs.field(factory=list)
    waiting: deque[TaskPlan] = attrs.field(factory=deque)
    """Tasks that its owner starts when others are over."""
    blocked: list[TaskPlan] = attrs.field(factory=list)
    """Tasks that begin when those are over that they come after."""
    done: set[int] = attrs.field(factory=set)
    """The places of tasks that are over, where others come after tasks."""
    failures: int = 0
    left: int = 0
    """How many tasks are not over."""
    is_over: bool = False

    def let_go(self) -> None:
        """Cut what refers to each other, so that memory is free at once and not when the collector comes."""
        for task in self.tasks:
            task.slots = ()
        self.tasks.clear()
