"""What manifests say and a snapshot leaves out: queues that belong to no tree, and names of scheduling gates.

A snapshot holds what a cycle decides on. A reader wants to know why a queue that stands in the file is not in it.
"""

from collections.abc import Mapping

import attrs

from kai.ancestry import ancestry
from kai.explain.phrases import Words
from kai.framework.verdict import Code


@attrs.frozen(kw_only=True)
class Declared:
    """What is written down; nothing of it changes a decision."""

    parents: Mapping[str, str] = attrs.field(factory=dict)
    """The parent of each queue of this scheduler, by name; "" for top queues."""
    elsewhere: frozenset[str] = frozenset()
    """Queues of other schedulers."""
    default: str = "default-queue"
    """The queue of workloads that name none."""
    gates: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """The names of scheduling gates, by ``namespace/name`` of the pod; pods without gates are left out."""


def missing_queue(queue: str, declared: Declared) -> Words:
    """Return why the snapshot does not have ``queue``."""
    facts = {"queue": queue}
    if queue in declared.elsewhere:
        return Words("QueueOfAnotherPool", f"queue {queue} belongs to another node pool", facts)
    if queue not in declared.parents:
        what = f"queue {queue} does not exist" if queue else "it names no queue"
        if queue == declared.default:
            what = f"queue {queue}, which holds workloads that name none, does not exist"
        return Words(Code.QUEUE_MISSING, what, facts)
    *path, last = ancestry(queue, declared.parents)
    if last in path:
        circle = [*path[path.index(last) :], last]
        text = f"queue {queue} belongs to no tree: its parents form a circle, {' -> '.join(circle)}"
        return Words("QueueCycle", text, {**facts, "circle": tuple(circle)})
    if parent := declared.parents[last]:
        known = "belongs to another node pool" if parent in declared.elsewhere else "does not exist"
        text = f"queue {queue} belongs to no tree: {parent}, the parent of {last}, {known}"
        return Words("QueueOrphaned", text, {**facts, "parent": parent, "child": last})
    return Words("QueueTooDeep", f"queue {queue} is nested {len(path) + 1} deep, more than is followed", facts)


def gate_text(gated: list[str], pods: int, declared: Declared) -> str:
    """Return which gates hold ``gated`` (pods by key) of a group of ``pods``."""
    names = sorted({name for pod in gated for name in declared.gates.get(pod, ())})
    gates = "a scheduling gate" if not names else f"scheduling gate{'s' if len(names) > 1 else ''} {', '.join(names)}"
    if pods == 1:
        return f"its pod is held by {gates}"
    if len(gated) == pods:
        return f"its {pods} pods are held by {gates}"
    return f"{len(gated)} of its {pods} pods {'is' if len(gated) == 1 else 'are'} held by {gates}"
