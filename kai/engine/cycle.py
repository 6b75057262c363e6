"""One cycle: a pure function from a snapshot to decisions. Start reading here.

A profile: which actions run in which order, which plugins answer with which options, and parameters.

Reports: what a cycle leaves behind besides its decisions.

Rest: a cycle that could only repeat an earlier cycle without decisions is not run.

A cycle is a function of its facts, its profile, its instant and what its budget grants. If the facts and the profile
are the very same objects, a cycle with the same groups in turn decided nothing, the budget never said no, and no
deadline that was asked about has come since, then this cycle would leave the same report.

The order in which actions would try groups now: a look at the queues that changes nothing.
"""

from collections.abc import Mapping
from typing import cast

import attrs
import numpy as np

from kai.engine.failing import PluginFailure
from kai.engine.heaps import GroupHeap
from kai.engine.host import Budget, BudgetAnswer, Observer, Phase, Silent
from kai.engine.records import GroupRecord
from kai.engine.session import UNLIMITED, Session
from kai.engine.shortcuts import UNCHANGED, takes
from kai.errors import ActionError, KaiError, told
from kai.framework import decisions
from kai.framework.decisions import DecisionSink, Recorder
from kai.framework.hooks import PluginUse
from kai.framework.parameters import Parameters
from kai.framework.verdict import Code, Verdict
from kai.model.axis import Float64s, GroupRows, Int64s, PodRows
from kai.model.pod import Status
from kai.state.snapshot import Snapshot

Action = decisions.Action[Session]
"""What an entry point of ``kai.actions`` must be."""


@attrs.frozen(kw_only=True)
class Profile:
    """Everything about a cycle that is configuration."""

    actions: tuple[Action, ...]
    plugins: tuple[PluginUse, ...]
    parameters: Parameters = attrs.field(factory=Parameters)


@attrs.frozen(kw_only=True)
class CycleReport:
    """What a cycle leaves behind besides its decisions.

    Columns are as the last action left them; ``records`` say why groups wait. Shapes: P pods, N nodes, Q queues, G
    groups.
    """

    counts: dict[str, int]
    status: Int64s
    node: Int64s
    lapsed: Mapping[int, int]
    """The nodes of promises that another group took, by pod: the ledger has these pods as leaving there; they wait."""
    devices: dict[int, tuple[str, ...]]
    details: dict[int, dict[str, object]]
    """What plugins chose for placements, or what is on record for pods that stood there, by pod and kind."""
    node_details: dict[int, dict[str, object]]
    """What plugins report about nodes, by node and plugin."""
    idle: Int64s
    releasing: Int64s
    queue_used: Int64s
    queue_fixed: Int64s
    queue_requested: Float64s
    fair_share: Float64s
    total: Float64s
    """float64[3]: what fair shares were divided from."""
    records: Mapping[int, GroupRecord]
    last_start: Float64s
    last_eviction: Float64s
    stale_since: Float64s
    partial_since: Float64s
    awaited: tuple[str, ...]
    """Keys of groups for which pods were evicted and which wait for their places: the next snapshot is to know them."""
    left: GroupRows = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """Groups that were left to a later cycle, ascending, because there was no time for them."""
    takes_by_priority: bool = False
    """Whether queues within their quota take from those of lower priority what these have within theirs."""
    failures: tuple[PluginFailure, ...] = ()
    """Hooks that are known to fail and did."""


def report(session: Session) -> CycleReport:
    """Return the state of ``session`` as plain values."""
    columns = session.columns
    for group, text in session.failures.refused.items():
        if session.portion(group).has_pending():
            session.refuse(group, Verdict.refused(Code.PLUGIN, text=text))
    # Without placements there is no pod to look for.
    sharing = (columns.placement > 0).nonzero()[0] if columns.counters[1] else np.zeros(0, np.int64)
    status, node = columns.status.copy(), columns.node.copy()
    lapsed = _lapsed(session)
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
        queue_requested=requested(session),
        fair_share=session.facts.queues.fair_share.copy(),
        total=session.facts.queues.total.copy(),
        takes_by_priority=session.policy.fair_shares is not None and session.policy.fair_shares.takes_by_priority,
        records=session.records,
        last_start=session.last_start,
        last_eviction=session.last_eviction,
        stale_since=session.stale_since,
        partial_since=session.partial_since,
        awaited=session.awaited.keys(),
        left=session.left,
        failures=tuple(session.failures.found.values()),
    )


def _lapsed(session: Session) -> PodRows:
    """Return the pods that were promised a place which another group took: they leave no node, and wait on."""
    leaving = np.flatnonzero(session.columns.status == Status.RELEASING)
    nowhere = leaving[session.snapshot.pod_node[leaving] < 0]
    return np.array([pod for pod in nowhere.tolist() if pod not in session.evicted], np.int64)


def requested(session: Session) -> Float64s:
    """Return float64[Q, 3]: what each queue wanted when the session opened."""
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


def report_at_rest(snapshot: Snapshot, profile: Profile) -> CycleReport | None:
    """Return the report of an earlier cycle if this one would only repeat it, else None. Cost: a few comparisons."""
    if snapshot.past.awaited or not takes(profile.parameters, UNCHANGED):
        return None
    known = _known(snapshot).get(_turn_of(snapshot))
    if known is None or known.content is not snapshot.versions.content or known.profile is not profile:
        return None
    return known.report if known.since <= snapshot.now < known.until else None


@attrs.define
class WatchedBudget:
    """A budget, and whether it ever refused a grant."""

    budget: Budget
    has_refused: bool = False

    def begin_action(self, action: str, /) -> None:
        """Pass it on."""
        self.budget.begin_action(action)

    def go_on(self) -> BudgetAnswer:
        """Pass it on."""
        return self._seen(self.budget.go_on())

    def begin_group(self) -> BudgetAnswer:
        """Pass it on."""
        return self._seen(self.budget.begin_group())

    def begin_generator(self, generator: str, /) -> None:
        """Pass it on."""
        self.budget.begin_generator(generator)

    def grant(self) -> BudgetAnswer:
        """Pass it on."""
        return self._seen(self.budget.grant())

    def pass_over(self) -> BudgetAnswer:
        """Pass it on."""
        return self._seen(self.budget.pass_over())

    def _seen(self, grant: BudgetAnswer) -> BudgetAnswer:
        if grant is not BudgetAnswer.GO:
            self.has_refused = True
        return grant


def remember(session: Session, profile: Profile, report: CycleReport, budget: WatchedBudget) -> None:
    """Keep ``report`` for as long as it stays true, if the cycle decided nothing."""
    snapshot, until = session.snapshot, session.clock.holds_until
    if any(report.counts.values()) or snapshot.past.awaited or budget.has_refused or until <= snapshot.now:
        return
    if report.failures:
        return  # a plugin that fails may work the next time, on the same facts
    content = snapshot.versions.content
    known = {turn: each for turn, each in _known(snapshot).items() if each.content is content}
    known[_turn_of(snapshot)] = _AtRest(content, profile, snapshot.now, until, report)
    snapshot.memory.keep(_NAME, known)


def holds_until(snapshot: Snapshot) -> float:
    """Return until when a cycle on ``snapshot`` that decided nothing would be repeated; past if that is not known.

    Units: seconds since the epoch.
    """
    known = _known(snapshot).get(_turn_of(snapshot))
    return known.until if known is not None and known.content is snapshot.versions.content else snapshot.now


def _known(snapshot: Snapshot) -> dict[bytes, _AtRest]:
    return cast("dict[bytes, _AtRest] | None", snapshot.memory.recall(_NAME)) or {}


def _turn_of(snapshot: Snapshot) -> bytes:
    """Return what tells cycles on the same facts apart: which groups wait for a turn."""
    return snapshot.crowds.waiting.tobytes()


_ALLOCATE = "allocate"


@attrs.frozen(kw_only=True)
class WaitingOrder:
    """The groups that wait, and what orders them within their queues."""

    groups: tuple[int, ...] = ()
    """Rows, the first to be asked first."""
    names: tuple[str, ...] = ()
    """What keys are called: plugins in their order."""
    keys: Float64s = attrs.field(factory=lambda: np.zeros((0, 0)))
    """float64[G, k]: the keys of all groups, smaller first."""


def waiting_order(snapshot: Snapshot, profile: Profile) -> tuple[int, ...]:
    """Return the rows of the groups that wait, as allocation would first ask them if none of them got a place.

    Source: the peer's plugin reflectjoborder.
    Cost: that of opening a session, and a pop for each group.
    """
    return explained_order(snapshot, profile).groups


def explained_order(snapshot: Snapshot, profile: Profile) -> WaitingOrder:
    """Return the order of the groups that wait, with the keys that make it.

    Cost: as ``waiting_order``.
    """
    session = Session(snapshot, profile, Recorder(), Silent())
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
    """Decide once which pods to bind, which to evict and which to promise a place.

    Holds: the same snapshot and profile give the same decisions in the same order; all decisions of one statement
        reach the sink together. A cycle that could only repeat one without decisions returns that one's report.
    """
    rested = report_at_rest(snapshot, profile)
    if rested is not None:
        return rested
    watched = WatchedBudget(budget)
    with observer.phase(Phase.OPEN):
        session = Session(snapshot, profile, sink, observer, watched)
    for action in profile.actions:
        with observer.phase(action.name):
            budget.begin_action(action.name)
            _run(action, session)
    with observer.phase(Phase.CLOSE):
        made = report(session)
    remember(session, profile, made, watched)
    session.release()
    return made


def _run(action: Action, session: Session) -> None:
    """Let ``action`` decide; what one of another package raises is told to be its own.

    Raises: ActionError.
    """
    try:
        action.run(session)
    except (KaiError, KeyboardInterrupt):
        raise
    except BaseException as error:
        module = type(action).__module__
        if module.partition(".")[0] == "kai":
            raise
        raise ActionError(f"raised {told(error)}", action=action.name, origin=module) from error
