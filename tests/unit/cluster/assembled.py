"""The port over a server in memory, in virtual time."""

import functools
import random
from contextlib import asynccontextmanager

import anyio

from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.caching.store import Watched
from kai.cluster.caching.watch import WatchSettings
from kai.cluster.connect import Options, assemble
from kai.cluster.election.lease import LeaseSettings
from tests.doubles.virtual_time import VirtualClock, run

WATCHED = (
    Watched(cls=Pod),
    Watched(cls=Node),
    Watched(cls=ConfigMap),
    Watched(cls=BindRequest),
)


def in_virtual_time(test):
    """Run an async test function in virtual time."""

    @functools.wraps(test)
    def wrapper(*arguments, **named):
        return run(lambda: test(*arguments, **named))

    return wrapper


def port(server, *, watched=WATCHED, lease="", seed=1, page=3):
    options = Options(
        component="kai-test",
        watched=watched,
        lease=LeaseSettings(namespace="kai", name="lock", identity=lease) if lease else None,
        watch=WatchSettings(page=page),
    )
    draw = random.Random(seed).random
    clock, address = VirtualClock(), "https://test:6443"
    return assemble(options, clock, draw, requests=server, watches=server, lease=server, server=lambda: address)


@asynccontextmanager
async def running(server, **options):
    connection = port(server, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        await connection.store.synced()
        yield connection
        tasks.cancel_scope.cancel()


def versions(store, cls):
    return {
        (each.metadata.namespace, each.metadata.name): (each.metadata.uid, each.metadata.resource_version)
        for each in store.all(cls)
    }
