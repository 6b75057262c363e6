"""Trying a change: the cycle is decided again with it, by the same configuration, at the same moment.

The core is a pure function, so what comes out is what would have happened; nothing is estimated.

How far the search for changes that would help is, told with each decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import numpy as np

from kai.api.kinds import ClusterObjects, key_of
from kai.errors import InputError
from kai.explain.codes import Stage, stage_of
from kai.explain.phrases import Words
from kai.explain.words import Teller
from kai.framework.decisions import Evict
from kai.intake import Intake, IntakeSettings
from kai.model.pod import ACTIVE_ALLOCATED, Status, within
from kai.simulation.deciding.disruptions import Disruptions
from kai.simulation.deciding.run import Cycle, Searches, decide
from kai.simulation.explaining.changes import Change, Site
from kai.simulation.outcomes.overview import declared_in

if TYPE_CHECKING:
    from kai.engine.cycle import Profile
    from kai.model.groups import PodGroup

TRYING: Final = "trying changes"
Tell: TypeAlias = Callable[[str, int, int, str], None]
"""Takes what is being done, how much of it is done, how much there may be, and what else is to be said of it."""


def untold(what: str, done: int, total: int, detail: str, /) -> None:
    """Say nothing: for answers that a service has ready before they are asked for."""


@attrs.define
class Effort:
    """Counts decisions for groups of jobs that are explained one after the other.

    Holds: no more is told as done than there may be, and all of it once the last group is explained.
    """

    tell: Tell = untold
    _groups: int = 0
    _each: int = 0
    """Decisions that one of them may take; 0: nothing is tried, and nothing is told."""
    _ended: int = 0
    """Groups that are explained."""
    _tried: int = 0
    """Decisions for the group that is being explained."""

    def begin(self, groups: int, each: int) -> None:
        """Start on so many groups, with at most ``each`` decisions for one of them."""
        self._groups, self._each, self._ended, self._tried = groups, each, 0, 0
        self._say()

    def count(self) -> None:
        """Tell that once more is decided."""
        self._tried += 1
        self._say()

    def end_group(self) -> None:
        """Tell that a group is explained, with fewer decisions than it might have had, as a rule."""
        self._ended, self._tried = self._ended + 1, 0
        self._say()

    def _say(self) -> None:
        total = self._groups * self._each
        if not total:
            return
        if self._ended == self._groups:
            self.tell(TRYING, total, total, "")
            return
        done = self._ended * self._each + min(self._tried, self._each - 1)
        told = f"{self._tried} tried, {self._each} at most"
        if self._groups > 1:
            told = f"job {self._ended + 1} of {self._groups}, {told}"
        self.tell(TRYING, done, total, told)


GroupKey = tuple[str, str]
"""Namespace and name."""

_BOUNDS = (Stage.LIMIT, Stage.QUOTA)
_key: Callable[[PodGroup], GroupKey] = attrgetter("namespace", "name")


class Result(StrEnum):
    """What a change leads to."""

    STARTS = "starts"
    HELD = "held"
    KEPT = "kept"
    """No pod starts, but pods stay that are evicted without the change."""
    WAITS = "waits"
    """For another reason, which could not even be seen before."""
    NOTHING = "nothing"

    @property
    def score(self) -> int:
        """The better, the more; 0 for no help at all."""
        return {"starts": 4, "held": 3, "kept": 2, "waits": 1, "nothing": 0}[self.value]


@attrs.frozen(kw_only=True)
class Loss:
    """Another group that has fewer places than it would have without the change."""

    name: str
    namespace: str
    pods: int
    evicted: int

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@attrs.frozen(kw_only=True)
class ChangeTrial:
    """What happened with a change."""

    change: Change
    result: Result
    started: int = 0
    """Pods of the group that start, are promised a place, or stay."""
    waiting: int = 0
    """Pods of the group that would still wait."""
    placement: tuple[tuple[str, str], ...] = ()
    """Those pods, with their nodes."""
    reason: Words | None = None
    """What it waits for then."""
    losses: tuple[Loss, ...] = ()
    before: ClusterObjects | None = attrs.field(default=None, repr=False, eq=False)
    """The objects without the change."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where those pods are."""
        return tuple(sorted({node for _, node in self.placement}))


@attrs.frozen
class Alone:
    """What becomes of a group if no other has a pod."""

    reason: Words | None = None
    """Why it waits then; None if more of it starts."""


class ChangeTrials:
    """Decides again, as often as it is allowed to."""

    def __init__(
        self,
        profile: Profile,
        settings: IntakeSettings,
        before: Cycle,
        most: int,
        searches: Searches | None = None,
        intake: Intake | None = None,
        effort: Effort | None = None,
    ) -> None:
        """Compare with what happened in the cycle ``before``; decide at most ``most`` times.

        ``searches``: how far victims are searched for each time; None: to the end. ``intake``: what took the snapshot
        of that cycle, so that only what a change touches is read again; None: everything is read once more.
        ``effort`` counts the decisions.
        """
        self._effort = effort or Effort()
        self._searches = searches
        self._profile = profile
        self._settings = settings
        self._intake = intake or Intake(settings)
        self._apart = Intake(settings)
        """For clusters of which most pods are gone: the records of the other intake stay."""
        self._before = before
        self._had = _places(before)
        self._evicted = _evicted(before)
        self._left = most
        self._allowed = 0
        self.refused = False
        """Whether a change was not tried because the allowance was used up."""

    def allow(self, most: int) -> None:
        """Start on another group, with at most ``most`` decisions for it."""
        self._allowed = min(most, self._left)
        self.refused = False

    def run(self, site: Site, change: Change) -> ChangeTrial | None:
        """Return what happens with ``change``; None if no more may be decided."""
        if self._allowed == 0:
            self.refused = True
            return None
        self._allowed -= 1
        self._left -= 1
        try:
            cycle = self._decided(change.objects, self._intake)
        except InputError:
            return ChangeTrial(change=change, result=Result.NOTHING)
        found = self._judged(site, change, cycle)
        # What helps is proved. What does not may have helped with an eviction that was not tried.
        self.refused |= cycle.was_cut_short and found.result is not Result.STARTS
        return found

    def alone(self, site: Site) -> Alone | None:
        """Return what becomes of a group if no other has a pod; None if no more may be decided."""
        if self._allowed == 0:
            return None
        self._allowed -= 1
        self._left -= 1
        objects = _without_others(site)
        try:
            cycle = self._decided(objects, self._apart)
        except InputError:
            return None
        key = key_of(site.source)
        group = _row_of(key, cycle)
        if group < 0:
            return None
        if _places(cycle).get(key, 0) > site.placed:
            return Alone()
        declared = declared_in(objects, self._settings)
        return Alone(Teller(cycle.snapshot, self._profile, cycle.report, declared).tell(group))

    def _decided(self, objects: ClusterObjects, intake: Intake) -> Cycle:
        self._effort.count()
        before = self._before.snapshot
        snapshot = intake.take(objects, before.now, before.past, revision=self._before.number)
        disruptions = Disruptions.of(objects, is_first=self._before.number == 1)
        return decide(snapshot, self._profile, self._before.number, searches=self._searches, disruptions=disruptions)

    def _judged(self, site: Site, change: Change, cycle: Cycle) -> ChangeTrial:
        key = key_of(site.source)
        group = _row_of(key, cycle)
        if group < 0:
            return ChangeTrial(change=change, result=Result.NOTHING)
        pods = np.flatnonzero(cycle.snapshot.pod_group == group).tolist()
        status = {row: int(cycle.report.status[row]) for row in pods}
        here = [row for row in pods if within(status[row], ACTIVE_ALLOCATED)]
        held = [row for row in here if status[row] == Status.PIPELINED]
        found = ChangeTrial(
            change=change,
            result=Result.NOTHING,
            before=site.objects,
            waiting=sum(each in (Status.PENDING, Status.GATED) for each in status.values()),
            losses=tuple(self._losses(cycle, key)),
        )
        bound = {bind.pod for bind in cycle.aftermath.binds.values()}
        if len(here) > site.placed:
            started = held or [row for row in here if row in bound]
            if not started:
                return attrs.evolve(found, result=Result.KEPT, started=len(here) - site.placed)
            placement = tuple((cycle.snapshot.pods[row].key, cycle.aftermath.node(row)) for row in started)
            result = Result.HELD if held else Result.STARTS
            return attrs.evolve(found, result=result, started=len(started), placement=placement)
        if not found.waiting:
            return found
        declared = declared_in(change.objects, self._settings)
        reason = Teller(cycle.snapshot, self._profile, cycle.report, declared).tell(group)
        if not comes_later(reason, site.reasons[0]):
            return found
        return attrs.evolve(found, result=Result.WAITS, reason=reason)

    def _losses(self, cycle: Cycle, mine: GroupKey) -> Iterator[Loss]:
        """Yield the groups that are worse off than without the change; the group that loses most comes first."""
        has, evicted = _places(cycle), _evicted(cycle)
        losses = [
            Loss(
                name=key[1],
                namespace=key[0],
                pods=had - has.get(key, 0),
                evicted=max(0, evicted.get(key, 0) - self._evicted.get(key, 0)),
            )
            for key, had in self._had.items()
            if key != mine and has.get(key, 0) < had
        ]
        yield from sorted(losses, key=lambda each: (-each.pods, each.name))


def comes_later(reason: Words, former: Words) -> bool:
    """Return whether a reason could only show itself because the former one is gone."""
    rank, before = (_rank(stage_of(each.code)) for each in (reason, former))
    if rank == before and rank in _BOUNDS:
        return reason.facts.get("queue") != former.facts.get("queue")
    return rank > before


def _rank(stage: Stage) -> Stage:
    """Return a stage; every one that says there is no room, or that none may be made, is one and the same."""
    return min(stage, Stage.ROOM)


def _without_others(site: Site) -> ClusterObjects:
    """Return the cluster without the pods of other groups, and without what is asked of the binder for them."""
    snapshot = site.cycle.snapshot
    others = np.flatnonzero((snapshot.pod_group >= 0) & (snapshot.pod_group != site.group)).tolist()
    gone = {(snapshot.pods[row].namespace, snapshot.pods[row].name) for row in others}
    pods = tuple(pod for pod in site.objects.pods if key_of(pod) not in gone)
    requests = tuple(
        each for each in site.objects.bind_requests if (each.metadata.namespace, each.spec.pod_name) not in gone
    )
    return attrs.evolve(site.objects, pods=pods, bind_requests=requests)


def _row_of(key: GroupKey, cycle: Cycle) -> int:
    return next((row for row, each in enumerate(map(_key, cycle.snapshot.groups)) if each == key), -1)


def _places(cycle: Cycle) -> Mapping[GroupKey, int]:
    """Return how many pods of each group have a place, or are promised one."""
    placed = [within(status, ACTIVE_ALLOCATED) for status in range(int(max(Status)) + 1)]
    here = np.array(placed)[cycle.report.status] & (cycle.snapshot.pod_group >= 0)
    counts = np.bincount(cycle.snapshot.pod_group[here], minlength=len(cycle.snapshot.groups))
    keys = map(_key, cycle.snapshot.groups)
    return {key: count for key, count in zip(keys, counts.tolist(), strict=True) if count}


def _evicted(cycle: Cycle) -> Mapping[GroupKey, int]:
    out: dict[GroupKey, int] = {}
    for decision in cycle.decisions:
        if isinstance(decision, Evict) and decision.moved_to < 0:
            facts = cycle.snapshot.groups[int(cycle.snapshot.pod_group[decision.pod])]
            out[facts.namespace, facts.name] = out.get((facts.namespace, facts.name), 0) + 1
    return out
