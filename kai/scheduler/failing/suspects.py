"""Finding the object that makes cycles fail, so that the others are scheduled without it: a machine without I/O.

A cycle that fails usually says at which group it was at work. That group is set aside and the cycle is repeated at
once. Where the failure names nothing, or the cycle fails all the same, more and more is left out until a cycle comes to
its end: first what was tried again just now, then what changed since the last cycle that did, then every group that
waits, at last everything that belongs to a namespace. What was left out is then let in again by halves; what fails
then stays out. Every one of these cycles is a whole one, which binds what it can.

Holds: the same failures at the same objects lead to the same steps. After so many tries the search ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.kinds import BY_CLASS, FIELD_OF, ApiObject, ClusterObjects, key_of
from kai.basics.deadlines import doubling_pause
from kai.intake.aside import FIELD_OF_KIND, Suspect, suspect_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_MOST_TRIES: Final = 400
_MOST_NAMED: Final = 64
_REST: Final = 300.0
"""Seconds after which an object is tried again although nothing about it changed."""
_FIRST_REST: Final = 5.0
"""Seconds for which a change does not matter; twice as long each time that the object fails again."""
_STAMPS: Final = frozenset({names.LAST_START, names.LAST_EVICTION, names.STALE_SINCE, names.PARTIAL_SINCE})


@attrs.frozen(kw_only=True)
class Blame:
    """How a cycle failed."""

    kind: str
    message: str
    dump: str = attrs.field(default="", eq=False)
    """The file with what the cycle was given; "" if there is none."""
    hook: tuple[str, str] | None = attrs.field(default=None, eq=False)
    """The plugin that failed, and what it was asked; None if no plugin failed."""


@attrs.frozen(kw_only=True)
class Record:
    """Why something is set aside, and until when."""

    blame: Blame
    gone: bool
    portrait: object
    """How it looked."""
    rests_until: float
    due: float


@attrs.define
class Inquiry:
    """What is set aside, and the search for what should be."""

    records: dict[Suspect, Record] = attrs.field(factory=dict)
    fresh: list[Suspect] = attrs.field(factory=list)
    """Objects that were set aside since the caller last read this list, each for a reason that is new to it."""
    _objects: ClusterObjects = attrs.field(factory=ClusterObjects)
    _now: float = 0.0
    _sound: ClusterObjects = attrs.field(factory=ClusterObjects)
    """Of the last cycle that came to its end."""
    _trial: dict[Suspect, bool] = attrs.field(factory=dict)
    """What is left out for now."""
    _blames: dict[Suspect, Blame] = attrs.field(factory=dict)
    _blame: Blame | None = None
    _probation: dict[Suspect, None] = attrs.field(factory=dict)
    """What is tried again in this cycle."""
    _times: dict[Suspect, int] = attrs.field(factory=dict)
    """How often each was set aside without a cycle in between that it did not disturb."""
    _known: dict[Suspect, Blame] = attrs.field(factory=dict)
    """What was told, and why."""
    _is_narrowing: bool = False
    _chunks: list[tuple[Suspect, ...]] = attrs.field(factory=list)
    _tested: tuple[Suspect, ...] = ()
    """What is let in again, to see."""
    _stage: int = 0
    _tries: int = 0
    _in_a_row: int = 0
    """Cycles that failed since one came to its end that let in all there is but what is set aside."""

    # --- A cycle ---------------------------------------------------------------------------------------------------

    def begin(self, objects: ClusterObjects, now: float) -> dict[Suspect, bool]:
        """Return what a cycle on ``objects`` is to leave out."""
        is_changed = objects is not self._objects
        self._objects, self._now = objects, now
        if self.records and not self._tries:
            self._release(is_changed=is_changed)
        found = {each: record.gone for each, record in self.records.items()}
        return found | {each: gone for each, gone in self._trial.items() if each not in self._tested}

    def ended(self) -> bool:
        """Take that the cycle came to its end; return whether another is to follow at once."""
        if not self._tries:
            self._sound, self._in_a_row = self._objects, 0
            for each in self._probation:
                self._times.pop(each, None)
            self._probation.clear()
            return False
        if self._is_narrowing:
            for each in self._tested:
                del self._trial[each]
        else:
            self._is_narrowing = True
            self._chunks = self._doubtful()
        return self._go_on()

    def failed(self, blame: Blame, named: Suspect | None) -> bool:
        """Take that the cycle failed, at work on what is ``named``; return whether another is to follow at once.

        If not, it is nothing that leaving objects out helps against.
        """
        self._blame = blame
        self._tries += 1
        self._in_a_row += 1
        if self._in_a_row > 2 * _MOST_TRIES:
            return self._give_up()
        if self._tries > _MOST_TRIES:
            if self._is_narrowing:
                self._accept()
                return True
            return self._give_up()
        if self._is_narrowing:
            self._narrow(named)
            return True
        if named is not None and len(self._trial) < _MOST_NAMED and self._leave_out(named):
            return True
        return self._widen()

    def accuse(self, blame: Blame, suspects: Iterable[Suspect]) -> None:
        """Set aside what was found to fail outside of a cycle, from the next one on."""
        fresh = [each for each in suspects if each not in self.records]
        self._blames.update(dict.fromkeys(fresh, blame))
        self._trial.update(dict.fromkeys(fresh, False))
        if not self._tries:
            self._accept()

    def failed_at(self, hook: tuple[str, str], named: Suspect | None) -> int:
        """Return at how many objects a plugin's hook failed that are left out for it, counting what is ``named``."""
        blames = {each: record.blame for each, record in self.records.items()}
        blames |= {each: self._blames[each] for each in self._trial if each in self._blames}
        return len({each for each, blame in blames.items() if blame.hook == hook} | ({named} - {None}))

    def acquit(self, hook: tuple[str, str]) -> None:
        """Let in again what is left out for a hook that is at fault itself, and search no longer."""
        for each, record in list(self.records.items()):
            if record.blame.hook == hook:
                del self.records[each]
                self._times.pop(each, None)
                self._known.pop(each, None)
        self._reset()

    def due(self) -> float | None:
        """Return when something is to be tried again, if nothing changes; None if nothing is set aside."""
        return min((record.due for record in self.records.values()), default=None)

    @property
    def left_out(self) -> frozenset[Suspect]:
        """What is set aside, or on trial."""
        return frozenset(self.records) | frozenset(self._trial)

    # --- Widening --------------------------------------------------------------------------------------------------

    def _leave_out(self, named: Suspect) -> bool:
        """Leave out what a failure named, or more of it; return whether there was more to leave out."""
        record = self.records.pop(named, None)
        before = self._trial.get(named, None if record is None else record.gone)
        self._trial[named] = before is not None
        if self._blame is not None:
            self._blames[named] = self._blame
        return before is not True

    def _widen(self) -> bool:
        stages: Sequence[Callable[[], Iterable[Suspect]]] = (
            lambda: tuple(self._probation),
            lambda: _changed(self._sound, self._objects),
            lambda: _waiting(self._objects),
            lambda: _members(self._objects),
            lambda: _others(self._objects),
        )
        while self._stage < len(stages):
            fresh = [each for each in stages[self._stage]() if each not in self._trial and each not in self.records]
            self._stage += 1
            if fresh:
                self._trial.update(dict.fromkeys(sorted(fresh), False))
                return True
        return self._give_up()

    def _give_up(self) -> bool:
        self._reset()
        self._sound, self._in_a_row = self._objects, 0
        return False

    # --- Narrowing -------------------------------------------------------------------------------------------------

    def _doubtful(self) -> list[tuple[Suspect, ...]]:
        """Return what may have been left out in vain: not what was left out last, if it was named."""
        order = tuple(self._trial)
        if self._stage == 0:
            return [order[:-1]] if len(order) > 1 else []
        return _halves(order) if len(order) > 1 else []

    def _narrow(self, named: Suspect | None) -> None:
        tested = self._tested
        if named is not None and named in tested:
            self._confirm(named)
            rest = tuple(each for each in tested if each != named)
            self._chunks += [rest] if rest else []
        elif named is not None and named not in self._trial and named not in self.records:
            self._leave_out(named)
            self._chunks += [tested] if tested else []
        elif len(tested) == 1:
            self._confirm(tested[0])
        else:
            self._chunks += _halves(tested)
        self._tested = ()
        self._go_on()

    def _confirm(self, culprit: Suspect) -> None:
        if self._blame is not None:
            self._blames[culprit] = self._blame

    def _go_on(self) -> bool:
        if self._chunks:
            self._tested = self._chunks.pop()
            return True
        self._accept()
        return False

    def _accept(self) -> None:
        """Set aside what is left out now."""
        portraits = _portraits(self._objects, frozenset(self._trial))
        for each, gone in self._trial.items():
            blame = self._blames.get(each) or self._blame
            if blame is None or each not in portraits:
                continue
            times = self._times[each] = self._times.get(each, 0) + 1
            rest = doubling_pause(times, _FIRST_REST, _REST)
            self.records[each] = Record(
                blame=blame,
                gone=gone,
                portrait=portraits[each],
                rests_until=self._now + rest,
                due=self._now + _REST,
            )
            if self._known.get(each) != blame:
                self._known[each] = blame
                self.fresh.append(each)
        self._reset()
        self._sound = self._objects

    def _reset(self) -> None:
        self._trial, self._blames, self._probation = {}, {}, {}
        self._chunks, self._tested = [], ()
        self._is_narrowing, self._stage, self._tries = False, 0, 0

    # --- Trying again ----------------------------------------------------------------------------------------------

    def _release(self, *, is_changed: bool) -> None:
        """Let in what changed, what rested for long, and what is gone."""
        portraits = _portraits(self._objects, frozenset(self.records)) if is_changed else None
        for each, record in list(self.records.items()):
            looks = record.portrait if portraits is None else portraits.get(each)
            if looks is None:
                del self.records[each]
                self._times.pop(each, None)
                self._known.pop(each, None)
            elif record.due <= self._now or (looks != record.portrait and record.rests_until <= self._now):
                del self.records[each]
                self._probation[each] = None
            elif looks != record.portrait:
                self.records[each] = attrs.evolve(record, due=min(record.due, record.rests_until))


def _halves(suspects: tuple[Suspect, ...]) -> list[tuple[Suspect, ...]]:
    middle = (len(suspects) + 1) // 2
    return [each for each in (suspects[:middle], suspects[middle:]) if each]


# --- Who may be it -------------------------------------------------------------------------------------------------


def _groups_by_key(objects: ClusterObjects) -> dict[tuple[str, str], ApiObject]:
    return {key_of(each): each for each in objects.pod_groups}


def _changed(before: ClusterObjects, objects: ClusterObjects) -> set[Suspect]:
    """Return the groups that changed, themselves or their pods, and pods without a group that did."""
    known = set(map(id, before.pod_groups)) | set(map(id, before.pods))
    groups = _groups_by_key(objects)
    found = {Suspect.of(each) for each in objects.pod_groups if id(each) not in known}
    return found | {suspect_of_pod(pod, groups) for pod in objects.pods if id(pod) not in known}


def _waiting(objects: ClusterObjects) -> set[Suspect]:
    """Return the groups with pods that have no node, and pods without a group that have none."""
    groups = _groups_by_key(objects)
    return {suspect_of_pod(pod, groups) for pod in objects.pods if not pod.spec.node_name}


def _members(objects: ClusterObjects) -> set[Suspect]:
    """Return all groups, and all pods without one."""
    groups = _groups_by_key(objects)
    return {Suspect.of(each) for each in objects.pod_groups} | {suspect_of_pod(pod, groups) for pod in objects.pods}


def _others(objects: ClusterObjects) -> set[Suspect]:
    """Return what else belongs to a namespace. Bind requests stay: what is on its way must be counted."""
    kinds = [cls for cls in FIELD_OF if BY_CLASS[cls].namespaced]
    fields = [FIELD_OF[cls] for cls in kinds if BY_CLASS[cls].kind not in {"Pod", "PodGroup", "BindRequest"}]
    return {Suspect.of(each) for field in fields for each in getattr(objects, field)}


def _portraits(objects: ClusterObjects, suspects: frozenset[Suspect]) -> Mapping[Suspect, object]:
    """Return how suspects look that exist: what they say, and their pods, but not what kai writes onto them."""
    groups = _groups_by_key(objects)
    members: dict[Suspect, list[object]] = {}
    for pod in objects.pods:
        for suspect in (suspect_of_pod(pod, groups), Suspect.of(pod)):
            if suspect in suspects:
                members.setdefault(suspect, []).append((_looks(pod), pod.spec, pod.metadata.deletion_timestamp))
                break
    found: dict[Suspect, object] = {}
    for kind in {each.kind for each in suspects}:
        for source in getattr(objects, FIELD_OF_KIND[kind]):
            suspect = Suspect.of(source)
            if suspect in suspects:
                found[suspect] = (_looks(source), getattr(source, "spec", None), members.get(suspect, []))
    return found


def _looks(source: ApiObject) -> object:
    metadata = source.metadata
    said = {key: value for key, value in metadata.annotations.items() if key not in _STAMPS}
    return (metadata.uid, dict(metadata.labels), said)
