"""Which pods sit on which GPU of a node, what the node counts for it, and what queues are charged.

The engine books the GPUs that each pod requests. Devices of a GPU driver are GPUs of their node too, and several pods
may use one device: through one claim, in shares, or with admin access, which takes nothing. So this module takes back
what the engine booked for devices, and counts each GPU itself. The part that pods use is taken once. The part that only
leaving pods use is being released once, and promises of it take it once. A partition takes its part of the GPU.

The count of a GPU is a function of the pods on its devices and of nothing before. So the order in which pods come,
leave and return makes no difference.

Source: the peer's node_info for shared devices. Unlike there, a device counts once no matter whether it was shared
before this cycle or in it.

The engine charges the queue of each pod with the GPUs that its claims request. `Charges` gives back to a queue what
another pod of the queue already pays for the same claim, and the difference where devices turn out to be smaller parts
of GPUs than the engine knows. If pods of two queues use one claim, each queue pays once.

The charge of a claim is a function of its users, so the order in which pods come and leave makes no difference.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import numpy as np

from kai.framework import (
    GPU,
    GPU_UNIT,
    SHARED_RESOURCES,
    Bools,
    Effect,
    Int64s,
    NodeRow,
    PodRow,
    SessionView,
    Status,
    Tracked,
)
from kai.framework.claims import AllocatedDevice, Claim, ClaimAllocation, ClaimPlacement, Gpu
from kai.plugins.dra.inventory import Inventory


@attrs.frozen
class _Sitters:
    """How many sit on a device, or come to it: pods that use it, pods that are leaving, promises."""

    using: int = 0
    leaving: int = 0
    promised: int = 0

    def plus(self, other: "_Sitters", sign: int) -> "_Sitters":
        return _Sitters(
            self.using + sign * other.using,
            self.leaving + sign * other.leaving,
            self.promised + sign * other.promised,
        )


_NOBODY = _Sitters()


class Seats:
    """The GPUs of nodes in a session."""

    def __init__(self, view: SessionView, inventory: Inventory, assigned: Mapping[PodRow, ClaimPlacement]) -> None:
        """Begin with the pods on nodes; ``assigned`` are the devices that they hold."""
        self._view = view
        self._inventory = inventory
        nodes = view.snapshot.nodes
        self._has_gpus = np.array([node.allocatable.get("gpu", 0) > 0 for node in nodes], np.bool_)
        self._cells = tuple(view.engine_column(name) for name in ("idle", "releasing", "used"))
        self._width = len(view.snapshot.axis)
        using, self._going = (np.zeros(len(inventory.devices), np.int64) for _ in range(2))
        promised = np.zeros_like(using)
        returned: list[Effect] = []
        for pod, placement in assigned.items():
            node, status = NodeRow(int(view.snapshot.pod_node[pod])), int(view.snapshot.pod_status[pod])
            column = {Status.RELEASING: self._going, Status.PIPELINED: promised}.get(Status(status), using)
            rows, back = self._taken(pod, node, placement)
            for row in rows:
                column[row] += 1
            returned += self._back_for_good(node, back)
            if status != Status.RELEASING:
                returned += self._back_while_held(node, back, promise=status == Status.PIPELINED)
        self.using = view.track(using)
        """[D] Pods that use a device: running, being bound, allocated."""
        self._promised = view.track(promised)
        """[D] Pods that were promised the device, and devices kept for promises that lost theirs."""
        self.leaving = view.track(np.zeros_like(using))
        """[D] Pods that were evicted in this session."""
        sat_on = np.flatnonzero(using + self._going + promised).tolist()
        start = {row: _Sitters(int(using[row]), int(self._going[row]), int(promised[row])) for row in sat_on}
        counted = self._counted({row: (_NOBODY, at) for row, at in start.items()}, lambda _: _NOBODY)
        self.corrections: Sequence[Effect] = _summed((*returned, *counted))
        """What changes in the books of the engine when the session opens."""

    # ------------------------------------------------------------------ devices of a placement

    def _counting(self, placement: ClaimPlacement, node: NodeRow) -> list[AllocatedDevice]:
        """Return the GPUs of ``node`` that the engine books for claims of ``placement``.

        It books as many as a claim asks for: of all devices of a node, one.
        """
        out: list[AllocatedDevice] = []
        for each in _claims(placement):
            claim = self._view.snapshot.catalog.claims.claims[each.claim]
            there = [device for device in each.devices if self._inventory.gpus_of([device], node)]
            out += there[: max(0, claim.gpus - claim.spared(each.devices))]
        return out

    def _taken(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement) -> tuple[list[int], int]:
        """Return the GPUs of ``node`` that ``placement`` takes, and how many the engine books that ``node`` has back.

        Each GPU is there once, and looking on as administrator takes none. What the node has back are these devices,
        which it counts by itself, and what smaller alternatives do without.
        """
        snapshot = self._view.snapshot
        shape = snapshot.shapes[int(snapshot.pod_shape[pod])]
        named = placement.for_resources() if shape.gpu.named else ()
        there = [each for each in named if self._inventory.gpus_of([each], node)]
        counting = [*self._counting(placement, node), *there]
        rows = self._inventory.gpus_of([device for device in counting if not device.admin_access])
        if not self._has_gpus[node]:
            return rows, 0
        catalog = snapshot.catalog.claims.claims
        spared = sum(catalog[each.claim].spared(each.devices) for each in _claims(placement))
        return rows, min(shape.gpu.claimed, len(counting) + spared)

    # ------------------------------------------------------------------ what a placement counts for

    def credit(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement) -> tuple[int, int]:
        """Return how many thousandths of GPUs less ``pod`` needs on ``node`` with ``placement``: of idle, of free ones.

        A device from which a pod was just evicted is not idle. One whose pods were leaving before may be: the claim is
        theirs as well, or has a share that they do not need.
        """
        rows, back = self._taken(pod, node, placement)
        if not self._has_gpus[node]:
            return 0, 0
        using, promised = self.using.values > 0, self._promised.values > 0
        idle, free = self._more(rows, using | (self._going > 0)), self._more(rows, using | promised)
        return back * GPU_UNIT - idle, back * GPU_UNIT - free

    def _more(self, rows: Sequence[int], taken: Bools) -> int:
        """Return the thousandths of GPUs that devices in ``rows`` take in addition to the ``taken`` [D] ones."""
        # Per GPU and not per device: partitions of one GPU count for it once.
        keys, more = [self._inventory.keys[row] for row in rows], 0
        for gpu in self._inventory.gpus_at(rows):
            there = [key for key in gpu.devices if taken[self._inventory.rows[key]]]
            more += gpu.taken((*there, *keys)) - gpu.taken(there)
        return more

    def left_behind(self) -> Bools:
        """Return bool[N]: nodes with GPUs that pods which were evicted in this session still sit on."""
        out = np.zeros(len(self._view.snapshot.nodes), np.bool_)
        nodes = self._inventory.node[self.leaving.values > 0]
        out[nodes[nodes >= 0]] = True
        return out

    def is_left(self, rows: Int64s) -> bool:
        """Return whether pods sit on some of the device ``rows``, come to them or leave them."""
        taken = self.using.values[rows] + self.leaving.values[rows] + self._promised.values[rows] + self._going[rows]
        return bool(taken.any())

    @property
    def is_any_left(self) -> bool:
        """Whether pods leave devices, or are promised some."""
        return bool(self.leaving.values.any() or self._promised.values.any() or self._going.any())

    def in_order(self, rows: Int64s) -> Int64s:
        """Return device ``rows`` in the order of trying: devices on which an evicted pod still sits come last.

        It sits on all devices that have no room on their GPU beside its own.
        """
        leaving, inventory = self.leaving.values > 0, self._inventory
        last = leaving[rows]
        for at in np.flatnonzero(inventory.partitioned[rows]).tolist() if last.any() else ():
            key = inventory.keys[rows[at]]
            for gpu in inventory.gpus.of_device[key]:
                left = [each for each in gpu.devices if leaving[inventory.rows[each]]]
                last[at] |= bool(left) and not gpu.fits((*left, key))
        return rows[np.argsort(last, kind="stable")]

    def effects(
        self,
        pod: PodRow,
        node: NodeRow,
        placement: ClaimPlacement,
        kept: Iterable[AllocatedDevice],
        *,
        held: bool,
    ) -> list[Effect]:
        """Return the effects on the books of holding devices, for a pod that gets them (or is ``held`` by now).

        ``kept`` are devices that are kept for a promise while the pod holds its own.
        """
        status = self._view.columns.status[pod]
        if status == Status.RELEASING:
            return []
        # The lasting effect counts the pod as leaving for as long as it is booked on the node, evicted or not. While it
        # holds its place that is taken back.
        promise = bool(status == Status.PIPELINED)
        comes = _Sitters(using=int(not promise), leaving=-1, promised=int(promise))
        rows, back = self._taken(pod, node, placement)
        changes = dict.fromkeys(rows, comes)
        for row in self._inventory.gpus_of(kept):
            changes[row] = changes.get(row, _Sitters()).plus(_Sitters(promised=1), 1)
        return self._change(changes, back=held) + self._back_while_held(node, back, promise=promise)

    def lasting_effects(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement, *, held: bool) -> list[Effect]:
        """Return the same for as long as ``pod`` counts on ``node``, even once it is evicted."""
        rows, back = self._taken(pod, node, placement)
        changes = dict.fromkeys(rows, _Sitters(leaving=1))
        return self._change(changes, back=not held) + self._back_for_good(node, back)

    def _change(self, changes: Mapping[int, _Sitters], *, back: bool) -> list[Effect]:
        """Return the effects of ``changes`` of devices; with ``back``, of changes that the engine undoes."""
        out: list[Effect] = []
        between: dict[int, tuple[_Sitters, _Sitters]] = {}
        for row, change in changes.items():
            amounts = ((self.using, change.using), (self.leaving, change.leaving), (self._promised, change.promised))
            out += [Effect(column, row, amount) for column, amount in amounts if amount]
            now = self._sitting(row)
            between[row] = (now.plus(change, -1), now) if back else (now, now.plus(change, 1))
        return out + self._counted(between, self._sitting)

    def _sitting(self, row: int) -> _Sitters:
        return _Sitters(
            int(self.using.values[row]),
            int(self.leaving.values[row] + self._going[row]),
            int(self._promised.values[row]),
        )

    def _counted(
        self, between: Mapping[int, tuple[_Sitters, _Sitters]], others: Callable[[int], _Sitters]
    ) -> list[Effect]:
        """Return the change in nodes' GPU counts between two states of devices; ``others`` stay as they are."""
        out: list[Effect] = []
        for gpu in self._inventory.gpus_at(between):
            rows = [self._inventory.rows[key] for key in gpu.devices]
            node = int(self._inventory.node[rows[0]])
            if node < 0 or not self._has_gpus[node]:
                continue
            states = [between[row] if row in between else (others(row),) * 2 for row in rows]
            before, after = (_counts(gpu, [state[at] for state in states]) for at in (0, 1))
            for column, less, more in zip(self._cells, before, after, strict=True):
                if more != less:
                    out.append(Effect(column, node * self._width + GPU, more - less))
        return out

    def _back_for_good(self, node: NodeRow, amount: int) -> list[Effect]:
        """Return the effect of giving ``node`` back the GPUs that the engine books for a leaving pod."""
        return self._back(node, amount, idle=1, releasing=-1, used=-1)

    def _back_while_held(self, node: NodeRow, amount: int, *, promise: bool) -> list[Effect]:
        """Return the resulting GPUs while the pod uses its place, or was promised it."""
        return self._back(node, amount, idle=-1, releasing=2) if promise else self._back(node, amount, releasing=1)

    def _back(self, node: NodeRow, amount: int, *, idle: int = 0, releasing: int = 0, used: int = 0) -> list[Effect]:
        cell = int(node) * self._width + GPU
        signs = zip(self._cells, (idle, releasing, used), strict=True)
        return [Effect(column, cell, sign * amount * GPU_UNIT) for column, sign in signs if sign and amount]


def _counts(gpu: Gpu, sitters: Sequence[_Sitters]) -> tuple[int, int, int]:
    """Return what a GPU adds to idle, releasing and used of its node, given the pods on its devices.

    After the leaving pods are gone, what pods use or were promised is taken. The rest of what is held is being
    released.
    """
    on = list(zip(gpu.devices, sitters, strict=True))
    held = gpu.taken(key for key, each in on if each.using > 0 or each.leaving > 0)
    then = gpu.taken(key for key, each in on if each.using > 0 or each.promised > 0)
    used = gpu.taken(key for key, each in on if each.using > 0 or each.leaving > 0 or each.promised > 0)
    return -held, held - then, used


def _claims(placement: ClaimPlacement) -> Sequence[ClaimAllocation]:
    """Return the claims that the pod names, each once.

    A claim made for its extended resources is left out: the engine books these resources itself, or they are named.
    """
    return tuple({each.claim: each for each in placement.claims if each.reference}.values())


def _summed(effects: Iterable[Effect]) -> list[Effect]:
    """Return the sum of ``effects``: one for each cell that is changed after all of them.

    Most cancel each other: a node has back what the engine books for a claim, and counts the device itself.
    """
    columns: dict[int, Tracked] = {}
    totals: dict[tuple[int, int], int] = {}
    for effect in effects:
        columns[id(effect.column)] = effect.column
        cell = id(effect.column), effect.index
        totals[cell] = totals.get(cell, 0) + effect.delta
    return [Effect(columns[column], index, delta) for (column, index), delta in totals.items() if delta]


ClaimKey = tuple[str, str]


class Charges:
    """The pods of each queue that are charged for each claim."""

    def __init__(
        self,
        view: SessionView,
        inventory: Inventory,
        claims: Mapping[ClaimKey, Claim],
        concerned: Iterable[PodRow],
        assigned: Mapping[PodRow, ClaimPlacement],
    ) -> None:
        """Begin with the pods that are charged; ``concerned`` are all that refer to claims."""
        self._view = view
        self._inventory = inventory
        self._claims = claims
        self._at = self._places(concerned)
        counts, fixed = np.zeros(len(self._at), np.int64), np.zeros(len(self._at), np.int64)
        self._columns = tuple(view.engine_column(name) for name in ("queue_used", "queue_fixed"))
        self._models = view.engine_column("queue_models")
        self._users = view.engine_column("user_used") if len(view.facts.users.limit) else None
        self.corrections: list[Effect] = []
        """What changes in the books of queues when the session opens."""
        for pod, placement in assigned.items():
            if view.snapshot.pod_status[pod] == Status.RELEASING:
                continue
            node = NodeRow(int(view.snapshot.pod_node[pod]))
            self.corrections += self._for_named(pod, node, placement)
            self.corrections += self._of_user(pod, placement)
            for table, column, at, delta in self._deltas(pod, placement, (counts, fixed), 0):
                table[at] += 1
                self.corrections += self._of_queues(pod, node, column, delta)
        self._counts = tuple(view.track(table) for table in (counts, fixed))
        """[places] Pods that are charged, and the non-preemptible ones among them."""

    def _places(self, concerned: Iterable[PodRow]) -> Mapping[tuple[ClaimKey, int], int]:
        """Return the row of each claim with GPUs and each queue with a pod that refers to it."""
        out: dict[tuple[ClaimKey, int], int] = {}
        snapshot = self._view.snapshot
        for pod in concerned:
            queue = self._queue(pod)
            for reference in snapshot.shapes[int(snapshot.pod_shape[pod])].constraints.claims:
                key = (snapshot.pods[pod].namespace, reference.claim)
                if queue >= 0 and key in self._claims and self._claims[key].gpus:
                    out.setdefault((key, queue), len(out))
        return out

    def _queue(self, pod: PodRow) -> int:
        group = self._view.group_of(pod)
        return -1 if group < 0 else int(self._view.queue_of(group))

    def effects(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement, *, held: bool) -> list[Effect]:
        """Return the refund in the books of queues for a pod that gets its claims on ``node`` (or has them by now)."""
        if self._view.columns.status[pod] == Status.RELEASING:
            return []
        out: list[Effect] = []
        tables = tuple(each.values for each in self._counts)
        for table, column, at, delta in self._deltas(pod, placement, tables, int(held)):
            counted = self._counts[0] if table is tables[0] else self._counts[1]
            out += [Effect(counted, at, 1), *self._of_queues(pod, node, column, delta)]
        return out + self._for_named(pod, node, placement) + self._of_user(pod, placement)

    def changes(self, users: Iterable[tuple[PodRow, ClaimKey]]) -> list[tuple[Tracked, list[int]]]:
        """Return the cells that count one pod more if each of ``users`` gets a claim of its own in whole GPUs."""
        cells: tuple[list[int], list[int]] = ([], [])
        for pod, claim in users:
            at = self._at.get((claim, self._queue(pod)))
            if at is not None:
                cells[0].append(at)
                if not self._view.facts.groups.preemptible[self._view.group_of(pod)]:
                    cells[1].append(at)
        return [*zip(self._counts, cells, strict=True)]

    def _for_named(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement) -> list[Effect]:
        """Return the refund for devices that the pod requests by the name of their class; no other pod has them."""
        group, shape = self._view.group_of(pod), self._view.snapshot.shapes[int(self._view.snapshot.pod_shape[pod])]
        devices = placement.for_resources() if shape.gpu.named else ()
        if group < 0 or not devices:
            return []
        delta = shape.gpu.named_not_had - self._inventory.gpus.not_had(devices)
        is_fixed = not self._view.facts.groups.preemptible[group]
        return [each for column in self._columns[: 1 + is_fixed] for each in self._of_queues(pod, node, column, delta)]

    def _of_user(self, pod: PodRow, placement: ClaimPlacement) -> list[Effect]:
        """Return the refund in the accounts of the pod's user.

        A claim that pods share counts for each of them: it may be of several users, and then each holds it.
        """
        group, users = self._view.group_of(pod), self._view.facts.users
        if self._users is None or group < 0:
            return []
        gpus, shape = self._inventory.gpus, self._view.snapshot.shapes[int(self._view.snapshot.pod_shape[pod])]
        devices = placement.for_resources() if shape.gpu.named else ()
        delta = shape.gpu.named_not_had - gpus.not_had(devices) if devices else 0
        for each in {each.claim: each for each in placement.claims if each.reference}.values():
            if (each.claim, self._queue(pod)) in self._at:
                claim = self._claims[each.claim]
                delta += gpus.known_not_had(claim) - min(claim.gpus * GPU_UNIT, gpus.not_had(each.devices))
        account, out = int(users.account[group]), list[Effect]()
        while delta and account >= 0:
            out.append(Effect(self._users, account * SHARED_RESOURCES + GPU, delta))
            account = int(users.above[account])
        return out

    def _deltas(
        self, pod: PodRow, placement: ClaimPlacement, tables: Sequence[Int64s], own: int
    ) -> Iterable[tuple[Int64s, Tracked, int, int]]:
        """Yield for each claim and column of the books the table that counts its pods, its row, and the deduction.

        ``own`` is the number of counted pods that are ``pod`` itself.
        """
        queue, group = self._queue(pod), self._view.group_of(pod)
        if queue < 0:
            return
        gpus = self._inventory.gpus
        is_fixed = not self._view.facts.groups.preemptible[group]
        for each in {each.claim: each for each in placement.claims if each.reference}.values():
            at = self._at.get((each.claim, queue))
            if at is None:
                continue
            claim = self._claims[each.claim]
            whole, known = claim.gpus * GPU_UNIT, gpus.known_not_had(claim)
            for table, column in zip(tables[: 1 + is_fixed], self._columns, strict=False):
                others = int(table[at]) - own
                # If another pod of the queue is charged for the claim already, this one costs nothing.
                back = whole if others > 0 else min(whole, gpus.not_had(each.devices))
                yield table, column, at, known - back

    def _of_queues(self, pod: PodRow, node: NodeRow, column: Tracked, delta: int) -> list[Effect]:
        queue, out = self._queue(pod), list[Effect]()
        facts = self._view.facts
        model = int(facts.nodes.model[node]) if column is self._columns[0] and node >= 0 else -1
        while delta and queue >= 0:
            out.append(Effect(column, queue * SHARED_RESOURCES + GPU, delta))
            if model >= 0:
                out.append(Effect(self._models, queue * facts.queues.model_limit.shape[1] + model, delta))
            queue = int(self._view.facts.queues.parent[queue])
        return out
