"""What both choices of victims cost in the recorded random clusters: ``python -m tests.victims.recorded``."""

import json
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kai.framework.decisions import Evict, Nominate
from kai.kernels import run_compiled
from kai.model.status import ACTIVE_ALLOCATED
from kai.simulation.deciding.run import Cycle, simulate
from tests.conformance.victims import as_peer
from tests.victims.comparing import case_of_document

ARCHIVES = ("random", "random-features")
FOLDER = Path(__file__).parent.parent / "conformance"


class Harm(NamedTuple):
    """What one cycle did: pods that are promised a place, and what was lost for them."""

    promised: int
    groups: int
    hours: float
    pods: int
    gpus: float


def harm(document: Mapping[str, Any]) -> Harm:
    """Return what the first cycle of a scenario did."""
    cycle = simulate(case_of_document(document)).cycles[0]
    gone = [each for each in cycle.decisions if isinstance(each, Evict)]
    moved = sum(each.moved_to >= 0 for each in gone)
    groups = cycle.snapshot.pod_group[[each.pod for each in gone]] if gone else np.zeros(0, np.int64)
    hours = 0.0
    for each, group in zip(gone, groups.tolist(), strict=True):
        started = cycle.snapshot.groups[group].last_start if group >= 0 else None
        hours += each.gpus / 1000 * max(0.0, cycle.snapshot.now - started) / 3600 if started is not None else 0.0
    promised = sum(isinstance(each, Nominate) for each in cycle.decisions) - moved
    gpus = sum(each.gpus for each in gone) / 1000
    return Harm(promised, _broken(cycle, {each.pod for each in gone}), round(hours, 3), len(gone), round(gpus, 3))


def _broken(cycle: Cycle, gone: set[int]) -> int:
    """Return how many groups have too few pods of some leaf once ``gone`` are."""
    snapshot = cycle.snapshot
    placed: Counter[tuple[int, int]] = Counter()
    left: Counter[tuple[int, int]] = Counter()
    for pod, (group, leaf) in enumerate(zip(snapshot.pod_group.tolist(), snapshot.pod_subgroup.tolist(), strict=True)):
        if group >= 0 and (ACTIVE_ALLOCATED >> int(snapshot.pod_status[pod])) & 1:
            placed[group, leaf] += 1
            left[group, leaf] += pod not in gone
    broken = set()
    for (group, leaf), count in placed.items():
        least = snapshot.groups[group].subgroups[leaf].minimum or 0
        if count >= least > left[group, leaf]:
            broken.add(group)
    return len(broken)


def clusters() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the document of each recorded random cluster."""
    for name in ARCHIVES:
        with tarfile.open(FOLDER / f"{name}.tar.xz", "r|xz") as archive:
            for each in archive:
                file = archive.extractfile(each)
                if file is not None:
                    document = json.loads(file.read())
                    yield Path(each.name).stem, {key: value for key, value in document.items() if key != "expected"}


def main() -> None:
    """Print the clusters that differ, with both counts, and the sums of all."""
    run_compiled()
    sums = [Counter[str](), Counter[str]()]
    differ = 0
    for name, document in clusters():
        both = [harm(document), harm(as_peer(document))]
        for total, each in zip(sums, both, strict=True):
            total.update(each._asdict())
        if both[0] != both[1]:
            differ += 1
            sys.stdout.write(f"{name}: {both[0]} as-peer {both[1]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{differ} differ\n{dict(sums[0])}\nas-peer {dict(sums[1])}\n")


if __name__ == "__main__":
    main()
