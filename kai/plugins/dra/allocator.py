"""The search for devices: for all claims of a pod together, on one node.

Requests are filled in order, each by the first devices that match, are free and agree with the constraints; where
that leads nowhere the search steps back. The first solution is taken, so equal states give equal answers. The number
of steps is bounded: a search that goes beyond it counts as failed.

Source: the structured allocator of Kubernetes (resource.k8s.io/v1).
"""

from collections.abc import Iterator, Sequence

import attrs

from kai.framework import Bools, Int64s
from kai.framework.claims import AllocatedDevice, DeviceConstraint
from kai.plugins.dra.accounting import Holding
from kai.plugins.dra.demand import MOST_DEVICES, Demand, Want
from kai.plugins.dra.inventory import Inventory, Tables

MOST_STEPS = 20_000
"""Devices that one search looks at before it gives up: far more than claims on real nodes need."""


@attrs.frozen
class _Step:
    """One request of one claim."""

    claim: int
    wants: tuple[Want, ...]


@attrs.frozen
class _Pick:
    """A device for a want."""

    claim: int
    want: Want
    row: int
    takes: tuple[tuple[int, int, int], ...]
    """Table, cell and amount of what it takes from others."""


class Allocator:
    """One search."""

    def __init__(self, inventory: Inventory, taken: Tables, rows: Int64s, node_name: str) -> None:
        """Search among the devices ``rows`` for a pod on a node; ``taken`` is what others hold."""
        self._inventory = inventory
        self._taken = taken
        self._rows = rows
        self._node_name = node_name
        self._more: dict[tuple[int, int], int] = {}
        """What this search has taken so far, by table and cell."""
        self._picks: list[_Pick] = []
        self._steps: list[_Step] = []
        self._demands: Sequence[Demand] = ()
        self._left = MOST_STEPS

    def allocate(self, demands: Sequence[Demand]) -> tuple[Holding, ...] | None:
        """Return what each of ``demands`` would hold, None if they cannot be met together."""
        self._demands = demands
        if any(demand.fault or self._meets_a_fault(demand) for demand in demands):
            return None
        self._steps = [_Step(at, wants) for at, demand in enumerate(demands) for wants in demand.requests]
        if not self._fill(0):
            return None
        return tuple(self._holding(at) for at in range(len(demands)))

    def _meets_a_fault(self, demand: Demand) -> bool:
        return any(want.faulty[self._rows].any() for wants in demand.requests for want in wants)

    def _holding(self, claim: int) -> Holding:
        picks = [pick for pick in self._picks if pick.claim == claim]
        devices = tuple(self._allocated(pick) for pick in picks)
        return Holding(devices, self._inventory.selector([pick.row for pick in picks], self._node_name))

    def _allocated(self, pick: _Pick) -> AllocatedDevice:
        driver, pool, device = self._inventory.keys[pick.row]
        written = self._inventory.devices[pick.row].written
        consumed = pick.want.consumes.get(pick.row, {})
        return AllocatedDevice(
            request=pick.want.name,
            driver=driver,
            pool=pool,
            device=device,
            admin_access=pick.want.admin,
            tolerations=pick.want.tolerations,
            consumed=tuple((written.get(name, name), amount) for name, amount in consumed.items()),
            shared=bool(self._inventory.multiple[pick.row]),
        )

    # ------------------------------------------------------------------ the search

    def _fill(self, step: int) -> bool:
        """Fill the requests from ``step`` on; on failure nothing of them stays picked."""
        if step == len(self._steps):
            return True
        claim = self._steps[step].claim
        for want in self._steps[step].wants:
            if want.every:
                rows = self._all(want)
                if rows and self._room(claim, len(rows)) and self._fill_every(step, want, rows):
                    return True
            elif self._room(claim, want.count) and self._fill_some(step, want, want.count, 0):
                return True
        return False

    def _room(self, claim: int, count: int) -> bool:
        return sum(pick.claim == claim for pick in self._picks) + count <= MOST_DEVICES

    def _all(self, want: Want) -> Sequence[int]:
        """Return the devices that a want for all of them means; none if it cannot have one of them.

        It means no device that has no share left for it. What a pool has is not known before all its slices are there.
        """
        if self._inventory.barred[self._rows].any():
            return ()
        rows = [row for row in map(int, self._rows[want.meant[self._rows]]) if want.admin or self._has_share(want, row)]
        return rows if want.matching[rows].all() else ()

    def _has_share(self, want: Want, row: int) -> bool:
        taken, limits = self._taken[1], self._inventory.limits[1]
        cells = ((self._inventory.cells[row, name], amount) for name, amount in want.consumes.get(row, {}).items())
        return all(taken[cell] + amount <= limits[cell] for cell, amount in cells)

    def _fill_every(self, step: int, want: Want, rows: Sequence[int]) -> bool:
        """Pick all of ``rows``, then go on with the next request."""
        before = len(self._picks)
        claim = self._steps[step].claim
        if all(self._pick(claim, want, row) for row in rows) and self._fill(step + 1):
            return True
        self._drop_to(before)
        return False

    def _fill_some(self, step: int, want: Want, count: int, at: int) -> bool:
        """Pick ``count`` more devices, none before position ``at``, then go on with the next request."""
        if count == 0:
            return self._fill(step + 1)
        claim, before = self._steps[step].claim, len(self._picks)
        for position, row in self._candidates(want, at, want.matching):
            if self._left == 0:
                return False
            self._left -= 1
            if self._pick(claim, want, row):
                if self._fill_some(step, want, count - 1, position + 1):
                    return True
                self._drop_to(before)
        return False

    def _candidates(self, want: Want, at: int, matching: Bools) -> Iterator[tuple[int, int]]:
        in_use, multiple = self._taken[0], self._inventory.multiple
        for position in range(at, len(self._rows)):
            row = int(self._rows[position])
            if matching[row] and (want.admin or multiple[row] or in_use[row] == 0):
                yield position, row

    def _pick(self, claim: int, want: Want, row: int) -> bool:
        """Take a device if it is free and agrees with the constraints of its claim; say whether."""
        if not self._inventory.multiple[row] and any(pick.claim == claim and pick.row == row for pick in self._picks):
            return False  # an administrator looks at it already: a claim names a device once
        takes = () if want.admin else tuple(self._takes(want, row))
        if any(self._beyond(table, cell, amount) for table, cell, amount in takes):
            return False
        pick = _Pick(claim, want, row, takes)
        if not all(self._agrees(constraint, pick) for constraint in self._demands[claim].claim.constraints):
            return False
        for table, cell, amount in takes:
            self._more[table, cell] = self._more.get((table, cell), 0) + amount
        self._picks.append(pick)
        return True

    def _takes(self, want: Want, row: int) -> Iterator[tuple[int, int, int]]:
        yield from self._inventory.takes_row(row, want.consumes.get(row))
        if self._inventory.multiple[row] and not self._held(0, row):
            yield from self._inventory.draws_of(row)

    def _held(self, table: int, cell: int) -> int:
        return int(self._taken[table][cell]) + self._more.get((table, cell), 0)

    def _beyond(self, table: int, cell: int, amount: int) -> bool:
        return self._held(table, cell) + amount > int(self._inventory.limits[table][cell])

    def _drop_to(self, count: int) -> None:
        while len(self._picks) > count:
            for table, cell, amount in self._picks.pop().takes:
                self._more[table, cell] -= amount

    def _agrees(self, constraint: DeviceConstraint, pick: _Pick) -> bool:
        """Return whether a device has the attribute, with the value of those picked before (distinct: another one)."""
        if not concerns(constraint, pick.want.name):
            return True
        value = self._inventory.devices[pick.row].attributes.get(constraint.match)
        if value is None:
            return False
        others = [
            self._inventory.devices[each.row].attributes.get(constraint.match)
            for each in self._picks
            if each.claim == pick.claim and concerns(constraint, each.want.name)
        ]
        if constraint.distinct:
            return all(_typed(other) != _typed(value) for other in others)
        return all(_typed(other) == _typed(value) for other in others)


def _typed(value: object) -> tuple[type, object]:
    """Return a value that only equals values of its own type: true is not 1."""
    return type(value), value


def concerns(constraint: DeviceConstraint, want: str) -> bool:
    """Return whether a constraint is about a want; it names requests, or alternatives as ``request/alternative``."""
    return not constraint.requests or want in constraint.requests or want.partition("/")[0] in constraint.requests
