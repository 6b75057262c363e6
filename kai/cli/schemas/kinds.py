"""The kinds of documents for machines, as classes: the contract of ``-o json``, and where JSON Schemas come from.

Within a version fields are only added, and enumerations may grow, so a schema allows what it does not name. Absent is
not zero: what is unknown is null. Names are those of the wire, written in Python's manner.

JSON Schemas (2020-12) of attrs classes: what programs may rely on in the documents that kai writes.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.api.fields import document_name
from kai.cli.schemas.explanations import USAGE_KINDS, WHY_KINDS, Document, SlicesItem
from kai.cli.schemas.results import RESULT_KINDS, Comparison, Decision, Plan, QueueList, QueueWeekList, SimulationResult

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schema_of(cls: type[Any]) -> dict[str, Any]:
    """Return the schema of a kind; it allows fields that it does not name.

    Raises: TypeError for a field whose type has no place in a schema.
    """
    return {"$schema": DIALECT, "title": cls.__name__, **_object(cls)}


def _object(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    fields = attrs.fields(cls)
    return {
        "type": "object",
        "description": " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split()).replace("``", ""),
        "properties": {document_name(field.name): _schema(hints[field.name]) for field in fields},
        "required": [document_name(field.name) for field in fields if field.default is attrs.NOTHING],
    }


def _schema(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - type hints are of many classes
    origin: object = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if attrs.has(hint):
        return _object(hint)
    if origin in {typing.Union, types.UnionType}:
        return {"anyOf": [_schema(part) for part in parts]}
    if origin is tuple:
        return {"type": "array", "items": _schema(parts[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(parts[1])}
    raise TypeError(f"no JSON Schema for {hint}")


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
        QueueWeekList,
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
        *USAGE_KINDS,
    )
}
"""The kinds that ``kai version --schema`` prints, by name."""
