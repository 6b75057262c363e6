"""What ``kai queues`` prints for machines, as classes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kai.cli.schemas.document import Document
from kai.cli.schemas.explanations import StepItem


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
