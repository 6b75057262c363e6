"""Which claim holds which device: columns that follow placements, and what a placement changes in them.

A claim is allocated for as long as it has users: pods that are placed, and consumers beyond the snapshot that its
status names. The first pod takes the devices, the last one gives them back; pods between the two only count.

Devices of a driver for GPUs are also GPUs of their node. The engine books the GPUs of every pod; where several pods
share a device, all but the first are *counted already*, and the node gets back what the engine booked for them.

A claim that is being released when the session opens (``releasing``) takes nothing: its devices may be promised. It
stays allocated for pods that refer to it themselves; the first of them takes its devices.

Source: the claim handling of the peer's dynamicresources plugin and its node_info for shared devices. Unlike there, a
device counts once no matter whether it was shared before this cycle or in it, and devices that are being released are
not lost to the pods that wait.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs
import numpy as np

from kai.framework import GPU, GPU_UNIT, Effect, Int64s, NodeRow, NodeTerm, PodRow, SessionView, Status, Tracked
from kai.framework.claims import AllocatedDevice, Claim, ClaimPlacement
from kai.plugins.dra.inventory import Inventory, Tables

ClaimKey = tuple[str, str]
"""Namespace and name."""


@attrs.frozen
class Holding:
    """Devices that a claim holds, and where they can be used (None: anywhere)."""

    devices: tuple[AllocatedDevice, ...]
    nodes: tuple[NodeTerm, ...] | None = None


def spared_gpus(view: SessionView, placement: ClaimPlacement, node: NodeRow) -> int:
    """Return how many GPUs ``node`` books for a pod that does without them, as it gets smaller alternatives.

    A node without GPUs books none.
    """
    if not view.snapshot.nodes[node].allocatable.get("gpu", 0):
        return 0
    claims, held = view.snapshot.catalog.claims.claims, {each.claim: each.devices for each in placement.claims}
    return sum(claims[claim].spared(devices) for claim, devices in held.items())


@attrs.frozen(kw_only=True, eq=False)
class Columns:
    """Tracked columns. Shapes: C claims, D devices, M capacities, K counters, P pods."""

    in_use: Tracked
    """[D] Holders of a device; one that holds all of a device that may be allocated many times counts as the most."""
    consumed: Tracked
    """[M]"""
    drawn: Tracked
    """[K] By devices that can only have one holder."""
    reserved: Tracked
    """[C] Consumers of a claim."""
    choice: Tracked
    """[C] Number of the holding, 0 for a claim that is not allocated."""
    seats: Tracked
    """[D] Pods on the device's own node whose claims hold the device: running, being bound, allocated."""
    promised: Tracked
    """[D] The same for pods that were promised their place."""
    leaving: Tracked
    """[D] The same for pods that were evicted in this session."""
    held: Tracked
    """[P] 1 while the pod's devices are in this accounting."""


class Accounting:
    """State of all claims and devices in a session."""

    def __init__(
        self,
        view: SessionView,
        inventory: Inventory,
        claims: Mapping[ClaimKey, Claim],
        assigned: Mapping[PodRow, ClaimPlacement],
        releasing: Collection[ClaimKey],
    ) -> None:
        """Begin the accounting of what claims hold already.

        ``assigned`` says which devices the pods on nodes use, ``releasing`` which claims are about to be free.
        """
        self._view = view
        self._inventory = inventory
        self.claims = tuple(claims.values())
        self.rows: Mapping[ClaimKey, int] = {key: row for row, key in enumerate(claims)}
        self._holdings: list[Holding] = [Holding(())]
        self._numbers: dict[Holding, int] = {}
        pods = view.snapshot.pods
        users = [set(claim.reserved_for) for claim in self.claims]
        self._named_before = [frozenset(named) for named in users]
        self._assigned = frozenset(assigned)
        seats = np.zeros(len(inventory.devices), np.int64)
        self._going = np.zeros_like(seats)
        """Of the seats, those of pods that are leaving with claims that are being released."""
        held = np.zeros(len(pods), np.int64)
        for pod, placement in assigned.items():
            held[pod] = 1
            for allocation in placement.claims:
                users[self.rows[allocation.claim]].add(pods[pod].uid)
            node = NodeRow(int(view.snapshot.pod_node[pod]))
            for device in self.gpus(placement, node):
                seats[device] += 1
            going = tuple(each for each in placement.claims if each.claim in releasing)
            for device in self.gpus(ClaimPlacement(claims=going), node):
                self._going[device] += 1
        self._releasing = {self.rows[key]: len(users[self.rows[key]]) for key in releasing}
        """How many users each claim has that is being released; those who come add to them."""
        self.columns = self._open(np.array([len(named) for named in users], np.int64), seats, held)
        self._idle, self._released, self._used = (view.engine_column(name) for name in ("idle", "releasing", "used"))
        self._width = len(view.snapshot.axis)

    def _open(self, reserved: Int64s, seats: Int64s, held: Int64s) -> Columns:
        inventory = self._inventory
        choice = np.zeros(len(self.claims), np.int64)
        tables = tuple(np.zeros_like(limits) for limits in inventory.limits)
        for row, claim in enumerate(self.claims):
            if claim.allocation is not None:
                choice[row] = self.number(Holding(claim.allocation, claim.nodes))
                if row not in self._releasing:
                    _book(tables, inventory.takes(claim.allocation))
        in_use, consumed, drawn = (self._view.track(table) for table in tables)
        return Columns(
            in_use=in_use,
            consumed=consumed,
            drawn=drawn,
            reserved=self._view.track(reserved),
            choice=self._view.track(choice),
            seats=self._view.track(seats),
            promised=self._view.track(np.zeros_like(seats)),
            leaving=self._view.track(np.zeros_like(seats)),
            held=self._view.track(held),
        )

    # ------------------------------------------------------------------ claims

    def number(self, holding: Holding) -> int:
        """Return the number under which ``choice`` names ``holding``; new ones are added, none is ever dropped."""
        found = self._numbers.get(holding)
        if found is None:
            found = self._numbers[holding] = len(self._holdings)
            self._holdings.append(holding)
        return found

    def holding(self, row: int) -> Holding | None:
        """Return what the claim in ``row`` holds as things stand, None if it is not allocated."""
        number = int(self.columns.choice.values[row])
        return self._holdings[number] if number else None

    def consumers(self, row: int, pod: PodRow) -> int:
        """Return how many consumers other than ``pod`` the claim in ``row`` has."""
        counted = bool(self.columns.held.values[pod]) or self._is_named(row, pod)
        return int(self.columns.reserved.values[row]) - int(counted)

    def _is_named(self, row: int, pod: PodRow) -> bool:
        """Say whether ``pod`` is among the consumers all the time: the status named it before it was placed."""
        return pod not in self._assigned and self._view.snapshot.pods[pod].uid in self._named_before[row]

    def in_order(self, rows: Int64s) -> Int64s:
        """Return device ``rows`` in the order in which they are tried: those that an evicted pod still sits on last."""
        return rows[np.argsort(self.columns.leaving.values[rows] > 0, kind="stable")]

    def taken(self) -> Tables:
        """Return what is taken of devices, capacities and counters, as things stand."""
        return self._inventory.with_draws(self._counted())

    def _counted(self) -> Tables:
        columns = self.columns
        return columns.in_use.values, columns.consumed.values, columns.drawn.values

    def taken_or_releasing(self) -> Tables:
        """Return the same with what claims that are being released hold still."""
        in_use, consumed, drawn = self._counted()
        tables = in_use.copy(), consumed.copy(), drawn.copy()
        for row, users in self._releasing.items():
            if self.columns.reserved.values[row] == users:
                _book(tables, self._inventory.takes(self.claims[row].allocation or ()))
        return self._inventory.with_draws(tables)

    def is_overdrawn(self, holding: Holding, taken: Tables) -> bool:
        """Say whether ``taken`` is more than there is of something that ``holding`` takes."""
        inventory = self._inventory
        keys = [each.key for each in holding.devices if not each.admin_access and each.key in inventory.rows]
        draws = [draw for key in keys for draw in inventory.draws_of(inventory.rows[key])]
        cells = [*inventory.takes(holding.devices), *draws]
        return any(taken[table][cell] > inventory.limits[table][cell] for table, cell, _ in cells)

    @property
    def any_releasing(self) -> bool:
        """Whether claims are being released at all."""
        return bool(self._releasing)

    # ------------------------------------------------------------------ GPUs of nodes

    def gpus(self, placement: ClaimPlacement, node: NodeRow) -> list[int]:
        """Return the GPUs of ``node`` itself among the devices that the claims of ``placement`` hold."""
        devices = [device for allocation in placement.claims for device in allocation.devices]
        return self._inventory.gpus_of(devices, node)

    def shared(self, placement: ClaimPlacement, node: NodeRow, most: int) -> ClaimPlacement:
        """Return ``placement`` with how many of its GPUs, at most ``most``, the node need not count."""
        spared = spared_gpus(self._view, placement, node)
        most -= spared
        held = [(self.rows[each.claim], each.devices) for each in placement.claims]
        seats, promised = self.seats_beside(held), self.columns.promised.values
        rows = self.gpus(placement, node)
        used = min(most, sum(1 for row in rows if seats[row] > 0))
        more = min(most - used, sum(1 for row in rows if seats[row] == 0 and promised[row] > 0))
        return attrs.evolve(placement, counted=spared + used, promised=more)

    def seats_beside(self, held: Iterable[tuple[int, Iterable[AllocatedDevice]]]) -> Int64s:
        """Return int64[D]: how many pods sit on each device, as far as a pod with the claims ``held`` shares it.

        With a pod that is leaving it shares a device by a claim that they have in common; no other claim gets the
        device before that pod is gone.
        """
        seats = self.columns.seats.values
        if not self._releasing:
            return seats
        out: Int64s = seats - self._going
        for claim, devices in held:
            if claim in self._releasing:
                rows = self._inventory.gpus_of(devices)
                out[rows] = seats[rows]
        return out

    # ------------------------------------------------------------------ effects

    def effects(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement) -> Sequence[Effect]:
        """Return what holding its devices adds to the columns, or what giving them up takes away.

        Whichever is next for ``pod``: pods that hold their devices give them up, others take them.
        """
        columns = self.columns
        leaving = bool(columns.held.values[pod])
        out = [Effect(columns.held, int(pod), 1)]
        for allocation in {each.claim: each for each in placement.claims}.values():
            out += self._claim_effects(
                pod, allocation.claim, Holding(allocation.devices, allocation.nodes), leaving=leaving
            )
        if placement.extended is not None:
            out += self._taking(placement.extended.devices)
        promise = self._view.columns.status[pod] == Status.PIPELINED
        for row in self.gpus(placement, node):
            out += [Effect(columns.promised if promise else columns.seats, row, 1), Effect(columns.leaving, row, -1)]
        free = placement.counted + placement.promised
        if pod in self._assigned and not promise:
            free += self._taken_over(pod, node, placement, seats=int(leaving))
        if free:
            out.append(Effect(self._released, self._gpu_cell(node), free * GPU_UNIT))
        return out

    def _taken_over(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement, *, seats: int) -> int:
        """Return how many GPUs of ``pod`` were promised to others that use its claims, with ``seats`` taken by pods.

        While it is gone their promises take what it releases; while it stays they take nothing.
        """
        devices = [
            device
            for allocation in placement.claims
            if self.consumers(self.rows[allocation.claim], pod) > 0
            for device in allocation.devices
        ]
        columns = self.columns
        rows = self._inventory.gpus_of(devices, node)
        return sum(1 for row in rows if columns.promised.values[row] > 0 and columns.seats.values[row] == seats)

    def _claim_effects(self, pod: PodRow, claim: ClaimKey, holding: Holding, *, leaving: bool) -> list[Effect]:
        columns, row = self.columns, self.rows[claim]
        named = self._is_named(row, pod)
        out = [] if named else [Effect(columns.reserved, row, 1)]
        users = int(columns.reserved.values[row])
        if row in self._releasing:
            if users == self._releasing[row] + int(leaving):
                out += self._taking(holding.devices)
        elif (leaving and users == 1 and not named) or (not leaving and columns.choice.values[row] == 0):
            out.append(Effect(columns.choice, row, self.number(holding)))
            out += self._taking(holding.devices)
        return out

    def _taking(self, devices: Iterable[AllocatedDevice]) -> list[Effect]:
        columns = (self.columns.in_use, self.columns.consumed, self.columns.drawn)
        return [Effect(columns[table], cell, amount) for table, cell, amount in self._inventory.takes(devices)]

    def lasting_effects(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement) -> Sequence[Effect]:
        """Return what the node gets back for GPUs that it counted already, for as long as ``pod`` is booked there.

        While the pod is active its booking takes idle GPUs, once evicted it adds to those being released; neither is
        true for a GPU that another pod uses as well. A promise takes from those being released only.
        """
        leaving = [Effect(self.columns.leaving, row, 1) for row in self.gpus(placement, node)]
        promise = self._view.columns.status[pod] == Status.PIPELINED
        return leaving + self._given_back(node, placement, promise=promise)

    def opening_effects(self, node: NodeRow, placement: ClaimPlacement, status: int) -> Sequence[Effect]:
        """Return the same for a pod that stood there with ``status`` when the session opened."""
        out = self._given_back(node, placement, promise=False)
        if out and status != Status.RELEASING:
            out.append(Effect(self._released, self._gpu_cell(node), placement.counted * GPU_UNIT))
        return out

    def _given_back(self, node: NodeRow, placement: ClaimPlacement, *, promise: bool) -> list[Effect]:
        cell = self._gpu_cell(node)
        used, promised = placement.counted * GPU_UNIT, placement.promised * GPU_UNIT
        if not used + promised:
            return []
        out = [Effect(self._used, cell, -used - promised)]
        if not promise:
            out += [Effect(self._idle, cell, used), Effect(self._released, cell, -used)]
        return out

    def _gpu_cell(self, node: NodeRow) -> int:
        return int(node) * self._width + GPU


def _book(tables: Sequence[Int64s], takes: Iterable[tuple[int, int, int]]) -> None:
    for table, cell, amount in takes:
        tables[table][cell] += amount
