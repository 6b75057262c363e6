"""A scene: the complete input of one run, read from manifests and a cluster file, or from a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.fields import EMPTY
from kai.api.kubernetes.node import Node, Taint
from kai.deciding.configuration.profile_reading import Configuration
from kai.intake import IntakeSettings
from kai.lab.virtual.scenes.job_plans import JobPlan


class Change(Enum):
    """A change of a node."""

    FAIL = "fail"
    """It is gone immediately, with its pods, and comes back."""
    DRAIN = "drain"
    """No pod is placed on it any more, and its pods are terminated."""
    TAINT = "taint"
    ADD = "add"


@attrs.frozen(kw_only=True)
class NodeEvent:
    """An event that changes nodes.

    Units: seconds of virtual time.
    """

    at: float
    change: Change
    nodes: tuple[str, ...] = ()
    seconds: float | None = None
    """When the change is reverted, after that time; None for never."""
    taint: Taint | None = None
    added: tuple[Node, ...] = ()


@attrs.frozen(kw_only=True)
class Faults:
    """Nodes that fail at random, independently of each other.

    Units: seconds.
    """

    nodes: tuple[str, ...]
    mean_between: float
    repair: float


@attrs.frozen(kw_only=True)
class Autoscale:
    """Nodes of one shape that are created when pods wait, and removed when they have no pods.

    Units: seconds.
    """

    name: str
    make: Callable[[int], Node]
    """Returns the node with a number."""
    least: int
    most: int
    provision: float
    idle: float
    gpus: float
    """GPUs of each."""


@attrs.frozen(kw_only=True)
class Inputs:
    """The inputs of a run, so that it can be repeated.

    SHA-256 of the content; None for an input that was not given.
    """

    workload: str
    workload_sha256: str | None = None
    cluster: str | None = None
    cluster_sha256: str | None = None
    since: float | None = None
    """The instant at which a trace begins; None for its first arrival."""
    skips_bad_rows: bool = False


@attrs.frozen(kw_only=True, eq=False)
class Scene:
    """A cluster, the jobs that arrive at it, and the events of its nodes."""

    title: str
    objects: ClusterObjects
    """The cluster at the start, including pods that belong to no job."""
    arrivals: Callable[[], Iterable[JobPlan]]
    """Returns the jobs in the order of their arrival."""
    jobs: int
    """Number of jobs, for the estimate."""
    span: float
    """When the last of them arrives."""
    seed: int = 0
    began: float = 0.0
    """The start of virtual time, in seconds since the epoch."""
    starts: float | None = None
    """The same where the inputs have calendar times, so that people know it by its date; else None."""
    events: tuple[NodeEvent, ...] = ()
    faults: tuple[Faults, ...] = ()
    autoscale: tuple[Autoscale, ...] = ()
    configuration: Configuration | None = None
    """The configuration that a snapshot carries; None for the default one."""
    document: Mapping[str, Any] | None = None
    """Its source document."""
    settings: IntakeSettings = attrs.field(factory=IntakeSettings)
    inputs: Inputs
    counts: Mapping[str, int] = EMPTY
    """Number of parts of the workload, by their names."""
    dropped: Mapping[str, int] = EMPTY
    """Skipped rows of a trace, counted by reason."""
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
