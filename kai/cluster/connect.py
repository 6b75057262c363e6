"""Builds the port of a process: one account, three connection pools, and one store with its watches.

Watches, requests and the lease have separate connections, so that neither a flood of events nor a window full of
writes delays the renewal of the lease.
"""

from __future__ import annotations

import importlib.metadata
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import attrs

from kai.api.kinds import BY_CLASS
from kai.basics.wording import first_of
from kai.cluster.caching.store import Watched, WatchedStore
from kai.cluster.caching.watch import ListWatch, WatchSettings
from kai.cluster.caching.watching import Watcher
from kai.cluster.clock import SystemClock, system_draw
from kai.cluster.election.leading import LeaseLeadership
from kai.cluster.election.lease import LeaseSettings
from kai.cluster.port import Clock, Cluster, Draw
from kai.cluster.requesting.sending import Sender
from kai.cluster.requesting.window import Window
from kai.cluster.requesting.write import Requests
from kai.cluster.transport.client import Account, Client, user_agent
from kai.cluster.transport.credentials import Source
from kai.cluster.transport.encoding import Reporter, ServedVersions
from kai.cluster.transport.reachability import Observed, Reachability, Rights

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from kai.cluster.transport.calls import Transport


@attrs.frozen(kw_only=True)
class Options:
    """How a process uses the cluster.

    ``lease`` is None for a role without leader election.
    """

    component: str
    watched: tuple[Watched, ...]
    source: Source = attrs.field(factory=Source)
    lease: LeaseSettings | None = None
    watch: WatchSettings = attrs.field(factory=WatchSettings)
    widest: int = 64
    """Limit of concurrent requests."""


@attrs.frozen(kw_only=True)
class Connection(Cluster):
    """The port of a process, with its health."""

    store: WatchedStore
    api: Requests
    sender: Sender
    watchers: tuple[Watcher, ...]
    silence: float
    reachability: Reachability
    leadership: LeaseLeadership | None = None
    account: Account | None = None

    def problems(self) -> tuple[str, ...]:
        """Return why this process is not ready, as texts; empty if it is."""
        away = self.reachability.problem
        # If the server is away, every kind has the same problem: report it once.
        found = [away] if away else _by_reason(watcher.problem for watcher in self.watchers)
        unsynced = self.store.unsynced
        if unsynced:
            found.append(f"not listed yet: {', '.join(unsynced)}")
        elif self.store.age() > self.silence:
            found.append(f"a watch has been silent for {self.store.age():.0f} s")
        if self.account is not None and self.account.problem:
            found.append(self.account.problem)
        if self.account is not None and self.account.refused_since is not None:
            found.append(f"the API server {self.account.credentials.server} does not know our credentials (401)")
        if self.leadership is not None and not self.leadership.is_known:
            found.append(self.leadership.problem or "the lease was not read yet")
        return tuple(found)

    async def run(self) -> None:
        """Keep everything current until cancelled, and compete for the lease.

        Raises: UnauthorizedError if the server rejected our credentials for too long (in an exception group).
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.reachability.run)
            for watcher in self.watchers:
                tasks.start_soon(watcher.run)
            tasks.start_soon(self.api.run)
            if self.account is not None:
                tasks.start_soon(self.account.run)
            if self.leadership is not None:
                tasks.start_soon(self.leadership.run)
                tasks.start_soon(_cut_what_outlives_its_term, self.leadership, self.sender)


def _by_reason(problems: Iterable[str]) -> list[str]:
    """Merge equal problems of several kinds: a server that refuses one kind often refuses all for the same reason."""
    kinds: dict[str, list[str]] = {}
    for problem in filter(None, problems):
        kind, _, why = problem.partition(": ")
        kinds.setdefault(why, []).append(kind)
    return [f"{first_of(names)}: {why}" for why, names in kinds.items()]


async def _cut_what_outlives_its_term(leadership: LeaseLeadership, sender: Sender) -> None:
    """Close the connections of writes in flight when their term ends: the server has not begun most of them."""
    while True:
        await leadership.ended(await leadership.begun())
        sender.cut()


def assemble(
    options: Options,
    clock: Clock,
    draw: Draw,
    *,
    requests: Transport,
    watches: Transport,
    lease: Transport,
    server: Callable[[], str] = lambda: "",
) -> Connection:
    """Return the port over these transports, not running yet; ``server`` returns its address for the log."""
    store = WatchedStore(options.watched, clock)
    served = ServedVersions()
    reachability, rights = Reachability(requests, clock, draw, server), Rights(clock)
    requests, watches, lease = (Observed(each, reachability, rights) for each in (requests, watches, lease))
    leadership = None if options.lease is None else LeaseLeadership(options.lease, lease, clock, draw)
    sender = Sender(requests, clock, draw, Window(widest=options.widest), reachability, rights)
    identity = leadership.identity if leadership is not None else ""
    reporter = Reporter(component=options.component, instance=identity)
    return Connection(
        store=store,
        api=Requests(store, sender, served, clock, reporter, leadership),
        clock=clock,
        draw=draw,
        connectivity=reachability,
        sender=sender,
        watchers=tuple(_watchers(options, store, watches, served, clock, draw, reachability)),
        silence=options.watch.silence,
        reachability=reachability,
        leadership=leadership,
        kubernetes=lambda: reachability.kubernetes,
    )


def _watchers(
    options: Options,
    store: WatchedStore,
    transport: Transport,
    served: ServedVersions,
    clock: Clock,
    draw: Draw,
    reachability: Reachability,
) -> Iterable[Watcher]:
    for watched in options.watched:
        kind = BY_CLASS[watched.cls]
        machine = ListWatch(options.watch, draw, len(kind.api_versions), kind.is_dispensable)
        yield Watcher(watched, machine, store, transport, clock, served, reachability)


@asynccontextmanager
async def connect(options: Options) -> AsyncIterator[Connection]:
    """Connect to the cluster; the caller runs `Connection.run` beside its own work.

    Raises: ConfigError if there are no credentials.
    """
    clock = SystemClock()
    account = await Account.open(options.source, clock)
    agent = user_agent(options.component, importlib.metadata.version("kai-scheduler"))
    async with AsyncExitStack() as stack:
        requests = await stack.enter_async_context(Client(account, user_agent=agent, connections=options.widest))
        # Apart from requests, since each watch keeps a connection for as long as it lasts.
        watches = await stack.enter_async_context(Client(account, user_agent=agent))
        # Two connections: the watch for a release keeps one open, and must not delay the renewal.
        lease = await stack.enter_async_context(Client(account, user_agent=agent, connections=2))
        connection = assemble(
            options,
            clock,
            system_draw,
            requests=requests,
            watches=watches,
            lease=lease,
            server=lambda: account.credentials.server,
        )
        yield attrs.evolve(connection, account=account)
