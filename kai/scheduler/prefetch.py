"""Reading ahead: what arrives is read at once, in small portions, so that the next cycle finds it read.

All of it happens on the event loop. What is made of objects is interned in tables that a cycle, in its thread, uses as
well; a reader of the tables holds one lock, so nothing is read ahead while a cycle is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import anyio

from kai.api.kinds import ApiObject
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.port import Store

_AT_ONCE: Final = 100
"""Objects that are read before the loop may do something else: about a millisecond."""


async def prefetch(store: Store, read: Callable[[Iterable[ApiObject]], None], in_use: anyio.Lock) -> None:
    """Give pods and groups to ``read`` as they arrive, holding ``in_use`` meanwhile; until cancelled."""
    with store.arrivals(Pod, PodGroup) as arrivals:
        while True:
            await arrivals.wait()
            async with in_use:
                read(arrivals.take(_AT_ONCE))
