"""What kai evicts, beside the best set."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kai.answers.cases.case import Case
from kai.answers.offline.run import simulate
from kai.facts.model.placement import Past
from kai.framework.decisions import Bind, Evict, Nominate
from kai.lab.scenarios.scenario import read_scenario
from tests.victims.drawing import ASKS, Drawn, draw, scenario
from tests.victims.oracle import Cost, Loss, best, cost_of, is_allowed


@attrs.frozen
class Answer:
    """What kai did on one cluster."""

    started: bool
    cost: Cost
    taken: tuple[Loss, ...]
    moved: int
    """Pods that were given another place."""
    allowed: bool


@attrs.frozen
class Compared:
    """One cluster."""

    drawn: Drawn
    answer: Answer
    best: Cost | None
    """None: no set of evictions serves."""

    @property
    def is_cheaper(self) -> bool:
        """Whether it costs less than the best set of evictions; it may, because pods are moved."""
        return self.best is not None and self.answer.started and self.answer.cost < self.best

    @property
    def more_pods(self) -> int:
        """Pods that were disturbed beyond the best."""
        return self.answer.cost.pods - self.best.pods if self.best and self.answer.started else 0

    @property
    def more_groups(self) -> int:
        """Groups that lost their minimum beyond the best."""
        return self.answer.cost.groups - self.best.groups if self.best and self.answer.started else 0


def case_of(drawn: Drawn, config: dict[str, object] | None = None) -> Case:
    """Return the cluster as a case; ``config`` is that of the scenario."""
    document = scenario(drawn)
    if config is not None:
        document["config"] = config
    case = case_of_document(document)
    spared = tuple(f"{job.name}-{at}" for job in drawn.jobs if job.spared for at in range(len(job.nodes)))
    return attrs.evolve(case, past=Past(protected=spared))


def case_of_document(document: Mapping[str, Any]) -> Case:
    """Return a scenario of a cluster as a case."""
    case = read_scenario(document, str(document["name"]))
    assert isinstance(case, Case), "a division of fair shares has no cluster"
    return case


def answer_of(drawn: Drawn, config: dict[str, object] | None = None) -> Answer:
    """Let kai decide, and add up what it costs."""
    last = simulate(case_of(drawn, config)).last
    pods = last.snapshot.pods
    evicted = [each for each in last.decisions if isinstance(each, Evict)]
    gone = Counter(pods[each.pod].name.rpartition("-")[0] for each in evicted)
    taken = tuple(Loss(job, gone[job.name]) for job in drawn.jobs if gone[job.name])
    placed = {pods[each.pod].name for each in last.decisions if isinstance(each, Bind | Nominate)}
    return Answer(
        started=all(f"{ASKS}-{at}" in placed for at in range(sum(drawn.asker.parts))),
        cost=cost_of(drawn, taken),
        taken=taken,
        moved=sum(each.moved_to >= 0 for each in evicted),
        allowed=is_allowed(drawn, taken),
    )


def compare(seed: int, config: dict[str, object] | None = None) -> Compared:
    """Return both answers for the cluster of a seed."""
    drawn = draw(seed)
    found = best(drawn)
    return Compared(drawn, answer_of(drawn, config), None if found is None else found[0])


@attrs.define
class Table:
    """Many clusters added up. Those that need no eviction are left out."""

    clusters: int = 0
    free: int = 0
    hopeless: int = 0
    """Clusters in which no set serves."""
    by_moving: int = 0
    """Clusters among those in which the group starts all the same, because pods are moved."""
    missed: list[int] = attrs.field(factory=list)
    as_good: int = 0
    """Clusters with no more pods and no more groups than the best."""
    cheaper: list[int] = attrs.field(factory=list)
    """Clusters with more pods than the best, but fewer GPU-hours, which count before them."""
    far: list[int] = attrs.field(factory=list)
    """Clusters with more than one pod or one group above it, and no fewer GPU-hours."""
    unruly: list[int] = attrs.field(factory=list)
    """Clusters with a set that the rules do not allow by eviction alone."""
    worse: list[int] = attrs.field(factory=list)
    mine: Counter[str] = attrs.field(factory=Counter)
    least: Counter[str] = attrs.field(factory=Counter)

    @property
    def solvable(self) -> int:
        """Clusters in which a set of evictions serves, and is needed."""
        return self.clusters - self.free - self.hopeless

    def add(self, seen: Compared) -> None:
        """Count one cluster."""
        self.clusters += 1
        seed, answer, least = seen.drawn.seed, seen.answer, seen.best
        if least is None:
            self.hopeless += 1
            self.by_moving += answer.started
            return
        if not least.pods:
            self.free += 1
            return
        if not answer.started:
            self.missed.append(seed)
            return
        if not answer.moved and not answer.allowed:
            self.unruly.append(seed)
        for name in Cost._fields:
            self.mine[name] += getattr(answer.cost, name)
            self.least[name] += getattr(least, name)
        if seen.more_pods <= 0 and seen.more_groups <= 0:
            self.as_good += 1
            return
        if seen.is_cheaper:
            self.cheaper.append(seed)
            return
        self.worse.append(seed)
        if seen.more_pods > 1 or seen.more_groups > 1:
            self.far.append(seed)

    def add_all(self, seen: Iterable[Compared]) -> "Table":
        """Count many, and return the table."""
        for each in seen:
            self.add(each)
        return self

    def lines(self) -> list[str]:
        """Return the table in words."""
        started = self.solvable - len(self.missed)
        share = 100 * self.as_good / started if started else 100.0
        sums = ", ".join(f"{name} {self.mine[name]} ({self.least[name]})" for name in Cost._fields)
        return [
            f"{self.clusters} clusters: {self.free} need no eviction, {self.solvable} have a best answer",
            f"no answer: {self.hopeless}, of which {self.by_moving} start because pods are moved",
            f"does not start: {len(self.missed)} {self.missed[:20]}",
            f"disturbs no more than the best: {self.as_good} of {started}, {share:.2f} % {self.worse[:20]}",
            f"loses fewer GPU-hours than the best, with more pods: {len(self.cheaper)} {self.cheaper[:20]}",
            f"more than one pod or one group above it: {len(self.far)} {self.far[:20]}",
            f"not allowed by eviction alone: {len(self.unruly)} {self.unruly[:20]}",
            f"in all, the best in brackets: {sums}",
        ]
