"""A role in a process of its own: connect, lead where the role has a lease, work until either ends.

One process that holds several roles connects once itself and starts their work on the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

import anyio

from kai.api.kinds import ApiObject
from kai.cluster.connect import Connection, Options, connect
from kai.cluster.credentials import Source
from kai.cluster.lease import LeaseSettings
from kai.cluster.port import Cluster
from kai.cluster.store import Watched

Work: TypeAlias = Callable[[Cluster], Coroutine[Any, Any, None]]


def role_options(
    component: str, watched: Iterable[type[ApiObject]], source: Source | None, lease: LeaseSettings | None
) -> Options:
    """Return how a role connects that watches whole kinds; without a source, as its pod's account."""
    return Options(
        component=component,
        watched=tuple(Watched(cls=cls) for cls in watched),
        source=Source() if source is None else source,
        lease=lease,
    )


async def serve_alone(options: Options, work: Work) -> None:
    """Connect to the cluster and work on it, until cancelled.

    Raises: ConfigError if there are no credentials; UnauthorizedError, in an exception group, if they are refused for
        too long.
    """
    async with connect(options) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        await lead(connection, work)


async def lead(connection: Connection, work: Work) -> None:
    """Work on a connection that runs: in each term of its lease anew, or all the time where it has none.

    Before the work of a term begins, whatever it reads is listed anew: the leader before may have written until a
    moment ago. When the term ends the work is cancelled, and what it would still write is not sent.
    """
    leadership, store = connection.leadership, connection.store
    if leadership is None:
        await work(connection)
        return
    while True:
        term = await leadership.begun()
        await store.synced()
        await store.refresh(*(watcher.watched.cls for watcher in connection.watchers))
        api = connection.api.fenced(term)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, Cluster(store=store, api=api, clock=connection.clock, draw=connection.draw))
            await leadership.ended(term)
            tasks.cancel_scope.cancel()
