"""What a cycle decides, as values: bind, evict, nominate. The shell carries them out; the core only says so.

A large cycle makes tens of thousands of the first two, which is why they are records of msgspec: those are made ten
times faster than frozen classes that are written in Python.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import attrs
import msgspec

from kai.framework.verdict import Fact

NOTHING: Mapping[str, str] = MappingProxyType({})


class Cause(StrEnum):
    """Why pods are evicted."""

    CONSOLIDATE = "consolidation"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE = "stalegangeviction"


class Bind(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Give a pod its node, now.

    ``devices`` names the shared devices; a name that starts with ``+`` is a device to be opened under any fresh name.
    """

    pod: int
    node: int
    devices: tuple[str, ...] = ()
    received: str = "Regular"
    gpu_count: int = 0
    gpu_portion: float = 1.0
    request: Mapping[str, object] = NOTHING
    """What the bind request says of the details of a placement: see ``Placement.encode``."""


class Nominate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Promise a pod a node whose resources are being released. Nothing is reserved beyond this cycle."""

    pod: int
    node: int
    devices: tuple[str, ...] = ()
    action: str = ""


@attrs.frozen(kw_only=True)
class Evict:
    """Delete a pod.

    ``aggressor`` is the group that gains (-1: none), ``rule`` what allowed it, ``moved_to`` the node it was
    promised (-1: none).

    ``facts`` are the numbers that the message about it is made of, as they were before anything was evicted.
    """

    pod: int
    cause: Cause
    aggressor: int = -1
    rule: str = ""
    facts: Mapping[str, Fact] = attrs.field(factory=dict, hash=False)
    gang_size: int = 0
    moved_to: int = -1
    gpus: int = 0
    """Thousandths of GPUs that the pod holds."""


Decision = Bind | Nominate | Evict


class DecisionSink(Protocol):
    """Where decisions go as soon as they are final.

    All decisions of one statement arrive in one call: all of them or none.
    """

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Receive the decisions of one committed statement."""


@attrs.define
class Recorder:
    """A sink that keeps what it is given."""

    statements: list[tuple[Decision, ...]] = attrs.field(factory=list)

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Keep the decisions of one statement."""
        self.statements.append(decisions)

    @property
    def decisions(self) -> list[Decision]:
        """All decisions in the order in which they were made."""
        return [decision for statement in self.statements for decision in statement]
