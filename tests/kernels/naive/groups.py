"""Twins of ``kai.facts.kernels.groups``."""

from collections.abc import Mapping, Sequence

from kai.facts.model.pod import ACTIVE_ALLOCATED, ACTIVE_USED, COUNTED, Status
from tests.kernels.naive.order import next_chunk
from tests.kernels.naive.world import Group, Pod, SubGroup, World

Described = tuple[float, tuple[float, float, float]]


def find_waiting(world: World) -> list[bool]:
    """Say of each group whether a pod of it is pending."""
    return [any(leaf.count(1 << Status.PENDING) for leaf in group.leaves()) for group in world.groups]


def find_placed(world: World) -> list[bool]:
    """Say of each group whether a pod of it has a place."""
    return [any(leaf.count(ACTIVE_ALLOCATED) for leaf in group.leaves()) for group in world.groups]


def nodes_of_group(group: Group) -> list[int]:
    """Return the nodes of the pods that have a place."""
    return [pod.node for leaf in group.leaves() for pod in leaf.pods if pod.is_in(ACTIVE_ALLOCATED) and pod.node >= 0]


def is_plain(group: Group) -> bool:
    """Say whether a group is one leaf with nobody terminating."""
    flat = len(group.subgroups) == 2 and group.subgroups[0].minimum == 1
    return flat and all(leaf.count(ACTIVE_USED) == leaf.count(ACTIVE_ALLOCATED) for leaf in group.leaves())


def find_plain(groups: Sequence[Group]) -> list[bool]:
    """Say of each group whether it is plain."""
    return [is_plain(group) for group in groups]


def state_by_leaf(group: Group) -> float:
    """Return 0 for a group of which a leaf lacks pods, 2 for one of which some leaf has more than it needs, else 1."""
    spare = [leaf.count(ACTIVE_ALLOCATED) - leaf.minimum for leaf in group.leaves()]
    return 0.0 if min(spare) < 0 else (2.0 if max(spare) > 0 else 1.0)


def elastic_state(group: Group) -> float:
    """Return 0 for a group that lacks what it needs, 2 for one that keeps that when it loses some pod, else 1."""
    counts = {id(leaf): leaf.count(ACTIVE_ALLOCATED) for leaf in group.leaves()}
    if not _is_satisfied(group, group.subgroups[0], counts):
        return 0.0
    for leaf in group.leaves():
        # Pods that go with this one because they are of no use without it are of no interest.
        fewer = counts | {id(leaf): counts[id(leaf)] - 1}
        if counts[id(leaf)] and _is_satisfied(group, group.subgroups[0], fewer):
            return 2.0
    return 1.0


def _is_satisfied(group: Group, subgroup: SubGroup, counts: Mapping[int, int]) -> bool:
    if subgroup.leaf:
        return counts[id(subgroup)] >= subgroup.minimum
    below = [each for each in group.subgroups if each is not group.subgroups[0] and each.parent == subgroup.row]
    return sum(_is_satisfied(group, each, counts) for each in below) >= subgroup.minimum


def describe_waiting(world: World, requested: Sequence[Sequence[float]]) -> dict[int, Described]:
    """Return, for each plain group, its elastic state and what its next chunk wants."""
    out = {}
    for group in world.groups:
        if is_plain(group):
            chunk = next_chunk(group.leaves()[0])
            rows = [requested[pod.shape.row] for pod in chunk]
            out[group.row] = elastic_state(group), _sum(rows)
    return out


def sum_waiting(pods: Sequence[Pod], requested: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return what those of ``pods`` want that are pending or that the open statement evicted."""
    evicted = [pod for pod in pods if pod.status == Status.RELEASING and pod.virtual]
    return _sum([requested[pod.shape.row] for pod in pods if pod.status == Status.PENDING or pod in evicted])


def describe_holding(world: World) -> dict[int, Described]:
    """Return, for each group, its elastic state and what counts as used by its queue."""
    out = {}
    for group in world.groups:
        counted = [pod for leaf in group.leaves() for pod in leaf.pods if pod.is_in(COUNTED)]
        out[group.row] = elastic_state(group), _sum([world.accepted(pod) for pod in counted])
    return out


def _sum(rows: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    total = [0.0, 0.0, 0.0]
    for row in rows:
        total = [have + more for have, more in zip(total, row, strict=True)]
    return total[0], total[1], total[2]


def sort_by_leaf(leaf: Sequence[int], order: Sequence[int], subgroups: int) -> tuple[list[int], list[int]]:
    """Return where the pods of each sub-group begin, and the pods of all leaves, each leaf's in ``order``."""
    by_leaf = [[pod for pod in order if leaf[pod] == row] for row in range(subgroups)]
    start = [sum(map(len, by_leaf[:row])) for row in range(subgroups + 1)]
    return start, [pod for pods in by_leaf for pod in pods]


def find_places(order: Sequence[int], rows: Sequence[int]) -> list[int]:
    """Return where in ``order`` each of ``rows`` is."""
    return [order.index(row) for row in rows]
