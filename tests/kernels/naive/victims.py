"""Twins of the kernels that searches for victims call: lists of pods, a heap, and rule by rule."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kai.facts.model.axis import CPU, MEMORY
from kai.facts.model.pod import ACTIVE_ALLOCATED, COUNTED, Status
from tests.kernels.naive import booking
from tests.kernels.naive import order as naive_order
from tests.kernels.naive.fit import over_capacity
from tests.kernels.naive.groups import elastic_state
from tests.kernels.naive.order import Heap
from tests.kernels.naive.place import place_pods
from tests.kernels.naive.world import Group, Pod, World

if TYPE_CHECKING:
    from kai.facts.kernels.fit import Rules

Batch = list[int]


def add_held(world: World, pods: Sequence[int]) -> list[int]:
    """Return what pods hold on each node."""
    return [
        sum(world.accepted(world.pods[pod])[2] for pod in pods if world.pods[pod].node == node.row)
        for node in world.nodes
    ]


def least_held(world: World, member: Sequence[bool]) -> list[int]:
    """Return the fewest thousandths of GPUs that a pod of a member holds, by queue; 0 where none holds any."""
    there = [pod for pod in world.pods if pod.node >= 0 and pod.is_in(ACTIVE_ALLOCATED)]
    held: list[list[int]] = [[] for _ in world.queues]
    for pod in there:
        group, leaf, amount = pod.group, pod.leaf, world.accepted(pod)[2]
        if group is None or group.queue < 0 or not member[group.row] or not amount:
            continue
        is_short = leaf is not None and sum(each.leaf is leaf for each in there) < leaf.minimum
        held[group.queue].append(1 if is_short else amount)
    return [min(amounts, default=0) for amounts in held]


def may_fit_after_moves(
    world: World,
    weight: Sequence[int],
    waiting: Sequence[int],
    movable: Sequence[bool],
    room: Sequence[int],
    free: Sequence[int],
    *,
    adds_up: bool,
) -> bool:
    """Say whether some waiting group has a chance; ``weight`` are GPUs for each resource, ``room`` is by node."""

    def gpus(pod: Pod) -> int:
        return sum(max(each, 0) * amount for each, amount in zip(weight, pod.shape.request, strict=True))

    def places(size: int) -> int:
        moved = [pod for pod in world.pods if pod.group and movable[pod.group.row] and pod.is_in(ACTIVE_ALLOCATED)]
        spare = [sum(gpus(pod) % size for pod in moved if pod.node == node.row) for node in world.nodes]
        return sum(max(mine + more, 0) // size for mine, more in zip(room, spare, strict=True))

    def has_chance(chunk: Sequence[Pod]) -> bool:
        sizes = [gpus(pod) for pod in chunk]
        if sum(sizes) > sum(mine for node, mine in zip(world.nodes, room, strict=True) if node.ready):
            return False
        if any(sum(pod.shape.request[at] for pod in chunk) > free[at] for at in (CPU, MEMORY)):
            return False
        most = max(sizes, default=0)
        return most == 0 or not adds_up or places(most) >= sum(size // most for size in sizes)

    return any(has_chance(naive_order.next_chunk(world.groups[group].leaves()[0])) for group in waiting)


def select(order: Sequence[int], member: Sequence[bool]) -> list[int]:
    """Return those that are members."""
    return [row for row in order if member[row]]


def distinct(pods: Sequence[int]) -> list[int]:
    """Return each pod once."""
    return list(dict.fromkeys(pods))


def losing(world: World, batches: Sequence[Batch], victims: Sequence[int]) -> list[int]:
    """Return the batches that lose somebody: those of evicted pods, then those of moved ones."""
    first = {pod: at for at, batch in reversed(list(enumerate(batches))) for pod in batch}
    lost = [
        pod for status in (Status.RELEASING, Status.PIPELINED) for pod in victims if world.pods[pod].status == status
    ]
    return distinct([first[pod] for pod in lost])


def gather(batches: Sequence[Batch], chosen: Sequence[int]) -> list[Batch]:
    """Return the chosen batches."""
    return [batches[at] for at in chosen]


def losing_on(world: World, recorded: Sequence[int], potential: Sequence[int], node: int) -> list[Batch]:
    """Return all pods of the groups that would lose one on a node, group by group."""
    groups = [world.pods[pod].group for pod in potential if world.pods[pod].node == node]
    found: dict[int, Batch] = {}
    for pod in [*recorded, *potential]:
        group = world.pods[pod].group
        if group is not None and group in groups:
            found.setdefault(group.row, []).append(pod)
    return list(found.values())


# ---------------------------------------------------------------------- growing


@attrs.define
class Prefix:
    """Victims so far."""

    world: World
    heap: Heap
    capacity: list[int]
    wanted: list[int]
    masks: list[list[bool]]
    batches: list[Batch] = attrs.Factory(list)
    known: set[int] = attrs.Factory(set)
    removed: set[int] = attrs.Factory(set)
    asked: int = -1
    each: int | None = None
    """What every waiting pod asks for, 0 if sums prove nothing; None: victims come from all nodes."""
    useless: set[int] = attrs.Factory(set)

    def freed(self) -> list[int]:
        """Return what each node could give."""
        taken = distinct([*sorted(self.known), *(pod for batch in self.batches for pod in batch)])
        return [free + held for free, held in zip(self.capacity, add_held(self.world, taken), strict=True)]


def begin(prefix: Prefix, known: Sequence[int]) -> None:
    """Begin with the known ones."""
    prefix.known = set(known)


def choose_by_node(prefix: Prefix, each: int) -> None:
    """Leave out sets that no node serves."""
    prefix.each = each


def is_useless(prefix: Prefix) -> bool:
    """Say whether the last batch is on one node, where the victims that go with it serve nothing."""
    world, pod = prefix.world, prefix.world.pods[prefix.batches[-1][-1]]
    if prefix.each is None or pod.node < 0:
        return False
    taken = [other for batch in prefix.batches for other in batch]
    there = {world.pods[row].group.row for row in taken if world.pods[row].node == pod.node}
    groups = {world.pods[row].group.row for row in taken}
    for row in groups:
        nodes = {each.node for each in world.pods if each.group is not None and each.group.row == row} - {-1}
        if pod.node in nodes and len(nodes) > 1:
            return False
    if pod.node in prefix.useless or not prefix.each:
        return pod.node in prefix.useless
    go = [row for row in taken if world.pods[row].group.row in there]
    held = add_held(world, distinct([*sorted(prefix.known), *go]))
    places = sum(max(0, free + more) // prefix.each for free, more in zip(prefix.capacity, held, strict=True))
    return places < len(prefix.wanted)


def accepts(prefix: Prefix) -> bool:
    """Say whether every mask has a node in reach, and every pod finds a holder, largest first."""
    taken = [*prefix.known, *(pod for batch in prefix.batches for pod in batch)]
    nodes = {prefix.world.pods[pod].node for pod in taken} - {-1}
    if not all(any(mask[node] for node in nodes) for mask in prefix.masks):
        return False
    sizes = sorted(prefix.freed(), reverse=True)[: len(prefix.wanted)]
    left = list(sizes)
    for amount in sorted(prefix.wanted, reverse=True):
        if amount == 0:
            return True
        holders = [at for at, size in enumerate(sizes) if size >= amount and left[at] >= amount]
        if not holders:
            return False
        left[holders[0]] -= amount
    return True


def take(prefix: Prefix, pods: Sequence[int]) -> None:
    """Add a batch."""
    prefix.batches.append(list(pods))
    prefix.removed.update(pods)


def extend(prefix: Prefix) -> str:
    """Take batches until the filters accept, nobody is left, or a group has a tree."""
    while True:
        group = naive_order.pop(prefix.heap)
        if group < 0:
            return "exhausted"
        prefix.asked = group
        if not prefix.world.groups[group].simple:
            return "not plain"
        before = len(prefix.batches)
        _give_up(prefix, prefix.world.groups[group])
        if len(prefix.batches) > before and not is_useless(prefix) and accepts(prefix):
            return "accepted"


def put_back(prefix: Prefix) -> None:
    """Push the group that was asked about again."""
    naive_order.push(prefix.heap, prefix.asked)


def _give_up(prefix: Prefix, group: Group) -> None:
    leaf = group.leaves()[0]
    left = [pod for pod in leaf.pods if pod.row not in prefix.removed]
    placed = [pod for pod in left if pod.is_in(ACTIVE_ALLOCATED)]
    if not placed:
        return
    victims = [pod.row for pod in (placed[-1:] if len(placed) > leaf.minimum else placed)]
    if prefix.known.intersection(victims):
        prefix.removed |= {pod.row for pod in leaf.pods} & prefix.known
        _push_rest(prefix, group)
        return
    take(prefix, victims)
    if len(placed) > len(victims):
        _push_rest(prefix, group)


def _push_rest(prefix: Prefix, group: Group) -> None:
    leaf, heap = group.leaves()[0], prefix.heap
    left = [pod for pod in leaf.pods if pod.row not in prefix.removed]
    if not left:
        return
    surplus = sum(pod.is_in(ACTIVE_ALLOCATED) for pod in left) - leaf.minimum
    if heap.rules.elastic_key >= 0:
        heap.keys[group.row][heap.rules.elastic_key] = 0.0 if surplus < 0 else (2.0 if surplus else 1.0)
    held = [prefix.world.accepted(pod) for pod in left if pod.is_in(COUNTED)]
    heap.amounts[group.row] = [float(sum(each[at] for each in held)) for at in range(3)]
    naive_order.push(heap, group.row)


# ---------------------------------------------------------------------- filling


def fill_victims(heap: Heap, by_age: Sequence[int]) -> None:
    """Push the groups, oldest first."""
    naive_order.fill(heap, [row for row in by_age if heap.world.groups[row].queue >= 0])


def rank_again(keys: Sequence[Sequence[float]]) -> list[int]:
    """Return all groups by their keys."""
    return sorted(range(len(keys)), key=lambda row: list(keys[row]))


# ---------------------------------------------------------------------- trying


@attrs.define
class Trial:
    """What a trial starts from; ``amounts`` are what pods of each shape want, when groups are ordered or limited."""

    world: World
    heap: Heap
    waiting: list[int]
    ages: list[float]
    ordering: list[list[float]]
    limiting: list[list[float]]
    feasible: list[bool]


def try_victims(
    trial: Trial, group: Group, chunk: Sequence[Pod], victims: Sequence[Pod]
) -> tuple[bool, list[tuple[int, bool]]]:
    """Evict and place everybody again; say whether ``chunk`` got its places, and who of the others got none."""
    world, heap = trial.world, trial.heap
    reach = {pod.node for pod in victims} | {row for row, open_ in enumerate(trial.feasible) if open_}
    for pod in victims:
        booking.evict(world, pod)
    affected = {pod.group.row for pod in victims if pod.group is not None}
    for row in affected:
        _describe(trial, world.groups[row])
    others = [row for row in {*trial.waiting, *affected} if world.groups[row].queue >= 0]
    naive_order.fill(heap, sorted(others, key=lambda row: trial.ages[row]))
    naive_order.push(heap, group.row)
    placed, failed = False, []
    for row in iter(lambda: naive_order.pop(heap), -1):
        if row != group.row and row not in affected:
            continue
        pods = chunk if row == group.row else naive_order.next_chunk(world.groups[row].leaves()[0])
        before = world.remember()
        count = _place(trial, world.groups[row], pods, sorted(reach - {-1}))
        if 0 < count == len(pods):
            placed = placed or row == group.row
        elif row == group.row:
            return False, failed
        else:
            world.recall(before)
            failed.append((row, count > 0))
    return placed, failed


def _describe(trial: Trial, group: Group) -> None:
    rules = trial.heap.rules
    if rules.elastic_key >= 0:
        trial.heap.keys[group.row][rules.elastic_key] = elastic_state(group)
    chunk = naive_order.next_chunk(group.leaves()[0])
    trial.heap.amounts[group.row] = [
        math.fsum(trial.ordering[pod.shape.row][resource] for pod in chunk) for resource in range(3)
    ]


def _place(trial: Trial, group: Group, pods: Sequence[Pod], nodes: Sequence[int]) -> int:
    rules: Rules = trial.heap.rules
    wanted = [math.fsum(trial.limiting[pod.shape.row][resource] for pod in pods) for resource in range(3)]
    if rules.limits and group.queue >= 0 and over_capacity(trial.world, group, wanted):
        return 0
    return place_pods(trial.world, rules, pods, nodes, [0.0] * len(trial.world.nodes), promise=True)
