"""One process: its connection to a cluster, its listeners, its roles, its end.

All roles share one client and one store. A role other than the scheduler works while this process leads, its writes
fenced by the term; the scheduler handles its terms itself. At a signal the roles stop (`kai.cli.running.lifetime`),
then the lease is given back, so that the next leader need not wait for its expiry. Webhooks are answered a little
longer.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog
from prometheus_client import CollectorRegistry

from kai.answers.documents.document import DISTRIBUTION, installed
from kai.api.kinds import ApiObject
from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.queue import Queue
from kai.basics.errors import ConfigError, KaiError
from kai.cli.running.endpoints import (
    Board,
    CertificateSource,
    Place,
    admission_settings,
    doors,
    make_board,
    wanted_certificate,
    wanted_dashboard,
)
from kai.cli.running.flags import ADMISSION, BINDER, FLAGS, LEASES, PODGROUPER, REPORTED_AS, SCHEDULER, TOGETHER, Given
from kai.cli.running.identity import ProcessIdentity
from kai.cli.running.lifetime import end_on_signal, log_standstill, tidying, work_in_terms
from kai.cli.running.rolemetrics import ApiCalls, MissingRights, ObjectsNotRead, RoleMetrics
from kai.cli.running.roles import (
    SCHEDULER_WATCHES,
    HandOver,
    Role,
    binder,
    competes,
    configuration_path,
    controller,
    podgrouper,
    scheduler_settings,
    watches_of_plugins,
)
from kai.cluster.caching.store import Watched
from kai.cluster.connect import Connection, Options, connect
from kai.cluster.election.leading import SoleLeadership, fresh_identity
from kai.cluster.process.exposition import metrics_route
from kai.cluster.process.listener import LOOPBACK, Address, Probes, Route, listen, read_address
from kai.cluster.process.tracing import Tracing, make_tracing
from kai.cluster.signals import Observe
from kai.cluster.transport.credentials import Source

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kai.cluster.election.lease import LeaseSettings
    from kai.cluster.port import Leadership

_METRICS_FLAGS: Final = ("listen-address", "metrics-bind-address", "metrics-listen-address")
_PROBES_FLAGS: Final = ("health-probe-bind-address",)
_LOCAL_FLAGS: Final = ("plugin-server-port",)
_METRICS_PORT: Final = 8080
_PROBES_PORT: Final = 8081
_NAMESPACE: Final = "kai-scheduler"
_FAREWELL: Final = 5.0
"""Seconds that the webhooks of a terminating pod keep answering: API servers call it until its endpoint is gone."""


@attrs.define
class Process:
    """The process that a command line describes."""

    given: Given
    roles: tuple[str, ...]
    environment: Mapping[str, str]
    registry: CollectorRegistry = attrs.field(factory=CollectorRegistry)
    """The registry of kai's own metrics; plugins use the default one, which they share with libraries."""
    probes: Probes = attrs.field(factory=Probes)
    _identity: ProcessIdentity | None = None
    """The identity of this life of the container, for leases."""

    @classmethod
    def of(cls, given: Given, environment: Mapping[str, str] | None = None) -> Process:
        """Return the process of a command line, with the flags of a SchedulingShard in its configuration file.

        Raises: ConfigError for a configuration file that cannot be read.
        """
        # Only the scheduler has a configuration file; the other roles must start without one.
        path = configuration_path(given) if SCHEDULER in (given.roles or TOGETHER) else ""
        if path:
            from kai.cli.running.configuring import with_shard

            given = with_shard(given, path)
        return cls(given, given.roles or TOGETHER, dict(os.environ) if environment is None else environment)

    async def run(self) -> None:
        """Work until a signal ends it.

        Raises: ConfigError for invalid settings; UnauthorizedError when the API server rejects the credentials.
        """
        self._say_what_is_ignored()
        tracing = make_tracing("kai", endpoint=self.given.text("otlp-endpoint"))
        plan = self._plan(tracing)
        try:
            async with connect(self._options(plan)) as connection:
                self._say_what_begins(connection)
                await self._serve(connection, plan, tracing)
        # Task groups wrap errors, and a user needs the one cause, not a tree of groups.
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            if self._identity is not None:
                self._identity.end()
            # In a thread: closing flushes spans over the network, and the loop must still answer probes.
            await anyio.to_thread.run_sync(tracing.close)

    def _say_what_is_ignored(self) -> None:
        for name in sorted(self.given.named):
            if FLAGS[name].inert:
                structlog.get_logger().warning("flag without effect", flag=f"--{name}", instead=FLAGS[name].inert)

    def _say_what_begins(self, connection: Connection) -> None:
        """Log the roles, the server, and the account."""
        credentials = None if connection.account is None else connection.account.credentials
        structlog.get_logger().info(
            "starting",
            version=installed(DISTRIBUTION),
            roles=list(self.roles),
            server="" if credentials is None else credentials.server,
            account="" if credentials is None else credentials.account,
            profile=(configuration_path(self.given) or "default") if SCHEDULER in self.roles else None,
        )

    # --- Roles ---------------------------------------------------------------------------------------------------

    def _plan(self, tracing: Tracing) -> _Plan:
        """Return the plan of what to run.

        Raises: ConfigError for invalid settings.
        """
        given = self.given
        metrics = RoleMetrics(
            self.registry,
            given.text("metrics-namespace"),
            given.mapping("queue-label-to-metric-label"),
            given.mapping("queue-label-to-default-metric-value"),
        )
        plan = _Plan(observe=metrics.observe)
        for name in self.roles:
            if name == SCHEDULER:
                plan.settings = scheduler_settings(self._with_namespace())
                plan.dashboard = wanted_dashboard(given)
                for note in plan.settings.configuration.notes:
                    structlog.get_logger().warning("configuration", note=note)
            elif name == ADMISSION:
                plan.kinds.append(Queue)
            elif name == BINDER:
                role, hand_over = binder(given, metrics.observe, tracing)
                plan.others.append(role)
                plan.hand_over = hand_over if given.truth("hand-over") else None
            elif name == PODGROUPER:
                role, plan.grouped = podgrouper(given, metrics.observe)
                plan.others.append(role)
            else:
                plan.others.append(controller(name, given, metrics.observe))
        plan.certificate = wanted_certificate(given, self.roles)
        return plan

    def _with_namespace(self) -> Given:
        values = {**self.given.values, "namespace": self._namespace()}
        return attrs.evolve(self.given, values=values)

    def _namespace(self) -> str:
        return self.given.text("namespace") or self.environment.get("POD_NAMESPACE") or _NAMESPACE

    def _options(self, plan: _Plan) -> Options:
        given = self.given
        source = Source(kubeconfig=given.text("kubeconfig"), context=given.text("context"), server=given.text("server"))
        return Options(
            component=plan.component(given.text("scheduler-name")),
            watched=tuple(plan.watched()),
            source=attrs.evolve(source, environment=self.environment),
            lease=self._lease(plan) if competes(given) else None,
        )

    def _lease(self, plan: _Plan) -> LeaseSettings:
        name = plan.settings.lease_name if plan.settings is not None else LEASES[self.roles[0]]
        self._identity = ProcessIdentity.begin(self.environment, self.roles)
        return self._identity.lease(self.given, self._namespace(), name)

    # --- Work ----------------------------------------------------------------------------------------------------

    def _show(self, connection: Connection) -> None:
        namespace = self.given.text("metrics-namespace")
        self.registry.register(ApiCalls(connection.sender.sent, namespace))
        self.registry.register(MissingRights(connection.sender.rights, namespace))
        self.registry.register(ObjectsNotRead(connection.store, namespace))

    async def _serve(self, connection: Connection, plan: _Plan, tracing: Tracing) -> None:
        leadership: Leadership = connection.leadership or SoleLeadership(fresh_identity(platform.node()))
        connection.api.leadership = leadership  # fences writes, also without an election
        self._add_probes(connection)
        self._show(connection)
        local: dict[str, Route] = {}
        bare: tuple[str, ...] = ()
        work: list[Callable[[], Any]] = []
        board: Board | None = None
        if plan.settings is not None:
            from kai.roles.scheduler.making import make_scheduler

            scheduler = make_scheduler(
                connection,
                plan.settings,
                leadership,
                registry=self.registry,
                tracing=tracing,
                hand_over=plan.hand_over.offer if plan.hand_over else None,
                carry_out=plan.hand_over.carry_out if plan.hand_over else None,
            )
            scheduler.grouped = plan.grouped
            self.probes.add(SCHEDULER, scheduler.problem)
            self.probes.add_note(SCHEDULER, scheduler.note)
            local, bare = scheduler.routes(), scheduler.metrics.bare.names
            work += (scheduler.run, partial(tidying, connection, scheduler.intake_in_use))
            if plan.dashboard is not None:
                board = make_board(plan.dashboard, scheduler, plan.settings, connection, self._facts(connection))
        async with anyio.create_task_group() as tasks:
            # Probes before anything else: a kubelet asks from the first second on,
            # and a port that is taken must fail the start.
            for address, routes in self._listeners(local, bare).items():
                await self._listen(tasks, address, routes)
            if board is not None:
                port = await tasks.start(board.run)
                structlog.get_logger().info("dashboard", host=board.place.address.host, port=port)
            tasks.start_soon(connection.run)
            tasks.start_soon(log_standstill)
            if plan.certificate is not None:
                from kai.roles.admission.serving import serve_webhooks

                port = self.given.whole("webhook-addr")
                open_doors = doors(admission_settings(self.given), connection.store)
                identity = plan.certificate.identity(connection, self._namespace(), self.probes, plan.observe)
                tasks.start_soon(partial(serve_webhooks, port, identity, open_doors, observe=plan.observe))
            work += (partial(work_in_terms, role, connection, leadership) for role in plan.others)
            await _until_signal(work, partial(self._leave, connection, plan))
            # Webhooks and watches end last: reviews need the store until the API server calls this pod no more.
            tasks.cancel_scope.cancel()

    async def _leave(self, connection: Connection, plan: _Plan) -> None:
        """Give the lease back, and keep answering reviews for a moment."""
        if connection.leadership is not None:
            # Before the farewell of the webhooks: another replica waits for the lease.
            await connection.leadership.give_back()
        if plan.certificate is not None and Source(environment=self.environment).is_in_pod:
            await connection.clock.sleep(_FAREWELL)

    def _add_probes(self, connection: Connection) -> None:
        """Make readiness depend on the connection; for a process with webhooks alone, only until its store is synced.

        Webhooks answer without the API server. If all replicas became unready when their watches fail, none would be
        called, and pods that wait for the answer could not be created.
        """

        def problems() -> str:
            return "; ".join(connection.problems())

        if self.roles == (ADMISSION,):
            self.probes.add("cluster", lambda: "" if connection.store.is_synced else problems())
            self.probes.add_note("cluster", problems)
        else:
            self.probes.add("cluster", problems)

    def _facts(self, connection: Connection) -> Callable[[], list[tuple[str, str, bool]]]:
        """Return a function that yields the health of this process for people: title, state, and whether it is good."""

        def facts() -> list[tuple[str, str, bool]]:
            problems = self.probes.problems()
            calls = sum(connection.sender.sent.values())
            leadership = connection.api.leadership
            return [
                ("ready", "; ".join(f"{name}: {why}" for name, why in problems.items()) or "yes", not problems),
                ("leads as", "" if leadership is None else leadership.identity, True),
                ("API calls", f"{calls}", True),
                ("newest word of the API server", f"{connection.store.age():.0f}s ago", connection.store.age() < 75),
            ]

        return facts

    async def _listen(self, tasks: TaskGroup, address: Address, routes: Mapping[str, Route]) -> None:
        """Begin to listen at an address.

        Raises: ConfigError that names the flag of the address where another program listens there.
        """
        try:
            await tasks.start(listen, address, routes)
        except ConfigError as error:
            wanted = ((_METRICS_FLAGS, _METRICS_PORT), (_PROBES_FLAGS, _PROBES_PORT))
            places = [(names, self._address(names, port)) for names, port in wanted]
            found = (names for names, place in places if place is not None and place.port == address.port)
            names = next(found, _LOCAL_FLAGS)
            flag = next((name for name in names if FLAGS[name].roles & set(self.roles)), names[0])
            raise ConfigError(
                str(error), help=f"another program listens there; --{flag} chooses another place"
            ) from None

    def _listeners(self, local: Mapping[str, Route], bare: Iterable[str]) -> dict[Address, dict[str, Route]]:
        """Return the routes of each address; paths with the same port share a listener.

        The default addresses are loopback: only a flag makes anything listen beyond this machine.
        """
        out: dict[Address, dict[str, Route]] = {}

        def add(address: Address | None, routes: Mapping[str, Route]) -> None:
            if address is not None:
                # By port, as two listeners cannot share one.
                same = next((each for each in out if each.port == address.port), address)
                # The wider address wins, as a flag asked for it and loopback is only the default.
                if same != address and same.host == LOOPBACK:
                    out[address] = out.pop(same)
                    same = address
                out.setdefault(same, {}).update(routes)

        add(self._address(_METRICS_FLAGS, _METRICS_PORT), {"/metrics": metrics_route(self.registry, bare)})
        add(self._address(_PROBES_FLAGS, _PROBES_PORT), self.probes.routes())
        if local:
            add(Address(LOOPBACK, self.given.whole("plugin-server-port")), local)
        return out

    def _address(self, flags: Sequence[str], port: int) -> Address | None:
        """Return the address in the first given flag of these; by default the port on the loopback interface."""
        for name in flags:
            if name in self.given.named:
                return read_address(self.given.text(name), f"--{name}")
        return Address(LOOPBACK, port)


@attrs.define
class _Plan:
    observe: Observe
    """Receives the signals of the roles, for metrics."""
    settings: Any = None
    """The settings of the scheduler; None where it does not run here."""
    others: list[Role] = attrs.field(factory=list)
    hand_over: HandOver | None = None
    """The binder, if it runs here and takes bind requests from the scheduler directly."""
    grouped: Callable[[], Awaitable[None]] | None = None
    """Waits until the store shows the groups that only this process has; None where it has none."""
    kinds: list[type[ApiObject]] = attrs.field(factory=list)
    """Kinds to watch besides those of the roles."""
    certificate: CertificateSource | None = None
    """The source of the webhooks' certificate; None without webhooks."""
    dashboard: Place | None = None
    """Where to serve the dashboard; None without one."""

    def component(self, scheduler_name: str) -> str:
        """Return the component name for events."""
        if self.settings is not None:
            return scheduler_name
        # Events carry one component. Without a scheduler here, the first role stands for the process.
        name = self.others[0].name if self.others else ADMISSION
        return REPORTED_AS.get(name, name)

    def watched(self) -> Sequence[Watched]:
        """Return the kinds that any role here needs, each once."""
        wanted: dict[type[ApiObject], None] = {}
        if self.settings is not None:
            wanted = dict.fromkeys((*SCHEDULER_WATCHES, *watches_of_plugins(self.settings.configuration)))
        for kinds in (self.kinds, *(role.watched for role in self.others)):
            wanted.update(dict.fromkeys(kinds))
        # Failed pods hold and want nothing, so a scheduler alone need not watch them; other roles must see pods fail.
        return [
            Watched(
                cls=cls,
                field_selector="status.phase!=Failed" if cls is Pod and not self.others else "",
                metadata_only=cls is ConfigMap,  # their names suffice; contents are fetched from the API server
            )
            for cls in wanted
        ]


async def _until_signal(work: Iterable[Callable[[], Any]], leave: Callable[[], Awaitable[None]]) -> None:
    """Work until a signal ends it, then leave."""
    async with anyio.create_task_group() as ending:
        async with anyio.create_task_group() as roles:
            ending.start_soon(end_on_signal, roles.cancel_scope, leave)
            roles.start_soon(anyio.sleep_forever)  # webhooks run outside this group and must keep the process alive
            for each in work:
                roles.start_soon(each)
        ending.cancel_scope.cancel()
    await leave()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first KaiError in a group, else its first exception."""
    known = group.subgroup(KaiError)
    error: BaseException = known if known is not None else group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
