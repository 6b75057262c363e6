"""Groups of bare pods that stay in memory: nothing is said about them, so the API server does not get them.

A group of one pod without an owner says nothing that its pod does not say. Where one process groups, decides, binds
and counts, such a group need not be written: it is shown in the store of this process, and the link of its pod with
it. The binding then writes neither. The next leader derives the same group from the pod, with the same name.

A group is written once something has to be said about it, and its link after it:

- its pod waits for longer than a binding usually takes (`kai.roles.podgrouper.links`),
- its pod has a condition that says why it waits; then the group gets one too,
- its pod needs more than one write to be bound: a shared GPU, a resource claim or a volume,
- its pod has a scheduling gate, or was bound without a grant,
- it or its queue has a limit of the run time: the clock of a run is in the status of the group.

Holds: while a group is kept, the API server has neither the group nor a link to it. A pod that names a group which
does not exist would be passed over by KAI-Scheduler if that took its place.

Holds: the scheduler decides only after the groups of running pods are shown again (`FirstPass`). A cycle before that
would see these pods as pods of a deleted group, without priority and minimum runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import attrs

from kai.api import names
from kai.api.conventions.binding import grant_of, needs_preparation
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import ENDED, Pod, condition_of
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of
from kai.cluster.port import Store
from kai.roles.podgrouper.decide import GroupWrite, unwritten

if TYPE_CHECKING:
    from collections.abc import Iterable

_GATED: Final = "SchedulingGated"
_MOST_REFUSING: Final = 1 << 12
"""The most namespaces that are remembered because a write of a group was refused there."""


@attrs.frozen
class _Kept:
    """A group that is kept, and its pod's UID."""

    uid: str
    group: Key
    write: GroupWrite


@attrs.define
class KeptGroups:
    """The groups that only this process's store shows, by pod."""

    store: Store
    is_on: bool
    """Whether groups may be kept at all."""
    _kept: dict[Key, _Kept] = attrs.field(factory=dict)
    _pods: dict[Key, Key] = attrs.field(factory=dict)
    """The pod of each kept group."""
    _refusing: dict[str, None] = attrs.field(factory=dict)
    """Namespaces where the last write of a group was refused: there the next group is written before its pod starts."""

    def may_keep(self, pod: Pod, write: GroupWrite, owner: str) -> bool:
        """Return whether the group of a pod may stay in memory; ``owner`` is the UID of the group's owner."""
        metadata = pod.metadata
        return (
            self.is_on
            and not metadata.owner_references
            and owner == metadata.uid
            and not mapping_of(write.manifest, "metadata").get("uid")
            # A link that this process does not show was written, by an earlier process or another client. Then the
            # group has to be written too.
            and (names.POD_GROUP not in metadata.annotations or key_of(pod) in self._kept)
            and metadata.namespace not in self._refusing
            and not needs_preparation(pod)
            and not pod.spec.scheduling_gates
            and (_holds_grant(pod) if pod.spec.node_name else not is_explained(pod))
        )

    def keep(self, pod: Pod, write: GroupWrite) -> bool:
        """Show the group of a pod and its link; return False for a group that our own codec cannot read."""
        try:
            group = unwritten(pod, write)
        except InputError:
            return False
        key, place = key_of(pod), key_of(group)
        self._kept[key] = _Kept(pod.metadata.uid, place, write)
        self._pods[place] = key
        self.store.keep(group)
        self.store.overlay(Pod, key, {names.POD_GROUP: group.metadata.name}, is_kept=True)
        return True

    def write_of(self, pod: Pod) -> GroupWrite | None:
        """Return the write of the group of a pod; None if it is not kept."""
        kept = self._kept.get(key_of(pod))
        return None if kept is None or kept.uid != pod.metadata.uid else kept.write

    def pod_of(self, group: Key) -> Key | None:
        """Return the pod of a kept group; None if it is not kept."""
        return self._pods.get(group)

    def is_needed(self, pod: Pod) -> bool:
        """Return whether a kept group has to be written: its pod says why it waits, or its run time is limited."""
        kept = self._kept.get(key_of(pod))
        if kept is None:
            return False
        group = self.store.get(PodGroup, kept.group[1], kept.group[0])
        is_timed = group is not None and group.status.running_since is not None
        return is_timed or (not pod.spec.node_name and is_explained(pod))

    def written(self, pod: Pod) -> None:
        """Note that the API server has the group of a pod; its link is shown as one that a write may follow."""
        kept = self._forget(key_of(pod))
        if kept is not None:
            self.store.overlay(Pod, key_of(pod), {names.POD_GROUP: kept.group[1]})

    def drop(self, key: Key) -> None:
        """Show the group of a pod no longer: the pod is gone, or its group cannot be written."""
        kept = self._forget(key)
        if kept is not None:
            self.store.overlay(Pod, key, {})
            if self.store.is_kept(PodGroup, kept.group):
                self.store.forget(PodGroup, kept.group)

    def drop_all(self) -> None:
        """Show no group any longer: the term is over, and another process may decide."""
        for key in tuple(self._kept):
            self.drop(key)

    def note(self, namespace: str, *, refused: bool) -> None:
        """Note the result of a write of a group."""
        # Removed first, so that it moves to the end: beyond the bound goes the namespace that was refused longest ago.
        self._refusing.pop(namespace, None)
        if refused:
            self._refusing[namespace] = None
            if len(self._refusing) > _MOST_REFUSING:
                del self._refusing[next(iter(self._refusing))]

    def _forget(self, key: Key) -> _Kept | None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._pods.pop(kept.group, None)
        return kept


def is_explained(pod: Pod) -> bool:
    """Return whether a condition of a pod says why it waits; the API server itself says so of scheduling gates."""
    found = condition_of(pod, names.POD_SCHEDULED_CONDITION)
    return found is not None and found.status == "False" and found.reason != _GATED


def _holds_grant(pod: Pod) -> bool:
    """Return whether a bound pod was bound by kai, or has ended and holds nothing."""
    grant = grant_of(pod)
    return pod.status.phase in ENDED or (grant is not None and bool(grant.queue))


@attrs.define(eq=False)
class FirstPass:
    """Whether the groups of pods that ran before this term are shown again.

    The pod grouper of a term begins the pass and ends it; the scheduler of the same process waits for that.
    """

    _left: set[Key] | None = None
    """Pods that the present pass has not looked at yet; None outside of a term."""
    _ended: anyio.Event = attrs.field(factory=anyio.Event)

    def begin(self, pods: Iterable[Pod], scheduler_name: str) -> None:
        """Begin a pass over the pods whose groups may be kept."""
        self._left = {
            key_of(pod)
            for pod in pods
            if pod.spec.node_name
            and pod.spec.scheduler_name == scheduler_name
            and not pod.metadata.owner_references
            and names.POD_GROUP not in pod.metadata.annotations
            and pod.status.phase not in ENDED
        }
        self._end_if_done()

    def looked_at(self, key: Key) -> None:
        """Note that a pod was looked at, however that ended."""
        if self._left is not None and key in self._left:
            self._left.discard(key)
            self._end_if_done()

    def stop(self) -> None:
        """End the term: the next one needs a pass of its own."""
        self._left = None
        # An event of anyio cannot be cleared, so the next term gets a new one.
        if self._ended.is_set():
            self._ended = anyio.Event()

    async def ended(self) -> None:
        """Wait until the pass of the present term is over."""
        # Asked again after each event: between its end and the turn of this task another term may have begun.
        while self._left is None or self._left:
            await self._ended.wait()

    def _end_if_done(self) -> None:
        if not self._left:
            self._ended.set()
