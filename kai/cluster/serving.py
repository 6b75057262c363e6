"""A role in a process of its own: connect, lead where the role has a lease, work until either ends.

One process that holds several roles connects once itself and starts their work on the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import anyio

from kai.cluster.connect import Connection, Options, connect
from kai.cluster.port import Cluster

Work: TypeAlias = Callable[[Cluster], Coroutine[Any, Any, None]]


async def serve_alone(options: Options, work: Work) -> None:
    """Connect to the cluster and work on it; returns when the lease is lost.

    Raises: ConfigError if there are no credentials; UnauthorizedError, in an exception group, if they are refused for
        too long.
    """
    async with connect(options) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        await lead(connection, work)
        tasks.cancel_scope.cancel()


async def lead(connection: Connection, work: Work) -> None:
    """Work on a connection that runs, for one term of its lease, or for ever where it has none.

    Before the work begins, whatever it reads is listed anew: the leader before may have written until a moment ago.
    """
    leadership = connection.leadership
    if leadership is None:
        await work(connection)
        return
    term = await leadership.begun()
    await connection.store.synced()
    await connection.store.refresh(*(watcher.watched.cls for watcher in connection.watchers))
    api = connection.api.fenced(term)
    fenced = Cluster(store=connection.store, api=api, clock=connection.clock, draw=connection.draw)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, fenced)
        await leadership.ended(term)
        tasks.cancel_scope.cancel()
