"""Tidying, between two cycles: Python's collector looks at what is new, and memory that lies idle is given back.

A process that works for weeks must not hold more than in its first hours. Cycles keep the collector away
(`kai.api.memory.collector`), and it counts by how much objects became more: where about as many go as come, it does not
come by for an hour. All threads wait while it looks through what came since its last look; so it looks often, twice a
minute. Memory is given back seldom, every five minutes, for the next cycles have to ask for what they need of it again.
"""

from __future__ import annotations

import itertools
from typing import Final

import anyio

from kai.api.memory.allocator import trim
from kai.api.memory.collector import collect_young
from kai.cluster.port import Cluster

_APART: Final = 30.0
_LOOKS: Final = 10
"""So many looks of the collector are made for each time that memory is given back."""


async def tidying(cluster: Cluster, in_use: anyio.Lock) -> None:
    """Tidy now and then, holding ``in_use`` as a cycle does; until cancelled."""
    for look in itertools.count(1):
        await cluster.clock.sleep(_APART)
        async with in_use:
            await cluster.cpu.run(collect_young)
            if look % _LOOKS == 0:
                await cluster.cpu.run(trim)
