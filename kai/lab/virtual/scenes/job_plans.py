"""Jobs before they arrive: their pods and group, their run times, their crashes, and how their owners replace pods.

`Owner` describes what the kind of a workload means over time: which pods progress together, and how they are replaced.

`installed_classes` adds the priority classes of an installation of kai, so that files need not contain them.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.kinds import Key
from kai.api.kubernetes.meta import ObjectMeta, PriorityClass
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec, least_members
from kai.basics.parsing import mapping_of, part_of
from kai.manifests.grouping import PRIORITY_CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kai.api.kinds import ApiObject


class Replacement(Enum):
    """When the owner replaces an evicted pod, and in which group."""

    SAME_NAME = "when the old pod is gone"
    """The name is free only then: StatefulSets, operators of training jobs, pods without an owner."""
    NEW_NAME = "at once, in the same group"
    """A Job."""
    NEW_GROUP = "at once, in a group of its own"
    """A Deployment: the pod grouper makes a group for each of its pods."""


class Overlap(Enum):
    """The concurrency policy of a CronJob: what to do when a run is due before the previous one has ended."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    """It starts when the previous one has ended; of several such runs, only the last one."""
    REPLACE = "Replace"


@attrs.frozen(kw_only=True)
class Series:
    """Jobs that follow one another.

    Units: seconds.
    """

    name: str
    overlap: Overlap = Overlap.ALLOW
    deadline: float = inf
    """How late a run may start."""


@attrs.frozen(kw_only=True)
class Behaviour:
    """The behaviour of running pods.

    Units: seconds.
    """

    duration: float | None = None
    """How long they work; None for ever."""
    startup: float = 0.0
    """Warm-up before they work, each time they start."""
    checkpoint_every: float | None = None
    """Work between two checkpoints; None without checkpoints."""
    fails_at: float | None = None
    """Time from each start to a crash; None for no crash."""
    restarts: int = 0
    """Number of crashes after which the owner still restarts them."""

    def saved(self, work: float) -> float:
        """Return how many of ``work`` seconds are not lost when the pods stop."""
        every = self.checkpoint_every
        return work - work % every if every else 0.0


@attrs.frozen(kw_only=True)
class PodPlan:
    """One pod: its manifest from the owner, and the GPUs that it requests."""

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
    """When its owner deletes it."""
    late: int = 0
    """Number of its pods, the last ones, that are created when all others run."""
    after: tuple[int, ...] = ()
    """Indices of the tasks of its job that must end before it begins."""
    once: str = ""
    """The condition for its later pods, in words."""
    group: PodGroup | None = None
    """The group with its spec from then on, or once the late pods exist; None where nothing changes."""

    @property
    def gpus(self) -> float:
        """GPUs that all of its pods request."""
        return sum(each.gpus for each in self.pods)


@attrs.frozen(kw_only=True)
class Follow:
    """A condition for a job to be created: that other jobs of its workload run whole, or are complete."""

    jobs: tuple[Key, ...]
    """Namespace and name of their groups."""
    is_over: bool
    words: str


@attrs.frozen(kw_only=True, eq=False)
class JobPlan:
    """A pod group with its pods; on screen it is a job.

    ``tasks`` are its parts that progress independently: all pods of a gang are one task, each pod of a Job another.
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
    """Number of tasks that its owner runs at the same time; 0 for all."""
    replacement: Replacement = Replacement.SAME_NAME
    series: Series | None = None
    """The CronJob whose run it is."""
    follows: tuple[Follow, ...] = ()
    """The conditions under which its controller creates it after its arrival."""
    is_followed: bool = False
    """Whether other jobs wait for it."""

    @property
    def queue(self) -> str:
        """Its queue."""
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
    """Return the UID of an object, or its name where no API server assigned one, as intake does."""
    return obj.metadata.uid or obj.metadata.name


ALWAYS: Final = 1 << 30
"""Number of restarts for an owner that never gives up."""
_JOB_BACKOFF: Final = 6
"""Source: the default of a Job's backoffLimit."""
_SCALED: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet"})
_EACH: Final = frozenset({"Deployment", "InferenceService", "NIMService", "ReplicaSet", "StatefulSet"})
"""Kinds whose pods progress independently."""


@attrs.frozen(kw_only=True)
class Owner:
    """The behaviour of the owner of pods."""

    replacement: Replacement = Replacement.SAME_NAME
    progresses_together: bool = True
    restarts: int = ALWAYS
    at_once: int = 0
    """Number of pods that it runs at the same time; 0 for all."""


def owner_of(manifest: Mapping[str, Any]) -> Owner:
    """Return the behaviour of the owner in a manifest. Source: the controllers of these kinds."""
    kind, spec = str(manifest.get("kind")), mapping_of(manifest, "spec")
    if kind in {"Deployment", "ReplicaSet"}:
        return Owner(replacement=Replacement.NEW_GROUP, progresses_together=False)
    if _is_job(manifest):
        parallelism, backoff = spec.get("parallelism"), spec.get("backoffLimit")
        return Owner(
            replacement=Replacement.NEW_NAME,
            progresses_together=False,
            restarts=backoff if isinstance(backoff, int) else _JOB_BACKOFF,
            # The default of the API server, which manifests do not show.
            at_once=parallelism if isinstance(parallelism, int) else 1,
        )
    if kind == "JobSet":
        most = part_of(spec, "failurePolicy", "maxRestarts")
        # A JobSet without a failure policy fails with its first failed Job.
        return Owner(restarts=most if isinstance(most, int) else 0)
    policy = part_of(spec, "runPolicy", "backoffLimit")
    return Owner(progresses_together=kind not in _EACH, restarts=policy if isinstance(policy, int) else ALWAYS)


def is_scaled(kind: str) -> bool:
    """Return whether workloads of a kind have replicas that may change over time."""
    return kind in _SCALED or kind == "PodGroup"


def with_all_pods(manifest: Mapping[str, Any], replicas: int | None) -> Mapping[str, Any]:
    """Return a workload expanded to all pods that it will ever have: ``replicas`` replicas, or every completion."""
    spec = mapping_of(manifest, "spec")
    if replicas is not None and manifest.get("kind") in _SCALED:
        return {**manifest, "spec": {**spec, "replicas": replicas}}
    completions = spec.get("completions")
    # A Job runs `parallelism` pods at a time until `completions` have ended. All of them are made here, and `at_once`
    # has the number that may run together. Parallelism 0 pauses a Job.
    if _is_job(manifest) and isinstance(completions, int) and spec.get("parallelism") != 0:
        return {**manifest, "spec": {**spec, "parallelism": completions}}
    return manifest


def _is_job(manifest: Mapping[str, Any]) -> bool:
    """Return whether a workload is a Job of Kubernetes: other API groups have kinds of the same name."""
    return manifest.get("kind") == "Job" and str(manifest.get("apiVersion")).startswith("batch/")


def gang_of(spec: PodGroupSpec, pods: int) -> int:
    """Return the number of pods of a group that must run for it to make progress."""
    return min(pods, least_members(spec))


def installed_classes(given: Iterable[PriorityClass]) -> list[PriorityClass]:
    """Return the priority classes of an installation that are not given."""
    known = {each.metadata.name for each in given}
    return [
        PriorityClass(metadata=ObjectMeta(name=name), value=value)
        for name, value in PRIORITY_CLASSES.items()
        if name not in known
    ]
