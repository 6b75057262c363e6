"""Roles in the terms of a process: each works while this process leads, and its writes end with the term.

The scheduler is no such role; it looks after its terms itself (`kai.cluster.election.takeover.take_over`).
"""

from __future__ import annotations

import anyio
import structlog

from kai.cli.running.roles import Role
from kai.cluster.connect import Connection
from kai.cluster.election.takeover import succeed
from kai.cluster.port import Cluster, Leadership, Term


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
