"""Links of pods to their groups that are shown in the store of this process and not yet written.

The link is an annotation of the pod, and a binding writes the pod anyway. So the link of a pod that is to be bound soon
is only shown, and the binding brings it along: one write less for each pod, in the second in which it waits for its
place. If no binding comes, the link is written by itself.

Holds: a link is shown once at most for each pod; what is shown and not written is lost with the process, and the next
one finds a pod without a group.

What matters of a pod for its group: a change of anything else needs no second look.

Groups of bare pods, shown in the store of this process before they are written.

Where one process groups, decides and binds, a bare pod is placed without its group in the API server.
So it is shown as it will be, the pod is decided on at once, and the write follows: in calm times a moment later, since
it would slow down the decision on its pod and the bind, and in a peak of load when the binds leave room for it.

Holds: a group is shown ahead of its write only in a namespace where the last write of a group went through; the first
refusal ends that, and the pods concerned are grouped anew, with the write before all else. What is shown and not
written is lost with the process: the next one finds pods that name no group, or one that is missing, and makes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.codec.structuring import structure_as
from kai.api.conventions.binding import needs_preparation
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.values import instant_text
from kai.basics.parsing import mapping_of
from kai.cluster.port import Clock, Cluster, Store
from kai.cluster.requests import Apply
from kai.cluster.signals import Observe, unobserved
from kai.cluster.work import DONE, Ended, Look, QueueOptions, Workers
from kai.errors import InputError
from kai.podgrouper.update import GroupWrite

if TYPE_CHECKING:
    from kai.podgrouper.resource import Manifest

_FOREIGN: Final = frozenset(
    {
        names.RECEIVED_RESOURCE_TYPE,
        names.GRANTED,
        names.EPOCH,
        names.LEASE,
        names.NUMA_PREDICTED,
        names.NUMA_OBSERVED,
    }
)
"""What a binding writes, or a node: it says nothing about the workload."""


def traits_of(pod: Pod, patch: Mapping[str, Any] | None = None) -> int:
    """Return a number that stands for all of a pod that a grouper may read, with a patch of its metadata applied.

    Whether it is bound matters to owned pods only. Two pods that differ have one number with a chance of 1 to 2^64,
    which their owner cannot raise: Python hashes text with a secret of the process. What it stands for would take 700
    bytes for each pod.
    """
    metadata = pod.metadata
    written = mapping_of(patch or {}, "metadata")
    labels = {**metadata.labels, **mapping_of(written, "labels")}
    annotations = {**metadata.annotations, **mapping_of(written, "annotations")}
    return hash(
        (
            metadata.uid,
            frozenset(labels.items()),
            frozenset(item for item in annotations.items() if item[0] not in _FOREIGN),
            metadata.owner_references,
            metadata.deletion_timestamp is not None,
            bool(metadata.owner_references and pod.spec.node_name),
        )
    )


_BINDING_SECONDS: Final = 2.0
"""How long to wait for a binding that is under way, again and again."""
_PATIENCE: Final = 0.25
"""Which part of what a pod has waited already it waits once more, where that is longer: looks cost what binds need."""
_MOST_PATIENCE: Final = 5.0
_LONGEST_WAIT: Final = 60.0


@attrs.define
class _Shown:
    """A link that is only shown."""

    uid: str
    """That of the pod."""
    since: float
    due: float
    """When the link is written by itself."""


@attrs.define
class ShownLinks:
    """The links that are only shown."""

    store: Store
    clock: Clock
    delay_seconds: float
    """For how long a link is left to a binding; 0: each is written at once."""
    _shown: dict[Key, _Shown] = attrs.field(factory=dict)
    _bound_at: float = -math.inf
    """When a binding brought a link along last."""

    def may_ride(self, pod: Pod, patch: Mapping[str, Any]) -> bool:
        """Return whether the link may wait for the binding: of a pod that is bound by that write alone, and soon."""
        return (
            self.delay_seconds > 0
            and set(mapping_of(patch["metadata"])) == {"annotations"}
            and not needs_preparation(pod)
            and not pod.spec.node_name
            and not pod.spec.scheduling_gates
            and pod.metadata.deletion_timestamp is None
            and key_of(pod) not in self._shown
        )

    def show(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        """Show the link that ``patch`` would write."""
        key = key_of(pod)
        now = self.clock.monotonic()
        self._shown[key] = _Shown(pod.metadata.uid, now, now + self.delay_seconds)
        self.store.overlay(Pod, key, mapping_of(patch["metadata"])["annotations"])

    def forget(self, key: Key) -> None:
        """Take that the link of a pod is written, or that the pod is gone."""
        self._shown.pop(key, None)

    def bound(self, key: Key) -> None:
        """Take that a pod was bound: the binding brought its link along, if that was only shown."""
        if self._shown.pop(key, None) is not None:
            self._bound_at = self.clock.monotonic()

    def is_due(self, pod: Pod) -> bool:
        """Return whether no binding brought the pod's link in time, so that it is to be written by itself."""
        key = key_of(pod)
        shown = self._shown.get(key)
        if shown is None:
            return False
        if shown.uid != pod.metadata.uid or pod.spec.node_name or not self.store.is_overlaid(Pod, key):
            del self._shown[key]
            return False
        now = self.clock.monotonic()
        # The clock of this machine may be behind that of the API server, which says when the pod was created.
        waited = max(now - shown.since, self.clock.now() - (pod.metadata.creation_timestamp or 0.0))
        if shown.due <= now and (self.store.is_assumed(BindRequest, key) or self._may_be_next(waited)):
            # A write of the pod would make the binding that is on its way fail, which carries the pod's version.
            shown.due = now + max(_BINDING_SECONDS, min(waited * _PATIENCE, _MOST_PATIENCE))
            return False
        return shown.due <= now

    def _may_be_next(self, waited: float) -> bool:
        """Return whether pods are bound one after the other at present, and a pod has not waited for too long."""
        is_going_on = self.clock.monotonic() - self._bound_at < _BINDING_SECONDS
        return is_going_on and waited < _LONGEST_WAIT

    def rest(self, key: Key) -> Ended:
        """Return how a look ends that went well: a link that is only shown is looked at again in time."""
        if key not in self._shown:
            return DONE
        return Ended(after=max(0.0, self._shown[key].due - self.clock.monotonic()))


_OPTIONS: Final = QueueOptions(concurrency=16, gather=0.05)
_MOST_OPEN: Final = 1 << 12
"""Namespaces that are remembered; in one that was forgotten, the next group is written before it is shown."""


@attrs.frozen
class _ShownGroup:
    """A group that is shown, the pod that it is for, and that pod's UID."""

    pod: Key
    uid: str
    write: GroupWrite


@attrs.define
class WriteBehind:
    """The groups that are shown and not written yet."""

    cluster: Cluster
    manager: str
    again: Callable[[Key], None]
    """Has a pod grouped anew: its group could not be written."""
    observe: Observe = unobserved
    _shown: dict[Key, _ShownGroup] = attrs.field(factory=dict)
    _open: dict[str, None] = attrs.field(factory=dict)
    """Namespaces where the last write of a group went through."""
    _workers: Workers[Key] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the loop around `_look`."""
        self._workers = Workers.of(self.cluster, "podgrouper-write-behind", self._look, _OPTIONS, self.observe)

    async def run(self) -> None:
        """Write what is shown, until cancelled."""
        await self._workers.run()

    def may_show(self, namespace: str) -> bool:
        """Return whether groups of a namespace may be shown ahead of their writes."""
        return namespace in self._open

    def note(self, namespace: str, *, refused: bool) -> None:
        """Take note of how a write of a group ended."""
        self._open.pop(namespace, None)
        if not refused:
            self._open[namespace] = None
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]

    def show(self, pod: Pod, write: GroupWrite) -> bool:
        """Show the group of a pod, and have it written; False for one that we could not read ourselves."""
        now = float(int(self.cluster.clock.now()))
        metadata = write.manifest["metadata"]
        born: Manifest = {**metadata, "creationTimestamp": instant_text(now)} if isinstance(metadata, dict) else {}
        try:
            group = structure_as(PodGroup, {**write.manifest, "metadata": born})
        except InputError:
            return False
        key = key_of(group)
        self._shown[key] = _ShownGroup(key_of(pod), pod.metadata.uid, write)
        self.cluster.store.assume(group, lambda found: found is not None)
        self._workers.want(key)
        return True

    async def _look(self, look: Look[Key]) -> Ended:
        shown = self._shown.get(look.key)
        if shown is None:
            return DONE
        pod = self.cluster.store.get(Pod, shown.pod[1], shown.pod[0])
        if pod is None or pod.metadata.uid != shown.uid:
            self._end(look.key)  # since nothing would ever delete the group
            return DONE
        namespace, name = look.key
        ref = Ref(PodGroup, name, namespace)
        manifest = shown.write.apply_configuration()
        reply = await self.cluster.api.perform(Apply(ref=ref, manifest=manifest, manager=self.manager, can_wait=True))
        if isinstance(reply, Refusal) and reply.interrupts:
            return Ended(failure=reply.why, after=reply.retry_after)
        self._end(look.key)
        self.note(namespace, refused=isinstance(reply, Refusal))
        if isinstance(reply, Refusal):
            self.again(shown.pod)
        return DONE

    def _end(self, key: Key) -> None:
        """Show what is really there, which is the group if it was written."""
        del self._shown[key]
        self.cluster.store.forget(PodGroup, key)
