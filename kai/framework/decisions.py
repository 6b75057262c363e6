"""The decisions of a cycle as values: bind, evict, nominate. The shell carries them out; the core only returns them.

A large cycle makes tens of thousands of binds and nominations. So these are msgspec structs, which are created ten
times faster than frozen attrs classes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, TypeVar

import attrs
import msgspec

from kai.framework.verdict import Fact

NOTHING: Mapping[str, str] = MappingProxyType({})


@attrs.frozen
class Cause:
    """Why pods are evicted: the evicting action and its texts. An action that evicts defines its own.

    Texts may contain ``{pod}``, ``{group}`` (the aggressor) and ``{rule}``.
    """

    name: str
    """The name of the action in metrics, logs and annotations."""
    rule: str = ""
    """The rule that allows the eviction, in a few words, such as "fair share". A statement may name another rule."""
    event: str = "Pod {pod} was evicted by {action}: {rule}"
    """The text of the event on the group. ``{action}`` is the name; ``{minimum}`` and ``{where}`` describe the gang."""
    leaves_because: str = "{rule}"
    """Why a pod might be evicted, as a text about possible victims; ``{queue}`` is the pod's queue."""

    CONSOLIDATE: ClassVar["Cause"]
    RECLAIM: ClassVar["Cause"]
    PREEMPT: ClassVar["Cause"]
    STALE: ClassVar["Cause"]
    WINDOW: ClassVar["Cause"]
    BUDGET: ClassVar["Cause"]

    def __str__(self) -> str:
        """Return the name."""
        return self.name


Cause.CONSOLIDATE = Cause(
    "consolidation",
    rule="every victim finds another place",
    event="Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure",
    leaves_because="finds another place",
)
Cause.RECLAIM = Cause(
    "reclaim",
    rule="fair share",
    event="Pod {pod} was preempted by workload {group}.",
    leaves_because="preemptible; queue {queue} gives back what it borrowed",
)
Cause.PREEMPT = Cause(
    "preempt",
    rule="priority",
    event="Pod {pod} was preempted by higher priority workload {group}",
    leaves_because="preemptible; lower priority in the same queue",
)
Cause.STALE = Cause(
    "stalegangeviction",
    rule="gang below its minimum",
    event="Workload doesn't meet the minimum required number of pods ({minimum}){where}, evicting remaining pod: {pod}",
    leaves_because="its gang lacks pods",
)
Cause.WINDOW = Cause(
    "windowclose",
    rule="a window of its queue closed",
    event="Pod {pod} was evicted: {rule}",
    leaves_because="a window of queue {queue} closed",
)
Cause.BUDGET = Cause(
    "budgetused",
    rule="a budget of its queue is used up",
    event="Pod {pod} was evicted: {rule}",
    leaves_because="a budget of queue {queue} is used up",
)
YIELDED: Final = "run time"
"""The rule by which `Cause.PREEMPT` takes a group that yields and has run for as long as it wished."""
_ALL: Final = (Cause.CONSOLIDATE, Cause.RECLAIM, Cause.PREEMPT, Cause.STALE, Cause.WINDOW, Cause.BUDGET)
BUILT_IN: Final[Mapping[str, Cause]] = MappingProxyType({each.name: each for each in _ALL})
"""The causes of kai's own actions, of closing windows and of used budgets, by name."""


SessionT_contra = TypeVar("SessionT_contra", contravariant=True)


class Action(Protocol[SessionT_contra]):
    """The interface of an entry point of ``kai.actions``: an object with a name that works on a session.

    It may also have a ``cause``, a `Cause` of its name with the texts for its evictions, and a numeric ``priority``:
    where a SchedulingShard names the action without one, higher priorities run earlier. See `cause_of` and
    `priority_of`.
    """

    name: str

    def run(self, session: SessionT_contra, /) -> None:
        """Make the decisions of this action."""


def cause_of(action: Action[Any]) -> Cause:
    """Return the cause of evictions by ``action``; without one of its own, a cause with just its name."""
    cause = getattr(action, "cause", None)
    return cause if isinstance(cause, Cause) else Cause(action.name)


def priority_of(action: Action[Any]) -> int:
    """Return the priority of ``action``; without one 0, which comes last."""
    priority = getattr(action, "priority", 0)
    return priority if isinstance(priority, int) else 0


class Bind(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bind a pod to a node now.

    ``devices`` names the shared devices; a name that starts with ``+`` is a device to be opened under any new name.
    """

    pod: int
    node: int
    devices: tuple[str, ...] = ()
    received: str = "Regular"
    gpu_count: int = 0
    gpu_portion: float = 1.0
    request: Mapping[str, object] = NOTHING
    """The plugins' fields of the bind request about the details of the placement: see ``Placement.encode``."""


class Nominate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Promise a pod a node whose resources are being released. Nothing is reserved beyond this cycle."""

    pod: int
    node: int
    devices: tuple[str, ...] = ()
    action: str = ""


@attrs.frozen(kw_only=True)
class Evict:
    """Evict a pod by deleting it.

    ``aggressor`` is the group that gains (-1: none), ``rule`` what allows it, ``moved_to`` the node that the pod was
    promised (-1: none).

    ``facts`` are the numbers in the message, as they were before any eviction.
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
    """Receives decisions as soon as they are final.

    All decisions of one statement arrive in one call: all of them or none.
    """

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Receive the decisions of one committed statement."""


@attrs.define
class Recorder:
    """A sink that stores all decisions."""

    statements: list[tuple[Decision, ...]] = attrs.field(factory=list)

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Store the decisions of one statement."""
        self.statements.append(decisions)

    @property
    def decisions(self) -> list[Decision]:
        """All decisions in the order in which they were made."""
        return [decision for statement in self.statements for decision in statement]
