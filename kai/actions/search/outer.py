"""The growing set of possible victims, and cheap filters that reject sets before a simulation.

Batches of victims come off the victim heap until the filters see a chance for the aggressor.

A filter tests a necessary condition: it may only reject sets that a simulation would reject too. (The test of domains
also counts running pods of the aggressor, as the peer's does; see docs/differences.md.)

Source: the peer's actions/common/solvers/scenario (by pod, accumulated scenario builder), and
actions/common/solvers/accumulated_scenario_filters.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from kai.actions.search.group_states import GroupStates
from kai.actions.search.hopeless import Reach
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import TOO_FEW
from kai.facts.kernels import prefix
from kai.facts.kernels.booking import accepted_gpu, requested_gpu
from kai.facts.kernels.columns import GPU, GPU_UNIT, KIND_FRACTION, KIND_MEMORY, KIND_WHOLE
from kai.facts.kernels.prefix import Prefix, propose_first
from kai.facts.kernels.victims import add_held
from kai.facts.model.axis import Bools, GroupRow, GroupRows, Int64s, NodeRows, SubGroupRow
from kai.framework.scenario import Batch, Batches, Outer


def held_by(session: Session, pods: Sequence[int] | Int64s) -> Int64s:
    """Return int64[N]: thousandths of GPUs that ``pods`` hold on each node."""
    out = np.zeros(len(session.all_nodes), np.int64)
    add_held(session.facts, session.columns, np.asarray(pods, np.int64), out)
    return out


def wanted_by(session: Session, pods: Sequence[int]) -> tuple[int, ...]:
    """Return the thousandths of GPUs that each pod requests; a request by memory counts 0 without a node."""
    return tuple(int(requested_gpu(session.facts, int(session.facts.pods.shape[pod]))) for pod in pods)


def fits_greedily(wanted: Sequence[int], capacities: Sequence[int], *, stop_at_zero: bool = False) -> bool:
    """Return whether each amount fits into a holder, taking the largest amount first and the largest holder first.

    ``stop_at_zero``: return True at the first amount of 0, since all after it are 0 too.

    Cost: one look at each holder for each distinct amount, besides sorting.
    """
    left = sorted(capacities, reverse=True)
    at, before = 0, -1
    for amount in sorted(wanted, reverse=True):
        if stop_at_zero and amount == 0:
            return True
        # Equal amounts come one after the other, so each distinct one walks over the holders once.
        if amount != before:  # holders that were too small for an equal amount are still too small
            at, before = 0, amount
        while at < len(left) and left[at] < amount:
            at += 1
        if at == len(left):
            return False
        left[at] -= amount
    return True


class Filters:
    """The filters for one aggressor; whatever does not depend on the victims is computed once."""

    def __init__(
        self,
        session: Session,
        aggressor: Portion,
        waiting: Sequence[int],
        free: Int64s,
        feasible: Int64s,
        *,
        moves: bool = False,
    ) -> None:
        """Prepare the aggressor's requirements; ``free`` [N] is the capacity of nodes without evictions.

        ``moves``: all victims must find other places.
        """
        self._moves = moves
        self._session = session
        self._free = free
        self._waiting = waiting
        self.wanted = wanted_by(session, waiting)
        """The request of each waiting pod."""
        self._open = np.zeros(len(free), np.bool_)
        self._open[feasible] = True
        session.policy.prepare_all(np.array(waiting, np.int64), session.all_nodes)
        # A mask without a gap can never be the reason to reject a set.
        self._masks = {row: mask for row, mask in self._static_masks(waiting).items() if not mask.all()}
        self._domains = self._requirements(aggressor)

    def accept(self, victims: Int64s, held: Int64s) -> bool:
        """Return whether the aggressor might fit without all ``victims``; ``held`` [N] is what they hold."""
        capacity = self._free + held
        return self._some_node_matches(victims) and self.domains_can_hold(capacity) and self._nodes_can_hold(capacity)

    @property
    def each(self) -> int:
        """The thousandths of GPUs that every waiting pod asks for; 0 where sums prove nothing."""
        return self._each if self._session.takes(TOO_FEW) else 0

    def leaves_too_few(self, victims: Int64s) -> bool:
        """Return whether nodes have too few GPUs without ``victims``, for pods that ask for the same whole number.

        ``accept`` is asked about a whole outer scenario; this rejects parts of it that cannot serve.
        """
        each = self.each
        if not each:
            return False
        capacity = np.maximum(self._free + held_by(self._session, victims), 0)
        return int((capacity // each).sum()) < len(self.wanted) + self._as_large(victims)

    def _as_large(self, victims: Int64s) -> int:
        """Return how many ``victims`` need a place as large as a waiting pod does, because they only move."""
        if not self._moves:
            return 0
        facts = self._session.facts.shapes
        shapes = self._session.facts.pods.shape[victims]
        whole, count = facts.kind[shapes] == KIND_WHOLE, 0
        for shape, pods in zip(*np.unique(shapes[whole], return_counts=True), strict=True):
            count += int(pods) if requested_gpu(self._session.facts, int(shape)) >= self.each else 0
        return count

    @cached_property
    def _each(self) -> int:
        facts, columns = self._session.facts, self._session.columns
        shapes = facts.pods.shape[list(self._waiting)]
        # Parts of devices and claimed ones are counted otherwise than whole GPUs, and so are promises in the peer's
        # books.
        is_whole = (facts.shapes.kind[shapes] == KIND_WHOLE).all() and not facts.shapes.claimed.any()
        if not is_whole or columns.slot_used.any() or facts.nodes.books_as_peer or len(set(self.wanted)) != 1:
            return 0
        return self.wanted[0]

    def unmatched(self) -> Int64s:
        """Return the rows of the static masks that no node with room satisfies before any eviction."""
        return np.array([row for row, mask in self._masks.items() if not (mask & self._open).any()], np.int64)

    def _static_masks(self, waiting: Sequence[int]) -> dict[int, Bools]:
        rows = self._session.facts.shapes.mask[self._session.facts.pods.shape[list(waiting)]].tolist()
        return {row: self._session.policy.vectors.masks[row] for row in sorted(set(rows))}

    def _some_node_matches(self, victims: Int64s) -> bool:
        if not self._masks:
            return True
        reachable = self._open.copy()
        nodes = self._session.columns.node[victims]
        reachable[nodes[nodes >= 0]] = True
        return all(bool((mask & reachable).any()) for mask in self._masks.values())

    def _requirements(self, aggressor: Portion) -> list[tuple[Int64s, list[int]]]:
        """Return, for each required level of inner sub-groups, every node's domain and the amounts to hold."""
        session = self._session
        group = session.snapshot.groups[aggressor.group]
        wanted: dict[tuple[str, str], list[int]] = {}
        for at, subgroup in enumerate(group.subgroups):
            row = SubGroupRow(aggressor.root + at)
            asked = [] if subgroup.leaf else session.policy.together(GroupRow(aggressor.group), row)
            for tree, level in [(each.tree, each.level) for each in asked if each.level]:
                amount = sum(wanted_by(session, [int(pod) for pod in aggressor.pods(row)]))
                wanted.setdefault((tree, level), []).append(amount)
        return [(session.view.label_codes(level), amounts) for (_, level), amounts in wanted.items()]

    def domains_can_hold(self, capacity: Int64s) -> bool:
        """Return whether the domains of each required level can hold their amounts; ``capacity`` [N] is by node."""
        for codes, amounts in self._domains:
            # Code 0 stands for nodes without the label, which are no domain.
            sums = np.bincount(codes, weights=capacity)[1:]
            if not fits_greedily(amounts, [int(c) for c in sums]):
                return False
        return True

    def _nodes_can_hold(self, capacity: Int64s) -> bool:
        # Each pod takes room on one node, so no more nodes than pods can matter.
        largest = np.sort(capacity)[::-1][: max(1, len(self.wanted))]
        return fits_greedily(self.wanted, [int(c) for c in largest], stop_at_zero=True)


_SHARING: Final = frozenset({KIND_FRACTION, KIND_MEMORY})


class Devices:
    """Whether a node would have a device for a pod without some victims, where pods share devices.

    Amounts are not enough there: half of each of two devices is no device. Like a filter, this only rejects what a
    simulation would reject.
    """

    def __init__(self, session: Session, shape: int, wanted: int) -> None:
        """Prepare for a pod of ``shape`` that asks for ``wanted`` thousandths of whole GPUs; nothing is evicted yet."""
        facts, columns = session.facts, session.columns
        self._session = session
        self._wanted = wanted
        self._free: Int64s = (columns.idle + columns.releasing) @ facts.nodes.gpu_weight
        self._held: Int64s = columns.slot_allocated - columns.slot_releasing
        self._counts_twice: Int64s = np.zeros(len(self._free), np.int64)
        """[N] Promised devices, which count as well as the pods that leave them, in the peer's books."""
        if facts.nodes.books_as_peer:
            shared = np.searchsorted(facts.nodes.slot_start, np.flatnonzero(columns.slot_used > 0), side="right") - 1
            self._counts_twice += (columns.idle[:, GPU] + columns.used[:, GPU]) // GPU_UNIT - facts.nodes.gpu_count
            np.add.at(self._counts_twice, shared, 1)
        slots = np.arange(len(self._held))
        memory = facts.nodes.gpu_memory[np.searchsorted(facts.nodes.slot_start, slots, side="right") - 1]
        asked = memory + 1  # more than there is: a pod that asks for whole GPUs finds none on a device in use
        if facts.shapes.kind[shape] in _SHARING:
            by_memory = facts.shapes.kind[shape] == KIND_MEMORY
            asked = facts.shapes.memory[shape] if by_memory else (facts.shapes.portion[shape] * memory).astype(np.int64)
        self._lacking: Int64s = asked - (memory - self._held)
        """[S] MiB that each shared device has too little for the pod."""
        self._known: dict[int, tuple[int, list[int], int]] = {}

    @classmethod
    def of(cls, session: Session, waiting: Sequence[int]) -> "Devices | None":
        """Return the check for the pods ``waiting``; None if it would reject nothing, or amounts are enough."""
        facts, columns, shapes = session.facts, session.columns, session.facts.pods.shape[list(waiting)]
        if not len(shapes) or not columns.slot_used.any() or facts.shapes.claimed.any():
            return None
        shape, kinds = int(shapes[0]), facts.shapes.kind[shapes]
        if (kinds == KIND_WHOLE).all():
            found = cls(session, shape, min(wanted_by(session, waiting)))
        elif (shapes == shape).all() and kinds[0] in _SHARING:
            found = cls(session, shape, GPU_UNIT)
        else:
            return None
        # A device with room, or a node with enough, before any victim goes: then this check rejects nothing.
        has_room = (columns.slot_used > 0) & (found._held != 0) & (found._lacking <= 0)
        return None if has_room.any() or (found._free >= found._wanted).any() else found

    def begin(self) -> "Freed":
        """Return the devices that are free without any victim."""
        return Freed(self)

    def place(self, pod: int) -> tuple[int, list[int], int]:
        """Return the node of ``pod``, its shared devices, and what it holds: MiB of each, or thousandths of GPUs."""
        known = self._known.get(pod)
        if known is None:
            facts, columns = self._session.facts, self._session.columns
            shape, node = int(facts.pods.shape[pod]), int(columns.node[pod])
            slots: list[int] = []
            if facts.shapes.kind[shape] in _SHARING:
                slots = [slot for slot in columns.placement_slots[columns.placement[pod]].tolist() if slot >= 0]
            if node < 0:
                amount = 0
            elif slots:
                by_memory = facts.shapes.kind[shape] == KIND_MEMORY
                whole, part = facts.nodes.gpu_memory[node], facts.shapes.portion[shape]
                amount = int(facts.shapes.memory[shape]) if by_memory else int(part * whole)
            else:
                amount = int(accepted_gpu(facts, shape, node))
            known = self._known[pod] = node, slots, amount
        return known

    def suffice(self, node: int, freed: int) -> bool:
        """Return whether whole GPUs suffice on ``node``: the free ones, and ``freed`` thousandths on top."""
        return int(self._free[node]) + freed >= self._wanted

    def counted_twice(self, node: int) -> int:
        """Return how many devices of ``node`` count for a promise as well as for the pods that leave them.

        Only the peer's books count so. While some do, a device that becomes free makes up for one of them
        (``slot_booking``). That is when another pod is on it as it becomes free; with no other pod, two must count
        twice.
        """
        return int(self._counts_twice[node])

    def has_leavers(self, slot: int) -> bool:
        """Return whether pods are leaving a shared device already."""
        return bool(self._session.columns.slot_releasing[slot] > 0)

    def is_free(self, slot: int, freed: int) -> bool:
        """Return whether no pod is left on a shared device after ``freed`` MiB are given up."""
        return freed >= int(self._held[slot])

    def has_room(self, slot: int, freed: int) -> bool:
        """Return whether the pod fits beside others on a shared device after ``freed`` MiB are given up."""
        # Without any pod left the device is a free one, and `is_free` counts it.
        return freed >= int(self._lacking[slot]) and freed != int(self._held[slot])


class Freed:
    """The devices that are free without the victims added so far."""

    def __init__(self, devices: Devices) -> None:
        """Begin without victims."""
        self._devices = devices
        self._slots: dict[int, tuple[int, int]] = {}
        self._nodes: dict[int, tuple[int, int]] = {}
        self.enough = False
        """Whether some node has what a pod asks for."""

    def add(self, pods: Sequence[int]) -> bool:
        """Add victims, and return whether they are enough by now."""
        devices = self._devices
        for pod in pods:
            if self.enough:
                break
            node, slots, amount = devices.place(pod)
            if node < 0:
                continue
            if not slots:
                self._give(node, amount, 0)
            for slot in slots:
                memory, count = self._slots.get(slot, (0, 0))
                self._slots[slot] = memory + amount, count + 1
                self.enough = self.enough or devices.has_room(slot, memory + amount)
                # A device becomes free once, with the victim that empties it. Later victims on it, with nothing to
                # give, must not add it again.
                if devices.is_free(slot, memory + amount) and not (count and devices.is_free(slot, memory)):
                    self._give(node, GPU_UNIT, 1 if count or devices.has_leavers(slot) else 2)
        return self.enough

    def _give(self, node: int, amount: int, counted: int) -> None:
        """Add what a node has free: nothing for a device if ``counted`` or more count twice, one less from then on."""
        freed, once = self._nodes.get(node, (0, 0))
        if counted and self._devices.counted_twice(node) - once >= counted:
            self._nodes[node] = freed, once + 1
        else:
            self._nodes[node] = freed + amount, once
            self.enough = self.enough or self._devices.suffice(node, freed + amount)


AT_A_TIME: Final = 64
"""The number of victim sets rejected by domains after which the budget is asked again."""


@attrs.frozen(kw_only=True)
class Terms:
    """The inputs for the outer scenarios of one probe."""

    aggressor: Portion
    waiting: tuple[int, ...]
    recorded: Batches
    free: Int64s
    """[N] Thousandths of GPUs that nodes have without evictions."""
    feasible: NodeRows
    filters: Filters
    devices: Devices | None
    goes_on: Callable[[], bool]
    """Whether there is time for more victims, asked because filters may reject sets up to the whole cluster."""
    reach: Reach | None = None
    by_node: bool = False
    """Whether outer scenarios may be left out if the victims of no node of the group that was added last can serve."""

    def outer(self, session: Session, batches: Batches) -> Outer:
        """Return the outer scenario with ``batches``."""
        return Outer(
            view=session.view,
            aggressor=GroupRow(self.aggressor.group),
            waiting=self.waiting,
            wanted=self.filters.wanted,
            recorded=self.recorded,
            batches=batches,
            free=self.free,
            feasible=self.feasible,
        )


class PlainVictims:
    """Victims taken group by group in Python: the plain form."""

    def __init__(self, session: Session, victims: GroupRows) -> None:
        """Fill a heap with the groups ``victims``."""
        self._session = session
        self._template = GroupHeap(session, victims=True)
        self._template.fill(victims)
        self.member: Bools = np.zeros(len(session.snapshot.groups), np.bool_)
        """[G] The groups that may lose pods."""
        self.member[victims] = True

    def outers(self, terms: Terms) -> Iterator[Outer]:
        """Yield the outer scenarios that pass the filters: first without new victims, then after each added batch."""
        session = self._session
        victims = self._template.copy()
        known = set(terms.recorded.pods.tolist())
        held = held_by(session, sorted(known))
        batches: list[Batch] = []
        while True:
            # A new object for each set: generators may keep what they were given.
            taken = Batches.of(batches)
            if terms.filters.accept(np.concatenate([terms.recorded.pods, taken.pods]), held):
                yield terms.outer(session, taken)
            batch = _next_batch(victims, known)
            if batch is None:
                return
            batches.append(batch)
            held = held + held_by(session, batch)


def _next_batch(victims: GroupHeap, known: set[int]) -> Batch | None:
    """Return the batch of the last-ranked group, and push the rest of that group back."""
    while (portion := victims.pop()) is not None:
        pods, rest = give_up(portion, known)
        if rest is not None:
            victims.push(rest)
        if len(pods):
            return tuple(pods.tolist())
    return None


def give_up(portion: Portion, known: set[int]) -> tuple[Int64s, Portion | None]:
    """Return the pods that ``portion`` gives up next, and its rest, if any.

    A group with ``known`` victims gives up nothing in this step, and its remaining pods later.
    """
    pods, more = portion.next_victims()
    if not len(pods):
        return pods, None
    everything = portion.pods()
    if known.intersection(pods.tolist()):
        # Known victims are gone from the group already; its rest comes back to the heap with its own rank.
        rest = everything[[int(pod) not in known for pod in everything]]
        return rest[:0], portion.part(rest) if len(rest) else None
    return pods, portion.part(everything[~np.isin(everything, pods)]) if more else None


class CompiledVictims:
    """Victims from a kernel, which takes group after group as long as the filters reject the set."""

    def __init__(self, session: Session, states: GroupStates, member: Bools) -> None:
        """Prepare to take from the groups in ``member`` [G]."""
        self._session = session
        self._states = states
        self.member = member
        """[G] The groups that may lose pods."""

    def outers(self, terms: Terms) -> Iterator[Outer]:
        """Yield the outer scenarios that pass the filters: first without new victims, then after each added batch.

        They end when the budget allows no more.
        """
        session = self._session
        state = self._begin(terms)
        parts: dict[int, Portion] = {}
        known = set(terms.recorded.pods.tolist())
        found, refused = prefix.accepts(state), 0
        freed, added = terms.devices.begin() if terms.devices is not None else None, 0
        if freed is not None:
            freed.add(terms.recorded.pods.tolist())
        while True:
            if found and freed is not None and not freed.enough:
                taken = int(state.state[prefix.PODS])
                found, added = freed.add(state.pods[added:taken].tolist()), taken
            if found and self._is_ruled_out(terms, state):
                found = False
            if found and terms.filters.domains_can_hold(state.capacity):
                count, pods = state.state[prefix.BATCHES], state.state[prefix.PODS]
                # Views, not copies: more victims are written behind their ends, and most outer scenarios are dropped at
                # once.
                yield terms.outer(session, Batches(state.pods[:pods], state.start[: count + 1]))
            elif found:
                refused += 1
                # The kernel asks for time by itself only if it finds nothing; sets that pass it and fail here would
                # never be counted.
                if refused % AT_A_TIME == 0 and not terms.goes_on():
                    return
            ended = prefix.extend(session.facts, session.columns, session.policy.rules, session.policy.vectors, state)
            if ended == prefix.EXHAUSTED or (ended == prefix.PAUSED and not terms.goes_on()):
                return
            found = self._take(state, parts, known) if ended == prefix.NOT_PLAIN else ended == prefix.ACCEPTED

    def propose_first(self, group: int) -> int:
        """Find the first scenario for ``group`` whose victims are on one node, and leave it in ``states.probe``.

        Return the result of ``kai.facts.kernels.prefix.propose_first``.
        """
        session, states = self._session, self._states
        states.fill(self.member)
        return propose_first(
            session.facts,
            session.columns,
            session.policy.rules,
            session.policy.vectors,
            states.arrays,
            states.probe,
            group,
        )

    def _begin(self, terms: Terms) -> Prefix:
        session = self._session
        self._states.fill(self.member)
        wanted, masks = sorted(terms.filters.wanted, reverse=True), terms.filters.unmatched()
        state = self._states.prefix(len(wanted), len(masks))
        # Copied into memory of the states: the kernel adds to it, and ``terms.free`` serves other probes as well.
        state.capacity[:] = terms.free
        state.wanted[:] = wanted
        state.masks[:] = masks
        # Only the masks that no node with room satisfies are tracked, so none is reached at first.
        state.reached[:] = False
        prefix.begin(session.facts, session.columns, session.policy.vectors, state, terms.recorded.pods)
        if terms.by_node:
            prefix.choose_by_node(state, terms.filters.each)
        return state

    def _is_ruled_out(self, terms: Terms, state: Prefix) -> bool:
        """Return whether the victims of the last batch's node give nodes that plugins rule out; remember the node."""
        pods = state.state[prefix.PODS]
        if not terms.by_node or terms.reach is None or not pods:
            return False
        victim = state.pods[pods - 1 : pods]
        node = int(self._session.columns.node[victim[0]])
        if node < 0 or state.spread[node]:
            return False
        is_ruled_out = terms.reach.is_ruled_out(victim)
        # The kernel passes over further victims on this node without a return to Python.
        state.useless[node] = is_ruled_out
        return is_ruled_out

    def _take(self, state: Prefix, parts: dict[int, Portion], known: set[int]) -> bool:
        """Take victims from a group that the kernel cannot handle; return whether the filters accept the set."""
        session = self._session
        group = int(state.state[prefix.GROUP])
        pods, rest = give_up(parts.pop(group) if group in parts else session.portion(group), known)
        if rest is not None:
            parts[group] = rest
            if session.policy.rules.elastic_key >= 0:
                state.heap.keys[group, session.policy.rules.elastic_key] = rest.elastic_state()
            state.heap.amounts[group] = rest.counted_amounts()
            prefix.put_back(session.facts, session.columns, session.policy.rules, state)
        if not len(pods):
            return False
        prefix.take(session.facts, session.columns, session.policy.vectors, state, pods)
        return prefix.accepts(state)
