"""Tidying: Python's collector looks twice a minute at what is new, between two cycles.

A process that works for weeks must not hold more than in its first hours. Cycles keep the collector away
(`kai.api.collector`), and it counts by how much objects became more: where about as many go as come, it does not come
by for an hour. All threads wait while it looks through what came since its last look; so it looks often.
"""

from __future__ import annotations

from typing import Final

import anyio

from kai.api.collector import collect_young
from kai.cluster.port import Cluster

_APART: Final = 30.0


async def tidying(cluster: Cluster, in_use: anyio.Lock) -> None:
    """Have the collector look now and then, holding ``in_use`` as a cycle does; until cancelled."""
    while True:
        await cluster.clock.sleep(_APART)
        async with in_use:
            await cluster.cpu.run(collect_young)


__all__ = ["tidying"]
