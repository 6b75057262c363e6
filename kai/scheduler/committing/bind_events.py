"""Binds that were ordered by a bind request, of which the pod is told once it has its node.

The binder may be another process, and its outcome shows in the store only. A request that the API server took is no
bind yet: the binder may refuse it, and an event cannot be taken back. A process that starts knows of none, so what was
ordered in an earlier term is told by the binder's own event alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit
from kai.scheduler.reader import Reader


@attrs.define
class BindEvents:
    """Events that wait for a bind, by the UID of the pod."""

    _waiting: dict[str, tuple[str, Emit]] = attrs.field(factory=dict)
    """The node that was ordered, and the event."""

    def await_bind(self, node: str, event: Emit) -> None:
        """Tell a pod of this node once it is bound to it; what was ordered for the pod before counts no more."""
        self._waiting[event.uid] = (node, event)

    def take(self, reader: Reader) -> Iterator[Emit]:
        """Return the events that have become true, and forget them and those of pods that went another way.

        Cost: one look at the store for each bind that was ordered and has not ended.
        """
        for uid, (node, event) in tuple(self._waiting.items()):
            pod = reader.get(Pod, event.ref.name, event.ref.namespace)
            if pod is None or pod.metadata.uid != uid:
                del self._waiting[uid]
            elif pod.spec.node_name:
                del self._waiting[uid]
                if pod.spec.node_name == node:
                    yield event

    def forget(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
