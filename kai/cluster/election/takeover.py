"""The steps of a new leader before its first decision: outwait the last leader's writes, list anew, raise the epoch."""

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
"""How long a server may still admit writes of the last epoch, if admission checks epochs (measured: 20 ms).

Units: seconds.
"""
_LONGEST_LIST: Final = 30.0
DECISIVE: Final[tuple[type[ApiObject], ...]] = (Pod, Node, BindRequest)
"""Kinds that decisions must not read from an outdated store: they show what nodes hold."""


async def catch_up(store: Store) -> None:
    """Wait for the lists that follow an outage, for half a minute at most.

    The server may have been restored from a backup: pods that the store knows as deleted hold their places again.
    """
    with anyio.move_on_after(_LONGEST_LIST):
        await store.caught_up(*DECISIVE)


async def succeed(store: Store, leadership: Leadership, clock: Clock) -> Term:
    """Return the next term of this process, once the store shows the writes of earlier leaders.

    If others may have led, wait until their writes are refused, and list the decisive kinds with a quorum. If the term
    ends in the meantime, continue with the next one.
    """
    while True:
        term = await leadership.begun()
        # Counted from the beginning of the term, so that the delay overlaps with the first lists.
        fenced = clock.monotonic() + FENCE_DELAY
        await store.synced()
        if leadership.has_rivals:
            await clock.sleep(fenced - clock.monotonic())
            # The last leader's writes that were admitted just before show only in a list requested after the fence.
            await store.refresh(*DECISIVE)
        if leadership.holds(term):
            return term


async def take_over(store: Store, leadership: Leadership, clock: Clock) -> Term:
    """Return a term in which this process may decide, and drop the assumptions of an earlier one.

    Its epoch is above those of all present bind requests. A lease that was deleted while no process watched counts from
    1 again, and the binder would refuse new bind requests as outdated.
    """
    while True:
        term = await succeed(store, leadership, clock)
        newest = await _newest_epoch(store, term.lease) if leadership.has_rivals else -1
        if newest >= term.epoch:
            leadership.outgrow(newest)
        if leadership.holds(term):  # an invalid epoch does not end it
            store.forget_all()
            return term


async def _newest_epoch(store: Store, lease: str) -> int:
    """Return the highest epoch of a lease among the bind requests; -1 without any."""
    newest = -1
    if not store.watches(BindRequest):
        return newest
    async for piece in pieces(store.all(BindRequest)):
        known = (each.metadata.annotations for each in piece)
        epochs = (signed(each.get(names.EPOCH, "")) for each in known if each.get(names.LEASE) == lease)
        newest = max(newest, max((epoch for epoch in epochs if epoch is not None), default=-1))
    return newest
