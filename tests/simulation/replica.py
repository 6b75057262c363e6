"""One replica of kai: the very services, over the model of an API server, in lives that begin and end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio
import attrs
from prometheus_client import CollectorRegistry

from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, Given, read_flags
from kai.cli.running.lifetime import work_in_terms
from kai.cli.running.process import Process
from kai.cluster.connect import Connection, Options, assemble
from kai.cluster.election.lease import LeaseSettings
from kai.cluster.process.tracing import no_tracing
from kai.roles.scheduler.making import make_scheduler
from tests.simulation.loop import PROCESS, SeededLoop
from tests.simulation.network import Line, Weather, Wire

A = TypeVarTuple("A")
R = TypeVar("R")

NAMESPACE: Final = "kai-scheduler"
_FLAGS: Final = (
    "--leader-elect",
    "--schedule-period=2s",
    "--resource-reservation-pod-image=reserve",
    "--scaling-pod-image=scale",
)
_GRACE: Final = 30.0


@cache
def given() -> Given:
    """Return the command line of every replica."""
    return read_flags(_FLAGS, FLAGS, ROLES, TOGETHER)


@attrs.define(eq=False)
class SimulatedClock:
    """The clocks of one machine: the one that does not go back, and the one that people set."""

    loop: SeededLoop
    wall: float = 1_700_000_000.0

    def monotonic(self) -> float:
        return self.loop.time()

    def now(self) -> float:
        return self.wall + self.loop.time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(max(0.0, seconds))


@attrs.define(eq=False)
class SimulatedCpu:
    """Computes at once what began a drawn time ago: what a cycle was given is as old as that when it decides."""

    draw: random.Random
    clock: SimulatedClock
    longest: float = 0.05
    given_at: float = float("-inf")
    """When that began which was computed last: nothing later can have been known to what came of it."""
    on_begin: list[Callable[[], None]] = attrs.field(factory=list)
    """Are told that something is about to be computed."""
    on_end: list[Callable[[], None]] = attrs.field(factory=list)
    """Are told that it was: what is decided is committed before any other task goes on."""

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        begun = self.clock.monotonic()
        for tell in tuple(self.on_begin):
            tell()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(self.longest * self.draw.random())
        self.given_at = begun
        for tell in tuple(self.on_end):
            tell()
        return function(*args)

    def post(self, function: Callable[[*A], object], *args: *A) -> None:
        function(*args)


@attrs.define(eq=False)
class Replica:
    """One pod of kai. `lives` counts its processes; each has a name of its own in the lease."""

    name: str
    wire: Wire
    loop: SeededLoop
    draw: random.Random
    weather: Weather = attrs.field(factory=Weather)
    clock: SimulatedClock = attrs.field(init=False)
    cpu: SimulatedCpu = attrs.field(init=False)
    connection: Connection | None = None
    binds_directly: bool = True
    coalescing: float = 0.3
    """Seconds in which the scheduler gathers changes."""
    registry: CollectorRegistry | None = None
    """The metrics of this life."""
    problem: BaseException | None = None
    """What ended a life that should not have ended."""
    _lives: Any = attrs.field(factory=lambda: itertools.count(1))
    _life: asyncio.Task[None] | None = None
    _stop: anyio.Event | None = None

    def __attrs_post_init__(self) -> None:
        self.clock = SimulatedClock(self.loop)
        self.cpu = SimulatedCpu(self.draw, self.clock)

    @property
    def is_alive(self) -> bool:
        return self._life is not None and not self._life.done()

    def start(self) -> None:
        """Begin a life, if there is none; where one was asked to end and has not yet, once it has."""
        life = self._life
        if life is not None and not life.done():
            if self._stop is not None and self._stop.is_set():
                life.add_done_callback(lambda ended: self.start() if self._life is ended else None)
            return
        self.weather.is_dead = False
        token = PROCESS.set(self.name)
        try:
            self._stop = anyio.Event()
            self._life = self.loop.create_task(self._live(next(self._lives)))
        finally:
            PROCESS.reset(token)

    def kill(self) -> None:
        """End a life at once: nothing that it would still do at its end reaches anything."""
        if self._life is not None:
            # The life that follows has a weather of its own to be dead in.
            self.weather.is_dead = True
            self.weather = attrs.evolve(self.weather)
            self._life.cancel()
            self._life = None
            self.loop.thaw(self.name)

    def terminate(self) -> None:
        """Ask a life to end, as SIGTERM does."""
        if self._stop is not None:
            self._stop.set()

    async def _live(self, life: int) -> None:
        try:
            await self._serve(life)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever ends a life is what a schedule is told
            self.problem = error

    async def _serve(self, life: int) -> None:
        process = Process(given(), TOGETHER, {}, CollectorRegistry())
        self.registry = process.registry
        plan = process._plan(no_tracing())
        identity = f"{self.name}/{life}"
        container = self.name if life > 1 else ""
        lease = LeaseSettings(
            namespace=NAMESPACE, name="kai-scheduler", identity=f"{self.name}_{identity}", container=container
        )
        options = Options(component="kai-scheduler", watched=tuple(plan.watched()), lease=lease)
        lines = [Line(self.name, self.wire, self.weather) for _ in range(3)]
        connection = assemble(
            options, self.clock, self.draw.random, requests=lines[0], watches=lines[1], lease=lines[2]
        )
        connection = self.connection = attrs.evolve(connection, cpu=self.cpu)
        assert connection.leadership is not None
        connection.api.leadership = connection.leadership
        devices = itertools.count(1)
        settings = attrs.evolve(plan.settings, direct_binds=self.binds_directly, coalescing_seconds=self.coalescing)
        scheduler = make_scheduler(
            connection,
            settings,
            connection.leadership,
            registry=process.registry,
            hand_over=plan.hand_over.offer if plan.hand_over else None,
            carry_out=plan.hand_over.carry_out if plan.hand_over else None,
            fresh_name=lambda: f"gpu-{identity}-{next(devices)}".replace("/", "-"),
        )
        assert self._stop is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            async with anyio.create_task_group() as roles:
                roles.start_soon(_until, self._stop, roles.cancel_scope)
                roles.start_soon(scheduler.run)
                for role in plan.others:
                    roles.start_soon(work_in_terms, role, connection, connection.leadership)
            await connection.leadership.give_back()
            tasks.cancel_scope.cancel()


async def _until(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()
