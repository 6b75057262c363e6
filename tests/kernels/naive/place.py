"""Twins of ``kai.facts.kernels.place``: sort the nodes, take the first that accepts, choose devices, book."""

import math
from collections import Counter
from collections.abc import Sequence

import attrs

from kai.facts.kernels import fit as codes
from kai.facts.kernels.fit import Rules
from kai.facts.model.axis import CPU, GPU, MEMORY
from kai.facts.model.pod import GpuKind
from tests.kernels.naive.booking import allocate, new_placement, pipeline, truncated
from tests.kernels.naive.fit import device_has_idle, device_takes, refusal, shortage
from tests.kernels.naive.fragments import with_pod
from tests.kernels.naive.score import score_nodes
from tests.kernels.naive.world import Device, Group, Node, Pod, Shape, World


def _choose(world: World, rules: Rules, shape: Shape, node: Node, *, promise: bool) -> tuple[list[int], bool] | None:
    """Return the slots that a sharing pod gets, and whether it must wait for one of them; None if they are too few."""
    if rules.mix.weight:
        return _choose_by_mix(world, rules, shape, node, promise=promise)

    def score(device: Device | None) -> float:
        if device is None:
            return rules.spread_slots
        filled = device.used / node.gpu_memory
        return rules.pack_slots * filled + rules.spread_slots * (1.0 - filled)

    wholes = truncated(node.idle(GPU)) + truncated(node.releasing(GPU))
    offers: list[Device | None] = [device for device in node.devices if device_takes(shape, node, device)]
    offers += [None] * wholes
    offers.sort(key=lambda offer: -score(offer))
    fresh = iter([each for each in node.devices if not each.named and each.used == 0 and each.known == 0])
    now = not promise and not shortage(world, shape, node, idle_only=True)
    chosen: list[int] = []
    waits = not now
    for offer in offers[: shape.devices]:
        device = offer or next(fresh, None)
        if device is None:
            return None
        chosen.append(device.row)
        waits = waits or (offer is not None and not device_has_idle(shape, node, device))
    return (chosen, waits) if len(chosen) == shape.devices else None


def _choose_by_mix(
    world: World, rules: Rules, shape: Shape, node: Node, *, promise: bool
) -> tuple[list[int], bool] | None:
    """Return the slots with which most stays usable, and whether the pod must wait for one; None for too few."""
    waits = promise or bool(shortage(world, shape, node, idle_only=True))
    fresh = iter([each.row for each in node.devices if not each.named and each.used == 0 and each.known == 0])
    picked = with_pod(world, rules.mix, shape, node)[1]
    slots = [next(fresh, -1) if slot is None else slot for slot in picked]
    if len(picked) < shape.devices or -1 in slots:
        return None
    shared = [node.device(slot) for slot in picked if slot is not None]
    return slots, waits or not all(device_has_idle(shape, node, device) for device in shared)


def put(world: World, rules: Rules, pod: Pod, node: int, *, promise: bool, keep: bool | None = None) -> bool:
    """Put a pod on a node that accepted it; say whether devices were found."""
    stays = promise if keep is None else keep
    here = world.nodes[node]
    if not pod.shape.shared:
        if not promise and not shortage(world, pod.shape, here, idle_only=True):
            allocate(world, pod, node, 0)
        else:
            pipeline(world, pod, node, 0, keep=stays)
        return True
    found = _choose(world, rules, pod.shape, here, promise=promise)
    if found is None:
        return False
    slots, waits = found
    placement = new_placement(world)
    world.placements[placement] = slots + [-1] * (len(world.placements[0]) - len(slots))
    if waits:
        pipeline(world, pod, node, placement, keep=stays)
    else:
        allocate(world, pod, node, placement)
    return True


def put_anew(world: World, rules: Rules, pod: Pod, node: int) -> bool:
    """Promise a node to a pod that shall not simply stay, though it was evicted from there."""
    return put(world, rules, pod, node, promise=True, keep=False)


def best_node(
    world: World, rules: Rules, shape: Shape, group: Group | None, nodes: Sequence[int], scores: Sequence[float]
) -> int:
    """Return the position of the best node that accepts a pod, -1 if none does."""
    order = sorted((-score, at) for at, score in enumerate(scores) if not math.isnan(score))
    accepting = (at for _, at in order if not refusal(world, rules, shape, group, world.nodes[nodes[at]]))
    return next(accepting, -1)


def place_pods(
    world: World, rules: Rules, pods: Sequence[Pod], nodes: Sequence[int], extra: Sequence[float], *, promise: bool
) -> int:
    """Place pods one by one until one finds no node; return how many were placed."""
    for count, pod in enumerate(pods):
        scores = score_nodes(world, rules, pod.shape, nodes, extra)
        while True:
            at = best_node(world, rules, pod.shape, pod.group, nodes, scores)
            if at < 0:
                return count
            if put(world, rules, pod, nodes[at], promise=promise):
                break
            scores[at] = math.nan
    return len(pods)


def place_rated(
    world: World, rules: Rules, pod: Pod, nodes: Sequence[int], answers: Sequence[float], *, promise: bool
) -> bool:
    """Place one pod where terms and answers are best together; say whether a node took it."""
    return place_pods(world, rules, [pod], nodes, answers, promise=promise) == 1


@attrs.define
class States:
    """What a plugin says about nodes in each state, and the states of nodes and holdings of pods."""

    asks: list[int | None]
    """By shape."""
    left: dict[tuple[int, int], int]
    """The state once a pod with a holding is gone."""
    taken: dict[tuple[int, int], tuple[int, int, float] | None]
    """By state and ask: the state once one more pod is there, what it holds, the rating; None: it is refused."""
    unsure: set[tuple[int, int]]
    """States and asks for which the plugin must be asked about each pod."""
    of_nodes: list[int]
    of_pods: list[int | None]
    questions: set[tuple[int, int]] = attrs.field(factory=set)
    """What nothing is known of: state, and holding or -1 - ask."""


def leave(states: States, pod: Pod) -> bool:
    """Let a node pass into its state without a pod; say whether that is known."""
    if states.asks[pod.shape.row] is None or pod.node < 0:
        return True
    held = states.of_pods[pod.row]
    if held is None:
        return False
    now = states.of_nodes[pod.node]
    after = states.left.get((now, held))
    if after is None:
        states.questions.add((now, held))
        return False
    states.of_nodes[pod.node] = after
    return True


def promise_by_table(
    world: World, rules: Rules, states: States, pods: Sequence[Pod], nodes: Sequence[int], extra: Sequence[float]
) -> int | None:
    """Promise places until a pod finds no node; return how many pods have one, None where an answer is missing."""
    for count, pod in enumerate(pods):
        scores = score_nodes(world, rules, pod.shape, nodes, extra)
        ask = states.asks[pod.shape.row]
        if ask is not None:
            rated = [at for at, score in enumerate(scores) if not math.isnan(score)]
            asked = {at: (states.of_nodes[nodes[at]], ask) for at in rated}
            unknown = {(state, -1 - ask) for state, _ in asked.values() if (state, ask) not in states.taken}
            if unknown:
                states.questions |= unknown
                return None
            for at, key in asked.items():
                found = states.taken[key]
                scores[at] = math.nan if found is None else scores[at] + found[2]
        while True:
            at = best_node(world, rules, pod.shape, pod.group, nodes, scores)
            if at < 0:
                return count
            key = (states.of_nodes[nodes[at]], -1 if ask is None else ask)
            if key in states.unsure:
                return None
            found = None if ask is None else states.taken[key]
            keep = found is None or pod.evicted is None or states.of_pods[pod.row] == found[1]
            if put(world, rules, pod, nodes[at], promise=True, keep=keep):
                if found is not None:
                    states.of_nodes[nodes[at]], states.of_pods[pod.row] = found[:2]
                break
            scores[at] = math.nan
    return len(pods)


def refusals(
    world: World, rules: Rules, shape: Shape, group: Group | None, nodes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the refusal of each node; and how many nodes say what, each of them all that it is short of."""
    found = [refusal(world, rules, shape, group, world.nodes[row]) for row in nodes]
    counts = Counter(code for code in found if code < codes.SHORT_OF)
    for row, code in zip(nodes, found, strict=True):
        if code >= codes.SHORT_OF:
            short = _short_of(world, shape, world.nodes[row]) or {code - codes.SHORT_OF}
            counts.update(codes.CODES + resource for resource in short)
    return found, [counts[at] for at in range(codes.CODES + len(shape.request) + 1)]


def _short_of(world: World, shape: Shape, node: Node) -> set[int]:
    """Return the resources of which pods, leaving ones included, do not spare enough; one more for device memory."""
    spare = [total - node.used(resource) for resource, total in enumerate(node.allocatable)]
    spare[GPU] -= 1000 * sum(device.used > 0 for device in node.devices)
    wanted = list(shape.request)
    wanted[GPU] -= 1000 * shape.claimed
    if shape.kind == GpuKind.MEMORY:
        wanted[GPU] = shape.devices * -(-100 * shape.memory // node.gpu_memory) * 10
    asked = {CPU, MEMORY, GPU} | {at for at, amount in enumerate(shape.request) if amount > 0}
    asked -= {GPU} if shape.kind == GpuKind.MIG else set()
    asked -= {at for at in asked - {GPU} if world.claimable[at] and not node.allocatable[at]}
    short = {at for at in asked if wanted[at] > spare[at]}
    too_small = shape.kind == GpuKind.MEMORY and shape.memory > node.gpu_memory
    return short | ({len(shape.request)} if too_small else set())
