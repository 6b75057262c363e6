"""The fairness rules of reclaim: which queue may take what from which.

Two queues are compared at the level where their paths from the root part. The aggressor's queue must stay within its
fair share. A victim's queue must be above its allocatable amount, or above its quota while the aggressor's is within
its own. If the configuration lets priority decide, a victim's queue of lower priority may then be within its quota too.
Afterwards no queue on the aggressor's path may be more saturated than a sibling that lost something.

Quotas of GPU models add one right and one duty. A queue with less of a model than it deserves may take GPUs of it, for
work that is bound to it, from queues that hold more of it than they deserve. And no reclaim leaves a queue with less of
a model than it deserves, unless the queue had no more before.

Source: the peer's plugins/proportion/reclaimable; quotas of models are kai's own.
"""

import attrs
import numpy as np

from kai.framework import (
    ACCEPTED,
    CPU,
    GPU,
    MEMORY,
    Bools,
    Code,
    Float64s,
    GpuKind,
    GroupRow,
    GroupRows,
    Int64s,
    PodRows,
    Requirement,
    Scenario,
    SessionView,
    Shape,
    Status,
    Verdict,
)
from kai.framework.division import divide_models
from kai.framework.fairness import (
    BEYOND_QUOTA,
    FAIR,
    MODEL_OWED,
    NOT_JUSTIFIED,
    TOO_SATURATED,
    Claim,
    Fairness,
    Loss,
    find_greedy,
    find_level_pairs,
    judge,
    lasting_quotas,
    may_take_by_model,
)

RULES = {NOT_JUSTIFIED: "strategy", TOO_SATURATED: "saturation", BEYOND_QUOTA: "quota", MODEL_OWED: "model"}


def _fits(amounts: Float64s, bounds: Float64s) -> bool:
    """Return whether no amount exceeds its bound; a negative bound is none."""
    # Three numbers: a loop over them is quicker than four calls for whole arrays.
    return all(bound < 0 or amount <= bound for amount, bound in zip(amounts.tolist(), bounds.tolist(), strict=True))


def fits_share(session: SessionView, group: GroupRow, wanted: Float64s) -> bool:
    """Return whether the group's leaf queue stays within its fair share with ``wanted`` more.

    A group that cannot be taken back must stay within quota, too.

    Resources that the group does not ask for are compared as well: a queue above its share of CPU cannot reclaim GPUs.
    """
    queue = session.queue_of(group)
    if queue < 0:
        return False
    facts, columns = session.facts, session.columns
    if not _fits(columns.queue_used[queue] + wanted, facts.queues.fair_share[queue]):
        return False
    if facts.groups.preemptible[group]:
        return True
    (lasting,) = lasting_quotas(facts, np.array([group], np.int64), np.array([queue], np.int64))
    return _fits(columns.queue_fixed[queue] + wanted, lasting)


@attrs.frozen(eq=False)
class LevelPairs:
    """The pairs of queues in which the path of an aggressor's leaf queue and every other path part; -1: nowhere."""

    takers: Int64s
    givers: Int64s

    @classmethod
    def of(cls, session: SessionView, aggressor: int) -> "LevelPairs":
        """Return the pairs for the leaf queue ``aggressor``; [Q] each."""
        count = len(session.snapshot.queues)
        pairs = cls(np.empty(count, np.int64), np.empty(count, np.int64))
        find_level_pairs(session.facts, aggressor, pairs.takers, pairs.givers)
        return pairs


def greedy_queues(session: SessionView, aggressor: GroupRow, pairs: LevelPairs) -> Bools:
    """Return bool[Q]: which queues are greedy in the present state, so that their pods may be victims."""
    wanted, owner = session.chunk_amounts(aggressor), int(session.queue_of(aggressor))
    facts, columns = session.facts, session.columns
    return find_greedy(facts, columns, pairs.takers, pairs.givers, wanted, owner, int(facts.groups.bound[aggressor]))


def _counts_gpus_exactly(session: SessionView, pods: PodRows) -> bool:
    """Return whether a queue's loss equals its nodes' gain, and the request of ``pods`` their use: whole GPUs only."""
    shapes, nodes = session.facts.shapes, session.facts.nodes
    plain = not (
        shapes.claimed.any() or shapes.credit.any() or nodes.claimable.any() or session.columns.slot_used.any()
    )
    whole = bool((shapes.kind[session.facts.pods.shape[pods]] == GpuKind.WHOLE).all())
    return plain and whole and np.count_nonzero(nodes.gpu_weight > 0) == 1


def is_beyond_reach(
    session: SessionView, aggressor: GroupRow, pods: PodRows, victims: GroupRows, pairs: LevelPairs
) -> bool:
    """Return whether ``pods`` request more GPUs than are free and than queues can lose by the rules together.

    A queue loses pieces while it is above its allocatable amount, so it loses less than its excess plus one piece.
    """
    if not _counts_gpus_exactly(session, pods):
        return False
    facts, columns = session.facts, session.columns
    wanted, owner = session.chunk_amounts(aggressor), int(session.queue_of(aggressor))
    if may_take_by_model(facts, columns, owner, int(facts.groups.bound[aggressor]), wanted):
        return False  # queues may lose GPUs of the model although they have no more than their share
    held = session.placed(np.flatnonzero(np.isin(facts.pods.group, victims)).astype(np.int64))
    pieces = np.bincount(
        facts.pods.group[held], facts.shapes.request[facts.pods.shape[held], GPU], len(facts.groups.queue)
    )
    free = np.maximum(columns.idle[:, GPU] + columns.releasing[:, GPU], 0).sum()
    missing = float(facts.shapes.request[facts.pods.shape[pods], GPU].sum() - free)
    givers = pairs.givers[facts.groups.queue[victims]]
    for giver in np.unique(givers).tolist():
        taker = int(pairs.takers[pairs.givers == giver][0])
        bounds = facts.queues.allocatable[giver].copy()
        bounds[bounds < 0] = np.inf
        quota = facts.queues.quota[giver]
        if _fits(columns.queue_used[taker] + wanted, facts.queues.quota[taker]):
            bounds = np.minimum(bounds, np.where(quota < 0, np.inf, quota))
            if facts.queues.rank[taker] > facts.queues.rank[giver]:
                bounds[:] = 0  # what it has within its quota may go as well
        above = columns.queue_used[giver] - bounds
        if above[CPU] > 0 or above[MEMORY] > 0:
            return False  # it may lose GPUs for having too much of something else
        if above[GPU] > 0:
            missing -= above[GPU] + pieces[victims[givers == giver]].max() - 1
    return bool(missing > 0)


def models_owed(session: SessionView, order: Int64s, pools: Int64s) -> Int64s:
    """Return int64[Q, M]: what queues are owed of GPU models, in thousandths of GPUs.

    Shapes: order [Q] parents before their children, pools [M] what there is.
    Cost: O(P + Q x M).
    """
    facts, shapes = session.facts, session.snapshot.shapes
    quotas = facts.queues.model_quota
    limits, deserved = facts.queues.model_limit, np.zeros(quotas.shape, np.int64)
    bounded = np.where((limits >= 0) & ((quotas < 0) | (limits < quotas)), limits, quotas)
    waiting = _bound_and_waiting(session, bound_models(session)) if len(shapes) else np.zeros_like(deserved)
    divide_models(order, facts.queues.parent, bounded, pools, session.columns.queue_models, waiting, deserved)
    return deserved


def bound_models(session: SessionView) -> Int64s:
    """Return int64[K]: the one model that the nodes have which a shape selects; -1: several, or one without a name.

    Node selectors and required affinity count. Taints do not: a node may lose one tomorrow, and a job that tolerates
    none did not ask for what is left.
    """
    snapshot, models = session.snapshot, session.facts.nodes.model
    has_gpus = session.once(
        "nodes with GPUs", (snapshot.nodes,), lambda: np.array([bool(each.gpu_model) for each in snapshot.nodes])
    )

    def bound(shape: Shape) -> int:
        constraints, chosen = shape.constraints, has_gpus.copy()
        if constraints.node_selector:
            wanted = [Requirement(key, "In", (value,)) for key, value in constraints.node_selector]
            chosen &= session.node_labels.satisfies(wanted)
        if constraints.node_affinity is not None:
            chosen &= session.selected_nodes(constraints.node_affinity)
        found = np.unique(models[chosen])
        return int(found[0]) if len(found) == 1 else -1

    found = snapshot.by_shape("models that shapes are bound to", bound, snapshot.nodes, models)
    return session.once("bound models", (found,), lambda: np.array(found, np.int64))


def _bound_and_waiting(session: SessionView, bound: Int64s) -> Int64s:
    """Return int64[Q, M]: the GPUs that pods wait for that are bound to a model, by queue; gated pods wait for none."""
    snapshot, facts = session.snapshot, session.facts
    out = np.zeros(facts.queues.model_quota.shape, np.int64)
    pending = np.flatnonzero(snapshot.pod_status == Status.PENDING)
    pending = pending[(snapshot.pod_group[pending] >= 0) & (bound[snapshot.pod_shape[pending]] >= 0)]
    queues = facts.groups.queue[snapshot.pod_group[pending]]
    pending, queues = pending[queues >= 0], queues[queues >= 0]
    shapes = snapshot.pod_shape[pending]
    np.add.at(out, (queues, bound[shapes]), session.requested[shapes, GPU].astype(np.int64))
    return out


def bound_groups(session: SessionView) -> Int64s:
    """Return int64[G]: the GPU model that all pods of a group with GPUs are bound to; -1 without one.

    Cost: O(P), once.
    """
    bound = bound_models(session)

    def find() -> Int64s:
        pods, count = session.facts.pods, len(session.snapshot.groups)
        asking = np.flatnonzero((pods.group >= 0) & (session.requested[pods.shape, GPU] > 0))
        groups, models = pods.group[asking], bound[pods.shape[asking]]
        least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(least, groups, models)
        np.maximum.at(most, groups, models)
        return np.where(least == most, most, -1)

    facts = session.facts
    columns = facts.pods.group, facts.pods.shape, session.requested, bound
    return session.once("models that groups are bound to", columns, find)


class Judge:
    """Says whether victims may be taken, by what queues used when the search began, not by the simulated state."""

    def __init__(self, session: SessionView, multiplier: float) -> None:
        """Make room; ``multiplier`` makes saturation count for more."""
        self._session = session
        queues = len(session.snapshot.queues)
        self._begun = False
        self._claim = Claim(
            used=np.zeros((queues, 3), np.float64),
            fixed=np.zeros((queues, 3), np.float64),
            models=np.zeros_like(session.columns.queue_models),
            wanted=np.zeros(3, np.float64),
            group=np.zeros(1, np.int64),
            model=np.full(1, -1, np.int64),
            movable=session.parameters.allow_consolidating_reclaim,
            multiplier=multiplier,
        )
        self._loss = Loss(
            remaining=np.zeros((queues, 3), np.float64),
            of_model=np.zeros(queues, np.int64),
            known=np.zeros(queues, np.bool_),
            involved=np.zeros((queues, 3), np.bool_),
            at_fault=np.full(2, -1, np.int64),
        )

    @property
    def fairness(self) -> Fairness:
        """What kernels judge with that ask the rules by themselves."""
        return Fairness(claim=self._claim, loss=self._loss)

    def remember(self, aggressor: GroupRow) -> None:
        """Copy the usage of queues and the request of the ``aggressor``."""
        session, claim = self._session, self._claim
        # In place: kernels that judge by themselves hold these very arrays.
        claim.used[:] = session.columns.queue_used
        claim.fixed[:] = session.columns.queue_fixed
        claim.wanted[:] = session.chunk_amounts(aggressor)
        claim.group[0] = aggressor
        claim.model[0] = session.facts.groups.bound[aggressor]
        claim.models[:] = session.columns.queue_models
        self._begun = True

    def judge(self, scenario: Scenario) -> Verdict:
        """Return whether the victims of ``scenario``, as it ended in simulation, may be taken for its aggressor."""
        session = self._session
        # Scenarios of a search that reclaims nothing are not judged: nothing was remembered for them.
        if not self._begun or len(session.snapshot.queues) == 0:
            return ACCEPTED
        code = judge(session.facts, session.columns, self._claim, self._loss, scenario.victims())
        if code == FAIR:
            return ACCEPTED
        queue, sibling = self._loss.at_fault.tolist()
        return Verdict.refused(Code.NOT_ELIGIBLE, rule=RULES[code], queue=queue, sibling=sibling)
