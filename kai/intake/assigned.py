"""Where pods stand and where they belong: the columns that follow from several objects together."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, cast

import attrs
import numpy as np

from kai.api.bindrequest import BindRequest, is_for
from kai.api.grants import ordered_grant
from kai.intake.pods import PodRecord
from kai.intake.table import GroupColumns, GroupTable, PodTable
from kai.model.pod import Pod
from kai.model.rows import NONE, Int64s, locked
from kai.model.status import ACTIVE_USED, Status, within
from kai.state.items import replaced
from kai.state.memory import Memory


@attrs.frozen(kw_only=True, slots=False)
class BaseColumns:
    """Columns by pod row that follow from pods, nodes and groups alone."""

    table: PodTable
    groups: GroupColumns
    node: Int64s
    group: Int64s
    subgroup: Int64s

    @property
    def records(self) -> Sequence[PodRecord]:
        """What intake made of each pod."""
        return self.table.records

    @cached_property
    def watched(self) -> tuple[int, ...]:
        """Rows of pods that are leaving, or that share devices."""
        return tuple(np.flatnonzero(self.table.columns.watched).tolist())


@attrs.frozen(kw_only=True)
class Assigned:
    """Where pods stand at one moment, under the bind requests of that moment."""

    pods: Sequence[Pod]
    status: Int64s
    node: Int64s
    group: Int64s
    subgroup: Int64s
    devices: Mapping[int, tuple[str, ...]]
    """Names of the shared devices of sharing pods that occupy a node, by row."""
    requests: Mapping[int, BindRequest]
    """Live bind requests by row."""


@attrs.frozen
class _Ordered:
    """A pod under its bind request."""

    request: BindRequest
    record: PodRecord
    pod: Pod
    """The pod as it is shown."""
    group: str = ""
    """The group that the request was granted for, if the pod names another one or none."""


def read_base(table: PodTable, groups: GroupTable, node_rows: Mapping[str, int]) -> BaseColumns:
    """Return the columns that neither the clock nor bind requests change."""
    columns = table.columns
    group = table.group_keys.rows(groups.columns.group_key, columns.group_key)
    subgroup = _positions(table, groups.columns.leaves, group)
    held = groups.columns.held
    if held.any():  # a pod without a leaf is never tried
        waits = (columns.status == Status.PENDING) | (columns.status == Status.GATED)
        subgroup[np.append(held, values=False)[group] & waits] = NONE
    node = table.node_rows(node_rows)
    # Snapshots share them for as long as they hold.
    return BaseColumns(
        table=table, groups=groups.columns, node=locked(node), group=locked(group), subgroup=locked(subgroup)
    )


def _positions(table: PodTable, trees: Int64s, group: Int64s) -> Int64s:
    """Return int64[P]: the position of the leaf of each pod, by the ``trees`` [G] and by the pods' own names of it."""
    names = table.columns.subgroup
    if len(trees) and len(names) and (trees == trees[0]).all() and (names == names[0]).all():
        # A cluster of single pods, most often.
        found = np.full(len(names), table.leaves.positions(trees[:1], names[:1])[0])
        nowhere = group < 0
        if nowhere.any():
            found[nowhere] = NONE
        return found
    return table.leaves.positions(np.append(trees, NONE)[group], names)  # -1, for no group, is the last one


def read_assigned(
    base: BaseColumns,
    node_rows: Mapping[str, int],
    bind_requests: Iterable[BindRequest],
    memory: Memory,
    *,
    stuck_before: float,
) -> Assigned:
    """Return where each pod stands. A pod told to go before ``stuck_before`` is not expected to leave any more.

    Bind requests stay for as long as their pods do, so what was made of the very same ones is taken from ``memory``.

    A pod that is being bound is in the group that its bind request was granted for. The pod itself may name none yet:
    the link of a pod may be written with its binding, and a leader that came meanwhile sees the order and no link.

    Source: the peer's pod_info (getTaskStatus) and cluster_info; the node of a pod is its own, else its bind request's.
        The peer goes by the name in a request alone, so that one which outlived its pod parks the next of that name.
        It goes by the group that the pod names, and writes that before it decides on the pod.
    """
    records = base.records
    ordered_rows = _ordered_rows(records, bind_requests, memory)
    status, node = base.table.columns.status, base.node
    if base.watched or ordered_rows:
        status, node = status.copy(), node.copy()
    changed: dict[int, Pod] = {}
    devices: dict[int, tuple[str, ...]] = {}
    requests: dict[int, BindRequest] = {}
    moved: dict[int, str] = {}
    for row in base.watched:
        record = records[row]
        if record.leaving_since is not None and record.leaving_since < stuck_before:
            status[row] = Status.STUCK_IN_RELEASING
        devices[row] = record.devices
    for row, ordered in ordered_rows.items():
        request, record = ordered.request, ordered.record
        requests[row], changed[row] = request, ordered.pod
        if record.waiting:
            status[row] = Status.BINDING
            if ordered.group:
                moved[row] = ordered.group
        if not record.node:
            node[row] = node_rows.get(request.spec.selected_node, NONE)
        if request.spec.selected_gpu_groups and record.demand.gpu.shared and not record.granted:
            devices[row] = tuple(sorted(request.spec.selected_gpu_groups))
    held = {row: names for row, names in devices.items() if names and within(int(status[row]), ACTIVE_USED)}
    group, subgroup = base.group, base.subgroup
    if moved:
        group, subgroup = _moved(base, moved)
    pods = base.table.pods
    if changed:
        pods = replaced(pods, changed)
    return Assigned(
        pods=pods, status=status, node=node, group=group, subgroup=subgroup, devices=held, requests=requests
    )


def _ordered_rows(
    records: Sequence[PodRecord], bind_requests: Iterable[BindRequest], memory: Memory
) -> dict[int, _Ordered]:
    """Return the pods that are under bind requests, by row.

    Cost: 1 us for a request and a pod that are the same as the last time.
    """
    before: Mapping[tuple[str, str], _Ordered] = cast("Any", memory.recall("ordered")) or {}
    known: dict[tuple[str, str], _Ordered] = {}
    rows: dict[int, _Ordered] = {}
    row = -1
    for request in bind_requests:
        key = (request.metadata.namespace, request.spec.pod_name or request.metadata.name)
        row += 1  # pods come in the same order, so where many have a request this is often the row
        if row >= len(records) or records[row].order != key:
            row = bisect_left(records, key, key=_order)
        if row == len(records) or records[row].order != key:
            continue
        ordered = before.get(key)
        if ordered is None or ordered.request is not request or ordered.record is not records[row]:
            uid = records[row].source.metadata.uid
            if uid and not is_for(request, uid):
                continue  # of a pod of the past that had this name: it decides nothing for this one
            ordered = _order_of(records[row], request)
        known[key] = rows[row] = ordered
    memory.keep("ordered", known)
    return rows


def _order_of(record: PodRecord, request: BindRequest) -> _Ordered:
    pod, granted = attrs.evolve(record.pod, bind_request=request.metadata.name), ""
    if record.waiting:
        granted = _group_granted(request)
    if not granted or granted == pod.group:
        return _Ordered(request, record, pod)
    return _Ordered(request, record, attrs.evolve(pod, group=granted), granted)


def _group_granted(request: BindRequest) -> str:
    """Return the group on whose account a bind request was granted; empty for one that tells none."""
    grant = ordered_grant(request)
    return "" if grant is None else grant.group


def _moved(base: BaseColumns, moved: Mapping[int, str]) -> tuple[Int64s, Int64s]:
    """Return the columns of groups and sub-groups with some pods, by row, in groups of these names."""
    table, group, subgroup = base.table, base.group.copy(), base.subgroup.copy()
    rows = np.array(list(moved), np.int64)
    keys = [table.group_keys.of((name, base.records[row].pod.namespace)) for row, name in moved.items()]
    group[rows] = table.group_keys.rows(base.groups.group_key, np.array(keys, np.int64))
    tree = np.append(base.groups.leaves, NONE)[group[rows]]
    subgroup[rows] = table.leaves.positions(tree, table.columns.subgroup[rows])
    return group, subgroup


_order = attrgetter("order")
