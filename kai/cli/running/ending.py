"""How a process ends that was told to: its roles first, and without them where one of them does not end.

A cycle computes in a thread, and no thread can be ended from outside: an endless loop in one would hold the process and
its lease until the kubelet kills it. What such a thread still decides is not written once the lease is given back, so
the process leaves it behind.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import anyio
import structlog

from kai.cli.failures import LEFT
from kai.cluster.threads import stack_of
from kai.errors import places

_PATIENCE: Final = 10.0
"""Seconds that roles have to end: a third of a pod's grace period. The lease and webhooks need time after them."""
_IDLE: Final = frozenset({"threading", "queue", "concurrent.futures.thread", "anyio._backends._asyncio"})
"""Modules of which nothing but a thread without work consists."""


async def end_when_told(roles: anyio.CancelScope, leave: Callable[[], Awaitable[None]]) -> None:
    """End roles at a signal; leave without them where they last or a second signal comes. Cancelled once they ended.

    `leave` gives back what others wait for.
    """
    with anyio.open_signal_receiver(*_signals()) as signals:
        name = signal.Signals(await anext(signals)).name
        structlog.get_logger().info("ending", signal=name)
        roles.cancel()
        why = f"it lasts for {_PATIENCE:g} s"
        with anyio.move_on_after(_PATIENCE):
            why = f"a second signal: {signal.Signals(await anext(signals)).name}"
    structlog.get_logger().error("ending without what is under way", why=why, at=_under_way())
    await leave()
    _exit()


def _signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end us: that of a closed terminal as well, unless we are to outlive it (nohup)."""
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if outlives else (signal.SIGHUP,)))


def _under_way() -> dict[str, list[str]]:
    """Return where each thread computes that would hold the process, by its name."""
    found = {}
    for thread in threading.enumerate():
        if thread.daemon or thread is threading.current_thread():
            continue
        stack = stack_of(thread.ident or 0)
        if any(each.f_globals.get("__name__") not in _IDLE for each, _ in stack):
            found[thread.name] = places(stack)
    return found


def _exit() -> NoReturn:
    """End at once; an interpreter that ends as usual waits for its threads."""
    os._exit(LEFT)
