"""Trials of a change: the cycle is decided again with it, with the same configuration and the same time.

The core is a pure function, so a trial gives exactly what would have happened; nothing is estimated.

Each decision reports the progress of the search for changes that help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import numpy as np

from kai.answers.offline.cluster_reaction import Disruptions
from kai.answers.offline.run import Cycle, Searches, decide, settle_again
from kai.answers.outcomes.overview import declared_in
from kai.answers.why.changes import Change, Site
from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.basics.errors import InputError
from kai.deciding.explain.codes import Stage, stage_of
from kai.deciding.explain.words import GroupReasons
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status, within
from kai.framework.decisions import Evict
from kai.framework.verdict import Reason
from kai.intake import Intake, IntakeSettings

if TYPE_CHECKING:
    from kai.deciding.engine.cycle import Profile
    from kai.facts.model.groups import PodGroup

TRYING: Final = "trying changes"
OnProgress: TypeAlias = Callable[[str, int, int, str], None]
"""A progress callback: the activity, the steps done, the most steps there may be, and a detail."""


def ignore_progress(what: str, done: int, total: int, detail: str, /) -> None:
    """Report nothing: for answers that a service computes before a request comes."""


@attrs.define
class Effort:
    """Counts the trials for groups of jobs that are explained one after the other, and reports progress.

    Holds: the reported steps never exceed the total, and equal it once the last group is explained.
    """

    on_progress: OnProgress = ignore_progress
    _groups: int = 0
    _each: int = 0
    """Most trials for one group; 0: nothing is tried and nothing is reported."""
    _ended: int = 0
    """Number of explained groups."""
    _tried: int = 0
    """Trials so far for the current group."""

    def begin(self, groups: int, each: int) -> None:
        """Start on ``groups`` groups, with at most ``each`` trials for one of them."""
        self._groups, self._each, self._ended, self._tried = groups, each, 0, 0
        self._say()

    def count(self) -> None:
        """Count one trial and report it."""
        self._tried += 1
        self._say()

    def end_group(self) -> None:
        """Finish the current group, which rarely used all its trials, and report it."""
        self._ended, self._tried = self._ended + 1, 0
        self._say()

    def _say(self) -> None:
        total = self._groups * self._each
        if not total:
            return
        if self._ended == self._groups:
            self.on_progress(TRYING, total, total, "")
            return
        # The last step of a group is kept for its end, so that no group looks done before it is.
        done = self._ended * self._each + min(self._tried, self._each - 1)
        detail = f"{self._tried} tried, {self._each} at most"
        if self._groups > 1:
            detail = f"job {self._ended + 1} of {self._groups}, {detail}"
        self.on_progress(TRYING, done, total, detail)


GroupKey = tuple[str, str]
"""Namespace and name."""

_BOUNDS = (Stage.LIMIT, Stage.QUOTA)
_key: Callable[[PodGroup], GroupKey] = attrgetter("namespace", "name")


class Result(StrEnum):
    """The effect of a change."""

    STARTS = "starts"
    HELD = "held"
    KEPT = "kept"
    """No pod starts, but pods stay that the unchanged cycle evicts."""
    WAITS = "waits"
    """The group waits for another reason, which the former one had hidden."""
    NOTHING = "nothing"

    @property
    def score(self) -> int:
        """The higher, the better; 0 for no help at all."""
        return {"starts": 4, "held": 3, "kept": 2, "waits": 1, "nothing": 0}[self.value]


@attrs.frozen(kw_only=True)
class TrialLoss:
    """Another group that has fewer places with the change than without it."""

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
    """A change and its effect on the group and on others."""

    change: Change
    result: Result
    started: int = 0
    """Pods of the group that start, are promised a place, or stay."""
    waiting: int = 0
    """Pods of the group that would still wait."""
    placement: tuple[tuple[str, str], ...] = ()
    """The started pods with their nodes."""
    reason: Reason[str] | None = None
    """The reason for which the group then waits."""
    losses: tuple[TrialLoss, ...] = ()
    before: ClusterObjects | None = attrs.field(default=None, repr=False, eq=False)
    """The objects without the change."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the started pods."""
        return tuple(sorted({node for _, node in self.placement}))


@attrs.frozen
class Alone:
    """The result for a group if no other group has a pod."""

    reason: Reason[str] | None = None
    """Why it still waits; None if more of it starts."""


class ChangeTrials:
    """Decides the cycle again, within an allowance."""

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
        """Compare with the cycle ``before``; decide at most ``most`` times.

        ``searches``: a bound on the search for victims in each trial; None: no bound. ``intake``: the intake that took
        the snapshot of that cycle, so that only changed objects are read again; None: everything is read again.
        ``effort`` counts the trials.
        """
        self._effort = effort or Effort()
        self._searches = searches
        self._profile = profile
        self._settings = settings
        self._intake = intake or Intake(settings)
        self._apart = Intake(settings)
        """A separate intake for clusters without most pods, so that the records of the main intake stay valid."""
        self._before = before
        self._had = _places(before)
        self._evicted = _evicted(before)
        self._left = most
        self._allowed = 0
        self.refused = False
        """Whether a change was not tried because the allowance was used up."""

    def expect(self, groups: int) -> None:
        """Prepare for trials for ``groups`` groups."""
        settle_again(self._before, self._profile, groups)

    def allow(self, most: int) -> None:
        """Start on another group, with at most ``most`` trials for it."""
        self._allowed = min(most, self._left)
        self.refused = False

    def run(self, site: Site, change: Change) -> ChangeTrial | None:
        """Return the effect of ``change``; None if the allowance is used up."""
        if self._allowed == 0:
            self.refused = True
            return None
        self._allowed -= 1
        self._left -= 1
        try:
            cycle = self._decided(change.objects, self._intake)
        # A changed object may break a rule that intake enforces. Then the change helps nothing,
        # and must not end the answer for other groups.
        except InputError:
            return ChangeTrial(change=change, result=Result.NOTHING)
        found = self._judged(site, change, cycle)
        # A start is proof. A search that was cut short proves no failure: an untried eviction may have helped.
        self.refused |= cycle.was_cut_short and found.result is not Result.STARTS
        return found

    def alone(self, site: Site) -> Alone | None:
        """Return the result for a group if no other group has a pod; None if the allowance is used up."""
        if self._allowed == 0:
            return None
        self._allowed -= 1
        self._left -= 1
        objects = _without_others(site)
        try:
            # Most pods are missing from these objects. The main intake would
            # forget their records and read them all again.
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
        return Alone(GroupReasons(cycle.snapshot, self._profile, cycle.report, declared).dominant(group))

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
            # Pods of the group that ran before have a place as well, and no change gave it to them.
            started = held or [row for row in here if row in bound]
            if not started:
                return attrs.evolve(found, result=Result.KEPT, started=len(here) - site.placed)
            placement = tuple((cycle.snapshot.pods[row].key, cycle.aftermath.node(row)) for row in started)
            result = Result.HELD if held else Result.STARTS
            return attrs.evolve(found, result=result, started=len(started), placement=placement)
        if not found.waiting:
            return found
        declared = declared_in(change.objects, self._settings)
        reason = GroupReasons(cycle.snapshot, self._profile, cycle.report, declared).dominant(group)
        if not comes_later(reason, site.reasons[0]):
            return found
        return attrs.evolve(found, result=Result.WAITS, reason=reason)

    def _losses(self, cycle: Cycle, mine: GroupKey) -> Iterator[TrialLoss]:
        """Yield the groups that are worse off than without the change, the greatest loss first."""
        has, evicted = _places(cycle), _evicted(cycle)
        losses = [
            TrialLoss(
                name=key[1],
                namespace=key[0],
                pods=had - has.get(key, 0),
                evicted=max(0, evicted.get(key, 0) - self._evicted.get(key, 0)),
            )
            for key, had in self._had.items()
            if key != mine and has.get(key, 0) < had
        ]
        yield from sorted(losses, key=lambda each: (-each.pods, each.name))


def comes_later(reason: Reason[str], former: Reason[str]) -> bool:
    """Return whether a reason is of a later stage than ``former``, so that it shows only once ``former`` is gone."""
    rank, before = (_rank(stage_of(each.code)) for each in (reason, former))
    # A group passes the bounds of its queue and of each ancestor in turn: the refusal of another queue is progress.
    if rank == before and rank in _BOUNDS:
        return reason.facts.get("queue") != former.facts.get("queue")
    return rank > before


def _rank(stage: Stage) -> Stage:
    """Return the rank of a stage; all stages about lack of room share one rank."""
    return min(stage, Stage.ROOM)


def _without_others(site: Site) -> ClusterObjects:
    """Return the cluster without the pods of other groups and without their bind requests."""
    snapshot = site.cycle.snapshot
    # Pods without a group stay: kai evicts members of groups only, so no decision frees their room.
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
    """Return the number of pods of each group that have a place or are promised one."""
    placed = [within(status, ACTIVE_ALLOCATED) for status in range(int(max(Status)) + 1)]
    here = np.array(placed)[cycle.report.status] & (cycle.snapshot.pod_group >= 0)
    counts = np.bincount(cycle.snapshot.pod_group[here], minlength=len(cycle.snapshot.groups))
    keys = map(_key, cycle.snapshot.groups)
    return {key: count for key, count in zip(keys, counts.tolist(), strict=True) if count}


def _evicted(cycle: Cycle) -> Mapping[GroupKey, int]:
    out: dict[GroupKey, int] = {}
    for decision in cycle.decisions:
        # A moved pod has a place promised in the same statement, so its group loses nothing.
        if isinstance(decision, Evict) and decision.moved_to < 0:
            facts = cycle.snapshot.groups[int(cycle.snapshot.pod_group[decision.pod])]
            out[facts.namespace, facts.name] = out.get((facts.namespace, facts.name), 0) + 1
    return out
