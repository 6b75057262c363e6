"""Extension points: what a plugin may answer, and how. One class for each.

A plugin is a frozen attrs class whose fields are its options. ``open`` looks at the session once and returns the
extensions that the plugin has in this cycle: instances of the classes here, with closures over what ``open`` prepared,
and terms. Every function in them takes rows and returns arrays or values; none changes anything. What a plugin does not
return costs nothing.

A plugin returns at most one of each class for the same ``concerns``. ``concerns`` [K] says for which shapes the
extension is asked (None: for all); pods of other shapes are placed without it, at full speed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from kai.facts.model.axis import (
    Bools,
    Float64s,
    GroupRow,
    GroupRows,
    Int64s,
    NodeRow,
    NodeRows,
    PodRow,
    PodRows,
    Scores,
    SubGroupRow,
)
from kai.facts.state.ledger import Tracked
from kai.framework.decisions import Cause
from kai.framework.fairness import Fairness
from kai.framework.scenario import Outer, Scenario
from kai.framework.terms import Term
from kai.framework.verdict import ACCEPTED, Verdict
from kai.framework.view import SessionView

if TYPE_CHECKING:
    from kai.facts.kernels.place import TransitionTable


class Dependence(IntEnum):
    """What an answer about nodes depends on. It decides how often the engine asks.

    SHAPE: labels, taints and the like; the engine asks once per shape and session. GROUP: the shape, and where the pods
    of the pod's own group are; the engine asks again when one of them was placed, and once for all pods that are alone
    in their groups. SESSION: anything, such as the room on a node or the places of other pods; the engine asks each
    time. The default is SESSION, which is safe.
    """

    SHAPE = 0
    SESSION = 1
    GROUP = 2


@attrs.frozen
class Effect:
    """One cell of a tracked column and what a placement adds to it."""

    column: Tracked
    index: int
    delta: int


class FilterNodes(Protocol):
    """Say which of ``nodes`` the pod may go to. Must not depend on the order of ``nodes``."""

    def __call__(self, pod: PodRow, nodes: NodeRows, /) -> Bools:
        """Return bool[n]."""


class ScoreNodes(Protocol):
    """Rate ``nodes`` for ``pod``; higher is better. Must not depend on the order of ``nodes``."""

    def __call__(self, pod: PodRow, nodes: NodeRows, /) -> Scores:
        """Return float64[n]; NaN takes a node out."""


class MustWait(Protocol):
    """Say where something that ``pod`` needs is still being released. Must not depend on the order of ``nodes``."""

    def __call__(self, pod: PodRow, nodes: NodeRows, /) -> Bools:
        """Return bool[n]."""


@attrs.frozen(kw_only=True)
class Partition:
    """Parts of a node set in the order in which they are to be tried, or why there is none.

    ``scores`` [N], if given, is added to node scores for the sub-group and everything below it; NaN takes a node out.
    """

    parts: Sequence[NodeRows] = ()
    scores: Float64s | None = None
    verdict: Verdict = ACCEPTED


@attrs.frozen(kw_only=True, eq=False)
class DomainTree:
    """The domains that a group of one leaf may be placed in, for kernels that try the first one.

    Domains are numbered depth by depth from 0, which holds all others; parents come before their children. Pods go into
    the finest domain that holds them all. Where several do, the domain whose parents come first by these rules goes
    first; of domains with one parent the tightest goes first, then the domain with the least number.
    """

    rows: NodeRows
    """[n] The nodes of the first domain, ascending."""
    domains: Int64s
    """[n] The finest domain of each of them."""
    parents: Int64s
    """[D] The domain above each one, -1 for the first."""
    start: Sequence[int]
    """The first domain of each depth, and at the end how many there are."""
    coarsest: int
    """The depth of the coarsest domains that may be tried."""
    ordered: int
    """The deepest depth at which tightness counts."""
    preferred: int = -1
    """The depth at which scores get ten steps, -1: none."""
    step: float = 0.0
    """The score of each of the ten steps."""
    required: bool = False
    """Pods go into coarsest domains where pods of their leaf are, once there are any."""


@attrs.frozen(kw_only=True)
class Together:
    """What a sub-group asks of where its pods are beside each other."""

    signature: str
    """Equal for sub-groups that ask for the same."""
    tree: str = ""
    """The name of the tree of domains that it asks for."""
    level: str = ""
    """The node label whose values name the domains; one domain must hold all its pods; "" if none must."""


class PartitionNodes(Protocol):
    """Split ``nodes`` for the ``pods`` of a sub-group that are about to be placed; None leaves them as they are."""

    def __call__(self, group: GroupRow, subgroup: SubGroupRow, pods: PodRows, nodes: NodeRows, /) -> Partition | None:
        """Return the parts in order."""


class Propose(Protocol):
    """Propose victims for the outer scenarios of a search."""

    def __call__(self, outers: Iterator[Outer], /) -> Iterator[Scenario]:
        """Yield scenarios, cheapest first."""


@attrs.frozen
class NodeFilter:
    """Keeps pods from nodes.

    ``filter`` says which nodes a pod may go to. ``explain`` returns a text for each of the nodes that it refused.
    ``signatures`` [K] are texts by shape. If the search for victims was in vain for one group, it leaves out other
    groups whose pods have equal texts and ask for the same. ``single`` [K] are the shapes whose nodes take no
    second pod; searches for victims leave out what could not serve such pods.
    """

    filter: FilterNodes
    depends: Dependence = attrs.field(default=Dependence.SESSION, kw_only=True)
    concerns: Bools | None = attrs.field(default=None, kw_only=True, eq=False)
    explain: Callable[[PodRow, NodeRows], Sequence[str]] | None = attrs.field(default=None, kw_only=True)
    signatures: Sequence[str] | None = attrs.field(default=None, kw_only=True, eq=False)
    single: Bools | None = attrs.field(default=None, kw_only=True, eq=False)


@attrs.frozen
class NodeScore:
    """Prefers nodes for a pod. Scores of all plugins and terms are added; the highest sum wins."""

    score: ScoreNodes
    depends: Dependence = attrs.field(default=Dependence.SESSION, kw_only=True)
    concerns: Bools | None = attrs.field(default=None, kw_only=True, eq=False)


@attrs.frozen
class PodFilter:
    """Refuses pods on every node. One message names the refusals of all plugins."""

    admit: Callable[[PodRow], Verdict]
    concerns: Bools | None = attrs.field(default=None, kw_only=True, eq=False)


@attrs.frozen
class NodeWait:
    """Lets a pod wait for a node that has room, because something that the plugin counts is still being released.

    There the pod is promised its place rather than given it. Such a node is no available one for the term
    ``Availability`` either, and allocate takes it only where the group does not start at once elsewhere.
    """

    must_wait: MustWait
    concerns: Bools | None = attrs.field(default=None, kw_only=True, eq=False)


@attrs.frozen
class PodOrder:
    """Orders the pods of a group: float64[n, k] for n pods, smaller first. Ties go by creation time, then uid."""

    keys: Callable[[PodRows], Float64s]


@attrs.frozen
class GroupOrder:
    """Orders the groups of a queue: float64[n, k] for n groups, smaller first. Plugins are asked in their order."""

    keys: Callable[[GroupRows], Float64s]


@attrs.frozen
class Domains:
    """Splits the nodes that a sub-group may use into parts, which are tried in their order.

    ``groups`` [G] says which groups may be split (None: any). ``tree`` says what ``partition`` goes by for a group of
    one leaf, if that is all: one answer for all groups with the same sub-groups. The engine then asks for parts only if
    the pods do not fit into the first. ``together`` says what a sub-group itself asks for: the search for victims and
    explanations know by it what no part can give.

    ``rules_out`` says whether the pods of a sub-group find no place in any part of these nodes or of fewer, whatever
    is free there: true only if that is certain. Searches ask before they simulate an eviction.
    """

    partition: PartitionNodes
    groups: Bools | None = attrs.field(default=None, kw_only=True, eq=False)
    tree: Callable[[GroupRow], DomainTree | None] | None = attrs.field(default=None, kw_only=True)
    together: Callable[[GroupRow, SubGroupRow], Together | None] | None = attrs.field(default=None, kw_only=True)
    rules_out: Callable[[GroupRow, SubGroupRow, PodRows, NodeRows], bool] | None = attrs.field(
        default=None, kw_only=True
    )


@runtime_checkable
class ShownDetail(Protocol):
    """A detail of a placement that answers show with the pod, as JSON fields."""

    def shown_fields(self) -> Mapping[str, object]:
        """Return the fields by name."""


@attrs.frozen(kw_only=True, eq=False)
class Taken:
    """What pods got that were placed in a batch.

    Shapes: n pods, m changes. ``details`` [n] are what ``choose`` would have returned for each. ``changes`` are the
    effects, lasting ones included, summed for each column: cells [m] and what is added to them [m].
    """

    details: Sequence[object]
    changes: Sequence[tuple[Tracked, Int64s, Int64s]] = ()


@attrs.frozen(kw_only=True, eq=False)
class Rates:
    """How a plugin rates nodes for pods of a batch. Shapes: A asks, N nodes."""

    scores: Float64s
    """[A, N] What ``score`` returns for each pod that ``count`` counted on the node."""
    ends: Bools
    """[A, N] Where the room ends because the rating changes then; elsewhere the node is full."""


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """How kernels place pods that ask for the same in one go, where counting says all about nodes beforehand.

    Shapes: K shapes, N nodes, A asks that differ, D cells of room for each ask; without ``domains``, D is N.

    For a shape with an ask, the engine asks none of the plugin's other functions before pods have their nodes. So there
    ``filter`` must let pass just the nodes with room; each placement must take one from the room of its node for its
    ask and from no other cell; ``admit`` must admit; ``must_wait`` must be False where there is room; ``credit`` must
    be 0; and in the books of the engine the effects of a placement must add up to nothing. For an ask that is
    ``measured``, ``credit`` must be one GPU, and the effects what ``parts`` say. Pods that would only be promised a
    place are asked about one by one.
    """

    ask: Int64s
    """[K] What pods of each shape ask for, -1: pods of the shape are asked about one by one."""
    room: Tracked
    """[A, D] A column for the engine, which fills it; it is spared that where the column begins as it is counted."""
    count: Callable[[], Int64s | None]
    """int64[A, D]: how many more pods with each ask each node takes now. It is called often: keep what is the same, and
    return the same array only while nothing in it changed.

    None where counting does not do: pods are then asked about one by one until the action ends.
    """
    take: Callable[[PodRows, NodeRows], Taken] | None = None
    """What pods of one ask got on their nodes, in the order in which they were placed since ``count`` was called.

    None: a placement has neither a detail nor effects.
    """
    rate: Callable[[], Rates] | None = None
    """How the plugin rates nodes, asked right after each ``count``; None: no pod with a ``NodeScore`` is in a batch."""
    domains: Int64s | None = None
    """[A, N] The cell of room from which each node takes; nodes with one cell share its room. None: one for each node.

    -1: the plugin does not count the node. Pods with the ask that may go there are asked about one by one.
    """
    refill: Int64s | None = None
    """[A] The room of the cells that have most: once no cell has as much, all get one more. 0 or None: they do not.

    All cells up to the last one that ``domains`` names count.
    """
    measured: Bools | None = None
    """[A] Asks for parts of a GPU: pods with one need no idle GPU, since their room says all. None: no ask is one."""
    parts: Callable[[], Int64s] | None = None
    """int64[A, N, C], asked right after each ``count``: thousandths of a GPU that a placement takes less than one.

    At c is what holds for the pod that leaves a room of c on the node. C is the same each time.
    """
    independent: bool = False
    """Whether nothing but pods with an ask changes the room for it. Then pods with other asks may be placed between."""


@attrs.frozen(kw_only=True, eq=False)
class Transitions:
    """What nodes take once pods are gone, as a table: kernels that search for victims look it up and ask no plugin.

    The state of a node is a number for all that the plugin's answers about it depend on. A holding is a number for the
    detail of a placement. A pod that leaves, or one more that comes, moves a node from state to state; a kernel follows
    that, and undoes it. ``kai.framework.kept.KeptTransitions`` makes this out of two functions of the plugin.

    Shapes: K shapes, N nodes, P pods. For a shape with an ask, the plugin must not make pods wait, refuse them whatever
    the node, or give credit; and effects must end with the eviction and add up to nothing in the books of the engine.
    """

    asks: Callable[[], Int64s]
    """int64[K]: what pods of each shape ask for, -1: the plugin is asked about each pod."""
    states: Tracked
    """[N] A column for the engine, which fills it."""
    holdings: Tracked
    """[P] The same; -1: not known."""
    read: Callable[[], Int64s | None]
    """int64[N]: the states of nodes now; None where there are too many states for tables."""
    held: Callable[[PodRows, Sequence[object]], Int64s]
    """int64[n]: what pods on nodes hold, given the details of their placements (None: what is on record)."""
    answer: "Callable[[Int64s], TransitionTable]"
    """The table with all known answers, those to questions [n, 2] as in its ``wanted`` among them."""
    details: Callable[[Int64s], Sequence[object]]
    """The details that holdings [n] stand for."""
    changes: Callable[[Int64s], Sequence[tuple[Tracked, Int64s, Int64s]]]
    """What changes in the plugin's columns if nodes pass into states [N]: column, cells [m], what is added [m]."""


@attrs.frozen(kw_only=True)
class Placement:
    """What a placement takes beside what the engine counts: devices of claims, NUMA zones, licences.

    Of all plugins one keeps each ``kind`` of detail; a second one that claims it is an error.
    """

    kind: str = ""
    """The kind of detail that ``choose`` makes; the plugin's name if it is left out."""
    choose: Callable[[PodRow, NodeRow], object | None] | None = None
    """A detail of the placement (zone, device); None refuses the node. Answers show the fields of a ``ShownDetail``.

    Details are compared with ``==``, so a detail is no array, and no bool: that would read as an answer to "may it?".
    """
    recorded: Callable[[PodRow], object | None] | None = None
    """The detail of a pod that stood somewhere when the session opened."""
    effects: Callable[[PodRow, NodeRow, object], Sequence[Effect]] | None = None
    """What a placement adds to tracked columns for as long as the pod holds its place; eviction takes it away again."""
    lasting_effects: Callable[[PodRow, NodeRow, object], Sequence[Effect]] | None = None
    """The same for as long as the pod is on the node at all, terminating included."""
    encode: Callable[[PodRow, NodeRow, object], Mapping[str, object]] | None = None
    """What the bind request says of a detail: fields of its spec, by their names on the wire.

    Values are as in JSON; ``Quantities`` and records of ``kai.framework.claims`` stand for their forms on the wire.
    """
    corrections: Sequence[Effect] = ()
    """What the plugin corrects in the books when the session opens; nothing undoes it."""
    credit: Callable[[PodRow, NodeRows], Int64s] | None = None
    """int64[2, n]: thousandths of a GPU that the pod needs less on each node, because what it asks for is taken there.

    Row 0 counts what pods use now, row 1 also what pods were only promised.
    """
    report: Callable[[], Mapping[int, Mapping[str, object]]] | None = None
    """What answers say about nodes, by row: fields by name, with values as in ``encode``."""
    batch: Batch | None = attrs.field(default=None, eq=False)
    """How pods that ask for the same are placed without a question about each; the decisions must be the same."""
    transitions: Transitions | None = attrs.field(default=None, eq=False)
    """How searches for victims go without a question about each pod; the decisions must be the same."""
    concerns: Bools | None = attrs.field(default=None, eq=False)


@attrs.frozen(kw_only=True)
class Victims:
    """Which groups may lose pods for which others."""

    queues: Callable[[GroupRow, Cause], Bools | None] | None = None
    """bool[Q]: the queues whose groups may be victims; None: all. With a mask, groups without a queue are none."""
    groups: Callable[[GroupRow, GroupRows, Cause], Bools] | None = None
    """bool[n]: which of the groups may be victims."""
    hopeless: Callable[[GroupRow, PodRows, GroupRows, Cause], bool] | None = None
    """Whether no search among these groups can help the group to place these pods: true only if that is certain."""
    in_vain: Callable[[PodRows, PodRows], bool] | None = None
    """Whether some of the first pods finds no node even if all of the second go: true only if that is certain.

    Searches ask about all pods that they may take and about each set of victims, and spare themselves the simulation.
    """
    may_reclaim: Callable[[GroupRow, Float64s], Verdict] | None = None
    """Whether a group that wants the amounts [3] may take from other queues at all. One plugin answers this."""
    before_search: Callable[[GroupRow, Cause], None] | None = None
    """Called when a search for victims begins, before anything is evicted: the time to remember what usage was."""
    accept: Callable[[Scenario, Cause], Verdict] | None = None
    """Whether the victims of a scenario, as it ended in simulation, may be taken."""
    accepts_by_victims: bool = False
    """Whether ``accept`` looks at the victims of a scenario alone, not at which of them were known before."""
    fairness: Fairness | None = None
    """What ``kai.framework.fairness`` judges with, if for reclaim ``queues``, ``may_reclaim``, ``before_search`` and
    ``accept`` are its rules and nothing else, and ``groups`` is left out: searches may then ask the rules instead."""


@attrs.frozen
class VictimProposals:
    """Proposes victims out of an outer scenario, cheapest first."""

    propose: Propose
    name: str = attrs.field(default="", kw_only=True)
    """Name of the generator, for budgets and reports; the plugin's name if it is left out."""
    begins_with_recorded: bool = attrs.field(default=False, kw_only=True)
    """Whether, if the first outer scenario has recorded victims alone, these are the first scenario proposed."""
    proposes_by_node: bool = attrs.field(default=False, kw_only=True)
    """Whether, with no recorded victims, the first scenario is this: all batches of groups that would lose a pod on the
    first node, by name, of the group that was added last."""
    only_by_node: bool = attrs.field(default=False, kw_only=True)
    """Whether every scenario with new victims has those, and no others, of one node of the group that was added last.

    Then searches leave out outer scenarios where the victims of no such node can serve."""


Extension = (
    NodeFilter
    | NodeScore
    | PodFilter
    | NodeWait
    | PodOrder
    | GroupOrder
    | Domains
    | Placement
    | Victims
    | VictimProposals
    | Term
)
"""What ``open`` may return instances of."""


class OnFailure(StrEnum):
    """What happens at each failure of a hook, once its plugin and not a group is known to be the cause."""

    STOP = "stop"
    """The cycle ends there: nothing more is decided in it."""
    REFUSE = "refuse"
    """The engine refuses what the hook fails at, and makes no decision that needs its answer."""
    LEAVE_OUT = "leave-out"
    """The cycle goes on as if the plugin had no opinion."""


class Plugin(Protocol):
    """What an entry point of ``kai.plugins`` must be: a frozen attrs class with this one method.

    A class variable ``reads``, a tuple of ``Objects``, names the kinds of objects that it reads besides those of kai.
    """

    def open(self, session: SessionView, /) -> Sequence[Extension]:
        """Look at the session once; return the extensions that the plugin has in this cycle."""


@attrs.frozen(kw_only=True)
class PluginUse:
    """A plugin with the name under which the configuration asked for it.

    ``origin`` names the distribution that it comes from, with its version, for messages; "" if that is not known.
    """

    name: str
    plugin: Plugin
    origin: str = ""
    on_failure: OnFailure | None = None
    """What the configuration wants for all hooks; None: what is usual for each extension point."""
    failing: Mapping[str, OnFailure] = attrs.field(factory=dict)
    """Hooks that are known to fail, and what becomes of their answers; any other failure ends the cycle."""
