"""Which claim holds which device, as columns that follow placements, and the effects of a placement on them.

A claim is allocated for as long as it has users: pods that are placed, and consumers in its status that are not in the
snapshot. The first pod takes the devices, the last one gives them back; pods between the two only count.

Devices of a GPU driver are also GPUs of their node: see ``seats``.

A claim is *releasing* if it holds devices but every pod that uses it is terminating, ended or gone. Kubernetes frees a
claim a moment after its last user is gone, and a pod may take its time to terminate. Until then its devices are like
those of a pod that was evicted in this session: they may be promised, but nothing is bound to them. So such a claim
takes nothing when the session opens. It stays allocated for pods that refer to it themselves; the first of them takes
its devices. A terminating pod that is no longer expected to leave keeps its devices, as it keeps its place.

A pod that was evicted and is put back has its devices again, even if they were promised to another claim meanwhile,
provided that other free devices suit that claim: those are then *kept* for the promise, for as long as the claim of the
pod is allocated.

Source: the claim handling of the peer's dynamicresources plugin. Unlike there, devices that are being released are not
lost to the pods that wait.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np

from kai.framework import (
    ACTIVE_USED,
    Effect,
    Int64s,
    NodeRow,
    NodeTerm,
    PodRow,
    PodRows,
    SessionView,
    Status,
    Tracked,
    status_mask,
    within,
)
from kai.framework.claims import AllocatedDevice, Claim, ClaimAllocation, ClaimPlacement, ClaimReference
from kai.plugins.dra.inventory import Inventory, Tables
from kai.plugins.dra.seats import Charges, Seats

ClaimKey = tuple[str, str]
"""Namespace and name."""


@attrs.frozen
class Holding:
    """Devices that a claim holds, and where they can be used (None: anywhere)."""

    devices: tuple[AllocatedDevice, ...]
    nodes: tuple[NodeTerm, ...] | None = None


@attrs.frozen(kw_only=True, eq=False)
class Crowd:
    """Claims that hold devices which the claims of a pod that is put back had."""

    claim: ClaimKey
    """The first claim that is put back."""
    displaced: Mapping[int, Holding]
    """By row what others hold that have no users yet, only promises."""
    taken: Tables | None
    """What is taken once the pod has its devices again and these have none; None if that is too much still."""


@attrs.frozen(kw_only=True, eq=False)
class Columns:
    """Tracked columns. Shapes: C claims, D devices, M capacities, K counters, P pods."""

    in_use: Tracked
    """[D] Holders of a device; a holder of all of a device that may be allocated many times counts as the maximum."""
    consumed: Tracked
    """[M]"""
    drawn: Tracked
    """[K] By devices that can only have one holder."""
    reserved: Tracked
    """[C] Consumers of a claim."""
    waiting: Tracked
    """[C] Those of them that came in this session and were only promised their place."""
    choice: Tracked
    """[C] Number of the holding, 0 for a claim that is not allocated."""
    kept: Tracked
    """[C] Number of the holding that is kept for promises which lost their devices to the claim, 0 for none."""
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
        concerned: PodRows,
    ) -> None:
        """Begin with the devices that claims hold already.

        ``assigned`` are the devices that pods on nodes use, ``releasing`` the claims about to be free, ``concerned``
        the pods that refer to claims.
        """
        self._view = view
        self._inventory = inventory
        self.claims = tuple(claims.values())
        self.rows: Mapping[ClaimKey, int] = {key: row for row, key in enumerate(claims)}
        self._keys = tuple(claims)
        # Number 0 stands for no holding, since columns begin with zeros.
        self._holdings: list[Holding] = [Holding(())]
        self._numbers: dict[Holding, int] = {}
        pods = view.snapshot.pods
        users = [set(claim.reserved_for) for claim in self.claims]
        # Before pods on nodes join their sets below: a pod that waits is a user only if a status names it by now.
        self._named_before = [frozenset(named) for named in users]
        self._assigned = frozenset(assigned)
        self._placements = assigned
        self._concerned = np.zeros(len(pods), np.bool_)
        self._concerned[concerned] = True
        held = np.zeros(len(pods), np.int64)
        for pod, placement in assigned.items():
            held[pod] = 1
            for allocation in placement.claims:
                users[self.rows[allocation.claim]].add(pods[pod].uid)
        self._releasing = {self.rows[key]: len(users[self.rows[key]]) for key in releasing}
        """The number of users of each claim that is being released; new users add to it."""
        self.columns = self._open(np.array([len(named) for named in users], np.int64), held)
        self.seats = Seats(view, inventory, assigned)
        self.charges = Charges(view, inventory, claims, concerned, assigned)

    def _open(self, reserved: Int64s, held: Int64s) -> Columns:
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
            waiting=self._view.track(np.zeros_like(choice)),
            choice=self._view.track(choice),
            kept=self._view.track(np.zeros_like(choice)),
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
        """Return the present allocation of the claim in ``row``, None if it is not allocated."""
        number = int(self.columns.choice.values[row])
        return self._holdings[number] if number else None

    def holds(self, pod: PodRow) -> bool:
        """Return whether the devices of ``pod`` are in this accounting."""
        return bool(self.columns.held.values[pod])

    def consumers(self, row: int, pod: PodRow) -> int:
        """Return how many consumers other than ``pod`` the claim in ``row`` has."""
        counted = self.holds(pod) or self._is_named(row, pod)
        return int(self.columns.reserved.values[row]) - int(counted)

    def _is_named(self, row: int, pod: PodRow) -> bool:
        """Return whether ``pod`` is among the consumers all the time: the status named it before it was placed."""
        return pod not in self._assigned and self._view.snapshot.pods[pod].uid in self._named_before[row]

    def taken(self) -> Tables:
        """Return the present usage of devices, capacities and counters."""
        return self._inventory.with_draws(self._counted())

    def _counted(self) -> Tables:
        columns = self.columns
        return columns.in_use.values, columns.consumed.values, columns.drawn.values

    def taken_or_releasing(self) -> Tables:
        """Return the same, including what releasing claims still hold."""
        in_use, consumed, drawn = self._counted()
        tables = in_use.copy(), consumed.copy(), drawn.copy()
        for row, users in self._releasing.items():
            if self.columns.reserved.values[row] == users:
                _book(tables, self._inventory.takes(self.claims[row].allocation or ()))
        return self._inventory.with_draws(tables)

    def taken_without(self, pods: PodRows) -> Tables | None:
        """Return what would be taken if ``pods`` were evicted, or more; None if that is not known.

        A claim is free without its users, be they known pods or not. A pod that came, moved or left in this session may
        have other devices than it had when the session opened, so nothing is known then.

        Cost: a few passes over all claims.
        """
        view, columns = self._view, self.columns
        snapshot = view.snapshot
        status, node = snapshot.pod_status, snapshot.pod_node
        concerned = pods[self._concerned[pods]]
        still = view.columns.status[concerned] == status[concerned]
        still &= view.columns.node[concerned] == node[concerned]
        if not still.all() or self.keeps_any:
            return None
        user, claim = self._uses
        goes = np.zeros(len(status), np.bool_)
        goes[concerned] = True
        leaving = np.bincount(claim[goes[user]], minlength=len(self.claims))
        free = (leaving > 0) & (leaving >= columns.reserved.values) & (columns.choice.values > 0)
        free[[*self._releasing]] = False  # these take nothing as it is
        tables = tuple(table.copy() for table in self._counted())
        for row in np.flatnonzero(free).tolist():
            _book(tables, self._inventory.takes(self._holdings[int(columns.choice.values[row])].devices), sign=-1)
        return self._inventory.with_draws((tables[0], tables[1], tables[2]))

    @cached_property
    def _uses(self) -> tuple[Int64s, Int64s]:
        """Pods that hold devices when the session opens, and the claims that they hold, pair by pair."""
        pairs = [
            (int(pod), self.rows[each.claim])
            for pod, placement in self._placements.items()
            for each in _distinct(placement)
        ]
        table = np.array(pairs, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def is_overdrawn(self, devices: Iterable[AllocatedDevice], taken: Tables) -> bool:
        """Return whether ``taken`` is more than there is of something that ``devices`` take."""
        limits = self._inventory.limits
        return any(taken[table][cell] > limits[table][cell] for table, cell in self._cells(devices))

    @property
    def any_releasing(self) -> bool:
        """Whether claims are being released at all."""
        return bool(self._releasing)

    def crowd(self, placement: ClaimPlacement) -> Crowd | None:
        """Return what others hold of the now free devices of the claims of ``placement``; None if nothing."""
        fresh = [each for each in _distinct(placement) if self._is_free(self.rows[each.claim])]
        devices = [device for each in fresh for device in each.devices]
        beyond = self._beyond(devices)
        if not beyond:
            return None
        columns = self.columns
        # Only claims whose users were all promised their place in this session may lose devices: a promise is made anew
        # in every cycle, but the devices of a bind are in its bind request.
        waits = (columns.choice.values > 0) & (columns.waiting.values > 0)
        waits &= columns.reserved.values == columns.waiting.values
        holdings = {row: self._holdings[int(columns.choice.values[row])] for row in np.flatnonzero(waits).tolist()}
        found = {row: each for row, each in holdings.items() if not beyond.isdisjoint(self._cells(each.devices))}
        tables = tuple(table.copy() for table in self._counted())
        for each in found.values():
            _book(tables, self._inventory.takes(each.devices), sign=-1)
        _book(tables, self._inventory.takes(devices))
        taken = self._inventory.with_draws((tables[0], tables[1], tables[2]))
        fits = not self.is_overdrawn(devices, taken)
        return Crowd(claim=fresh[0].claim, displaced=found, taken=taken if fits else None)

    def _beyond(self, devices: Sequence[AllocatedDevice]) -> set[tuple[int, int]]:
        """Return what is too scarce for ``devices`` beside the devices that are taken."""
        taken, inventory = self.taken(), self._inventory
        more: Counter[tuple[int, int]] = Counter()
        for table, cell, amount in (*inventory.takes(devices), *inventory.first_draws(devices, taken)):
            more[table, cell] += amount
        return {at for at, amount in more.items() if taken[at[0]][at[1]] + amount > inventory.limits[at[0]][at[1]]}

    def _cells(self, devices: Iterable[AllocatedDevice]) -> set[tuple[int, int]]:
        """Return the resources of ``devices``, including counters that shared devices draw from."""
        inventory = self._inventory
        taking = [each for each in devices if not each.admin_access and each.key in inventory.rows]
        draws = [draw for each in taking for draw in inventory.draws_of(inventory.rows[each.key])]
        return {(table, cell) for table, cell, _ in (*inventory.takes(taking), *draws)}

    @property
    def keeps_any(self) -> bool:
        """Whether something is kept for promises that lost their devices."""
        return bool(self.columns.kept.values.any())

    def _is_free(self, row: int) -> bool:
        return row not in self._releasing and self.columns.choice.values[row] == 0

    # ------------------------------------------------------------------ effects

    def effects(
        self, pod: PodRow, node: NodeRow, placement: ClaimPlacement, kept: Mapping[ClaimKey, Holding]
    ) -> Sequence[Effect]:
        """Return the effects on columns of holding the claim's devices, or of giving them up.

        Whichever is next for ``pod``: pods that hold their devices give them up, others take them. ``kept`` is what is
        to be kept for promises while claims are allocated which are not yet.
        """
        columns = self.columns
        held = self.holds(pod)
        out = [Effect(columns.held, int(pod), 1)]
        spare: list[AllocatedDevice] = []
        for allocation in _distinct(placement):
            row, holding = self.rows[allocation.claim], Holding(allocation.devices, allocation.nodes)
            effects, turns = self._claim_effects(pod, row, holding, leaving=held)
            out += effects
            if turns:
                number = int(columns.kept.values[row])
                instead = self._holdings[number] if held else kept.get(allocation.claim, self._holdings[0])
                if instead.devices:
                    out += [Effect(columns.kept, row, self.number(instead)), *self._taking(instead.devices)]
                    spare += instead.devices
        if placement.extended is not None:
            out += self._taking(placement.extended.devices)
        out += self.charges.effects(pod, node, placement, held=held)
        return out + self.seats.effects(pod, node, placement, spare, held=held)

    def is_unused(self, row: int) -> bool:
        """Return whether the claim in ``row`` has neither devices nor consumers."""
        columns = self.columns
        return not (columns.choice.initial[row] or columns.reserved.initial[row])

    def changes(
        self, pods: PodRows, rows: Sequence[int], seats: Sequence[int], claims: Sequence[tuple[int, int, Holding]]
    ) -> list[tuple[Tracked, Int64s, Int64s]]:
        """Return the sums of effects on columns, lasting ones included, of pods that get free devices of their own.

        ``rows`` are the devices of all ``pods``, ``seats`` those of them that count as GPUs which pods sit on.
        ``claims`` are pods with their claims, unused until then, and what these hold from now on.
        """
        columns, draws = self.columns, [draw for row in rows for draw in self._inventory.draws_of(row)]
        owned = [claim for _, claim, _ in claims]
        numbers = np.array([self.number(holding) for _, _, holding in claims], np.int64)
        charged = self.charges.changes([(PodRow(pod), self._keys[claim]) for pod, claim, _ in claims])
        counted: list[tuple[Tracked, Sequence[int]]] = [
            (columns.held, pods.tolist()),
            (columns.in_use, rows),
            (columns.reserved, owned),
            (self.seats.using, seats),
            *charged,
        ]
        return [
            *((column, np.array(cells, np.int64), np.ones(len(cells), np.int64)) for column, cells in counted),
            (columns.choice, np.array(owned, np.int64), numbers),
            (
                columns.drawn,
                np.array([cell for _, cell, _ in draws], np.int64),
                np.array([amount for *_, amount in draws], np.int64),
            ),
        ]

    def _claim_effects(self, pod: PodRow, row: int, holding: Holding, *, leaving: bool) -> tuple[list[Effect], bool]:
        """Return the changes of a claim, and whether ``pod`` allocates it, or is the last user."""
        columns = self.columns
        named = self._is_named(row, pod)
        out = [] if named else [Effect(columns.reserved, row, 1)]
        if not named and self._view.columns.status[pod] == Status.PIPELINED:
            out.append(Effect(columns.waiting, row, 1))
        users = int(columns.reserved.values[row])
        turns = False
        # A claim that is being released stays allocated. Its devices count from the first pod that takes it over until
        # the last of these leaves.
        if row in self._releasing:
            if users == self._releasing[row] + int(leaving):
                out += self._taking(holding.devices)
        # A pod that the status names stays a user after it left, so the claim keeps its devices.
        elif (leaving and users == 1 and not named) or (not leaving and columns.choice.values[row] == 0):
            out.append(Effect(columns.choice, row, self.number(holding)))
            out += self._taking(holding.devices)
            turns = True
        return out, turns

    def _taking(self, devices: Iterable[AllocatedDevice]) -> list[Effect]:
        columns = (self.columns.in_use, self.columns.consumed, self.columns.drawn)
        return [Effect(columns[table], cell, amount) for table, cell, amount in self._inventory.takes(devices)]

    def lasting_effects(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement) -> Sequence[Effect]:
        """Return the effects of the booking of ``pod`` that last while it is on its node, even if evicted."""
        return self.seats.lasting_effects(pod, node, placement, held=self.holds(pod))


def _distinct(placement: ClaimPlacement) -> Sequence[ClaimAllocation]:
    """Return the claims of ``placement``, each once."""
    return tuple({each.claim: each for each in placement.claims}.values())


def _book(tables: Sequence[Int64s], takes: Iterable[tuple[int, int, int]], *, sign: int = 1) -> None:
    for table, cell, amount in takes:
        tables[table][cell] += sign * amount


def assigned_placements(view: SessionView, pods: PodRows) -> Mapping[PodRow, ClaimPlacement]:
    """Return what the ``pods`` that occupy a node hold."""
    snapshot = view.snapshot
    status, node = snapshot.pod_status, snapshot.pod_node
    present = [PodRow(int(pod)) for pod in pods if within(int(status[pod]), ACTIVE_USED) and node[pod] >= 0]
    owned = _owned(snapshot.catalog.claims.claims.values())
    return {pod: _held(view, pod, owned) for pod in present}


def _held(view: SessionView, pod: PodRow, owned: Mapping[str, list[Claim]]) -> ClaimPlacement:
    """Return the allocated claims of ``pod``: the referenced ones, and the one for its extended resources."""
    snapshot = view.snapshot
    facts, shape = snapshot.pods[pod], snapshot.shapes[snapshot.pod_shape[pod]]
    references = list(shape.constraints.claims)
    named = {reference.claim for reference in references}
    made = [each.name for each in owned.get(facts.uid, ()) if each.name not in named]
    # No field of the spec names the claim for extended resources: its owner reference leads to the pod.
    references += [ClaimReference(name="", claim=name) for name in made]
    found: list[ClaimAllocation] = []
    for reference in references:
        claim = snapshot.catalog.claims.claims.get((facts.namespace, reference.claim))
        if claim is not None and claim.allocation is not None:
            found.append(allocation_of(reference, facts.namespace, Holding(claim.allocation, claim.nodes)))
    return ClaimPlacement(claims=tuple(found))


def _owned(claims: Iterable[Claim]) -> Mapping[str, list[Claim]]:
    """Return the claims that were made for each pod, by its uid."""
    out: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.owner_pod:
            out.setdefault(claim.owner_pod, []).append(claim)
    return out


def allocation_of(reference: ClaimReference, namespace: str, holding: Holding) -> ClaimAllocation:
    """Return what a claim of a pod in ``namespace`` holds."""
    claim = (namespace, reference.claim)
    return ClaimAllocation(reference=reference.name, claim=claim, devices=holding.devices, nodes=holding.nodes)


_GOING = status_mask(Status.RELEASING, Status.SUCCEEDED, Status.FAILED)


def releasing_claims(
    view: SessionView, assigned: Mapping[PodRow, ClaimPlacement], concerned: PodRows
) -> frozenset[ClaimKey]:
    """Return the allocated claims whose users, at least one, are all terminating, ended or gone.

    ``assigned`` is what pods on nodes hold, ``concerned`` are all pods that refer to claims.

    Cost: one look at each claim; if some have no active user on a node, at each concerned pod; if these name other
    pods,
        at each pod.
    """
    status = view.snapshot.pod_status
    kept = {
        allocation.claim
        for pod, placement in assigned.items()
        if not within(int(status[pod]), _GOING)
        for allocation in placement.claims
    }
    users = {
        key: found
        for key, claim in view.snapshot.catalog.claims.claims.items()
        if claim.allocation is not None and key not in kept and not claim.has_other_users and (found := _users(claim))
    }
    if not users:
        return frozenset()
    staying = _staying(view, frozenset().union(*users.values()), concerned)
    return frozenset(key for key, uids in users.items() if uids.isdisjoint(staying))


def _users(claim: Claim) -> frozenset[str]:
    return frozenset(filter(None, (*claim.reserved_for, claim.owner_pod)))


def _staying(view: SessionView, uids: frozenset[str], concerned: PodRows) -> frozenset[str]:
    """Return the pods of ``uids`` that exist and are not terminating."""
    pods, status = view.snapshot.pods, view.snapshot.pod_status

    def among(rows: Iterable[int], wanted: frozenset[str]) -> Mapping[str, int]:
        return {uid: row for row in rows if (uid := pods[row].uid) in wanted}

    found = among(concerned.tolist(), uids)
    missing = uids - found.keys()
    if missing:
        found = {**found, **among(range(len(pods)), missing)}
    return frozenset(uid for uid, row in found.items() if not within(int(status[row]), _GOING))
