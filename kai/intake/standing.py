"""Where pods stand and where they belong: the columns that follow from several objects together."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter

from typing import TypeAlias

import attrs
import numpy as np

from kai.api.bindrequest import BindRequest
from kai.intake.groups import GroupCell
from kai.intake.pods import PodCell
from kai.model.pod import Pod
from kai.model.rows import NONE, Bools, Int64s
from kai.model.status import ACTIVE_USED, Status, within


@attrs.frozen(kw_only=True)
class BaseColumns:
    """Columns by pod row that follow from pods, nodes and groups alone."""

    cells: Sequence[PodCell]
    pods: tuple[Pod, ...]
    status: Int64s
    node: Int64s
    group: Int64s
    subgroup: Int64s
    reservation: Bools
    watched: tuple[int, ...]
    """Rows of pods that are leaving, or that share devices."""


@attrs.frozen(kw_only=True)
class Standing:
    """Where pods stand at one moment, under the bind requests of that moment."""

    pods: tuple[Pod, ...]
    status: Int64s
    node: Int64s
    devices: Mapping[int, tuple[str, ...]]
    """Names of the shared devices of sharing pods that occupy a node, by row."""


def read_base(cells: Sequence[PodCell], node_rows: Mapping[str, int], groups: Sequence[GroupCell]) -> BaseColumns:
    """Return the columns that neither the clock nor bind requests change."""
    group, subgroup = read_memberships(cells, groups)
    return BaseColumns(
        cells=cells,
        pods=tuple([cell.pod for cell in cells]),
        status=np.array([cell.status for cell in cells], np.int64),
        node=np.array([node_rows.get(cell.node, NONE) for cell in cells], np.int64),
        group=group,
        subgroup=subgroup,
        reservation=np.array([cell.reservation for cell in cells], np.bool_),
        watched=tuple([row for row, cell in enumerate(cells) if cell.leaving_since is not None or cell.devices]),
    )


def read_standing(
    base: BaseColumns,
    node_rows: Mapping[str, int],
    bind_requests: Mapping[tuple[str, str], BindRequest],
    *,
    stuck_before: float,
) -> Standing:
    """Return where each pod stands. A pod told to go before ``stuck_before`` is not expected to leave any more.

    Source: the peer's pod_info (getTaskStatus) and cluster_info (the node of a pod is its own, else its bind request's).
    """
    cells = base.cells
    pods, status, node = list(base.pods), base.status.copy(), base.node.copy()
    devices: dict[int, tuple[str, ...]] = {}
    for row in base.watched:
        cell = cells[row]
        if cell.leaving_since is not None and cell.leaving_since < stuck_before:
            status[row] = Status.STUCK_IN_RELEASING
        devices[row] = cell.devices
    for key, request in bind_requests.items():
        row = bisect_left(cells, key, key=_order)
        if row == len(cells) or cells[row].order != key:
            continue
        cell = cells[row]
        pods[row] = attrs.evolve(cell.pod, bind_request=request.metadata.name)
        if cell.waiting:
            status[row] = Status.BINDING
        if not cell.node:
            node[row] = node_rows.get(request.spec.selected_node, NONE)
        if request.spec.selected_gpu_groups and cell.demand.gpu.shared:
            devices[row] = tuple(sorted(request.spec.selected_gpu_groups))
    held = {row: names for row, names in devices.items() if names and within(int(status[row]), ACTIVE_USED)}
    return Standing(pods=tuple(pods), status=status, node=node, devices=held)


def read_memberships(pods: Sequence[PodCell], groups: Sequence[GroupCell]) -> tuple[Int64s, Int64s]:
    """Return the row of each pod's group, and the position of its leaf in the group; -1 for none.

    A pod belongs to the group it names in its own namespace, else to the first of that name by namespace.

    Source: the peer goes by the name alone, so that groups of one name in several namespaces share their pods; here only
    a pod whose own namespace has no such group can belong to a stranger.
    """
    by_name: dict[str, _Place] = {}
    by_key: dict[tuple[str, str], _Place] = {}
    for row, cell in enumerate(groups):
        by_key[cell.order] = place = (row, cell.leaves)
        by_name.setdefault(cell.order[0], place)
    rows: list[int] = []
    leaves: list[int] = []
    for pod in pods:
        place = by_key.get(pod.group) or by_name.get(pod.group[0], _NOWHERE)
        rows.append(place[0])
        leaves.append(place[1].get(pod.pod.subgroup, NONE))
    return np.array(rows, np.int64), np.array(leaves, np.int64)


_Place: TypeAlias = tuple[int, Mapping[str, int]]
_NOWHERE: _Place = (NONE, {})
_order = attrgetter("order")
