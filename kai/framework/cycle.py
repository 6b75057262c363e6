"""One cycle: a pure function from a snapshot to decisions. Start reading here."""

from collections.abc import Mapping

import attrs

from kai.framework.budget import Budget
from kai.framework.decisions import DecisionSink
from kai.framework.observe import Observer, Silent
from kai.framework.profile import Profile
from kai.framework.records import GroupRecord
from kai.framework.rest import Watched, remember, report_at_rest
from kai.framework.session import UNLIMITED, Session
from kai.model.rows import Float64s, Int64s
from kai.state.snapshot import Snapshot

SILENT = Silent()


@attrs.frozen(kw_only=True)
class CycleReport:
    """What a cycle leaves behind besides its decisions.

    Columns are as the last action left them; ``records`` say why groups wait. Shapes: P pods, N nodes, Q queues, G
    groups.
    """

    counts: dict[str, int]
    status: Int64s
    node: Int64s
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
    records: Mapping[int, GroupRecord]
    last_start: Float64s
    last_eviction: Float64s
    stale_since: Float64s
    awaited: tuple[str, ...]
    """Keys of groups for which pods were evicted and which wait for their places: the next snapshot is to know them."""


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
    watched = Watched(budget)
    with observer.phase("open"):
        session = Session(snapshot, profile, sink, observer, watched)
    for action in profile.actions:
        with observer.phase(action.name):
            budget.begin_action(action.name)
            action.run(session)
    with observer.phase("close"):
        session.close()
        made = report(session)
    remember(session, made, watched)
    session.release()
    return made


def report(session: Session) -> CycleReport:
    """Return the state of ``session`` as plain values."""
    columns = session.columns
    sharing = (columns.placement > 0).nonzero()[0]
    return CycleReport(
        counts=dict(session.counts),
        status=columns.status.copy(),
        node=columns.node.copy(),
        devices=dict(zip(sharing.tolist(), session.grants.devices_of(sharing), strict=True)),
        details=session.details.of_pods(),
        node_details=session.details.of_nodes(),
        idle=columns.idle.copy(),
        releasing=columns.releasing.copy(),
        queue_used=columns.queue_used.copy(),
        queue_fixed=columns.queue_fixed.copy(),
        queue_requested=requested(session),
        fair_share=session.facts.queues.fair_share.copy(),
        records=session.records,
        last_start=session.last_start,
        last_eviction=session.last_eviction,
        stale_since=session.stale_since,
        awaited=session.awaited(),
    )


def requested(session: Session) -> Float64s:
    """Return float64[Q, 3]: what each queue wanted when the session opened."""
    shares = session.policy.fair_shares
    return session.facts.queues.fair_share * 0.0 if shares is None else shares.requested
