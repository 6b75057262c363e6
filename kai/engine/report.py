"""Reports: what a cycle leaves behind besides its decisions."""

from collections.abc import Mapping

import attrs
import numpy as np

from kai.engine.failing import PluginFailure
from kai.engine.records import GroupRecord
from kai.engine.session import Session
from kai.framework.verdict import Code, Verdict
from kai.model.rows import Float64s, GroupRows, Int64s, PodRows
from kai.model.status import Status


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
