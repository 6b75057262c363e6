"""Rests between cycles, which end early for pods that start without others.

One task ends them for as long as a term lasts. A task for each rest, cancelled with it, would be a cycle of objects:
four times a second its frames and its traceback would be left to Python's collector, which comes by every two minutes
or later, and the process would grow by so much.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import attrs

from kai.cluster.port import Clock
from kai.scheduler.independent_pods import IndependentPods
from kai.scheduler.rhythm import Haste


@attrs.define(eq=False)
class Rests:
    """Ends the present rest once a pod came that starts without others, as often as haste allows."""

    pods: IndependentPods
    haste: Haste
    clock: Clock
    _present: anyio.CancelScope | None = None
    _known: int = 0
    _begun: anyio.Event = attrs.field(factory=anyio.Event)

    @contextmanager
    def begun(self, known: int) -> Iterator[anyio.CancelScope]:
        """Return a scope that is cancelled when more than the ``known`` pods came."""
        with anyio.CancelScope() as scope:
            self._present, self._known = scope, known
            self._begun.set()
            try:
                yield scope
            finally:
                self._present = None

    async def run(self) -> None:
        """Count pods, and end rests, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.pods.run)
            await self._end_rests()

    async def _end_rests(self) -> None:
        while True:
            if self._present is None:
                self._begun = anyio.Event()
                await self._begun.wait()
            scope = self._present
            await self.pods.more(self._known)
            now = self.clock.monotonic()
            due = self.haste.due(now)
            if due > now:
                await self.clock.sleep(due - now)
            if scope is not None and scope is self._present:
                self.haste.take(due)
                scope.cancel()
                self._present = None
