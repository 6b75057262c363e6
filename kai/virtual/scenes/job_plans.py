"""What is known of a workload before it arrives: its pods and group, and how long they run, crash and come back.

What the kind of a workload means for its pods over time: what progresses together, and how pods come back.

What an installation of kai brings to a cluster, so that files need not say it.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.kubernetes.meta import ObjectMeta, PriorityClass
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec, least_members
from kai.basics.parsing import mapping_of, part_of
from kai.manifests.grouping import PRIORITY_CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kai.api.kinds import ApiObject


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


ALWAYS: Final = 1 << 30
"""Crashes that an owner makes good which never gives up."""
_JOB_BACKOFF: Final = 6
"""Source: the default of a Job's backoffLimit."""
_SCALED: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet"})
_EACH: Final = frozenset({"Deployment", "InferenceService", "NIMService", "ReplicaSet", "StatefulSet"})
"""Pods of these progress each for itself."""


@attrs.frozen(kw_only=True)
class Owner:
    """How the owner of pods behaves."""

    replacement: Replacement = Replacement.SAME_NAME
    progresses_together: bool = True
    restarts: int = ALWAYS
    at_once: int = 0
    """How many pods it runs at the same time; 0 for all."""


def owner_of(manifest: Mapping[str, Any]) -> Owner:
    """Return how the owner that a manifest describes behaves. Source: the controllers of these kinds."""
    kind, spec = str(manifest.get("kind")), mapping_of(manifest, "spec")
    if kind in {"Deployment", "ReplicaSet"}:
        return Owner(replacement=Replacement.NEW_GROUP, progresses_together=False)
    if _is_job(manifest):
        parallelism, backoff = spec.get("parallelism"), spec.get("backoffLimit")
        return Owner(
            replacement=Replacement.NEW_NAME,
            progresses_together=False,
            restarts=backoff if isinstance(backoff, int) else _JOB_BACKOFF,
            at_once=parallelism if isinstance(parallelism, int) else 1,
        )
    if kind == "JobSet":
        most = part_of(spec, "failurePolicy", "maxRestarts")
        return Owner(restarts=most if isinstance(most, int) else 0)
    policy = part_of(spec, "runPolicy", "backoffLimit")
    return Owner(progresses_together=kind not in _EACH, restarts=policy if isinstance(policy, int) else ALWAYS)


def is_scaled(kind: str) -> bool:
    """Return whether workloads of a kind have replicas that may change over time."""
    return kind in _SCALED or kind == "PodGroup"


def with_all_pods(manifest: Mapping[str, Any], replicas: int | None) -> Mapping[str, Any]:
    """Return a workload that makes all the pods that it will ever have: so many replicas, every completion."""
    spec = mapping_of(manifest, "spec")
    if replicas is not None and manifest.get("kind") in _SCALED:
        return {**manifest, "spec": {**spec, "replicas": replicas}}
    completions = spec.get("completions")
    if _is_job(manifest) and isinstance(completions, int) and spec.get("parallelism") != 0:
        return {**manifest, "spec": {**spec, "parallelism": completions}}
    return manifest


def _is_job(manifest: Mapping[str, Any]) -> bool:
    """Return whether a workload is a Job of Kubernetes: other groups have kinds of the same name."""
    return manifest.get("kind") == "Job" and str(manifest.get("apiVersion")).startswith("batch/")


def gang_of(spec: PodGroupSpec, pods: int) -> int:
    """Return how many pods of a group must run for it to make progress."""
    return min(pods, least_members(spec))


def installed_classes(given: Iterable[PriorityClass]) -> list[PriorityClass]:
    """Return the priority classes of an installation that are not given."""
    known = {each.metadata.name for each in given}
    return [
        PriorityClass(metadata=ObjectMeta(name=name), value=value)
        for name, value in PRIORITY_CLASSES.items()
        if name not in known
    ]
