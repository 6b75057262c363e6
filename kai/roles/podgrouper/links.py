"""Deferred writes: links of pods to their groups, and groups of bare pods, that only this process's store shows.

A link is an annotation of the pod, and a binding writes the pod anyway. So the link of a pod that is to be bound soon
is only shown in the store, and the binding writes it: one write less for each pod, in the second in which it waits for
its place. If no binding comes, the link is written separately.

Holds: a link is shown at most once for each pod. A link that is shown and not written is lost with the process, and the
next process finds a pod without a group.

`traits_of` covers the fields of a pod that matter for its group: a change of any other field needs no new look.

Groups of bare pods are also shown before they are written. Where one process groups, decides and binds, a bare pod does
not need its group in the API server to be placed. So the group is shown in its final form, the pod is decided on at
once, and the write follows: at low load a moment later, since it would delay the decision on its pod and the bind, and
at peak load when the binds leave room for it.

Holds: a group is shown ahead of its write only in a namespace where the last write of a group succeeded. The first
refusal ends that, and the pods concerned are grouped again, with the write first. A group that is shown and not written
is lost with the process: the next process finds pods that name no group, or a missing one, and creates it.
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
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of
from kai.cluster.port import Clock, Cluster, Store
from kai.cluster.requests import Apply
from kai.cluster.signals import Observe, unobserved
from kai.cluster.work import DONE, Ended, Look, QueueOptions, Workers
from kai.roles.podgrouper.decide import GroupWrite

if TYPE_CHECKING:
    from kai.roles.podgrouper.resource import Manifest

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
"""Annotations that a binding or a node writes: they say nothing about the workload."""


def traits_of(pod: Pod, patch: Mapping[str, Any] | None = None) -> int:
    """Return a hash of all fields of a pod that a grouper may read, with a patch of its metadata applied.

    Whether it is bound matters to owned pods only.
    """
    metadata = pod.metadata
    written = mapping_of(patch or {}, "metadata")
    labels = {**metadata.labels, **mapping_of(written, "labels")}
    annotations = {**metadata.annotations, **mapping_of(written, "annotations")}
    # A hash in place of the fields, which would take 700 bytes for each pod. Two pods collide with a chance of 1 to
    # 2^64, and their owner cannot raise it: Python hashes text with a secret of the process.
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
"""How long to wait for a binding that is under way, before each check."""
_PATIENCE: Final = 0.25
"""The next wait as a part of the wait so far, where that is longer: checks take time from binds."""
_MOST_PATIENCE: Final = 5.0
_LONGEST_WAIT: Final = 60.0


@attrs.define
class _Shown:
    """A link that is shown and not written."""

    uid: str
    """The UID of the pod."""
    since: float
    due: float
    """When the link is written separately."""


@attrs.define
class ShownLinks:
    """The links that are shown and not written."""

    store: Store
    clock: Clock
    delay_seconds: float
    """How long a link waits for a binding; 0: each is written at once."""
    _shown: dict[Key, _Shown] = attrs.field(factory=dict)
    _bound_at: float = -math.inf
    """When a binding last wrote a link."""

    def may_ride(self, pod: Pod, patch: Mapping[str, Any]) -> bool:
        """Return whether the link may wait for the binding: that write alone binds the pod, and it is due soon."""
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
        """Show the link in ``patch`` in the store."""
        self.await_binding(pod)
        self.store.overlay(Pod, key_of(pod), mapping_of(patch["metadata"])["annotations"])

    def await_binding(self, pod: Pod) -> None:
        """Give a binding the time to make a write of its own unnecessary."""
        now = self.clock.monotonic()
        self._shown[key_of(pod)] = _Shown(pod.metadata.uid, now, now + self.delay_seconds)

    def forget(self, key: Key) -> None:
        """Drop the link of a pod: it was written, or the pod is gone."""
        self._shown.pop(key, None)

    def bound(self, key: Key) -> None:
        """Note that a pod was bound: if its link was only shown, the binding has written it."""
        if self._shown.pop(key, None) is not None:
            self._bound_at = self.clock.monotonic()

    def is_due(self, pod: Pod) -> bool:
        """Return whether no binding wrote the pod's link in time, so that it must be written separately."""
        key = key_of(pod)
        shown = self._shown.get(key)
        if shown is None:
            return False
        if shown.uid != pod.metadata.uid or pod.spec.node_name or not self.store.is_overlaid(Pod, key):
            del self._shown[key]
            return False
        now = self.clock.monotonic()
        # The local clock may be behind the API server's, from which the creation time comes.
        waited = max(now - shown.since, self.clock.now() - (pod.metadata.creation_timestamp or 0.0))
        if shown.due <= now and (self.store.is_assumed(BindRequest, key) or self._may_be_next(waited)):
            # The binding carries the pod's version, so a write of the pod would make a binding under way fail.
            shown.due = now + max(_BINDING_SECONDS, min(waited * _PATIENCE, _MOST_PATIENCE))
            return False
        return shown.due <= now

    def _may_be_next(self, waited: float) -> bool:
        """Return whether pods are being bound at present, and a pod has not waited for too long."""
        is_going_on = self.clock.monotonic() - self._bound_at < _BINDING_SECONDS
        return is_going_on and waited < _LONGEST_WAIT

    def rest(self, key: Key) -> Ended:
        """Return how a successful look ends: a link that is only shown is looked at again when it is due."""
        if key not in self._shown:
            return DONE
        return Ended(after=max(0.0, self._shown[key].due - self.clock.monotonic()))


_OPTIONS: Final = QueueOptions(concurrency=16, gather=0.05)
_MOST_OPEN: Final = 1 << 12
"""The most namespaces that are remembered; in a forgotten one, the next group is written before it is shown."""


@attrs.frozen
class _ShownGroup:
    """A group that is shown, its pod, and the pod's UID."""

    pod: Key
    uid: str
    write: GroupWrite


@attrs.define
class WriteBehind:
    """The groups that are shown and not yet written."""

    cluster: Cluster
    manager: str
    again: Callable[[Key], None]
    """Requests the grouping of a pod anew, since its group could not be written."""
    observe: Observe = unobserved
    _shown: dict[Key, _ShownGroup] = attrs.field(factory=dict)
    _open: dict[str, None] = attrs.field(factory=dict)
    """Namespaces where the last write of a group succeeded."""
    _workers: Workers[Key] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the loop around `_look`."""
        self._workers = Workers.of(self.cluster, "podgrouper-write-behind", self._look, _OPTIONS, self.observe)

    async def run(self) -> None:
        """Write groups that are shown, until cancelled."""
        await self._workers.run()

    def may_show(self, namespace: str) -> bool:
        """Return whether groups of a namespace may be shown ahead of their writes."""
        return namespace in self._open

    def note(self, namespace: str, *, refused: bool) -> None:
        """Note the result of a write of a group."""
        # Removed first, so that it moves to the end: beyond the bound goes the namespace that was written to longest
        # ago.
        self._open.pop(namespace, None)
        if not refused:
            self._open[namespace] = None
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]

    def show(self, pod: Pod, write: GroupWrite) -> bool:
        """Show the group of a pod, and have it written; return False for a group that our own codec cannot read."""
        # Whole seconds, as the API server keeps them: the group must not look changed once it is written.
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
            self._end(look.key)  # without its owner, the group would never be garbage-collected
            return DONE
        namespace, name = look.key
        ref = Ref(PodGroup, name, namespace)
        manifest = shown.write.apply_configuration()
        # Binds may overtake this write: the store shows the group already, and the pod waits for its binding and not
        # for this.
        reply = await self.cluster.api.perform(Apply(ref=ref, manifest=manifest, manager=self.manager, can_wait=True))
        if isinstance(reply, Refusal) and reply.interrupts:
            return Ended(failure=reply.why, after=reply.retry_after)
        self._end(look.key)
        self.note(namespace, refused=isinstance(reply, Refusal))
        if isinstance(reply, Refusal):
            self.again(shown.pod)
        return DONE

    def _end(self, key: Key) -> None:
        """Show the API server's state again, which includes the group if it was written."""
        del self._shown[key]
        self.cluster.store.forget(PodGroup, key)
