"""The fast path of allocate: a kernel serves groups in a row for which no Python is needed.

The decisions come out in bulk. The kernel hands back what it cannot do: groups that plugins must be asked about, and
refusals that have no message yet.

``make_trees`` prepares the trees of domains for the kernel, which places the pods of such a group together in
one domain of its tree.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from kai.deciding.engine.bindings import Batches, Room
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.host import BudgetAnswer
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.refusals import FullQueues, capacity_verdict, record_no_node
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import DOMAINS
from kai.deciding.engine.world import World
from kai.facts.kernels import allocating
from kai.facts.kernels.allocating import Work
from kai.facts.kernels.columns import OP_ALLOCATE, PENDING, PODS, ShapeFacts
from kai.facts.kernels.domains import DomainTrees
from kai.facts.kernels.fragments import make_remains
from kai.facts.kernels.groups import ROOT_AND_LEAF
from kai.facts.kernels.score import Rooms, ShapeIndex, is_orderly
from kai.facts.model.axis import GPU_UNIT, Bools, GroupRow, GroupRows, Int64s, PodRow, locked
from kai.framework.decisions import Decision, Nominate
from kai.framework.hooks import DomainTree

if TYPE_CHECKING:
    from kai.framework.verdict import Reason

MOST_CELLS = 8_000_000
"""The most cells (kinds and shapes x nodes) in tables; groups beyond that take the plain path."""


def make_trees(world: World, waiting: GroupRows) -> tuple[DomainTrees, Int64s]:
    """Return the trees of domains for the groups in ``waiting`` that a kernel can serve, and the shapes of their pods.

    The shapes are prepared.
    """
    kinds, kind = _kinds(world, waiting)
    most = MOST_CELLS // max(1, len(world.all_nodes)) - len(kinds)
    shapes = _counted_shapes(world, kind, most) if kinds else np.zeros(0, np.int64)
    counted = np.full(len(world.snapshot.shapes), -1, np.int64)
    counted[shapes] = np.arange(len(shapes))
    nodes, deepest = len(world.all_nodes), max((len(tree.start) for tree in kinds), default=2)
    finest_of = np.full((len(kinds), nodes), -1, np.int64)
    depth_start = np.zeros((len(kinds), deepest), np.int64)
    for row, tree in enumerate(kinds):
        finest_of[row, tree.rows] = tree.domains
        depth_start[row, : len(tree.start)] = tree.start
    trees = DomainTrees(
        kind=kind,
        rows=_joined([tree.rows for tree in kinds]),
        row_start=_starts([tree.rows for tree in kinds]),
        domains=_joined([tree.domains for tree in kinds]),
        parents=_joined([tree.parents for tree in kinds]),
        domain_start=_starts([tree.parents for tree in kinds]),
        depth_start=depth_start,
        finest_of=finest_of,
        finest=np.array([len(tree.start) - 2 for tree in kinds], np.int64),
        coarsest=np.array([tree.coarsest for tree in kinds], np.int64),
        ordered=np.array([tree.ordered for tree in kinds], np.int64),
        preferred=np.array([tree.preferred for tree in kinds], np.int64),
        step=np.array([tree.step for tree in kinds], np.float64),
        required=np.array([tree.required for tree in kinds], np.bool_),
        counted=counted,
        fitting=np.zeros((len(shapes), nodes), np.int64),
        seen=np.full(len(shapes), -1, np.int64),
        extra=np.zeros(nodes, np.float64),
    )
    return trees, shapes


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _starts(parts: Sequence[Int64s]) -> Int64s:
    return np.array([0, *accumulate(map(len, parts))], np.int64)


def _kinds(world: World, waiting: GroupRows) -> tuple[list[DomainTree], Int64s]:
    """Return the kinds of trees, and int64[G]: the kind of each group, -1 for none."""
    none, kinds = _none(world), list[DomainTree]()
    if not world.takes(DOMAINS):
        return kinds, none
    groups = world.facts.groups
    others = waiting[~groups.simple[waiting]]
    roots = groups.first_subgroup[others]
    flat = (groups.first_subgroup[others + 1] - roots == ROOT_AND_LEAF) & (groups.minimum[roots] == 1)
    splitter, rows = world.policy.tree_of_domains(others[flat])
    if splitter is None or not len(rows):
        return kinds, none
    forms, first, of_form = np.unique(world.trees[rows], return_index=True, return_inverse=True)
    most = MOST_CELLS // (2 * max(1, len(world.all_nodes)))
    numbers = np.full(len(forms), -1, np.int64)
    for at, group in enumerate(rows[first].tolist()):
        tree = splitter(GroupRow(group)) if len(kinds) < most else None
        if tree is not None:
            numbers[at] = len(kinds)
            kinds.append(tree)
    kind = none.copy()
    kind[rows] = numbers[of_form]
    return kinds, kind


def _none(world: World) -> Int64s:
    """Return int64[G] of -1: no kind for any group. Sessions share the array while groups keep their queues."""
    queues = world.base.groups.queue
    return world.snapshot.memory.once("no kinds of domains", (queues,), lambda: locked(np.full(len(queues), -1)))


def _counted_shapes(world: World, kind: Int64s, most: int) -> Int64s:
    """Return up to ``most`` shapes of pending pods in groups of some kind, of shapes that need no plugin."""
    facts = world.facts
    pods = np.flatnonzero((world.columns.status == PENDING) & (facts.pods.group >= 0))
    pods = pods[kind[facts.pods.group[pods]] >= 0]
    shapes, first = np.unique(facts.pods.shape[pods], return_index=True)
    usable = ~world.policy.dynamic[shapes] & _asks(facts.shapes.request[shapes])
    shapes, first = shapes[usable][: max(0, most)], first[usable][: max(0, most)]
    for shape, pod in zip(shapes.tolist(), pods[first].tolist(), strict=True):
        world.policy.prepare(shape, PodRow(pod), world.all_nodes)
    return shapes


def _asks(requests: Int64s) -> Bools:
    """Return bool[n]: which of ``requests`` [n, R] ask for more than a pod's place. Others fit anywhere, uncounted."""
    asked = requests > 0
    asked[:, PODS] = requests[:, PODS] > 1
    some: Bools = np.logical_or.reduce(asked, axis=1)
    return some


BATCH = 4096
"""The number of decisions that are collected before they are handed out."""


class FastPath:
    """The kernel loop over one heap of groups."""

    def __init__(self, session: Session, heap: GroupHeap, waiting: Int64s) -> None:
        """Prepare for the groups in ``waiting``."""
        self._session = session
        self._heap = heap
        self._longest = self._longest_chunk(waiting)
        self._changes = 2 * self._longest
        """The most placements that one group can make or undo, to reserve entries of the journal for."""
        shapes = session.facts.shapes
        self._batches = Batches(session, session.details)
        credit = (shapes.credit & ~self._batches.of_shape) | self._batches.measured
        nodes = session.facts.nodes
        if credit.any():
            # Of shapes with credit the kernel serves those alone that take parts of GPUs, for which room says all.
            nodes = nodes.replace(credits=np.full_like(nodes.credits, GPU_UNIT))
        shapes = shapes.replace(mask=shapes.mask.copy(), score=shapes.score.copy(), credit=credit)
        self._facts = session.facts.replace(shapes=shapes, nodes=nodes)
        """The session's facts, with masks and scores that also hold for pods that are alone in their groups."""
        self._pods = self._pods_of(waiting)
        """The pods in leaves of the waiting groups, by row."""
        self._servable = self._servable_pods()
        """[n] Pods for which the plugins' answer is one for the shape, or one for a pod that is alone in its group."""
        self._index = self._make_index()
        # Each pod of a group may refill the room of all domains.
        cells = self._index.rooms.size[self._index.rooms.refill > 0].max(initial=-1) + 1
        self._changes += self._longest * int(cells) // session.ledger.room_for(0)
        self._trees, counted = make_trees(session, waiting)
        self._facts.shapes.mask[counted] = session.facts.shapes.mask[counted]
        self._facts.shapes.score[counted] = session.facts.shapes.score[counted]
        self._work = Work(
            plain=self._plain(waiting),
            amounts=session.requested,
            limits=session.limit_amounts,
            decided=np.empty((BATCH + self._longest, 3), np.int64),
            statements=np.empty((BATCH, 3), np.int64),
            refused=np.empty((BATCH, 3), np.int64),
            short=np.full((len(session.snapshot.shapes), 2), -1, np.int64),
            refusals=np.full((allocating.SAME_REFUSALS, 4), -1, np.int64),
            state=np.array([0] * allocating.HELD + [-1], np.int64),
            chunk=np.empty(self._longest, np.int64),
            counting=np.full(1, -1, np.int64),
        )
        self._full = FullQueues(session, heap, waiting[self._work.plain[waiting]])
        self._reasons: dict[int, Reason] = {}
        """The reasons that refused groups got, by group."""

    def others(self) -> Iterator[Portion]:
        """Serve groups while the budget allows; yield, in their turn, the groups that Python must serve."""
        session, work = self._session, self._work
        self._count_room()
        while True:
            session.ledger.forget()
            session.ledger.reserve(self._changes)
            # The kernel commits by itself, so it counts the stamp on; `_hand_out` takes it back.
            work.state[allocating.STAMP] = session.stamp
            outcome = allocating.allocate_groups(
                self._facts,
                session.columns,
                session.ledger.offsets,
                session.policy.rules,
                session.policy.free_rules,
                session.policy.vectors,
                self._index,
                self._trees,
                self._heap.records,
                work,
                session.ledger.room_for(self._changes),
            )
            group = int(work.state[allocating.GROUP])
            # Before a plugin is asked why it refused a pod, it has to know what others got in a batch.
            is_late = outcome == allocating.REFUSED and self._is_batched(int(work.state[allocating.POD]))
            if outcome == allocating.REFUSED and not is_late:
                self._explain(group)
            self._hand_out()
            if is_late:
                self._explain(group)
            if outcome == allocating.FINISHED:
                return
            if outcome == allocating.NOT_PLAIN:
                # The kernel popped the group from the heap already; the heap gives its portion.
                yield self._heap.taken(group)
                self._count_room()
            elif outcome == allocating.RECOUNT:
                self._count_room()
            elif outcome == allocating.REFUSED and work.state[allocating.CODE] and self._full.is_worth_passing():
                open_one = self._full.pass_over()
                if open_one is None:
                    return
                yield open_one
                self._count_room()
            # A group whose turn it is already is served: it left the heap.
            if work.state[allocating.HELD] < 0 and session.budget.go_on() is not BudgetAnswer.GO:
                return

    def _count_room(self) -> None:
        """Count the room of nodes again, since something may have been placed in another way."""
        self._work.counting[0] = -1
        batches = self._batches
        if not batches.count():
            self._leave_to_python(batches.of_shape)
        elif batches.rerated.any():
            self._check_order()
            batches.rerated[:] = False

    def _check_order(self) -> None:
        """Leave shapes to Python whose tournaments do not order nodes as their new ratings do."""
        session, index, left = self._session, self._index, np.zeros(len(self._batches.of_shape), np.bool_)
        for row in np.flatnonzero((index.rated >= 0) & self._batches.rerated[index.rated]).tolist():
            of_row = index.row == row
            shape, ratings = int(of_row.argmax()), self._batches.ratings[index.rated[row]]
            scores = session.policy.vectors.scores[self._facts.shapes.score[shape]]
            # Where both vary, the sum would have to be rounded as elsewhere, where it is made in another order.
            both = (scores != scores[:1]).any() and (ratings != ratings[:1]).any()
            if both or not is_orderly(self._facts, session.policy.vectors, shape, ratings):
                left |= of_row
        if left.any():
            self._leave_to_python(left)

    def _leave_to_python(self, shapes: Bools) -> None:
        """Have groups with pods of ``shapes`` [K] served one by one."""
        pods = self._session.facts.pods
        self._work.plain[pods.group[self._pods[shapes[pods.shape[self._pods]]]]] = False

    def _is_batched(self, pod: int) -> bool:
        return pod >= 0 and bool(self._batches.of_shape[self._session.facts.pods.shape[pod]])

    # ------------------------------------------------------------------ preparing

    def _longest_chunk(self, waiting: Int64s) -> int:
        groups = self._session.facts.groups
        sizes = groups.pod_start[groups.first_subgroup[waiting + 1]] - groups.pod_start[groups.first_subgroup[waiting]]
        return int(sizes.max(initial=1))

    def _waiting_shapes(self) -> tuple[Int64s, Int64s]:
        """Return the shapes of pending pods in plain groups, most frequent first, with one pod of each.

        For a shape whose answers depend on the group, only pods that are alone in their groups count.
        """
        session, facts = self._session, self._session.facts
        chosen = (session.columns.status[self._pods] == PENDING) & facts.groups.simple[facts.pods.group[self._pods]]
        pods = self._pods[chosen & self._servable]
        shapes, first, counts = np.unique(facts.pods.shape[pods], return_index=True, return_counts=True)
        # If the cells do not suffice for all shapes, the plain path gets the shapes with the fewest pods.
        order = np.lexsort((shapes, -counts))
        return shapes[order], pods[first[order]]

    def _pods_of(self, waiting: Int64s) -> Int64s:
        groups = self._session.facts.groups
        begins = groups.pod_start[groups.first_subgroup[waiting]]
        sizes = groups.pod_start[groups.first_subgroup[waiting + 1]] - begins
        return np.sort(groups.pods[np.arange(sizes.sum()) + np.repeat(begins - np.cumsum(sizes) + sizes, sizes)])

    def _servable_pods(self) -> Bools:
        policy, pods, groups = self._session.policy, self._session.facts.pods, self._session.facts.groups
        shapes, owners = pods.shape[self._pods], pods.group[self._pods]
        first, after = groups.first_subgroup[owners], groups.first_subgroup[owners + 1]
        alone = groups.pod_start[after] - groups.pod_start[first] == 1
        servable: Bools = ~policy.dynamic[shapes] | self._batches.of_shape[shapes] | (policy.single[shapes] & alone)
        return servable

    def _make_index(self) -> ShapeIndex:
        session, shape_facts = self._session, self._facts.shapes
        shapes, pods = self._waiting_shapes()
        nodes = len(session.all_nodes)
        leaves = 1 << max(1, (nodes - 1).bit_length())
        row = np.full(len(session.snapshot.shapes), -1, np.int64)
        rooms: list[Room] = []
        rated: list[int] = []
        even = np.zeros(nodes, np.float64)
        known: dict[tuple[object, ...], int] = {}
        orderly: dict[tuple[object, ...], bool] = {}
        columns = [getattr(shape_facts, name) for name in ShapeFacts.__annotations__]
        is_batching = self._batches.of_shape.any()
        rules = session.policy.rules
        # A density weight above 1 outweighs the ten points between tiers, so score order would no longer be tier order.
        is_light = max(rules.binpack_cpu, rules.binpack_gpu) <= 1.0
        count = 0
        for shape, pod in zip(map(int, shapes), map(int, pods), strict=True):
            if (count + 1) * nodes > MOST_CELLS or not self._sets_mask(shape, PodRow(pod)):
                continue
            room = self._batches.room_of(shape)
            # Shapes that differ only in what plugins see share a tournament. Only plugins that batch make many of them.
            content = tuple([each[shape].tobytes() for each in columns]) if is_batching else (shape,)
            if content not in orderly:
                orderly[content] = is_light and is_orderly(self._facts, session.policy.vectors, shape, even)
            if (room.start, content) not in known:
                known[room.start, content] = -1
                if orderly[content]:
                    known[room.start, content] = count
                    rooms.append(room)
                    rated.append(self._batches.rating_of(shape))
                    count += 1
            row[shape] = known[room.start, content]
        return ShapeIndex(
            row=row,
            tier=np.empty((count, nodes), np.float64),
            spare=np.empty((count, nodes), np.int64),
            winner=np.full((count, 2 * leaves), -1, np.int64),
            seen=np.full(count, -1, np.int64),
            changed=np.full(nodes, -1, np.int64),
            noticed=session.columns.touches.copy(),
            rooms=self._rooms(rooms),
            rated=np.array(rated, np.int64),
            ratings=self._batches.ratings,
            ends=self._batches.ends,
            remains=make_remains(session.policy.rules.mix, self._facts.nodes.slot_start),
        )

    def _rooms(self, rooms: Sequence[Room]) -> Rooms:
        return Rooms(
            start=np.array([each.start for each in rooms], np.int64),
            size=np.array([each.size for each in rooms], np.int64),
            domain=np.array([each.domain for each in rooms], np.int64),
            domains=self._batches.domains,
            refill=np.array([each.refill for each in rooms], np.int64),
            independent=np.array([each.independent for each in rooms], np.bool_),
            part=np.array([each.part for each in rooms], np.int64),
            parts=self._batches.parts,
        )

    def _sets_mask(self, shape: int, pod: PodRow) -> bool:
        """Set the mask and the score that pods of a shape are placed by; return whether there is a mask."""
        session, facts = self._session, self._facts.shapes
        if session.policy.dynamic[shape] and not self._batches.of_shape[shape]:
            mask, score = session.policy.prepare_single(shape, pod, session.all_nodes)
        else:
            session.policy.prepare(shape, pod, session.all_nodes)
            mask, score = session.facts.shapes.mask[shape], session.facts.shapes.score[shape]
        if mask < 0:
            return False
        facts.mask[shape], facts.score[shape] = mask, score
        return self._batches.is_counted(shape, session.policy.vectors.masks[mask])

    def _plain(self, waiting: Int64s) -> Bools:
        """Return bool[G]: groups with one leaf and only indexed shapes that no plugin judges or splits nodes for."""
        session, pods = self._session, self._session.facts.pods
        plain = np.zeros(len(session.snapshot.groups), np.bool_)
        plain[waiting] = session.facts.groups.simple[waiting] & session.policy.leaves_alone(waiting)
        indexed = (self._index.row[pods.shape[self._pods]] >= 0) & self._servable
        plain[pods.group[self._pods[~indexed]]] = False
        return plain

    # ------------------------------------------------------------------ handing out

    def _explain(self, group: int) -> None:
        """Word the current refusal while the group's pods are still where they were tried, then undo them."""
        session, state = self._session, self._work.state
        portion = session.portion(group)
        if state[allocating.CODE]:
            verdict = capacity_verdict(session, portion, portion.chunk())
            session.refuse(group, verdict)
            self._reasons[group] = verdict.reasons[0]
        else:
            pod, placed = int(state[allocating.POD]), int(state[allocating.PLACED])
            self._reasons[group] = record_no_node(session, portion, portion.root + 1, pod, placed, session.all_nodes)
            if not placed and self._is_short_everywhere(portion, pod):
                self._work.short[session.facts.pods.shape[pod]] = state[allocating.STAMP], group
        session.ledger.undo_to(0)

    def _is_short_everywhere(self, portion: Portion, pod: int) -> bool:
        """Return whether all nodes lack something for ``pod``, so that pods of any queue have the reason that it got.

        ``portion`` is its group; what runs of it is part of the reason.
        """
        session, found = self._session, self._session.objections
        # Plugins may judge pods one by one, and details name nodes.
        alone = session.policy.judges_pods or session.parameters.detailed_fit_errors
        known = session.facts.pods.shape[pod], session.columns.touches[0]
        is_known = found is not None and found.is_of_shape and (found.shape, found.touches) == known
        return is_known and not alone and not portion.occupying(portion.root + 1)

    def _hand_out(self) -> None:
        """Emit the collected decisions in order, one statement at a time; record starts and refusals."""
        session, work, state = self._session, self._work, self._work.state
        session.stamp = int(state[allocating.STAMP])
        if not state[allocating.STATEMENTS] and not state[allocating.REFUSALS]:
            return
        count = int(state[allocating.DECISIONS])
        statements = work.statements[: int(state[allocating.STATEMENTS])]
        self._batches.complete(work.decided[:count, 1][work.decided[:count, 0] == OP_ALLOCATE])
        decisions = self._decisions(work.decided[:count, 0], work.decided[:count, 1])
        if count == len(statements):  # every statement has at least one decision, so each has exactly one
            session.emit("allocate", *zip(decisions))
        else:
            begins = np.searchsorted(work.decided[:count, 2], np.arange(len(statements) + 1))
            session.emit("allocate", *(tuple(decisions[begin:end]) for begin, end in pairwise(begins.tolist())))
        started = statements[(statements[:, 1] == 0) & (statements[:, 2] == 0), 0]
        if len(started):
            session.note_time("last_start", started, session.clock.read())
        self._note_refused(work.refused[: int(state[allocating.REFUSALS])])
        state[allocating.DECISIONS] = state[allocating.STATEMENTS] = state[allocating.REFUSALS] = 0

    def _note_refused(self, refused: Int64s) -> None:
        """Record the groups that were refused for the reason of another group, nothing having changed in between."""
        if not len(refused):
            return
        session = self._session
        # Stable: groups of one reason stay in the order in which they were refused.
        refused = refused[np.argsort(refused[:, 2], kind="stable")]
        sources, begins = np.unique(refused[:, 2], return_index=True)
        for source, rows in zip(sources.tolist(), np.split(refused, begins[1:]), strict=True):
            groups, pods = rows[:, 0], rows[:, 1]
            leaves = session.facts.groups.first_subgroup[groups] + 1
            satisfied = session.columns.occupying[leaves] >= session.facts.groups.minimum[leaves]
            session.records.refuse_alike(groups, pods, satisfied, self._reasons[source])

    def _decisions(self, kinds: Int64s, pods: Int64s) -> Sequence[Decision]:
        session = self._session
        bound = kinds == OP_ALLOCATE
        bindings = session.bindings.of(pods[bound])
        if bound.all():
            return bindings
        remaining = iter(bindings)
        promised = pods[~bound]
        promises = zip(promised, session.columns.node[promised], session.bindings.devices_of(promised), strict=True)
        out: list[Decision] = []
        for is_bound in bound.tolist():
            if is_bound:
                out.append(next(remaining))
            else:
                pod, node, devices = next(promises)
                out.append(Nominate(pod=int(pod), node=int(node), devices=devices, action="allocate"))
        return out
