"""Carrying out plans: the loop of `kai.api.plans.carry_out` with an ``await`` in it, and the keys that plans hold."""

from __future__ import annotations

from itertools import count
from typing import Any, TypeVar, cast

import anyio
import attrs
from anyio.lowlevel import checkpoint

from kai.api.plans import Lock, Plan, Unlock
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

    def free(self, key: str) -> None:
        """Let go of a key."""
        self._locks[key].release()
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._wanted[key] -= 1
        if not self._wanted[key]:
            del self._wanted[key], self._locks[key]


async def carry_out(plan: Plan[R], api: Api, keys: KeyRing) -> R:
    """Return the result of a plan; however it ends, all keys that it holds are let go of.

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
                    await keys.hold(request.key)
                    held.append(request.key)
                    reply = None
                case Unlock():
                    held.remove(request.key)
                    keys.free(request.key)
                    reply = None
                case _:
                    reply = cast("Any", await api.perform(request))
    finally:
        for key in held:
            keys.free(key)
        plan.close()
