"""Pods that begin to wait and start without others: a cycle follows them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio
import attrs

from kai.api import names
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.port import Change, Store
from kai.scheduler.rhythm import starts_alone


@attrs.define(eq=False)
class IndependentPods:
    """Counts them, as the store shows them."""

    store: Store
    scheduler: str
    """The name of the scheduler that they ask for."""
    owns: Callable[[Mapping[str, str]], bool] = lambda _: True
    """Returns whether a group with these labels is decided on here."""
    count: int = 0
    _more: anyio.Event = attrs.field(factory=anyio.Event)

    async def run(self) -> None:
        """Count until cancelled."""
        with self.store.changes(Pod) as changes:
            async for batch in changes:
                found = sum(map(self._begins, batch))
                if found:
                    self.count += found
                    self._more.set()

    async def more(self, count: int) -> None:
        """Wait until there were more than so many."""
        while self.count <= count:
            self._more = anyio.Event() if self._more.is_set() else self._more
            await self._more.wait()

    def _begins(self, change: Change[Pod]) -> bool:
        before, after = change.before, change.after
        if after is None or not self._waits(after) or (before is not None and self._waits(before)):
            return False
        name = after.metadata.annotations[names.POD_GROUP]
        group = self.store.get(PodGroup, name, after.metadata.namespace)
        return group is not None and starts_alone(group) and self.owns(group.metadata.labels)

    def _waits(self, pod: Pod) -> bool:
        spec, metadata = pod.spec, pod.metadata
        return (
            not spec.node_name
            and spec.scheduler_name == self.scheduler
            and not spec.scheduling_gates
            and names.POD_GROUP in metadata.annotations
            and metadata.deletion_timestamp is None
        )
