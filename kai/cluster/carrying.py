"""Carrying out plans: the loop that performs their requests, and the keys that plans hold.

A plan may wait for others: for an object to become something, or for a key that another plan holds. Its caller can be
told, and give the place of the plan to one that has work to do.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar, cast

import anyio
import attrs
from anyio.lowlevel import checkpoint

from kai.api.plans import Await, Lock, Plan, Unlock
from kai.cluster.pieces import AT_ONCE
from kai.cluster.port import Api

R = TypeVar("R")


@attrs.define
class KeyRing:
    """The keys that plans of a process hold, each held by one plan at a time, in the order of asking."""

    _locks: dict[str, anyio.Semaphore] = attrs.field(factory=dict)
    _wanted: dict[str, int] = attrs.field(factory=dict)

    async def hold(self, key: str) -> None:
        """Wait until a key is free, and hold it."""
        lock = self._locks.setdefault(key, anyio.Semaphore(1))
        self._wanted[key] = self._wanted.get(key, 0) + 1
        try:
            await lock.acquire()
        except BaseException:
            self._forget(key)
            raise

    def is_held(self, key: str) -> bool:
        """Return whether a plan holds a key."""
        return key in self._wanted

    def free(self, key: str) -> None:
        """Let go of a key."""
        self._locks[key].release()
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._wanted[key] -= 1
        if not self._wanted[key]:
            del self._wanted[key], self._locks[key]


def untold() -> None:
    """Take no notice."""


async def carry_out(plan: Plan[R], api: Api, keys: KeyRing, waits: Callable[[], None] = untold) -> R:
    """Return the result of a plan; however it ends, all keys that it holds are let go of.

    ``waits`` is called each time before the plan waits for others.

    Raises: what the plan raises.
    """
    held: list[str] = []
    reply: object = None
    steps = count(1)
    try:
        while True:
            if next(steps) % AT_ONCE == 0:  # no other task has its turn while the store answers
                await checkpoint()
            try:
                request = plan.send(reply)
            except StopIteration as stop:
                return cast("R", stop.value)
            match request:
                case Lock():
                    if keys.is_held(request.key):
                        waits()
                    await keys.hold(request.key)
                    held.append(request.key)
                    reply = None
                case Unlock():
                    held.remove(request.key)
                    keys.free(request.key)
                    reply = None
                case _:
                    if isinstance(request, Await):
                        waits()
                    reply = cast("Any", await api.perform(request))
    finally:
        for key in held:
            keys.free(key)
        plan.close()
