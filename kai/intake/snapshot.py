"""Taking a snapshot: objects in, rows and columns out.

What follows from one object alone is remembered by the object's identity (``kai.intake.shelf``): pods in ``pods``,
``requests`` and ``traits``, nodes in ``nodes``, groups in ``groups``. What follows from several objects is settled when
one of them changed: which pods belong to which group in ``membership``, what neighbours mean for a pod's shape in
``neighbours`` and ``shapes``, and where pods stand under the bind requests and the clock of the moment in ``standing``.
"""

from collections.abc import Iterable, Mapping
from math import inf

import attrs

from kai.api import node as api_node
from kai.api import numa as api_numa
from kai.api import pod as api_pod
from kai.api import podgroup as api_podgroup
from kai.api.objects import ClusterObjects
from kai.intake.binding import assumed_claims, live_bind_requests
from kai.intake.catalog import Library, read_library, read_topologies
from kai.intake.groups import GroupCell, GroupReader, GroupSurroundings, priorities
from kai.intake.membership import Places
from kai.intake.neighbours import Neighbours, neighbours_of
from kai.intake.nodes import NodeCell, NodeReader
from kai.intake.nodes import settle as settle_nodes
from kai.intake.numa import NumaCell, read_numa
from kai.intake.pods import PodCell, PodReader
from kai.intake.queues import read_queues
from kai.intake.settings import IntakeSettings
from kai.intake.shapes import ShapeTable
from kai.intake.shelf import Shelf, in_order
from kai.intake.standing import BaseColumns, Standing, read_base, read_records, read_standing
from kai.model.axis import ResourceAxis
from kai.model.catalog import Catalog
from kai.model.node import Node
from kai.model.pod import Shape
from kai.model.queue import Queue, Shares
from kai.model.rows import Int64s
from kai.state.memory import Memory
from kai.state.snapshot import Snapshot

_MANY = 1 << 16
_NO_USAGE: Mapping[str, Shares] = {}
_FIELDS = tuple(field.name for field in attrs.fields(ClusterObjects))
_MARGIN = 1e-3
"""Seconds; an instant is looked at that much early again, so that no rounding can hide it."""


def take_snapshot(
    objects: ClusterObjects,
    now: float,
    settings: IntakeSettings | None = None,
    *,
    usage: Mapping[str, Shares] = _NO_USAGE,
) -> Snapshot:
    """Return the snapshot of a cluster at ``now`` (seconds since the epoch), whatever the order of its objects.

    Raises: InputError for two objects of one kind and name.
    """
    return Intake(settings).take(objects, now, usage=usage)


@attrs.frozen
class _Taken:
    """The last snapshot, and of what it was taken."""

    objects: ClusterObjects
    usage: Mapping[str, Shares]
    snapshot: Snapshot
    until: float
    """When a pod that is leaving counts as stuck, if nothing happens before."""

    def holds(self, objects: ClusterObjects, now: float, usage: Mapping[str, Shares]) -> bool:
        """Say whether a snapshot of ``objects`` at ``now`` would hold the same facts."""
        if not self.snapshot.now <= now < self.until or usage != self.usage:
            return False
        mine = self.objects
        return objects is mine or all(getattr(objects, each) is getattr(mine, each) for each in _FIELDS)


class Intake:
    """Takes one snapshot after another and pays in full only for objects that it did not see the last time.

    Holds: the same objects make the same snapshot, whatever was taken before.
    """

    def __init__(self, settings: IntakeSettings | None = None) -> None:
        self._settings = settings or IntakeSettings()
        self._forget()

    def _forget(self) -> None:
        self._places = Places()
        self._shapes = ShapeTable()
        self._nodes: Shelf[api_node.Node, NodeCell] = Shelf()
        self._groups: Shelf[api_podgroup.PodGroup, GroupCell] = Shelf()
        self._group_reader = GroupReader(self._settings, GroupSurroundings({}, {}, 0, {}), self._places)
        self._pods: Shelf[api_pod.Pod, PodCell] = Shelf()
        self._pod_reader = PodReader(self._settings, self._places)
        self._zones: Shelf[api_numa.NodeResourceTopology, NumaCell] = Shelf()
        self._library: Library | None = None
        self._neighbours: Neighbours | None = None
        self._base: BaseColumns | None = None
        """None when something that it is made of changed."""
        self._memory = Memory()
        self._last: _Taken | None = None

    def take(
        self,
        objects: ClusterObjects,
        now: float,
        *,
        usage: Mapping[str, Shares] = _NO_USAGE,
        revision: int = 0,
    ) -> Snapshot:
        """Return the snapshot of ``objects`` at ``now``; ``usage`` is the past usage of queues, as shares of it.

        Raises: InputError for two objects of one kind and name.
        """
        last = self._last
        if last is not None and last.holds(objects, now, usage):
            return last.snapshot.at(now, revision)
        self._last = None  # lest a failure leave a snapshot that is not what the shelves hold
        if self._shapes.overgrown or len(self._places) > _MANY + 4 * (len(objects.pods) + len(objects.pod_groups)):
            self._forget()  # most of what was interned belongs to pods of the past
        queues = read_queues(in_order(objects.queues), self._settings, usage)
        self._put(objects, queues)
        library = self._library = read_library(objects, self._settings, self._library)
        nodes = self._settle_nodes(library)
        groups = [cell for cell in self._groups.cells if cell.group is not None]
        shapes, pod_shape = self._settle_shapes(library)
        node_rows = {node.name: row for row, node in enumerate(nodes)}
        if self._base is None:
            self._places.settle(groups)
            self._base = read_base(self._pods.cells, node_rows)
        base = self._base
        requests = live_bind_requests(objects.bind_requests, node_rows, self._settings)
        patience = self._settings.stuck_in_releasing_seconds
        standing = read_standing(base, node_rows, requests, stuck_before=now - patience)
        snapshot = Snapshot(
            now=now,
            axis=_axis(nodes, shapes),
            nodes=nodes,
            pods=standing.pods,
            shapes=shapes,
            groups=tuple([cell.group for cell in groups if cell.group is not None]),
            queues=queues,
            topologies=self._group_reader.around.topologies,
            catalog=_with_assumed_claims(library.catalog, base, standing),
            pod_shape=pod_shape,
            pod_group=base.group.copy(),
            pod_subgroup=base.subgroup.copy(),
            pod_status=standing.status,
            pod_node=standing.node,
            pod_reservation=base.reservation.copy(),
            pod_devices=standing.devices,
            pod_numa=read_records(base, standing, nodes) if self._zones.cells else {},
            revision=revision,
        ).with_memory(self._memory)
        self._last = _Taken(objects, dict(usage), snapshot, _next_stuck(base, now, patience))
        return snapshot

    def _put(self, objects: ClusterObjects, queues: Iterable[Queue]) -> None:
        """Take stock of the objects that are remembered one by one."""
        self._zones.put(objects.node_resource_topologies, read_numa)
        if self._put_groups(objects, queues):
            self._base = None
        if self._nodes.put(objects.nodes, NodeReader(self._settings).read):
            self._base = None
        if self._pods.put(objects.pods, self._pod_reader.read):
            self._base = None

    def _settle_nodes(self, library: Library) -> tuple[Node, ...]:
        layouts = {cell.source.metadata.name: cell.layout for cell in self._zones.cells}
        return settle_nodes(self._nodes.cells, library.node_gpus, layouts)

    def _settle_shapes(self, library: Library) -> tuple[tuple[Shape, ...], Int64s]:
        devices = [cell.devices for cell in self._zones.cells]
        reported = frozenset().union(*devices) if devices else None
        self._neighbours = neighbours_of(self._pods.cells, library, reported, self._neighbours)
        if self._shapes.settle(self._neighbours):
            self._base = None
        return self._shapes.used()

    def _put_groups(self, objects: ClusterObjects, queues: Iterable[Queue]) -> bool:
        """Take stock of the pod groups; all of them are read anew when something that they refer to by name changed."""
        classes, default_priority = priorities(in_order(objects.priority_classes))
        queue_rows = {queue.name: row for row, queue in enumerate(queues)}
        around = GroupSurroundings(queue_rows, classes, default_priority, read_topologies(in_order(objects.topologies)))
        if around != self._group_reader.around:
            self._group_reader = GroupReader(self._settings, around, self._places)
            self._groups, self._base = Shelf(), None
        return self._groups.put(objects.pod_groups, self._group_reader.read)


def _next_stuck(base: BaseColumns, now: float, patience: float) -> float:
    """Return when the next pod that is leaving counts as stuck."""
    leaving = [base.cells[row].leaving_since for row in base.watched]
    instants = [since + patience for since in leaving if since is not None]
    return min((instant for instant in instants if instant >= now - _MARGIN), default=inf) - _MARGIN


def _with_assumed_claims(catalog: Catalog, base: BaseColumns, standing: Standing) -> Catalog:
    binding = [
        (standing.pods[row], base.cells[row].traits.constraints, each) for row, each in standing.requests.items()
    ]
    claims = assumed_claims(catalog.claims, binding)
    return catalog if claims is catalog.claims else attrs.evolve(catalog, claims=claims)


def _axis(nodes: Iterable[Node], shapes: Iterable[Shape]) -> ResourceAxis:
    resources = {name for node in nodes for name in node.allocatable}
    resources.update(name for shape in shapes for name, _ in shape.request)
    return ResourceAxis.of(resources)
