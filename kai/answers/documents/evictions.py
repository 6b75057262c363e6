"""The documents about evictions: `EvictionList` lists pods that have to go and pods that went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kai.answers.documents.document import ABSENT, Document, read_json
from kai.facts.model.units import GPU_UNIT

if TYPE_CHECKING:
    from kai.answers.why.evictions import Eviction
    from kai.answers.why.past_evictions import PastEviction


@attrs.frozen(kw_only=True)
class EvictionItem:
    """Why one pod has to go."""

    pod: str
    job: str
    queue: str
    node: str | None
    gpus: float
    cause: str
    beneficiary: str | None
    rule: str
    moved_to: str | None
    because: tuple[str, ...]

    @classmethod
    def of(cls, each: Eviction) -> EvictionItem:
        """Return the item of an eviction."""
        return cls(
            pod=each.pod,
            job=each.job,
            queue=each.queue,
            node=each.node or None,
            gpus=each.gpus / GPU_UNIT,
            cause=each.cause,
            beneficiary=each.beneficiary or None,
            rule=each.rule,
            moved_to=each.moved_to or None,
            because=each.because,
        )

    def eviction(self) -> Eviction:
        """Return the eviction of this item."""
        from kai.answers.why.evictions import Eviction  # noqa: PLC0415 - it loads the engine, which writing has loaded

        return Eviction(
            pod=self.pod,
            job=self.job,
            queue=self.queue,
            node=self.node or "",
            gpus=round(self.gpus * GPU_UNIT),
            cause=self.cause,
            rule=self.rule,
            beneficiary=self.beneficiary or "",
            moved_to=self.moved_to or "",
            because=self.because,
        )


@attrs.frozen(kw_only=True)
class PastEvictionItem:
    """Why one pod was evicted, as far as it is on record."""

    time: str | None
    pod: str | None
    job: str
    queue: str | None
    gpus: float | None
    cause: str
    beneficiary: str | None
    """``namespace/name`` of the job that gained, or ``another queue`` where the reader may not see it."""
    beneficiary_queue: str | None
    rule: str
    because: str | None
    source: str

    @classmethod
    def of(cls, each: PastEviction) -> PastEvictionItem:
        """Return the item of an eviction."""
        return cls(
            time=each.time or None,
            pod=each.pod or None,
            job=each.job,
            queue=each.queue or None,
            gpus=each.gpus,
            cause=each.cause,
            beneficiary=each.gainer or None,
            beneficiary_queue=each.gainer_queue or None,
            rule=each.rule,
            because=each.because or None,
            source=each.source,
        )

    def eviction(self) -> PastEviction:
        """Return the eviction of this item."""
        from kai.answers.why.past_evictions import PastEviction  # noqa: PLC0415 - as above

        return PastEviction(
            time=self.time or "",
            pod=self.pod or "",
            job=self.job,
            queue=self.queue or "",
            gpus=self.gpus,
            cause=self.cause,
            rule=self.rule,
            gainer=self.beneficiary or "",
            gainer_queue=self.beneficiary_queue or "",
            because=self.because or "",
            source=self.source,
        )


@attrs.frozen(kw_only=True)
class EvictionList(Document):
    """Which pods went or have to go, for whom and why (``kai why --evicted``)."""

    items: tuple[EvictionItem, ...]
    unused_evictions: tuple[str, ...]
    past: tuple[PastEvictionItem, ...] = ABSENT
    looked_at: tuple[str, ...] = ABSENT


def evictions_of(document: Mapping[str, Any]) -> tuple[Eviction, ...]:
    """Return the evictions of the last cycle in an EvictionList."""
    return tuple(each.eviction() for each in read_json(EvictionList, document).items)


def past_evictions_of(document: Mapping[str, Any]) -> tuple[PastEviction, ...]:
    """Return the evictions of past cycles in an EvictionList."""
    return tuple(each.eviction() for each in read_json(EvictionList, document).past)
