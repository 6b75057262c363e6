"""Whether contended clusters come to rest: ``python -m tests.properties.resting --seeds 1..130``, a hundred of each.

A cluster is restless that still evicts in its twentieth cycle. A seed always draws the same clusters, about a fifth of
them more than once; a restless one is drawn again as small as it can be, and printed.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import attrs
from hypothesis import HealthCheck, Phase, given, seed, settings

from kai.facts.kernels import run_compiled
from kai.facts.state.snapshot import Snapshot
from tests.properties.strategies import contended
from tests.properties.turns import is_restless, turns_of

CLUSTERS = 100
_QUIETLY = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)


@attrs.define
class Found:
    """What was seen of many clusters."""

    clusters: int = 0
    different: set[int] = attrs.field(factory=set)
    cycles: Counter[int] = attrs.field(factory=Counter)
    """How many clusters came to rest after how many cycles."""
    restless: list[str] = attrs.field(factory=list)

    def take(self, number: int, snapshot: Snapshot) -> None:
        """Let one cluster run, drawn by the seed of that number."""
        counts = turns_of(snapshot)
        self.clusters += 1
        self.different.add(_fingerprint(snapshot))
        self.cycles[len(counts)] += 1
        if is_restless(counts):
            self.restless.append(f"seed {number}: {counts[-2:]}")


def _fingerprint(snapshot: Snapshot) -> int:
    columns = (snapshot.pod_shape, snapshot.pod_group, snapshot.pod_subgroup, snapshot.pod_status, snapshot.pod_node)
    objects = (snapshot.nodes, snapshot.queues, snapshot.groups, snapshot.shapes, snapshot.pod_devices)
    return hash((repr(objects), *(column.tobytes() for column in columns)))


def draw_clusters(number: int, count: int, take: Callable[[Snapshot], None], *phases: Phase) -> None:
    """Draw the clusters of a seed, and shrink one that ``take`` fails at if that is among the phases."""

    @seed(number)
    @settings(_QUIETLY, max_examples=count, phases=(Phase.generate, *phases))
    @given(contended())
    def draw(snapshot: Snapshot) -> None:
        take(snapshot)

    draw()


def look(numbers: range, count: int = 0) -> Found:
    """Return what is seen of ``count`` clusters of each seed."""
    found = Found()
    for number in numbers:
        draw_clusters(number, count or CLUSTERS, partial(found.take, number))
    return found


def smallest(number: int, count: int = 0) -> str:
    """Return the smallest restless cluster that a seed leads to, in words; "" if there is none."""
    last = ""

    def take(snapshot: Snapshot) -> None:
        nonlocal last
        counts = turns_of(snapshot)
        if is_restless(counts):
            last = f"{snapshot}\n{counts}"
            raise AssertionError

    try:
        draw_clusters(number, count or CLUSTERS, take, Phase.shrink)
    except AssertionError:
        return last
    return ""


def main() -> int:
    """Draw what the command line asks for; 1 if a cluster is restless."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.resting", description=__doc__)
    parser.add_argument("--seeds", default="1..130", help="the first and the last seed; a hundred clusters of each")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("..")
    numbers = range(int(first), int(last or first) + 1)
    run_compiled()
    begun, used = time.monotonic(), time.process_time()
    found = look(numbers)
    for text in found.restless:
        sys.stdout.write(f"RESTLESS {text}\n")
    for number in sorted({int(text.split()[1].rstrip(":")) for text in found.restless}):
        sys.stdout.write(f"{smallest(number)}\n")
    rest = ", ".join(f"{cycles}: {count}" for cycles, count in sorted(found.cycles.items()))
    sys.stdout.write(
        f"seeds {arguments.seeds}: {found.clusters} clusters, {len(found.different)} different, "
        f"{len(found.restless)} restless\nat rest after so many cycles: {rest}\n"
        f"{time.process_time() - used:.0f} s of processor, {time.monotonic() - begun:.0f} s\n"
    )
    return int(bool(found.restless))


if __name__ == "__main__":
    sys.exit(main())
