"""The search for devices for all claims of a pod together, on one node: depth-first with backtracking.

Requests are filled in order, each by the first devices that match, are free and satisfy the constraints; on a dead end
the search steps back. It takes the first solution, so equal states give equal answers. The number of steps is bounded;
a search beyond the bound counts as failed. Selectors are evaluated device by device: a device on which a selector fails
ends the search only if the search reaches it.

Source: the structured allocator of Kubernetes (resource.k8s.io/v1).
"""

from collections.abc import Iterator, Sequence

import attrs

from kai.framework import Int64s
from kai.framework.claims import V1_37, AllocatedDevice, DeviceConstraint
from kai.plugins.dra.accounting import Holding
from kai.plugins.dra.demand import MOST_DEVICES, Demand, Want
from kai.plugins.dra.inventory import MOST_SHARES, Inventory, Tables

MOST_STEPS = 20_000
"""The most steps of one search: far more than claims on real nodes need."""


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
    """Table, cell and amount that the device takes from shared counters and capacities."""


class _GivenUpError(Exception):
    """The search ends without a result, whatever else could be tried."""


class Allocator:
    """One search."""

    def __init__(self, inventory: Inventory, taken: Tables, rows: Int64s, node: int, node_name: str) -> None:
        """Search among the devices ``rows`` for a pod on ``node``; ``taken`` is the usage by others."""
        self._inventory = inventory
        self._taken = taken
        self._rows = rows
        self._node_name = node_name
        self._is_unsettled = bool(inventory.unsettled[node])
        self._more: dict[tuple[int, int], int] = {}
        """What this search has taken so far, by table and cell."""
        self._picks: list[_Pick] = []
        self._steps: list[_Step] = []
        self._demands: Sequence[Demand] = ()
        self._left = MOST_STEPS

    def allocate(self, demands: Sequence[Demand]) -> tuple[Holding, ...] | None:
        """Return the devices for each of ``demands``, None if they cannot be met together."""
        self._demands = demands
        if any(demand.fault or self._is_undecided(demand) for demand in demands):
            return None
        self._steps = [_Step(at, wants) for at, demand in enumerate(demands) for wants in demand.requests]
        try:
            if not self._fill(0):
                return None
        except _GivenUpError:
            return None
        return tuple(self._holding(at) for at in range(len(demands)))

    def _is_undecided(self, demand: Demand) -> bool:
        """Return whether a want for all devices, be it the last alternative, is for more than can be known."""
        every = [want for wants in demand.requests for want in wants if want.every]
        return bool(every) and (self._is_unsettled or any(want.faulty[self._rows].any() for want in every))

    def _holding(self, claim: int) -> Holding:
        picks = [pick for pick in self._picks if pick.claim == claim]
        devices = tuple(self._allocated(pick) for pick in picks)
        return Holding(devices, self._inventory.selector([pick.row for pick in picks], self._node_name))

    def _allocated(self, pick: _Pick) -> AllocatedDevice:
        driver, pool, device = self._inventory.keys[pick.row]
        return AllocatedDevice(
            request=pick.want.name,
            driver=driver,
            pool=pool,
            device=device,
            admin_access=pick.want.admin,
            tolerations=pick.want.tolerations,
            consumed=tuple(pick.want.consumes.get(pick.row, {}).items()),
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
                # Kubernetes lets a request for all devices fail where there is none.
                rows = self._all(want)
                if rows and self._room(claim, len(rows)) and self._fill_every(step, want, rows):
                    return True
            elif self._room(claim, want.count) and self._fill_some(step, want, want.count, 0):
                return True
        return False

    def _room(self, claim: int, count: int) -> bool:
        return sum(pick.claim == claim for pick in self._picks) + count <= MOST_DEVICES

    def _all(self, want: Want) -> Sequence[int]:
        """Return the devices that a want for all of them means."""
        rows = [int(row) for row in self._rows[want.meant[self._rows]]]
        # Before 1.37 a device without a share left is passed over; since then it fails the request.
        if self._inventory.kubernetes < V1_37:
            return [row for row in rows if self._has_share(want, row)]
        return rows

    def _has_share(self, want: Want, row: int) -> bool:
        taken, limits = self._taken[1], self._inventory.limits[1]
        cells = ((self._inventory.cells[row, name], amount) for name, amount in want.consumes.get(row, {}).items())
        return all(taken[cell] + amount <= limits[cell] for cell, amount in cells)

    def _fill_every(self, step: int, want: Want, rows: Sequence[int]) -> bool:
        """Pick all of ``rows``, then go on with the next request.

        Raises: _GivenUpError if a free device violates a constraint, because no other choice can satisfy a request for
        all.
        """
        before = len(self._picks)
        claim = self._steps[step].claim
        for row in rows:
            if not want.matching[row] or not self._pick(claim, want, row, must=True):
                self._drop_to(before)
                return False
        if self._fill(step + 1):
            return True
        self._drop_to(before)
        return False

    def _fill_some(self, step: int, want: Want, count: int, at: int) -> bool:
        """Pick ``count`` more devices, none before position ``at``, then go on with the next request.

        Raises: _GivenUpError at a device that the selectors of ``want`` fail on. Those that are in use are not asked.
        """
        if count == 0:
            return self._fill(step + 1)
        claim, before = self._steps[step].claim, len(self._picks)
        for position in range(at, len(self._rows)):
            row = int(self._rows[position])
            if not (want.matching[row] or want.faulty[row]) or self._is_in_use(claim, want, row):
                continue
            if want.faulty[row]:
                raise _GivenUpError
            if self._left == 0:
                return False
            self._left -= 1
            if self._pick(claim, want, row):
                # Only later positions, so that no set of devices is tried in two orders.
                if self._fill_some(step, want, count - 1, position + 1):
                    return True
                self._drop_to(before)
        return False

    def _is_in_use(self, claim: int, want: Want, row: int) -> bool:
        """Return whether a device is unavailable because others have all of it.

        Admin access sees devices of others, but a claim may name a device only once.
        """
        if self._inventory.multiple[row]:
            return not want.admin and self._held(0, row) >= MOST_SHARES
        if want.admin:
            return any(pick.claim == claim and pick.row == row for pick in self._picks)
        return self._held(0, row) > 0

    def _pick(self, claim: int, want: Want, row: int, *, must: bool = False) -> bool:
        """Take a device if it is free and satisfies the constraints of its claim; return whether it was taken.

        A device for admin access counts as taken for the other requests of the pod, and its counters and capacity must
        be available.

        Raises: _GivenUpError if it is free and ``must`` be taken, but violates a constraint.
        Source: Kubernetes' allocator, in the order of its checks.
        """
        takes = tuple(self._takes(want, row))
        if self._is_in_use(claim, want, row) or self._lacks(takes, 2):
            return False
        pick = _Pick(claim, want, row, takes)
        if not all(self._agrees(constraint, pick) for constraint in self._demands[claim].claim.constraints):
            if must:
                raise _GivenUpError
            return False
        if self._lacks(takes, 1):
            return False
        for table, cell, amount in takes:
            self._more[table, cell] = self._more.get((table, cell), 0) + amount
        self._picks.append(pick)
        return True

    def _takes(self, want: Want, row: int) -> Iterator[tuple[int, int, int]]:
        yield from self._inventory.takes_row(row, want.consumes.get(row))
        # The first share draws the device's counters, further ones nothing more.
        if self._inventory.multiple[row] and not self._held(0, row):
            yield from self._inventory.draws_of(row)

    def _lacks(self, takes: Sequence[tuple[int, int, int]], of: int) -> bool:
        """Return whether there is not enough in the table ``of``."""
        limits = self._inventory.limits[of]
        return any(table == of and self._held(of, cell) + amount > int(limits[cell]) for table, cell, amount in takes)

    def _held(self, table: int, cell: int) -> int:
        return int(self._taken[table][cell]) + self._more.get((table, cell), 0)

    def _drop_to(self, count: int) -> None:
        while len(self._picks) > count:
            for table, cell, amount in self._picks.pop().takes:
                self._more[table, cell] -= amount

    def _agrees(self, constraint: DeviceConstraint, pick: _Pick) -> bool:
        """Return whether a device has the attribute with the value of the picked ones (distinct: another value)."""
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
            return all(typed(other) != typed(value) for other in others)
        return all(typed(other) == typed(value) for other in others)


def typed(value: object) -> tuple[type, object]:
    """Return a value that only equals values of its own type: true is not 1."""
    return type(value), value


def concerns(constraint: DeviceConstraint, want: str) -> bool:
    """Return whether a constraint is about a want; it names requests, or alternatives as ``request/alternative``."""
    return not constraint.requests or want in constraint.requests or want.partition("/")[0] in constraint.requests
