"""What a new leader does before it decides anything: it waits for the leader before, reads anew, and outgrows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from kai.api import names
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.basics.parsing import signed
from kai.cluster.threads import pieces

if TYPE_CHECKING:
    from kai.api.kinds import ApiObject
    from kai.cluster.port import Clock, Leadership, Store, Term

FENCE_DELAY: Final = 0.25
"""How long a server may go on admitting writes of the epoch before, where admission checks epochs (measured: 20 ms)."""
_LONGEST_LIST: Final = 30.0
DECISIVE: Final[tuple[type[ApiObject], ...]] = (Pod, Node, BindRequest)
"""Kinds of which no decision may rest on old knowledge: they say what nodes hold."""


async def catch_up(store: Store) -> None:
    """Wait for the lists that follow an outage, for half a minute at most.

    The server may have been put back to a backup: pods that are known as gone hold their places again.
    """
    with anyio.move_on_after(_LONGEST_LIST):
        await store.caught_up(*DECISIVE)


async def succeed(store: Store, leadership: Leadership, clock: Clock) -> Term:
    """Return the next term of this process, once what leaders before it wrote shows.

    Where others may have led, it waits until their writes are refused, and lists by quorum what decisions rest upon. A
    term that ends on the way is followed by the next.
    """
    while True:
        term = await leadership.begun()
        fenced = clock.monotonic() + FENCE_DELAY
        await store.synced()
        if leadership.has_rivals:
            await clock.sleep(fenced - clock.monotonic())
            await store.refresh(*DECISIVE)
        if leadership.holds(term):
            return term


async def take_over(store: Store, leadership: Leadership, clock: Clock) -> Term:
    """Return the term in which this process may decide, once it may; what was assumed under an earlier one is over.

    Its epoch is later than those of the orders that are there: a lease that was deleted while no process looked counts
    from 1 again, and the binder would refuse what is ordered now as older than them.
    """
    while True:
        term = await succeed(store, leadership, clock)
        newest = await _newest_epoch(store, term.lease) if leadership.has_rivals else -1
        if newest >= term.epoch:
            leadership.outgrow(newest)
        if leadership.holds(term):  # also where that epoch is nonsense
            store.forget_all()
            return term


async def _newest_epoch(store: Store, lease: str) -> int:
    """Return the latest epoch of a lease in which one of the orders was decided; -1 without any."""
    newest = -1
    if not store.watches(BindRequest):
        return newest
    async for piece in pieces(store.all(BindRequest)):
        known = (each.metadata.annotations for each in piece)
        epochs = (signed(each.get(names.EPOCH, "")) for each in known if each.get(names.LEASE) == lease)
        newest = max(newest, max((epoch for epoch in epochs if epoch is not None), default=-1))
    return newest
