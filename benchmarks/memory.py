"""Say where the memory of a scheduler goes, step by step and by class: ``python -m benchmarks.memory w4d``.

Resident memory is of two kinds. What is anonymous is this process' own; pages of files (libraries, nearly all of it)
are shared between processes, and the system takes them back when it wants the room. The steps are imports and those
of ``measure``: kernels, a rehearsal, one list for each kind, a cold cycle and a warm one.
"""

import gc
import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from attrs import frozen

from benchmarks.clock import Stopwatch
from benchmarks.events import listed
from benchmarks.growth import find
from benchmarks.manifests import NOW
from benchmarks.measure import Outcome, Scheduler, memory_mb, rehearse
from benchmarks.workload import Workload

IMPORTS = ("llvmlite.binding", "numba", "benchmarks.engine")
"""Each with all that it imports which those before it did not."""


@frozen
class Step:
    """What was resident after a step, in megabytes: all of it, the process' own, and pages of files."""

    name: str
    resident: float
    own: float
    files: float


@frozen
class Share:
    """What objects of one class take by themselves, without what they refer to."""

    name: str
    objects: int
    mb: float


def taken(name: str) -> Step:
    """Return what is resident now."""
    return Step(name, memory_mb("VmRSS"), memory_mb("RssAnon"), memory_mb("RssFile"))


def imported() -> Iterator[Step]:
    """Import what a scheduler consists of, and say after each part what is resident."""
    yield taken("Python, NumPy")
    for name in IMPORTS:
        importlib.import_module(name)
        yield taken(name)


def lived(workload: Workload, begin: Callable[[], Scheduler[Outcome]], warm: Callable[[], None]) -> Iterator[Step]:
    """Do what a scheduler does on ``workload``, and say after each step what is resident."""
    warm()
    yield taken("kernels loaded")
    rehearse(begin())
    yield taken("each step taken once")
    scheduler = begin()
    for kind, batches in groupby(listed(workload), key=lambda batch: batch.kind):
        for batch in batches:
            scheduler.take(batch)
        yield taken(f"{kind} listed")
    scheduler.cycle(NOW.timestamp(), Stopwatch())
    yield taken("first cycle")
    scheduler.settle()
    scheduler.cycle(NOW.timestamp() + 1.0, Stopwatch())
    yield taken("warm cycle")


def census(roots: Iterable[object], least_mb: float = 0.5) -> list[Share]:
    """Return which classes ``roots``, and all that they refer to, are of: largest first, without what takes little."""
    objects = list(roots)
    known = set(map(id, objects))
    for each in objects:  # grows as it is read
        for other in gc.get_referents(each):
            if id(other) not in known:
                known.add(id(other))
                objects.append(other)
    counts, sizes = Counter[str](), Counter[str]()
    for each in objects:
        name = f"{type(each).__module__}.{type(each).__qualname__}"
        counts[name] += 1
        sizes[name] += sys.getsizeof(each)
    shares = (Share(name, counts[name], size / 1e6) for name, size in sizes.most_common())
    return [share for share in shares if share.mb >= least_mb]


def main(id_: str) -> None:
    """Print the steps of a workload, then the classes."""
    print(f"{'MB resident after':34} {'all':>7} {'own':>7} {'files':>7}")
    for step in imported():
        _say(step)
    engine = importlib.import_module("benchmarks.engine")
    for step in lived(find(id_), engine.Live, engine.warm):
        _say(step)
    gc.collect()
    gc.unfreeze()
    for share in census(gc.get_objects()):
        print(f"{share.name:50} {share.objects:9,} {share.mb:7.1f} MB")


def _say(step: Step) -> None:
    print(f"{step.name:34} {step.resident:7.1f} {step.own:7.1f} {step.files:7.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
