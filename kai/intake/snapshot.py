"""Taking a snapshot: objects in, rows and columns out.

Results that follow from one object alone are cached by the object's identity (``kai.intake.record_cache``): pods in
``pods``, ``requests`` and ``traits``, nodes in ``nodes``, groups in ``groups``. Results that follow from several
objects are settled when one of them changed. ``held`` has stand-ins for deleted groups, and the account to which groups
are charged; ``membership`` the group of each pod; ``surroundings`` and ``shapes`` the effect of other objects on
shapes; ``assigned`` the state and node of each pod under the bind requests and the clock of the moment. ``shapes``
also decides which groups wait for a later cycle, because their namespace has too many pods or too many shapes.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import ApiObject
from kai.api.kubernetes import node as api_node
from kai.api.kubernetes import pod as api_pod
from kai.api.scheduling import pod_group as api_podgroup
from kai.facts.model.axis import PLUGGED_GPU, Int64s, ResourceAxis
from kai.facts.model.budgets import Budget
from kai.facts.model.claim import DeviceClass
from kai.facts.model.groups import Queue
from kai.facts.model.partitions import Catalog
from kai.facts.model.placement import Past
from kai.facts.model.pod import Node, Shape
from kai.facts.state.memory import Memory, PodKinds, SnapshotVersions
from kai.facts.state.snapshot import Snapshot
from kai.facts.state.table_version import TableVersion
from kai.intake import budgets
from kai.intake.assigned import Assigned, BaseColumns, EndingNamespaces, read_assigned, read_base
from kai.intake.bind_requests import assumed_claims, live_bind_requests
from kai.intake.claims import with_parts_by_name
from kai.intake.groups import GroupReader, GroupRecord, GroupSurroundings, priorities, run_times
from kai.intake.held import Granted, HeldGroups, Orphans
from kai.intake.membership import Accounts, GroupKeys, Leaves
from kai.intake.nodes import NodeReader, NodeRecord
from kai.intake.nodes import settle as settle_nodes
from kai.intake.pods import PodReader, PodRecord
from kai.intake.queues import Clocked, Permissions, read_permissions, read_queues
from kai.intake.record_cache import RecordCache, by_name, in_order
from kai.intake.settings import IntakeSettings
from kai.intake.shapes import ShapeTable, Turns, with_refusals
from kai.intake.surroundings import Library, Surroundings, bind_requests, read_foreign, read_library, surroundings_of
from kai.intake.table import GroupTable, NodeTable, PodTable

_MANY = 1 << 12
_NO_PAST = Past()
_FIELDS = tuple(field.name for field in attrs.fields(ClusterObjects))
_MARGIN = 1e-3
"""Seconds by which an instant is checked early, so that rounding cannot skip it."""


def take_snapshot(
    objects: ClusterObjects,
    now: float,
    settings: IntakeSettings | None = None,
    past: Past = _NO_PAST,
) -> Snapshot:
    """Return the snapshot of a cluster at ``now`` (seconds since the epoch); the order of its objects has no effect.

    Raises: InputError for two objects of one kind and name.
    """
    return Intake(settings).take(objects, now, past)


@attrs.frozen
class _Taken:
    """The last snapshot, and its inputs."""

    objects: ClusterObjects
    snapshot: Snapshot
    until: float
    """When a leaving pod counts as stuck or a quota follows the clock, if nothing happens before."""

    def holds(self, objects: ClusterObjects, now: float, past: Past) -> bool:
        """Return whether a snapshot of ``objects`` at ``now`` would be equal, apart from awaited groups and budgets."""
        # A clock that went back is not trusted either: a pod may count as stuck now and not then.
        if not self.snapshot.now <= now < self.until:
            return False
        # What budgets have left changes with every instant: the table of them is made anew. Awaited groups
        # only choose who waits for a turn, which is dealt anew, too.
        if past != attrs.evolve(self.snapshot.past, awaited=past.awaited, spent=past.spent):
            return False
        mine = self.objects
        # Listings are compared by identity, field by field: a store that did not change gives the same ones in a new
        # `ClusterObjects`.
        return objects is mine or all(getattr(objects, each) is getattr(mine, each) for each in _FIELDS)


class Intake:
    """Takes successive snapshots; only objects that changed since the last one cost time.

    Holds: the same objects make the same snapshot, whatever was taken before.
    """

    def __init__(self, settings: IntakeSettings | None = None) -> None:
        self._settings = settings or IntakeSettings()
        self._grace = self._settings.stuck_in_releasing_seconds
        self._queues: tuple[Queue, ...] = ()
        self._clocked = Clocked()
        self._used_up: frozenset[int] = frozenset()
        """The rows of queues whose work may be taken back, since a budget is used up."""
        self._known_axis = ResourceAxis.of(())
        self._ending = EndingNamespaces()
        self._forget()

    def _forget(self) -> None:
        self._turns = Turns(self._settings.namespace_shapes, self._settings.namespace_pods)
        self._group_keys, self._accounts = GroupKeys(), Accounts()
        self._shapes = ShapeTable()
        self._node_reader = NodeReader(self._settings)
        self._nodes: RecordCache[api_node.Node, NodeRecord] = RecordCache()
        self._groups: RecordCache[api_podgroup.PodGroup, GroupRecord] = RecordCache(by_name)
        self._leaves = Leaves()
        self._group_reader = self._reader(GroupSurroundings({}, {}, 0))
        self._held_groups = HeldGroups(self._accounts)
        self._orphans = Orphans(self._accounts, self._settings.node_pool_label)
        self._pods: RecordCache[api_pod.Pod, PodRecord] = RecordCache()
        node_names = dict[str, int]()
        self._pod_reader = PodReader(self._settings, self._group_keys, self._accounts, self._leaves, node_names)
        self._pod_table, self._group_table = PodTable(self._group_keys, self._leaves, node_names), GroupTable()
        self._node_table = NodeTable()
        self._library: Library | None = None
        self._surroundings: Surroundings | None = None
        self._memory = Memory()
        self._last: _Taken | None = None

    def read_ahead(self, arrived: Iterable[ApiObject]) -> None:
        """Make the records of pods and pod groups ahead of the next snapshot; other objects are ignored.

        Holds: snapshots are the same with and without it; records that the next one does not use are dropped. It must
            not be called while a snapshot is taken.
        Cost: of each object that is new.
        """
        pods, groups = self._pods, self._groups
        read_pod, read_group = self._pod_reader.read, self._group_reader.read
        for each in arrived:
            if isinstance(each, api_pod.Pod):
                pods.read_ahead(each, read_pod)
            elif isinstance(each, api_podgroup.PodGroup):
                groups.read_ahead(each, read_group)

    @property
    def reading(self) -> ApiObject | None:
        """The object that was being read when a snapshot failed; None if it failed elsewhere."""
        caches = (self._groups, self._nodes, self._pods)
        return next((each.reading for each in caches if each.reading is not None), None)

    def take(self, objects: ClusterObjects, now: float, past: Past = _NO_PAST, revision: int = 0) -> Snapshot:
        """Return the snapshot of ``objects`` at ``now``, for the cycle with the number ``revision``.

        Raises: InputError for two objects of one kind and name.
        """
        objects = self._ending.shown(objects)
        # Before the comparison: a quota by the clock may differ although no object does.
        queues, usable, standings = self._read_queues(objects, past, now)
        last = self._last
        # Without a change nothing is read: such a cycle pays for the comparison, for budgets and for dealing turns.
        if last is not None and last.holds(objects, now, past) and queues is last.snapshot.queues:
            again = last.snapshot.at(now, revision, past)
            return self._dealt(again.with_budgets(budgets.read_budgets(usable, standings, again)))
        self._last = None  # a failure must not leave a snapshot that differs from the caches
        if self._is_overgrown(objects):
            self._forget()  # most interned values belong to pods of the past
        self._put(objects, queues)
        library = self._library = read_library(objects, self._settings, self._library)
        nodes, (settled, settled_shape) = self._settle_nodes(library), self._settle_shapes(library)
        base = self._base_columns(nodes)
        # A new object equals no earlier one, so that columns which refusals shape are read anew.
        assigned = self._assigned(objects, base, now, (settled, object() if past.refused else None))
        pods, shapes, pod_shape = with_refusals(past.refused, base.records, assigned.pods, settled, settled_shape)
        snapshot = Snapshot(
            now=now,
            axis=self._axis(nodes.nodes, settled, library.catalog.claims.classes),
            nodes=nodes.nodes,
            pods=pods,
            shapes=shapes,
            groups=self._group_table.groups,
            queues=queues,
            foreign=read_foreign(objects, self._memory),
            catalog=_with_assumed_claims(library.catalog, base, assigned),
            pod_shape=pod_shape,
            pod_group=assigned.group,
            pod_subgroup=assigned.subgroup,
            pod_status=assigned.status,
            pod_node=assigned.node,
            pod_reservation=base.table.columns.reservation,
            pod_devices=assigned.devices,
            bind_requests=bind_requests(assigned.requests, self._memory),
            past=past,
            revision=revision,
        ).with_versions(self._versions(assigned.version))
        snapshot = snapshot.with_budgets(budgets.read_budgets(usable, standings, snapshot))
        until = min(_next_stuck(base, now, self._grace), self._clocked.until)
        self._last = _Taken(objects, self._dealt(snapshot), until)
        return self._last.snapshot

    def _dealt(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the groups that wait for their turn; the same one if none does, now and before."""
        crowds = self._turns.settle(snapshot)
        if not crowds.by_namespace and not snapshot.crowds.by_namespace:
            return snapshot
        return attrs.evolve(snapshot, crowds=crowds).with_versions(snapshot.versions)

    def _is_overgrown(self, objects: ClusterObjects) -> bool:
        most = _MANY + 4 * (len(objects.nodes) + len(objects.pods) + len(objects.pod_groups))
        interned = len(self._group_keys) + len(self._accounts) + len(self._node_reader) + len(self._pod_reader)
        return self._shapes.overgrown or self._pod_table.is_overgrown or interned > most

    def _base_columns(self, nodes: NodeTable) -> BaseColumns:
        return self._memory.once(
            "base columns",
            (self._pod_table.version, self._group_table.version, nodes.rows),
            lambda: read_base(self._pod_table, self._group_table, nodes.rows),
        )

    def _assigned(self, objects: ClusterObjects, base: BaseColumns, now: float, shapes: tuple[object, ...]) -> Assigned:
        tokens = () if self._surroundings is None else self._surroundings.tokens
        rows, shaped_by = self._node_table.rows, (*shapes, *tokens)
        requests = live_bind_requests(objects.bind_requests, rows, self._settings)
        stuck_before = now - self._grace
        return read_assigned(base, rows, requests, self._memory, stuck_before=stuck_before, shaped_by=shaped_by)

    def _versions(self, assigned: TableVersion) -> SnapshotVersions:
        return SnapshotVersions(
            memory=self._memory,
            pods=self._pod_table.version,
            assigned=assigned,
            groups=self._group_table.version,
            nodes=self._node_table.version,
            kinds=PodKinds(self._pod_table.columns.kind, tuple(self._pod_reader.kinds)),
        )

    def _read_queues(
        self, objects: ClusterObjects, past: Past, now: float
    ) -> tuple[tuple[Queue, ...], budgets.Usable | None, tuple[Budget, ...]]:
        """Return the queues, their budgets, and what of these is left.

        The queues are the same ones until a queue, its past usage, a quota by the clock, or a used-up budget changes.
        """
        clocked, usage, once = self._clocked.settle(objects.queues, now), past.usage, self._memory.once
        written = once(
            "queues as written",
            (objects.queues, usage, clocked),
            lambda: read_queues(in_order(objects.queues), self._settings, usage, clocked),
        )
        usable = once("usable budgets", (objects.queues, written), lambda: budgets.usable(objects.queues, written))
        standings = budgets.standings(usable, past.spent, now)
        gone = frozenset([each.queue for each in standings if each.is_used_up])
        if gone != self._used_up:
            self._used_up = gone

        def read() -> tuple[Queue, ...]:
            found = budgets.without_shares(written, gone) if gone else written
            # The same tuple while its content is the same: all that follows compares it by identity.
            if found != self._queues:
                self._queues = found
            return self._queues

        return once("queues", (written, self._used_up), read), usable, standings

    def _put(self, objects: ClusterObjects, queues: Iterable[Queue]) -> None:
        """Update the caches of records, by object."""
        self._put_groups(objects, queues)
        self._nodes.put(objects.nodes, self._node_reader.read)
        self._pods.put(objects.pods, self._pod_reader.read)
        self._settle_groups(objects)

    def _settle_groups(self, objects: ClusterObjects) -> None:
        """Adjust groups to the grants of their members, and add stand-ins for deleted groups."""
        groups, table, records = self._groups, self._group_table, self._pods.records
        pods = self._pod_table.read(records, self._pods.version)
        granted = Granted.of(pods, records, len(self._group_keys), self._memory)
        said = table.read(groups.records, groups.version)
        if self._orphans.settle(said, granted):
            self._put_sources(objects)
            said = table.read(groups.records, groups.version)
        held = self._held_groups
        held.settle(groups, said, granted, self._group_reader)
        if held.version is not groups.version:
            said = table.read(held.records, held.version, "held")
        table.settle(held.records, held.version, said)
        # Last of all, since numbers of keys that are dropped go to other keys.
        self._group_keys.keep(granted.pods.group_key, said.group_key)

    def _settle_nodes(self, library: Library) -> NodeTable:
        records, gpus = self._nodes.records, library.node_gpus
        inputs = (self._nodes.version, gpus)
        self._node_table.settle(self._memory.once("nodes", inputs, lambda: settle_nodes(records, gpus)))
        return self._node_table

    def _settle_shapes(self, library: Library) -> tuple[tuple[Shape, ...], Int64s]:
        records, version = self._pods.records, self._pods.version
        selective = self._pod_table.selective(records, version)
        self._surroundings = surroundings_of(records, version, selective, library, self._surroundings)
        self._shapes.settle(self._surroundings)
        self._pod_table.settle(records, self._pods.version)
        shapes, numbers = self._shapes.used()
        parts, nodes = library.claimed_gpus.parts_by_name, self._node_table.nodes
        if not parts:
            return shapes, numbers
        return self._memory.once(
            "parts by name", (shapes, nodes, parts), lambda: with_parts_by_name(shapes, nodes, parts)
        ), numbers

    def _axis(self, nodes: Sequence[Node], shapes: Sequence[Shape], classes: Mapping[str, DeviceClass]) -> ResourceAxis:
        """Return the axis of a snapshot; the same one while it has the same names."""

        def axis() -> ResourceAxis:
            offered = self._memory.once("offered", (nodes,), lambda: _offered(nodes))
            asked = {name for shape in shapes for name, _ in shape.request}
            backed = asked & {name for each in classes.values() for name in each.extended_resources}
            found = ResourceAxis.around(offered | backed, asked)
            if found != self._known_axis:
                self._known_axis = found
            return self._known_axis

        return self._memory.once("axis", (nodes, shapes, classes), axis)

    def _put_groups(self, objects: ClusterObjects, queues: Iterable[Queue]) -> None:
        """Update the cache of pod groups; all are read again when an object that they refer to by name changed."""
        classes, default_priority = priorities(in_order(objects.priority_classes))
        queue_rows = {queue.name: row for row, queue in enumerate(queues)}
        permissions = self._permissions_of(objects)
        runtimes = self._memory.once("run times", (objects.queues,), lambda: run_times(objects.queues))
        around = GroupSurroundings(queue_rows, classes, default_priority, permissions, runtimes)
        if around != self._group_reader.around:
            self._group_reader = self._reader(around)
            self._groups = RecordCache(by_name)
        self._put_sources(objects)

    def _permissions_of(self, objects: ClusterObjects) -> Permissions:
        """Return the permissions of namespaces, computed again when a queue or a namespace changed."""
        access = self._settings.queue_access
        return self._memory.once(
            "permissions",
            (objects.queues, objects.namespaces),
            lambda: read_permissions(objects.queues, objects.namespaces, access),
        )

    def _reader(self, around: GroupSurroundings) -> GroupReader:
        return GroupReader(self._settings, around, self._group_keys, self._accounts, self._leaves)

    def _put_sources(self, objects: ClusterObjects) -> None:
        orphans = self._orphans
        self._groups.put(orphans.among(objects.pod_groups), orphans.reading(self._group_reader))


def _offered(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the resources that nodes offer."""
    offered = {name for node in nodes for name in node.allocatable}
    if any(node.dra_gpus for node in nodes):
        offered.add(PLUGGED_GPU)
    return frozenset(offered)


def _next_stuck(base: BaseColumns, now: float, patience: float) -> float:
    """Return the time at which the next leaving pod counts as stuck."""
    leaving = [base.records[row].leaving_since for row in base.watched]
    instants = [since + patience for since in leaving if since is not None]
    return min((instant for instant in instants if instant >= now - _MARGIN), default=inf) - _MARGIN


def _with_assumed_claims(catalog: Catalog, base: BaseColumns, assigned: Assigned) -> Catalog:
    binding = [
        (assigned.pods[row], base.records[row].traits.constraints, each) for row, each in assigned.requests.items()
    ]
    claims = assumed_claims(catalog.claims, binding)
    return catalog if claims is catalog.claims else attrs.evolve(catalog, claims=claims)
