"""Refusals as values: why something may not happen, with the numbers that prove it.

Nothing here is text for people; ``kai.explain.messages`` renders a verdict once, at the edge.

Refusal codes that plugins bring, with their texts.

A plugin refuses with an instance of ``Words`` where the engine refuses with a ``Code``:

    RACK_IS_FULL = Words(code="RackIsFull", text=lambda facts: f"rack {facts['rack']} has no power left")

    return Verdict.refused(RACK_IS_FULL, rack="a")

The texts are made of the facts of the refusal, only when they are read.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import attrs

Facts = Mapping[str, object]


@attrs.frozen
class Detail:
    """One part of a refusal that is told on its own, before the refusal: what a single domain lacks."""

    subject: str
    lines: tuple[str, ...]
    reason: str
    """The reason under which conditions on pod groups carry it."""


@attrs.frozen(kw_only=True, eq=False)
class Words:
    """A refusal code with its texts; one instance for each code, in the plugin's folder."""

    code: str
    """What metrics and documents call it."""
    text: Callable[[Facts], str]
    """The message of conditions and events on pod groups."""
    plain: Callable[[Facts], str] | None = None
    """One line for people, as ``kai simulate`` prints it; ``text`` if it is left out."""
    plain_code: str = ""
    """The code of that line, where it differs: how a plugin tells what does not fit now from what never can."""
    details: Callable[[Facts], Sequence[Detail]] | None = None
    """What is told on its own."""
    wire: str = "PodSchedulingErrors"
    """The reason under which conditions on pod groups carry it."""

    @property
    def value(self) -> str:
        """The code as text, as codes of the engine have it."""
        return self.code

    def __str__(self) -> str:
        return self.code


Fact = object


class Code(StrEnum):
    """Reason codes.

    The values are the wire's where the wire has one; the finer ones are ours and map to it by ``wire``.
    """

    OVER_LIMIT = "OverLimit"
    OVER_QUOTA = "NonPreemptibleOverQuota"
    QUEUE_MISSING = "QueueDoesNotExist"
    QUEUE_ORPHANED = "QueueOrphaned"
    QUEUE_CYCLE = "QueueCycle"
    QUEUE_TOO_DEEP = "QueueTooDeep"
    QUEUE_ELSEWHERE = "QueueOfAnotherPool"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    EVICTIONS_CAPPED = "EvictionsCapped"
    VICTIMS_PROTECTED = "VictimsProtected"
    TRIES_SPENT = "TriesSpent"
    PREEMPTION_DELAY = "PreemptionDelayNotElapsed"
    NO_NODE = "PodSchedulingErrors"
    NOT_READY = "NotReady"
    GATED = "Gated"
    BIND_REFUSED = "BindRefused"
    UNKNOWN_SUBGROUP = "UnknownSubGroup"
    SUBGROUPS_INVALID = "SubGroupsInvalid"
    HELD = "PodGroupRefused"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    PRIORITY_NOT_ALLOWED = "PriorityNotAllowed"
    POD_REFUSED = "PodRefused"
    WAITS_FOR_TURN = "WaitsForTurn"
    HELD_FOR_LEAVING = "HeldForLeaving"
    NOT_ELIGIBLE = "AtFairShare"
    PLUGIN = "Plugin"

    @property
    def wire(self) -> str:
        """The reason under which conditions on pod groups carry this code."""
        if self in (Code.NO_NODE, Code.POD_REFUSED, Code.UNKNOWN_SUBGROUP, Code.PLUGIN):
            return Code.NO_NODE.value
        return self.value


@attrs.frozen(kw_only=True)
class Reason:
    """One reason: a code, the engine's or a plugin's, and the facts that its text is made of."""

    code: Code | Words
    facts: Mapping[str, Fact] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class Verdict:
    """Accepted (no reasons), or refused with at least one reason."""

    reasons: tuple[Reason, ...] = ()

    def __bool__(self) -> bool:
        return not self.reasons

    @classmethod
    def refused(cls, code: Code | Words, **facts: Fact) -> "Verdict":
        """Return the refusal with one reason."""
        return cls((Reason(code=code, facts=facts),))

    def plus(self, other: "Verdict") -> "Verdict":
        """Return both verdicts' reasons."""
        return Verdict(self.reasons + other.reasons)


ACCEPTED = Verdict()


@attrs.frozen(kw_only=True, order=True)
class NodeReason:
    """Why one node was refused: a kernel's code, or a plugin's words.

    ``subject`` is the resource or the profile that is short, ``detail`` what a queue has to say about it.
    """

    code: int
    subject: str = ""
    text: str = ""
    detail: Reason | None = attrs.field(default=None, order=False)


@attrs.frozen(kw_only=True)
class Shortage:
    """How much a pod asks for of a resource that a node is short of, what is used there, and what there is at all."""

    requested: float
    used: float
    capacity: float


@attrs.frozen(kw_only=True)
class NodeRefusal:
    """Why one node was refused, with the numbers where it is short of something."""

    node: str
    reasons: tuple[tuple[NodeReason, Shortage | None], ...]


@attrs.frozen(kw_only=True)
class Histogram:
    """How many nodes were refused for what; most frequent first, then by reason.

    A node that is short of several resources counts for each.
    """

    counts: tuple[tuple[int, NodeReason], ...] = ()
    nodes: int = 0
    by_node: tuple[NodeRefusal, ...] = ()
    """Each node on its own, where the scheduler's parameters ask for it."""
    together: bool = False
    """Whether the pod is one of several, so that no amount of its own says what a node had no room for."""
