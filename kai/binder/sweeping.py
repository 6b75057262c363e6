"""The shell of sweeps: what is left over is deleted, lost grants are written again, and the log says so once."""

from __future__ import annotations

import attrs
import structlog

from kai.binder.plan_runner import PlanRunner
from kai.binder.restoring import restore_grants
from kai.binder.settings import BinderSettings
from kai.binder.sweep import sweep_everything, sweep_group, sweep_requests
from kai.cluster.port import Connectivity
from kai.cluster.warning import warn


@attrs.define(eq=False)
class Sweeping:
    """Sweeps for one binder."""

    settings: BinderSettings
    plans: PlanRunner
    connectivity: Connectivity
    _lost: frozenset[str] = frozenset()
    """UIDs of the pods that had lost their grants at the last look."""

    async def sweep(self, group: str) -> bool:
        """Sweep one GPU group, or everything if it is ""; return whether that succeeded."""
        if not group:
            await self._restore()
            await self._sweep_requests()
        plan = sweep_group(group, self.settings) if group else sweep_everything(self.settings)
        deleted = await self.plans.run(plan)
        if isinstance(deleted, str):
            warn(self.connectivity, "sweep failed", group=group, why=deleted)
        elif deleted:
            structlog.get_logger().info("swept", group=group, deleted=list(deleted))
        return not isinstance(deleted, str)

    async def _restore(self) -> None:
        """Write lost grants again, and say so once for each pod."""
        found = await self.plans.run(restore_grants(self.settings))
        if isinstance(found, str):
            structlog.get_logger().debug("grants not restored", why=found)
            return
        for each in found:
            if each.uid not in self._lost:
                structlog.get_logger().warning("grant lost", why=each.message, restored=each.is_restored)
        self._lost = frozenset(each.uid for each in found)

    async def _sweep_requests(self) -> None:
        """Delete bind requests that claim a binding that was never made, so that their pods are decided on again."""
        deleted = await self.plans.run(sweep_requests(self.settings))
        if isinstance(deleted, str):
            structlog.get_logger().debug("bind requests not swept", why=deleted)
        elif deleted:
            structlog.get_logger().warning("bind requests of pods without a node deleted", deleted=list(deleted))
