"""Groups of bare pods, shown in the store of this process before they are written.

Where one process groups, decides and binds, a bare pod is placed without its group in the API server.
So it is shown as it will be, the pod is decided on at once, and the write follows: in calm times a moment later, since
it would slow down the decision on its pod and the bind, and in a peak of load when the binds leave room for it.

Holds: a group is shown ahead of its write only in a namespace where the last write of a group went through; the first
refusal ends that, and the pods concerned are grouped anew, with the write before all else. What is shown and not
written is lost with the process: the next one finds pods that name no group, or one that is missing, and makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from kai.api.codec.structuring import structure_as
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.api.values.times import instant_text
from kai.cluster.port import Cluster
from kai.cluster.requests import Apply
from kai.cluster.signals import Observe, unobserved
from kai.cluster.work import DONE, Ended, Look, QueueOptions, Workers
from kai.errors import InputError
from kai.podgrouper.resource import Manifest
from kai.podgrouper.update import GroupWrite

_OPTIONS: Final = QueueOptions(concurrency=16, gather=0.05)
_MOST_OPEN: Final = 1 << 12
"""Namespaces that are remembered; in one that was forgotten, the next group is written before it is shown."""


@attrs.frozen
class _Shown:
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
    _shown: dict[Key, _Shown] = attrs.field(factory=dict)
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
        self._shown[key] = _Shown(key_of(pod), pod.metadata.uid, write)
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
