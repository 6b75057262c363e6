"""One schedule: what a seed makes of a cluster, its users, and its faults; and what kai makes of all that."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs
import structlog

from kai.deciding.configuration.profiles import make_profile
from kai.facts.kernels import is_plain, run_compiled
from kai.roles.podgrouper import grouper as grouper_registry
from kai.roles.scheduler import making
from kai.roles.scheduler.cycle import cycling
from tests.simulation.checks import Checks
from tests.simulation.conduct import Conduct
from tests.simulation.evictions import Evictions
from tests.simulation.faults import Episode, ambushes, blindness, drawn, happen, rarities
from tests.simulation.flips import SECONDS as FLIPPING
from tests.simulation.flips import Liveness, flips_of, use_briefly
from tests.simulation.loop import SeededLoop, StuckError, numbered_scopes
from tests.simulation.outcome import unsettled
from tests.simulation.rare import order_once_more
from tests.simulation.replica import Replica
from tests.simulation.stores import Stores, differences
from tests.simulation.users import Life
from tests.simulation.words import Words
from tests.simulation.world import LEASE, Violation, World

if TYPE_CHECKING:
    from tests.doubles.rest_server.storage import Change

TROUBLED: Final = 60.0
"""For so many seconds there are users and faults."""
_COALESCING: Final = (0.2, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Most schedules gather longer than kai does: what a schedule costs is its cycles, and more happens between two."""
_FENCED: Final = 0.75
"""How many schedules have the policy for terms."""
_UNREMINDED: Final = 0.25
"""How many schedules have a last pod that comes alone."""
_EMPTYING: Final = 40.0
"""So long after users deleted everything no cycle follows another any more."""
_SETTLING: Final = 420.0
"""Within so many seconds after them everything is as it must be: a pod whose bind failed rests for five minutes."""
_LOOKS_APART: Final = 5.0
_FLIPS_LAST: Final = 50.0
"""Longer than a group of pods that came with the first flip may wait for idle nodes once they are over."""
_CALMING: Final = 100.0  # in which the last writes come to an end
_TAKE_OVER: Final = 25.0  # longer than a new leader waits for the lease of a dead one
_QUIET: Final = 30.0
_MOST_IDLE_WRITES: Final = 0
_MOST_TASKS: Final = 200


@attrs.frozen
class Plan:
    """What a schedule is made of; a smaller one of the same seed has some of it left out."""

    seed: int
    episodes: tuple[Episode, ...]
    replicas: int
    shuffle: float
    seconds: float = TROUBLED
    direct: bool = True
    """Whether a bind that takes one write is written without an order."""
    coalescing: float = 0.3
    """Seconds in which schedulers gather changes."""
    fenced: bool = True
    """Whether the policy for terms is installed; kai must do without it."""
    reminded: bool = True
    """Whether nothing comes once all is settled; else a last pod does, whose order cannot be written for a while."""
    brief: bool = False
    """Whether users submit gangs of pods that end within seconds, each of which must be bound in bounded time."""

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Return the plan of a seed."""
        draw = random.Random(seed)
        replicas = draw.choice((1, 2, 2, 3))
        shuffle = draw.choice((0.0, 0.0, 0.2, 1.0))
        direct = draw.random() < 0.5
        episodes, coalescing = drawn(draw, TROUBLED, replicas), draw.choice(_COALESCING)
        more = ambushes(random.Random(seed * 16 + 15), TROUBLED, replicas)
        rare = random.Random(seed * 16 + 13)
        besides = rarities(rare, TROUBLED)
        whole = tuple(sorted((*episodes, *more, *besides), key=lambda each: each.start))
        fenced = random.Random(seed * 16 + 14).random() < _FENCED
        plan = cls(seed, whole, replicas, shuffle, direct=direct, coalescing=coalescing, fenced=fenced)
        return attrs.evolve(plan, reminded=rare.random() >= _UNREMINDED)

    @classmethod
    def of_flips(cls, seed: int) -> Plan:
        """Return the plan of a seed in which nodes flip and pods are short, and nothing else goes wrong."""
        draw = random.Random(seed * 16 + 12)
        episodes, shuffle = flips_of(draw), draw.choice((0.0, 0.2, 1.0))
        direct, coalescing = draw.random() < 0.5, draw.choice((0.1, 0.3))
        return cls(seed, episodes, 1, shuffle, FLIPPING, direct=direct, coalescing=coalescing, brief=True)

    def written(self, about: str) -> dict[str, Any]:
        """Return the plan as data, to be kept."""
        return {"about": about, **attrs.asdict(self), "episodes": [attrs.asdict(each) for each in self.episodes]}

    def hastened(self) -> Plan:
        """Return the same in half of the time: faults come thicker, and a run costs less."""
        episodes = tuple(attrs.evolve(each, start=each.start / 2) for each in self.episodes)
        return attrs.evolve(self, episodes=episodes, seconds=self.seconds / 2)


@attrs.frozen
class Result:
    """What became of a schedule."""

    plan: Plan
    violations: tuple[Violation, ...]
    history: str
    timeline: tuple[tuple[float, str], ...]
    binds: int
    evictions: int
    seconds: float
    """How long it lasted, in virtual time."""
    callbacks: int
    settled_after: float
    happened: Mapping[str, int] = attrs.field(factory=dict)
    """How often each kind of fault had something to disturb."""
    became: Mapping[str, int] = attrs.field(factory=dict)
    """What evictions were good for, and how many of them."""

    @property
    def is_good(self) -> bool:
        return not self.violations


def run(plan: Plan) -> Result:
    """Run a schedule to its end, or to its first violation."""
    loop = SeededLoop(random.Random(plan.seed + 1), plan.shuffle)
    world = World(plan.seed, loop, random.Random(plan.seed + 2), random.Random(plan.seed + 3))
    world.blind, world.fenced = blindness(plan.episodes), plan.fenced
    with prepared(world), numbered_scopes():
        try:
            return loop.run_until_complete(_play(world, plan))
        except StuckError as error:
            world.violate(26, str(error))
            return _result(world, plan, None, None, 0.0)
        finally:
            end_all(loop)
            loop.close()


def end_all(loop: SeededLoop) -> None:
    """End the tasks that are left, so that none of them ends in the middle of another schedule."""
    left = asyncio.all_tasks(loop)
    for task in sorted(left, key=hash):
        task.cancel()
    if left:
        with suppress(StuckError):
            loop.run_until_complete(asyncio.wait(left, timeout=60.0))


async def _play(world: World, plan: Plan) -> Result:
    life = Life(world)
    checks, watchers = Checks(world, life), Watchers.of(world)
    liveness = Liveness(world) if plan.brief else None
    for number in range(plan.replicas):
        replica = Replica(f"kai-{number}", world.wire, world.loop, random.Random(plan.seed * 16 + number))
        replica.binds_directly, replica.coalescing = plan.direct, plan.coalescing
        world.replicas.append(replica)
        watchers.conduct.decisions.follow(replica)
        replica.start()
    ends_at = world.time + plan.seconds
    life.controller.counts = plan.brief
    users = use_briefly(world, life, plan.seconds) if plan.brief else life.use(plan.seconds)
    others = [
        asyncio.ensure_future(users),
        asyncio.ensure_future(happen(world, life, plan.episodes, ends_at)),
    ]
    while world.time < ends_at and not world.violations:
        await asyncio.sleep(1.0)
        _look_at_lives(world)
        watchers.stores.look()
    for each in others:
        each.cancel()
    calm_since = world.time
    if not world.violations:
        for ended in await asyncio.gather(*others, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        _calm(world)
        if liveness is not None:
            await _wait_for_groups(world, liveness)
        await _settle(world, watchers)
    settled = world.time - calm_since
    if not plan.reminded and not world.violations:
        life.withdraw_all()
        await asyncio.sleep(_EMPTYING)
        order_once_more(world, life)
        await _settle(world, watchers)
    if not world.violations:
        await _keep_quiet(world)
        watchers.conduct.decisions.look()
        look_at_size(world)
    for replica in world.replicas:
        replica.kill()
    await asyncio.sleep(1.0)
    return _result(world, plan, checks, watchers, settled)


def _calm(world: World) -> None:
    """End what is wrong, but leave one replica dead where there are several."""
    world.is_calm, world.calm_since = True, world.time
    world.refused_binds.clear()
    world.say("faults and users are over")
    for replica in world.replicas:
        replica.start()
    if len(world.replicas) > 1:
        world.replicas[-1].kill()


@attrs.frozen
class Watchers:
    """The checks that need no more than the world."""

    conduct: Conduct
    words: Words
    evictions: Evictions
    stores: Stores

    @classmethod
    def of(cls, world: World) -> Watchers:
        """Let all of them look at a world."""
        words = Words(world)
        world.hears = words.hear
        return cls(Conduct(world), words, Evictions(world), Stores(world))


def look_at_size(world: World) -> None:
    """Look how many tasks there are, once nothing is left to do."""
    living = sum(each.is_alive for each in world.replicas)
    tasks = len(asyncio.all_tasks(world.loop))
    if tasks > _MOST_TASKS * max(1, living):
        world.violate(23, f"{tasks} tasks are there for {living} processes that have nothing to do")


async def _wait_for_groups(world: World, liveness: Liveness) -> None:
    """Let flips have their consequences, and look how long groups wait for nodes that are idle."""
    end = world.time + _FLIPS_LAST
    while world.time < end and not world.violations:
        await asyncio.sleep(1.0)
        liveness.look()


async def _settle(world: World, watchers: Watchers) -> None:
    """Wait until everything is as it must be."""
    end = world.time + _SETTLING
    while not world.violations:
        await asyncio.sleep(_LOOKS_APART)
        _look_at_lives(world)
        watchers.stores.look()
        watchers.conduct.decisions.look()
        found = [*unsettled(world), *differences(world), *watchers.evictions.futile()]
        if not found:
            return
        if world.time >= end:
            for invariant, text in found[:5]:
                world.violate(invariant, text)


async def _keep_quiet(world: World) -> None:
    """Wait a while in which nothing happens, and count what kai writes all the same."""
    writes: list[str] = []

    def count(change: Change) -> None:
        if change.by.startswith("kai") and change.served is not LEASE:
            writes.append(f"{change.by} {change.served.plural} {change.place} at {world.time:.1f} s")

    world.server.storage.listeners.append(count)
    end = world.time + _CALMING
    while world.time < end:  # a new leader, or a pod that ends by itself, has its consequences first
        await asyncio.sleep(_TAKE_OVER)
        if not writes:
            break
        writes.clear()
    for _ in range(2):  # what waited for its time, as scaling pods do, comes once and not again
        writes.clear()
        await asyncio.sleep(_QUIET)
        if len(writes) <= _MOST_IDLE_WRITES:
            return
        await asyncio.sleep(_TAKE_OVER)  # what came late in this time has its consequences
    world.violate(22, f"{len(writes)} writes where nothing happens: {', '.join(sorted(set(writes))[:4])}")


def _look_at_lives(world: World) -> None:
    for replica in world.replicas:
        if replica.problem is not None:
            world.violate(26, f"{replica.name} ended: {_innermost(replica.problem)!r}")
            replica.problem = None


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _result(world: World, plan: Plan, checks: Checks | None, watchers: Watchers | None, settled: float) -> Result:
    return Result(
        plan=plan,
        violations=tuple(world.violations),
        history=world.history,
        timeline=tuple(world.timeline),
        binds=0 if checks is None else checks.binds,
        evictions=0 if checks is None else checks.evictions,
        seconds=world.time,
        callbacks=world.loop.callbacks,
        happened=dict(world.happened),
        became={} if watchers is None else watchers.evictions.became(),
        settled_after=settled,
    )


# --- What every schedule needs ---------------------------------------------------------------------------------------

_PROFILES: dict[str, Any] = {}
_entry_points: Final = cache(entry_points)
"""What is installed stays as it is, and to find it costs 30 ms in each life of a process."""


def _known_profile(configuration: Any) -> Any:
    """Return a profile; finding plugins reads files, and every life of every schedule has the same ones."""
    if "" not in _PROFILES:
        _PROFILES[""] = make_profile(configuration)
    return _PROFILES[""]


@contextmanager
def prepared(world: World) -> Iterator[None]:
    """Let logs go into the timeline, and leave alone what costs a process time only once."""
    if is_plain() is not False:
        run_compiled()

    def take(_: Any, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        if event.get("event") in _BUGS:
            world.violate(33, f"{event['event']}: {event.get('why')} at {event.get('at')}")
        if level in {"warning", "error", "critical"} or event.get("event") in _TOLD:
            what = event.pop("event")
            line = f"log {level}: {what} {' '.join(f'{key}={value}' for key, value in event.items())}"
            world.hears(line)
            world.say(line)
        raise structlog.DropEvent

    before, collected = structlog.get_config(), gc.isenabled()
    structlog.configure(processors=[take], cache_logger_on_first_use=False)
    modules: Any = (making, cycling, grouper_registry)
    instead = (_known_profile, _nothing, _entry_points)
    names = ("make_profile", "settle", "entry_points")
    kept = [getattr(module, name) for module, name in zip(modules, names, strict=True)]
    for module, name, function in zip(modules, names, instead, strict=True):
        setattr(module, name, function)
    gc.disable()
    try:
        yield
    finally:
        for module, name, function in zip(modules, names, kept, strict=True):
            setattr(module, name, function)
        structlog.configure(**before)
        if collected:
            gc.enable()


def _nothing() -> None:
    """Leave the collector alone."""


_BUGS: Final = frozenset({"work failed", "plan failed", "cycle abandoned", "set aside", "plugin fails"})
"""What the log says where an error of kai's own was contained."""
_TOLD: Final = frozenset({"leading", "role begins", "cycle repeated", "grouped"})
