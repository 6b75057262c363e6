"""Twins of ``kai.plugins.numa.kernels``: zones as dictionaries, and every choice of zones tried."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import attrs

Amounts = Mapping[str, int]


@attrs.frozen
class Node:
    """A node with zones: what each can give, what is left of it, and what the node aligns."""

    policy: str
    whole_pod: bool
    aware: frozenset[str]
    allocatable: tuple[Amounts, ...]
    available: tuple[Amounts, ...]


@attrs.frozen
class Demand:
    """What of a pod is aligned."""

    pod: Amounts
    together: tuple[Amounts, ...]
    in_turn: tuple[Amounts, ...]
    aligned: frozenset[str]
    devices: frozenset[str] = frozenset()
    guaranteed: bool = True


def left(node: Node, taken: Sequence[Amounts], zone: int, name: str) -> int:
    return node.available[zone].get(name, 0) - taken[zone].get(name, 0)


def has(node: Node, taken: Sequence[Amounts], zone: int, name: str) -> int:
    """Return what a zone can still give; one that is overdrawn has nothing."""
    return max(0, left(node, taken, zone, name))


def suffice(node: Node, taken: Sequence[Amounts], zones: Sequence[int], wanted: Amounts) -> bool:
    return all(sum(left(node, taken, zone, name) for zone in zones) >= amount for name, amount in wanted.items())


def lowest(node: Node, taken: Sequence[Amounts], width: int, wanted: Amounts) -> list[int] | None:
    """Return the lowest ``width`` zones that suffice."""
    for zones in combinations(range(len(node.available)), width):
        if suffice(node, taken, zones, wanted):
            return list(zones)
    return None


def width_of(node: Node, name: str, amount: int) -> int | None:
    """Return over how many zones of the empty node a resource would spread; None if all of them are not enough."""
    largest = sorted((zone.get(name, 0) for zone in node.allocatable), reverse=True)
    return next((count for count in range(1, len(largest) + 1) if sum(largest[:count]) >= amount), None)


def greedy(node: Node, taken: Sequence[Amounts], wanted: Amounts) -> list[int] | None:
    """Return zones, each the one that covers most of what those before it left unmet."""
    unmet = dict(wanted)
    zones: list[int] = []
    while any(amount > 0 for amount in unmet.values()):
        covers = {
            zone: sum(min(amount, has(node, taken, zone, name)) for name, amount in unmet.items() if amount > 0)
            for zone in range(len(node.available))
            if zone not in zones
        }
        best = max(covers, key=lambda zone: (covers[zone], -zone), default=None)
        if best is None or covers[best] <= 0:
            return None
        zones.append(best)
        unmet = {name: amount - has(node, taken, best, name) for name, amount in unmet.items()}
    return zones


def pick(node: Node, demand: Demand, taken: Sequence[Amounts], request: Amounts) -> list[int] | None:
    """Return the zones of one request, None if it cannot be aligned."""
    wanted = {
        name: amount for name, amount in request.items() if amount > 0 and name in node.aware and name in demand.aligned
    }
    if node.policy == "single-numa-node":
        return lowest(node, taken, 1, wanted)
    if node.policy == "best-effort":
        return greedy(node, taken, wanted)
    widths = {width_of(node, name, amount) for name, amount in wanted.items()}
    if not widths:
        return []
    width = widths.pop()
    return lowest(node, taken, width, wanted) if width is not None and not widths else None


def place(node: Node, demand: Demand) -> list[dict[str, int]] | None:
    """Return what a pod draws from each zone, None if it cannot be aligned."""
    drawn: list[dict[str, int]] = [{} for _ in node.available]
    for request in (demand.pod,) if node.whole_pod else demand.together:
        zones = pick(node, demand, drawn, request)
        if zones is None:
            return None
        for name, amount in request.items():
            if name not in node.aware or name not in demand.aligned:
                continue
            for zone in zones:
                part = min(amount, left(node, drawn, zone, name))
                if part > 0:
                    drawn[zone][name] = drawn[zone].get(name, 0) + part
                    amount -= part  # noqa: PLW2901 - what is still to be drawn
    nothing: list[dict[str, int]] = [{} for _ in node.available]
    if not node.whole_pod and any(pick(node, demand, nothing, request) is None for request in demand.in_turn):
        return None
    return drawn


def is_aligned(node: Node, demand: Demand) -> bool:
    """Say whether the node aligns the pod at all."""
    return node.policy != "none" and (demand.guaranteed or bool(demand.devices & node.aware))


def spans(nodes: Sequence[Node], demand: Demand) -> list[int]:
    """Return how many zones of each node the pod is taken to span, -1 where it cannot be aligned."""
    widest = max((len(node.available) for node in nodes), default=0)
    out = []
    for node in nodes:
        if not node.available:
            out.append(widest)
        elif not is_aligned(node, demand):
            out.append(len(node.available))
        else:
            drawn = place(node, demand)
            out.append(-1 if drawn is None else max(1, sum(bool(zone) for zone in drawn)))
    return out


def rooms(nodes: Sequence[Node], demand: Demand, widest: int, most: int) -> list[tuple[int | None, int, bool]]:
    return [room(node, demand, widest, most) for node in nodes]


def room(node: Node, demand: Demand, widest: int, most: int) -> tuple[int | None, int, bool]:
    """Return how many such pods span as many zones (None: any number), how many, and whether others follow."""
    span = spans_of(node, demand, widest)
    count = 0
    while True:
        rating = spans_of(node, demand, widest)
        if rating != span or count == most:
            refused = rating == -1 and node.policy in {"restricted", "single-numa-node"}
            return count, span, not refused
        if rating == -1 and node.policy in {"restricted", "single-numa-node"}:
            return 0, span, False
        drawn = placed(node, demand)
        if not any(amount for zone in drawn for amount in zone.values()):
            return None, span, False
        node = less(node, drawn)
        count += 1


def spans_of(node: Node, demand: Demand, widest: int) -> int:
    return spans([node], demand)[0] if node.available else widest


def placed(node: Node, demand: Demand) -> list[dict[str, int]]:
    """Return what a pod that comes to the node draws from each zone; nothing if it is not aligned."""
    found = place(node, demand) if node.available and is_aligned(node, demand) else None
    return [{} for _ in node.available] if found is None else found


def less(node: Node, drawn: Sequence[Amounts]) -> Node:
    available = tuple(
        {name: amount - taken.get(name, 0) for name, amount in has.items()}
        for has, taken in zip(node.available, drawn, strict=True)
    )
    return attrs.evolve(node, available=available)


def draw(nodes: Sequence[Node], demand: Demand, order: Sequence[int]) -> list[list[dict[str, int]]]:
    """Return what pods draw that come to the nodes in ``order``."""
    current, out = list(nodes), []
    for at in order:
        out.append(placed(current[at], demand))
        current[at] = less(current[at], out[-1])
    return out
