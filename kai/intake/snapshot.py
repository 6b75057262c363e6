"""Taking a snapshot: objects in, rows and columns out.

What follows from one object alone is remembered by the object's identity: api objects are frozen, so the same object means the same facts.
What follows from several objects (a status under a bind request, the row of a node) is put together every time, in columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from kai.api import node as api_node
from kai.api import pod as api_pod
from kai.api import podgroup as api_podgroup
from kai.api.kinds import ApiObject, title
from kai.api.objects import ClusterObjects
from kai.errors import InputError
from kai.intake import groups as group_intake
from kai.intake import nodes as node_intake
from kai.intake.binding import live_bind_requests
from kai.intake.catalog import read_catalog, read_topologies
from kai.intake.groups import GroupSurroundings
from kai.intake.neighbours import Neighbours
from kai.intake.pods import PodCell, PodReader
from kai.intake.queues import read_queues
from kai.intake.settings import IntakeSettings
from kai.intake.shapes import ShapeTable
from kai.intake.standing import read_memberships, read_standing
from kai.model.axis import ResourceAxis
from kai.model.node import Node
from kai.model.pod import Shape
from kai.model.podgroup import PodGroup
from kai.model.queue import Shares
from kai.model.rows import Int64s
from kai.state.snapshot import Snapshot

AnyObject = TypeVar("AnyObject", bound=ApiObject)

_NO_USAGE: Mapping[str, Shares] = {}


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


class Intake:
    """Takes one snapshot after another and pays in full only for objects that it did not see the last time.

    Holds: the same objects make the same snapshot, whatever was taken before.
    """

    def __init__(self, settings: IntakeSettings | None = None) -> None:
        self._settings = settings or IntakeSettings()
        self._reader = PodReader(self._settings)
        self._shapes = ShapeTable()
        self._pods: dict[int, PodCell] = {}
        self._nodes: dict[int, tuple[api_node.Node, Node]] = {}
        self._groups: dict[int, tuple[api_podgroup.PodGroup, PodGroup]] = {}
        self._around_groups: GroupSurroundings | None = None

    def take(
        self,
        objects: ClusterObjects,
        now: float,
        *,
        usage: Mapping[str, Shares] = _NO_USAGE,
        revision: int = 0,
    ) -> Snapshot:
        """Return the snapshot of ``objects`` at ``now``; ``usage`` is the past usage of queues by name, as parts of the cluster.

        Raises: InputError for two objects of one kind and name.
        """
        settings = self._settings
        nodes = self._take_nodes(objects)
        queues = read_queues(_in_order(objects.queues), settings, usage)
        topologies = read_topologies(objects.topologies)
        priorities, default_priority = group_intake.priorities(objects.priority_classes)
        queue_rows = {queue.name: row for row, queue in enumerate(queues)}
        groups = self._take_groups(objects, GroupSurroundings(queue_rows, priorities, default_priority, topologies))
        cells = self._take_pods(objects.pods)
        catalog = read_catalog(objects)
        shapes, pod_shape = self._take_shapes(cells, Neighbours(cells, catalog))
        node_rows = {node.name: row for row, node in enumerate(nodes)}
        requests = live_bind_requests(objects.bind_requests, node_rows, settings)
        standing = read_standing(cells, node_rows, requests, now - settings.stuck_in_releasing_seconds)
        pod_group, pod_subgroup = read_memberships(cells, groups)
        return Snapshot(
            now=now,
            axis=_axis(nodes, shapes),
            nodes=nodes,
            pods=standing.pods,
            shapes=shapes,
            groups=groups,
            queues=queues,
            topologies=topologies,
            catalog=catalog,
            pod_shape=pod_shape,
            pod_group=pod_group,
            pod_subgroup=pod_subgroup,
            pod_status=standing.status,
            pod_node=standing.node,
            pod_reservation=np.fromiter([cell.reservation for cell in cells], np.bool_, len(cells)),
            pod_devices={row: names for row, names in standing.devices.items() if shapes[pod_shape[row]].gpu.shared},
            revision=revision,
        )

    def _take_nodes(self, objects: ClusterObjects) -> tuple[Node, ...]:
        known, settings = self._nodes, self._settings
        self._nodes = {}
        for source in _in_order(objects.nodes):
            if node_intake.is_wanted(source, settings):
                found = known.get(id(source)) or (source, node_intake.read_node(source, settings))
                self._nodes[id(source)] = found
        return tuple(node for _, node in self._nodes.values())

    def _take_groups(self, objects: ClusterObjects, around: GroupSurroundings) -> tuple[PodGroup, ...]:
        known, settings = self._groups, self._settings
        if around != self._around_groups:
            known, self._around_groups = {}, around
        self._groups = {}
        for source in _in_order(objects.pod_groups):
            if group_intake.is_wanted(source, settings):
                found = known.get(id(source)) or (source, group_intake.read_group(source, settings, around))
                self._groups[id(source)] = found
        return tuple(
            sorted((group for _, group in self._groups.values()), key=lambda group: (group.name, group.namespace))
        )

    def _take_pods(self, sources: Iterable[api_pod.Pod]) -> list[PodCell]:
        """Return the cells of all pods in row order."""
        if self._shapes.overgrown:
            self._reader, self._shapes, self._pods = PodReader(self._settings), ShapeTable(), {}
        known, read = self._pods, self._reader.read
        cells = [known.get(id(source)) or read(source) for source in sources]
        self._pods = {id(cell.source): cell for cell in cells}
        cells.sort(key=_row_order)
        _refuse_doubles([cell.source for cell in cells])
        return cells

    def _take_shapes(self, cells: Sequence[PodCell], neighbours: Neighbours) -> tuple[tuple[Shape, ...], Int64s]:
        """Return the shapes in order of first use, and the row of each pod's."""
        numbers: list[int] = []
        for cell in cells:
            if neighbours.matter_to(cell):
                numbers.append(self._shapes.number(cell.demand, cell.traits, neighbours.of(cell)))
                continue
            if cell.shape < 0:
                cell.shape = self._shapes.number(cell.demand, cell.traits)
            numbers.append(cell.shape)
        return self._shapes.used(numbers)


def _row_order(cell: PodCell) -> tuple[str, str]:
    return cell.order


def _in_order(sources: Iterable[AnyObject]) -> list[AnyObject]:
    """Return objects of one kind by namespace and name.

    Raises: InputError if two have the same.
    """
    ordered = sorted(sources, key=lambda source: (source.metadata.namespace, source.metadata.name))
    _refuse_doubles(ordered)
    return ordered


def _refuse_doubles(ordered: Sequence[ApiObject]) -> None:
    before: ApiObject | None = None
    for source in ordered:
        metadata = source.metadata
        if (
            before is not None
            and metadata.name == before.metadata.name
            and metadata.namespace == before.metadata.namespace
        ):
            found = f"uid {before.metadata.uid!r} and uid {metadata.uid!r}"
            raise InputError.about(
                title(source), "metadata.name", found=found, wanted="one object of this kind and name"
            )
        before = source


def _axis(nodes: Iterable[Node], shapes: Iterable[Shape]) -> ResourceAxis:
    resources = {name for node in nodes for name in node.allocatable}
    resources |= {name for shape in shapes for name, _ in shape.request}
    return ResourceAxis.of(resources)
