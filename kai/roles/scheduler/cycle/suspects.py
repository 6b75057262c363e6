"""Finds the object that makes cycles fail, so that the others are scheduled without it: a state machine without I/O.

A failed cycle usually names the group that it was working on. That group is set aside, and the cycle is repeated at
once. If the failure names no group, or the cycle fails again, more and more objects are left out until a cycle
succeeds: first the objects that were just tried again, then all that changed since the last success, then all groups
that wait, at last everything in a namespace. Then the objects are let in again by bisection, and any that make a cycle
fail stay out. Each of these cycles is a full one, and binds what it can.

Holds: the same failures at the same objects lead to the same steps. The search ends after a fixed number of tries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.cluster_objects import FIELD_OF, ClusterObjects
from kai.api.kinds import BY_CLASS, ApiObject, key_of
from kai.basics.deadlines import doubling_pause
from kai.intake.aside import FIELD_OF_KIND, Suspect, suspect_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_MOST_TRIES: Final = 400
_MOST_NAMED: Final = 64
_REST: Final = 300.0
"""Seconds after which an object is tried again although it did not change."""
_FIRST_REST: Final = 5.0
"""Seconds in which a change of the object is ignored; doubled each time that it fails again."""
_STAMPS: Final = frozenset({names.LAST_START, names.LAST_EVICTION, names.STALE_SINCE, names.PARTIAL_SINCE})


@attrs.frozen(kw_only=True)
class Blame:
    """How a cycle failed."""

    kind: str
    message: str
    # Not compared: two failures are the same whatever files they were dumped to, and only a new one is logged.
    dump: str = attrs.field(default="", eq=False)
    """The file with the input of the cycle; "" if there is none."""
    hook: tuple[str, str] | None = attrs.field(default=None, eq=False)
    """The plugin that failed, and its hook; None if no plugin failed."""


@attrs.frozen(kw_only=True)
class Record:
    """Why an object is set aside, and until when."""

    blame: Blame
    gone: bool
    portrait: object
    """The object's content when it was set aside."""
    rests_until: float
    due: float


@attrs.define
class Inquiry:
    """The objects that are set aside, and the search for the objects at fault."""

    records: dict[Suspect, Record] = attrs.field(factory=dict)
    fresh: list[Suspect] = attrs.field(factory=list)
    """Objects set aside since the caller last read this list, if the reason is new."""
    _objects: ClusterObjects = attrs.field(factory=ClusterObjects)
    _now: float = 0.0
    _sound: ClusterObjects = attrs.field(factory=ClusterObjects)
    """The objects of the last cycle that succeeded."""
    _trial: dict[Suspect, bool] = attrs.field(factory=dict)
    """Objects that the search leaves out now."""
    _blames: dict[Suspect, Blame] = attrs.field(factory=dict)
    _blame: Blame | None = None
    _probation: dict[Suspect, None] = attrs.field(factory=dict)
    """Objects that this cycle tries again."""
    _times: dict[Suspect, int] = attrs.field(factory=dict)
    """How often each object was set aside since it last took part in a successful cycle."""
    _known: dict[Suspect, Blame] = attrs.field(factory=dict)
    """The reason reported last for each object."""
    _is_narrowing: bool = False
    _chunks: list[tuple[Suspect, ...]] = attrs.field(factory=list)
    _tested: tuple[Suspect, ...] = ()
    """Objects let in again as a test."""
    _stage: int = 0
    _tries: int = 0
    _in_a_row: int = 0
    """Count of failed cycles since one succeeded that left out nothing but the objects set aside."""

    # --- A cycle ---------------------------------------------------------------------------------------------------

    def begin(self, objects: ClusterObjects, now: float) -> dict[Suspect, bool]:
        """Return the objects that a cycle on ``objects`` must leave out."""
        is_changed = objects is not self._objects
        self._objects, self._now = objects, now
        if self.records and not self._tries:
            self._release(is_changed=is_changed)
        found = {each: record.gone for each, record in self.records.items()}
        return found | {each: gone for each, gone in self._trial.items() if each not in self._tested}

    def ended(self) -> bool:
        """Record that the cycle succeeded; return whether another must follow at once."""
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
        """Record that the cycle failed while it worked on ``named``; return whether another must follow at once.

        If not, leaving objects out does not help against this failure.
        """
        self._blame = blame
        self._tries += 1
        self._in_a_row += 1
        # Searches that end and begin anew, without a whole success in between, must end as well.
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
        """Set aside objects that failed outside of a cycle, from the next cycle on."""
        fresh = [each for each in suspects if each not in self.records]
        # During a search they join it, and are set aside at its end with the others.
        self._blames.update(dict.fromkeys(fresh, blame))
        self._trial.update(dict.fromkeys(fresh, False))
        if not self._tries:
            self._accept()

    def failed_at(self, hook: tuple[str, str], named: Suspect | None) -> int:
        """Return the count of objects that are left out because of a plugin's hook, including ``named``."""
        blames = {each: record.blame for each, record in self.records.items()}
        blames |= {each: self._blames[each] for each in self._trial if each in self._blames}
        return len({each for each, blame in blames.items() if blame.hook == hook} | ({named} - {None}))

    def acquit(self, hook: tuple[str, str]) -> None:
        """Let in again the objects that are left out because of a hook that is itself at fault, and end the search."""
        for each, record in list(self.records.items()):
            if record.blame.hook == hook:
                del self.records[each]
                self._times.pop(each, None)
                self._known.pop(each, None)
        self._reset()

    def due(self) -> float | None:
        """Return when an unchanged object will be tried again; None if none is set aside."""
        return min((record.due for record in self.records.values()), default=None)

    @property
    def left_out(self) -> frozenset[Suspect]:
        """Objects that are set aside, or left out as a test."""
        return frozenset(self.records) | frozenset(self._trial)

    # --- Widening --------------------------------------------------------------------------------------------------

    def _leave_out(self, named: Suspect) -> bool:
        """Leave out the named object, or it and its pods; return whether this left out more than before."""
        record = self.records.pop(named, None)
        before = self._trial.get(named, None if record is None else record.gone)
        # First its waiting pods alone: placed ones keep their places and are charged. Only if the cycle fails at it
        # again does it stay out entirely, as if it were gone.
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
                # Sorted: a set of names iterates differently in each process, and the search has to be repeatable.
                self._trial.update(dict.fromkeys(sorted(fresh), False))
                return True
        return self._give_up()

    def _give_up(self) -> bool:
        self._reset()
        # Leaving out what changed so far did not help: from here on only later changes are suspected.
        self._sound, self._in_a_row = self._objects, 0
        return False

    # --- Narrowing -------------------------------------------------------------------------------------------------

    def _doubtful(self) -> list[tuple[Suspect, ...]]:
        """Return objects that may be left out without need; not the last one if a failure named it."""
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
        # The failure named another object, so the test says nothing about the objects that were let in: they are tested
        # again.
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
        """Set aside the objects that are left out now, and end the search."""
        portraits = _portraits(self._objects, frozenset(self._trial))
        for each, gone in self._trial.items():
            blame = self._blames.get(each) or self._blame
            # An object that is gone by now needs no record.
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
        """Let in objects that changed, rested long enough, or are gone."""
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
                # A change within the rest counts later: its owner may have mended it, and will not change it once more.
                self.records[each] = attrs.evolve(record, due=min(record.due, record.rests_until))


def _halves(suspects: tuple[Suspect, ...]) -> list[tuple[Suspect, ...]]:
    middle = (len(suspects) + 1) // 2
    return [each for each in (suspects[:middle], suspects[middle:]) if each]


# --- Who may be it -------------------------------------------------------------------------------------------------


def _groups_by_key(objects: ClusterObjects) -> dict[tuple[str, str], ApiObject]:
    return {key_of(each): each for each in objects.pod_groups}


def _changed(before: ClusterObjects, objects: ClusterObjects) -> set[Suspect]:
    """Return the groups that changed, in themselves or in their pods, and the changed pods without a group."""
    # Identity will do: the store replaces an object that changed. `before` keeps its objects alive, so no id is used
    # twice.
    known = set(map(id, before.pod_groups)) | set(map(id, before.pods))
    groups = _groups_by_key(objects)
    found = {Suspect.of(each) for each in objects.pod_groups if id(each) not in known}
    return found | {suspect_of_pod(pod, groups) for pod in objects.pods if id(pod) not in known}


def _waiting(objects: ClusterObjects) -> set[Suspect]:
    """Return the groups with pods without a node, and the pods without a group and a node."""
    groups = _groups_by_key(objects)
    return {suspect_of_pod(pod, groups) for pod in objects.pods if not pod.spec.node_name}


def _members(objects: ClusterObjects) -> set[Suspect]:
    """Return all groups, and all pods without a group."""
    groups = _groups_by_key(objects)
    return {Suspect.of(each) for each in objects.pod_groups} | {suspect_of_pod(pod, groups) for pod in objects.pods}


def _others(objects: ClusterObjects) -> set[Suspect]:
    """Return all other namespaced objects but bind requests: binds in flight must be counted."""
    kinds = [cls for cls in FIELD_OF if BY_CLASS[cls].namespaced]
    fields = [FIELD_OF[cls] for cls in kinds if BY_CLASS[cls].kind not in {"Pod", "PodGroup", "BindRequest"}]
    return {Suspect.of(each) for field in fields for each in getattr(objects, field)}


def _portraits(objects: ClusterObjects, suspects: frozenset[Suspect]) -> Mapping[Suspect, object]:
    """Return the content of the ``suspects`` that exist, with their pods, less what kai itself writes on them."""
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
