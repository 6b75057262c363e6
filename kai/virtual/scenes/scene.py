"""A scene: everything that one run needs, read from manifests and a cluster file, or from a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

import attrs

from kai.api.fields import EMPTY
from kai.api.kinds import ClusterObjects
from kai.api.kubernetes.node import Node, Taint
from kai.configuration.reading import Configuration
from kai.intake import IntakeSettings
from kai.virtual.scenes.job_plans import JobPlan


class Change(Enum):
    """What happens to a node."""

    FAIL = "fail"
    """It is gone at once, with its pods, and comes back."""
    DRAIN = "drain"
    """No pod is placed there any more, and those there are told to go."""
    TAINT = "taint"
    ADD = "add"


@attrs.frozen(kw_only=True)
class NodeEvent:
    """Something that happens to nodes.

    Units: seconds of virtual time.
    """

    at: float
    change: Change
    nodes: tuple[str, ...] = ()
    seconds: float | None = None
    """After how long it is as before; None for never."""
    taint: Taint | None = None
    added: tuple[Node, ...] = ()


@attrs.frozen(kw_only=True)
class Faults:
    """Nodes that fail by chance, each for itself.

    Units: seconds.
    """

    nodes: tuple[str, ...]
    mean_between: float
    repair: float


@attrs.frozen(kw_only=True)
class Autoscale:
    """Nodes of one shape that are made when pods wait, and go when no pod is on them.

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
    """What a run was made of, so that it can be repeated.

    SHA-256 of what was read; None for what was not given.
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
    """A cluster, what arrives at it, and what happens to it."""

    title: str
    objects: ClusterObjects
    """The cluster at the start, with pods that are no part of any job."""
    arrivals: Callable[[], Iterable[JobPlan]]
    """Returns the jobs in the order in which they arrive."""
    jobs: int
    """How many jobs that is, for the estimate."""
    span: float
    """When the last of them arrives."""
    seed: int = 0
    began: float = 0.0
    """The start of virtual time, in seconds since the epoch."""
    starts: float | None = None
    """The same where what was read has times of the calendar, so that people know it by its date; else None."""
    events: tuple[NodeEvent, ...] = ()
    faults: tuple[Faults, ...] = ()
    autoscale: tuple[Autoscale, ...] = ()
    configuration: Configuration | None = None
    """The configuration that a snapshot carries; None for the default one."""
    document: Mapping[str, Any] | None = None
    """The same as it was written."""
    settings: IntakeSettings = attrs.field(factory=IntakeSettings)
    inputs: Inputs
    counts: Mapping[str, int] = EMPTY
    """Of what the workload is made, by what it is called."""
    dropped: Mapping[str, int] = EMPTY
    """Rows of a trace that are left out, counted by reason."""
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
