"""Declared facts that a snapshot leaves out, and the groups that a waiting group could take from.

A snapshot holds only what a cycle decides on. A user wants to know why a queue in the file is not in it: it may belong
to no tree. The names of scheduling gates are left out too.

``takeable`` sorts the possible victims of a group before any search.
"""

from collections.abc import Mapping

import attrs
import numpy as np

from kai.basics.trees import ancestry
from kai.deciding.engine.session import Session
from kai.facts.model.axis import GroupRow
from kai.facts.model.pod import ACTIVE_ALLOCATED, within
from kai.framework.decisions import Cause
from kai.framework.verdict import Code, Reason


@attrs.frozen(kw_only=True)
class Declared:
    """Declared facts; none of them affects a decision."""

    parents: Mapping[str, str] = attrs.field(factory=dict)
    """The parent of each queue of this scheduler, by name; "" for top queues."""
    elsewhere: frozenset[str] = frozenset()
    """Queues of other schedulers."""
    default: str = "default-queue"
    """The queue of workloads that name no queue."""
    gates: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """The names of scheduling gates, by ``namespace/name`` of the pod; pods without gates are left out."""


def missing_queue(queue: str, declared: Declared) -> Reason[str]:
    """Return why ``queue`` is not in the snapshot."""
    facts = {"queue": queue}
    if queue in declared.elsewhere:
        return Reason("QueueOfAnotherPool", f"queue {queue} belongs to another node pool", facts)
    if queue not in declared.parents:
        what = f"queue {queue} does not exist" if queue else "it names no queue"
        if queue == declared.default:
            what = f"queue {queue}, which holds workloads that name none, does not exist"
        return Reason(Code.QUEUE_MISSING, what, facts)
    *path, last = ancestry(queue, declared.parents)
    if last in path:
        circle = [*path[path.index(last) :], last]
        text = f"queue {queue} belongs to no tree: its parents form a circle, {' -> '.join(circle)}"
        return Reason("QueueCycle", text, {**facts, "circle": tuple(circle)})
    if parent := declared.parents[last]:
        known = "belongs to another node pool" if parent in declared.elsewhere else "does not exist"
        text = f"queue {queue} belongs to no tree: {parent}, the parent of {last}, {known}"
        return Reason("QueueOrphaned", text, {**facts, "parent": parent, "child": last})
    return Reason("QueueTooDeep", f"queue {queue} is nested {len(path) + 1} deep, more than is followed", facts)


def gate_text(gated: list[str], pods: int, declared: Declared) -> str:
    """Return which scheduling gates hold the pods ``gated`` (keys) of a group of ``pods`` pods."""
    names = sorted({name for pod in gated for name in declared.gates.get(pod, ())})
    gates = "a scheduling gate" if not names else f"scheduling gate{'s' if len(names) > 1 else ''} {', '.join(names)}"
    if pods == 1:
        return f"its pod is held by {gates}"
    if len(gated) == pods:
        return f"its {pods} pods are held by {gates}"
    return f"{len(gated)} of its {pods} pods {'is' if len(gated) == 1 else 'are'} held by {gates}"


ACTIONS: Mapping[Cause, str] = {Cause.RECLAIM: "reclaim", Cause.PREEMPT: "preempt"}


@attrs.frozen(kw_only=True)
class Takeable:
    """The groups with a place that an action would consider, as rows."""

    free: tuple[int, ...]
    """Groups whose pods may be taken, each considered on its own."""
    fixed: tuple[int, ...]
    """Groups that are not preemptible."""
    protected: tuple[int, ...]
    """Groups that plugins protect, for example by a minimum runtime."""
    higher: tuple[int, ...] = ()
    """Groups of the same queue with the same or a higher priority."""


def takeable(session: Session, group: int, cause: Cause) -> Takeable:
    """Return the groups that ``group`` could take from for ``cause``, in the state at the beginning of the cycle."""
    facts, snapshot = session.facts.groups, session.snapshot
    placed = sorted(
        {
            int(owner)
            for owner, status in zip(snapshot.pod_group.tolist(), snapshot.pod_status.tolist(), strict=True)
            if owner >= 0 and owner != group and within(status, ACTIVE_ALLOCATED)
        }
    )
    mine, higher = int(facts.queue[group]), []
    if cause is Cause.RECLAIM:
        looked_at = [row for row in placed if facts.queue[row] not in (mine, -1)]
    else:
        same = [row for row in placed if facts.queue[row] == mine]
        priority = session.priorities[group]
        looked_at = [row for row in same if session.priorities[row] < priority]
        higher = [row for row in same if session.priorities[row] >= priority]
    fixed = [row for row in looked_at if not facts.preemptible[row]]
    rows = free = np.array([row for row in looked_at if facts.preemptible[row]], np.int64)
    for each in session.policy.victims:
        if each.groups is not None and len(free):
            free = free[each.groups(GroupRow(group), free, cause)]
    protected = np.setdiff1d(rows, free, assume_unique=True).tolist()
    return Takeable(free=tuple(free.tolist()), fixed=tuple(fixed), protected=tuple(protected), higher=tuple(higher))
