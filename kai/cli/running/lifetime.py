"""The life of a process: terms of its roles, a watch over its event loop, the collector between cycles, and its end.

A thread that tells where the event loop stands when it does not turn: nothing that runs on the loop could.

An endless loop on it, in a grouper from elsewhere say, keeps probes, the lease and signals waiting. The lease runs out,
and the kubelet kills the process; the log has to say why.

Tidying, between two cycles: Python's collector looks at what is new, and memory that lies idle is given back.

A process that works for weeks must not hold more than in its first hours. Cycles keep the collector away
(`kai.api.memory`), and it counts by how much objects became more: where about as many go as come, it does not
come by for an hour. All threads wait while it looks through what came since its last look; so it looks often, twice a
minute. Memory is given back seldom, every five minutes, for the next cycles have to ask for what they need of it again.

Roles in the terms of a process: each works while this process leads, and its writes end with the term.

The scheduler is no such role; it looks after its terms itself (`kai.cluster.election.takeover.take_over`).

How a process ends that was told to: its roles first, and without them where one of them does not end.

A cycle computes in a thread, and no thread can be ended from outside: an endless loop in one would hold the process and
its lease until the kubelet kills it. What such a thread still decides is not written once the lease is given back, so
the process leaves it behind.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from typing import TYPE_CHECKING, Final, NoReturn

import anyio
import structlog

from kai.api.memory import collect_young, trim
from kai.cli.failures import LEFT
from kai.cluster.election.takeover import succeed
from kai.cluster.port import Cluster, Leadership, Term
from kai.cluster.threads import stack_of
from kai.errors import places

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kai.cli.running.roles import Role
    from kai.cluster.connect import Connection

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


async def work_in_terms(role: Role, connection: Connection, leadership: Leadership) -> None:
    """Let a role work in each of our terms, on what a list by quorum showed after it began."""
    while True:
        term = await succeed(connection.store, leadership, connection.clock)
        structlog.get_logger().info("role begins", role=role.name)
        await _work_in(term, role, connection, leadership)


async def _work_in(term: Term, role: Role, connection: Connection, leadership: Leadership) -> None:
    cluster = Cluster(
        store=connection.store,
        api=connection.api.fenced(term),
        clock=connection.clock,
        draw=connection.draw,
        connectivity=connection.connectivity,
        cpu=connection.cpu,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(role.work, cluster)
        await leadership.ended(term)
        tasks.cancel_scope.cancel()


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
