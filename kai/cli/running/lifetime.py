"""The lifetime of a process: event-loop watchdog, garbage collection, terms of leadership, and shutdown.

The watchdog is a thread that logs where the event loop is stuck; nothing on the loop itself could. An endless loop, say
in a third-party grouper, blocks probes, lease renewals and signals. The lease expires, and the kubelet kills the
process; the log has to say why.

Between cycles `tidying` collects young garbage and returns free memory to the system, so that a process of weeks holds
no more than in its first hours. Cycles pause the collector (`kai.api.memory`), and its threshold counts allocations
less deallocations: where the two are about equal, it may not run for an hour. A collection stops all threads while it
scans the objects made since the last one; so it runs often, twice a minute. Memory is returned only every five minutes,
because the next cycles have to allocate what they need again.

`work_in_terms` runs a role while this process leads, and fences its writes by the term. The scheduler is no such role;
it handles its terms itself (`kai.cluster.election.takeover.take_over`).

Shutdown cancels the roles first, and leaves without them if one does not end. A cycle computes in a thread, which
Python cannot stop from outside: an endless loop in one would hold the process and its lease until the kubelet kills it.
Decisions of such a thread are not written once the lease is given back, so the process can leave it behind.
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
from kai.basics.errors import places
from kai.cli.failures import LEFT
from kai.cluster.election.takeover import succeed
from kai.cluster.port import Cluster, Leadership, Term
from kai.cluster.threads import stack_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kai.cli.running.roles import Role
    from kai.cluster.connect import Connection

_LOOKS_APART: Final = 5.0
_MISSED: Final = 3
"""Log after this many checks in a row without a turn of the loop; again after twice as many, and so on.

Checks are counted, not timed: on a machine that was suspended neither side runs, so none is missed.
"""
_TURNS_APART: Final = 1.0


class _Looks:
    """State shared between the event loop and the watchdog thread."""

    def __init__(self) -> None:
        # Made on the loop, so that the watchdog can ask for the stack of this thread.
        self.loop = threading.get_ident()
        self.missed = 0
        self.is_over = threading.Event()


async def log_standstill() -> None:
    """Run the event-loop watchdog for the loop of this task, until cancelled."""
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
        # Both threads write `missed`. A lost update costs one look, so no lock is needed that a stuck loop might hold.
        looks.missed += 1
        if looks.missed == 1:
            due = _MISSED
        if looks.missed >= due:
            due *= 2
            seconds = round(looks.missed * _LOOKS_APART)
            structlog.get_logger().error("event loop stands still", seconds=seconds, at=places(stack_of(looks.loop)))


_APART: Final = 30.0
_LOOKS: Final = 10
"""Collections for each time that memory is returned."""


async def tidying(cluster: Cluster, in_use: anyio.Lock) -> None:
    """Collect garbage and return memory periodically, holding ``in_use`` as a cycle does; until cancelled."""
    for look in itertools.count(1):
        await cluster.clock.sleep(_APART)
        async with in_use:
            # Between cycles: a collection stops all threads while it scans.
            await cluster.cpu.run(collect_young)
            if look % _LOOKS == 0:
                await cluster.cpu.run(trim)


async def work_in_terms(role: Role, connection: Connection, leadership: Leadership) -> None:
    """Run a role in each term of leadership, starting from a quorum read made after the term began."""
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
        # The role ends with its term and begins anew in the next one: what it remembers is of the old term.
        await leadership.ended(term)
        tasks.cancel_scope.cancel()


_PATIENCE: Final = 10.0
"""Seconds that roles have to end: a third of a pod's grace period. The lease and webhooks need time after them."""
_IDLE: Final = frozenset({"threading", "queue", "concurrent.futures.thread", "anyio._backends._asyncio"})
"""Modules whose frames alone make up the stack of an idle thread."""


async def end_on_signal(roles: anyio.CancelScope, leave: Callable[[], Awaitable[None]]) -> None:
    """Wait for a signal, then cancel the roles; leave without them if they take too long or a second signal comes.

    The caller cancels this task once the roles have ended. ``leave`` gives back the lease, which other replicas wait
    for.
    """
    with anyio.open_signal_receiver(*_signals()) as signals:
        name = signal.Signals(await anext(signals)).name
        structlog.get_logger().info("ending", signal=name)
        # Roles first and the lease afterwards: no other replica may lead while this one still writes.
        roles.cancel()
        why = f"it lasts for {_PATIENCE:g} s"
        with anyio.move_on_after(_PATIENCE):
            why = f"a second signal: {signal.Signals(await anext(signals)).name}"
    structlog.get_logger().error("ending without what is under way", why=why, at=_under_way())
    await leave()
    _exit()


def _signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end the process: SIGHUP of a closed terminal too, unless it is ignored (nohup)."""
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if outlives else (signal.SIGHUP,)))


def _under_way() -> dict[str, list[str]]:
    """Return the stacks of threads that would keep the process alive, by name of the thread."""
    found = {}
    for thread in threading.enumerate():
        if thread.daemon or thread is threading.current_thread():
            continue
        stack = stack_of(thread.ident or 0)
        if any(each.f_globals.get("__name__") not in _IDLE for each, _ in stack):
            found[thread.name] = places(stack)
    return found


def _exit() -> NoReturn:
    """Exit at once; a regular exit of the interpreter waits for its threads."""
    os._exit(LEFT)
