"""Documents of ``kai simulate``, and lists of plugins, checks and codes, as classes; see ``kai.cli.schemas.kinds``.

The documents about decisions: what a cycle decides, what a run comes to, how two of them differ, and the log.

What ``kai queues`` prints for machines, as classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kai.answers.cases.plan_document import Departure, Hold, Place
from kai.cli.schemas.explanations import Document, StepItem
from kai.lab.comparing import comparison
from kai.lab.virtual.results import result as over_time


@attrs.frozen(kw_only=True)
class Plan(Document):
    """What is decided (``kai replay``)."""

    answer: str | None
    place: tuple[Place, ...]
    hold: tuple[Hold, ...]
    evict: tuple[Departure, ...]
    move: tuple[Departure, ...]
    counts: Mapping[str, int]
    decision_hash: str
    explanation: Mapping[str, Any] | None
    agreement: comparison.Agreement | None = None
    """Null where no scheduler has written about jobs."""


@attrs.frozen(kw_only=True, slots=False)
class Comparison(comparison.Comparison, Document):
    """What changes between two policies, results or snapshots (``kai diff``)."""


@attrs.frozen(kw_only=True, slots=False)
class SimulationResult(Document, over_time.SimulationResult):
    """What became of a workload over virtual time (``kai simulate --until``).

    The decision of one moment has the same kind and no ``horizonSeconds``.
    """


@attrs.frozen(kw_only=True)
class Subject:
    """What a decision is about."""

    kind: str
    namespace: str
    name: str
    uid: str


@attrs.frozen(kw_only=True)
class GainerItem:
    """The job for which a pod was evicted."""

    namespace: str
    name: str
    queue: str


@attrs.frozen(kw_only=True)
class Decision:
    """A line of the decision log (``kai run --decision-log``); it has no envelope."""

    cycle: int
    time: str
    kind: str
    subject: Subject
    job: str
    queue: str
    node: str
    action: str
    rule: str
    gainer: GainerItem | None
    numbers: Mapping[str, float]
    input_hash: str


@attrs.frozen(kw_only=True)
class ShareOfQueue:
    """One resource of a queue; ``null`` with ``unlimited`` is no limit."""

    quota: float | None
    limit: float | None
    unlimited: bool
    fair_share: float
    used: float
    used_non_preemptible: float
    requested: float
    weight: float | None = None
    usage: float | None = None


@attrs.frozen(kw_only=True)
class ModelOfQueue:
    """What a queue may use, and uses, of one model of GPU, in GPUs; no limit: unlimited."""

    model: str
    limit: float | None
    used: float


@attrs.frozen(kw_only=True)
class QueueItem:
    """One queue."""

    name: str
    parent: str | None
    leaf: bool
    priority: int
    jobs_running: int
    jobs_waiting: int
    gpus: ShareOfQueue
    cpu_millis: ShareOfQueue
    memory_bytes: ShareOfQueue
    models: tuple[ModelOfQueue, ...] = ()
    """The models of GPUs that the queue bounds."""
    fair_share_steps: tuple[StepItem, ...] = ()
    """How the share came about, of GPUs, or of CPU where there are none."""
    labels: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AbsentQueue:
    """A queue that is written down and takes no part, with the reason."""

    name: str
    code: str
    text: str


@attrs.frozen(kw_only=True)
class QueueList(Document):
    """Who is entitled to what, who has it and who wants it (``kai queues``)."""

    items: tuple[QueueItem, ...]
    left_out: tuple[AbsentQueue, ...] = ()


@attrs.frozen(kw_only=True)
class WeekSliceItem:
    """A time in which the amounts of a queue do not change; CPU in millicores, memory in MB, -1 is unlimited."""

    from_: str
    until: str
    windows: tuple[str, ...]
    quota: Mapping[str, float]
    limit: Mapping[str, float]


@attrs.frozen(kw_only=True)
class QueueWeekItem:
    """The week of a queue whose amounts follow the clock."""

    name: str
    time_zone: str
    slices: tuple[WeekSliceItem, ...]


@attrs.frozen(kw_only=True)
class QueueWeekList(Document):
    """What queues may have over a week (``kai queues --week``)."""

    items: tuple[QueueWeekItem, ...]


@attrs.frozen(kw_only=True)
class ResultPods:
    """How many pods a job wants, and what becomes of them."""

    wanted: int
    placed: int
    started: int
    held: int
    evicted: int


@attrs.frozen(kw_only=True)
class ResultJob:
    """One job after the last cycle; the last three fields are there where its pods wait."""

    name: str
    namespace: str
    queue: str
    priority: int | None
    preemptible: bool | None
    min_member: int
    pods: ResultPods
    gpus: float
    nodes: tuple[str, ...]
    state: str
    reason: Mapping[str, str] | None
    message: str | None = None
    wire_reasons: tuple[Mapping[str, str], ...] = ()
    pod_messages: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class UnusedItem:
    """Objects of one kind that had no part in what was decided."""

    kind: str
    count: int
    reason: str


@attrs.frozen(kw_only=True)
class EvictedPod:
    """A pod that was evicted in the last cycle, with the text of the event."""

    pod: str
    message: str


@attrs.frozen(kw_only=True)
class MomentResult(Document):
    """What is decided at one moment (``kai simulate`` without ``--until``); its kind is SimulationResult as well.

    It has no ``horizonSeconds``. Of a division of fair shares there are ``scenario`` and the shares.
    """

    scenario: str
    pods: Mapping[str, Any] = attrs.field(factory=dict)
    """By namespace/name. The states are the same as of jobs; the status is KAI-Scheduler's word."""
    nodes: Mapping[str, Any] = attrs.field(factory=dict)
    counts: tuple[Mapping[str, int], ...] = ()
    """Of each cycle."""
    stable: tuple[Mapping[str, Any], ...] = ()
    jobs: tuple[ResultJob, ...] = ()
    queues: tuple[Mapping[str, Any], ...] = ()
    """As the items of a QueueList."""
    evictions: tuple[EvictedPod, ...] = ()
    explanations: tuple[Mapping[str, Any], ...] = ()
    """As the items of an ExplanationList; with ``--explain``."""
    evicted: tuple[Mapping[str, Any], ...] = ()
    unused_evictions: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    unused: tuple[UnusedItem, ...] = ()
    notes: tuple[str, ...] = ()
    check: Mapping[str, Any] | None = None
    """With ``--check``."""


@attrs.frozen(kw_only=True)
class PluginItem:
    """A plugin or an action that is installed; ``position`` is its place in the order, null where it is off."""

    name: str
    kind: str
    position: int | None
    enabled: bool
    origin: str
    version: str
    target: str
    does: str
    hooks: tuple[str, ...]
    options: Mapping[str, str]
    rights: tuple[str, ...]
    problem: str
    rivals: tuple[str, ...]
    """Other distributions that offer the same name; while there are any, a configuration cannot use it."""


@attrs.frozen(kw_only=True)
class PluginList(Document):
    """Which plugins and actions are installed, and what each does (``kai plugins``)."""

    items: tuple[PluginItem, ...]


@attrs.frozen(kw_only=True)
class TimedHook:
    """One hook of a plugin: how often it was called, and which share of the cycles it took."""

    plugin: str
    hook: str
    calls: int
    seconds: float
    share: float


@attrs.frozen(kw_only=True)
class PluginTimes(Document):
    """How long the functions of plugins took, and the cycles as a whole (``kai plugins --time``)."""

    seconds: float
    items: tuple[TimedHook, ...]


@attrs.frozen(kw_only=True)
class Kernels(Document):
    """How many kernels there are, how many of them were compiled just now, and where they are kept (``kai warm``)."""

    kernels: int
    compiled: int
    directory: str


@attrs.frozen(kw_only=True)
class CheckItem:
    """One check of ``kai doctor``."""

    code: str
    title: str


@attrs.frozen(kw_only=True)
class CheckList(Document):
    """Which checks there are (``kai doctor --list``)."""

    items: tuple[CheckItem, ...]


@attrs.frozen(kw_only=True)
class CodeItem:
    """One code of ``kai lint``."""

    code: str
    severity: str
    meaning: str
    title: str
    text: str


@attrs.frozen(kw_only=True)
class CodeList(Document):
    """What codes of findings mean (``kai lint --explain``)."""

    items: tuple[CodeItem, ...]


RESULT_KINDS = (MomentResult, PluginList, PluginTimes, Kernels, CheckList, CodeList)
