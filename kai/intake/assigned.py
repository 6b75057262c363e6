"""The state, node and group of each pod: columns that follow from several objects together.

Pods of a namespace that is being deleted are shown as leaving, though most of them are not deleted yet. The namespace
controller deletes them one after the other. Meanwhile the API server already refuses to bind or evict them. So a
cycle treats such a pod as leaving: its resources count for its queue until it is gone, other pods may be promised its
place, and no decision is made about it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter, is_
from typing import Any, Final, cast

import attrs
import numpy as np

from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.binding import ordered_grant
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.meta import Namespace
from kai.api.kubernetes.pod import Pod as ApiPod
from kai.api.scheduling.bind_request import BindRequest, is_for
from kai.facts.model.axis import NONE, Int64s
from kai.facts.model.pod import ACTIVE_USED, Pod, Status, within
from kai.facts.state.memory import Memory, replaced
from kai.facts.state.table_version import Column, TableVersion
from kai.intake.pods import PodRecord
from kai.intake.table import GroupColumns, GroupTable, PodTable


@attrs.define(eq=False)
class EndingNamespaces:
    """Shows pods of namespaces that are being deleted as leaving.

    Holds: the same pods become the same objects, so that no record is made anew because a namespace is deleted.
    Cost: of each namespace when one changes; of each pod while a namespace is being deleted and any pod changes.
    """

    _namespaces: Sequence[Namespace] = ()
    _since: Mapping[str, float] = attrs.field(factory=dict)
    """The time of a namespace's deletion, by its name."""
    _pods: Sequence[ApiPod] = ()
    _shown: Sequence[ApiPod] = ()
    """The result for ``_pods``."""
    _leaving: dict[Key, tuple[ApiPod, ApiPod]] = attrs.field(factory=dict)
    """Pods of namespaces that are being deleted, each with its leaving copy."""

    def shown(self, objects: ClusterObjects) -> ClusterObjects:
        """Return the objects, with pods of namespaces that are being deleted shown as leaving."""
        # Most cycles find the same listing, so no namespace is looked at.
        if objects.namespaces is not self._namespaces:
            self._namespaces, since = objects.namespaces, _ending(objects.namespaces)
            if since != self._since:
                self._since, self._pods, self._shown = since, (), ()
        if not self._since:
            self._leaving.clear()
            return objects
        if objects.pods is not self._pods:
            self._pods, self._shown = objects.pods, self._with_leaving(objects.pods)
        return objects if self._shown is objects.pods else attrs.evolve(objects, pods=self._shown)

    def _with_leaving(self, pods: Sequence[ApiPod]) -> Sequence[ApiPod]:
        before, self._leaving = self._leaving, {}
        since = self._since
        for pod in pods:
            metadata = pod.metadata
            if metadata.namespace in since and metadata.deletion_timestamp is None:
                # The same copy for the same pod: records are cached by identity, and a new copy would be read anew in
                # each cycle.
                source, shown = before.get(key_of(pod), (None, pod))
                if source is not pod:
                    shown = attrs.evolve(
                        pod, metadata=attrs.evolve(metadata, deletion_timestamp=since[metadata.namespace])
                    )
                self._leaving[key_of(pod)] = pod, shown
        if not self._leaving:
            return pods
        # Identities are safe as keys here, since ``pods`` holds all of these objects.
        leaving = {id(pod): shown for pod, shown in self._leaving.values()}
        return tuple([leaving.get(id(pod), pod) for pod in pods])


def _ending(namespaces: Iterable[Namespace]) -> dict[str, float]:
    times = {each.metadata.name: each.metadata.deletion_timestamp for each in namespaces}
    return {name: time for name, time in times.items() if time is not None}


_STOOD: Final = "where pods stood"


@attrs.frozen(kw_only=True, slots=False)
class BaseColumns:
    """Columns by pod row that follow from pods, nodes and groups alone."""

    table: PodTable
    groups: GroupColumns
    node: Int64s
    group: Int64s
    subgroup: Int64s
    inputs: tuple[object, ...]
    """What the columns of a pod follow from, besides its own record."""

    @property
    def records(self) -> Sequence[PodRecord]:
        """The record of each pod."""
        return self.table.records

    @cached_property
    def watched(self) -> tuple[int, ...]:
        """Rows of pods that are leaving, or that share devices."""
        return tuple(np.flatnonzero(self.table.columns.watched).tolist())


@attrs.frozen(kw_only=True)
class Assigned:
    """The state, node and group of each pod at one moment, with the bind requests of that moment."""

    pods: Sequence[Pod]
    status: Int64s
    node: Int64s
    group: Int64s
    subgroup: Int64s
    devices: Mapping[int, tuple[str, ...]]
    """Names of the shared devices of sharing pods that occupy a node, by row."""
    requests: Mapping[int, BindRequest]
    """Live bind requests by row."""
    version: TableVersion
    """The version of these columns; rows that are not fresh also have the same shapes as before."""


@attrs.frozen
class _Ordered:
    """A pod and its bind request."""

    request: BindRequest
    record: PodRecord
    pod: Pod
    """The pod as snapshots show it."""
    group: str = ""
    """The group in the grant of the request, if the pod names another one or none."""


def read_base(table: PodTable, groups: GroupTable, node_rows: Mapping[str, int]) -> BaseColumns:
    """Return the columns that do not depend on the clock or on bind requests.

    Cost: of fresh pods, while the rows of nodes and groups stay; else of all pods.
    """
    columns, said = table.columns, groups.columns
    of_nodes, of_groups = table.node_rows(node_rows), table.group_keys.rows(said.group_key)
    has_held = bool(said.held.any())

    def read(rows: Sequence[int]) -> tuple[Int64s, Int64s, Int64s]:
        is_whole = len(rows) == len(table.records)
        some = slice(None) if is_whole else rows
        group: Int64s = of_groups[columns.group_key[some]]
        names = columns.subgroup[some]
        if is_whole and _are_alike(said.leaves) and _are_alike(names):  # typical for a cluster of single pods
            # One look instead of one for each pod.
            subgroup = np.full(len(names), table.leaves.positions(said.leaves[:1], names[:1])[0])
            subgroup[group < 0] = NONE
        else:
            subgroup = table.leaves.positions(_of_group(said.leaves, group, NONE), names)
        if has_held:  # a pod without a leaf is never tried
            status = columns.status[some]
            waits = (status == Status.PENDING) | (status == Status.GATED)
            subgroup[_of_group(said.held, group, none=False) & waits] = NONE
        return of_nodes[columns.node[some]], group, subgroup

    # Identities of columns: when a row of nodes or groups moves, the rows of all pods may be wrong, not only those of
    # fresh ones.
    inputs = (of_nodes, of_groups, said.leaves, said.held)
    node, group, subgroup = table.carried("places", read, inputs)
    return BaseColumns(table=table, groups=said, node=node, group=group, subgroup=subgroup, inputs=inputs)


def _are_alike(column: Int64s) -> bool:
    return len(column) > 0 and bool((column == column[0]).all())


def _of_group(column: Column, group: Int64s, none: object) -> Column:
    """Return the value in ``column`` [G] for the ``group`` of each pod, ``none`` for pods without one."""
    if not len(column):
        return np.full(len(group), none)
    found: Column = column[group]
    # Row -1 has read the last group.
    found[group < 0] = none
    return found


def read_assigned(
    base: BaseColumns,
    node_rows: Mapping[str, int],
    bind_requests: Iterable[BindRequest],
    memory: Memory,
    *,
    stuck_before: float,
    shaped_by: tuple[object, ...] = (),
) -> Assigned:
    """Return the state, node and group of each pod. A pod deleted before ``stuck_before`` is not expected to leave.

    ``shaped_by``: inputs of pod shapes, for pods that are not fresh.

    Bind requests exist as long as their pods, so the result for an unchanged request comes from ``memory``.

    A pod that is being bound is in the group of its bind request's grant. The pod itself may name none yet: the link of
    a pod may be written with its binding, and a new leader in between sees the request and no link.

    Source: the peer's pod_info (getTaskStatus) and cluster_info; the node of a pod is its own, else its bind request's.
        The peer matches requests by pod name alone, so that a request which outlived its pod blocks the next of that
        name. It uses the group that the pod names, and writes that link before it decides on the pod.
    """
    records = base.records
    ordered_rows = _ordered_rows(records, bind_requests, memory)
    places = _elsewhere(base, node_rows, ordered_rows, stuck_before)
    version = _version(base.table.version, (*base.inputs, *shaped_by), places.rows, memory)
    status, node, group, subgroup = memory.rows.columns(
        "where pods stand", version, len(records), partial(_read_places, base, places)
    )
    devices = {row: records[row].devices for row in base.watched}
    for row, ordered in ordered_rows.items():
        named, record = ordered.request.spec.selected_gpu_groups, ordered.record
        if named and record.demand.gpu.shared and not record.granted:
            devices[row] = tuple(sorted(named))
    held = {row: names for row, names in devices.items() if names and within(int(status[row]), ACTIVE_USED)}
    changed = {row: ordered.pod for row, ordered in ordered_rows.items()}
    return Assigned(
        pods=replaced(base.table.pods, changed) if changed else base.table.pods,
        status=status,
        node=node,
        group=group,
        subgroup=subgroup,
        devices=held,
        requests={row: ordered.request for row, ordered in ordered_rows.items()},
        version=version,
    )


@attrs.frozen
class _Places:
    """The overrides of status, node and group, by row, where they differ from the pod's own record."""

    group: Mapping[int, int]
    subgroup: Mapping[int, int]
    status: Mapping[int, int]
    node: Mapping[int, int]

    @property
    def rows(self) -> frozenset[int]:
        """All rows with an override."""
        return frozenset({*self.group, *self.status, *self.node})


def _elsewhere(
    base: BaseColumns, node_rows: Mapping[str, int], ordered_rows: Mapping[int, _Ordered], stuck_before: float
) -> _Places:
    """Return the overrides due to the clock or to bind requests."""
    status: dict[int, int] = {}
    node: dict[int, int] = {}
    moved: dict[int, str] = {}
    for row in base.watched:
        leaving_since = base.records[row].leaving_since
        if leaving_since is not None and leaving_since < stuck_before:
            # Not kept in the record: it follows from the clock, and a record follows from its object alone.
            status[row] = Status.STUCK_IN_RELEASING
    for row, ordered in ordered_rows.items():
        if ordered.record.waiting:
            status[row] = Status.BINDING
            if ordered.group:
                moved[row] = ordered.group
        # The pod's own node wins over that of its request: it is where the pod was really bound.
        if not ordered.record.node:
            node[row] = node_rows.get(ordered.request.spec.selected_node, NONE)
    return _Places(*_moved(base, moved), status=status, node=node)


@attrs.frozen(eq=False)
class _Known:
    """The last version of these columns, and its inputs."""

    version: TableVersion
    pods: TableVersion
    inputs: tuple[object, ...]
    elsewhere: frozenset[int]


def _version(pods: TableVersion, inputs: tuple[object, ...], elsewhere: frozenset[int], memory: Memory) -> TableVersion:
    """Return the version of the columns: that of ``pods``, with the rows that are or were ``elsewhere`` as fresh.

    It has no predecessor where rows moved, or where other ``inputs`` may have changed more rows.
    """
    known = memory.recall(_STOOD)
    version = TableVersion()
    if isinstance(known, _Known) and len(known.inputs) == len(inputs) and all(map(is_, known.inputs, inputs)):
        is_same = known.pods is pods
        if is_same and not elsewhere and not known.elsewhere:
            return known.version
        # Overrides are by row, so they can be compared with those before only if rows kept their places.
        if is_same or (pods.before is known.pods.mark and pods.has_kept_places):
            # Rows that were elsewhere last time are read again, too: they may be back to what their records say.
            rows = {*elsewhere, *known.elsewhere, *(() if is_same else pods.fresh.tolist())}
            version = TableVersion(before=known.version.mark, fresh=np.array(sorted(rows), np.int64))
    memory.keep(_STOOD, _Known(version, pods, inputs, elsewhere))
    return version


def _read_places(base: BaseColumns, places: _Places, rows: Sequence[int]) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return status, node, group and sub-group of pods."""
    is_whole = len(rows) == len(base.records)
    # A row is its own position where all are read; otherwise the positions are needed only if there are overrides.
    at = range(len(rows)) if is_whole or not places.rows else {row: at for at, row in enumerate(rows)}

    def read(column: Int64s, elsewhere: Mapping[int, int]) -> Int64s:
        if is_whole and not elsewhere:
            return column
        some = column.copy() if is_whole else column[rows]
        for row, value in elsewhere.items():
            some[at[row]] = value
        return some

    status, node = read(base.table.columns.status, places.status), read(base.node, places.node)
    return status, node, read(base.group, places.group), read(base.subgroup, places.subgroup)


def _ordered_rows(
    records: Sequence[PodRecord], bind_requests: Iterable[BindRequest], memory: Memory
) -> dict[int, _Ordered]:
    """Return the pods with bind requests, by row.

    Cost: 1 us for a request and a pod that are unchanged.
    """
    before: Mapping[tuple[str, str], _Ordered] = cast("Any", memory.recall("ordered")) or {}
    known: dict[tuple[str, str], _Ordered] = {}
    rows: dict[int, _Ordered] = {}
    row = -1
    for request in bind_requests:
        key = (request.metadata.namespace, request.spec.pod_name or request.metadata.name)
        row += 1  # requests come in the order of pods, so where many pods have one this is often the row
        if row >= len(records) or records[row].order != key:
            row = bisect_left(records, key, key=_order)
        if row == len(records) or records[row].order != key:
            continue
        ordered = before.get(key)
        if ordered is None or ordered.request is not request or ordered.record is not records[row]:
            uid = records[row].source.metadata.uid
            if uid and not is_for(request, uid):
                continue  # for an earlier pod of this name: it has no effect on this one
            ordered = _order_of(records[row], request)
        known[key] = rows[row] = ordered
    # Only what was found now is kept: requests that are gone leave with it.
    memory.keep("ordered", known)
    return rows


def _order_of(record: PodRecord, request: BindRequest) -> _Ordered:
    pod, granted = attrs.evolve(record.pod, bind_request=request.metadata.name), ""
    if record.waiting:
        granted = _group_granted(request)
    # Most often the pod names the group already; then there is nothing to move.
    if not granted or granted == pod.group:
        return _Ordered(request, record, pod)
    return _Ordered(request, record, attrs.evolve(pod, group=granted), granted)


def _group_granted(request: BindRequest) -> str:
    """Return the group in the grant of a bind request; empty if it has none."""
    grant = ordered_grant(request)
    return "" if grant is None else grant.group


def _moved(base: BaseColumns, moved: Mapping[int, str]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the rows of groups and sub-groups of pods that moved into the groups with these names, by pod row."""
    if not moved:
        return {}, {}
    table, rows = base.table, list(moved)
    keys = [table.group_keys.of((name, base.records[row].pod.namespace)) for row, name in moved.items()]
    group = table.group_keys.rows(base.groups.group_key)[keys]
    tree = _of_group(base.groups.leaves, group, NONE)
    subgroup = table.leaves.positions(tree, table.columns.subgroup[rows])
    return dict(zip(rows, group.tolist(), strict=True)), dict(zip(rows, subgroup.tolist(), strict=True))


_order = attrgetter("order")
