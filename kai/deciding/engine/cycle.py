"""One cycle: a pure function from a snapshot to decisions. Start reading here.

A profile is the configuration of a cycle: its actions in order, its plugins with their options, and parameters. A
report is the outcome of a cycle besides its decisions.

A cycle that could only repeat an earlier cycle without decisions is skipped. A cycle is a function of its facts, its
profile, its instant and the answers of its budget. So it repeats the earlier report if facts and profile are the same
objects, the same groups have their turn, that cycle decided nothing, its budget refused nothing, budgets of queues
answer as they did (`kai.facts.state.budgets.Remainders`), and no deadline that it asked about has passed since.

``waiting_order`` returns the order in which allocate would try the waiting groups, without deciding anything.
"""

from collections.abc import Mapping
from typing import cast

import attrs
import numpy as np

from kai.basics.errors import ActionError, KaiError, error_text
from kai.deciding.engine import closed_windows
from kai.deciding.engine.failing import PluginFailure
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.host import Budget, BudgetAnswer, Observer, Phase, Silent
from kai.deciding.engine.records import GroupRecord
from kai.deciding.engine.session import UNLIMITED, Session
from kai.deciding.engine.shortcuts import UNCHANGED, takes
from kai.facts.kernels.columns import UserFacts
from kai.facts.model.axis import Float64s, GroupRows, Int64s, PodRows
from kai.facts.model.pod import Status
from kai.facts.state.budgets import Remainders, remainders
from kai.facts.state.snapshot import Snapshot
from kai.framework import decisions
from kai.framework.decisions import DecisionSink, Recorder
from kai.framework.hooks import PluginUse
from kai.framework.parameters import Parameters
from kai.framework.verdict import Code, Verdict

Action = decisions.Action[Session]
"""The interface of actions in ``kai.actions``."""


@attrs.frozen(kw_only=True)
class Profile:
    """The configuration of a cycle."""

    actions: tuple[Action, ...]
    plugins: tuple[PluginUse, ...]
    parameters: Parameters = attrs.field(factory=Parameters)


@attrs.frozen(kw_only=True)
class CycleReport:
    """The outcome of a cycle besides its decisions.

    Columns are copied after the last action; ``records`` say why groups wait. Shapes: P pods, N nodes, Q queues, G
    groups.
    """

    counts: dict[str, int]
    status: Int64s
    node: Int64s
    lapsed: Mapping[int, int]
    """By pod, the node of each nomination that another group took.

    The ledger has these pods as leaving that node; they wait.
    """
    devices: dict[int, tuple[str, ...]]
    details: dict[int, dict[str, object]]
    """The plugins' details of placements, chosen in this cycle or on record, by pod and kind."""
    node_details: dict[int, dict[str, object]]
    """What plugins report about nodes, by node and plugin."""
    idle: Int64s
    releasing: Int64s
    queue_used: Int64s
    queue_fixed: Int64s
    queue_models: Int64s
    """[Q, M] Thousandths of GPUs of each model that queues name."""
    user_used: Int64s
    """[A, 3] What each account of a user holds; the accounts are `accounts`."""
    accounts: UserFacts
    """The accounts of users in queues that limit them."""
    models_deserved: Int64s | None
    """[Q, M] What queues are owed of each; None: no queue has a quota of one."""
    queue_requested: Float64s
    fair_share: Float64s
    total: Float64s
    """float64[3]: the amounts that fair shares divide."""
    records: Mapping[int, GroupRecord]
    last_start: Float64s
    last_eviction: Float64s
    stale_since: Float64s
    partial_since: Float64s
    awaited: tuple[str, ...]
    """Keys of groups that wait for the places of evicted pods; the next snapshot must list them."""
    left: GroupRows = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """Groups that were left to a later cycle for lack of time, ascending."""
    budget_used: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """int64[B]: what pods that hold GPUs may still cost, for each budget that bounds starts."""
    budget_left: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """int64[B]: what was left of each at that instant."""
    takes_by_priority: bool = False
    """Whether a queue within its quota may take from a queue of lower priority what that one holds within its quota."""
    weight_factors: Float64s | None = None
    """float64[Q, 3]: what plugins multiplied the weights of queues by; None: nothing."""
    failures: tuple[PluginFailure, ...] = ()
    """Failures of hooks that the caller has listed as failing."""


def report(session: Session) -> CycleReport:
    """Return the state of ``session`` as plain values."""
    columns = session.columns
    # A plugin failed on these groups. The reason is added last, and only if pods still wait.
    for group, text in session.failures.refused.items():
        if session.portion(group).has_pending():
            session.refuse(group, Verdict.refused(Code.PLUGIN, text=text))
    # Devices are shared only through placements: without any placement, skip the scan over all pods.
    sharing = (columns.placement > 0).nonzero()[0] if columns.counters[1] else np.zeros(0, np.int64)
    status, node = columns.status.copy(), columns.node.copy()
    lapsed = _lapsed(session)
    # In the copies only: the books of the ledger go on to the next session, and its journal must fit them.
    status[lapsed], node[lapsed] = Status.PENDING, -1
    return CycleReport(
        counts=dict(session.counts),
        status=status,
        node=node,
        lapsed=dict(zip(lapsed.tolist(), columns.node[lapsed].tolist(), strict=True)),
        devices=dict(zip(sharing.tolist(), session.bindings.devices_of(sharing), strict=True)),
        details=session.details.of_pods(),
        node_details=session.details.of_nodes(),
        idle=columns.idle.copy(),
        releasing=columns.releasing.copy(),
        queue_used=columns.queue_used.copy(),
        queue_fixed=columns.queue_fixed.copy(),
        queue_models=columns.queue_models.copy(),
        user_used=columns.user_used.copy(),
        accounts=session.facts.users,
        models_deserved=None if session.policy.fair_shares is None else session.policy.fair_shares.models,
        queue_requested=requested(session),
        fair_share=session.facts.queues.fair_share.copy(),
        total=session.facts.queues.total.copy(),
        takes_by_priority=session.policy.fair_shares is not None and session.policy.fair_shares.takes_by_priority,
        weight_factors=session.policy.weight_factors,
        records=session.records,
        last_start=session.last_start,
        last_eviction=session.last_eviction,
        stale_since=session.stale_since,
        partial_since=session.partial_since,
        awaited=session.awaited.keys(),
        left=session.left,
        budget_used=columns.budget_used.copy(),
        budget_left=session.facts.budgets.left,
        failures=tuple(session.failures.found.values()),
    )


def _lapsed(session: Session) -> PodRows:
    """Return the pods whose nomination another group took: they are on no node, and wait on."""
    # Taking back a promise marks a pod as releasing, like an eviction. What tells it apart is that the pod had no node
    # in the snapshot and no decision evicts it.
    leaving = np.flatnonzero(session.columns.status == Status.RELEASING)
    nowhere = leaving[session.snapshot.pod_node[leaving] < 0]
    return np.array([pod for pod in nowhere.tolist() if pod not in session.evicted], np.int64)


def requested(session: Session) -> Float64s:
    """Return float64[Q, 3]: the amounts that each queue requested when the session opened."""
    shares = session.policy.fair_shares
    return session.facts.queues.fair_share * 0.0 if shares is None else shares.requested


_NAME = "cycles at rest"


@attrs.frozen(eq=False)
class _AtRest:
    content: object
    profile: Profile
    since: float
    until: float
    report: CycleReport
    remainders: Remainders | None


def report_at_rest(snapshot: Snapshot, profile: Profile) -> CycleReport | None:
    """Return the report of an earlier cycle if this cycle would only repeat it, else None. Cost: a few comparisons."""
    # Awaited groups are served first, and snapshots with the same content may differ in them.
    if snapshot.past.awaited or not takes(profile.parameters, UNCHANGED):
        return None
    known = _known(snapshot).get(_turn_of(snapshot))
    if known is None or known.content is not snapshot.versions.content or known.profile is not profile:
        return None
    # A clock that was set back puts deadlines ahead again that had passed, so the report holds from its own instant on.
    if not known.since <= snapshot.now < known.until:
        return None
    return known.report if known.remainders is None or known.remainders.hold(snapshot) else None


@attrs.define
class WatchedBudget:
    """A budget, and whether it has refused anything. A refusal depends on time, so the cycle may not be repeated."""

    budget: Budget
    has_refused: bool = False

    def begin_action(self, action: str, /) -> None:
        """Forward to the budget."""
        self.budget.begin_action(action)

    def go_on(self) -> BudgetAnswer:
        """Forward to the budget."""
        return self._seen(self.budget.go_on())

    def begin_group(self) -> BudgetAnswer:
        """Forward to the budget."""
        return self._seen(self.budget.begin_group())

    def begin_generator(self, generator: str, /) -> None:
        """Forward to the budget."""
        self.budget.begin_generator(generator)

    def grant(self) -> BudgetAnswer:
        """Forward to the budget."""
        return self._seen(self.budget.grant())

    def pass_over(self) -> BudgetAnswer:
        """Forward to the budget."""
        return self._seen(self.budget.pass_over())

    def _seen(self, grant: BudgetAnswer) -> BudgetAnswer:
        if grant is not BudgetAnswer.GO:
            self.has_refused = True
        return grant


def remember(session: Session, profile: Profile, report: CycleReport, budget: WatchedBudget) -> None:
    """Keep ``report`` for reuse until its first deadline, if the cycle decided nothing."""
    snapshot, until = session.snapshot, session.clock.holds_until
    # ``until`` lies in the past if something was derived from the instant itself: that holds only now.
    if any(report.counts.values()) or snapshot.past.awaited or budget.has_refused or until <= snapshot.now:
        return
    if report.failures:
        return  # a failing plugin may succeed next time on the same facts, so a repeated report could be wrong
    content = snapshot.versions.content
    # Groups take turns in crowded namespaces, so cycles on the same facts alternate: keep one report for each turn.
    known = {turn: each for turn, each in _known(snapshot).items() if each.content is content}
    left = remainders(snapshot, session.facts, session.columns)
    known[_turn_of(snapshot)] = _AtRest(content, profile, snapshot.now, until, report, left)
    snapshot.memory.keep(_NAME, known)


def holds_until(snapshot: Snapshot) -> float:
    """Return until when the cycle on ``snapshot``, which decided nothing, holds; the snapshot's own time if unknown.

    Units: seconds since the epoch.
    """
    known = _known(snapshot).get(_turn_of(snapshot))
    return known.until if known is not None and known.content is snapshot.versions.content else snapshot.now


def _known(snapshot: Snapshot) -> dict[bytes, _AtRest]:
    return cast("dict[bytes, _AtRest] | None", snapshot.memory.recall(_NAME)) or {}


def _turn_of(snapshot: Snapshot) -> bytes:
    """Return what distinguishes cycles on the same facts: the groups that wait for a turn."""
    return snapshot.crowds.waiting.tobytes()


_ALLOCATE = "allocate"


@attrs.frozen(kw_only=True)
class WaitingOrder:
    """The waiting groups in order, and the keys that order them within their queues."""

    groups: tuple[int, ...] = ()
    """Rows of groups; the first is tried first."""
    names: tuple[str, ...] = ()
    """Names of the keys: plugins in their order."""
    keys: Float64s = attrs.field(factory=lambda: np.zeros((0, 0)))
    """float64[G, k]: the keys of all groups; smaller keys first."""


def waiting_order(snapshot: Snapshot, profile: Profile) -> tuple[int, ...]:
    """Return the rows of the waiting groups in the order in which allocate would try them if it could place none.

    Source: the peer's plugin reflectjoborder.
    Cost: that of opening a session, and a pop for each group.
    """
    return explained_order(snapshot, profile).groups


def explained_order(snapshot: Snapshot, profile: Profile) -> WaitingOrder:
    """Return the order of the waiting groups, with the keys that determine it.

    Cost: as ``waiting_order``.
    """
    session = Session(snapshot, profile, Recorder(), Silent())
    # Every group shows its keys, also a group that no heap would compare.
    heap = GroupHeap(session, depth=session.parameters.queue_depth.get(_ALLOCATE, -1), every_key=True)
    heap.fill(session.waiting_groups())
    names = session.policy.key_names(np.arange(min(1, len(snapshot.groups))))
    keys = heap.records.keys[:, : len(names)].copy()
    found = tuple(portion.group for portion in iter(heap.pop, None))
    session.release()
    return WaitingOrder(groups=found, names=names, keys=keys)


SILENT = Silent()


def run_cycle(
    snapshot: Snapshot, profile: Profile, sink: DecisionSink, observer: Observer = SILENT, budget: Budget = UNLIMITED
) -> CycleReport:
    """Decide which pods to bind, which to evict and which to nominate to a node.

    Holds: the same snapshot and profile give the same decisions in the same order; all decisions of one statement
        reach the sink together. A cycle that could only repeat an earlier one without decisions returns its report.
    """
    rested = report_at_rest(snapshot, profile)
    if rested is not None:
        return rested
    watched = WatchedBudget(budget)
    with observer.phase(Phase.OPEN):
        session = Session(snapshot, profile, sink, observer, watched)
    # Before the actions, so that they count on the room that these evictions make.
    if closed_windows.closed_queues(snapshot):
        with observer.phase(closed_windows.NAME):
            closed_windows.evict_after_close(session)
    if snapshot.budgets is not None:
        with observer.phase(closed_windows.BUDGET):
            closed_windows.evict_unrenewed(session)
    for action in profile.actions:
        with observer.phase(action.name):
            budget.begin_action(action.name)
            _run(action, session)
    with observer.phase(Phase.CLOSE):
        made = report(session)
    remember(session, profile, made, watched)
    # Session and plugins refer to each other: free them now, rather than at the next garbage collection.
    session.release()
    return made


def _run(action: Action, session: Session) -> None:
    """Run ``action``. Errors that an action of another package raises are reported as that action's own.

    Raises: ActionError.
    """
    try:
        action.run(session)
    except (KaiError, KeyboardInterrupt):
        raise
    except BaseException as error:
        module = type(action).__module__
        # A bug of kai keeps its type and traceback; only an action of another package gets the blame.
        if module.partition(".")[0] == "kai":
            raise
        raise ActionError(f"raised {error_text(error)}", action=action.name, origin=module) from error
