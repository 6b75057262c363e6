"""The state of present workloads: jobs, their tasks, the slots of pods and the lives of pods, and the event calendar.

    Job ─ Task ─ Slot ─ Life      a slot outlives its pods: whenever one is evicted, its owner makes another

A life begins when a pod is created and ends when it is gone; it holds devices from its binding to its end.

The calendar is the event queue. Events of one instant happen in the order in which they were entered.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import Enum
from math import inf, isnan, nan
from typing import TypeAlias

import attrs

from kai.api.conventions.runtime_limits import UNBOUNDED, Bound
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.lab.virtual.scenes.job_plans import JobPlan, PodPlan, TaskPlan

Action: TypeAlias = Callable[[], None]


@attrs.define
class Calendar:
    """The event queue: actions ordered by instant, then by sequence number, so that runs are deterministic.

    Units: seconds of virtual time.
    """

    now: float = 0.0
    _heap: list[tuple[float, int, Action]] = attrs.field(factory=list)
    _sequence: int = 0

    def enter(self, at: float, action: Action) -> None:
        """Schedule ``action`` at an instant; one in the past is moved to now."""
        self._sequence += 1
        # The sequence number decides ties before the actions would be compared, which functions cannot be.
        heapq.heappush(self._heap, (max(at, self.now), self._sequence, action))

    @property
    def next(self) -> float:
        """The instant of the next action; infinity if there is none."""
        return self._heap[0][0] if self._heap else inf

    def advance(self, to: float) -> None:
        """Move the clock."""
        self.now = to

    def pop(self) -> Action:
        """Remove and return the next action, and move the clock to it."""
        self.now, _, action = heapq.heappop(self._heap)
        return action

    def __len__(self) -> int:
        """Return the number of scheduled actions."""
        return len(self._heap)


class State(Enum):
    """The state of a pod."""

    WAITING = "waiting"
    RUNNING = "running"
    LEAVING = "leaving"
    """Terminating: it holds its devices until it is gone."""


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
    """The pod in the slot; None while there is none, or only a terminating one."""
    lives: int = 0


@attrs.define(eq=False)
class Task:
    """Pods that progress together.

    Units: seconds of virtual time.
    """

    job: LiveJob
    plan: TaskPlan
    slots: tuple[Slot, ...] = ()
    running: int = 0
    """Number of its running pods."""
    progress: float = 0.0
    """Work that is saved."""
    since: float = nan
    """When enough of its pods began to run; NaN while they do not."""
    idle_since: float = 0.0
    """When enough of its pods ceased to run, while they do not."""
    run: int = 0
    """The number of its current start: events that were scheduled for an earlier start are ignored."""
    is_over: bool = False
    has_late: bool = True
    """Whether all of its pods may exist; False while some wait for others of it to run."""
    _gone: tuple[float, float] = (nan, 0.0)
    """The last instant at which pods of it ceased to run, and the GPUs that they held."""

    @property
    def open_slots(self) -> tuple[Slot, ...]:
        """The slots that may have pods now."""
        return self.slots if self.has_late else self.slots[: len(self.slots) - self.plan.late]

    @property
    def runs(self) -> bool:
        """Whether the task is at work, because enough of its pods run."""
        return not isnan(self.since)

    @property
    def is_complete(self) -> bool:
        """Whether enough of its pods run at this instant."""
        return self.running >= self.plan.needed

    def let_go(self, gpus: float, now: float) -> None:
        """Note that a pod with ``gpus`` GPUs ceases to run."""
        # The pods of a gang stop one by one at one instant, and the work that is lost is that of all of them.
        self._gone = (now, self.gone_at(now) + gpus)

    def gone_at(self, now: float) -> float:
        """Return the GPUs of pods that ceased to run at this instant: pods of an evicted gang stop one by one."""
        at, gpus = self._gone
        return gpus if at == now else 0.0

    def work_at(self, now: float) -> float:
        """Return the work done by ``now``, saved or not."""
        if not self.runs:
            return self.progress
        # Warm-up is no work: it is spent again at each start, and lost if the pods stop before its end.
        return self.progress + max(0.0, now - self.since - self.job.plan.behaviour.startup)


@attrs.define(eq=False)
class LiveJob:
    """A present job."""

    plan: JobPlan
    number: int
    """Its index in the results."""
    group: PodGroup
    tasks: list[Task] = attrs.field(factory=list)
    waiting: deque[TaskPlan] = attrs.field(factory=deque)
    """Tasks that its owner starts when others end."""
    blocked: list[TaskPlan] = attrs.field(factory=list)
    """Tasks that begin when the tasks they depend on have ended."""
    done: set[int] = attrs.field(factory=set)
    """The indices of ended tasks, where others depend on tasks."""
    failures: int = 0
    left: int = 0
    """Number of tasks that have not ended."""
    is_over: bool = False
    limits: Bound = UNBOUNDED
    since: float = nan
    """When a task of it began to run; NaN while none does."""
    consumed: float = 0.0
    """The length of its earlier runs, which count against the limits of its run time."""
    run: int = 0
    """The number of its current run: the end of an earlier one is ignored."""
    is_done: bool = False
    """Whether its work was completed."""

    @property
    def runs_whole(self) -> bool:
        """Whether all pods that its owner wants so far run, or have done their work."""
        is_begun = len(self.tasks) == len(self.plan.tasks)
        return is_begun and all(task.is_over or task.running == len(task.open_slots) for task in self.tasks)

    def let_go(self) -> None:
        """Break reference cycles, so that memory is freed immediately instead of by the garbage collector."""
        for task in self.tasks:
            task.slots = ()
        self.tasks.clear()
