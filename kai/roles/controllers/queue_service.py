"""The queue controller: the status of each queue, faults in the tree as conditions, and the first two queues.

Status. One look at a queue adds the statuses of its children to the sum of the pod groups that are charged to it, and
finds its faults. A change of a group leads to a look at its queue and at each one above. A look counts the queues below
that changed as well, so it waits for no look at them, and for no write. On a cycle of queues a queue is not added to
itself.

Source: the peer's queue controller, which has no such guard.

The first two queues. A fresh installation gets them, so that a workload that names no queue has one. They cannot be
part of the installed manifests: a client that applies a kind and an object of it at once does not know the kind yet. So
the queue controller creates them, once its list of queues is complete and if it is empty. Where any queue exists, its
author decides which queues there are, and also whether there is a default queue. The exception is our own first queue
alone, since then we were interrupted between the two.

Source: names and values of the peer's chart, which creates them at installation and never again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.conventions.amounts import texts
from kai.api.kinds import ApiObject, Key, key_of, title
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Create, List, Patch, Reason, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue, QueueResource, QueueResources, QueueSpec, QueueStatus
from kai.basics.errors import InputError
from kai.basics.trees import ancestry, descendants
from kai.cluster.port import Change, Cluster, Index
from kai.cluster.signals import Observe, QueueCounted, QueueGone, unobserved, warn
from kai.cluster.work import DONE, Ended, Look, QueueOptions, Workers, ended_by
from kai.roles.controllers.holdings import GROUPS, Holdings, Sum, changed_lists, held_by
from kai.roles.controllers.queue_tree import conditions_after, tree_findings

if TYPE_CHECKING:
    from collections.abc import Iterable

# No quota, and the use of everything that is idle.
_SHARE: Final = QueueResource(quota=0.0, limit=names.UNLIMITED, over_quota_weight=1.0)
_SHARES: Final = QueueResources(gpu=_SHARE, cpu=_SHARE, memory=_SHARE)
_OURS: Final = {"app.kubernetes.io/part-of": "kai"}
_PARTS: Final = ("cpu", "gpu", "memory")


def first_queues(existing: Iterable[Queue]) -> tuple[dict[str, Any], ...]:
    """Return the manifests of the queues to create, the parent first; none if a queue of another author exists."""
    first = _manifest(names.DEFAULT_PARENT_QUEUE, "")
    second = _manifest(names.DEFAULT_QUEUE, names.DEFAULT_PARENT_QUEUE)
    known = tuple(existing)
    if not known:
        return (first, second)
    return (second,) if len(known) == 1 and _is_our_first(known[0]) else ()


def _is_our_first(queue: Queue) -> bool:
    labels = queue.metadata.labels
    return queue.metadata.name == names.DEFAULT_PARENT_QUEUE and _OURS.items() <= labels.items()


def _manifest(name: str, parent: str) -> dict[str, Any]:
    metadata = ObjectMeta(name=name, labels=_OURS)
    manifest = unstructure(Queue(metadata=metadata, spec=QueueSpec(parent_queue=parent, resources=_SHARES)))
    # A quota of 0 is the default and would be left out; here it must be explicit.
    return {
        **manifest,
        "spec": {
            **manifest["spec"],
            "resources": {part: {"quota": 0, **manifest["spec"]["resources"][part]} for part in _PARTS},
        },
    }


def queue_totals(queue: Queue, queues: Iterable[Queue], own: Sum) -> QueueStatus:
    """Return the status of a queue with its children and the totals below it; ``own`` is the sum of its pod groups.

    ``queues`` may contain others than its children.

    Raises: BadValue if an amount in a status is not a quantity.
    """
    known = {other.metadata.name: other for other in queues}
    children = [known[name] for name in sorted(known) if known[name].spec.parent_queue == queue.metadata.name]
    parents = {other.metadata.name: other.spec.parent_queue for other in (*known.values(), queue)}
    above = ancestry(queue.metadata.name, parents)
    # Without a child that is also above the queue: each look would add the sum of the circle to itself once more, and
    # the amounts would grow without end.
    total = Sum.of(*(child.status for child in children if child.metadata.name not in above)) + own
    return attrs.evolve(
        queue.status,
        child_queues=tuple(child.metadata.name for child in children),
        allocated=texts(total.allocated),
        allocated_non_preemptible=texts(total.allocated_non_preemptible),
        requested=texts(total.requested),
    )


def status_patch(queue: Queue, totals: QueueStatus) -> dict[str, Any] | None:
    """Return the merge patch of the queue's children and totals; None if no amount changed, however it is written."""
    changes = changed_lists(queue.status, totals)
    if queue.status.child_queues != totals.child_queues:
        changes["childQueues"] = list(totals.child_queues) or None
    return {"status": changes} if changes else None


WATCHED: Final[tuple[type[ApiObject], ...]] = (Queue, PodGroup, Pod, Node, ResourceClaim)
"""The kinds that the queue controller watches."""
_CHANGES: Final = (Queue, PodGroup, Pod)
OPTIONS: Final = QueueOptions(gather=1.0)
_AGAIN: Final = 5.0


def _parent(queue: Queue) -> Iterable[str]:
    return (queue.spec.parent_queue,) if queue.spec.parent_queue else ()


CHILDREN: Final = Index(Queue, "queue-controller: parent", _parent)


@attrs.define
class QueueController:
    """Maintains the statuses of queues."""

    cluster: Cluster
    observe: Observe = unobserved
    _holdings: Holdings = attrs.field(init=False)
    _workers: Workers[str] = attrs.field(init=False)
    _counted: dict[str, Queue] = attrs.field(factory=dict)
    """The queues as they were counted last, which this replica's metrics show."""
    _uncounted: set[str] = attrs.field(factory=set)
    """The queues for which something changed since they were counted."""

    def __attrs_post_init__(self) -> None:
        """Make the loop around `_look`."""
        self._holdings = Holdings(self.cluster.store, self.cluster.kubernetes)
        self._workers = Workers.of(self.cluster, "queue-controller", self._look, OPTIONS, self.observe)

    async def run(self) -> None:
        """Maintain statuses until cancelled."""
        await self.cluster.store.synced()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._workers.run)
                tasks.start_soon(self._make_first_queues)
                await self._workers.follow(self.cluster.store, _CHANGES, self._concerned)
        finally:
            # From now on another replica shows these queues: metrics of both would be counted twice.
            for name in tuple(self._counted):
                self._show_no_more(name)

    # --- Which queues to look at ---------------------------------------------------------------------------------

    def _concerned(self, batch: Iterable[Change[Any]]) -> Iterable[str]:
        """Return the queues that changes may affect, each once, in the order of the changes."""
        found: dict[str, None] = {}
        groups: dict[Key, None] = {}
        for change in batch:
            present = change.present
            if isinstance(present, Queue):
                found |= dict.fromkeys(self._around(change))
            elif isinstance(present, Pod):
                groups |= dict.fromkeys(sorted(held_by(change)))
            elif _counts(change):
                found |= {side.spec.queue: None for side in (change.before, change.after) if side is not None}
                groups[key_of(present)] = None
        for key in groups:
            found |= dict.fromkeys(sorted(self._holdings.settle(key)))
        found.pop("", None)
        for name in tuple(found):
            found |= dict.fromkeys(self._path(name))
        self._uncounted |= found.keys()
        return found

    def _path(self, name: str) -> list[str]:
        """Return the names of a queue and of those above it."""
        queue = self.cluster.store.get(Queue, name)
        return [name] if queue is None else [name, *(each.metadata.name for each in self._ancestors(queue))]

    def _around(self, change: Change[Queue]) -> list[str]:
        """Return the queue and its parents; where it came, went or moved, all queues below as well."""
        before, after = change.before, change.after
        names = [change.present.metadata.name]
        names += [side.spec.parent_queue for side in (before, after) if side is not None]
        if after is None:
            self._show_no_more(change.present.metadata.name)
        if before is None or after is None or before.spec.parent_queue != after.spec.parent_queue:
            names += descendants(names[0], self._children)
        return names

    def _show_no_more(self, name: str) -> None:
        counted = self._counted.pop(name, None)
        if counted is not None:
            self.observe(QueueGone(counted))

    def _children(self, name: str) -> list[str]:
        """Return the names of the children of a queue, which need not exist."""
        return [child.metadata.name for child in self.cluster.store.find(CHILDREN, name)]

    # --- One look ------------------------------------------------------------------------------------------------

    async def _look(self, look: Look[str]) -> Ended:
        queue = self.cluster.store.get(Queue, look.key)
        if queue is None:
            self._uncounted.discard(look.key)
            return DONE
        self._count_below(look.key)
        try:
            counted = self._count(queue)
        except InputError as error:
            structlog.get_logger().warning("cannot be counted", queue=look.key, why=str(error))
            return Ended(failure=str(error))
        totals = counted.status
        children = self.cluster.store.find(CHILDREN, look.key)
        around = (*self._ancestors(queue), *children)
        # A fault of one queue depends on it, its ancestors, its children and, if it has children, its groups.
        naming = self.cluster.store.find(GROUPS, look.key) if children else ()
        findings = tree_findings((counted, *around), naming).get(look.key, ())
        conditions = conditions_after(queue.status.conditions, findings, now=self.cluster.clock.now())
        patch = status_patch(queue, totals) or {"status": {}}
        if conditions != queue.status.conditions:
            patch["status"]["conditions"] = [unstructure(condition) for condition in conditions]
        if not patch["status"]:
            return DONE
        # Conditions are replaced as a whole list, so the write must fail if another client has changed them since.
        metadata = {"uid": queue.metadata.uid, "resourceVersion": queue.metadata.resource_version}
        body = {**patch, "metadata": metadata if "conditions" in patch["status"] else {"uid": queue.metadata.uid}}
        reply = await self.cluster.api.perform(Patch(ref=Ref(Queue, look.key), patch=body, subresource="status"))
        return ended_by(reply, title(queue))

    def _count_below(self, name: str) -> None:
        """Count the queues below a queue that changed, from the leaves up."""

        def changed(name: str) -> list[str]:
            return [child for child in self._children(name) if child in self._uncounted]

        for each in descendants(name, changed)[:0:-1]:
            queue = self.cluster.store.get(Queue, each)
            # What cannot be counted counts as before; its own look says why.
            with suppress(InputError):
                if queue is not None:
                    self._count(queue)

    def _count(self, queue: Queue) -> Queue:
        """Return a queue with its totals, by what was counted last of its children.

        Raises: BadValue if an amount in a status is not a quantity.
        """
        name = queue.metadata.name
        children = map(self._as_counted, self.cluster.store.find(CHILDREN, name))
        around = (queue, *self._ancestors(queue), *children)
        counted = attrs.evolve(queue, status=queue_totals(queue, around, self._holdings.total(name)))
        self._counted[name] = counted
        self._uncounted.discard(name)
        self.observe(QueueCounted(counted))
        return counted

    def _as_counted(self, queue: Queue) -> Queue:
        counted = self._counted.get(queue.metadata.name)
        return queue if counted is None else attrs.evolve(queue, status=counted.status)

    def _ancestors(self, queue: Queue) -> tuple[Queue, ...]:
        found: dict[str, Queue] = {}
        parent = self.cluster.store.get(Queue, queue.spec.parent_queue)
        while parent is not None and parent.metadata.name not in found and parent is not queue:
            found[parent.metadata.name] = parent
            parent = self.cluster.store.get(Queue, parent.spec.parent_queue)
        return tuple(found.values())

    # --- A fresh installation ------------------------------------------------------------------------------------

    async def _make_first_queues(self) -> None:
        """Create the first two queues if the API server has no others."""
        if not first_queues(self.cluster.store.all(Queue)):
            return
        while True:
            refusal = await self._try_first_queues()
            if refusal is None:
                return
            warn(self.cluster.connectivity, "first queues not made", why=refusal.why)
            await self.cluster.clock.sleep(max(_AGAIN, refusal.retry_after or 0.0))
            await self.cluster.connectivity.opened()

    async def _try_first_queues(self) -> Refusal | None:
        """Create the missing queues; the second never before the first, so return the first refusal."""
        # By quorum: another replica or an administrator may have created queues since the store's list.
        existing = await self.cluster.api.perform(List(cls=Queue, fresh=True))
        if isinstance(existing, Refusal):
            return existing
        for manifest in first_queues(existing):
            ref = Ref(Queue, manifest["metadata"]["name"])
            reply = await self.cluster.api.perform(Create(ref=ref, manifest=manifest))
            if isinstance(reply, Refusal) and reply.reason is not Reason.ALREADY_EXISTS:
                return reply
        return None


def _counts(change: Change[PodGroup]) -> bool:
    """Return whether a change of a pod group affects its queue."""
    before, after = change.before, change.after
    return (
        before is None
        or after is None
        or before.spec.queue != after.spec.queue
        or before.status.resources_status != after.status.resources_status
    )
