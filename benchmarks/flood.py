"""Measure what a tenant that floods costs all others: ``python -m benchmarks.flood [ID...] [--check]``.

One scheduler lives through quiet stretches and flooded ones in turn, in one process. In both, some honest pods leave,
as many come, and some running pods are updated before each cycle, so that no cycle is at rest. In flooded stretches a
tenant of another namespace has its pods pending besides. What counts is the processor time and the memory of the one
over the other; the machine's speed cancels out.
"""

import gc
import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from itertools import cycle

import cattrs
import click
from attrs import define, evolve, frozen

from benchmarks import engine
from benchmarks.catalogue import FOUR, four_queues
from benchmarks.clock import Stopwatch
from benchmarks.events import Form, batches, updating
from benchmarks.manifests import NOW, Manifest, manifests, newcomers, node_name, priority_class, stamp
from benchmarks.measure import memory_mb
from benchmarks.workload import Expected, Nodes, Pending, QueueShape, Running, Workload

BUDGET = 2.0
"""How many times as much a flooded cycle may take, and the process hold, as a quiet one."""
TENANT = "flooding"
_TERMS, _VALUE_LENGTH = 5000, 130
"""Of affinity: 1.3 MB in all."""
_CYCLES = 12
_STRETCHES = 2
_NEW_EACH = 25
_HONEST_GPUS = (1, 2, 4, 8)
_LOWER = 49
"""The highest priority of the flood where each group has its own: no other pod may be evicted for it."""

_NODES = Nodes(501)
HONEST = Workload(
    id="flood-500",
    title="500 full nodes and one with room, 4,000 running, 500 waiting, 25 of them new and 100 updated each cycle",
    nodes=_NODES,
    queues=(*four_queues(_NODES.total_gpus), QueueShape(TENANT, "dept-b", 2, gpu_limit=2)),
    running=Running(4000, FOUR),
    pending=Pending(500, FOUR),
    expected=Expected(),
    updates=100,
)


@frozen
class Flood:
    """Pods of one tenant that wait, all unlike in what they ask for and where they want to be or like ordinary ones."""

    id: str
    title: str
    pods: int
    large: int = 0
    """How many more have 1.3 MB of affinity each."""
    queue: str = TENANT
    """The tenant's own, which is full, or one that may hold more, where there is no room."""
    gpus: int = 1
    unlike: bool = True
    gangs: tuple[int, ...] = (1,)
    """How many pods the groups have, which take these sizes in turn."""
    priorities: bool = False
    """Whether each group has a priority class of its own."""


def _floods() -> Iterator[Flood]:
    unlike, alike = (Flood("flood-500", "2,000 pods of 2,000 shapes", 2000, unlike=each) for each in (True, False))
    yield unlike
    yield evolve(unlike, id="flood-500-large", title=f"{unlike.title}, and 30 with 1.3 MB of affinity", large=30)
    yield evolve(unlike, id="flood-500-room", title=f"{unlike.title} whose queue is not full", queue=FOUR[0], gpus=8)
    yield evolve(alike, id="flood-500-alike", title="2,000 pods like ordinary ones")
    yield evolve(alike, id="flood-500-gangs", title="2,000 pods in gangs of two to nine", gangs=tuple(range(2, 10)))
    yield evolve(alike, id="flood-500-priorities", title="2,000 pods of 2,000 priorities", priorities=True)


FLOODS = {each.id: each for each in _floods()}


@frozen
class Stretch:
    """Warm cycles of one kind: processor time of each, phases of the middle, and memory after them."""

    cpu_ms: tuple[float, ...]
    first_ms: float
    """The cycle that had to learn what came, or left, between two stretches."""
    phases_ms: Mapping[str, float]
    rss_mb: float


@frozen
class Comparison:
    """A flood, and how many times as much as without it a cycle takes and the process holds."""

    flood: str
    title: str
    quiet: tuple[Stretch, ...]
    flooded: tuple[Stretch, ...]
    time_ratio: float
    memory_ratio: float
    budget: float = BUDGET

    @property
    def within_budget(self) -> bool:
        """Say whether both ratios are within the budget."""
        return max(self.time_ratio, self.memory_ratio) <= self.budget


def compare(flood: Flood, cycles: int = _CYCLES, stretches: int = _STRETCHES) -> Comparison:
    """Measure quiet and flooded stretches in turn."""
    engine.warm()
    run = _Run(engine.Live())
    run.take(map(_varied, manifests(HONEST)), "list")
    run.take(_held(), "list")
    run.cycle(Stopwatch())
    run.scheduler.settle()
    quiet, flooded = [], []
    for at in range(stretches):
        quiet.append(run.stretch(cycles))
        run.take(_flooding(flood), "ADDED", at)
        flooded.append(run.stretch(cycles))
        run.take(_flooding(flood), "DELETED", at)
    return Comparison(
        flood=flood.id,
        title=flood.title,
        quiet=tuple(quiet),
        flooded=tuple(flooded),
        time_ratio=_middle(flooded) / _middle(quiet),
        memory_ratio=flooded[0].rss_mb / quiet[0].rss_mb,
    )


def _middle(stretches: Iterable[Stretch]) -> float:
    return statistics.median(each for stretch in stretches for each in stretch.cpu_ms)


@define
class _Run:
    """One scheduler, its clock, and how often honest pods came and went."""

    scheduler: engine.Live
    now: float = NOW.timestamp()
    round: int = 0

    def cycle(self, watch: Stopwatch) -> float:
        """Decide once; return the processor time in milliseconds."""
        with watch.phase("total"):
            self.scheduler.cycle(self.now, watch)
        self.now += 1.0
        return watch.phases_ms.pop("total")

    def take(self, objects: Iterable[Manifest], form: Form, round_: int = 0) -> None:
        """Let objects come or go."""
        for batch in batches(iter(objects), form, round_):
            self.scheduler.take(batch)

    def news(self) -> None:
        """Let honest pods come and go, and running ones change."""
        waiting = _waiting()
        half = len(waiting) // 2
        windows = half // _NEW_EACH
        begin = self.round % windows * _NEW_EACH
        self.round += 1
        some = [each for at in (begin, half + begin) for each in waiting[at : at + _NEW_EACH]]
        self.take(some, "DELETED", max(0, self.round - windows))
        self.take(some, "ADDED", self.round)
        for batch in updating(HONEST, self.round):
            self.scheduler.take(batch)
        gc.collect()

    def stretch(self, cycles: int) -> Stretch:
        """Measure so many cycles, after one that learns what came and left."""
        self.news()
        first, took, phases = self.cycle(Stopwatch()), [], []
        for _ in range(cycles):
            self.news()
            watch = Stopwatch()
            took.append(self.cycle(watch))
            phases.append(watch.phases_ms)
        names = dict.fromkeys(name for each in phases for name in each)
        middle = {name: statistics.median(each.get(name, 0.0) for each in phases) for name in names}
        return Stretch(tuple(took), first, middle, memory_mb("VmRSS"))


# --- Objects -----------------------------------------------------------------------------------------------------


def _varied(manifest: Manifest) -> Manifest:
    """Return a pod that waits with a size of its own, anything else as it is."""
    name = str(_part(manifest, "metadata")["name"])
    if manifest["kind"] != "Pod" or not name.startswith("waiting"):
        return manifest
    at = int(name.split("-")[1])
    return {**manifest, "spec": _spec({"nvidia.com/gpu": str(_HONEST_GPUS[at % len(_HONEST_GPUS)])})}


@cache
def _waiting() -> tuple[Manifest, ...]:
    """Make honest groups that wait, then their pods."""
    return tuple(map(_varied, newcomers(HONEST)))


def _held() -> Iterator[Manifest]:
    """Make what fills the queue of the tenant: a pod on two GPUs of the last node."""
    node = node_name(_NODES.count - 1)
    yield from _job("held", 0, {**_spec({"nvidia.com/gpu": "2"}), "nodeName": node}, {"queue": TENANT})


def _flooding(flood: Flood) -> Iterator[Manifest]:
    """Make the flood, kind by kind, as batches are of one kind."""
    gpus = flood.gpus
    ordinary = _spec({"nvidia.com/gpu": str(gpus)})
    jobs = []
    for at, size in enumerate(_sizes(flood)):
        chosen = {"priorityClassName": f"flood-{at:05d}"} if flood.priorities else {}
        spec = _unlike(at, gpus, 1, 10) if flood.unlike else ordinary
        jobs.append(_job(f"flood-{at:05d}", at, spec, {"queue": flood.queue, "minMember": size, **chosen}))
        if chosen:
            yield priority_class(chosen["priorityClassName"], _LOWER - at)
    large = range(flood.large)
    jobs += [
        _job(f"large-{at:05d}", at, _unlike(at, gpus, _TERMS, _VALUE_LENGTH), {"queue": flood.queue}) for at in large
    ]
    yield from (group for group, *_ in jobs)
    yield from (pod for _, *pods in jobs for pod in pods)


def _sizes(flood: Flood) -> Iterator[int]:
    """Yield how many pods each group has."""
    left, sizes = flood.pods, cycle(flood.gangs)
    while left > 0:
        size = min(left, next(sizes))
        left -= size
        yield size


def _unlike(at: int, gpus: int, terms: int, length: int) -> Manifest:
    """Return a spec that asks for what no other does, and has an affinity of its own."""
    values = [f"{at}-{term}".zfill(length) for term in range(terms)]
    parts = [{"key": "example.com/part", "operator": "NotIn", "values": [value]} for value in values]
    wanted = [{"matchExpressions": [part]} for part in parts]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}}
    return {**_spec({"nvidia.com/gpu": str(gpus), "cpu": f"{1000 + at}m"}), "affinity": affinity}


def _job(name: str, at: int, spec: Manifest, wanted: Manifest) -> list[Manifest]:
    """Make a group of the tenant and its pods."""
    created = stamp(NOW - timedelta(minutes=10) + timedelta(milliseconds=at))
    about: Manifest = {"name": name, "namespace": TENANT, "uid": name, "creationTimestamp": created}
    wanted = {"minMember": 1, "priorityClassName": "train", **wanted}
    group: Manifest = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": about,
        "spec": wanted,
    }
    status = {"phase": "Running" if "nodeName" in spec else "Pending"}
    pods: list[Manifest] = []
    for member in range(int(str(wanted["minMember"]))):
        own = {"name": f"{name}-{member}", "uid": f"{name}-{member}", "annotations": {"pod-group-name": name}}
        metadata = {**about, **own}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
    return [group, *pods]


def _spec(amounts: Mapping[str, str]) -> Manifest:
    requests = {"cpu": "1", "memory": "4Gi", **amounts}
    container = {"name": "main", "image": "registry.example/workload:1", "resources": {"requests": requests}}
    return {"schedulerName": "kai-scheduler", "priorityClassName": "train", "containers": [container]}


def _part(manifest: Manifest, field: str) -> Manifest:
    found = manifest[field]
    if not isinstance(found, dict):
        raise TypeError(f"{field}: found {type(found).__name__}, expected an object")
    return found


# --- Printing ----------------------------------------------------------------------------------------------------


def _lines(found: Comparison) -> Iterator[str]:
    yield f"{found.flood}: {found.title}"
    for name, stretches in (("quiet", found.quiet), ("flooded", found.flooded)):
        phases = ", ".join(f"{phase} {took:.2g}" for phase, took in stretches[0].phases_ms.items() if took >= 0.05)
        first = max(stretch.first_ms for stretch in stretches)
        memory = stretches[0].rss_mb
        yield f"  {name:>8}: {_middle(stretches):.1f} ms (first {first:.0f} ms), {memory:.0f} MB; {phases}"
    word = "within" if found.within_budget else "OVER"
    yield f"  flooded / quiet: time {found.time_ratio:.2f}, memory {found.memory_ratio:.2f}, {word} {found.budget:g}"


@click.command(help="Measure the same cluster with and without a flood of pods of one tenant.")
@click.argument("floods", nargs=-1, type=click.Choice(list(FLOODS)))
@click.option("--cycles", default=_CYCLES, show_default=True, type=click.IntRange(min=1), help="In each stretch.")
@click.option("--stretches", default=_STRETCHES, show_default=True, type=click.IntRange(min=1), help="Of each kind.")
@click.option("--check", is_flag=True, help="End with code 1 where the budget is exceeded.")
@click.option("--output", default="table", show_default=True, type=click.Choice(["table", "json"]))
def main(floods: tuple[str, ...], *, cycles: int, stretches: int, check: bool, output: str) -> None:
    """Measure each of ``floods``, all of them if none is named, in this process."""
    found = []
    for id_ in floods or FLOODS:
        found.append(compare(FLOODS[id_], cycles, stretches))
        if output == "table":
            print("\n".join(_lines(found[-1])), flush=True)
    if output == "json":
        print(json.dumps(cattrs.unstructure(found), indent=2))
    if check and not all(each.within_budget for each in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
