"""The audit of a ledger: every column that follows from where pods stand is worked out again and compared.

Tests call it after each step.

What cannot be worked out is bounded. Whether a device in sharing counts as idle or as being released depends on the
order of events, as it does in the peer; and a releasing copy that a moved pod left behind no longer says on which
devices it is.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kai.facts.kernels.columns import Columns, Facts
from kai.facts.model.axis import GPU, GPU_UNIT, SHARED_RESOURCES, Bools, Int64s
from kai.facts.model.pod import ACTIVE_ALLOCATED, ACTIVE_USED, COUNTED, GpuKind, Status
from kai.facts.state.ledger import Ledger


class Bookings(NamedTuple):
    """Which pods are booked where, an entry for each pair of pod and node; ``copy``: the pod went on from there."""

    pod: Int64s
    node: Int64s
    status: Int64s
    copy: Bools


class WrongBooksError(AssertionError):
    """A cell of a ledger is not what pods as they stand make of it."""


def audit(ledger: Ledger) -> None:
    """Compare all derived columns with what they are derived from. Cost: O(P R + slots + P x depth of queues).

    Raises: WrongBooksError that names the first row that does not agree.
    """
    facts, columns = ledger.facts, ledger.columns
    for what, found, wanted in _columns(facts, columns):
        wrong = np.argwhere(found != wanted)
        if len(wrong):
            at = tuple(map(int, wrong[0]))
            raise WrongBooksError(f"ledger: {what}{list(at)} is {int(found[at])}, pods as they stand make {wanted[at]}")
    _audit_devices(facts, columns, _bookings(columns))


def _bookings(columns: Columns) -> Bookings:
    """Return every booking: where each pod is, and where it left a releasing copy behind."""
    present = np.flatnonzero(_among(columns.status, ACTIVE_USED) & (columns.node >= 0))
    moved, at = np.nonzero(columns.left)
    pods = np.concatenate([present, moved]).astype(np.int64)
    return Bookings(
        pod=pods,
        node=np.concatenate([columns.node[present], columns.left[moved, at] - 1]),
        status=np.concatenate([columns.status[present], np.full(len(moved), Status.RELEASING)]),
        copy=np.concatenate([np.zeros(len(present), np.bool_), np.ones(len(moved), np.bool_)]),
    )


def _among(status: Int64s, statuses: int) -> Bools:
    return ((statuses >> status) & 1).astype(np.bool_)


def _columns(facts: Facts, columns: Columns) -> Iterator[tuple[str, Int64s, Int64s]]:
    """Yield the name, the content and the right content of each column that follows from statuses and places alone."""
    leaves, groups = facts.pods.leaf, facts.pods.group
    for name, statuses in (
        ("active", ACTIVE_ALLOCATED),
        ("occupying", ACTIVE_USED),
        ("pending", 1 << Status.PENDING),
        ("pipelined", 1 << Status.PIPELINED),
    ):
        # Pods of a group whose sub-group does not exist are in no leaf.
        counting = leaves[_among(columns.status, statuses) & (leaves >= 0) & (groups >= 0)]
        yield name, getattr(columns, name), np.bincount(counting, minlength=len(columns.active))
    counting = groups[_among(columns.status, COUNTED) & (groups >= 0)]
    yield "counted", columns.counted, np.bincount(counting, minlength=len(columns.counted))
    used, fixed = _queues(facts, columns)
    yield "queue_used", columns.queue_used, used
    yield "queue_fixed", columns.queue_fixed, fixed
    yield "queue_models", columns.queue_models, _models(facts, columns)
    yield "user_used", columns.user_used, _users(facts, columns)
    yield from _nodes(facts, columns, _bookings(columns))


def _users(facts: Facts, columns: Columns) -> Int64s:
    """Return what users hold in queues that limit them: the sums over pods with a place, up the accounts."""
    sums = np.zeros_like(columns.user_used)
    placed = np.flatnonzero(_among(columns.status, ACTIVE_ALLOCATED) & (facts.pods.group >= 0))
    for pod in placed if len(sums) else ():
        account = int(facts.users.account[facts.pods.group[pod]])
        while account >= 0:
            sums[account] += _accepted(facts, int(facts.pods.shape[pod]), int(columns.node[pod]))
            account = int(facts.users.above[account])
    if facts.shapes.claimed.any():
        sums[:, GPU] = np.clip(columns.user_used[:, GPU], 0, sums[:, GPU])
    return sums


def _queues(facts: Facts, columns: Columns) -> tuple[Int64s, Int64s]:
    """Return what queues use, and what of it cannot be taken back: the sums over pods with a place, up the tree."""
    used, fixed = np.zeros_like(columns.queue_used), np.zeros_like(columns.queue_fixed)
    for pod in np.flatnonzero(_among(columns.status, ACTIVE_ALLOCATED) & (facts.pods.group >= 0)):
        group = facts.pods.group[pod]
        amounts = _accepted(facts, int(facts.pods.shape[pod]), int(columns.node[pod]))
        queue = int(facts.groups.queue[group])
        while queue >= 0:
            used[queue] += amounts
            if not facts.groups.preemptible[group]:
                fixed[queue] += amounts
            queue = int(facts.queues.parent[queue])
    if facts.shapes.claimed.any():
        # A plugin gives back what pods share, and what claims have in part: between nothing and all of it.
        for sums, found in ((used, columns.queue_used), (fixed, columns.queue_fixed)):
            sums[:, GPU] = np.clip(found[:, GPU], 0, sums[:, GPU])
    return used, fixed


def _models(facts: Facts, columns: Columns) -> Int64s:
    """Return what queues use of each model: the sums over pods on nodes of that model, up the tree."""
    sums = np.zeros_like(columns.queue_models)
    placed = _among(columns.status, ACTIVE_ALLOCATED) & (facts.pods.group >= 0) & (columns.node >= 0)
    for pod in np.flatnonzero(placed):
        model = facts.nodes.model[columns.node[pod]]
        queue = int(facts.groups.queue[facts.pods.group[pod]])
        while queue >= 0 and model >= 0:
            sums[queue, model] += _accepted(facts, int(facts.pods.shape[pod]), int(columns.node[pod]))[GPU]
            queue = int(facts.queues.parent[queue])
    return np.clip(columns.queue_models, 0, sums) if facts.shapes.claimed.any() else sums


def _accepted(facts: Facts, shape: int, node: int) -> Int64s:
    request = facts.shapes.request[shape]
    amounts: Int64s = request[:SHARED_RESOURCES].copy()
    amounts[GPU] = request @ facts.nodes.gpu_weight
    if node >= 0 and facts.shapes.kind[shape] == GpuKind.FRACTION:
        amounts[GPU] = int(facts.shapes.portion[shape] * 100 + 0.5) * 10 * facts.shapes.devices[shape]
    elif node >= 0 and facts.shapes.kind[shape] == GpuKind.MEMORY:
        part = max(1, GPU_UNIT * facts.shapes.memory[shape] // facts.nodes.gpu_memory[node])
        amounts[GPU] = part * facts.shapes.devices[shape]
    return amounts


def _nodes(facts: Facts, columns: Columns, booked: Bookings) -> Iterator[tuple[str, Int64s, Int64s]]:
    """Yield what nodes have left. GPUs of nodes with devices in sharing, or behind claims, are not among it."""
    amounts = _taken(facts, booked)
    wanted = {name: np.zeros_like(columns.idle) for name in ("idle", "releasing", "used")}
    wanted["idle"] += facts.nodes.allocatable
    np.add.at(wanted["used"], booked.node, amounts)
    promised = booked.status == Status.PIPELINED
    leaving = booked.status == Status.RELEASING
    np.subtract.at(wanted["idle"], booked.node[~promised], amounts[~promised])
    np.add.at(wanted["releasing"], booked.node[leaving], amounts[leaving])
    np.subtract.at(wanted["releasing"], booked.node[promised], amounts[promised])
    exact = np.ones_like(columns.idle, np.bool_)
    exact[:, GPU] = (np.diff(facts.nodes.slot_start) == 0) & ~_behind_claims(facts)
    for name, right in wanted.items():
        yield name, np.where(exact, getattr(columns, name), 0), np.where(exact, right, 0)


def _taken(facts: Facts, booked: Bookings) -> Int64s:
    """Return int64[n, R]: what each booking takes of its node, devices in sharing apart."""
    shape = facts.pods.shape[booked.pod]
    amounts: Int64s = np.where(facts.nodes.allocatable[booked.node] == 0, 0, facts.shapes.request[shape])
    amounts[(facts.shapes.devices[shape] > 0) | facts.pods.reservation[booked.pod], GPU] = 0
    return amounts


def _behind_claims(facts: Facts) -> Bools:
    """Return bool[N]: nodes whose GPUs a plugin corrects, because several pods may use one."""
    return facts.nodes.dra_gpus | bool(facts.shapes.claimed.any())


def _audit_devices(facts: Facts, columns: Columns, booked: Bookings) -> None:
    memory = _device_memory(facts, booked)
    slots, owners = _slots_of(columns, booked)
    kinds = {
        "slot_used": np.ones(len(booked.pod), np.int64),
        "slot_allocated": (booked.status != Status.PIPELINED).astype(np.int64),
        "slot_releasing": (booked.status == Status.RELEASING).astype(np.int64)
        - (booked.status == Status.PIPELINED).astype(np.int64),
    }
    unknown: Int64s | None = None
    blurred = _blurred(facts, booked, len(columns.slot_used))
    for name, factor in kinds.items():
        known = np.zeros_like(columns.slot_used)
        np.add.at(known, slots, (memory * factor)[owners])
        rest = getattr(columns, name) - known
        unknown = rest if unknown is None else unknown
        # What copies left behind count alike in all three; elsewhere nothing may be left over.
        for wrong in np.flatnonzero((rest != unknown) | (rest < 0) | ((rest != 0) & ~blurred)):
            found, right = int(getattr(columns, name)[wrong]), int(known[wrong])
            raise WrongBooksError(f"ledger: {name}[{wrong}] is {found}, pods as they stand make {right}")
    holding = booked.status != Status.PIPELINED
    holding &= booked.status != Status.RELEASING
    in_use = np.zeros(len(columns.slot_used), np.bool_)
    in_use[slots[holding[owners]]] = True
    for wrong in np.flatnonzero((columns.slot_marked > 0) & in_use & ~blurred):
        raise WrongBooksError(f"ledger: slot_marked[{wrong}] is 1, expected 0: not all pods on the device are leaving")
    _audit_idle_devices(facts, columns, booked, in_use)
    if not facts.nodes.books_as_peer:
        _audit_whole_devices(facts, columns, booked, blurred)


def _audit_whole_devices(facts: Facts, columns: Columns, booked: Bookings, blurred: Bools) -> None:
    """Check that each device counts once: as idle, or as one that becomes free, or not at all."""
    held = columns.slot_allocated > 0
    leaving = held & (columns.slot_used == columns.slot_allocated) & (columns.slot_releasing == columns.slot_allocated)
    promised = ~held & (columns.slot_used > 0)
    amounts = _taken(facts, booked)[:, GPU]
    sign = {Status.RELEASING: 1, Status.PIPELINED: -1}
    idle, releasing = facts.nodes.allocatable[:, GPU].copy(), np.zeros(len(facts.nodes.gpu_memory), np.int64)
    np.subtract.at(idle, booked.node, np.where(booked.status == Status.PIPELINED, 0, amounts))
    np.add.at(releasing, booked.node, amounts * [sign.get(Status(each), 0) for each in booked.status.tolist()])
    node = np.searchsorted(facts.nodes.slot_start, np.arange(len(held)), side="right") - 1
    np.subtract.at(idle, node, GPU_UNIT * held)
    np.add.at(releasing, node, GPU_UNIT * (leaving.astype(np.int64) - promised))
    sure = facts.nodes.gpu_count * GPU_UNIT <= facts.nodes.allocatable[:, GPU]
    sure &= ~_behind_claims(facts)
    sure[node[blurred]] = False
    for name, right in (("idle", idle), ("releasing", releasing)):
        for wrong in np.flatnonzero((getattr(columns, name)[:, GPU] != right) & sure):
            found = int(getattr(columns, name)[wrong, GPU])
            raise WrongBooksError(f"ledger: {name}[{wrong}, {GPU}] is {found}, pods as they stand make {right[wrong]}")


def _audit_idle_devices(facts: Facts, columns: Columns, booked: Bookings, in_use: Bools) -> None:
    """Check that no device counts as idle that a pod holds, whole or in part."""
    amounts = _taken(facts, booked)[:, GPU]
    amounts[booked.status == Status.PIPELINED] = 0
    most = facts.nodes.allocatable[:, GPU].copy()
    np.subtract.at(most, booked.node, amounts)
    counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(in_use)])
    most -= GPU_UNIT * (counts[facts.nodes.slot_start[1:]] - counts[facts.nodes.slot_start[:-1]])
    # A label may count more devices than a node offers that has some of them cut into slices; then those are idle.
    honest = facts.nodes.gpu_count * GPU_UNIT <= facts.nodes.allocatable[:, GPU]
    for node in np.flatnonzero((columns.idle[:, GPU] > most) & honest & ~_behind_claims(facts)):
        found, right = int(columns.idle[node, GPU]), int(most[node])
        raise WrongBooksError(f"ledger: idle[{node}, {GPU}] is {found}, pods as they stand leave at most {right}")


def _device_memory(facts: Facts, booked: Bookings) -> Int64s:
    """Return int64[n]: MiB of each of its devices that a booking takes, 0 if it shares none."""
    shape = facts.pods.shape[booked.pod]
    part = (facts.shapes.portion[shape] * facts.nodes.gpu_memory[booked.node]).astype(np.int64)
    out: Int64s = np.where(facts.shapes.kind[shape] == GpuKind.MEMORY, facts.shapes.memory[shape], part)
    out[facts.shapes.devices[shape] == 0] = 0
    return out


def _slots_of(columns: Columns, booked: Bookings) -> tuple[Int64s, Int64s]:
    """Return the slots that bookings are known to be on, and which booking each belongs to."""
    placement = np.where(booked.copy, 0, columns.placement[booked.pod])
    table = columns.placement_slots[placement]
    table = np.where((placement > 0)[:, None], table, -1)
    owners, at = np.nonzero(table >= 0)
    return table[owners, at], owners


def _blurred(facts: Facts, booked: Bookings, slots: int) -> Bools:
    """Return bool[S]: slots of nodes where a sharing pod left a copy, the devices of which are not known."""
    nodes = np.zeros(len(facts.nodes.gpu_memory), np.bool_)
    nodes[booked.node[booked.copy & (facts.shapes.devices[facts.pods.shape[booked.pod]] > 0)]] = True
    out = np.zeros(slots, np.bool_)
    for node in np.flatnonzero(nodes):
        out[facts.nodes.slot_start[node] : facts.nodes.slot_start[node + 1]] = True
    return out


__all__ = ["WrongBooksError", "audit"]
