"""Searches that cannot succeed, proved by an earlier failure or by sums.

``NoLess`` finds the groups that ask for no less than a group whose search failed. Their searches would fail too, so all
of them are closed at once. ``kai.actions.search.waiting`` remembers a failure by the constraints of the pods, with the
amounts. The remembered amounts only get smaller while nothing is committed, so a group that asks for no less now still
does so in its turn.

``Prospects`` finds the groups for which no move of pods can make room. A consolidation ends with all pods placed: the
victims elsewhere, and the aggressor in its place. So the queues above it hold what they held plus its amounts, and
ready nodes have that much less free. If that exceeds a limit or the free capacity, no move of pods helps. The sums are
computed once for all waiting groups, so a group without prospects costs a few comparisons instead of a search. Nor does
one help if too few single nodes could give a pod of the group its GPUs, whichever of the victims move.

``Reach`` knows which victims give the aggressor nodes among which it can find no domain.
"""

from functools import cached_property

import attrs
import numpy as np

from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import NO_DOMAIN, PROSPECTS
from kai.facts.kernels.columns import CPU, GPU, GPU_UNIT, KIND_FRACTION, KIND_MEMORY, MEMORY, PENDING
from kai.facts.kernels.groups import ROOT_AND_LEAF
from kai.facts.kernels.victims import free_gpus, may_fit_after_moves
from kai.facts.model.axis import Bools, Float64s, GroupRow, GroupRows, Int64s, NodeRows, PodRows, SubGroupRow
from kai.facts.model.pod import ACTIVE_ALLOCATED, COUNTED

NONE: GroupRows = np.zeros(0, np.int64)


class NoLess:
    """Waiting groups of one pod, sorted for comparison with a failed one. Shapes: G groups."""

    def __init__(self, session: Session, groups: GroupRows, *, per_queue: bool) -> None:
        """Index the groups of one pod among ``groups``; ``per_queue``: compare only groups of the same queue.

        Groups of users with limits are compared only with those of the same user.
        Cost: O(n log n), and one look at each pod's constraints, once in a session.
        """
        self._session = session
        facts = session.facts.groups
        leaves = facts.first_subgroup[groups] + 1
        begins = facts.pod_start[leaves]
        alone = facts.simple[groups] & (facts.pod_start[leaves + 1] - begins == 1)
        groups, pods = groups[alone], facts.pods[begins[alone]]
        numbers = session.equivalence.constraints_of(pods)
        if per_queue:
            numbers = numbers * len(session.snapshot.queues) + facts.queue[groups]
        users = session.facts.users
        if len(users.limit):
            numbers = numbers * (len(users.limit) + 1) + users.binding[groups] + 1
        order = np.argsort(numbers, kind="stable")
        self._groups, self._pods, self._numbers = groups[order], pods[order], numbers[order]
        self._number: Int64s = np.full(len(session.snapshot.groups), -1, np.int64)
        self._number[groups] = numbers

    def than(self, group: int, failed: tuple[int, ...]) -> GroupRows:
        """Return the groups with the constraints of ``group`` that ask for no less than ``failed`` [R].

        Returns none if ``group`` is not a single pod. Cost: a pass over the groups with its constraints.
        """
        number = int(self._number[group])
        if number < 0:
            return NONE
        begin, end = self._numbers.searchsorted((number, number + 1)).tolist()
        facts, pods = self._session.facts, self._pods[begin:end]
        asked = facts.shapes.request[facts.pods.shape[pods]]
        # `is_easier` in `waiting`, negated: if the two differed, a group would be closed here that is searched for
        # there.
        no_less = (asked > failed).any(axis=1) | (asked == failed).all(axis=1)
        waits = self._session.columns.status[pods] == PENDING
        found: GroupRows = self._groups[begin:end][no_less & waits]
        return found


class Reach:
    """The nodes that an aggressor reaches without some victims, and whether plugins rule them out.

    An answer depends on the nodes alone, not on what is free there, so it is kept for equal nodes.
    """

    def __init__(self, session: Session, part: Portion, feasible: NodeRows, recorded: PodRows) -> None:
        """Prepare for the chunk of ``part``, which reaches ``feasible`` nodes and those of ``recorded`` victims."""
        self._session = session
        self._group = GroupRow(part.group)
        self._open = np.zeros(len(session.all_nodes), np.bool_)
        self._open[feasible] = True
        self._add(self._open, recorded)
        self._pods = self._by_subgroup(part)
        self._known: dict[bytes, bool] = {}

    @classmethod
    def of(cls, session: Session, part: Portion, feasible: NodeRows, recorded: PodRows) -> "Reach | None":
        """Return the check, or None if no plugin rules out nodes for the group."""
        asked = any(each.rules_out is not None for each in session.policy.splitting)
        if not asked or session.policy.leaves_one_alone(part.group) or not session.takes(NO_DOMAIN):
            return None
        return cls(session, part, feasible, recorded)

    def is_ruled_out(self, victims: PodRows) -> bool:
        """Return whether the group finds no place without ``victims``. Cost: a look at each node and victim."""
        reached = self._open.copy()
        self._add(reached, victims)
        key = np.packbits(reached).tobytes()
        known = self._known.get(key)
        if known is None:
            nodes, ask = np.flatnonzero(reached).astype(np.int64), self._session.policy.rules_out
            known = any(ask(self._group, SubGroupRow(row), pods, nodes) for row, pods in self._pods)
            self._known[key] = known
        return known

    def _add(self, reached: Bools, victims: PodRows) -> None:
        nodes = self._session.columns.node[victims]
        reached[nodes[nodes >= 0]] = True

    def _by_subgroup(self, part: Portion) -> list[tuple[int, PodRows]]:
        """Return the sub-groups with the pods of the chunk below them, from the root down."""
        facts, chunk = self._session.facts, part.chunk()
        below: dict[int, list[int]] = {}
        for pod in chunk.tolist():
            row = int(facts.pods.leaf[pod])
            while row > part.root:
                below.setdefault(row, []).append(pod)
                row = int(facts.groups.parent[row])
        inner = [(row, np.array(pods, np.int64)) for row, pods in sorted(below.items())]
        return [(part.root, chunk), *inner]


_ALWAYS_ASKED = (CPU, MEMORY)


@attrs.define(slots=False)
class _Sums:
    """Free amounts, valid until the next commit. Shapes: N nodes, Q queues, R resources."""

    session: Session

    @cached_property
    def room(self) -> Int64s:
        """[N] Thousandths of GPUs that are idle or being released."""
        session = self.session
        idle = np.zeros(len(session.all_nodes), np.int64)
        releasing = np.zeros(len(session.all_nodes), np.int64)
        free_gpus(session.facts, session.columns, idle, releasing)
        room: Int64s = idle + releasing
        return room

    @cached_property
    def gpus(self) -> Int64s:
        """[N] Thousandths of GPUs that are idle or being released; 0 if the node is not ready."""
        ready: Int64s = np.where(self.session.facts.nodes.ready, self.room, 0)
        return ready

    @cached_property
    def free(self) -> Int64s:
        """[R] The free amounts of all ready nodes; an overcommitted node counts 0 instead of a negative amount."""
        columns, ready = self.session.columns, self.session.facts.nodes.ready
        total: Int64s = np.maximum(columns.idle + columns.releasing, 0)[ready].sum(axis=0)
        return total

    @cached_property
    def unsure(self) -> Float64s:
        """[Q] GPUs, in axis units, of pods that share devices: what they count for depends on their node."""
        facts, columns = self.session.facts, self.session.columns
        out = np.zeros(len(self.session.snapshot.queues), np.float64)
        counted = ((COUNTED >> columns.status) & 1).astype(np.bool_) & (facts.pods.group >= 0)
        sharing = np.flatnonzero(counted & shares(self.session)[facts.pods.shape])
        queues = facts.groups.queue[facts.pods.group[sharing]]
        most = facts.shapes.devices[facts.pods.shape[sharing]] * float(GPU_UNIT)
        for queue in np.unique(queues[queues >= 0]).tolist():
            held, row = most[queues == queue].sum(), queue
            while row >= 0:
                out[row] += held
                row = int(facts.queues.parent[row])
        return out


def shares(session: Session) -> Bools:
    """Return bool[K]: shapes of pods that request parts of devices."""
    kinds = session.facts.shapes.kind
    sharing: Bools = (kinds == KIND_FRACTION) | (kinds == KIND_MEMORY)
    return sharing


def users_exceeded(session: Session, group: int, wanted: Float64s) -> list[tuple[int, Float64s]]:
    """Return the accounts of the user of ``group`` whose limit does not allow ``wanted`` [3], and by how much.

    Cost: a step for each queue above the group that limits users.
    """
    users, found = session.facts.users, list[tuple[int, Float64s]]()
    account = int(users.binding[group]) if len(users.limit) and session.policy.rules.limits else -1
    while account >= 0:
        limit = users.limit[account]
        over = np.where((wanted > 0) & (limit >= 0), session.columns.user_used[account] + wanted - limit, 0.0)
        if (over > 0).any():
            found.append((account, np.maximum(over, 0.0)))
        account = int(users.above[account])
    return found


def of_own_user(session: Session, portion: Portion, member: Bools) -> Bools:
    """Return bool[G]: the groups of ``member`` [G] that may go for a group whose user is at a limit.

    Holds: all of ``member`` unless a limit of the user is in the way. Then only work of the same user is left, as far
        as it counts for that limit, and none if all of it together is too little. Work of others makes no room there.
    Cost: O(A + G) for a group whose user is at a limit, and a pass over pods.
    """
    if session.facts.users.binding[portion.group] < 0:
        return member
    chunk = portion.chunk()
    wanted = session.limit_amounts[session.facts.pods.shape[chunk]].sum(axis=0)
    for account, over in users_exceeded(session, portion.group, wanted):
        users, pods, columns = session.facts.users, session.facts.pods, session.columns
        below = users.account.copy()
        counts = below == account
        while (below >= 0).any():
            below = np.where(below >= 0, users.above[below], -1)
            counts |= below == account
        member = member & counts
        if not member.any():
            return member
        held = np.flatnonzero(((ACTIVE_ALLOCATED >> columns.status) & 1).astype(np.bool_) & (pods.group >= 0))
        held = held[member[pods.group[held]]]
        most = session.limit_amounts[pods.shape[held]].sum(axis=0)
        if (most < over).any():
            return np.zeros(len(member), np.bool_)
    return member


class Prospects:
    """The sums for one action, recomputed after each commit."""

    def __init__(self, session: Session) -> None:
        """Begin without sums."""
        self._session = session
        self._sums = _Sums(session)
        self._stamp = session.stamp
        self._shares = shares(session)

    def allow(self, session: Session, portion: Portion) -> bool:
        """Return whether moving pods might make room for the group.

        Holds: if not, no search that ends with all pods placed succeeds. The first test is the peer's, and may be
        wrong.
        """
        self._follow(session)
        shapes = session.facts.pods.shape[portion.chunk()]
        if not self._gpus_suffice(shapes):
            return False
        return not session.takes(PROSPECTS) or (
            self._queues_can_hold(portion.group, shapes) and self._nodes_can_hold(shapes)
        )

    def allow_among(self, session: Session, portion: Portion, member: Bools) -> bool:
        """Return whether moves of pods of the groups ``member`` [G] might free enough GPUs on single nodes.

        It counts places of the size of the largest request of the group. A victim that asks for n times as much takes n
        such places wherever it goes. So a move of it adds to its node only what it holds beyond them.
        Holds: if not, no search that ends with all pods placed succeeds.
        Cost: a pass over the pods.
        """
        facts, columns = session.facts, session.columns
        self._follow(session)
        if not session.takes(PROSPECTS) or not self._adds_up(session):
            return True
        sizes = self._sizes
        wanted = sizes[facts.pods.shape[portion.chunk()]]
        most = int(wanted.max(initial=0))
        if most <= 0:
            return True
        placed = ((ACTIVE_ALLOCATED >> columns.status) & 1).astype(np.bool_) & (facts.pods.group >= 0)
        pods = np.flatnonzero(placed & (columns.node >= 0))
        pods = pods[member[facts.pods.group[pods]]]
        room = self._sums.room.copy()
        np.add.at(room, columns.node[pods], sizes[facts.pods.shape[pods]] % most)
        return int((np.maximum(room, 0) // most).sum()) >= int((wanted // most).sum())

    def allow_some(self, waiting: GroupRows, movable: Bools) -> bool:
        """Return whether `allow` and `allow_among` might let one of ``waiting`` search among ``movable`` [G].

        Mostly they let none, and then no group has to be taken in turn.
        Cost: a kernel call, O(P) for each size of a request.
        """
        session = self._session
        self._follow(session)
        groups = session.facts.groups
        roots = groups.first_subgroup[waiting]
        flat = (groups.first_subgroup[waiting + 1] - roots == ROOT_AND_LEAF) & (groups.minimum[roots] == 1)
        # A search among protected groups leaves a reason where it fails.
        if not session.takes(PROSPECTS) or session.snapshot.past.protected or not flat.all():
            return True
        facts, columns, sums = session.facts, session.columns, self._sums
        adds_up = self._adds_up(session)
        return may_fit_after_moves(facts, columns, waiting, movable, self._sizes, sums.room, sums.free, adds_up)

    @cached_property
    def _sizes(self) -> Int64s:
        """[K] The thousandths of whole GPUs that a pod of each shape requests."""
        facts = self._session.facts
        sizes: Int64s = facts.shapes.request @ np.maximum(facts.nodes.gpu_weight, 0)
        return sizes

    def _adds_up(self, session: Session) -> bool:
        """Return whether pods request whole GPUs alone, and none is promised twice, so that places can be counted."""
        facts, columns = session.facts, session.columns
        # A cap may be the reason that a search gives. Parts of devices, and promises in the peer's books, add up in
        # other ways.
        if session.caps.are_set or facts.nodes.books_as_peer:
            return False
        return not (facts.shapes.claimed.any() or columns.slot_used.any() or self._shares.any())

    def _follow(self, session: Session) -> None:
        """Begin with new sums if something was committed."""
        if session.stamp != self._stamp:
            self._sums, self._stamp = _Sums(session), session.stamp

    def _gpus_suffice(self, shapes: Int64s) -> bool:
        """Return whether all ready nodes together have enough GPUs; moving pods creates none."""
        session, gpus = self._session, self._sums.gpus
        wanted = int(self._sizes[shapes].sum())
        if wanted > int(gpus.sum()):
            return False
        memory = int(session.facts.shapes.memory[shapes].sum())
        return not memory or memory <= int((gpus * session.facts.nodes.gpu_memory // 1000).sum())

    def _queues_can_hold(self, group: int, shapes: Int64s) -> bool:
        """Return whether the queues above a group may hold ``shapes`` besides all that they hold now.

        Moved pods pass the queue check again, so the last of them would be refused.
        """
        session = self._session
        queue = int(session.facts.groups.queue[group])
        if not session.policy.rules.limits or queue < 0:
            return True
        limits, used = session.facts.queues.limit, session.columns.queue_used
        wanted = session.limit_amounts[shapes].sum(axis=0)
        if self._shares[shapes].any():
            # What a share counts for depends on the node, so its GPUs prove nothing.
            wanted[GPU] = 0.0
        asked = wanted > 0
        while queue >= 0:
            held = used[queue] + wanted
            # The most that shares may count for is taken off: a search that may succeed must not be ruled out.
            held[GPU] -= self._sums.unsure[queue]
            if (asked & (limits[queue] >= 0) & (limits[queue] < held)).any():
                return False
            queue = int(session.facts.queues.parent[queue])
        # Moved pods count for their users as before.
        return not any(
            over[:GPU].any() or self._sums.unsure[session.facts.users.queue[account]] == 0
            for account, over in users_exceeded(session, group, wanted)
        )

    def _nodes_can_hold(self, shapes: Int64s) -> bool:
        """Return whether ready nodes together have enough CPU and memory."""
        wanted, free = self._session.facts.shapes.request[shapes].sum(axis=0), self._sums.free
        return all(wanted[resource] <= free[resource] for resource in _ALWAYS_ASKED)
