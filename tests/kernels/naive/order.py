"""Twins of ``kai.facts.kernels.order``: a heap of heaps made of lists, and the order of queues rule by rule."""

import math
from collections.abc import Callable, Iterable, Sequence

from kai.facts.kernels.fit import Rules
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status
from tests.kernels.naive.world import Pod, Queue, SubGroup, World

ROOT = -1
NOTHING = (0.0, 0.0, 0.0)
Triple = Sequence[float]


def _plus(left: Triple, right: Triple) -> tuple[float, ...]:
    return tuple(mine + more for mine, more in zip(left, right, strict=True))


def _minus(left: Triple, right: Triple) -> tuple[float, ...]:
    return tuple(mine - less for mine, less in zip(left, right, strict=True))


def _dominant(world: World, queue: Queue, held: Triple) -> float:
    """Return the largest share of what a queue may hold; GPUs are counted in devices."""
    shares = []
    for resource in range(3):
        bound = queue.allocatable[resource]
        if bound < 0:
            bound = world.total[resource]
        unit = 1000 if resource == 2 else 1
        if bound == 0:
            shares.append(held[resource] / unit * 1000)
        else:
            shares.append((held[resource] / unit) / (bound / unit))
    return max(0.0, *shares)


def is_owed(world: World, queue: Queue, wanted: Triple, model: int) -> bool:
    """Say whether a queue is owed GPUs of the model that its next group is bound to, and may hold that many more."""
    if model < 0:
        return False
    may_hold = queue.allocatable[2] < 0 or world.used(queue.row)[2] + wanted[2] <= queue.allocatable[2]
    return may_hold and world.of_model(queue.row, model) + wanted[2] <= queue.deserved[model]


def by_rules(
    world: World,
    rules: Rules,
    left: Queue,
    right: Queue,
    wanted: Triple,
    rival: Triple,
    given: Triple,
    taken: Triple,
    *,
    models: tuple[int, int] = (-1, -1),
) -> bool | None:
    """Say whether ``left`` goes before ``right``; each with what it wants next, or with what its victims hold.

    None: only their past use and their age tell them apart.
    """
    if not rules.fair_order:
        return (left.created, left.row) < (right.created, right.row)
    if left.deserved:
        owed = [is_owed(world, left, wanted, models[0]), is_owed(world, right, rival, models[1])]
        if owed[0] != owed[1]:
            return owed[0]
    sides = ((left, wanted, given), (right, rival, taken))
    used = {side.row: world.used(side.row) for side, _, _ in sides}
    rules_in_order: list[Callable[[Queue, Triple, Triple], float]] = [
        lambda q, _w, _v: all(used[q.row][r] > q.fair_share[r] for r in range(3)),
        lambda q, w, _v: not all(q.quota[r] < 0 or used[q.row][r] + w[r] <= q.quota[r] for r in range(3)),
        lambda q, _w, _v: -q.priority,
        lambda q, w, _v: any(q.allocatable[r] == 0 and used[q.row][r] + w[r] > 0 for r in range(3)),
        lambda q, w, v: _dominant(world, q, _minus(_plus(used[q.row], w), v)),
        lambda q, _w, _v: _dominant(world, q, used[q.row]),
    ]
    if left.rank != right.rank and not any(rules_in_order[1](*side) for side in sides):
        return left.rank > right.rank
    for rule in rules_in_order:
        mine, theirs = (rule(*side) for side in sides)
        if mine != theirs:
            return mine < theirs
    bounds = [[math.inf if each < 0 else each for each in side.allocatable] for side in (left, right)]
    for weaker, answer in ((bounds, True), (bounds[::-1], False)):
        pairs = list(zip(*weaker, strict=True))
        if all(mine <= theirs for mine, theirs in pairs) and any(mine < theirs for mine, theirs in pairs):
            return answer
    return None


class Heap:
    """Queues in queues, groups in leaf queues. What is inside may be out of date: only tops are looked at again."""

    def __init__(
        self,
        world: World,
        rules: Rules,
        keys: list[list[float]],
        amounts: list[list[float]],
        *,
        victims: bool,
        depth: int,
        ranked: bool = False,
    ) -> None:
        """Begin empty; ``keys`` order the groups of a leaf, ``amounts`` are what each wants, or holds as a victim.

        ``ranked``: of victims' queues that only past use and age tell apart, the one goes first whose next group does.
        """
        self.world = world
        self.rules = rules
        self.keys = keys
        self.amounts = amounts
        self.victims = victims
        self.ranked = ranked
        self.depth = depth
        self.inside: dict[int, list[int]] = {}
        self.stale: set[int] = set()
        self.popped: dict[int, Triple] = {}

    def parent(self, queue: int) -> int:
        """Return the queue above, or the root."""
        return self.world.queues[queue].parent

    def is_leaf(self, queue: int) -> bool:
        """Say whether a queue holds groups."""
        return queue != ROOT and self.world.queues[queue].leaf

    def best_leaf(self, queue: int) -> int:
        """Follow the tops down to a leaf."""
        while not self.is_leaf(queue):
            queue = self.inside[queue][0]
        return queue

    def before(self, queue: int, left: int, right: int) -> bool:
        """Say whether one item of a queue goes before another."""
        if self.is_leaf(queue):
            return self.group_before(left, right)
        leaves = [self.best_leaf(each) for each in (left, right)]
        groups = [self.inside[leaf][0] for leaf in leaves]
        tops = [self.amounts[group] for group in groups]
        one, other = self.world.queues[left], self.world.queues[right]
        if not self.victims:
            models = self.world.groups[groups[0]].bound, self.world.groups[groups[1]].bound
            first = by_rules(self.world, self.rules, one, other, *tops, NOTHING, NOTHING, models=models)
            return self.goes_first(one, other) if first is None else first
        held = [_plus(self.popped.get(leaf, NOTHING), top) for leaf, top in zip(leaves, tops, strict=True)]
        first = by_rules(self.world, self.rules, one, other, NOTHING, NOTHING, *held)
        if first is None:
            return self.group_before(*groups) if self.ranked else not self.goes_first(one, other)
        return not first

    @staticmethod
    def goes_first(left: Queue, right: Queue) -> bool:
        """Say which of two queues with equal shares goes first: the one that used less before, then the older one."""
        return (left.past_use, left.created) < (right.past_use, right.created)

    def group_before(self, left: int, right: int) -> bool:
        """Say whether one group goes before another, whatever their queues."""
        first = list(self.keys[left]) < list(self.keys[right])
        return not first if self.victims else first

    def rise(self, queue: int) -> None:
        """Sift the last item up."""
        items = self.inside[queue]
        at = len(items) - 1
        while at > 0 and self.before(queue, items[at], items[(at - 1) // 2]):
            items[at], items[(at - 1) // 2] = items[(at - 1) // 2], items[at]
            at = (at - 1) // 2

    def sink(self, queue: int) -> None:
        """Sift the first item down."""
        items = self.inside[queue]
        at = 0
        while True:
            children = [child for child in (2 * at + 1, 2 * at + 2) if child < len(items)]
            if not children:
                return
            best = children[0]
            if len(children) == 2 and self.before(queue, items[children[1]], items[best]):
                best = children[1]
            if not self.before(queue, items[best], items[at]):
                return
            items[at], items[best] = items[best], items[at]
            at = best

    def drop_first(self, queue: int) -> int:
        """Take the first item out."""
        items = self.inside[queue]
        items[0], items[-1] = items[-1], items[0]
        item = items.pop()
        if items:
            self.sink(queue)
        return item


def push(heap: Heap, group: int) -> None:
    """Put a group into its leaf queue, and queues that were empty into theirs."""
    if heap.depth == 0:
        return
    leaf = heap.world.groups[group].queue
    queue = leaf
    item = group
    while True:
        items = heap.inside.setdefault(queue, [])
        was_empty = not items
        items.append(item)
        heap.rise(queue)
        if queue == leaf and 0 <= heap.depth < len(items):
            items.pop()
        if not was_empty or queue == ROOT:
            break
        item, queue = queue, heap.parent(queue)
    heap.stale.update(each.row for each in heap.world.above(leaf))


def pop(heap: Heap) -> int:
    """Take the next group, -1 when there is none."""
    if not heap.inside.get(ROOT):
        return -1
    queue = ROOT
    while not heap.is_leaf(queue):
        while heap.inside[queue][0] in heap.stale:
            heap.stale.remove(heap.inside[queue][0])
            heap.sink(queue)
        queue = heap.inside[queue][0]
    group = heap.drop_first(queue)
    if heap.victims:
        heap.popped[queue] = _plus(heap.popped.get(queue, NOTHING), heap.amounts[group])
    while queue != ROOT and not heap.inside[queue]:
        queue = heap.parent(queue)
        heap.drop_first(queue)
    if queue != ROOT:
        heap.stale.update(each.row for each in heap.world.above(queue))
    return group


def pop_among(heap: Heap, wanted: Sequence[bool]) -> int:
    """Pop until a wanted group comes."""
    while True:
        group = pop(heap)
        if group < 0 or wanted[group]:
            return group


def pop_open(heap: Heap, closed: Sequence[bool]) -> tuple[int, list[int]]:
    """Pop until a group comes that is not closed, or none; return it and those before it."""
    dropped = []
    while (group := pop(heap)) >= 0 and closed[group]:
        dropped.append(group)
    return group, dropped


def fill(heap: Heap, groups: Iterable[int]) -> None:
    """Push groups in their order."""
    for group in groups:
        push(heap, group)


def next_chunk(leaf: SubGroup) -> list[Pod]:
    """Return what the next attempt on a group with one leaf places: what is missing, or one more."""
    waiting = [
        pod for pod in leaf.pods if pod.status == Status.PENDING or (pod.status == Status.RELEASING and pod.virtual)
    ]
    missing = leaf.minimum - leaf.count(ACTIVE_ALLOCATED)
    return waiting[: max(1, missing)]
