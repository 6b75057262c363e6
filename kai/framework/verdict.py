"""Refusals as values: why something may not happen, with the numbers that prove it.

A verdict has no text; ``kai.deciding.explain.messages`` renders it once, at the edge.

A plugin refuses with an instance of ``Words`` where the engine refuses with a ``Code``:

    RACK_IS_FULL = Words(code="RackIsFull", text=lambda facts: f"rack {facts['rack']} has no power left")

    return Verdict.refused(RACK_IS_FULL, rack="a")

The texts are made from the facts of the refusal, only when they are read.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Generic

import attrs

Facts = Mapping[str, object]


@attrs.frozen
class Detail:
    """One part of a refusal with a message of its own before the refusal, such as what a single domain lacks."""

    subject: str
    lines: tuple[str, ...]
    reason: str
    """The reason in conditions on pod groups."""


@attrs.frozen(kw_only=True, eq=False)
class Words:
    """A refusal code with its texts; one instance for each code, in the plugin's folder."""

    code: str
    """The name of the code in metrics and documents."""
    text: Callable[[Facts], str]
    """The message of conditions and events on pod groups."""
    plain: Callable[[Facts], str] | None = None
    """One line for people, as ``kai simulate`` prints it; ``text`` if it is left out."""
    plain_code: str = ""
    """The code of the plain line, if it differs: a plugin can distinguish "not now" from "never"."""
    details: Callable[[Facts], Sequence[Detail]] | None = None
    """The parts of the refusal that have messages of their own."""
    wire: str = "PodSchedulingErrors"
    """The reason in conditions on pod groups."""

    @property
    def value(self) -> str:
        """The code as text, like codes of the engine."""
        return self.code

    def __str__(self) -> str:
        return self.code


Fact = object


class Code(StrEnum):
    """Reason codes.

    The values are the API's where the API has one; finer ones are our own and map to the API's by ``wire``.
    """

    OVER_LIMIT = "OverLimit"
    OVER_MODEL_LIMIT = "OverModelLimit"
    OVER_USER_LIMIT = "OverUserLimit"
    OVER_QUOTA = "NonPreemptibleOverQuota"
    BUDGET_USED = "BudgetUsed"
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
    TIME_LIMIT = "TimeLimit"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    PRIORITY_NOT_ALLOWED = "PriorityNotAllowed"
    POD_REFUSED = "PodRefused"
    WAITS_FOR_TURN = "WaitsForTurn"
    HELD_FOR_LEAVING = "HeldForLeaving"
    NOT_ELIGIBLE = "AtFairShare"
    PLUGIN = "Plugin"

    @property
    def wire(self) -> str:
        """The reason of this code in conditions on pod groups."""
        if self in (Code.NO_NODE, Code.POD_REFUSED, Code.UNKNOWN_SUBGROUP, Code.PLUGIN):
            return Code.NO_NODE.value
        return self.value


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # typing has defaults since Python 3.13; a type checker knows both

    C_co = TypeVar("C_co", bound=str | Words, covariant=True, default=Code | Words)
else:
    from typing import TypeVar

    C_co = TypeVar("C_co", covariant=True)


@attrs.frozen
class Reason(Generic[C_co]):
    """One reason why something may not happen, or why a group waits: its code, and the facts that prove it.

    A verdict has codes of the engine and of plugins, and no text: that is made once, at the edge. What is explained to
    users is a ``Reason[str]``: it has a text, and the code as it is written in documents.
    """

    code: C_co
    text: str = ""
    """One line without a full stop."""
    facts: Mapping[str, Fact] = attrs.field(factory=dict, hash=False)
    """Units: amounts in axis units."""

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


@attrs.frozen
class Verdict:
    """Accepted (no reasons), or refused with at least one reason."""

    reasons: tuple[Reason, ...] = ()

    def __bool__(self) -> bool:
        # A verdict is true where it accepts, so `if not plugin.admit(pod)` reads as it should; a refusal without a
        # reason cannot even be written.
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
    """Why one node was refused: a kernel's code, or a plugin's text.

    ``subject`` is the resource or profile that is short, ``detail`` the refusal of a queue.
    """

    code: int
    subject: str = ""
    text: str = ""
    detail: Reason | None = attrs.field(default=None, order=False)


@attrs.frozen(kw_only=True)
class Shortage:
    """The requested, used and total amount of a resource that a node is short of."""

    requested: float
    used: float
    capacity: float


@attrs.frozen(kw_only=True)
class NodeRefusal:
    """Why one node was refused, with the numbers of each shortage."""

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
    """Each node on its own, if the scheduler's parameters request it."""
    together: bool = False
    """Whether the pod is one of several, so that its own request does not explain why a node had no room."""
