"""The window that plugins look through at the world of a cycle.

What it shows cannot be written. Structs are locked anew when the world has others: facts when shares are known, columns
when logs grow.
"""

from functools import cached_property

from kai.engine.details import Details
from kai.engine.portion import Portions
from kai.engine.world import World
from kai.framework.parameters import Parameters
from kai.framework.view import SessionView
from kai.kernels.columns import Columns, Facts
from kai.kernels.fit import Rules, Vectors
from kai.model.rows import Bools, Float64s, GroupRow, GroupRows, Int64s, NodeRow, NodeRows, PodRow, locked
from kai.state.ledger import Tracked
from kai.state.snapshot import Snapshot


class WorldView(SessionView):
    """What a world shows to plugins."""

    def __init__(self, world: World, details: Details, portions: Portions) -> None:
        """Look at ``world``."""
        self._world = world
        self._details = details
        self._portions = portions
        self._facts, self._facts_of = world.facts.locked(), world.facts
        self._columns, self._columns_of = world.columns.locked(), world.columns
        self._vectors: tuple[Vectors, Vectors] | None = None
        self._nodes = locked(world.all_nodes)
        self._requested = locked(world.requested)
        self._constrained = locked(world.constrained)
        self._groups_by_age = locked(world.base.group_order)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The facts of the cycle."""
        return self._world.snapshot.locked()

    @property
    def parameters(self) -> Parameters:
        """Settings of the scheduler."""
        return self._world.parameters

    @property
    def now(self) -> float:
        """The instant of the cycle; reading it is noted."""
        return self._world.clock.read()

    def is_past(self, deadline: float) -> bool:
        """Return whether ``deadline`` has come, and note that it was asked about."""
        return self._world.clock.is_past(deadline)

    def are_past(self, deadlines: Float64s) -> Bools:
        """Say which of ``deadlines`` have come, and note that they were asked about."""
        return self._world.clock.are_past(deadlines)

    @property
    def facts(self) -> Facts:
        """The tables that kernels read."""
        facts = self._world.facts
        if facts is not self._facts_of:
            self._facts, self._facts_of = facts.locked(), facts
        return self._facts

    @property
    def columns(self) -> Columns:
        """The live columns."""
        columns = self._world.columns
        if columns is not self._columns_of:
            self._columns, self._columns_of = columns.locked(), columns
        return self._columns

    @property
    def rules(self) -> Rules:
        """The folded score terms and checks."""
        return self._world.policy.rules

    @property
    def vectors(self) -> Vectors:
        """The static masks and scores."""
        vectors = self._world.policy.vectors
        if self._vectors is None or self._vectors[0] is not vectors:
            self._vectors = (vectors, vectors.locked())
        return self._vectors[1]

    @property
    def nodes(self) -> NodeRows:
        """All node rows."""
        return self._nodes

    @property
    def requested(self) -> Float64s:
        """What one pod of each shape is taken to want."""
        return self._requested

    @property
    def last_start(self) -> Float64s:
        """When each group last started."""
        started = self._world.last_start  # mostly the snapshot's own, which nothing can write
        return locked(started) if started.flags.writeable else started

    @property
    def groups_by_age(self) -> GroupRows:
        """All group rows, oldest first."""
        return self._groups_by_age

    @property
    def constrained_groups(self) -> Bools:
        """Groups of which some sub-group says where its pods are together."""
        return self._constrained

    def track(self, initial: Int64s) -> Tracked:
        """Register a column."""
        return self._world.track(initial)

    def engine_column(self, name: str) -> Tracked:
        """Return a column of the engine by name."""
        return self._world.engine_column(name)

    def has_column(self, column: Tracked) -> bool:
        """Say whether a column is of this session."""
        return self._world.has_column(column)

    def evicted_detail(self, pod: PodRow, node: NodeRow, kind: str) -> object | None:
        """Return the detail of the place that the open statement took."""
        columns = self._world.columns
        if not columns.evicted_status[pod] or columns.evicted_node[pod] != node:
            return None
        return self._details.of_eviction(int(pod)).get(kind)

    def chunk_amounts(self, group: GroupRow) -> Float64s:
        """Return what the next attempt on ``group`` would place."""
        return self._portions.of(int(group)).amounts()
