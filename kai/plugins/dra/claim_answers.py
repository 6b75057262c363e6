"""Answers to the engine's hooks for pods with claims, from inventory, demands and accounting."""

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import cast

import attrs
import numpy as np

from kai.framework import (
    ACCEPTED,
    GPU_UNIT,
    Batch,
    Bools,
    Code,
    Effect,
    Int64s,
    NodeRow,
    NodeRows,
    PodRow,
    PodRows,
    SessionView,
    Shape,
    Tracked,
    Verdict,
)
from kai.framework.claims import AllocatedDevice, Claim, ClaimPlacement, ClaimReference, backing_classes, is_gpu
from kai.framework.expressions import Selectors
from kai.framework.kept import EVERYWHERE, NOWHERE, KeptAnswers, KeptDetails, NodeStates
from kai.plugins.dra.accounting import Accounting, Crowd, Holding, allocation_of, assigned_placements, releasing_claims
from kai.plugins.dra.allocator import Allocator
from kai.plugins.dra.batching import Batching
from kai.plugins.dra.demand import Demand, Demands
from kai.plugins.dra.extended import Implied, alike, implied_claim, needed
from kai.plugins.dra.inventory import Inventory, Tables

RULE = "dynamicresources"
NOT_ALLOCATABLE = "cannot allocate all DRA claims"
NOT_READY = "cannot allocate all DRA claims: devices with binding conditions are not allocated"
TAINTED = "cannot allocate all DRA claims: devices have taints that the claims do not tolerate"
NOT_WHOLE = "cannot allocate all DRA claims: slices of their pool are missing or contradict each other"
NOT_REACHED = "claim node selector does not match node"
NOTHING = ClaimPlacement()
# Above any request: `credit` cuts it down to what the claims of the pod ask for.
MOST_CREDIT = GPU_UNIT << 20
FEW = 4
"""The most nodes for which devices are counted node by node."""
MOST_CONSUMERS = 256
"""Pods that may use one claim; resource.k8s.io/v1, ResourceClaimReservedForMaxSize."""


@attrs.frozen(kw_only=True, eq=False)
class _Wanted:
    """What a pod wants on a node besides what its claims hold already."""

    fixed: tuple[tuple[ClaimReference, Holding], ...]
    """Claims that are allocated, be it by others."""
    open: tuple[tuple[ClaimReference, Demand], ...]
    implied: Implied | None


class Kept:
    """Answers that hold as long as the devices, their classes and the nodes are the same ones.

    Whether a node has devices for claims, and which, follows from what the claims ask for and the use of its devices.
    """

    def __init__(self, inventory: Inventory, nodes: int, demands: Demands) -> None:
        """Begin without answers; ``demands`` are about the same devices and classes."""
        self.demands = demands
        distant = np.fromiter(inventory.distant, np.int64, len(inventory.distant))
        of_device = np.where(inventory.node < 0, NOWHERE, inventory.node)
        of_device[distant] = EVERYWHERE
        of_capacity = of_device[[row for row, _ in inventory.cells]] if inventory.cells else of_device[:0]
        of_counter = _nodes_of_counters(inventory, of_device)
        # Owners of the columns of `_asking`, in its order: devices in use, capacities, counters, devices being left.
        self._states = NodeStates(np.arange(nodes), (of_device, of_capacity, of_counter, of_device))
        self._met = KeptAnswers(self._states, np.bool_)
        self._found = KeptDetails(self._states)

    def met(self, asking: "Asking", nodes: NodeRows, meet: Callable[[NodeRows], Bools]) -> Bools:
        """Return bool[n]: which of ``nodes`` have the wanted devices; ``meet`` answers for states that are new."""
        self._states.read(asking.columns)
        return self._met.of(asking.ask, nodes, meet)

    def found(self, asking: "Asking", node: NodeRow, search: Callable[[], "Found"]) -> "Found":
        """Return the wanted devices on ``node``; ``search`` finds them in a state that is new."""
        self._states.read(asking.columns)
        return cast("Found", self._found.of(asking.ask, node, search))


Found = Sequence[Holding] | None


@attrs.frozen
class Asking:
    """What a pod asks for, whatever the names of its claims, and the usage of devices."""

    ask: Hashable
    columns: Sequence[Tracked]


def _nodes_of_counters(inventory: Inventory, of_device: Int64s) -> Int64s:
    """Return the node of each counter: that of all devices that draw from it."""
    out = np.full(len(inventory.counters), NOWHERE, np.int64)
    for row, drawn in inventory.draws.items():
        for counter, _ in drawn:
            known, at = int(out[counter]), int(of_device[row])
            if at != NOWHERE:
                out[counter] = at if known in (NOWHERE, at) else EVERYWHERE
    return out


class Answers:
    """Answers about pods with claims for one session."""

    def __init__(
        self, view: SessionView, inventory: Inventory, selectors: Selectors, concerns: Bools, kept: Kept | None = None
    ) -> None:
        """Begin the accounting; ``concerns`` [K] are the shapes about which hooks will be called.

        ``kept`` are answers from before, about the same devices, classes and nodes.
        """
        catalog = view.snapshot.catalog.claims
        self._view = view
        self._inventory = inventory
        self._concerns = concerns
        self._catalog = catalog
        self._classes = backing_classes(catalog.classes)
        self._alike = alike(catalog.classes)
        self._demand_of: dict[int, Demand] = {}
        # By identity: an implied claim has no name yet. `_implied` keeps the claims alive, so no id is used twice.
        self._implied_demands: dict[int, Demand] = {}
        self._implied: dict[tuple[object, ...], tuple[Implied, Demand]] = {}
        self._needed_by: dict[int, tuple[str, ...]] = {}
        demands = Demands(inventory, catalog.classes, selectors) if kept is None else kept.demands
        self._kept = kept or Kept(inventory, len(view.snapshot.nodes), demands)
        self._demands = demands
        pods = view.pods_of_shapes(concerns)
        self._assigned = assigned_placements(view, pods)
        releasing = releasing_claims(view, self._assigned, pods)
        self._accounting = Accounting(view, inventory, catalog.claims, self._assigned, releasing, pods)

    # ------------------------------------------------------------------ what placements change

    def recorded(self, pod: PodRow) -> ClaimPlacement:
        """Return the devices that ``pod`` held when the session opened."""
        return self._assigned.get(pod, NOTHING)

    def _placement(self, pod: PodRow, detail: object) -> ClaimPlacement:
        return detail if isinstance(detail, ClaimPlacement) else self.recorded(pod)

    def opening_effects(self) -> Sequence[Effect]:
        """Return the effects on the books of nodes, which differ from sums because pods may share a GPU."""
        return (*self._accounting.seats.corrections, *self._accounting.charges.corrections)

    def effects(self, pod: PodRow, node: NodeRow, detail: object) -> Sequence[Effect]:
        """Return the effects of the placement of ``pod`` that last until it is evicted."""
        placement = self._placement(pod, detail)
        crowd = None if self._accounting.holds(pod) else self._accounting.crowd(placement)
        homes = None if crowd is None else self._homes(crowd, node)
        kept = {crowd.claim: Holding(homes)} if crowd and homes else {}
        return self._accounting.effects(pod, node, placement, kept)

    def lasting_effects(self, pod: PodRow, node: NodeRow, detail: object) -> Sequence[Effect]:
        """Return the effects of the placement of ``pod`` that last while it is on the node."""
        return self._accounting.lasting_effects(pod, node, self._placement(pod, detail))

    def batch(self) -> Batch | None:
        """Return how pods that wait are placed in batches, None if none are."""
        if self._alike or self.any_waits:
            return None
        batching = Batching(self._view, self._inventory, self._accounting)
        return batching.batch(self, self._view.pods_of_shapes(self._concerns))

    # ------------------------------------------------------------------ may the pod be placed

    def _shape(self, pod: PodRow) -> Shape:
        snapshot = self._view.snapshot
        return snapshot.shapes[int(snapshot.pod_shape[pod])]

    def admit(self, pod: PodRow) -> Verdict:
        """Return whether the claims of ``pod`` are there and may be used by it."""
        key = self._view.snapshot.pods[pod].key
        if not self._catalog.served:
            names = ", ".join(reference.name for reference in self._shape(pod).constraints.claims)
            return _refused(
                f"pod {key} cannot be scheduled, it references resource claims <{names}> "
                "while dynamic resource allocation is not available in the cluster"
            )
        for reference in self._shape(pod).constraints.claims:
            text = self._objection(pod, key, reference)
            if text:
                return _refused(text)
        return ACCEPTED

    def _objection(self, pod: PodRow, key: str, reference: ClaimReference) -> str:
        facts = self._view.snapshot.pods[pod]
        if not reference.claim:
            return f"no resource claim name found for pod {key} and claim reference {reference.name}"
        name = (facts.namespace, reference.claim)
        claim = self._catalog.claims.get(name)
        if claim is None:
            return f"failed to get resource claim {facts.namespace}/{reference.claim}: not found"
        if claim.deleting:
            return f"resource claim {'/'.join(name)} is being deleted"
        row = self._accounting.rows[name]
        if self._accounting.consumers(row, pod) >= MOST_CONSUMERS:
            return f"resource claim {'/'.join(name)} has reached its maximum number of consumers ({MOST_CONSUMERS})"
        # A claim from a template is the pod's own, and so of its queue.
        text = "" if reference.template else self._queue_objection(pod, claim)
        if text:
            return f"pod {key} cannot be scheduled: {text}"
        if self._accounting.holding(row) is None:
            for request in claim.requests:
                for way in request.alternatives or (request,):
                    if way.device_class not in self._catalog.classes:
                        named = f"{request.name}/{way.name}" if request.alternatives else request.name
                        return (
                            f"device class {way.device_class} does not exist for claim {'/'.join(name)} request {named}"
                        )
        elif claim.awaited:
            return f"resource claim {'/'.join(name)} has devices that are not ready yet: {', '.join(claim.awaited)}"
        return ""

    def _queue_objection(self, pod: PodRow, claim: Claim) -> str:
        """Say why a claim that pods may share is not for the queue of ``pod``; only GPU claims belong to queues."""
        ways = (way for request in claim.requests for way in (request.alternatives or (request,)))
        if not any(is_gpu(way.device_class) for way in ways):
            return ""
        if not claim.queue:
            return f"DRA claim {claim.name} is a shared GPU claim but does not have a queue label"
        group = self._view.group_of(pod)
        expected = self._view.snapshot.groups[group].queue if group >= 0 else ""
        if claim.queue != expected:
            return (
                f"DRA claim {claim.name} is a shared GPU claim with wrong queue label "
                f"(expected queue: {expected}, claim queue label: {claim.queue})"
            )
        return ""

    # ------------------------------------------------------------------ on which nodes

    def filter_nodes(self, pod: PodRow, nodes: NodeRows) -> Bools:
        """Return bool[n]: nodes where the claims of ``pod`` can be used, those without devices allocated together.

        Cost: one pass over the devices; a search for each node that has enough of them, unless counting decides.
        """
        base = self._wanted(pod, None)
        demands = [demand for _, demand in base.open]

        def meet(rows: NodeRows) -> Bools:
            return self._meet(pod, rows, np.ones(len(rows), np.bool_), demands, None)

        met = self._kept.met(self._asking(pod, base), nodes, meet)
        if base.fixed:
            met &= self._reached(base)[nodes]
        return met & ~self._mixed_up(pod)[nodes] if self._alike else met

    def _asking(self, pod: PodRow, wanted: _Wanted) -> Asking:
        """Return what ``pod`` asks for besides what its claims hold already."""
        claims = tuple([(demand.claim.requests, demand.claim.constraints) for _, demand in wanted.open])
        shape = self._shape(pod)
        resources = self.needed(pod)
        columns = self._accounting.columns
        tracked = (columns.in_use, columns.consumed, columns.drawn, self._accounting.seats.leaving)
        # Without the names of claims, so that the pods of a set share answers. Containers matter to an implied claim
        # alone, whose requests are divided among them.
        return Asking((claims, resources, shape.containers if resources else ()), tracked)

    @property
    def any_waits(self) -> bool:
        """Whether ``must_wait`` may ever be true."""
        return self._accounting.any_releasing

    def must_wait(self, pod: PodRow, nodes: NodeRows) -> Bools:
        """Return bool[n]: where the claims of ``pod`` need devices that are still being released, or find none.

        A claim that was given such devices for another pod, which waits for them, lets this one wait as well.
        """
        wanted, taken = self._wanted(pod, None), self._accounting.taken_or_releasing()
        if any(self._accounting.is_overdrawn(holding.devices, taken) for _, holding in wanted.fixed):
            return np.ones(len(nodes), np.bool_)
        everywhere = np.ones(len(nodes), np.bool_)
        return ~self._meet(pod, nodes, everywhere, [demand for _, demand in wanted.open], taken)

    def _meet(
        self, pod: PodRow, nodes: NodeRows, mask: Bools, demands: Sequence[Demand], other: Tables | None
    ) -> Bools:
        """Return bool[n]: where in ``mask`` devices that are not taken meet all demands of ``pod``.

        ``other`` is what is taken, where it is not what is taken now.
        """
        taken = self._accounting.taken() if other is None else other
        few = len(nodes) <= FEW
        met = mask & (self._enough_on(nodes, demands, taken) if few else self._enough(demands, taken)[nodes])
        resources = self.needed(pod)
        if not resources and len(demands) <= 1 and all(self._counting_decides(demand) for demand in demands):
            return met
        for at in np.flatnonzero(met):
            row = NodeRow(int(nodes[at]))
            wanted = self._wanted(pod, row)
            found = self._found_now(pod, wanted, row) if other is None else self._search(wanted, row, other)
            met[at] = found is not None
        return met

    def _found_now(self, pod: PodRow, wanted: _Wanted, node: NodeRow) -> Found:
        """Return devices of ``node`` that are free now; kept for `choose` and for pods that ask for the same."""
        asking = self._asking(pod, wanted)
        return self._kept.found(asking, node, lambda: self._search(wanted, node, self._accounting.taken()))

    def needed(self, pod: PodRow) -> tuple[str, ...]:
        """Return the resources that ``pod`` asks for and a class backs."""
        row = int(self._view.snapshot.pod_shape[pod])
        found = self._needed_by.get(row)
        if found is None:
            found = self._needed_by[row] = needed(self._view.snapshot.shapes[row], self._classes)
        return found

    def is_in_vain(self, pods: PodRows, victims: PodRows) -> bool:
        """Return whether some of ``pods`` has too few devices on every node even if all ``victims`` are evicted.

        Counting alone decides here. Whatever holds devices besides victims keeps them: a claim that is reserved for a
        pod which is not there, say.
        """
        asked: dict[Hashable, tuple[PodRow, _Wanted]] = {}
        for pod in map(PodRow, pods.tolist()):
            if self._concerns[self._view.snapshot.pod_shape[pod]]:
                wanted = self._wanted(pod, None)
                asked.setdefault(self._asking(pod, wanted).ask, (pod, wanted))
        taken = self._accounting.taken_without(victims) if asked else None
        return taken is not None and any(self._lacks_devices(pod, wanted, taken) for pod, wanted in asked.values())

    def _lacks_devices(self, pod: PodRow, wanted: _Wanted, taken: Tables) -> bool:
        """Return whether no node has enough devices; False where that is not certain.

        A claim that is allocated may be free without victims. A device on which a selector fails ends a search only
        while it is free.
        """
        demands, shape = [demand for _, demand in wanted.open], self._shape(pod)
        resources = self.needed(pod)
        nodes = self._view.snapshot.nodes
        served = np.zeros(len(nodes), np.bool_)
        if resources:
            served[:] = [any(node.plugs(name) for name in resources) for node in nodes]
            demands.append(self.implied_by(shape, resources, self._view.snapshot.pods[pod].namespace)[1])
        is_sure = not any(want.faulty.any() for each in demands for wants in each.requests for want in wants)
        return is_sure and not wanted.fixed and not (served | self._enough(demands, taken)).any()

    def explain(self, pod: PodRow, nodes: NodeRows) -> Sequence[str]:
        """Return why each of ``nodes`` was refused."""
        wanted = self._wanted(pod, None)
        reached, count = self._reached(wanted)[nodes], len(self._view.snapshot.nodes)
        reasons = np.full(count, NOT_ALLOCATABLE, np.object_)
        free = (self._accounting.taken()[0] == 0) | self._inventory.multiple
        for _, demand in wanted.open:
            # Devices in use are left out: a taint on them is not why the pod finds none.
            for want in itertools.chain.from_iterable(demand.requests):
                # A node has one reason: the last that is true of it.
                for kept, reason in ((want.tainted, TAINTED), (want.barred, NOT_WHOLE), (want.later, NOT_READY)):
                    reasons[self._inventory.counts(kept & free, count) > 0] = reason
                reasons[self._inventory.counts(want.faulty, count) > 0] = f"{NOT_ALLOCATABLE}: {want.fault}"
            if demand.fault:
                reasons[:] = f"{NOT_ALLOCATABLE}: {demand.fault}"
        reasons = reasons[nodes]
        reasons[self._mixed_up(pod)[nodes]] = f"device classes back {' and '.join(self._alike)}, which count alike"
        return [str(reason) if fit else NOT_REACHED for fit, reason in zip(reached, reasons, strict=True)]

    def _mixed_up(self, pod: PodRow) -> Bools:
        """Return bool[N]: where a GPU of ``pod`` would have to come from a class, and classes back several kinds."""
        nodes = self._view.snapshot.nodes
        if not self._alike or "gpu" not in self.needed(pod):
            return np.zeros(len(nodes), np.bool_)
        return np.array([not node.plugs("gpu") for node in nodes], np.bool_)

    def _reached(self, wanted: _Wanted) -> Bools:
        """Return bool[N]: nodes from which all devices that claims hold already can be used."""
        out = np.ones(len(self._view.snapshot.nodes), np.bool_)
        for _, holding in wanted.fixed:
            if holding.nodes is not None:
                out &= self._view.selected_nodes(holding.nodes)
        return out

    def _enough(self, demands: Sequence[Demand], taken: Tables) -> Bools:
        """Return bool[N]: nodes with enough free devices for each request by itself, as a necessary condition."""
        count = len(self._view.snapshot.nodes)
        out = np.ones(count, np.bool_)
        free = (taken[0] == 0) | self._inventory.multiple
        for demand in demands:
            if demand.fault:
                return np.zeros(count, np.bool_)
            for wants in demand.requests:
                some = np.zeros(count, np.bool_)
                for want in wants:
                    found = self._inventory.counts(want.matching & (free | want.admin), count)
                    some |= found >= (1 if want.every else want.count)
                out &= some
        return out

    def _enough_on(self, nodes: NodeRows, demands: Sequence[Demand], taken: Tables) -> Bools:
        """Return bool[n]: the same for a few nodes."""
        out = np.array([not any(demand.fault for demand in demands)] * len(nodes), np.bool_)
        for at, node in enumerate(nodes.tolist() if out.any() else ()):
            rows = self._inventory.usable_on(node)
            free = (taken[0][rows] == 0) | self._inventory.multiple[rows]
            out[at] = all(
                any(
                    np.count_nonzero(want.matching[rows] & (free | want.admin)) >= (1 if want.every else want.count)
                    for want in wants
                )
                for demand in demands
                for wants in demand.requests
            )
        return out

    def _counting_decides(self, demand: Demand) -> bool:
        return demand.simple and not self._inventory.intricate and not demand.requests[0][0].faulty.any()

    def _wanted(self, pod: PodRow, node: NodeRow | None) -> _Wanted:
        """Return the demand of ``pod`` on ``node``; without a node, that of its claims only."""
        snapshot = self._view.snapshot
        namespace = snapshot.pods[pod].namespace
        shape = self._shape(pod)
        fixed: list[tuple[ClaimReference, Holding]] = []
        wanted: list[tuple[ClaimReference, Demand]] = []
        for reference in shape.constraints.claims:
            row = self._accounting.rows.get((namespace, reference.claim))
            if row is None:
                continue
            holding = self._accounting.holding(row)
            if holding is not None:
                fixed.append((reference, holding))
            # A pod may refer to a claim twice, which is allocated once.
            elif all(reference.claim != other.claim for other, _ in wanted):
                wanted.append((reference, self.demand(row)))
        implied: Implied | None = None
        if shape.gpu.named or node is not None:  # named devices come from claims on each node
            there = None if node is None else snapshot.nodes[node]
            resources = tuple([name for name in self.needed(pod) if there is None or not there.plugs(name)])
            if resources:
                implied = self.implied_by(shape, resources, namespace)[0]
        return _Wanted(fixed=tuple(fixed), open=tuple(wanted), implied=implied)

    def implied_by(self, shape: Shape, resources: tuple[str, ...], namespace: str) -> tuple[Implied, Demand]:
        """Return the claim for ``resources`` of pods of ``shape``, and its demand."""
        key = (shape.containers, resources, namespace)
        found = self._implied.get(key)
        if found is None:
            implied = implied_claim(shape.containers, resources, self._classes, namespace)
            found = self._implied[key] = implied, self._demands.of(implied.claim)
            self._implied_demands[id(implied)] = found[1]
        return found

    def _named(self, wanted: _Wanted) -> list[Demand]:
        """Return the demand for devices that a pod names without a claim, if it does."""
        return [] if wanted.implied is None else [self._implied_demands[id(wanted.implied)]]

    def demand(self, row: int) -> Demand:
        """Return the demand of the claim in ``row``."""
        found = self._demand_of.get(row)
        if found is None:
            found = self._demand_of[row] = self._demands.of(self._accounting.claims[row])
        return found

    # ------------------------------------------------------------------ with which devices

    def choose(self, pod: PodRow, node: NodeRow) -> ClaimPlacement | None:
        """Return the devices of ``pod`` on ``node``, which ``filter_nodes`` let pass; None if it cannot have them.

        A pod that the open statement evicted from ``node`` keeps its devices there, even if they were promised to
        another pod meanwhile, provided that others do for that one: a promise is made anew in every cycle.
        """
        placement = self._solve(pod, node)
        if placement is None:
            return None
        before = self._view.evicted_detail(pod, node, "claims")
        if isinstance(before, ClaimPlacement) and self._still_stands(before):
            crowd = self._accounting.crowd(before)
            if crowd is None or self._homes(crowd, node) is not None:
                return before
        return placement

    def _homes(self, crowd: Crowd, node: NodeRow) -> tuple[AllocatedDevice, ...] | None:
        """Return devices of ``node`` for the claims that lose theirs to a pod that is put back; None if they find none.

        Of devices that other nodes can use as well none are looked for: where the claims wait is not known.
        """
        if crowd.taken is None:
            return None if self._accounting.keeps_any else ()
        devices = [device for holding in crowd.displaced.values() for device in holding.devices]
        rows = [self._inventory.rows[each.key] for each in devices if each.key in self._inventory.rows]
        if any(self._inventory.node[row] != node for row in rows):
            return ()
        found = self._allocate([self.demand(row) for row in crowd.displaced], node, crowd.taken)
        return None if found is None else tuple(device for holding in found for device in holding.devices)

    def _still_stands(self, before: ClaimPlacement) -> bool:
        """Return whether no claim of ``before`` was allocated to other devices since."""
        for allocation in before.claims:
            row = self._accounting.rows.get(allocation.claim)
            holding = None if row is None else self._accounting.holding(row)
            if holding is not None and holding.devices != allocation.devices:
                return False
        return True

    def _solve(self, pod: PodRow, node: NodeRow) -> ClaimPlacement | None:
        wanted = self._wanted(pod, node)
        namespace = self._view.snapshot.pods[pod].namespace
        found: Sequence[Holding] | None = None
        if self._accounting.any_releasing:
            # Free devices come first: for devices that are still being released the pod has to wait.
            found = self._search(wanted, node, self._accounting.taken_or_releasing())
        if found is None:
            found = self._found_now(pod, wanted, node)
        if found is None:
            return None
        # Not strict: an implied claim comes last in `found`, and is not in `open`.
        fresh = {reference.claim: holding for (reference, _), holding in zip(wanted.open, found, strict=False)}
        held = {reference.claim: holding for reference, holding in wanted.fixed}
        claims = tuple(
            allocation_of(reference, namespace, (held | fresh)[reference.claim])
            for reference in self._shape(pod).constraints.claims
            if reference.claim in held or reference.claim in fresh
        )
        extended = None if wanted.implied is None else wanted.implied.allocated(found[-1].devices, found[-1].nodes)
        return ClaimPlacement(claims=claims, extended=extended)

    def _search(self, wanted: _Wanted, node: NodeRow, taken: Tables) -> Sequence[Holding] | None:
        """Return devices of ``node`` that are not ``taken`` for each claim that has none; None if they do not do."""
        demands = [demand for _, demand in wanted.open]
        if wanted.implied is not None:
            demands.append(self._implied_demands[id(wanted.implied)])
        if not demands:
            return ()
        return self._allocate(demands, node, taken)

    def _allocate(self, demands: Sequence[Demand], node: NodeRow, taken: Tables) -> Sequence[Holding] | None:
        rows = self._accounting.seats.in_order(self._inventory.usable_on(node))
        name = self._view.snapshot.nodes[node].name
        return Allocator(self._inventory, taken, rows, int(node), name).allocate(demands)

    # ------------------------------------------------------------------ how much of it the node counts already

    def credit(self, pod: PodRow, nodes: NodeRows) -> Int64s:
        """Return int64[2, n]: thousandths of a GPU that ``pod`` needs less because its claims hold GPUs in use.

        With device shares or admin access this depends on the devices that claims get, and the smallest open
        alternative may do. The result is an upper bound; the search for devices decides. Row 0 counts GPUs that pods
        use, row 1 also the GPUs that pods were promised.
        """
        claimed, wanted = self._shape(pod).gpu.claimed, self._wanted(pod, None)
        demands = [demand for _, demand in wanted.open] + self._named(wanted)
        if not claimed or not (wanted.fixed or any(demand.may_need_less for demand in demands)):
            return np.zeros((2, len(nodes)), np.int64)
        out = np.zeros((2, len(self._view.snapshot.nodes)), np.int64)
        self._fill_credit(pod, nodes, wanted, out)
        return cast("Int64s", np.minimum(out, claimed * GPU_UNIT)[:, nodes])

    def _fill_credit(self, pod: PodRow, nodes: NodeRows, wanted: _Wanted, out: Int64s) -> None:
        """Write to ``out`` [2, N] how many thousandths of a GPU less ``pod`` needs on ``nodes``."""
        seats, namespace = self._accounting.seats, self._view.snapshot.pods[pod].namespace
        demands = [demand for _, demand in wanted.open]
        sharing, parted = self._sharing(demands + self._named(wanted))
        # Without evicted pods on devices, all devices that the search finds are free, so its result is enough.
        left = parted & ~sharing
        if left.any():
            left &= ~seats.left_behind()
            sharing |= parted & ~left
            out[:, nodes[left[nodes]]] = MOST_CREDIT
            nodes = nodes[~left[nodes]]
        if sharing.any():
            for node in map(NodeRow, nodes[sharing[nodes]].tolist()):
                found = self._solve(pod, node)
                # A node that has no devices for the pod is to be refused for that, not for want of idle GPUs.
                out[:, node] = MOST_CREDIT if found is None else seats.credit(pod, node, found)
            nodes = nodes[~sharing[nodes]]
        fixed = tuple(allocation_of(reference, namespace, holding) for reference, holding in wanted.fixed)
        devices = [device for each in fixed for device in each.devices]
        spared = sum(self._accounting.claims[self._accounting.rows[each.claim]].spared(each.devices) for each in fixed)
        out[:, nodes] += GPU_UNIT * (spared + sum(demand.claim.most_spared for demand in demands))
        there = {int(self._inventory.node[row]) for row in self._inventory.gpus_of(devices)}
        for at in there.intersection(nodes.tolist()):
            beside = np.array(seats.credit(pod, NodeRow(at), ClaimPlacement(claims=fixed)), np.int64)
            out[:, at] += beside - spared * GPU_UNIT

    def _sharing(self, demands: Sequence[Demand]) -> tuple[Bools, Bools]:
        """Return bool[N]: nodes with GPUs that claims may have beside others, and with GPUs that have partitions."""
        sharing, parted = (np.zeros(len(self._view.snapshot.nodes), np.bool_) for _ in range(2))
        for want in itertools.chain.from_iterable(wants for demand in demands for wants in demand.requests):
            sharing[self._inventory.node[want.sharable]] = True
            parted[self._inventory.node[want.partitioned]] = True
        return sharing, parted


def _refused(text: str) -> Verdict:
    return Verdict.refused(Code.POD_REFUSED, rule=RULE, text=text)
