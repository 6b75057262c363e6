"""Fair shares: divides the cluster among queues, orders and bounds queues, and decides who may reclaim from whom.

CPU, memory and GPUs are divided independently, level by level. Every queue gets its quota up to its request. The
surplus goes by priority and weight (corrected by past usage). A queue's share is divided among its children.

Source: the peer's plugins/proportion.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

import attrs
import numpy as np
from attrs.validators import ge

from kai.framework import (
    ACCEPTED,
    ACTIVE_ALLOCATED,
    ACTIVE_USED,
    GPU,
    GPU_UNIT,
    SHARED_RESOURCES,
    UNLIMITED,
    Bools,
    Cause,
    Column,
    Extension,
    FairShares,
    Float64s,
    GroupRow,
    GroupRows,
    Int64s,
    PodRows,
    Scenario,
    SessionView,
    Shape,
    Status,
    Verdict,
    Victims,
    within,
)
from kai.framework.division import divide
from kai.framework.fairness import refusal
from kai.plugins.proportion.reclaim_rules import (
    Judge,
    LevelPairs,
    bound_groups,
    fits_share,
    greedy_queues,
    is_beyond_reach,
    models_owed,
)

SCALING_POD = "scaling-pod"
_SCALES: Final = Column(read=lambda labels, _: float(labels["app"] == SCALING_POD), otherwise=0.0)
"""Whether a pod is labelled as a scaling pod."""
_UNITS: Final = (1.0, 1.0, float(GPU_UNIT))
_ROUNDING: Final = 1e-12
"""The part of a number that a few sums and products may round off."""


@attrs.frozen(kw_only=True)
class Proportion:
    """Divide by quota, priority and weight.

    ``k`` says how strongly past usage lowers a weight; ``saturation_multiplier`` (1 or more) makes reclaim shyer.
    ``scaling_namespace`` is where scaling pods are: elsewhere a pod that is labelled like one takes what it asks for.
    ``queue_priority_in_quota_reclaim``: a queue that stays within its quota takes from queues of lower priority what
    these have within theirs, and goes before them.
    """

    k: float = attrs.field(default=1.0, validator=ge(0.0))
    saturation_multiplier: float = attrs.field(default=1.0, validator=ge(1.0))
    scaling_namespace: str = "kai-scale-adjust"
    queue_priority_in_quota_reclaim: bool = False

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Divide once; the shares hold for the whole cycle, and only the usage of queues changes."""
        total = cluster_total(session, self.scaling_namespace)
        requested = queue_requests(session)
        models = self._models(session)
        shares = self._divide(session, total, requested, models)
        # One for the session: the engine's kernels keep its arrays and judge with them by themselves.
        judge = Judge(session, self.saturation_multiplier)
        pairs: dict[int, LevelPairs] = {}

        def may_reclaim(group: GroupRow, wanted: Float64s) -> Verdict:
            if fits_share(session, group, wanted):
                return ACCEPTED
            return refusal(int(session.queue_of(group)))

        def filter_queues(aggressor: GroupRow, cause: Cause) -> Bools | None:
            if cause is not Cause.RECLAIM:
                return None
            queue = int(session.queue_of(aggressor))
            if queue not in pairs:
                pairs[queue] = LevelPairs.of(session, queue)
            return greedy_queues(session, aggressor, pairs[queue])

        def hopeless(aggressor: GroupRow, pods: PodRows, victims: GroupRows, cause: Cause) -> bool:
            if cause is not Cause.RECLAIM:
                return False
            pair = pairs[int(session.queue_of(aggressor))]
            return is_beyond_reach(session, aggressor, pods, victims, pair)

        def before_search(aggressor: GroupRow, cause: Cause) -> None:
            if cause is Cause.RECLAIM:
                judge.remember(aggressor)

        def accept(scenario: Scenario, cause: Cause) -> Verdict:
            if cause is not Cause.RECLAIM:
                return ACCEPTED
            return judge.judge(scenario)

        victims = Victims(
            queues=filter_queues,
            hopeless=hopeless,
            may_reclaim=may_reclaim,
            before_search=before_search,
            accept=accept,
            accepts_by_victims=True,
            fairness=judge.fairness,
        )
        spare = _draining(session)
        # Searches may ask the rules of fairness instead of a plugin only if no other rule spares groups.
        return shares, victims if spare is None else attrs.evolve(victims, groups=spare, fairness=None)

    def _models(self, session: SessionView) -> Int64s | None:
        """Return int64[Q, M]: what queues are owed of GPU models; None, and no work, without a quota of one."""
        if not session.facts.queues.model_quota.any():
            return None
        parents_first = np.concatenate([family.rows for family in families_of(session)])
        return models_owed(session, parents_first, model_pools(session, self.scaling_namespace))

    def _divide(
        self,
        session: SessionView,
        total: Float64s,
        requested: Float64s,
        models: Int64s | None,
        factors: Float64s | None = None,
    ) -> FairShares:
        """Return the shares of all queues; ``factors`` [Q, 3] multiply their weights, None: none does."""
        facts = session.facts.queues
        shares = np.zeros((len(session.snapshot.queues), SHARED_RESOURCES), np.float64)
        for family in families_of(session):
            amounts = total if family.parent < 0 else shares[family.parent]
            asked = requested[family.rows]
            for resource, terms in enumerate(family.terms):
                unit = _UNITS[resource]
                out = np.zeros(len(family.rows), np.float64)
                divide(
                    float(amounts[resource]) / unit,
                    family.order,
                    family.priority,
                    terms.quota,
                    terms.limit,
                    terms.weight if factors is None else terms.weight * factors[family.rows, resource],
                    terms.usage,
                    asked[:, resource] / unit,
                    self.k,
                    out,
                )
                shares[family.rows, resource] = out * unit
        # GPUs alone are divided in another unit than the one that is counted in.
        shares[:, GPU] = without_rounding(shares[:, GPU], requested[:, GPU])
        # A negative quota is none: such a queue is bounded by its limit alone.
        allocatable = np.where(facts.quota < 0, facts.limit, np.maximum(facts.quota, shares))
        capped = np.where(facts.limit < 0, allocatable, np.minimum(allocatable, facts.limit))
        return FairShares(
            fair_share=shares,
            allocatable=np.where(facts.quota < 0, facts.limit, capped),
            total=total,
            requested=requested,
            takes_by_priority=self.queue_priority_in_quota_reclaim,
            divide=partial(self._divide, session, total, requested, models),
            models=models,
            bound=None if models is None else bound_groups(session),
            past_use=self._past_use(session, factors),
        )

    def _past_use(self, session: SessionView, factors: Float64s | None) -> Float64s | None:
        """Return float64[Q]: past usage by what the weight of a queue is among siblings, of the resource with the most.

        None where past usage plays no part.
        """
        if not self.k:
            return None
        past = np.zeros(len(session.snapshot.queues), np.float64)
        for family in families_of(session):
            for resource, terms in enumerate(family.terms):
                if not terms.usage.any():
                    continue
                weight = terms.weight if factors is None else terms.weight * factors[family.rows, resource]
                # Siblings without a weight share by quota alone, and are alike here.
                portion = weight / weight.sum() if weight.any() else np.full(len(weight), 1 / len(weight))
                # A queue without a weight among others has no claim by its past.
                used = np.where(terms.usage > 0, np.inf, 0.0)
                np.divide(terms.usage, portion, out=used, where=portion > 0)
                past[family.rows] = np.maximum(past[family.rows], used)
        return past if past.any() else None


def _draining(session: SessionView) -> Callable[[GroupRow, GroupRows, Cause], Bools] | None:
    """Return the filter that spares work which started in a window that drains, while it is closed; None without."""
    queues = session.snapshot.queues
    known = session.once("draining queues", (queues,), lambda: _draining_queues(session))
    if not known:
        return None
    started = session.last_start

    def mark() -> Bools:
        spared = np.zeros(len(started), np.bool_)
        for queue, windows in known.items():
            for row in np.flatnonzero((session.facts.groups.queue == queue) & ~np.isnan(started)).tolist():
                spared[row] = any(covers(float(started[row])) for covers in windows)
        return spared

    # Marked on the first question: most cycles search for no victims.
    spared = cache(mark)

    def filter_victims(_: GroupRow, victims: GroupRows, cause: Cause) -> Bools:
        return ~spared()[victims] if cause is Cause.RECLAIM else np.ones(len(victims), np.bool_)

    return filter_victims


def _draining_queues(session: SessionView) -> Mapping[int, Sequence[Callable[[float], bool]]]:
    """Return whether closed windows that drain cover an instant, for each queue with such on its way to the top."""
    queues, found = session.snapshot.queues, {}
    for queue in range(len(queues)):
        above = [windows for at in session.path_to(queue) if (windows := queues[at].windows) is not None]
        draining = [each.covers for windows in above for each in windows.draining]
        if draining:
            found[queue] = draining
    return found


def without_rounding(shares: Float64s, asked: Float64s) -> Float64s:
    """Return ``shares`` [Q], which were divided in other units, without the rounding errors of the conversion.

    Holds: a queue that gets its whole request has exactly that, and a number of six decimals is exact, as quotas are
        (``kai.intake.queues``). 2.01 devices times 1000 is less than 2010 in floating point.
    """
    for exact in (np.round(shares, 6), asked):
        shares = np.where(np.abs(shares - exact) <= _ROUNDING * exact, exact, shares)
    return shares


class ResourceTerms(NamedTuple):
    """What each queue of a family has of one resource, in the unit that remainders are handed out in."""

    quota: Float64s
    limit: Float64s
    weight: Float64s
    usage: Float64s


class Family(NamedTuple):
    """The children of one queue, or the queues at the top."""

    parent: int
    rows: Int64s
    order: Int64s
    priority: Int64s
    terms: tuple[ResourceTerms, ...]


def families_of(session: SessionView) -> tuple[Family, ...]:
    """Return the families of all queues, each after that of its parent."""
    # What facts say of queues besides their shares follows from the queues alone.
    return session.once("families of queues", (session.snapshot.queues,), lambda: _make_families(session))


def _make_families(session: SessionView) -> tuple[Family, ...]:
    queues, facts = session.snapshot.queues, session.facts.queues
    weight = np.array([(q.weight.cpu, q.weight.memory, q.weight.gpu) for q in queues], np.float64).reshape(-1, 3)
    usage = np.array([(q.usage.cpu, q.usage.memory, q.usage.gpu) for q in queues], np.float64).reshape(-1, 3)
    children: dict[int, list[int]] = {}
    for row, queue in enumerate(queues):
        children.setdefault(queue.parent, []).append(row)
    out: list[Family] = []
    waiting = [-1] if queues else []
    while waiting:
        parent = waiting.pop()
        rows = np.array(children[parent], np.int64)
        terms = [
            ResourceTerms(
                quota=np.where(facts.quota[rows, at] < 0, UNLIMITED, facts.quota[rows, at] / unit),
                limit=np.where(facts.limit[rows, at] < 0, UNLIMITED, facts.limit[rows, at] / unit),
                weight=np.ascontiguousarray(weight[rows, at]),
                usage=np.ascontiguousarray(usage[rows, at]),
            )
            for at, unit in enumerate(_UNITS)
        ]
        # By age, then by name, since rows are sorted by name: so ties between remainders are broken.
        order = np.lexsort((rows, facts.created[rows])).astype(np.int64)
        out.append(Family(parent, rows, order, np.ascontiguousarray(facts.priority[rows]), tuple(terms)))
        # Parents first: a family divides what its parent was given.
        waiting += [row for row in children[parent] if row in children]
    return tuple(out)


def cluster_total(session: SessionView, scaling_namespace: str) -> Float64s:
    """Return float64[3]: the capacity of ready nodes, less what pods of other schedulers use there, in axis units.

    GPUs that no GPU pod may use, because scheduling is restricted and their node lacks the label, count nothing. Nor do
    scaling pods. They are known by their namespace too, since a label alone any user may write.
    """
    snapshot = session.snapshot
    inputs = (snapshot.nodes, snapshot.axis, session.parameters)
    total = session.once("what ready nodes have", inputs, lambda: _ready_total(session)).copy()
    rows = _pods_of_others(session, scaling_namespace)
    if not len(rows):
        return total
    taken = np.bincount(snapshot.pod_shape[rows], minlength=len(snapshot.shapes))
    # Others may hold GPUs that have failed since; less than nothing would count as no bound.
    return np.maximum(total - taken @ session.requested, 0.0)


def model_pools(session: SessionView, scaling_namespace: str) -> Int64s:
    """Return int64[M]: what the same nodes have of each GPU model that queues name, in thousandths of GPUs."""
    nodes, snapshot = session.facts.nodes, session.snapshot
    pools = np.zeros(session.facts.queues.model_quota.shape[1], np.int64)
    there = np.flatnonzero(_usable(session) & (nodes.model >= 0))
    np.add.at(pools, nodes.model[there], nodes.allocatable[there] @ nodes.gpu_weight)
    rows = _pods_of_others(session, scaling_namespace)
    rows = rows[nodes.model[snapshot.pod_node[rows]] >= 0]
    taken = session.requested[snapshot.pod_shape[rows], GPU].astype(np.int64)
    np.subtract.at(pools, nodes.model[snapshot.pod_node[rows]], taken)
    return np.maximum(pools, 0)


def _pods_of_others(session: SessionView, scaling_namespace: str) -> PodRows:
    """Return the pods of other schedulers on ready nodes, without scaling pods."""
    nodes, snapshot, rows = session.facts.nodes, session.snapshot, session.pods_of_others()
    if not len(rows):
        return rows
    # What a reservation pod holds, the pods that share its device use, and these are not of other schedulers.
    rows = rows[(snapshot.pod_node[rows] >= 0) & ~snapshot.pod_reservation[rows]]
    rows = rows[nodes.ready[snapshot.pod_node[rows]] & ((ACTIVE_USED >> snapshot.pod_status[rows]) & 1 > 0)]
    scaling = rows[session.pod_column(_SCALES)[rows] > 0].tolist()
    ours = [row for row in scaling if snapshot.pods[row].namespace == scaling_namespace]
    return rows[~np.isin(rows, ours)] if ours else rows


def _ready_total(session: SessionView) -> Float64s:
    """Return float64[3]: the capacity of ready nodes, whichever pods use it."""
    nodes = session.facts.nodes
    amounts = nodes.allocatable[nodes.ready].sum(axis=0)
    gpus = int(nodes.allocatable[_usable(session)].sum(axis=0) @ nodes.gpu_weight)
    return np.array([amounts[0], amounts[1], gpus], np.float64)


def _usable(session: SessionView) -> Bools:
    """Return bool[N]: the ready nodes whose GPUs pods may use."""
    ready, parameters = session.facts.nodes.ready, session.parameters
    if not parameters.restrict_node_scheduling:
        return ready
    usable: Bools = ready & (session.label_codes(parameters.gpu_worker_label) > 0)
    return usable


def queue_requests(session: SessionView) -> Float64s:
    """Return float64[Q, 3]: usage and demand of each queue, summed up the tree; gated pods have no demand yet."""
    snapshot, facts = session.snapshot, session.facts
    out = session.columns.queue_used - held_together(session)
    # As the snapshot has it, not as the session will: shares are divided once, before any decision.
    pending = np.flatnonzero(snapshot.pod_status == Status.PENDING)
    pending = pending[snapshot.pod_group[pending] >= 0]
    queues: Int64s = facts.groups.queue[snapshot.pod_group[pending]] if len(snapshot.groups) else np.zeros(0, np.int64)
    known = queues >= 0
    wanted = np.zeros_like(out)
    # Not `+=`, which would count only one pod of each queue.
    np.add.at(wanted, queues[known], session.requested[snapshot.pod_shape[pending[known]]])
    for row in range(len(snapshot.queues)):
        if wanted[row].any():
            above = row
            while above >= 0:
                out[above] += wanted[row]
                above = int(facts.queues.parent[above])
    return out


def held_together(session: SessionView) -> Float64s:
    """Return float64[Q, 3]: how much the books exceed real usage, because pods of one queue use one claim together.

    The books are right as soon as the plugin that allocates claims has opened; shares are divided before.
    """
    snapshot, facts = session.snapshot, session.facts
    out = np.zeros((len(snapshot.queues), SHARED_RESOURCES), np.float64)
    catalog = snapshot.catalog.claims.claims
    claiming = np.array(snapshot.by_shape("shapes with claims", _claims), np.bool_)
    seen: set[tuple[tuple[str, str], int]] = set()
    for pod in session.pods_of_shapes(claiming).tolist() if claiming.any() else ():
        group = int(snapshot.pod_group[pod])
        queue = int(facts.groups.queue[group]) if group >= 0 else -1
        if queue < 0 or not within(int(snapshot.pod_status[pod]), ACTIVE_ALLOCATED):
            continue
        for reference in snapshot.shapes[int(snapshot.pod_shape[pod])].constraints.claims:
            key = (snapshot.pods[pod].namespace, reference.claim)
            if key not in catalog:
                continue
            above = queue if (key, queue) in seen else -1
            seen.add((key, queue))
            while above >= 0:
                out[above, GPU] += catalog[key].gpus * GPU_UNIT - snapshot.catalog.gpus.known_not_had(catalog[key])
                above = int(facts.queues.parent[above])
    return out


def _claims(shape: Shape) -> bool:
    return bool(shape.constraints.claims)
