"""The inventory of devices as rows: from which nodes each can be used, and what it shares with others.

Rows are in the order in which devices are tried: by driver and pool, then by slice, then as the slice lists them.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np

from kai.framework import GPU_UNIT, NONE, Bools, Int64s, Node, NodeTerm, Requirement
from kai.framework.claims import (
    NEWEST,
    V1_37,
    AllocatedDevice,
    Device,
    DeviceSlice,
    Gpu,
    Gpus,
    KubernetesVersion,
    gpus_of,
)

DeviceKey = tuple[str, str, str]
"""Driver, pool, device."""
Selected = Callable[[Iterable[NodeTerm]], Bools]
Tables = tuple[Int64s, Int64s, Int64s]
"""Holders by device [D], amounts by capacity [M] and by counter [K]."""
MOST_SHARES = 1 << 40
"""Holders that a device may have which may be allocated many times: as many as its capacities allow."""
CounterKey = tuple[str, str, str, str]
"""Driver, pool, counter set, counter."""


@attrs.frozen(kw_only=True, eq=False)
class Inventory:
    """All devices of a snapshot.

    Shapes: D devices, N nodes, M capacities of devices that may be allocated many times, K counters.
    """

    slices: tuple[DeviceSlice, ...]
    devices: tuple[Device, ...]
    keys: tuple[DeviceKey, ...]
    rows: Mapping[DeviceKey, int]
    node: Int64s
    """[D] The only node that can use a device, -1 when others can or when that node is not in the snapshot."""
    distant: Mapping[int, Bools]
    """Bools [N] for devices that more than one node may use."""
    terms: Mapping[int, tuple[NodeTerm, ...] | None]
    """Where a device of ``distant`` can be used; None: anywhere."""
    gpu: Bools
    """[D]"""
    gpus: Gpus
    """The GPUs that devices are, or are partitions of."""
    partitioned: Bools
    """[D] The device is a GPU that has partitions, or one of these."""
    barred: Bools
    """[D] Devices of incomplete or contradictory pools; they are not allocated."""
    unsettled: Bools
    """[N] Nodes that see a slice of such a pool, be it one without devices: what all devices are is not known there."""
    multiple: Bools
    """[D] The device may be allocated many times."""
    cells: Mapping[tuple[int, str], int]
    """Row of each capacity of a device that may be allocated many times."""
    counters: Mapping[CounterKey, tuple[int, int]]
    """Row and amount of each shared counter of a pool."""
    draws: Mapping[int, tuple[tuple[int, int], ...]]
    """Counter rows and amounts that a device draws when it is allocated, as far as its pool offers them."""
    shared_draws: tuple[int, ...]
    """Those devices of ``draws`` that may be allocated many times."""
    limits: Tables
    """How many holders each device can have, how much there is of each capacity and of each counter."""
    local: Mapping[int, Int64s]
    """Device rows of each node that has devices of its own, ascending."""
    kubernetes: KubernetesVersion
    """The version whose scheduler the search for devices follows."""

    @property
    def intricate(self) -> bool:
        """Whether some devices are more than free or in use."""
        return bool(self.draws) or bool(self.multiple.any())

    def gpus_of(self, devices: Iterable[AllocatedDevice], node: int | None = None) -> list[int]:
        """Return the rows of the GPUs among ``devices`` that belong to one node (to ``node``), each once."""
        rows = dict.fromkeys(self.rows.get(device.key, NONE) for device in devices)
        return [
            row for row in rows if row >= 0 and self.gpu[row] and self.node[row] >= 0 and node in (None, self.node[row])
        ]

    def gpus_at(self, rows: Iterable[int]) -> tuple[Gpu, ...]:
        """Return the GPUs that the devices in ``rows`` take something of, each once."""
        # By identity: a GPU with measures has mappings, and cannot be hashed.
        return tuple({id(gpu): gpu for row in rows for gpu in self.gpus.of_device[self.keys[row]]}.values())

    def usable_on(self, node: int) -> Int64s:
        """Return the rows of the devices that ``node`` can use, in the order in which they are tried."""
        local = self.local.get(node)
        distant = [row for row, mask in self.distant.items() if mask[node]]
        if not distant:
            return np.zeros(0, np.int64) if local is None else local
        rows = np.array(distant, np.int64)
        return rows if local is None else np.sort(np.concatenate([local, rows]))

    def counts(self, mask: Bools, nodes: int) -> Int64s:
        """Return int64[N]: how many of the devices in ``mask`` [D] each of ``nodes`` nodes can use."""
        local = mask & (self.node >= 0)
        out = np.bincount(self.node[local], minlength=nodes).astype(np.int64)
        for row, reached in self.distant.items():
            if mask[row]:
                out += reached
        return out

    def takes(self, devices: Iterable[AllocatedDevice]) -> Iterable[tuple[int, int, int]]:
        """Yield table, cell and amount of all that ``devices`` take from others.

        Looking on as an administrator takes nothing.
        """
        for device in devices:
            row = self.rows.get(device.key)
            if row is not None and not device.admin_access:
                yield from self.takes_row(row, dict(device.consumed) if device.shared else None)

    @cached_property
    def parts(self) -> "Parts":
        """What devices draw from counters and take of GPUs, as tables."""
        return Parts(self)

    def takes_row(self, row: int, consumed: Mapping[str, int] | None) -> Iterable[tuple[int, int, int]]:
        """Yield table, cell and amount of what a holder of the device in ``row`` takes.

        Of a device that may be allocated many times, it takes a share with ``consumed``, or all if that is None; any
        other device is taken as a whole. Counters that a shared device draws belong to no share: see ``with_draws``.
        """
        if not self.multiple[row]:
            yield 0, row, 1
            yield from self.draws_of(row)
            return
        yield 0, row, MOST_SHARES if consumed is None else 1
        for name, amount in (consumed or {}).items():
            if (row, name) in self.cells:
                yield 1, self.cells[row, name], amount

    def draws_of(self, row: int) -> Iterable[tuple[int, int, int]]:
        """Yield table, cell and amount of the counters that the device in ``row`` draws, for any number of holders."""
        return ((2, counter, amount) for counter, amount in self.draws.get(row, ()))

    def first_draws(self, devices: Iterable[AllocatedDevice], taken: Tables) -> Iterable[tuple[int, int, int]]:
        """Yield the counter draws of those ``devices`` that are shared and have no ``taken`` share yet."""
        rows = {self.rows.get(device.key, NONE) for device in devices if not device.admin_access}
        for row in sorted(rows):
            if row >= 0 and self.multiple[row] and taken[0][row] == 0:
                yield from self.draws_of(row)

    def with_draws(self, taken: Tables) -> Tables:
        """Return ``taken`` with the counter draws of shared devices added, once for all shares of a device."""
        held = [row for row in self.shared_draws if taken[0][row] > 0]
        if not held:
            return taken
        drawn = taken[2].copy()
        for row in held:
            for _, counter, amount in self.draws_of(row):
                drawn[counter] += amount
        return taken[0], taken[1], drawn

    def selector(self, rows: Sequence[int], node_name: str) -> tuple[NodeTerm, ...] | None:
        """Return where an allocation of the devices ``rows`` can be used, made for the node ``node_name``.

        Source: the structured allocator of Kubernetes: one device of a node ties the claim to it, selectors add up.
        """
        if any(self.node[row] >= 0 or self.devices[row].binds_to_node for row in rows):
            return (name_term(node_name),)
        labels: dict[Requirement, None] = {}
        fields: dict[Requirement, None] = {}
        for row in rows:
            for term in self.terms.get(row) or ():
                labels.update(dict.fromkeys(term.labels))
                fields.update(dict.fromkeys(term.fields))
        if not labels and not fields:
            return None
        return (NodeTerm(tuple(labels), tuple(fields)),)


class Parts:
    """What devices draw from counters and take of GPUs. Shapes: D devices, G GPUs, K counters, at most W for a device.

    Cost: a look at each device; made once for an inventory.
    """

    def __init__(self, inventory: Inventory) -> None:
        """Look at all devices."""
        devices, gpus = len(inventory.devices), inventory.gpus.all
        width = max((len(drawn) for drawn in inventory.draws.values()), default=0)
        # Counter K is no counter: it fills the rows of devices that draw from fewer.
        self.counters = np.full((devices, width), len(inventory.counters), np.int64)
        self.amounts = np.zeros((devices, width), np.int64)
        for row, drawn in inventory.draws.items():
            for at, (counter, amount) in enumerate(drawn):
                self.counters[row, at], self.amounts[row, at] = counter, amount
        self.gpu = np.full(devices, -1, np.int64)
        """[D] The GPU that a device takes something of, -1: none, or several."""
        measures = max((len(gpu.measures) for gpu in gpus), default=1) or 1
        self.drawn, self.whole = np.zeros((devices, measures), np.int64), np.ones((len(gpus), measures), np.int64)
        """What devices take, and GPUs have, by each measure of the GPU."""
        numbers, spanned = {id(gpu): at for at, gpu in enumerate(gpus)}, set[int]()
        for row, key in enumerate(inventory.keys):
            of = inventory.gpus.of_device.get(key, ())
            if len(of) == 1:
                self.gpu[row] = numbers[id(of[0])]
                self._measure(row, key, of[0])
            else:
                spanned |= {numbers[id(gpu)] for gpu in of}
        self._order = np.argsort(self.gpu, kind="stable")
        self._start = np.searchsorted(self.gpu[self._order], np.arange(len(gpus) + 1))
        self.is_part: Bools = self._is_part(inventory) & ~np.isin(self.gpu, [*spanned])
        """[D] Partitions of one GPU, with counters of its node alone; no device that spans GPUs takes of it."""
        self.not_had = np.array([inventory.gpus.not_had([_held(key)]) for key in inventory.keys], np.int64)
        """[D] Thousandths missing to a GPU."""

    def devices_of(self, gpu: int) -> Int64s:
        """Return the devices that take something of ``gpu`` and of no other, ascending."""
        return self._order[self._start[gpu] : self._start[gpu + 1]]

    def _measure(self, row: int, key: DeviceKey, gpu: Gpu) -> None:
        if not gpu.measures:
            self.drawn[row, 0] = 1
        for at, (drawn, whole) in enumerate(gpu.measures):
            self.drawn[row, at], self.whole[self.gpu[row], at] = drawn.get(key, 0), whole

    def _is_part(self, inventory: Inventory) -> Bools:
        if inventory.shared_draws:
            return np.zeros(len(inventory.devices), np.bool_)
        single: Bools = (inventory.node >= 0) & ~inventory.multiple & inventory.partitioned & (self.gpu >= 0)
        # A counter that devices of other nodes draw from, too, would make nodes depend on each other.
        nodes = np.repeat(inventory.node, self.counters.shape[1])
        first = np.full(len(inventory.counters) + 1, np.iinfo(np.int64).max)
        last = np.full_like(first, -2)
        np.minimum.at(first, self.counters.ravel(), nodes)
        np.maximum.at(last, self.counters.ravel(), nodes)
        local = first == last
        local[-1] = True
        parts: Bools = single & local[self.counters].all(axis=1)
        return parts

    def taken(self, gpus: Int64s, sums: Int64s) -> Int64s:
        """Return the thousandths of ``gpus`` [n] that are taken, from what is drawn by each measure, ``sums`` [n]."""
        taken: Int64s = np.minimum(GPU_UNIT, (sums * GPU_UNIT // self.whole[gpus]).max(axis=1))
        return taken

    def taken_of(self, gpu: int, sums: Int64s) -> int:
        """Return the same for one GPU."""
        parts = zip(sums.tolist(), self.whole[gpu].tolist(), strict=True)
        most: int = max(drawn * GPU_UNIT // whole for drawn, whole in parts)
        return min(GPU_UNIT, most)


def _held(key: DeviceKey) -> AllocatedDevice:
    driver, pool, device = key
    return AllocatedDevice(request="", driver=driver, pool=pool, device=device)


def name_term(name: str) -> NodeTerm:
    """Return the term that picks the node called ``name``."""
    return NodeTerm(fields=(Requirement("metadata.name", "In", (name,)),))


@attrs.define
class _Draft:
    """An inventory that is being written."""

    node: list[int] = attrs.field(factory=list)
    distant: dict[int, Bools] = attrs.field(factory=dict)
    terms: dict[int, tuple[NodeTerm, ...] | None] = attrs.field(factory=dict)
    cells: dict[tuple[int, str], int] = attrs.field(factory=dict)
    draws: dict[int, tuple[tuple[int, int], ...]] = attrs.field(factory=dict)

    def place(self, row: int, source: DeviceSlice, device: Device, rows: Mapping[str, int], selected: Selected) -> None:
        """Store from where the device can be used: its own node settings override those of its slice."""
        own = bool(device.node) or device.all_nodes or device.nodes is not None
        at: Device | DeviceSlice = device if own else source
        self.node.append(rows.get(at.node, NONE) if at.node else NONE)
        if at.node:
            return
        if at.all_nodes:
            self.distant[row], self.terms[row] = np.ones(len(rows), np.bool_), None
        elif at.nodes is not None:
            self.distant[row], self.terms[row] = selected(at.nodes), at.nodes

    def divide(
        self, row: int, source: DeviceSlice, device: Device, counters: Mapping[CounterKey, tuple[int, int]]
    ) -> None:
        """Store what allocations of the device share: its own capacities, and counters of its pool."""
        if device.multiple_allocations:
            for name in sorted(device.capacity):
                self.cells[row, name] = len(self.cells)
        if device.counters:
            self.draws[row] = tuple(
                (counters[drawn][0], amount)
                for group, counter, amount in device.counters
                if (drawn := (source.driver, source.pool, group, counter)) in counters
            )


def take_inventory(
    slices: Sequence[DeviceSlice],
    nodes: Sequence[Node],
    selected: Selected,
    kubernetes: KubernetesVersion = NEWEST,
    gpus: Gpus | None = None,
) -> Inventory:
    """Return the devices that ``slices`` offer to ``nodes``; ``selected`` answers which nodes terms select.

    ``gpus`` are those among the devices, where they are known.

    A device that is offered twice counts once, where it comes first.
    """
    ordered = sorted(slices, key=lambda each: (each.driver, each.pool, each.name))
    node_rows = {node.name: row for row, node in enumerate(nodes)}
    counters = _counters(ordered)
    draft = _Draft()
    rows: dict[DeviceKey, int] = {}
    devices: list[Device] = []
    for source in ordered:
        for device in source.devices:
            key = (source.driver, source.pool, device.name)
            if key in rows:
                continue
            row = rows[key] = len(devices)
            devices.append(device)
            draft.place(row, source, device, node_rows, selected)
            draft.divide(row, source, device, counters)
    node = np.array(draft.node, np.int64)
    multiple = np.array([device.multiple_allocations for device in devices], np.bool_)
    barred = _barred(ordered, counters)
    gpus = gpus_of(ordered) if gpus is None else gpus
    return Inventory(
        slices=tuple(slices),
        devices=tuple(devices),
        keys=tuple(rows),
        rows=rows,
        node=node,
        distant=draft.distant,
        terms=draft.terms,
        gpu=np.array([key in gpus.devices for key in rows], np.bool_),
        gpus=gpus,
        partitioned=np.array([any(gpu.measures for gpu in gpus.of_device.get(key, ())) for key in rows], np.bool_),
        barred=np.array([(driver, pool) in barred for driver, pool, _ in rows], np.bool_),
        unsettled=_unsettled(
            (each for each in ordered if (each.driver, each.pool) in barred), node_rows, selected, kubernetes
        ),
        multiple=multiple,
        cells=draft.cells,
        counters=counters,
        draws=draft.draws,
        shared_draws=tuple(row for row in draft.draws if multiple[row]),
        limits=_limits(multiple, [devices[row].capacity[name] for row, name in draft.cells], counters),
        local=_grouped(node),
        kubernetes=kubernetes,
    )


def _limits(multiple: Bools, capacities: Sequence[int], counters: Mapping[CounterKey, tuple[int, int]]) -> Tables:
    return (
        np.where(multiple, MOST_SHARES, 1).astype(np.int64),
        np.array(capacities, np.int64),
        np.array([amount for _, amount in counters.values()], np.int64),
    )


def _unsettled(
    slices: Iterable[DeviceSlice], rows: Mapping[str, int], selected: Selected, kubernetes: KubernetesVersion
) -> Bools:
    """Return bool[N]: nodes that see one of ``slices``.

    Source: Kubernetes' allocator. Before 1.37 every node sees the slices of counters, whichever nodes they name.
    """
    seen = np.zeros(len(rows), np.bool_)

    def see(at: Device | DeviceSlice) -> None:
        if at.node in rows:
            seen[rows[at.node]] = True
        elif at.all_nodes:
            seen[:] = True
        elif at.nodes is not None:
            seen[selected(at.nodes)] = True

    for source in slices:
        if source.counters and kubernetes < V1_37:
            seen[:] = True
        see(source)
        for device in source.devices:
            see(device)
    return seen


def _barred(slices: Iterable[DeviceSlice], counters: Container[CounterKey]) -> frozenset[tuple[str, str]]:
    """Return driver and name of the pools from which nothing is allocated.

    Some of their slices are missing, they use a name for two devices or two counter sets, or they have devices that
    draw from counters that no slice offers.

    Source: the pools that are incomplete or invalid for Kubernetes' allocator.
    """
    found: set[tuple[str, str]] = set()
    names: set[tuple[str, ...]] = set()
    for source in slices:
        pool = (source.driver, source.pool)
        sets = {group for group, _, _ in source.counters}
        own = [*((*pool, "device", device.name) for device in source.devices), *((*pool, "set", each) for each in sets)]
        drawn = ((*pool, group, name) for device in source.devices for group, name, _ in device.counters)
        unknown = any(key not in counters for key in drawn)
        if source.unfinished or unknown or len(set(own)) < len(own) or not names.isdisjoint(own):
            found.add(pool)
        names.update(own)
    return frozenset(found)


def _counters(slices: Sequence[DeviceSlice]) -> dict[CounterKey, tuple[int, int]]:
    """Return the row and the amount of each counter; of duplicates the first counts."""
    found: dict[CounterKey, tuple[int, int]] = {}
    for source in slices:
        for group, counter, amount in source.counters:
            found.setdefault((source.driver, source.pool, group, counter), (len(found), amount))
    return found


def _grouped(node: Int64s) -> Mapping[int, Int64s]:
    """Return the device rows of each node, ascending."""
    local = np.flatnonzero(node >= 0)
    order = local[np.argsort(node[local], kind="stable")]
    owners, starts = np.unique(node[order], return_index=True)
    parts = np.split(order.astype(np.int64), starts[1:])
    return {int(owner): part for owner, part in zip(owners, parts, strict=False)}
