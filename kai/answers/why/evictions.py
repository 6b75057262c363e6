"""Why pods are evicted: their job, the job that gains, the rule, and the figures that allowed it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from kai.answers.offline.run import Cycle
from kai.answers.outcomes.states import counted_gpus
from kai.basics.wording import span_text
from kai.deciding.explain.phrases import plain, quantity
from kai.deciding.explain.recorded import least_pods
from kai.facts.model.axis import CPU, GPU, LEADING, MEMORY, Int64s
from kai.facts.model.groups import PodGroup, path_to
from kai.facts.model.pod import COUNTED, Status, within
from kai.facts.state.facts import named_models
from kai.framework.decisions import YIELDED, Bind, Cause, Evict


@attrs.frozen(kw_only=True)
class Eviction:
    """The reason for the eviction of one pod."""

    pod: str
    job: str
    """``namespace/name``."""
    queue: str
    node: str
    gpus: int
    """In thousandths."""
    cause: str
    rule: str
    beneficiary: str
    """``namespace/name`` of the job that gains; "" if none does."""
    moved_to: str
    """The node that the pod was promised in exchange; "" for none."""
    because: tuple[str, ...]


BY_MODEL: Final = "quota of a GPU model"
"""The rule where a queue takes GPUs of a model that are owed to it."""


class Evictions:
    """The evictions of one cycle."""

    def __init__(self, cycle: Cycle) -> None:
        """Read a cycle that is over."""
        self._cycle = cycle
        self.decisions = tuple(each for each in cycle.decisions if isinstance(each, Evict))

    def all(self) -> tuple[Eviction, ...]:
        """Return all evictions, in the order of the decisions."""
        snapshot = self._cycle.snapshot
        found: list[Eviction] = []
        for each in self.decisions:
            facts = snapshot.groups[int(snapshot.pod_group[each.pod])]
            # The report has the last place of a pod, which for a moved pod is the one that it was promised.
            node = int(self._cycle.origins[each.pod])
            found.append(
                Eviction(
                    pod=snapshot.pods[each.pod].key,
                    job=facts.key,
                    queue=facts.queue,
                    node=snapshot.nodes[node].name if node >= 0 else "",
                    gpus=int(self._counts[each.pod]),
                    cause=str(each.cause),
                    rule=self._rule(each),
                    beneficiary=snapshot.groups[each.aggressor].key if each.aggressor >= 0 else "",
                    moved_to=snapshot.nodes[each.moved_to].name if each.moved_to >= 0 else "",
                    because=tuple(self.because(each)),
                )
            )
        return tuple(found)

    def because(self, evict: Evict) -> Iterator[str]:
        """Yield the figures that allowed an eviction: the earlier usage of the queues, or the priorities."""
        groups = self._cycle.snapshot.groups
        loser = groups[int(self._cycle.snapshot.pod_group[evict.pod])]
        if evict.cause == Cause.RECLAIM and evict.aggressor >= 0:
            # Shares do not explain what a quota of a model allows: the loser may be well within its own.
            by_model = tuple(self._of_model(evict))
            yield from by_model or self._compared(evict, loser.queue_row, groups[evict.aggressor].queue_row)
        if evict.cause == Cause.PREEMPT and evict.aggressor >= 0:
            winner = groups[evict.aggressor]
            if evict.rule == YIELDED and loser.bound is not None and loser.bound.yields is not None:
                yield f"{loser.name} yields after {span_text(loser.bound.yields)}"
            yield f"{winner.name} has priority {winner.priority}, {loser.name} {loser.priority}"
        yield from _second_look(evict)
        if evict.cause == Cause.STALE and "minimum" in evict.facts:
            yield f"fewer than {evict.facts['minimum']} pods of it were left"

    def unused(self) -> Iterator[str]:
        """Yield the nodes where evictions vacate more than is promised, and a possible reason."""
        snapshot, report = self._cycle.snapshot, self._cycle.report
        # By node and not in sum: GPUs that one node frees are of no use to a pod that is promised a place on another.
        vacated: Counter[int] = Counter()
        for each in self.decisions:
            node = int(self._cycle.origins[each.pod])
            if node >= 0:
                vacated[node] += int(self._counts[each.pod])
        promised: Counter[int] = Counter()
        counts = counted_gpus(snapshot, report.node, report.details)
        for row in np.flatnonzero(report.status == Status.PIPELINED):
            promised[int(report.node[row])] += int(counts[row])
        over = {node: amount - promised[node] for node, amount in vacated.items() if amount > promised[node]}
        if not over:
            return
        names = ", ".join(f"{plain(amount)} on {snapshot.nodes[node].name}" for node, amount in sorted(over.items()))
        gangs = sorted({facts.name for facts in self._broken_gangs()})
        why = f"; {', '.join(gangs)} loses all its pods, because its minimum must run together" if gangs else ""
        yield f"{quantity(sum(over.values()), 'gpu')} more than is promised to jobs: {names}{why}"

    def _broken_gangs(self) -> Iterator[PodGroup]:
        snapshot, report = self._cycle.snapshot, self._cycle.report
        for group in {int(snapshot.pod_group[each.pod]) for each in self.decisions if each.moved_to < 0}:
            rows = np.flatnonzero(snapshot.pod_group == group)
            left = sum(within(int(report.status[row]), COUNTED) for row in rows)
            # A gang below its minimum cannot run on, so evicting one member
            # evicts all, also from nodes that are not needed.
            if not left and least_pods(snapshot.groups[group]) > 1:
                yield snapshot.groups[group]

    # --------------------------------------------------------------------------- compared queues

    @cached_property
    def _counts(self) -> Int64s:
        """int64[P]: GPUs of each pod as counted on its node before the cycle, or where it started."""
        return counted_gpus(self._cycle.snapshot, self._cycle.origins, self._cycle.report.details)

    @cached_property
    def _used(self) -> Int64s:
        """int64[Q, 4]: usage of each queue before the evictions, including what started in this cycle."""
        snapshot = self._cycle.snapshot
        started = {each.pod for each in self._cycle.decisions if isinstance(each, Bind)}
        used = np.zeros((len(snapshot.queues), len(LEADING)), np.int64)
        for row, group in enumerate(snapshot.pod_group):
            if group < 0 or not (row in started or within(int(snapshot.pod_status[row]), COUNTED)):
                continue
            amounts = snapshot.requests[int(snapshot.pod_shape[row]), : len(LEADING)].copy()
            amounts[GPU] = self._counts[row]
            for queue in path_to(snapshot.queues, snapshot.groups[group].queue_row):
                used[queue] += amounts
        return used

    @cached_property
    def _models_used(self) -> Int64s:
        """int64[Q, M]: what queues used of each model that queues name, before the evictions."""
        snapshot, named = self._cycle.snapshot, named_models(self._cycle.snapshot)
        started = {each.pod: each.node for each in self._cycle.decisions if isinstance(each, Bind)}
        used = np.zeros((len(snapshot.queues), len(named)), np.int64)
        for row, group in enumerate(snapshot.pod_group):
            node = started.get(row, int(snapshot.pod_node[row]))
            if group < 0 or node < 0 or snapshot.nodes[node].gpu_model not in named:
                continue
            if row in started or within(int(snapshot.pod_status[row]), COUNTED):
                queues = path_to(snapshot.queues, snapshot.groups[group].queue_row)
                used[queues, named.index(snapshot.nodes[node].gpu_model)] += self._counts[row]
        return used

    def _compared(self, evict: Evict, victim: int, aggressor: int) -> Iterator[str]:
        """Yield the usage of the two compared queues: those where the paths from the root diverge."""
        loses, gains = (path_to(self._cycle.snapshot.queues, row) for row in (victim, aggressor))
        # Queues are compared as siblings: a leaf deep in one tree has no fair share beside one of another tree.
        depth = _parting(loses, gains)
        if depth < 0:
            return
        used, share = self._held(evict, "victim", loses[depth]), self._cycle.report.fair_share[loses[depth]]
        quota = self._cycle.snapshot.queues[loses[depth]].quota
        bounds = (quota.cpu, quota.memory, quota.gpu)
        # GPUs first: where several resources are above the share, the one that jobs are sized by explains most.
        above = [at for at in (GPU, CPU, MEMORY) if used[at] > share[at]]
        # Up to its quota a queue reclaims from one above its own quota, whatever the fair shares are.
        lent = [] if above else [at for at in (GPU, CPU, MEMORY) if 0 <= bounds[at] < used[at]]
        at = next(iter(above or lent), GPU)
        for side, queue, leaf in (("victim", loses[depth], victim), ("aggressor", gains[depth], aggressor)):
            yield self._shares_of(queue, leaf, at, self._held(evict, side, queue)[at], with_quota=bool(lent))

    def _rule(self, evict: Evict) -> str:
        """Return what allowed an eviction, in a few words."""
        by_model = evict.cause == Cause.RECLAIM and evict.aggressor >= 0 and any(self._of_model(evict))
        return BY_MODEL if by_model else evict.rule

    def _of_model(self, evict: Evict) -> Iterator[str]:
        """Yield what the two queues used and are owed of the model of the GPUs, where the taker was owed more."""
        snapshot, report, node = self._cycle.snapshot, self._cycle.report, int(self._cycle.origins[evict.pod])
        named = named_models(snapshot)
        victim, aggressor = (
            snapshot.groups[row].queue_row for row in (int(snapshot.pod_group[evict.pod]), evict.aggressor)
        )
        if report.models_deserved is None or node < 0 or snapshot.nodes[node].gpu_model not in named:
            return
        model, at = snapshot.nodes[node].gpu_model, named.index(snapshot.nodes[node].gpu_model)
        loses, gains = (path_to(snapshot.queues, row) for row in (victim, aggressor))
        depth = _parting(loses, gains)
        used, owed = self._models_used[:, at], report.models_deserved[:, at]
        if depth >= 0 and used[gains[depth]] < owed[gains[depth]] and used[loses[depth]] > owed[loses[depth]]:
            for queue in (loses[depth], gains[depth]):
                amounts = plain(int(used[queue])), plain(int(owed[queue]))
                yield f"{snapshot.queues[queue].name} used {amounts[0]} of {model}, and is owed {amounts[1]}"

    def _held(self, evict: Evict, side: str, queue: int) -> Sequence[float]:
        """Return the usage of a queue when the eviction was decided, if on record, else before all evictions."""
        facts = evict.facts.get(side)
        # A statement records the queues that it compared. Where those differ from the pair here, as with a plugin of
        # another author, its figures would be of other queues.
        if isinstance(facts, Mapping) and facts.get("name") == self._cycle.snapshot.queues[queue].name:
            return tuple(facts["used"])
        return tuple(self._used[queue].tolist())

    def _shares_of(self, queue: int, leaf: int, at: int, used: float, *, with_quota: bool) -> str:
        facts, share = self._cycle.snapshot.queues[queue], round(self._cycle.report.fair_share[queue, at])
        inner = f" (with {self._cycle.snapshot.queues[leaf].name})" if leaf != queue else ""
        bound = round(facts.quota.of(at))
        fair, quota = (plain(each) if at == GPU else quantity(each, LEADING[at]) for each in (share, bound))
        quota_text = f", quota {quota if bound >= 0 else 'unlimited'}" if with_quota else ""
        return f"{facts.name}{inner} used {quantity(round(used), LEADING[at])}{quota_text}, fair share {fair}"


def _parting(loses: Sequence[int], gains: Sequence[int]) -> int:
    """Return the depth at which two paths part, or of the last queues compared; -1 if one is empty."""
    return next(
        (at for at, (one, other) in enumerate(zip(loses, gains, strict=False)) if one != other),
        min(len(loses), len(gains)) - 1,
    )


def _second_look(evict: Evict) -> Iterator[str]:
    """Yield the result of the second search for fewer victims, if there was one."""
    smaller, spared = evict.facts.get("smaller"), evict.facts.get("spared")
    if isinstance(smaller, int) and smaller:
        yield (
            "1 smaller set was tried; it is not enough"
            if smaller == 1
            else (f"{smaller} smaller sets were tried; none is enough")
        )
    if isinstance(spared, int) and spared:
        yield f"{quantity(spared, 'pods')} that {'was' if spared == 1 else 'were'} to go at first may stay"


__all__ = ["Eviction", "Evictions"]
