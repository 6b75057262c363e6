"""A thread that tells where the event loop stands when it does not turn: nothing that runs on the loop could.

An endless loop on it, in a grouper from elsewhere say, keeps probes, the lease and signals waiting. The lease runs out,
and the kubelet kills the process; the log has to say why.
"""

from __future__ import annotations

import threading
from typing import Final

import anyio
import structlog

from kai.cluster.threads import stack_of
from kai.errors import places

_LOOKS_APART: Final = 5.0
_MISSED: Final = 3
"""So many looks in a row without a turn are told; again after twice as many, and so on.

They are counted, not timed: a machine that slept misses none.
"""
_TURNS_APART: Final = 1.0


class _Looks:
    """What the loop and the thread know of each other."""

    def __init__(self) -> None:
        self.loop = threading.get_ident()
        self.missed = 0
        self.is_over = threading.Event()


async def tell_standstill() -> None:
    """Have it told when the loop of this task stands still, until cancelled."""
    looks = _Looks()
    threading.Thread(target=_look, args=(looks,), name="standstill", daemon=True).start()
    try:
        while True:
            looks.missed = 0
            await anyio.sleep(_TURNS_APART)
    finally:
        looks.is_over.set()


def _look(looks: _Looks) -> None:
    due = _MISSED
    while not looks.is_over.wait(_LOOKS_APART):
        looks.missed += 1
        if looks.missed == 1:
            due = _MISSED
        if looks.missed >= due:
            due *= 2
            seconds = round(looks.missed * _LOOKS_APART)
            structlog.get_logger().error("event loop stands still", seconds=seconds, at=places(stack_of(looks.loop)))
