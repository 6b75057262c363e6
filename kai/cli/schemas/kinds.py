"""The kinds of documents for machines, as classes: the contract of ``-o json``, and where JSON Schemas come from.

Within a version fields are only added, and enumerations may grow, so a schema allows what it does not name. Absent is
not zero: what is unknown is null. Names are those of the wire, written in Python's manner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.cli.schemas.decisions import Comparison, Decision, Plan, SimulationResult
from kai.cli.schemas.document import Document
from kai.cli.schemas.explanations import WHY_KINDS
from kai.cli.schemas.queues import QueueList
from kai.cli.schemas.results import RESULT_KINDS
from kai.cli.schemas.slices import SlicesItem

# --- Jobs, nodes -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ReasonOfJob:
    """Why pods of a job wait."""

    code: str
    text: str


@attrs.frozen(kw_only=True)
class PodCounts:
    """How many pods a job wants, and how many of them run and wait; null where they cannot be seen."""

    wanted: int | None
    running: int | None
    waiting: int | None


@attrs.frozen(kw_only=True)
class OrderKey:
    """One key by which jobs are ordered."""

    name: str
    value: float | str | None


@attrs.frozen(kw_only=True)
class PodItem:
    """One pod of a job."""

    name: str
    state: str
    node: str | None
    gpus: float
    gpus_held: float | None
    gpu_memory_bytes: int


@attrs.frozen(kw_only=True)
class JobItem:
    """One job."""

    name: str
    namespace: str
    uid: str
    owner: Mapping[str, Any] | None
    queue: str
    priority: int | None
    preemptible: bool | None
    min_member: int
    pods: PodCounts
    gpus: float
    """What all pods ask for. Memory counts as a part of the GPU it is on, or else of the smallest, as queues count."""
    gpus_held: float | None
    """What they count for on their nodes, as in what queues use; null where that cannot be seen."""
    gpu_memory_bytes: int
    """What pods ask for by memory of GPUs; how many GPUs that is depends on the node."""
    gpus_by_memory: float
    """What that counts for among ``gpus``."""
    nodes: tuple[str, ...]
    state: str
    since: str | None
    position: int | None
    order_keys: tuple[OrderKey, ...]
    reason: ReasonOfJob | None
    ends_in_seconds: float | None
    labels: Mapping[str, str] = attrs.field(factory=dict)
    """Of the pod group."""
    pod_list: tuple[PodItem, ...] = ()
    """With ``--pods``."""
    owners: tuple[Mapping[str, str], ...] = ()
    """All that the job belongs to, the nearest first: of a service that is asked for pods."""


@attrs.frozen(kw_only=True)
class JobList(Document):
    """What runs, what waits, why and in which order (``kai jobs``)."""

    items: tuple[JobItem, ...]


@attrs.frozen(kw_only=True)
class UserOfGpu:
    """A pod on a GPU."""

    job: str
    queue: str
    share: float


@attrs.frozen(kw_only=True)
class GpuOfNode:
    """One GPU of a node."""

    index: int
    uuid: str | None
    free: float
    state: str
    users: tuple[UserOfGpu, ...]


@attrs.frozen(kw_only=True)
class FreeGpus:
    """What is free on a node: whole GPUs, and the sum of free parts."""

    whole: int
    fractions: float


@attrs.frozen(kw_only=True)
class NodeItem:
    """One node."""

    name: str
    labels: Mapping[str, str]
    gpu_type: str | None
    gpus: tuple[GpuOfNode, ...]
    free: FreeGpus
    domains: Mapping[str, str]
    mig_slices: tuple[SlicesItem, ...] = ()


@attrs.frozen(kw_only=True)
class NodeList(Document):
    """Where the GPUs are and in what pieces (``kai nodes``)."""

    items: tuple[NodeItem, ...]


# --- Findings and versions -----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class FindingItem:
    """One thing that is not as it should be; ``severity`` ok is a check that found nothing.

    ``meaning`` is refusal, wait or advice; null of a check of an installation.
    """

    code: str
    severity: str
    meaning: str | None
    message: str
    file: str | None
    line: int | None
    column: int | None
    object: str | None
    found: str | None
    expected: str | None
    help: str | None
    url: str | None


@attrs.frozen(kw_only=True)
class Findings(Document):
    """What is wrong with files or an installation (``kai lint``, ``kai doctor``)."""

    items: tuple[FindingItem, ...]


@attrs.frozen(kw_only=True)
class Snapshot(Document):
    """What was written into a file (``kai snapshot``)."""

    file: str
    redacted: str
    counts: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Versions(Document):
    """The versions of all parts (``kai version``), by name beside the fields of every document."""

    kai: str
    python: str


# --- Cycles --------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class CycleItem:
    """One cycle: how long it and its phases took, and how many pods were started, held, evicted or moved."""

    number: int
    time: str
    seconds: float
    phases: Mapping[str, float]
    decisions: Mapping[str, int]


@attrs.frozen(kw_only=True)
class CycleList(Document):
    """The last cycles of the service, the newest first (``/api/v1/cycles``)."""

    items: tuple[CycleItem, ...]


KINDS: Final = {
    cls.__name__: cls
    for cls in (
        JobList,
        QueueList,
        NodeList,
        CycleList,
        *WHY_KINDS,
        Plan,
        Comparison,
        SimulationResult,
        Decision,
        Findings,
        Snapshot,
        Versions,
        *RESULT_KINDS,
    )
}
"""The kinds that ``kai version --schema`` prints, by name."""
