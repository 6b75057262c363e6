"""What is known of a workload before it arrives: its pods and group, and how long they run, crash and come back."""

from __future__ import annotations

from enum import Enum
from math import inf

import attrs

from kai.api.kinds import ApiObject
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup


class Replacement(Enum):
    """When the owner makes a pod in the place of one that is evicted, and in which group."""

    SAME_NAME = "when the old pod is gone"
    """Its name is free only then: StatefulSets, operators of training jobs, pods without an owner."""
    NEW_NAME = "at once, in the same group"
    """A Job."""
    NEW_GROUP = "at once, in a group of its own"
    """A Deployment: the pod grouper makes a group for each of its pods."""


class Overlap(Enum):
    """What a CronJob does when a run comes while the one before has not ended."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    """It comes when the other has ended; of several that came, the last one."""
    REPLACE = "Replace"


@attrs.frozen(kw_only=True)
class Series:
    """Jobs of which one follows the other.

    Units: seconds.
    """

    name: str
    overlap: Overlap = Overlap.ALLOW
    deadline: float = inf
    """How late a run may come."""


@attrs.frozen(kw_only=True)
class Behaviour:
    """How pods behave once they run.

    Units: seconds.
    """

    duration: float | None = None
    """How long they work; None for ever."""
    startup: float = 0.0
    """Warm-up before they work, each time they start."""
    checkpoint_every: float | None = None
    """How much work apart their progress is saved; None if never."""
    fails_at: float | None = None
    """How long after each start they crash; None if never."""
    restarts: int = 0
    """How many crashes the owner makes good."""

    def saved(self, work: float) -> float:
        """Return how much of so many seconds of work is not lost when the pods stop."""
        every = self.checkpoint_every
        return work - work % every if every else 0.0


@attrs.frozen(kw_only=True)
class PodPlan:
    """One pod: as its owner writes it, and how many GPUs it asks for."""

    pod: Pod
    gpus: float


@attrs.frozen(kw_only=True, eq=False)
class TaskPlan:
    """Pods that make progress together, as soon as ``needed`` of them run.

    Units: seconds of virtual time.
    """

    pods: tuple[PodPlan, ...]
    needed: int
    arrival: float
    leaves: float = inf
    """When its owner takes it back."""
    late: int = 0
    """How many of its pods, the last ones, come when all others of it run."""
    after: tuple[int, ...] = ()
    """The tasks of its job, by their places, that must be over before it begins."""
    once: str = ""
    """What those pods wait for that come later, in words."""
    group: PodGroup | None = None
    """What its group asks for from then on, or once the late pods are there; None where nothing changes."""

    @property
    def gpus(self) -> float:
        """How many GPUs all of its pods ask for."""
        return sum(each.gpus for each in self.pods)


@attrs.frozen(kw_only=True, eq=False)
class JobPlan:
    """A pod group with its pods; on screen it is a job.

    ``tasks`` are the parts of it that progress each for itself: all pods of a gang are one, each pod of a Job another.
    """

    arrival: float
    group: PodGroup
    tasks: tuple[TaskPlan, ...]
    behaviour: Behaviour = Behaviour()
    kind: str = "PodGroup"
    """The kind of object that its user submitted."""
    owner: str = ""
    """The name of that object."""
    user: str = ""
    at_once: int = 0
    """How many tasks its owner runs at the same time; 0 for all."""
    replacement: Replacement = Replacement.SAME_NAME
    series: Series | None = None
    """The CronJob whose run it is."""

    @property
    def queue(self) -> str:
        """The queue that it is in."""
        return self.group.spec.queue

    @property
    def name(self) -> str:
        """Its name."""
        return self.group.metadata.name

    @property
    def key(self) -> str:
        """Its namespace and name."""
        return f"{self.group.metadata.namespace}/{self.group.metadata.name}"


def identity_of(obj: ApiObject) -> str:
    """Return the UID of an object; of one that no API server has seen, its name, as intake takes it."""
    return obj.metadata.uid or obj.metadata.name
