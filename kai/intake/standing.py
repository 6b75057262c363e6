"""Where pods stand and where they belong: the columns that follow from several objects together."""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from kai.api.bindrequest import BindRequest
from kai.intake.pods import Membership, PodCell
from kai.model.pod import Pod
from kai.model.podgroup import PodGroup
from kai.model.rows import NONE, Int64s
from kai.model.status import ACTIVE_USED, Status, within


@attrs.frozen(kw_only=True)
class Standing:
    """Columns by pod row, and the pods with what the bind requests say about them."""

    pods: tuple[Pod, ...]
    status: Int64s
    node: Int64s
    devices: Mapping[int, tuple[str, ...]]
    """Shared devices of pods that occupy a node."""


def read_standing(
    cells: Sequence[PodCell],
    node_rows: Mapping[str, int],
    bind_requests: Mapping[tuple[str, str], BindRequest],
    stuck_before: float,
) -> Standing:
    """Return where each pod stands. A pod told to go before ``stuck_before`` is not expected to leave any more.

    Source: the peer's pod_info (getTaskStatus) and cluster_info (the node of a pod is its own, else that of its bind request).
    """
    count = len(cells)
    pods = [cell.pod for cell in cells]
    status = np.fromiter([cell.status for cell in cells], np.int64, count)
    node = np.fromiter([node_rows.get(cell.node, NONE) for cell in cells], np.int64, count)
    devices: dict[int, tuple[str, ...]] = {}
    for row, cell in enumerate(cells):
        if cell.leaving_since is not None and cell.leaving_since < stuck_before:
            status[row] = Status.STUCK_IN_RELEASING
        request = bind_requests.get(cell.order) if bind_requests else None
        if request is not None:
            pods[row] = attrs.evolve(cell.pod, bind_request=request.metadata.name)
            if cell.waiting:
                status[row] = Status.BINDING
            if not cell.node:
                node[row] = node_rows.get(request.spec.selected_node, NONE)
        named = tuple(sorted(request.spec.selected_gpu_groups)) if request is not None else ()
        held = named or cell.devices
        if held and within(int(status[row]), ACTIVE_USED):
            devices[row] = held
    return Standing(pods=tuple(pods), status=status, node=node, devices=devices)


def read_memberships(cells: Sequence[PodCell], groups: Sequence[PodGroup]) -> tuple[Int64s, Int64s]:
    """Return the row of each pod's group, and the position of its leaf in the group; -1 for none.

    A pod belongs to the group it names in its own namespace, else to the first of that name by namespace.

    Source: the peer goes by the name alone, so that groups of one name in several namespaces share their pods; here only a pod whose own
    namespace has no such group can belong to a stranger.
    """
    by_name: dict[str, int] = {}
    by_key: dict[tuple[str, str], int] = {}
    for row, group in enumerate(groups):
        by_name.setdefault(group.name, row)
        by_key[group.name, group.namespace] = row
    known: dict[Membership, tuple[int, int]] = {}
    pairs: list[tuple[int, int]] = []
    for cell in cells:
        membership = cell.membership
        pair = known.get(membership)
        if pair is None:
            name, namespace, subgroup = membership
            group_row = by_key.get((name, namespace), by_name.get(name, NONE))
            pair = (group_row, _leaf(groups[group_row], subgroup) if group_row != NONE else NONE)
            known[membership] = pair
        pairs.append(pair)
    table = np.array(pairs, np.int64).reshape(len(cells), 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def _leaf(group: PodGroup, name: str) -> int:
    return next((at for at, each in enumerate(group.subgroups) if each.leaf and each.name == name), NONE)
