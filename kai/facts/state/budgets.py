"""Bounds besides the amounts of queues, as columns: budgets, and the accounts of users.

Of a budget: what is left, what GPUs count, and how long groups are charged for. An account is made for each user of a
queue that limits users, as far as some group is theirs; rows are for users with groups, never for objects in the
cluster.
"""

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from kai.facts.kernels.booking import accepted_gpu, book_budgets
from kai.facts.kernels.columns import COUNTED, PENDING, BudgetFacts, Columns, Facts, NodeFacts, UserFacts
from kai.facts.model.axis import GPU_UNIT, NONE, Bools, Float64s, Int64s, locked
from kai.facts.model.budgets import STOP, Budget
from kai.facts.model.groups import Queue, Shares
from kai.facts.model.pod import GpuKind
from kai.facts.state.facts import shape_columns
from kai.facts.state.snapshot import BudgetTable, Snapshot

_NOTHING: Final = -(1 << 62)
"""What is left where nothing is known: less than anything costs."""


def budget_facts(snapshot: Snapshot) -> BudgetFacts:
    """Return the columns of budgets; tables without rows where no queue has any."""
    table, queues = snapshot.budgets, len(snapshot.queues)
    if table is None:
        return snapshot.memory.once("no budgets", (snapshot.queues,), lambda: _none(queues))
    counts = np.bincount(np.array([each.queue for each in table.bounding], np.int64), minlength=queues)
    bounds = np.array([each.bounds_starts for each in table.budgets], np.bool_)
    return BudgetFacts(
        first=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64),
        left=_left(table.bounding),
        stops=np.array([each.enforce == STOP for each in table.bounding], np.bool_),
        weights=np.ascontiguousarray(table.weights[bounds]),
        node_model=table.node_model,
        group_model=table.group_model,
        duration=table.duration,
    )


def _none(queues: int) -> BudgetFacts:
    none = np.zeros(0, np.int64)
    return BudgetFacts(
        first=np.zeros(queues + 1, np.int64),
        left=none,
        stops=np.zeros(0, np.bool_),
        weights=np.zeros((0, 1), np.int64),
        node_model=none,
        group_model=none,
        duration=none,
    )


def _left(budgets: Sequence[Budget]) -> Int64s:
    return np.array([_NOTHING if each.spent is None else each.left for each in budgets], np.int64)


def book(snapshot: Snapshot, facts: Facts, columns: Columns) -> None:
    """Charge all pods that have a place to the budgets above them. Cost: O(P) where a queue has a budget, else none."""
    if len(facts.budgets.left):
        book_budgets(facts, columns, _held(snapshot, facts))


def _held(snapshot: Snapshot, facts: Facts) -> Int64s:
    """Return int64[P]: the thousandths of GPUs of pods that have a place."""
    gpus = np.zeros(len(snapshot.pods), np.int64)
    placed = np.flatnonzero((snapshot.pod_node >= 0) & (snapshot.pod_group >= 0))
    nodes = max(1, len(snapshot.nodes))
    kinds, which = np.unique(snapshot.pod_shape[placed] * nodes + snapshot.pod_node[placed], return_inverse=True)
    amounts = [accepted_gpu(facts, kind // nodes, kind % nodes) for kind in kinds.tolist()]
    gpus[placed] = np.array(amounts, np.int64)[which.reshape(-1)]
    return gpus


@attrs.frozen(eq=False)
class Remainders:
    """What the answers of budgets followed from in a cycle that decided nothing.

    A budget refuses where its remainder is less than the cost that running work and a further start may still cause.
    While running work uses what it was charged for, remainder and cost fall alike. So the answers stay the same
    although no number does, and the cycle need not be repeated.

    Shapes: B budgets that bound starts, G groups.
    """

    table: BudgetTable
    left: Int64s
    stops: Bools
    rate: Int64s
    """[B] What the charges of running work fall by in a millisecond."""
    charged: Bools
    """[G] Groups with pods that are charged."""
    waiting: Bools
    """[G] Groups with pods that wait."""

    def hold(self, snapshot: Snapshot) -> bool:
        """Return whether budgets give the same answers on the same facts at the instant of ``snapshot``.

        Holds: no period or slice ended since.
        """
        now, before = snapshot.budgets, self.table
        if now is None or len(now.bounding) != len(before.bounding):
            return False
        if (now.duration[self.waiting] != before.duration[self.waiting]).any():
            return False
        passed = now.at - before.at
        if (before.duration[self.charged] - now.duration[self.charged] != passed).any():
            return False  # work that has not begun, or that is late, uses more than it is charged less
        left = _left(now.bounding)
        fall = np.where(self.left == _NOTHING, 0, self.rate * passed)
        same = np.where(self.stops, (left > 0) == (self.left > 0), self.left - left == fall)
        return bool(same.all())


def remainders(snapshot: Snapshot, facts: Facts, columns: Columns) -> Remainders | None:
    """Return what the answers of budgets follow from; None without budgets. Cost: O(P) with budgets.

    Holds: ``columns`` are as they were when all pods were booked.
    """
    table, budgets = snapshot.budgets, facts.budgets
    if table is None:
        return None
    groups = np.zeros((2, len(snapshot.groups) + 1), np.bool_)  # the last one is for pods without a group
    for row, statuses in enumerate((COUNTED, 1 << PENDING)):
        groups[row, snapshot.pod_group[(statuses >> columns.status) & 1 > 0]] = True
    rate = np.zeros(0, np.int64)
    if len(budgets.left):
        used, charge = columns.budget_used.copy(), np.minimum(budgets.duration, 1)
        book_budgets(facts.replace(budgets=budgets.replace(duration=charge)), columns, _held(snapshot, facts))
        rate = columns.budget_used.copy()
        columns.budget_used[:] = used
    return Remainders(table, budgets.left, budgets.stops, rate, groups[0, :-1], groups[1, :-1])


_USERS: Final = "users of groups"
_ACCOUNTS: Final = "accounts before"


def user_facts(snapshot: Snapshot, queue: Int64s, nodes: NodeFacts) -> UserFacts:
    """Return the accounts of users; tables without rows where no queue limits users. ``queue`` [G] are those of groups.

    Cost: O(P + G) where a queue limits users and pods, groups or queues changed, else none.
    """
    memory, groups, queues = snapshot.memory, snapshot.groups, snapshot.queues
    if not memory.once("some queue limits users", (queues,), lambda: any(each.per_user is not None for each in queues)):
        return memory.once("no accounts", (), lambda: _accounts(_Limiting.of(()), _NO_ROWS, _NO_ROWS))
    limiting = memory.once("queues that limit users", (queues,), lambda: _Limiting.of(queues))
    known: dict[str, int] = memory.once(_USERS, (), dict)

    def read(rows: Sequence[int]) -> tuple[Int64s]:
        return (np.array([known.setdefault(groups[row].holder, len(known)) for row in rows], np.int64),)

    (user,) = memory.rows.columns(_USERS, snapshot.versions.groups, len(groups), read, (known,))

    def make() -> UserFacts:
        found, before = _accounts(limiting, queue, user), memory.recall(_ACCOUNTS)
        # Queues change often, for other amounts. With the former tables, pods that stayed need not be booked anew.
        same = isinstance(before, UserFacts) and all(
            np.array_equal(getattr(before, name), getattr(found, name)) for name in ("account", "above")
        )
        if same and isinstance(before, UserFacts):
            found = found.replace(account=before.account, above=before.above)
        memory.keep(_ACCOUNTS, found)
        return found

    found = memory.once("accounts", (queues, queue, user), make)
    inputs = (found, snapshot.pod_group, snapshot.pod_shape, snapshot.shapes, snapshot.requests, nodes.gpu_weight)
    return memory.once(
        "accounts that may bind", inputs, lambda: found.replace(binding=_binding(found, snapshot, nodes))
    )


def _binding(accounts: UserFacts, snapshot: Snapshot, nodes: NodeFacts) -> Int64s:
    """Return int64[G]: the nearest account of each group that may refuse something in this cycle; -1: none.

    Where all pods of the groups of an account may run at once, wherever they go, its limit is none. Groups that differ
    in such accounts alone are alike for all that compares groups.
    """
    if not len(accounts.limit):
        return accounts.account
    most = largest_amounts(snapshot, nodes)
    owners = np.where(snapshot.pod_group >= 0, accounts.account[snapshot.pod_group], NONE)
    pods = np.flatnonzero(owners >= 0)
    shapes, count = snapshot.pod_shape[pods], len(accounts.limit)
    own = np.array([np.bincount(owners[pods], amounts[shapes], count) for amounts in most.T])
    total = own.copy()
    rising = accounts.above
    while (rising >= 0).any():
        below = np.flatnonzero(rising >= 0)
        total += [np.bincount(rising[below], amounts[below], count) for amounts in own]
        rising = np.where(rising >= 0, accounts.above[rising], NONE)
    # Sums of bytes are floats, so what is that close counts as above.
    over = (accounts.limit >= 0) & (accounts.limit < total.T * (1 + _ROUNDING))
    binds: Bools = np.logical_or.reduce(over, axis=1)
    found = accounts.account
    while (idle := (found >= 0) & ~binds[found]).any():
        found = np.where(idle, accounts.above[found], found)
    return locked(found)


_ROUNDING: Final = 1e-9


def largest_amounts(snapshot: Snapshot, nodes: NodeFacts) -> Float64s:
    """Return float64[K, 3]: the most CPU, memory and GPU that a pod of each shape counts for on any node."""
    kinds = shape_columns(snapshot).kind
    out = np.zeros((len(snapshot.shapes), 3), np.float64)
    out[:, :2] = snapshot.requests[:, :2]
    out[:, 2] = snapshot.requests @ nodes.gpu_weight
    for row in np.flatnonzero((kinds == GpuKind.FRACTION) | (kinds == GpuKind.MEMORY)).tolist():
        # A part by memory has no bound: it is compared with limits even on nodes whose devices are too small.
        whole = float(snapshot.shapes[row].gpu.devices * GPU_UNIT)
        out[row, 2] = np.inf if kinds[row] == GpuKind.MEMORY else whole
    return out


def users_of(snapshot: Snapshot, accounts: UserFacts) -> tuple[str, ...]:
    """Return the name of the user of each account, or of the namespace that it counts for. Cost: O(G) with accounts.

    Read from the groups, as the numbers of users hold only in the process and the memory that gave them.
    """
    rows = np.flatnonzero(accounts.account >= 0)
    users, first = np.unique(accounts.user[accounts.account[rows]], return_index=True)
    names = {user: snapshot.groups[row].holder for user, row in zip(users.tolist(), rows[first].tolist(), strict=True)}
    return tuple(names[user] for user in accounts.user.tolist())


_NO_ROWS: Final = locked(np.zeros(0, np.int64))


@attrs.frozen(eq=False)
class _Limiting:
    """Which queues limit users, as columns with one row more, so that row -1 reads that no queue is there."""

    nearest: Int64s
    """[Q + 1] The nearest one, the queue itself or above it."""
    above: Int64s
    """[Q + 1] The nearest one above it."""
    limit: Float64s
    """[Q + 1, 3] What each user may hold; -1 is unlimited."""

    @classmethod
    def of(cls, queues: Sequence[Queue]) -> "_Limiting":
        """Return the columns of a tree of queues."""
        nearest = [*_nearest(queues), NONE]
        limits = [*(each.per_user or _FREE for each in queues), _FREE]
        return cls(
            nearest=np.array(nearest, np.int64),
            above=np.array([*(nearest[each.parent] if each.parent >= 0 else NONE for each in queues), NONE], np.int64),
            limit=np.array([(each.cpu, each.memory, each.gpu) for each in limits], np.float64),
        )


def _accounts(limiting: _Limiting, queue: Int64s, user: Int64s) -> UserFacts:
    """Return the accounts of groups with these queues [G] and numbers of users [G]."""
    users = int(user.max(initial=0)) + 1
    at = limiting.nearest[queue]
    owners, rising = np.where(at >= 0, at * users + user, NONE), at
    keys = [owners]
    while (rising >= 0).any():
        rising = limiting.above[rising]
        keys.append(np.where(rising >= 0, rising * users + user, NONE))
    pairs = np.unique(np.concatenate(keys))
    pairs = pairs[pairs >= 0]
    queue_of, user_of = pairs // users, pairs % users
    up = limiting.above[queue_of]
    return UserFacts(
        account=_rows(pairs, owners),
        above=_rows(pairs, np.where(up >= 0, up * users + user_of, NONE)),
        queue=queue_of,
        user=user_of,
        binding=_NO_ROWS,
        limit=limiting.limit[queue_of],
    )


_FREE: Final = Shares(cpu=-1.0, memory=-1.0, gpu=-1.0)


def _rows(pairs: Int64s, wanted: Int64s) -> Int64s:
    """Return the rows of ``wanted`` in the sorted ``pairs``, -1 for -1."""
    return locked(np.where(wanted >= 0, np.searchsorted(pairs, wanted), NONE))


def _nearest(queues: Sequence[Queue]) -> list[int]:
    """Return for each queue the row of the nearest one, itself or above, that limits users; -1 for none."""
    found: list[int] = []
    for row in range(len(queues)):
        at = row
        while at >= 0 and queues[at].per_user is None:
            at = queues[at].parent
        found.append(at)
    return found
