"""Twins of ``kai.facts.kernels.domains``: walk the tree in its order, take the first domain with room."""

import math
from collections.abc import Iterator, Sequence

import attrs

from kai.facts.kernels.fit import Rules
from kai.facts.model.axis import PODS
from kai.facts.model.pod import ACTIVE_ALLOCATED
from tests.kernels.naive.place import place_pods
from tests.kernels.naive.searching import domain_room, pods_per_node
from tests.kernels.naive.world import Pod, SubGroup, World

TENTH = 100_000


@attrs.define(eq=False)
class Domain:
    """A domain with those below it, by name."""

    depth: int
    nodes: list[int]
    below: list["Domain"] = attrs.Factory(list)


@attrs.define
class Bounds:
    """Where groups may go; depths are those of ``kai.facts.kernels.domains.DomainTrees``."""

    top: Domain
    finest: int
    coarsest: int
    ordered: int
    preferred: int
    required: bool


def _in_order(world: World, bound: Bounds, domain: Domain, wanted: Sequence[int]) -> Iterator[Domain]:
    """Yield a domain and all below it, tightest first down to the depth where that counts."""
    yield domain
    below = domain.below
    if domain.depth < bound.ordered:
        nothing = [0] * len(world.nodes)
        tightness = [domain_room(world, [each.nodes], wanted, nothing)[0][0] for each in below]
        below = [each for _, each in sorted(zip(tightness, below, strict=True), key=lambda pair: -pair[0])]
    for each in below:
        yield from _in_order(world, bound, each, wanted)


def _first(world: World, bound: Bounds, leaf: SubGroup, pods: Sequence[Pod], tree: Sequence[Domain]) -> Domain | None:
    def has_room(domain: Domain) -> bool:
        return sum(pods_per_node(world, pods[0].shape.request, 0, domain.nodes)) >= len(pods)

    placed = [pod for pod in leaf.pods if pod.is_in(ACTIVE_ALLOCATED)]
    coarse = [each for each in tree if each.depth == bound.coarsest]
    if bound.required and placed:
        coarse = [each for each in coarse if any(pod.node in each.nodes for pod in placed)]
    allowed = {node for each in coarse for node in each.nodes}
    for depth in range(bound.finest, bound.coarsest - 1, -1):
        for domain in tree:
            if domain.depth == depth and has_room(domain) and allowed.issuperset(domain.nodes):
                return domain if has_room(bound.top) else None
    return None


def place_in_domain(world: World, rules: Rules, bound: Bounds, leaf: SubGroup, pods: Sequence[Pod]) -> int:
    """Place alike pods in the first domain that has room for them; return how many were placed, -1 if none has."""
    wanted = [amount * len(pods) for amount in pods[0].shape.request]
    wanted[PODS] = 0
    tree = list(_in_order(world, bound, bound.top, wanted))
    domain = _first(world, bound, leaf, pods, tree)
    if domain is None:
        return -1
    extra = [0.0] * len(world.nodes)
    preferred = [each for each in tree if each.depth == bound.preferred]
    for place, each in enumerate(preferred):
        for node in each.nodes:
            extra[node] = float(math.floor((place + 1) / len(preferred) * 10) * TENTH)
    return place_pods(world, rules, pods, domain.nodes, [extra[node] for node in range(len(extra))], promise=False)
