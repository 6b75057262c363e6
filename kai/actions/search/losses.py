"""Estimates for plans: what groups could lose, what that costs, and whether it could be enough.

A *plan* maps groups to the number of steps that each gives up. The steps of a group are ordered: surplus pods one by
one, then surplus sub-groups, then all the rest. Nothing here is simulated; sums reject most plans cheaply.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import attrs
import numpy as np

from kai.actions.search.outer import give_up, wanted_by
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.kernels.columns import GPU_UNIT, KIND_FRACTION, KIND_MEMORY, KIND_WHOLE
from kai.facts.model.axis import NONE, Bools, GroupRow, GroupRows, Int64s, PodRows, SubGroupRow
from kai.facts.model.pod import ACTIVE_ALLOCATED

MOST_STEPS: Final = 64
"""The most steps to consider for a group with a tree of sub-groups."""
MOST_PARTS: Final = 4
"""The most sub-groups with a required domain to try in every domain; beyond that, the largest is placed first."""

Plan = Mapping[int, int]
"""Steps by group."""
Amounts = tuple[float, float, float]
"""CPU, memory and GPUs in axis units. Tuples, since sums of three numbers are quicker without arrays."""
Need = tuple[int, frozenset[int]]
"""The number of pods that must share one domain, and the domains allowed; an empty set allows any."""


class Cost(NamedTuple):
    """The cost of victims. Costs compare field by field, so the first difference decides."""

    below: int
    """1 if some queue falls below its quota, else 0."""
    groups: int
    """The number of groups that fall below their minimum."""
    work: int
    """Thousandths of GPUs times the seconds since their groups started."""
    pods: int
    gpus: int
    """Thousandths of GPUs."""


_PODS: Final = Cost._fields.index("pods")
_GPUS: Final = Cost._fields.index("gpus")


class Giver:
    """A group that may lose pods."""

    def __init__(self, session: Session, group: int) -> None:
        """Begin without computed values."""
        self._session = session
        self.group = group
        self.queue = int(session.facts.groups.queue[group])
        self.priority = int(session.priorities[group])
        started = float(session.last_start[group])
        # Not the session clock: reading it would end the validity of the cycle's result for the sake of a preference.
        self._seconds = 0 if np.isnan(started) else max(0, int(session.snapshot.now - started))
        self._known: dict[int, PodRows] = {}
        self._costs: dict[int, Cost] = {}
        self._freed: dict[int, Mapping[int, int]] = {}
        self._places: dict[int, Mapping[int, int]] = {}
        self._lost: dict[int, tuple[Amounts, Amounts]] = {}

    @cached_property
    def portion(self) -> Portion:
        """The whole group."""
        return self._session.portion(self.group)

    @cached_property
    def _placed(self) -> PodRows:
        return self.portion.holding(ACTIVE_ALLOCATED)

    @cached_property
    def _is_simple(self) -> bool:
        return bool(self._session.facts.groups.simple[self.group])

    @cached_property
    def _tree_steps(self) -> list[PodRows]:
        """The pods that a group with a tree has given up after each step, cumulative."""
        steps: list[PodRows] = []
        taken: PodRows = np.zeros(0, np.int64)
        rest: Portion | None = self.portion
        while rest is not None and len(steps) < MOST_STEPS:
            pods, rest = give_up(rest, set())
            taken = np.concatenate([taken, pods])
            if len(pods):
                steps.append(taken)
        if rest is not None:
            steps.append(self._placed)
        return steps

    @cached_property
    def surplus(self) -> int:
        """The number of steps that leave the group at its minimum."""
        if self._is_simple:
            return max(0, len(self._placed) - self.portion.minimum(self.portion.root + 1))
        return sum(not self._loses_minimum(pods) for pods in self._tree_steps)

    @cached_property
    def steps(self) -> int:
        """The number of all steps."""
        if self._is_simple:
            return self.surplus + int(self.surplus < len(self._placed))
        return len(self._tree_steps)

    def pods(self, steps: int) -> PodRows:
        """Return the pods that the group gives up in ``steps`` steps."""
        if not self._is_simple:
            return self._tree_steps[steps - 1]
        return self._placed[len(self._placed) - steps :] if steps <= self.surplus else self._placed

    def steps_of(self, pods: PodRows) -> int:
        """Return the smallest number of steps that gives up all of ``pods``."""
        wanted = set(pods.tolist())
        return next((at for at in range(1, self.steps) if wanted <= set(self.pods(at).tolist())), self.steps)

    def _loses_minimum(self, pods: PodRows) -> bool:
        placed = self._placed
        if self._is_simple:
            minimum = self.portion.minimum(self.portion.root + 1)
            return len(placed) >= minimum > len(placed) - len(pods)
        return self.portion.suffice(placed) and not self.portion.suffice(placed[~np.isin(placed, pods)])

    def cost_of(self, pods: PodRows) -> Cost:
        """Return the cost of losing ``pods``, without the cost for queues."""
        gpus = sum(self.freed_by(pods).values())
        return Cost(0, int(self._loses_minimum(pods)), gpus * self._seconds, len(pods), gpus)

    def cost(self, steps: int) -> Cost:
        """Return the cost of ``steps`` steps, without the cost for queues."""
        known = self._costs.get(steps)
        if known is None:
            known = self._costs[steps] = self.cost_of(self.pods(steps))
        return known

    @cached_property
    def held(self) -> dict[int, Amounts]:
        """By pod: the amounts that the queue counts for each pod with a place."""
        session, shapes, held = self._session, self._session.facts.pods.shape, dict[int, Amounts]()
        for pod, (_, gpus) in self._at.items():
            cpu, memory = session.footprint(int(shapes[pod]))[:2]
            held[pod] = float(cpu), float(memory), float(gpus)
        return held

    def freed_by(self, pods: PodRows) -> dict[int, int]:
        """Return the thousandths of GPUs that ``pods`` hold, by node; pods on a node that is gone free nothing."""
        freed = dict[int, int]()
        for pod in pods.tolist():
            node, amount = self._at[pod]
            if node != NONE:
                freed[node] = freed.get(node, 0) + amount
        return freed

    @cached_property
    def _at(self) -> dict[int, tuple[int, int]]:
        """By pod with a place: its node, and the thousandths of GPUs that it holds there."""
        session, at = self._session, dict[int, tuple[int, int]]()
        for pod in self._placed.tolist():
            shape, node = int(session.facts.pods.shape[pod]), int(session.columns.node[pod])
            at[pod] = node, int(accepted_gpu(session.facts, shape, node))
        return at

    def freed(self, steps: int) -> Mapping[int, int]:
        """Return the thousandths of GPUs that ``steps`` steps free, by node."""
        known = self._freed.get(steps)
        if known is None:
            known = self._freed[steps] = self.freed_by(self.pods(steps))
        return known

    def places(self, steps: int) -> Mapping[int, int]:
        """Return the thousandths of whole GPUs freed by node, and the MiB freed of shared devices by ``~slot``."""
        known = self._places.get(steps)
        if known is None:
            facts, columns, known = self._session.facts, self._session.columns, dict[int, int]()
            for pod in self.pods(steps).tolist():
                shape, (node, amount) = int(facts.pods.shape[pod]), self._at[pod]
                if node == NONE:
                    continue
                kind, part = int(facts.shapes.kind[shape]), int(facts.shapes.memory[shape])
                if kind == KIND_FRACTION:
                    part = int(facts.shapes.portion[shape] * facts.nodes.gpu_memory[node])
                slots = columns.placement_slots[columns.placement[pod]]
                # Nodes and slots share one space of keys: slot s is ~s, which is negative, so no node has its number.
                shared = [~slot for slot in slots.tolist() if slot >= 0 and kind in {KIND_FRACTION, KIND_MEMORY}]
                for place in shared or [node]:
                    known[place] = known.get(place, 0) + (part if shared else amount)
            self._places[steps] = known
        return known

    def lost(self, steps: int) -> tuple[Amounts, Amounts]:
        """Return the loss of the queue in all, and as the one piece that fair-share rules see."""
        known = self._lost.get(steps)
        if known is None:
            session, left = self._session, dict[int, int]()
            whole = piece = NO_LOSS
            for pod in self.pods(steps).tolist():
                amounts, leaf = self.held[pod], int(session.facts.pods.leaf[pod])
                whole = more(whole, amounts)
                left.setdefault(leaf, int(session.facts.groups.minimum[leaf]))
                left[leaf] -= 1
                if left[leaf] >= 0:
                    piece = more(piece, amounts)
            known = self._lost[steps] = whole, piece
        return known


NO_LOSS: Final[Amounts] = (0.0, 0.0, 0.0)


def more(one: Amounts, other: Amounts) -> Amounts:
    """Return the sum."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def less(one: Amounts, other: Amounts) -> Amounts:
    """Return the difference."""
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


class Totals:
    """What a plan costs and frees in all, from which groups can be taken off without adding up the others again.

    Amounts are whole numbers, which floats hold exactly, so the order of sums does not matter.
    """

    __slots__ = ("_counts", "freed", "losses", "sums")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.sums = [0] * len(Cost._fields)
        """The cost, field by field, without that of queues."""
        self.losses: dict[int, Amounts] = {}
        """What each leaf queue loses."""
        self.freed: dict[int, int] = {}
        """What becomes free by place."""
        self._counts: dict[int, int] = {}
        """The number of groups that free something, by place."""

    def copy(self) -> "Totals":
        """Return equal totals."""
        twin = Totals()
        twin.sums, twin.losses = list(self.sums), dict(self.losses)
        twin.freed, twin._counts = dict(self.freed), dict(self._counts)
        return twin

    def add(self, cost: Cost, queue: int, lost: Amounts, freed: Mapping[int, int]) -> None:
        """Add what a group of ``queue`` gives up."""
        self.sums = [mine + other for mine, other in zip(self.sums, cost, strict=True)]
        self.losses[queue] = more(self.losses.get(queue, NO_LOSS), lost)
        for place, amount in freed.items():
            self.freed[place] = self.freed.get(place, 0) + amount
            self._counts[place] = self._counts.get(place, 0) + 1

    def take_off(self, cost: Cost, queue: int, lost: Amounts, freed: Mapping[int, int]) -> None:
        """Take off what was added for a group."""
        self.sums = [mine - other for mine, other in zip(self.sums, cost, strict=True)]
        self.losses[queue] = less(self.losses[queue], lost)
        for place, amount in freed.items():
            if self._counts[place] == 1:
                del self.freed[place], self._counts[place]
            else:
                self.freed[place] -= amount
                self._counts[place] -= 1


class Givers:
    """The estimates of groups that looks of one pass share, and what it costs to lose all of a group, as columns."""

    def __init__(self, session: Session) -> None:
        """Begin without estimates."""
        self._session = session
        count = len(session.snapshot.groups)
        self._by_group: dict[int, tuple[int, Giver]] = {}
        """Each with the epoch of its group: while the epoch is the same, no pod of the group has changed status."""
        self._epoch: Int64s = np.full(count, -1, np.int64)
        """[G] The epoch for which ``_cost`` holds."""
        self._cost: Int64s = np.zeros((count, len(Cost._fields)), np.int64)
        """[G, 5] The cost of all steps of a group; it has no pods if there are no steps."""

    def of(self, group: int) -> Giver:
        """Return the estimates of a group as it is now."""
        epoch, known = int(self._session.columns.epoch[group]), self._by_group.get(group)
        if known is None or known[0] != epoch:
            known = self._by_group[group] = epoch, Giver(self._session, group)
        return known[1]

    def cheapest(self, groups: GroupRows, most: int, *, freeing: bool) -> list[int]:
        """Return at most ``most`` of ``groups`` that have pods to lose, cheapest first; ``freeing``: and free GPUs."""
        epochs = self._session.columns.epoch[groups]
        changed = groups[self._epoch[groups] != epochs]
        if len(changed):
            self._look_at(changed)
        self._epoch[groups] = epochs
        costs = self._cost[groups]
        usable = costs[:, _PODS] > 0
        if freeing:
            usable &= costs[:, _GPUS] > 0
        groups, costs = groups[usable], costs[usable]
        # The row last, so that groups of equal cost have one order.
        order = np.lexsort((groups, *reversed(costs.T)))[:most]
        return [int(group) for group in groups[order]]

    def _look_at(self, groups: GroupRows) -> None:
        """Compute what it costs to lose all of each of ``groups``."""
        facts, session = self._session.facts, self._session
        is_simple = facts.groups.simple[groups]
        for group in groups[~is_simple].tolist():
            giver = self.of(group)
            self._cost[group] = giver.cost(giver.steps) if giver.steps else 0
        groups = groups[is_simple]
        leaves = facts.groups.first_subgroup[groups] + 1
        start = facts.groups.pod_start[leaves]
        sizes = facts.groups.pod_start[leaves + 1] - start
        owner = np.repeat(np.arange(len(groups)), sizes)
        pods = facts.groups.pods[np.arange(len(owner)) + np.repeat(start - np.cumsum(sizes) + sizes, sizes)]
        is_placed = (ACTIVE_ALLOCATED >> session.columns.status[pods]) & 1 == 1
        pods, owner = pods[is_placed], owner[is_placed]
        counts = np.bincount(owner, minlength=len(groups))
        # `bincount` adds weights as floats, which hold these amounts exactly.
        gpus = np.bincount(owner, weights=_gpus_of(session, pods), minlength=len(groups)).astype(np.int64)
        minimum, ages = facts.groups.minimum[leaves], session.snapshot.now - session.last_start[groups]
        seconds = np.where(np.isnan(ages), 0.0, np.maximum(ages, 0.0)).astype(np.int64)
        loses_minimum = (counts >= minimum) & (minimum > 0)
        self._cost[groups] = np.column_stack((np.zeros_like(gpus), loses_minimum, gpus * seconds, counts, gpus))


def _gpus_of(session: Session, pods: PodRows) -> Int64s:
    """Return the thousandths of GPUs that each of ``pods`` holds on its node; pods on a node that is gone hold none."""
    facts, nodes, shapes = session.facts, session.columns.node[pods], session.facts.pods.shape[pods]
    kinds = facts.shapes.kind[shapes]
    # What a pod holds depends on its node only where it shares devices, so few amounts are computed.
    where = np.where((kinds == KIND_FRACTION) | (kinds == KIND_MEMORY), nodes, NONE)
    pairs, at = np.unique(np.column_stack((shapes, where)), axis=0, return_inverse=True)
    amounts = np.array([accepted_gpu(facts, shape, node) for shape, node in pairs.tolist()], np.int64)
    held: Int64s = np.where(nodes == NONE, 0, amounts[at.ravel()] if len(pairs) else 0)
    return held


class Offers:
    """What each of several groups could give up, as columns: its surplus pods if it has any, and all of its pods."""

    def __init__(self, givers: Sequence[Giver], *, whole: bool) -> None:
        """Read ``givers`` in order; ``whole``: places are nodes and devices (``Giver.places``), else nodes."""
        ways = [(each, steps) for each in givers for steps in _ways(each)]
        self.groups: Int64s = np.array([each.group for each, _ in ways], np.int64)
        self.steps: Int64s = np.array([steps for _, steps in ways], np.int64)
        costs = [each.cost(steps) for each, steps in ways]
        self.costs: Int64s = np.array(costs, np.int64).reshape(-1, len(Cost._fields))
        freed = [each.places(steps) if whole else each.freed(steps) for each, steps in ways]
        self.way: Int64s = np.repeat(np.arange(len(ways)), [len(each) for each in freed])
        """[E] The row above to which each of the entries below belongs."""
        self.place: Int64s = np.array([place for each in freed for place in each], np.int64)
        self.amount: Int64s = np.array([amount for each in freed for amount in each.values()], np.int64)

    def cheaper(self, rest: Cost, bound: Cost) -> Bools:
        """Return bool[W]: whether it costs less than ``bound`` together with ``rest``, apart from what queues lose."""
        out: Bools = np.zeros(len(self.groups), np.bool_)
        # Whether a queue falls below its quota is not in the columns. If one does by the bound, all other costs may be
        # higher.
        if bound.below:
            return ~out
        # From the last field to the first: a field decides only where those before it are equal.
        for at in range(len(bound) - 1, 0, -1):
            more = self.costs[:, at]
            left = bound[at] - rest[at]
            out = (more < left) | (out & (more == left))
        return out


def _ways(giver: Giver) -> tuple[int, ...]:
    return (giver.surplus, giver.steps) if giver.surplus else (giver.steps,)


@attrs.frozen(kw_only=True, eq=False)
class _Places:
    """The entries of offers [E] by node: each *pair* [P] is one way to give up pods with one node that it frees."""

    held: Int64s
    """[E] MiB that pods hold of the device of an entry; 0 for a node."""
    pair: Int64s
    """[E] The pair of each entry."""
    way: Int64s
    """[P]"""
    node: Int64s
    """[P]"""
    free: Int64s
    """[P] Thousandths of GPUs that are free on the node without evictions."""
    matching: Bools
    """[P] Whether pods of the aggressor may go to the node."""


class Room:
    """Tests whether the aggressor could fit once some pods are gone: necessary conditions that are cheap to check."""

    def __init__(
        self, session: Session, part: Portion, waiting: Sequence[int], free: Int64s, *, by_device: bool = True
    ) -> None:
        """Count room in pieces of the size of the smallest pod; ``free`` [N] is the capacity without evictions.

        ``by_device``: two halves of different devices do not count as a whole one. Not for use within an open
        statement.
        """
        self._session = session
        facts, columns = session.facts, session.columns
        kinds = facts.shapes.kind[facts.pods.shape[list(waiting)]]
        self.whole = by_device and bool((kinds == KIND_WHOLE).all())
        """Whether all pods request whole devices, so that a device counts only once all of it is free."""
        if self.whole:
            free = (columns.idle + columns.releasing) @ facts.nodes.gpu_weight
            self._held = columns.slot_allocated - columns.slot_releasing
        self._free = free
        wanted = wanted_by(session, waiting)
        self.smallest = min(wanted, default=0)
        self._missing = len(waiting)
        rows = session.facts.shapes.mask[session.facts.pods.shape[list(waiting)]]
        self._matching = np.array(session.policy.vectors.masks[np.unique(rows)].any(axis=0), np.bool_)
        self.levels = self._needs(part, set(waiting))
        self._most = self._most_on_a_node(waiting)
        self._rooms: Int64s = np.where(self._matching, np.minimum(free // max(self.smallest, 1), self._most), 0)
        self._total = int(self._rooms.sum())
        self._known_places: tuple[Offers, _Places] | None = None
        self._nodes: dict[int, tuple[int, int | None]] = {}
        self._devices: dict[int, tuple[int, int]] = {}
        self._sums = [np.bincount(codes, weights=self._rooms).astype(np.int64) for codes, _ in self.levels]

    def _most_on_a_node(self, waiting: Sequence[int]) -> int:
        """Return the most pods of the chunk that fit on one node, if pods of the same shape repel each other."""
        shapes = set(self._session.facts.pods.shape[list(waiting)].tolist())
        alone = all(self._session.policy.is_single(shape) for shape in shapes)
        return len(shapes) if alone else len(waiting)

    def _needs(self, part: Portion, waiting: set[int]) -> list[tuple[Int64s, list[Need]]]:
        """Return, by required level, the domain of every node, and the needs that must each fit into one domain.

        A sub-group below another one with the same required level adds no need of its own.
        """
        session, needs = self._session, dict[str, list[Need]]()
        subgroups = session.snapshot.groups[part.group].subgroups
        asked: list[set[str]] = []
        for at, subgroup in enumerate(subgroups):
            row = SubGroupRow(part.root + at)
            levels = {each.level for each in session.policy.together(GroupRow(part.group), row) if each.level}
            above = asked[subgroup.parent] if subgroup.parent >= 0 else set()
            asked.append(levels | above)
            if levels <= above:
                continue
            pods = part.pods(row)
            count = sum(pod in waiting for pod in pods.tolist())
            for level in sorted(levels - above) if count else ():
                codes = session.view.label_codes(level)
                there = codes[session.columns.node[part.holding(ACTIVE_ALLOCATED, pods)]]
                needs.setdefault(level, []).append((count, frozenset(there.tolist())))
        return [
            (session.view.label_codes(level), sorted(counts, key=lambda need: -need[0]))
            for level, counts in needs.items()
        ]

    def domains(self) -> list[Bools]:
        """Return bool[N] for each domain of the coarsest required level; one mask of all nodes if none is required."""
        if not self.levels:
            return [self._matching]
        codes = min((codes for codes, _ in self.levels), key=lambda each: int(each.max(initial=0)))
        return [(codes == code) & self._matching for code in range(1, int(codes.max(initial=0)) + 1)]

    def _whole_devices(self, places: Mapping[int, int]) -> Mapping[int, int]:
        """Return the free amounts by node; a shared device counts only if no pod is left on it."""
        if not places or min(places) >= 0:
            return places
        freed = {place: amount for place, amount in places.items() if place >= 0}
        for place, amount in places.items():
            if place >= 0:
                continue
            held, node = self._devices.get(place) or self._device(place)
            if amount >= held:
                freed[node] = freed.get(node, 0) + GPU_UNIT
        return freed

    def _device(self, place: int) -> tuple[int, int]:
        """Return what pods hold of a shared device, and its node; memoized, as plans ask for few devices very often."""
        node = int(np.searchsorted(self._session.facts.nodes.slot_start, ~place, side="right")) - 1
        known = self._devices[place] = int(self._held[~place]), node
        return known

    def could_hold_each(self, rest: Mapping[int, int], offers: Offers) -> Bools:
        """Return bool[W]: whether ``could_hold`` may be true of ``rest`` with each of ``offers``, by all nodes alone.

        Required levels are left out, so False is certain, and True is where there is no such level.
        """
        if not self.smallest:
            return np.ones(len(offers.groups), np.bool_)
        places = self._places_of(offers)
        amounts = offers.amount
        if self.whole:
            before = np.zeros(len(offers.place), np.int64)
            is_there = np.zeros(len(offers.place), np.bool_)
            for place, amount in rest.items():
                at = offers.place == place
                before[at], is_there[at] = amount, True
            full = before + amounts >= places.held
            full &= ~(is_there & (before >= places.held))
            amounts = np.where(offers.place < 0, full * GPU_UNIT, amounts)
            rest = self._whole_devices(rest)
        # `bincount` adds weights as floats, which hold these amounts exactly.
        more = np.bincount(places.pair, weights=amounts, minlength=len(places.node)).astype(np.int64)
        free, total = places.free.copy(), self._total
        for node, amount in rest.items():
            if self._matching[node]:
                free[places.node == node] += amount
                total += min((int(self._free[node]) + amount) // self.smallest, self._most) - int(self._rooms[node])
        gained = np.minimum((free + more) // self.smallest, self._most) - np.minimum(free // self.smallest, self._most)
        gains = np.bincount(places.way, weights=gained * places.matching, minlength=len(offers.groups))
        enough: Bools = total + gains >= self._missing
        return enough

    def _places_of(self, offers: Offers) -> "_Places":
        """Return what is known of the nodes and devices of ``offers``; memoized for the last offers."""
        known = self._known_places
        if known is None or known[0] is not offers:
            nodes, held = offers.place.copy(), np.zeros(len(offers.place), np.int64)
            shared = np.flatnonzero(nodes < 0)
            if len(shared):
                slots = ~nodes[shared]
                nodes[shared] = np.searchsorted(self._session.facts.nodes.slot_start, slots, side="right") - 1
                held[shared] = self._held[slots]
            pairs, pair = np.unique(offers.way * len(self._free) + nodes, return_inverse=True)
            way, node = np.divmod(pairs, max(len(self._free), 1))
            places = _Places(
                held=held, pair=pair, way=way, node=node, free=self._free[node], matching=self._matching[node]
            )
            self._known_places = known = offers, places
        return known[1]

    def useful(self, freed: Mapping[int, int], nodes: Bools) -> int:
        """Return how much of ``freed`` is on ``nodes`` [N]."""
        return sum(amount for node, amount in freed.items() if nodes[node])

    def could_hold(self, freed: Mapping[int, int]) -> bool:
        """Return whether the aggressor could fit if ``freed`` were free too, by node or device (``Giver.places``)."""
        if not self.smallest:
            return True
        if self.whole:
            freed = self._whole_devices(freed)
        total, smallest, most, nodes = self._total, self.smallest, self._most, self._nodes
        for node, amount in freed.items():
            free, room = nodes.get(node) or self._node(node)
            if room is not None:
                total += min((free + amount) // smallest, most) - room
        return total >= self._missing and (not self.levels or self._domains_hold(freed))

    def _node(self, node: int) -> tuple[int, int | None]:
        """Return what is free on a node and the room there, None where no pod may go; memoized."""
        room = int(self._rooms[node]) if self._matching[node] else None
        known = self._nodes[node] = int(self._free[node]), room
        return known

    def _domains_hold(self, freed: Mapping[int, int]) -> bool:
        """Return whether required levels have domains with enough room if ``freed`` were free too, by node."""
        for (codes, needs), sums in zip(self.levels, self._sums, strict=True):
            rooms = sums.copy()
            for node, amount in freed.items():
                free, room = self._node(node)
                if room is not None:
                    rooms[codes[node]] += min((free + amount) // self.smallest, self._most) - room
            # Code 0 stands for nodes without the label, which are no domain together.
            rooms[0] = 0
            if not _fit(needs, rooms.tolist()):
                return False
        return True


def _fit(needs: Sequence[Need], rooms: list[int]) -> bool:
    """Return whether each of ``needs``, largest first, finds a domain with enough of ``rooms`` left."""
    if not needs:
        return True
    count, allowed = needs[0]
    fitting = [code for code in (allowed or range(1, len(rooms))) if rooms[code] >= count]
    if len(needs) > MOST_PARTS:
        fitting = sorted(fitting, key=lambda code: -rooms[code])[:1]
    # Domains with equal room are interchangeable, unless another need names one of them: try one of each.
    alike = not any(others for _, others in needs[1:])
    for code in {rooms[code]: code for code in fitting}.values() if alike else fitting:
        rooms[code] -= count
        fits = _fit(needs[1:], rooms)
        rooms[code] += count
        if fits:
            return True
    return False
