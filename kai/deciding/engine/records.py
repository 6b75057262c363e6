"""Records of why groups wait, and the objections of all nodes to a pod.

Groups that wait for the same reason share one note, which becomes a record of each when it is read.

A kernel stops at the first objection of a node. A user who reads why a job waits wants all of them, as the peer's
conditions list them. ``Objections`` therefore counts each scarce resource, and each queue whose quota or limit forbids
the pod.

Source: the peer's FittingError of nodes and NewFitErrorInsufficientResource; its capacity policy for single nodes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from kai.deciding.engine.world import World
from kai.facts.kernels import booking, fit
from kai.facts.kernels.booking import charge_of
from kai.facts.kernels.columns import Facts, GroupFacts
from kai.facts.kernels.fit import lasting_quotas
from kai.facts.model.axis import GPU, GPU_UNIT, Bools, Float64s, GroupRows, Int64s, NodeRows, PodRows
from kai.facts.model.budgets import STOP
from kai.facts.model.groups import DEFAULT_SUBGROUP, Queue
from kai.facts.model.pod import GpuKind
from kai.facts.state.facts import named_models
from kai.facts.state.snapshot import Snapshot
from kai.framework.verdict import ACCEPTED, Code, Fact, NodeReason, Reason, Shortage, Verdict


@attrs.define
class GroupRecord:
    """Why a group waits after this cycle."""

    reasons: list[Reason] = attrs.field(factory=list)
    notes: list[Reason] = attrs.field(factory=list)
    """Explanations that the peer does not report, for example why a group may not reclaim."""
    pods: dict[int, Reason] = attrs.field(factory=dict)


class Records(Mapping[int, GroupRecord]):
    """The records of a cycle, by group row, ascending."""

    def __init__(self, snapshot: Snapshot, groups: GroupFacts) -> None:
        """Begin without records."""
        self._snapshot = snapshot
        self._groups = groups
        self._written: dict[int, GroupRecord] = {}
        self._known: Bools = np.zeros(len(snapshot.groups), np.bool_)
        # Position 0 is no reason, so columns begin as zeros.
        self._shared: list[tuple[Reason, ...]] = [()]
        """Reasons that several groups share; the columns below hold positions in this list."""

    # Most cycles refuse no groups together, so the arrays over all groups are allocated on demand.

    @cached_property
    def _refusal(self) -> Int64s:
        return np.zeros(len(self._known), np.int64)

    @cached_property
    def _pod(self) -> Int64s:
        return np.zeros(len(self._known), np.int64)

    @cached_property
    def _satisfied(self) -> Bools:
        return np.zeros(len(self._known), np.bool_)

    @cached_property
    def _notes(self) -> Int64s:
        return np.zeros(len(self._known), np.int64)

    def __getitem__(self, group: int) -> GroupRecord:
        """Return the record of ``group``.

        Raises: KeyError when nothing is known about it.
        """
        record = self._written.get(group)
        if record is not None:
            return record
        if not 0 <= group < len(self._known) or not self._known[group]:
            raise KeyError(group)
        return self._write(group)

    def __len__(self) -> int:
        return int(self._known.sum())

    def __iter__(self) -> Iterator[int]:
        yield from np.flatnonzero(self._known).tolist()

    def of(self, group: int) -> GroupRecord:
        """Return the record of ``group`` for changes; a new, empty one if there is none."""
        self._known[group] = True
        return self._written.get(group) or self._write(group)

    def refuse(self, group: int, reasons: Sequence[Reason]) -> None:
        """Add ``reasons`` to those for which ``group`` waits, each once."""
        known = self.of(group).reasons
        known.extend(reason for reason in reasons if reason not in known)

    def refuse_alike(self, groups: GroupRows, pods: PodRows, satisfied: Bools, reason: Reason) -> None:
        """Record the ``reason`` given to another group as the reason of each of ``groups`` [n].

        ``pods`` [n] are the pods that no node takes (-1: the reason is about no pod). ``satisfied`` [n] says whether
        the groups meet their minimum without them.
        """
        fresh = ~self._known[groups]
        mine = groups[fresh]
        self._shared.append((reason,))
        self._refusal[mine] = len(self._shared) - 1
        self._pod[mine] = pods[fresh]
        self._satisfied[mine] = satisfied[fresh]
        self._known[mine] = True
        # Only records that exist are written now; the others stay numbers in columns until they are asked for.
        for group, pod, enough in zip(groups[~fresh], pods[~fresh], satisfied[~fresh], strict=True):
            self._add(int(group), self._own(int(group), int(pod), reason, satisfied=bool(enough)), int(pod))

    def note_alike(self, groups: GroupRows, notes: Sequence[Reason]) -> None:
        """Replace the notes on each of ``groups``."""
        self._shared.append(tuple(notes))
        self._notes[groups] = len(self._shared) - 1
        self._known[groups] = True
        if self._written:
            for group in groups.tolist():
                if group in self._written:
                    self._written[group].notes = list(notes)

    # ------------------------------------------------------------------ writing out

    def _write(self, group: int) -> GroupRecord:
        record = self._written[group] = GroupRecord(notes=list(self._shared[self._notes[group]]))
        for reason in self._shared[self._refusal[group]]:
            pod = int(self._pod[group])
            self._add(group, self._own(group, pod, reason, satisfied=bool(self._satisfied[group])), pod)
        return record

    def _add(self, group: int, reason: Reason, pod: int) -> None:
        self.refuse(group, (reason,))
        if pod >= 0:
            self._written[group].pods[pod] = reason

    def _own(self, group: int, pod: int, reason: Reason, *, satisfied: bool) -> Reason:
        """Return ``reason`` with the names and numbers of ``group``, which has one leaf, and of its ``pod``."""
        if pod < 0:
            return reason
        leaf = self._snapshot.groups[group].subgroups[1].name
        minimum = int(self._groups.minimum[self._groups.first_subgroup[group] + 1])
        facts: dict[str, Fact] = {
            **reason.facts,
            "placed": 0,
            "minimum": minimum,
            "subgroup": leaf,
            "gang": minimum > 1,
            "single_leaf": leaf == DEFAULT_SUBGROUP,
            "satisfied": satisfied,
            "pod": self._snapshot.pods[pod].key,
            "pod_row": pod,
        }
        return attrs.evolve(reason, facts=facts)


RESOURCES = ("cpu", "memory", "gpu")
GPU_MEMORY = "gpu-memory"
OVER: Final = (
    fit.REFUSED_OVER_LIMIT,
    fit.REFUSED_OVER_QUOTA,
    fit.REFUSED_OVER_USER,
    fit.REFUSED_OVER_MODEL,
    fit.REFUSED_OVER_BUDGET,
)
"""Codes with which queues forbid a node."""


@attrs.frozen(eq=False)
class Objections:
    """The counted objections of nodes, and the inputs of the count: valid for other pods of the shape."""

    shape: int
    touches: int
    """The number of changes to the nodes' numbers when the objections were counted."""
    codes: bytes
    is_of_shape: bool
    """Whether every node is short of something: then the queue of a pod matters to none."""
    counts: Mapping[NodeReason, int]


def shortages(world: World, counts: Sequence[int]) -> Mapping[NodeReason, int]:
    """Return how many nodes lack which resource, from ``counts`` [R + 1]: each resource, then memory of a device."""
    names = (*world.snapshot.axis.names, GPU_MEMORY)
    # To users a lack of device memory is a lack of GPUs: it has that code, and a name of its own.
    codes = (*range(len(names) - 1), GPU)
    return {
        NodeReason(code=fit.SHORT_OF + codes[at], subject=names[at]): count for at, count in enumerate(counts) if count
    }


def shortage(world: World, shape: int, node: int, reason: NodeReason) -> Shortage | None:
    """Return the numbers behind a reason of `shortages`, in axis units; None for a reason of another kind."""
    if reason.code < fit.SHORT_OF:
        return None
    facts, rows = world.facts, np.array([node], np.int64)
    if reason.subject == GPU_MEMORY:
        memory = float(world.snapshot.shapes[shape].gpu.memory)
        return Shortage(requested=memory, used=0.0, capacity=float(facts.nodes.gpu_memory[node]))
    at = reason.code - fit.SHORT_OF
    requested, used = float(facts.shapes.request[shape, at]), float(world.columns.used[node, at])
    if at == GPU:
        requested = float(_wanted_gpus(world, shape, rows)[0])
        used += float(_shared_gpus(world, rows)[0])
    return Shortage(requested=requested, used=used, capacity=float(facts.nodes.allocatable[node, at]))


def _wanted_gpus(world: World, shape: int, nodes: NodeRows) -> Int64s:
    """Return the thousandths of GPUs that a pod requests from each node, without GPUs that plugins count."""
    if world.snapshot.shapes[shape].gpu.kind is GpuKind.MEMORY:
        return _counted_gpus(world, shape, nodes)
    amount = int(world.facts.shapes.request[shape, GPU] - world.facts.shapes.claimed[shape] * GPU_UNIT)
    return np.full(len(nodes), amount, np.int64)


def _counted_gpus(world: World, shape: int, nodes: NodeRows) -> Int64s:
    """Return the thousandths of GPUs that queues count for a pod on each of ``nodes``, as the kernel's check does."""
    facts, gpu = world.facts, world.snapshot.shapes[shape].gpu
    request = facts.shapes.request[shape]
    if gpu.sliced:
        return np.full(len(nodes), int(np.delete(facts.nodes.gpu_weight * request, GPU).sum()), np.int64)
    if not gpu.shared:
        return np.full(len(nodes), int(request[GPU] - facts.shapes.claimed[shape] * GPU_UNIT), np.int64)
    device = facts.nodes.gpu_memory[nodes]
    memory = gpu.memory if gpu.kind is GpuKind.MEMORY else (facts.shapes.portion[shape] * device).astype(np.int64)
    # Rounded up as the kernel books it: else the text would name less than was refused.
    hundredths: Int64s = (100 * memory + device - 1) // device
    return hundredths * gpu.devices * (GPU_UNIT // 100)


def _shared_gpus(world: World, nodes: NodeRows) -> Int64s:
    """Return the thousandths of GPUs on each of ``nodes`` that are shared by pods."""
    start = world.facts.nodes.slot_start
    used = np.concatenate([np.zeros(1, np.int64), np.cumsum(world.columns.slot_used > 0)])
    shared: Int64s = used[start[nodes + 1]] - used[start[nodes]]
    return shared * GPU_UNIT


def excesses(world: World, shape: int, group: int, nodes: NodeRows, codes: Int64s) -> Counter[NodeReason]:
    """Return which bounds of queues forbid ``nodes``, by the refusals in ``codes``, and how many nodes each forbids."""
    counts: Counter[NodeReason] = Counter()
    request = world.facts.shapes.request[shape]
    counts.update(_models_used_up(world, shape, group, nodes[codes == fit.REFUSED_OVER_MODEL]))
    for code in OVER[:3]:
        mine = nodes[codes == code]
        amounts = _counted_gpus(world, shape, mine)
        # There are many nodes and few amounts for which a pod may count on them.
        for amount, count in zip(*np.unique(amounts, return_counts=True), strict=True):
            wanted = np.array([request[0], request[1], amount], np.float64)
            verdict = excess(world, group, wanted, code)
            detail = verdict.reasons[0] if verdict.reasons else None
            counts[NodeReason(code=code, detail=detail)] += int(count)
    return counts


def _models_used_up(world: World, shape: int, group: int, nodes: NodeRows) -> Iterator[NodeReason]:
    """Yield for each of ``nodes`` the limit of its model that a pod would exceed there."""
    found: dict[tuple[int, int], NodeReason] = {}
    for node in nodes.tolist():
        model = int(world.facts.nodes.model[node])
        amount = int(booking.accepted_gpu(world.facts, shape, node))
        if (model, amount) not in found:
            detail = _model_excess(world, group, model, amount)
            found[model, amount] = NodeReason(code=fit.REFUSED_OVER_MODEL, detail=detail)
        yield found[model, amount]


def _model_excess(world: World, group: int, model: int, amount: int) -> Reason | None:
    """Return which queue above ``group`` may not use ``amount`` more thousandths of GPUs of ``model``."""
    facts, used = world.facts, world.columns.queue_models
    queue = int(facts.groups.queue[group])
    while queue >= 0:
        limit = float(facts.queues.model_limit[queue, model])
        if 0 <= limit < used[queue, model] + amount:
            known = world.snapshot.queues[queue]
            return Reason(
                code=Code.OVER_MODEL_LIMIT,
                facts={
                    "queue": known.title,
                    "queue_name": known.name,
                    "queue_row": queue,
                    "resource": "gpu",
                    "model": named_models(world.snapshot)[model],
                    "bound": limit,
                    "used": float(used[queue, model]),
                    "requested": float(amount),
                },
            )
        queue = int(facts.queues.parent[queue])
    return None


def excess(world: World, group: int, wanted: Float64s, code: int) -> Verdict:
    """Return the refusal ``code`` with the queue, resource and numbers that prove it."""
    if code == fit.REFUSED_OVER_BUDGET:
        return _over_budget(world, group, int(wanted[GPU]))
    if code == fit.REFUSED_OVER_USER:
        return _over_user(world, group, wanted)
    facts, columns = world.facts, world.columns
    over_limit = code == fit.REFUSED_OVER_LIMIT
    used = columns.queue_used if over_limit else columns.queue_fixed
    queue = int(facts.groups.queue[group])
    while queue >= 0:
        bounds = facts.queues.limit[queue] if over_limit else _lasting(facts, group, queue)
        for resource, name in enumerate(RESOURCES):
            bound = float(bounds[resource])
            # A queue beyond its bound refuses only requests for that resource: others make nothing worse.
            if wanted[resource] > 0 and 0 <= bound < used[queue, resource] + wanted[resource]:
                return Verdict.refused(
                    Code.OVER_LIMIT if over_limit else Code.OVER_QUOTA,
                    queue=world.snapshot.queues[queue].title,
                    queue_name=world.snapshot.queues[queue].name,
                    queue_row=queue,
                    resource=name,
                    bound=bound,
                    used=float(used[queue, resource]),
                    requested=float(wanted[resource]),
                    **_by_the_clock(world.snapshot.queues[queue], resource, bound, over_limit=over_limit),
                )
        queue = int(facts.queues.parent[queue])
    return ACCEPTED


def _over_user(world: World, group: int, wanted: Float64s) -> Verdict:
    """Return which queue does not let the user of ``group`` hold the amounts ``wanted`` [3] besides what it holds."""
    users, used = world.facts.users, world.columns.user_used
    account = int(users.account[group])
    while account >= 0:
        queue = int(users.queue[account])
        for resource, name in enumerate(RESOURCES):
            limit = float(users.limit[account, resource])
            if wanted[resource] > 0 and 0 <= limit < used[account, resource] + wanted[resource]:
                return Verdict.refused(
                    Code.OVER_USER_LIMIT,
                    user=world.snapshot.groups[group].holder,
                    queue=world.snapshot.queues[queue].title,
                    queue_name=world.snapshot.queues[queue].name,
                    queue_row=queue,
                    resource=name,
                    bound=limit,
                    used=float(used[account, resource]),
                    requested=float(wanted[resource]),
                    **_next_by_the_clock(world.snapshot.queues[queue], resource, limit, of_users=True),
                )
        account = int(users.above[account])
    return ACCEPTED


def _over_budget(world: World, group: int, gpu: int) -> Verdict:
    """Return which budget of the queue, or of a queue above it, does not allow thousandths of GPUs of a group.

    Units: GPU-microseconds; instants in seconds since the epoch.
    """
    facts, table = world.facts, world.snapshot.budgets
    queue = int(facts.groups.queue[group])
    while queue >= 0 and table is not None:
        for row in range(*facts.budgets.first[queue : queue + 2].tolist()):
            budget, left = table.bounding[row], int(facts.budgets.left[row])
            used, cost = int(world.columns.budget_used[row]), int(charge_of(facts, row, group, -1, gpu))
            duration = int(facts.budgets.duration[group])
            allowed = left > 0 if budget.enforce == STOP else duration >= 0 and left >= used + cost
            if allowed:
                continue
            owner, is_own = world.snapshot.queues[queue], queue == int(facts.groups.queue[group])
            return Verdict.refused(
                Code.BUDGET_USED,
                queue=owner.title,
                queue_name=owner.name,
                queue_row=queue,
                budget=budget.name,
                enforce=budget.enforce,
                amount=budget.amount,
                carried=budget.carried,
                spent=budget.spent,
                committed=used,
                requested=cost,
                gpus=gpu,
                seconds=duration / 1000,
                sliced=bool(table.unending[group]),
                opens=budget.since if budget.since > world.snapshot.now else None,
                is_open=budget.is_open,
                until=budget.until,
                timezone=budget.timezone,
                # Users of a queue may know each other; those of other queues below a parent are no business of theirs.
                users=budget.users if is_own else (),
                jobs=budget.jobs if is_own else (),
            )
        queue = int(facts.queues.parent[queue])
    return ACCEPTED


def _lasting(facts: Facts, group: int, queue: int) -> Float64s:
    found: Float64s = lasting_quotas(facts, np.array([group], np.int64), np.array([queue], np.int64))
    first: Float64s = found[0]
    return first


def _by_the_clock(queue: Queue, resource: int, bound: float, *, over_limit: bool) -> dict[str, Fact]:
    """Return from when on a bound holds that is still to come, or when it ends and what follows; nothing without.

    Units: instants in seconds since the epoch, amounts in axis units.
    """
    windows = queue.windows
    if windows is None:
        return {}
    known: dict[str, Fact] = {"timezone": windows.timezone}
    if not over_limit:
        # A higher quota to come is of no use: it falls again before work without an end has ended.
        since = [at for at, lower in windows.lower_quotas if lower.of(resource) == bound]
        return known | {"from": min(since)} if queue.quota.of(resource) != bound and since else {}
    return _next_by_the_clock(queue, resource, bound)


def _next_by_the_clock(queue: Queue, resource: int, limit: float, *, of_users: bool = False) -> dict[str, Fact]:
    """Return until when a limit of a queue, or of its users, holds, and what follows; nothing where it stays."""
    windows = queue.windows
    following = None if windows is None else windows.next_user_limit if of_users else windows.next_limit
    if windows is None or following is None or following[1].of(resource) == limit:
        return {}
    return {"timezone": windows.timezone, "until": following[0], "next": following[1].of(resource)}
