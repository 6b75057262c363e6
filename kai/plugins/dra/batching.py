"""Placing pods that ask for whole devices in batches: counting says how many of them each node takes.

An *ask* is what pods want, whatever their claims are called: a number of devices that match, if wanted with one value
of an attribute in common. Pods have an ask if nothing but free devices decides about them:

- one claim of their own that is not allocated, or one resource that a device class backs, with one request;
- devices of one node each, that no other pod may share and no counter divides; or one partition of a GPU.

Then the search of ``allocator`` takes the first free devices, and ``Batching`` does the same for many pods at once. In
the engine's books such a device is one GPU that the engine booked, so nothing is to be corrected (``seats``).

Partitions draw from counters of their GPU, and what a further one takes of the GPU depends on those that are there. One
pass over the devices of a node says which of them pods get one after the other: a device without enough in its counters
has no more later on (``inventory.Parts``).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import attrs
import numpy as np

from kai.framework import (
    GPU_UNIT,
    Batch,
    Bools,
    Int64s,
    NodeRow,
    NodeRows,
    PodRow,
    PodRows,
    SessionView,
    Shape,
    Status,
    Taken,
    Tracked,
    Verdict,
)
from kai.framework.claims import AllocatedDevice, ClaimPlacement, ClaimReference
from kai.plugins.dra.accounting import Accounting, Holding, allocation_of
from kai.plugins.dra.allocator import MOST_STEPS, concerns, typed
from kai.plugins.dra.demand import Demand, Want
from kai.plugins.dra.inventory import Inventory, name_term

if TYPE_CHECKING:
    from kai.plugins.dra.extended import Implied


class Asked(Protocol):
    """What ``claim_answers`` knows of pods."""

    def needed(self, pod: PodRow) -> tuple[str, ...]:
        """Return the resources that ``pod`` asks for and a class backs."""

    def implied_by(self, shape: Shape, resources: tuple[str, ...], namespace: str) -> tuple["Implied", Demand]:
        """Return the claim for ``resources`` of pods of ``shape``, and its demand."""

    def demand(self, row: int) -> Demand:
        """Return the demand of the claim in ``row``."""

    def admit(self, pod: PodRow) -> Verdict:
        """Return whether the claims of ``pod`` are there and may be used by it."""


MOST_ASKS = 16
"""The most asks that are counted; pods with others are placed one by one."""
FEW = 32
"""The most nodes whose devices are counted node by node."""
FEW_TO_DIVIDE = 8
"""The same for partitions, which take a look at each."""


@attrs.frozen(kw_only=True, eq=False)
class Ask:
    """Devices of one kind. Shapes: d devices that match, N nodes."""

    rows: Int64s
    """[d] Devices that match: those of one node beside each other, ascending."""
    start: Int64s
    """[N + 1] Where the devices of each node begin."""
    count: int
    values: Int64s | None
    """[d] Equal numbers for devices that may be taken together; None: all may."""
    is_part: bool = False
    """Whether the devices are partitions of GPUs."""


@attrs.frozen(kw_only=True, eq=False)
class Claimant:
    """A pod that has an ask."""

    ask: int
    want: Want
    gpus: int
    """How many of the devices count as GPUs that pods sit on."""
    claim: int = -1
    """The row of its claim, -1: devices that it requests by the name of a class."""
    reference: ClaimReference | None = None
    implied: "Implied | None" = None


class Batching:
    """The asks of one session."""

    def __init__(self, view: SessionView, inventory: Inventory, accounting: Accounting) -> None:
        """Begin without pods."""
        self._view = view
        self._inventory = inventory
        self._accounting = accounting
        self._asks: list[Ask] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._ask_of: dict[tuple[int, str], int] = {}
        self._wants: list[Want] = []
        self._claimants: dict[int, Claimant] = {}
        self._seen: Int64s | None = None
        """[D] The use of devices when they were counted last."""
        self._counted = np.zeros((0, 0), np.int64)
        drawing = np.zeros(len(inventory.devices), np.bool_)
        drawing[[*inventory.draws]] = True
        self._whole: Bools = (inventory.node >= 0) & ~inventory.multiple & ~inventory.partitioned & ~drawing
        """[D] Devices that are free or in use, and belong to one node."""

    # ------------------------------------------------------------------ who is placed so

    def batch(self, answers: Asked, pods: PodRows) -> Batch | None:
        """Return the extension for those of ``pods`` that wait and have an ask; None if there are none.

        ``pods`` are all that refer to claims or to resources that classes back.
        """
        snapshot = self._view.snapshot
        users = Counter(
            (snapshot.pods[pod].namespace, each.claim)
            for pod, shape in zip(pods.tolist(), snapshot.pod_shape[pods].tolist(), strict=True)
            for each in snapshot.shapes[shape].constraints.claims
        )
        asks = np.full(len(snapshot.shapes), -1, np.int64)
        waiting = pods[snapshot.pod_status[pods] == Status.PENDING]
        seen: dict[int, Claimant | None] = {}
        for pod, shape in zip(waiting.tolist(), snapshot.pod_shape[waiting].tolist(), strict=True):
            known = seen.get(shape)
            # Without claims, all pods of a shape ask for the same.
            is_same = shape in seen and not snapshot.shapes[shape].constraints.claims
            found = known if is_same else self._claimant(answers, PodRow(pod), users)
            number = -1 if found is None else found.ask
            asks[shape] = number if shape not in seen or asks[shape] == number else -1
            seen[shape] = found
            if found is not None:
                self._claimants[pod] = found
        if not (asks >= 0).any():
            return None
        shape = len(self._asks), len(snapshot.nodes)
        room = self._view.track(np.zeros(shape, np.int64))
        measured = np.array([ask.is_part for ask in self._asks], np.bool_)
        if not measured.any():
            return Batch(ask=asks, room=room, count=self.count, take=self.take)
        most = max(int(np.diff(ask.start).max(initial=0)) for ask in self._asks if ask.is_part)
        self._less = np.zeros((*shape, most + 1), np.int64)
        return Batch(ask=asks, room=room, count=self.count, take=self.take, measured=measured, parts=lambda: self._less)

    def _claimant(self, answers: Asked, pod: PodRow, users: Mapping[tuple[str, str], int]) -> Claimant | None:
        """Return what ``pod`` asks for, None if counting does not decide."""
        snapshot, accounting = self._view.snapshot, self._accounting
        shape, namespace = snapshot.shapes[int(snapshot.pod_shape[pod])], snapshot.pods[pod].namespace
        resources, references = answers.needed(pod), shape.constraints.claims
        if len(resources) + len(references) != 1 or shape.gpu.named or shape.gpu.named_not_had:
            return None
        implied, reference, row = None, None, -1
        if resources:
            if self._is_plugged(resources[0]):
                return None
            implied, demand = answers.implied_by(shape, resources, namespace)
        else:
            (reference,) = references
            name = (namespace, reference.claim)
            row = accounting.rows.get(name, -1)
            if row < 0 or users[name] > 1 or not accounting.is_unused(row):
                return None
            demand = answers.demand(row)
        ask = self._ask_of_demand(demand)
        if ask < 0 or not answers.admit(pod):
            return None
        gpus, wanted = 0, self._asks[ask]
        if reference is not None and self._inventory.gpu[wanted.rows].all():
            gpus = min(demand.claim.gpus, wanted.count)
        if gpus > shape.gpu.claimed or demand.claim.most_spared:
            return None
        if wanted.is_part and not gpus == demand.claim.gpus == shape.gpu.claimed == 1:
            return None
        # What its queue is charged has to be what the engine charges by now.
        had = self._inventory.parts.not_had[wanted.rows] if wanted.is_part else np.zeros(1, np.int64)
        if (had != demand.claim.not_had[0]).any():
            return None
        return Claimant(ask=ask, want=demand.requests[0][0], gpus=gpus, claim=row, reference=reference, implied=implied)

    def _is_plugged(self, resource: str) -> bool:
        """Return whether the device plugin of some node has ``resource``; pods need no claim there."""
        nodes = self._view.snapshot.nodes
        return bool(self._view.once(f"plugs {resource}", (nodes,), lambda: any(each.plugs(resource) for each in nodes)))

    def _ask_of_demand(self, demand: Demand) -> int:
        """Return the number of what ``demand`` asks for, -1 if counting does not decide."""
        requests, constraints = demand.requests, demand.claim.constraints
        if demand.fault or len(requests) != 1 or len(requests[0]) != 1 or len(constraints) > 1:
            return -1
        (want,), match = requests[0], ""
        for constraint in constraints:
            if constraint.distinct:
                return -1
            match = constraint.match if concerns(constraint, want.name) else ""
        found = self._ask_of.get((id(want), match))
        if found is None:
            # Kept, so that no other want gets the identity of this one.
            self._wants.append(want)
            found = self._ask_of[id(want), match] = self._number(want, match)
        return found

    def _number(self, want: Want, match: str) -> int:
        rows = np.flatnonzero(want.matching)
        unfit = bool(want.every or want.admin or want.consumes or want.faulty.any())
        is_whole = bool(self._whole[rows].all())
        if not unfit and not is_whole:
            unfit = bool(match) or want.count != 1 or not self._inventory.parts.is_part[rows].all()
        if unfit or len(np.unique(self._inventory.gpu[rows])) > 1:
            return -1
        values = self._values(rows, match) if match else None
        if values is not None:
            rows, values = rows[values >= 0], values[values >= 0]
            most = int(np.bincount(self._inventory.node[rows], minlength=1).max())
            # The search for devices gives up after a number of steps, and takes at most these.
            if most * 2 ** min(want.count, 32) * most > MOST_STEPS:
                return -1
        key = rows.tobytes(), want.count, None if values is None else values.tobytes()
        number = self._numbers.get(key)
        if number is None:
            if len(self._asks) == MOST_ASKS:
                return -1
            number = self._numbers[key] = len(self._asks)
            nodes = self._inventory.node[rows]
            order = np.argsort(nodes, kind="stable")
            start = np.searchsorted(nodes[order], np.arange(len(self._view.snapshot.nodes) + 1))
            values = None if values is None else values[order]
            self._asks.append(Ask(rows=rows[order], start=start, count=want.count, values=values, is_part=not is_whole))
        return number

    def _values(self, rows: Int64s, attribute: str) -> Int64s:
        """Return equal numbers for devices with equal values of ``attribute``, -1 for those without it."""
        numbers: dict[object, int] = {}
        out: list[int] = []
        for row in rows.tolist():
            value = self._inventory.devices[row].attributes.get(attribute)
            out.append(-1 if value is None else numbers.setdefault(typed(value), len(numbers)))
        return np.array(out, np.int64)

    # ------------------------------------------------------------------ how many, and which

    def count(self) -> Int64s | None:
        """Return int64[A, N]: how many more pods with each ask each node takes.

        Cost: a pass over all devices; more only for nodes whose devices were taken or freed since the last time.
        """
        in_use, nodes = self._accounting.columns.in_use.values, len(self._view.snapshot.nodes)
        if any(ask.is_part for ask in self._asks):
            if self._accounting.seats.is_any_left:
                return None
            # A pod may come to a device that is in use already, and from then on the device takes its part of a GPU.
            in_use = in_use * 2 + (self._accounting.seats.using.values > 0)
        changed: list[int] | None = None
        if self._seen is None:
            self._counted = np.zeros((len(self._asks), nodes), np.int64)
        else:
            found = np.unique(self._inventory.node[in_use != self._seen])
            changed = found[found >= 0].tolist() if len(found) <= FEW else None
            if changed == []:
                return self._counted
            # The engine takes the same array for the same numbers.
            self._counted = self._counted.copy()
        is_sure = all(self._count(at, ask, changed) for at, ask in enumerate(self._asks))
        self._seen = in_use.copy() if is_sure else None
        return self._counted if is_sure else None

    def _count(self, at: int, ask: Ask, changed: Sequence[int] | None) -> bool:
        """Count the room for one ask on the ``changed`` nodes, None for all; False where counting does not do."""
        nodes = len(self._view.snapshot.nodes)
        if ask.is_part:
            self._divide(at, ask, self._view.nodes if changed is None else np.array(changed, np.int64))
            return True
        if changed is None:
            free = self._accounting.columns.in_use.values[ask.rows] == 0
            self._counted[at] = _counts(ask, free, nodes)
            return not self._accounting.seats.is_left(ask.rows[free])
        for node in changed:
            rows, values = self._free(ask, node)
            if self._accounting.seats.is_left(rows):
                return False
            sets = np.array([len(rows)]) if values is None else np.bincount(values, minlength=1)
            self._counted[at, node] = (sets // ask.count).sum()
        return True

    @cached_property
    def _has_gpus(self) -> Bools:
        return np.array([node.allocatable.get("gpu", 0) > 0 for node in self._view.snapshot.nodes], np.bool_)

    def _divide(self, at: int, ask: Ask, nodes: NodeRows) -> None:
        """Count how many pods with ``ask`` each of ``nodes`` takes, and what they take less of a GPU than one."""
        for node, rows, parts in self._picks(ask, nodes):
            self._counted[at, node] = len(rows)
            self._less[at, node] = 0
            # A node that offers no GPUs counts none. The last of the pods leaves no room.
            if self._has_gpus[node]:
                self._less[at, node, : len(rows)] = GPU_UNIT - np.array(parts[::-1], np.int64)

    def _picks(self, ask: Ask, nodes: NodeRows) -> Iterator[tuple[int, list[int], list[int]]]:
        """Yield each of ``nodes``, the devices of pods that come there one by one, and what each takes of its GPU."""
        if len(nodes) <= FEW_TO_DIVIDE:
            for node in nodes.tolist():
                yield node, *self._picks_on(ask, node)
            return
        picked, parts = self._picks_at_once(ask, nodes)
        for node, rows, amounts in zip(nodes.tolist(), picked, parts, strict=True):
            yield node, rows[rows >= 0].tolist(), amounts[rows >= 0].tolist()

    def _picks_on(self, ask: Ask, node: int) -> tuple[list[int], list[int]]:
        """Return the devices of pods that come to ``node`` one by one, and what each takes of its GPU."""
        parts, drawn, limits = self._inventory.parts, self._accounting.columns.drawn.values, self._inventory.limits[2]
        using, left, sums = self._accounting.seats.using.values, dict[int, int](), dict[int, Int64s]()
        picked: list[int] = []
        amounts: list[int] = []
        for row in self._free(ask, node)[0].tolist():
            draws = self._inventory.draws.get(row, ())
            for counter, _ in draws:
                left.setdefault(counter, int(limits[counter] - drawn[counter]))
            if any(amount > left[counter] for counter, amount in draws):
                continue
            for counter, amount in draws:
                left[counter] -= amount
            gpu = int(parts.gpu[row])
            if gpu not in sums:
                there = parts.devices_of(gpu)
                sums[gpu] = parts.drawn[there[using[there] > 0]].sum(axis=0)
            more = sums[gpu] + parts.drawn[row]
            picked.append(row)
            amounts.append(parts.taken_of(gpu, more) - parts.taken_of(gpu, sums[gpu]))
            sums[gpu] = more
        return picked, amounts

    def _picks_at_once(self, ask: Ask, nodes: NodeRows) -> tuple[Int64s, Int64s]:
        """Return [n, J] twice: the same for many nodes. Places of devices that no pod gets are -1 and 0.

        Cost: O(J) operations on columns of n.
        """
        parts, columns, using = self._inventory.parts, self._accounting.columns, self._accounting.seats.using.values > 0
        drawn, in_use = np.append(columns.drawn.values, 0), columns.in_use.values
        limits = np.append(self._inventory.limits[2], 1)
        sums = np.zeros_like(parts.whole)
        sat_on = np.flatnonzero(using & (parts.gpu >= 0))
        np.add.at(sums, parts.gpu[sat_on], parts.drawn[sat_on])
        taken = parts.taken(np.arange(len(sums)), sums)
        first, sizes = ask.start[nodes], ask.start[nodes + 1] - ask.start[nodes]
        picked = np.full((len(nodes), int(sizes.max(initial=0))), -1, np.int64)
        part = np.zeros_like(picked)
        for place in range(picked.shape[1]):
            at = np.flatnonzero(sizes > place)
            rows = ask.rows[first[at] + place]
            counters, amounts = parts.counters[rows], parts.amounts[rows]
            fits = (in_use[rows] == 0) & (drawn[counters] + amounts <= limits[counters]).all(axis=1)
            at, rows = at[fits], rows[fits]
            np.add.at(drawn, counters[fits], amounts[fits])
            # The devices are of different nodes, so no GPU comes twice.
            gpus = parts.gpu[rows]
            sums[gpus] += parts.drawn[rows]
            now = parts.taken(gpus, sums[gpus])
            picked[at, place], part[at, place] = rows, now - taken[gpus]
            taken[gpus] = now
        return picked, part

    def _turns(self, ask: Ask, nodes: NodeRows) -> Mapping[int, Iterator[list[int]]]:
        """Return for each of ``nodes`` the devices that one pod after the other gets there."""
        if not ask.is_part:
            return {node: turns(ask.count, *self._free(ask, node)) for node in nodes.tolist()}
        return {node: iter([[row] for row in rows]) for node, rows, _ in self._picks(ask, nodes)}

    def _free(self, ask: Ask, node: int) -> tuple[Int64s, Int64s | None]:
        """Return the free devices of ``node``, ascending, and their values."""
        mine = slice(ask.start[node], ask.start[node + 1])
        free = self._accounting.columns.in_use.values[ask.rows[mine]] == 0
        return ask.rows[mine][free], None if ask.values is None else ask.values[mine][free]

    def take(self, pods: PodRows, nodes: NodeRows) -> Taken:
        """Return the devices of ``pods``, all with one ask, on ``nodes``."""
        ask = self._asks[self._claimants[int(pods[0])].ask]
        there = self._turns(ask, np.unique(nodes))
        details: list[ClaimPlacement] = []
        taken: list[tuple[Claimant, list[int], Holding]] = []
        known: dict[tuple[int, int], AllocatedDevice] = {}
        for pod, node in zip(pods.tolist(), nodes.tolist(), strict=True):
            claimant = self._claimants[pod]
            rows = next(there[node])
            holding = self._holding(claimant.want, rows, node, known)
            details.append(self._placement(pod, claimant, holding))
            taken.append((claimant, rows, holding))
        return Taken(details=details, changes=self._changes(pods, taken))

    def _holding(
        self, want: Want, rows: Sequence[int], node: int, known: dict[tuple[int, int], AllocatedDevice]
    ) -> Holding:
        devices: list[AllocatedDevice] = []
        for row in rows:
            found = known.get((id(want), row))
            if found is None:
                driver, pool, device = self._inventory.keys[row]
                found = known[id(want), row] = AllocatedDevice(
                    request=want.name, driver=driver, pool=pool, device=device, tolerations=want.tolerations
                )
            devices.append(found)
        return Holding(tuple(devices), (name_term(self._view.snapshot.nodes[NodeRow(node)].name),))

    def _placement(self, pod: int, claimant: Claimant, holding: Holding) -> ClaimPlacement:
        if claimant.implied is not None:
            return ClaimPlacement(extended=claimant.implied.allocated(holding.devices, holding.nodes))
        if claimant.reference is None:
            raise TypeError("pod in a batch: found neither a claim nor a resource, expected one of them")
        return ClaimPlacement(
            claims=(allocation_of(claimant.reference, self._view.snapshot.pods[pod].namespace, holding),)
        )

    def _changes(
        self, pods: PodRows, taken: Sequence[tuple[Claimant, list[int], Holding]]
    ) -> list[tuple[Tracked, Int64s, Int64s]]:
        rows = [row for _, each, _ in taken for row in each]
        seats = [row for claimant, each, _ in taken for row in each[: claimant.gpus]]
        claims = [
            (pod, claimant.claim, holding)
            for pod, (claimant, _, holding) in zip(pods.tolist(), taken, strict=True)
            if claimant.claim >= 0
        ]
        return self._accounting.changes(pods, rows, seats, claims)


def _counts(ask: Ask, free: Bools, nodes: int) -> Int64s:
    """Return int64[N]: how many pods with ``ask`` the ``free`` devices [d] of each node serve."""
    where = np.repeat(np.arange(nodes), np.diff(ask.start))[free]
    if ask.values is None:
        return np.bincount(where, minlength=nodes) // ask.count
    width = int(ask.values.max(initial=0)) + 1
    sets = np.bincount(where * width + ask.values[free], minlength=nodes * width) // ask.count
    out: Int64s = sets.reshape(nodes, width).sum(axis=1)
    return out


def turns(count: int, rows: Int64s, values: Int64s | None) -> Iterator[list[int]]:
    """Yield the ``count`` devices that one pod after the other gets of the free ``rows`` of a node, as the search does.

    Shapes: rows [f] ascending, values [f]: a pod's devices have equal ones; None: any will do.
    """
    if values is None:
        free = rows.tolist()
        for at in range(0, len(free) - count + 1, count):
            yield free[at : at + count]
        return
    sets: dict[int, list[int]] = {}
    for row, value in zip(rows.tolist(), values.tolist(), strict=True):
        sets.setdefault(value, []).append(row)
    # The search takes the first device that has enough others to go with it.
    while enough := [each for each in sets.values() if len(each) >= count]:
        first = min(enough)
        yield first[:count]
        del first[:count]
