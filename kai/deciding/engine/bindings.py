"""Bind decisions, made for many pods at a time, and the details that plugins attach to placements.

A bind names the devices and portions that a pod receives, and the fields that plugins add to its request.

``Details`` keeps what plugins chose for placements besides the node. A detail belongs to a placement, not to a pod:
when a statement is undone, its placements and their details go together.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np

from kai.basics.errors import PluginError
from kai.deciding.engine.opened import OpenedPlugin
from kai.deciding.engine.world import World
from kai.facts.kernels import booking, columns
from kai.facts.kernels.place import TransitionTable
from kai.facts.model.axis import GPU, GPU_UNIT, Bools, Float64s, Int64s, NodeRow, PodRow, PodRows
from kai.facts.model.pod import GpuKind
from kai.facts.state.facts import named_slots
from kai.facts.state.ledger import Tracked
from kai.framework.decisions import Bind
from kai.framework.hooks import Batch, Transitions


class Details:
    """The plugins' details of placements, by kind: the plugin's name, or another name that it gives."""

    def __init__(self, world: World) -> None:
        """Begin without details; details on record are read from plugins on demand."""
        self._world = world
        self._chosen: dict[int, dict[str, object]] = {}

    def attach(self, pod: int, details: dict[str, object]) -> None:
        """Store ``details`` with the placement that ``pod`` just got."""
        world = self._world
        placement = int(world.columns.placement[pod])
        # 0 is no placement: without a number of its own the detail could not be undone with it.
        if placement == 0:
            placement = booking.new_placement(world.columns, world.ledger.offsets)
            columns.add(world.columns, world.ledger.offsets.placement + pod, placement)
        self._chosen[placement] = details

    def attach_all(self, pods: Int64s, kind: str, details: Sequence[object]) -> None:
        """Store the detail of one ``kind`` with the placement that each of ``pods`` just got."""
        self._world.ledger.reserve(len(pods))
        for pod, detail in zip(pods.tolist(), details, strict=True):
            self.attach(pod, {kind: detail})

    def forget_undone(self) -> None:
        """Drop the details of placements that were undone, because later placements reuse their numbers."""
        chosen = self._chosen
        if not chosen:
            return
        made = int(self._world.columns.counters[1])
        # Placements are numbered in order of creation, so the undone ones are the last.
        while chosen and next(reversed(chosen)) > made:
            chosen.popitem()

    def of(self, pod: int) -> Mapping[str, object]:
        """Return the details of the placement of ``pod`` by kind; empty if the placement is older than this cycle."""
        return self._chosen.get(int(self._world.columns.placement[pod]), {})

    def any_of(self, placements: Int64s) -> Bools:
        """Return bool[n]: which of ``placements`` have details."""
        if not self._chosen:
            return np.zeros(len(placements), np.bool_)
        return np.array([placement in self._chosen for placement in placements.tolist()], np.bool_)

    def of_eviction(self, pod: int) -> Mapping[str, object]:
        """Return the details of the placement that the open statement took from ``pod``."""
        world = self._world
        known = self._chosen.get(int(world.columns.evicted_placement[pod]))
        if known is not None:
            return known
        recorded: dict[str, object] = {}
        for plugin in world.policy.asking(int(world.facts.pods.shape[pod])):
            if plugin.placement is not None and plugin.placement.recorded is not None:
                recorded[plugin.kind] = plugin.placement.recorded(PodRow(pod))
        return recorded

    def of_pods(self) -> dict[int, dict[str, object]]:
        """Return the details of all pods that have any, by pod, chosen in this cycle or on record."""
        world = self._world
        # A shape whose nodes plugins only filter and rate has no details, neither on record nor chosen.
        asked = world.policy.dynamic & ~world.policy.scored
        pods = np.flatnonzero(asked[world.facts.pods.shape]) if asked.any() else ()
        found = {int(pod): {**self._recorded(int(pod)), **self.of(int(pod))} for pod in pods}
        return {pod: details for pod, details in found.items() if details}

    def of_nodes(self) -> dict[int, dict[str, object]]:
        """Return the plugins' reports about nodes, by node and plugin."""
        out: dict[int, dict[str, object]] = {}
        for plugin in self._world.policy.plugins:
            if plugin.placement is not None and plugin.placement.report is not None:
                for node, detail in plugin.placement.report().items():
                    out.setdefault(node, {})[plugin.kind] = detail
        return out

    def _recorded(self, pod: int) -> dict[str, object]:
        """Return the details on record for a pod that is still on the node where it was when the session opened."""
        world = self._world
        if world.snapshot.pod_node[pod] < 0 or world.columns.node[pod] != world.snapshot.pod_node[pod]:
            return {}
        found: dict[str, object] = {}
        for plugin in world.policy.asking(int(world.facts.pods.shape[pod])):
            if plugin.placement is not None and plugin.placement.recorded is not None:
                detail = plugin.placement.recorded(PodRow(pod))
                if detail is not None:
                    found[plugin.kind] = detail
        return found


@attrs.frozen(kw_only=True)
class Room:
    """Where a plugin counts how many more pods of a shape nodes take, and how that changes."""

    start: int = -1
    """The first cell of the arena, -1: no room is counted."""
    size: int = 0
    domain: int = -1
    """The row of ``Batches.domains`` that says which cell a node takes from, -1: each node has its own."""
    refill: int = 0
    independent: bool = False
    part: int = -1
    """The first row of ``Batches.parts``, -1: pods take of GPUs what they request."""


class Batches:
    """Pods that kernels place by counts of plugins, which say afterwards what each pod got.

    While kernels run, the ledger has the engine's part of such placements and the room that they took. Before anything
    in Python looks at it again, ``complete`` asks plugins for the rest: details, and what they add to their columns.
    """

    def __init__(self, world: World, details: Details) -> None:
        """Begin without room; ``count`` fills it in."""
        self._world, self._details = world, details
        policy = world.policy
        self._owners: dict[int, Batch] = {
            at: plugin.placement.batch
            for at, plugin in enumerate(policy.plugins)
            if plugin.placement is not None and plugin.placement.batch is not None and (policy.batching == at).any()
        }
        self.of_shape: Bools = np.isin(policy.batching, [*self._owners])
        """bool[K]: the shapes of such pods."""
        nodes, self._first, self._first_domain = len(world.all_nodes), dict[int, int](), dict[int, int]()
        total, tables = 0, list[Int64s]()
        for at, batch in self._owners.items():
            if batch.rate is not None:
                self._first[at] = total
                total += len(batch.room.initial)
            if batch.domains is not None:
                self._first_domain[at] = sum(map(len, tables))
                tables.append(batch.domains)
        self.domains: Int64s = np.concatenate([np.zeros((0, nodes), np.int64), *tables])
        """[B, N] The cell of room that each node takes from, by ask; -1: pods go there one by one."""
        self._counted: dict[int, Int64s] = {}
        self._first_part = dict[int, int]()
        self.measured: Bools = np.zeros(len(policy.batching), np.bool_)
        """[K] Shapes whose pods take parts of GPUs."""
        self.parts: Int64s = self._measure()
        """[A * N, C] What the pod that leaves a room of c takes less of a GPU than one, in thousandths."""
        self.ratings: Float64s = np.zeros((total, nodes), np.float64)
        """[A, N] How plugins rate nodes for the pods that they counted room for."""
        self.ends: Bools = np.zeros((total, nodes), np.bool_)
        """[A, N] Where the room ends because the rating changes."""
        self.rerated: Bools = np.ones(total, np.bool_)
        """[A] Whose ratings are other ones since the count before."""

    def room_of(self, shape: int) -> Room:
        """Return where room for pods of ``shape`` is counted, and how."""
        owner = int(self._world.policy.batching[shape])
        batch = self._owners.get(owner)
        if batch is None:
            return Room()
        ask, cells = int(batch.ask[shape]), batch.room.initial.shape[1]
        domain = self._first_domain[owner] + ask if owner in self._first_domain else -1
        return Room(
            start=batch.room.offset + ask * cells,
            size=cells if domain < 0 else int(self.domains[domain].max(initial=-1)) + 1,
            domain=domain,
            refill=0 if batch.refill is None else int(batch.refill[ask]),
            independent=batch.independent,
            part=self._first_part[owner] + ask * len(self._world.all_nodes) if self.measured[shape] else -1,
        )

    def _measure(self) -> Int64s:
        """Find the shapes whose pods take parts of GPUs, and return what these take."""
        tables: list[Int64s] = []
        for at, batch in self._owners.items():
            if batch.measured is None or batch.parts is None:
                continue
            self.measured |= (self._world.policy.batching == at) & batch.measured[batch.ask]
            found = batch.parts()
            self._first_part[at] = sum(map(len, tables))
            tables.append(found.reshape(-1, found.shape[-1]))
        width = max((table.shape[1] for table in tables), default=1)
        out = np.zeros((sum(map(len, tables)), width), np.int64)
        at = 0
        for table in tables:
            out[at : at + len(table), : table.shape[1]] = table
            at += len(table)
        return out

    def _measure_again(self, owner: int, batch: Batch) -> None:
        if owner in self._first_part and batch.parts is not None:
            found = batch.parts()
            first = self._first_part[owner]
            rows = found.shape[0] * found.shape[1]
            self.parts[first : first + rows, : found.shape[2]] = found.reshape(rows, -1)

    def is_counted(self, shape: int, mask: Bools) -> bool:
        """Return whether the plugin counts each node in ``mask`` [N] for pods of ``shape``."""
        domain = self.room_of(shape).domain
        return domain < 0 or not (mask & (self.domains[domain] < 0)).any()

    def rating_of(self, shape: int) -> int:
        """Return the row of ``ratings`` that counts for pods of ``shape``, -1 if their plugin rates no nodes."""
        owner = int(self._world.policy.batching[shape])
        return self._first[owner] + int(self._owners[owner].ask[shape]) if owner in self._first else -1

    def count(self) -> bool:
        """Bring room and ratings of nodes up to date, and note where they changed; False if a plugin cannot count.

        Cost: O(asks x nodes).
        """
        world = self._world
        for at, batch in self._owners.items():
            counted = batch.count()
            if counted is None:
                return False
            if counted is self._counted.get(at) and batch.rate is None:
                continue
            self._counted[at] = counted
            if counted.shape != batch.room.values.shape:
                message = f"returned int64{[*counted.shape]}, expected int64{[*batch.room.values.shape]}"
                raise PluginError(message, plugin=world.policy.plugins[at].name, hook="Batch.count")
            more = counted - batch.room.values
            changed = np.flatnonzero(more)
            if len(changed):
                world.ledger.add_cells(np.stack([batch.room.offset + changed, more.ravel()[changed]], axis=1))
            touched = self._nodes_at(at, more != 0)
            self._measure_again(at, batch)
            if at in self._first:
                touched = np.union1d(touched, self._rate(at, batch))
            for node in touched.tolist():
                columns.touch(world.ledger.columns, node)
        if self._owners:
            world.ledger.seal()
        return True

    def _nodes_at(self, owner: int, cells: Bools) -> Int64s:
        """Return the nodes that take from some of ``cells`` [A, D]."""
        if owner not in self._first_domain:
            return np.flatnonzero(cells.any(axis=0))
        first = self._first_domain[owner]
        domains = self.domains[first : first + len(cells)]
        return np.flatnonzero(((domains >= 0) & np.take_along_axis(cells, domains, axis=1)).any(axis=0))

    def _rate(self, owner: int, batch: Batch) -> Int64s:
        """Bring the ratings of one plugin up to date; return the nodes where they changed."""
        if batch.rate is None:
            return np.zeros(0, np.int64)
        asks, found = len(batch.room.initial), batch.rate()
        if len(found.scores) != asks:
            message = f"returned float64{[*found.scores.shape]}, expected a row for each of {asks} asks"
            raise PluginError(message, plugin=self._world.policy.plugins[owner].name, hook="Batch.rate")
        mine = slice(self._first[owner], self._first[owner] + asks)
        other = self.ratings[mine] != found.scores
        self.rerated[mine] |= other.any(axis=1)
        self.ratings[mine], self.ends[mine] = found.scores, found.ends
        changed: Int64s = np.flatnonzero(other.any(axis=0))
        return changed

    def complete(self, pods: Int64s) -> None:
        """Ask plugins what ``pods`` got, which were placed in this order and are final; details and effects follow."""
        world = self._world
        shapes = world.facts.pods.shape[pods]
        if not self.of_shape[shapes].any():
            return
        for at, batch in self._owners.items():
            mine = pods[world.policy.batching[shapes] == at]
            if not len(mine) or batch.take is None:
                continue
            taken = batch.take(mine, world.columns.node[mine])
            kind = world.policy.plugins[at].kind
            self._details.attach_all(mine, kind, taken.details)
            world.ledger.add_cells(_cells(taken.changes))
        world.ledger.seal()


def _cells(changes: Iterable[tuple[Tracked, Int64s, Int64s]]) -> Int64s:
    tables = [np.stack([column.offset + cells, amounts], axis=1) for column, cells, amounts in changes]
    return np.concatenate([np.zeros((0, 2), np.int64), *tables])


class Foreseen:
    """A plugin's table of what nodes take once pods are gone, for kernels that evict and promise.

    While a kernel runs, it follows states of nodes and holdings of pods, which a ledger undoes like all else. Before
    anything in Python looks at the ledger again, ``complete`` brings details and the plugin's columns up to date.
    """

    def __init__(self, world: World, details: Details, plugin: OpenedPlugin, source: Transitions, ask: Int64s) -> None:
        """Begin with no state known; ``ask`` [K] is what pods of each shape ask the plugin for, -1: nothing."""
        self._world, self._details, self._kind = world, details, plugin.kind
        self._source = source
        self.ask = ask
        self._seen = np.full(len(world.columns.placement), -1, np.int64)
        """[P] The placements of pods when their holdings were read last."""

    def begin(self) -> TransitionTable | None:
        """Read the states of nodes and the holdings of pods, and return the table; None if there are too many."""
        source, columns = self._source, self._world.columns
        states = source.read()
        if states is None:
            return None
        asks = (self.ask[self._world.facts.pods.shape] >= 0) & (columns.node >= 0)
        rows = np.flatnonzero(asks & (columns.placement != self._seen))
        self._seen[rows] = columns.placement[rows]
        details = [self._details.of(pod).get(self._kind) for pod in rows.tolist()]
        held = source.held(rows, details) - source.holdings.values[rows]
        nodes = self._world.all_nodes
        self._add([(source.states, nodes, states - source.states.values), (source.holdings, rows, held)])
        return self.answer(np.zeros((0, 2), np.int64))

    def answer(self, questions: Int64s) -> TransitionTable:
        """Return the table with answers to ``questions`` [n, 2]."""
        return self._source.answer(questions).replace(ask=self.ask)

    def complete(self, pods: PodRows) -> None:
        """Give the plugin's details to those of ``pods`` that got places, all of it final, and change its columns."""
        source = self._source
        mine = pods[self.ask[self._world.facts.pods.shape[pods]] >= 0]
        self._details.attach_all(mine, self._kind, source.details(source.holdings.values[mine]))
        self._seen[mine] = self._world.columns.placement[mine]
        self._add(source.changes(source.states.values))

    def _add(self, changes: Iterable[tuple[Tracked, Int64s, Int64s]]) -> None:
        cells = _cells(changes)
        self._world.ledger.add_cells(cells[cells[:, 1] != 0])
        self._world.ledger.seal()


FRACTION = "Fraction"


class Bindings:
    """Makes the bind decisions of one world. What is the same for all pods of a shape is computed once."""

    def __init__(self, world: World, details: Details, slot_names: tuple[str, ...]) -> None:
        """Begin with an empty cache; ``slot_names`` [S] is empty for devices that no pod shares yet."""
        self._world = world
        self._details = details
        self._opening_names = slot_names
        self._of_shape: dict[int, tuple[str, int, float | None]] = {}

    def of(self, pods: Int64s) -> list[Bind]:
        """Return decisions to bind ``pods`` where the ledger has them. Cost: a tenth of a microsecond for each."""
        world = self._world
        # The plain path commits few pods at a time, and arrays of one cost more than the decision.
        if len(pods) == 1 and (alone := self._of_one(int(pods[0]))) is not None:
            return [alone]
        columns, shapes = world.columns, world.facts.pods.shape[pods]
        rows, nodes = pods.tolist(), columns.node[pods].tolist()
        placements = columns.placement[pods]
        distinct = np.unique(shapes).tolist()
        granted = {shape: self._grant(shape) for shape in distinct}
        # Placement 0 is that of pods that share no device and have no details: most pods of most clusters.
        if not placements.any():
            if len(distinct) == 1:
                received, count, _ = granted[distinct[0]]
                return [
                    Bind(pod=pod, node=node, received=received, gpu_count=count)
                    for pod, node in zip(rows, nodes, strict=True)
                ]
            return [
                Bind(pod=pod, node=node, received=grant[0], gpu_count=grant[1])
                for pod, node, grant in zip(rows, nodes, map(granted.__getitem__, shapes.tolist()), strict=True)
            ]
        full = self._details.any_of(placements)
        devices = self.names_at(placements)
        out: list[Bind] = []
        for pod, node, shape, names, special in zip(rows, nodes, shapes.tolist(), devices, full.tolist(), strict=True):
            received, count, portion = granted[shape]
            if special:
                out.append(self._in_full(pod, node, shape, names))
            elif received != FRACTION:
                out.append(Bind(pod=pod, node=node, received=received, gpu_count=count))
            else:
                part = self._portion(shape, node) if portion is None else portion
                out.append(
                    Bind(pod=pod, node=node, devices=names, received=received, gpu_count=count, gpu_portion=part)
                )
        return out

    def _of_one(self, pod: int) -> Bind | None:
        """Return the decision for one pod, without arrays; None for a pod that has parts of devices."""
        world = self._world
        shape, node = int(world.facts.pods.shape[pod]), int(world.columns.node[pod])
        received, count, _ = self._grant(shape)
        if received == FRACTION:
            return None
        if self._details.of(pod):
            return self._in_full(pod, node, shape, ())
        return Bind(pod=pod, node=node, received=received, gpu_count=count)

    def names_of(self, pod: int) -> tuple[str, ...]:
        """Return the names of the shared devices of ``pod``; ``+node/n``: one that this cycle opens for sharing."""
        if not self._world.columns.placement[pod]:
            return ()
        return self.devices_of(np.array([pod], np.int64))[0]

    def devices_of(self, pods: Int64s) -> list[tuple[str, ...]]:
        """Return the names of the shared devices of each pod; ``+node/n``: one that this cycle opens for sharing."""
        return self.names_at(self._world.columns.placement[pods])

    def names_at(self, placements: Int64s) -> list[tuple[str, ...]]:
        """Return the names of the shared devices of each of ``placements``."""
        slots = self._world.columns.placement_slots[placements]
        width = int((slots >= 0).sum(axis=1).max(initial=0))
        if not width:
            return [()] * len(placements)
        self._name(slots[slots >= 0])
        if width == 1:
            return [*map(self._one_name.__getitem__, slots[:, 0].tolist())]
        # The slots of a placement come first in its row; the rest of the row is -1.
        names = self._one_name
        return [tuple([name for slot in row for name in names[slot]]) for row in slots[:, :width].tolist()]

    @cached_property
    def _one_name(self) -> list[tuple[str, ...]]:
        """The name of each slot [S] in a tuple; the last entry, at row -1, is an empty tuple for "no slot"."""
        names = self._opening_names

        def ones() -> tuple[tuple[str, ...], ...]:
            return (*((name,) for name in names), ())

        return list(self._world.snapshot.memory.once("names of slots", (names,), ones))

    @cached_property
    def _named(self) -> Bools:
        """bool[S]: slots that have a name."""
        return named_slots(self._world.snapshot.memory, self._opening_names).copy()

    def _name(self, slots: Int64s) -> None:
        """Name the slots among ``slots`` that have no name yet."""
        # On demand: a cluster has far more devices than a cycle opens for sharing.
        fresh = np.unique(slots[~self._named[slots]])
        if not len(fresh):
            return
        nodes, start = self._world.snapshot.nodes, self._world.facts.nodes.slot_start
        of_slot = np.searchsorted(start, fresh, side="right") - 1
        numbers = fresh - start[of_slot]
        for slot, node, number in zip(fresh.tolist(), of_slot.tolist(), numbers.tolist(), strict=True):
            self._one_name[slot] = (f"+{nodes[node].name}/{number}",)
        self._named[fresh] = True

    def _portion(self, shape: int, node: int) -> float:
        return booking.portion_on_node(self._world.facts, shape, node) / 100

    def _in_full(self, pod: int, node: int, shape: int, devices: tuple[str, ...]) -> Bind:
        """Return the bind decision with the request fields of all plugins that chose a detail."""
        received, count, portion = self._grant(shape)
        details = self._details.of(pod)
        request: dict[str, object] = {}
        for plugin in self._world.policy.asking(shape):
            if plugin.placement is not None and plugin.placement.encode is not None and plugin.kind in details:
                request |= plugin.placement.encode(PodRow(pod), NodeRow(node), details[plugin.kind])
        return Bind(
            pod=pod,
            node=node,
            devices=devices if received == FRACTION else (),
            received=received,
            gpu_count=count,
            gpu_portion=self._portion(shape, node) if portion is None else portion,
            request=request,
        )

    def _grant(self, shape: int) -> tuple[str, int, float | None]:
        """Return what pods of ``shape`` receive: kind, device count, portion of each (None: depends on the node)."""
        known = self._of_shape.get(shape)
        if known is None:
            gpu = self._world.snapshot.shapes[shape].gpu
            if gpu.shared:
                known = (FRACTION, gpu.devices, None if gpu.kind is GpuKind.MEMORY else gpu.portion)
            else:
                count = int(self._world.facts.shapes.request[shape, GPU]) // GPU_UNIT
                known = ("" if gpu.kind is GpuKind.NONE else "Regular", count, 1.0)
            self._of_shape[shape] = known
        return known
