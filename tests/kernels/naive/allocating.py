"""Twins of ``kai.kernels.allocating`` and ``kai.kernels.index``: the loop of allocate, one group after the other."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs

from kai.kernels import fit as codes
from kai.kernels.columns import OP_ALLOCATE
from kai.kernels.fit import Rules
from kai.model.axis import CPU, GPU, PODS
from kai.model.pod import GpuKind
from kai.model.status import ACTIVE_ALLOCATED, Status
from tests.kernels.naive.booking import pipeline, set_status, unallocate
from tests.kernels.naive.domains import Bounds, place_in_domain
from tests.kernels.naive.fit import over_capacity
from tests.kernels.naive.groups import elastic_state
from tests.kernels.naive.order import Heap, next_chunk, pop, push
from tests.kernels.naive.place import place_pods
from tests.kernels.naive.world import Group, Pod, Shape, World

Served = tuple[str, int, tuple[tuple[int, int, int], ...], bool]
Event = tuple[object, ...]


@attrs.define
class Amounts:
    """What pods of each shape are taken to want: when groups are ordered, and when limits are checked."""

    ordering: Sequence[Sequence[float]]
    limiting: Sequence[Sequence[float]]


def is_orderly(shape: Shape) -> bool:
    """Say whether nodes can be ranked by tiers: each asks for what density goes by, static scores are far apart."""
    if shape.kind == GpuKind.NONE and not shape.claimed:
        asks = shape.request[CPU] > 0
    else:
        asks = shape.shared or shape.request[GPU] > 0
    scores = sorted(shape.score)
    steps = [right - left for left, right in pairwise(scores)]
    return asks and all(step == 0 or step >= 10 for step in steps) and not any(map(math.isnan, scores[1:]))


def allocate_groups(
    world: World, rules: Rules, heap: Heap, plain: Sequence[bool], bounds: Mapping[int, Bounds], amounts: Amounts
) -> list[Event]:
    """Serve the groups of a heap; return what became of each: served, refused with the reason, or left to others.

    ``bounds`` are the bounds of groups that have one, of which some may be served.
    """
    events: list[Event] = []
    while (row := pop(heap)) >= 0:
        group = world.groups[row]
        if not plain[row] and row not in bounds:
            events.append(("left to the long way", row))
            continue
        chunk = next_chunk(group.leaves()[0])
        if not chunk:
            continue
        if row in bounds and not _are_countable(chunk):
            events.append(("left to the long way", row))
            continue
        wanted = [sum(amounts.limiting[pod.shape.row][at] for pod in chunk) for at in range(3)]
        code = over_capacity(world, group, wanted) if rules.limits else codes.ACCEPTED
        if code:
            events.append(("refused", row, -1, 0, code))
            continue
        before = world.remember()
        if row in bounds:
            if place_in_domain(world, rules, bounds[row], group.leaves()[0], chunk) < len(chunk):
                events.append(("left to the long way", row))
                world.recall(before)
            else:
                events.append(_commit(world, group))
                _return_rest(heap, rules, group, amounts)
            continue
        placed = place_pods(world, rules, chunk, range(len(world.nodes)), [0.0] * len(world.nodes), promise=False)
        if placed < len(chunk):
            events.append(("refused", row, chunk[placed].row, placed, codes.ACCEPTED))
            world.recall(before)
            continue
        events.append(_commit(world, group))
        _return_rest(heap, rules, group, amounts)
    return events


def _are_countable(chunk: Sequence[Pod]) -> bool:
    """Say whether pods are alike and ask for something."""
    return len({pod.shape.row for pod in chunk}) == 1 and any(chunk[0].shape.request[:PODS])


def _return_rest(heap: Heap, rules: Rules, group: Group, amounts: Amounts) -> None:
    if any(pod.status == Status.PENDING for pod in group.leaves()[0].pods):
        _describe(heap, rules, group, amounts)
        push(heap, group.row)


def _commit(world: World, group: Group) -> Served:
    """Keep what was placed: as promises, if without the promised pods the gang is not whole."""
    leaf = group.leaves()[0]
    promised = leaf.count(1 << Status.PIPELINED)
    waits = promised > 0 and leaf.count(ACTIVE_ALLOCATED) - promised < leaf.minimum
    for kind, row in tuple(world.operations):
        pod = world.pods[row]
        if waits and kind == OP_ALLOCATE:
            node, placement = pod.node, pod.placement
            unallocate(world, pod)
            pipeline(world, pod, node, placement, keep=False)
    decided = []
    for kind, row in world.operations:
        pod = world.pods[row]
        if pod.status == (Status.ALLOCATED if kind == OP_ALLOCATE else Status.PIPELINED):
            decided.append((kind, row, pod.node))
            if kind == OP_ALLOCATE:
                set_status(world, pod, Status.BINDING)
    world.seal()
    return "served", group.row, tuple(decided), waits


def _describe(heap: Heap, rules: Rules, group: Group, amounts: Amounts) -> None:
    if rules.elastic_key >= 0:
        heap.keys[group.row][rules.elastic_key] = elastic_state(group)
    wanted = [amounts.ordering[pod.shape.row] for pod in next_chunk(group.leaves()[0])]
    heap.amounts[group.row] = [sum(each[at] for each in wanted) for at in range(3)]
