"""What both choices of victims cost in the recorded random clusters: ``python -m tests.victims.recorded``.

Two counts are told of each cluster that differs. One is of the first search that ends otherwise: until then both saw
the same cluster, so this is what choosing otherwise is worth. The other is of the whole cycle: later searches begin
with what earlier ones left.
"""

import json
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import attrs

from kai.answers.offline.run import Cycle, simulate
from kai.facts.kernels import run_compiled
from kai.facts.model.groups import path_to
from kai.facts.model.pod import ACTIVE_ALLOCATED
from kai.facts.state.base import make_base
from kai.facts.state.facts import requested_amounts
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Evict, Nominate
from tests.conformance.victims import as_peer
from tests.victims.comparing import case_of_document

ARCHIVES = ("random", "random-features")
FOLDER = Path(__file__).parent.parent / "conformance"


class Harm(NamedTuple):
    """What was lost, in the order in which it counts, as a second look counts it."""

    below: int
    """Whether some queue is pushed below its quota of GPUs; 0 for a whole cycle."""
    groups: int
    hours: float
    pods: int
    gpus: float


@attrs.frozen
class Search:
    """One search that was made final, or several for one group in a row."""

    aggressor: int
    before: tuple[tuple[str, int], ...]
    """What was decided since the search before it, with the pods that it promised a place."""
    evicted: tuple[Evict, ...]
    promised: int
    """Pods of the aggressor that are promised a place."""
    harm: Harm

    @property
    def outcome(self) -> object:
        """What two choices are compared by."""
        return self.aggressor, {(each.pod, each.moved_to >= 0) for each in self.evicted}


class Books:
    """What queues and groups hold while the decisions of a cycle are read in turn."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Begin with what pods hold at first."""
        self._snapshot = snapshot
        base = make_base(snapshot)
        self._groups = base.facts.groups
        self._leaf = base.facts.pods.leaf
        self._asked = requested_amounts(snapshot, base.facts.nodes, largest=False)[:, 2]
        self._held = base.open(snapshot).columns.queue_used[:, 2].astype(float)
        statuses = enumerate(snapshot.pod_status.tolist())
        self._placed = Counter(int(self._leaf[pod]) for pod, status in statuses if (ACTIVE_ALLOCATED >> status) & 1)

    def _path(self, group: int) -> list[int]:
        return path_to(self._snapshot.queues, int(self._groups.queue[group])) if group >= 0 else []

    def place(self, pod: int) -> None:
        """Charge a pod that is bound or promised a place to its queue and those above it."""
        self._placed[int(self._leaf[pod])] += 1
        for queue in self._path(int(self._snapshot.pod_group[pod])):
            self._held[queue] += self._asked[self._snapshot.pod_shape[pod]]

    def evict(self, evicted: Sequence[Evict]) -> Harm:
        """Take what is evicted off the books, and return what is lost; a pod that is moved starts again, too."""
        snapshot = self._snapshot
        aggressor = evicted[0].aggressor if evicted else -1
        groups = {int(snapshot.pod_group[each.pod]) for each in evicted} - {-1}
        enough = {group for group in groups if self._is_enough(group)}
        before, hours = self._held.copy(), 0.0
        for each in evicted:
            group = int(snapshot.pod_group[each.pod])
            self._placed[int(self._leaf[each.pod])] -= 1
            for queue in self._path(group):
                self._held[queue] -= each.gpus
            started = snapshot.groups[group].last_start if group >= 0 else None
            hours += each.gpus / 1000 * max(0.0, snapshot.now - started) / 3600 if started is not None else 0.0
        losing = {queue for group in groups for queue in self._path(group)} - set(self._path(aggressor))
        quotas = {queue: snapshot.queues[queue].quota.gpu for queue in losing}
        below = any(0 <= quota <= before[queue] and self._held[queue] < quota for queue, quota in quotas.items())
        broken = sum(not self._is_enough(group) for group in enough)
        gpus = sum(each.gpus for each in evicted) / 1000
        return Harm(int(below), broken, round(hours, 3), len({each.pod for each in evicted}), round(gpus, 3))

    def _is_enough(self, group: int) -> bool:
        """Return whether the tree of a group has what it needs."""
        rows = range(int(self._groups.first_subgroup[group]), int(self._groups.first_subgroup[group + 1]))
        reached = {row: self._placed[row] if self._groups.leaf[row] else 0 for row in rows}
        for row in reversed(rows[1:]):
            reached[int(self._groups.parent[row])] += reached[row] >= self._groups.minimum[row]
        return bool(reached[rows[0]] >= self._groups.minimum[rows[0]])


def searches(cycle: Cycle) -> list[Search]:
    """Return the searches of a cycle in turn."""
    books, found = Books(cycle.snapshot), list[Search]()
    since, evicted, named = list[tuple[str, int]](), list[Evict](), list[int]()

    def close() -> None:
        if evicted:
            aggressor, harm = evicted[0].aggressor, books.evict(evicted)
            gained = {pod for pod in named if cycle.snapshot.pod_group[pod] == aggressor}
            found.append(Search(aggressor, tuple(since), tuple(evicted), len(gained), harm))
            since.clear()
        for pod in named:
            books.place(pod)
        since.extend(("placed", pod) for pod in named)
        evicted.clear(), named.clear()

    for each in cycle.decisions:
        if isinstance(each, Evict):
            if named or (evicted and evicted[0].aggressor != each.aggressor):
                close()
            evicted.append(each)
        else:
            named.append(each.pod)
    close()
    return found


def totals_of(cycle: Cycle) -> tuple[int, Harm]:
    """Return how many pods are promised a place in a cycle, those left out that are moved, and what is lost in all."""
    evicted = [each for each in cycle.decisions if isinstance(each, Evict)]
    promised = {each.pod for each in cycle.decisions if isinstance(each, Nominate)} - {each.pod for each in evicted}
    return len(promised), Books(cycle.snapshot).evict(evicted)._replace(below=0)


def clusters() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the document of each recorded random cluster."""
    for name in ARCHIVES:
        with tarfile.open(FOLDER / f"{name}.tar.xz", "r|xz") as archive:
            for each in archive:
                file = archive.extractfile(each)
                if file is not None:
                    document = json.loads(file.read())
                    yield Path(each.name).stem, {key: value for key, value in document.items() if key != "expected"}


@attrs.frozen
class Pair:
    """One cluster with both choices, kai's first."""

    mine: Cycle
    peers: Cycle

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Pair":
        """Decide both."""
        mine, peers = (simulate(case_of_document(each)).cycles[0] for each in (document, as_peer(document)))
        return cls(mine, peers)

    def changed(self) -> tuple[Search | None, Search | None] | None:
        """Return the first search that ends otherwise, None where there is none on one side; None if all end alike."""
        both = zip_longest(searches(self.mine), searches(self.peers))
        return next((pair for pair in both if getattr(pair[0], "outcome", 0) != getattr(pair[1], "outcome", 0)), None)


def verdict(mine: Search | None, peers: Search | None) -> str:
    """Say in words which of two ends of a search is better."""
    if peers is None or mine is None or (mine.aggressor, mine.before) != (peers.aggressor, peers.before):
        return "another group is served" if mine and peers else ("only kai serves" if mine else "only the peer serves")
    if mine.harm < peers.harm:
        return "cheaper"
    return "as cheap" if mine.harm == peers.harm else "dearer"


def main() -> None:
    """Print the clusters that differ, with both counts, and the sums of all."""
    run_compiled()
    sums, verdicts = [Counter[str](), Counter[str]()], Counter[str]()
    for name, document in clusters():
        pair = Pair.of(document)
        totals = [totals_of(pair.mine), totals_of(pair.peers)]
        for total, (promised, harm) in zip(sums, totals, strict=True):
            total.update(harm._asdict() | {"promised": promised})
        if (found := pair.changed()) is None:
            continue
        said = verdict(*found)
        verdicts[said] += 1
        first = " | ".join(_told(each) for each in found)
        whole = " | ".join(f"{promised} {tuple(harm[1:])}" for promised, harm in totals)
        sys.stdout.write(f"{name}: {said}: {first}; in all {whole}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{sum(verdicts.values())} differ: {dict(verdicts)}\n{dict(sums[0])}\nas-peer {dict(sums[1])}\n")


def _told(search: Search | None) -> str:
    return "none" if search is None else f"group {search.aggressor}: {search.promised} for {tuple(search.harm)}"


if __name__ == "__main__":
    main()
