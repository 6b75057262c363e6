"""Owners that are asked once more though no pod gave cause to: soon where a group lost a pod, else once a minute.

A pod that has a node is looked at again when it is told to go, and its owner may want fewer by then. A pod that waits
is gone at once, and is looked at no more: the group of a job that was cut from eight pods to four would wait for eight.
And a pod that failed may be one that its owner does not make again.

What an owner says may change while its pods wait: its priority, or how many start together. Owners are not watched, as
that would take rights to lists of all kinds; so those of groups that wait are asked now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from kai.api import names
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.port import Change, Cluster
from kai.cluster.signals import Observe, unobserved
from kai.cluster.work import DONE, Ended, Look, QueueOptions, Workers
from kai.podgrouper.reading import GROUPS

_OPTIONS: Final = QueueOptions(gather=5.0)
"""By then a Job has counted a pod that failed, and of a workload that was deleted most pods are gone."""
_PAUSE: Final = 60.0
_SECONDS_EACH: Final = 0.5
"""Where many groups wait, no more than two a second are asked about, and each of them less often."""


@attrs.define
class Rounds:
    """The groups about which owners are to be asked."""

    cluster: Cluster
    ask: Callable[[Key], None]
    """Has a pod looked at although nothing about it changed."""
    observe: Observe = unobserved
    _waiting: dict[Key, float] = attrs.field(factory=dict)
    """Groups with pods that wait, and when the owner was asked last."""
    _lost: set[Key] = attrs.field(factory=set)
    _workers: Workers[Key] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the loop around `_look`."""
        self._workers = Workers.of(self.cluster, "podgrouper-rounds", self._look, _OPTIONS, self.observe)

    async def run(self) -> None:
        """Look at groups until cancelled."""
        await self._workers.run()

    def enter(self, pod: Pod, group: Key) -> None:
        """Take note of a pod that has its group, and whose owner was asked just now."""
        if pod.metadata.owner_references and not pod.spec.node_name and group not in self._waiting:
            self._waiting[group] = self.cluster.clock.monotonic()
            self._workers.want(group)

    def take(self, change: Change[Pod]) -> None:
        """Take note of a pod if it went, as it was when it was last looked at, or if it failed."""
        before, after = change.before, change.after
        if before is None or (after is not None and not _failed(before, after)):
            return
        metadata = before.metadata
        group = metadata.annotations.get(names.POD_GROUP)
        if group and metadata.owner_references and metadata.deletion_timestamp is None:
            self._lost.add((metadata.namespace, group))
            self._workers.want((metadata.namespace, group))

    async def _look(self, look: Look[Key]) -> Ended:
        namespace, name = look.key
        store, now = self.cluster.store, self.cluster.clock.monotonic()
        group = store.get(PodGroup, name, namespace)
        left = [pod for pod in store.find(GROUPS, f"{namespace}/{name}") if _counts(pod)]
        pause = max(_PAUSE, _SECONDS_EACH * len(self._waiting))
        is_due = self._waiting.get(look.key, now) + pause <= now
        lacks = group is not None and (group.spec.sub_groups or len(left) < group.spec.minimum)
        has_lost = look.key in self._lost
        self._lost.discard(look.key)
        if left and (is_due or (has_lost and lacks)):
            self.ask(key_of(left[0]))
            self._waiting[look.key] = now
        if group is None or all(pod.spec.node_name for pod in left):
            self._waiting.pop(look.key, None)
            return DONE
        return Ended(after=self._waiting.setdefault(look.key, now) + pause - now)


def _failed(before: Pod, after: Pod) -> bool:
    return after.status.phase == "Failed" and before.status.phase != "Failed"


def _counts(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED
