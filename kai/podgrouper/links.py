"""Links of pods to their groups that are shown in the store of this process and not yet written.

The link is an annotation of the pod, and a binding writes the pod anyway. So the link of a pod that is to be bound soon
is only shown, and the binding brings it along: one write less for each pod, in the second in which it waits for its
place. If no binding comes, the link is written by itself.

Holds: a link is shown once at most for each pod; what is shown and not written is lost with the process, and the next
one finds a pod without a group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.api.conventions.bind_preparation import needs_preparation
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.port import Clock, Store
from kai.cluster.work import DONE, Ended
from kai.lenient import mapping_of

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
