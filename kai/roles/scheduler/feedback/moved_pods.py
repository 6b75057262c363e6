"""Moved pods, and the places reserved for their successors: nothing else is bound there until these come.

A search that moves a pod evicts it, and counts on a place for it on another node. Its owner creates the successor at
once, or only when the old pod is gone. Until then the place looks idle, and in a full cluster another group would get
it at once. The moved group would have lost a pod, and would take one back from the group that gained by the move. So a
stand-in occupies the place: the evicted pod, as if it ran on the node that was reserved for it.

    evicted ─ stand-in ─┬─ its successor came, and all that it starts with ─ served before others ─ has a place
                        ├─ the eviction failed
                        └─ no successor in time

A successor is a later pod of the same group or of the same controller; each pod of a Deployment has a group of its own.
A pod without a controller whose group belongs to the pod itself gets no successor, so its place is not kept.

Until a gang has as many pods as it needs to start, its stand-ins count as members, and its early successors are hidden.
As additional members they would get further places, and take them from the group that gained by the move.

Groups, not pods, are served first, and a group may have pods that waited before. One of these may get the place of a
successor; the successor then waits its turn. Served first once more, it would take the place that another group was
promised, and that group would take one back.

A stand-in exists only in the input of a cycle. Its group loses no pods in the meantime, and a statement about a
stand-in is rejected. While the old pod terminates, it holds the old place and the stand-in holds the new one, as in the
cycle that moved it; only the stand-in counts for the queue. After a restart no place is kept. The service and runs in
virtual time both use this state machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import msgspec

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.binding import grant_of
from kai.api.conventions.gpu_sharing import group_labels
from kai.api.kinds import key_of
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import least_members
from kai.facts.model.pod import STAND_IN
from kai.framework.decisions import Decision, Evict, Nominate
from kai.intake.bind_requests import has_failed

if TYPE_CHECKING:
    from kai.api.kubernetes.meta import ObjectMeta
    from kai.facts.state.snapshot import Snapshot

_PATIENCE: Final = 30.0
"""How long a place is kept once the old pod is gone: some owners create the successor only then.

Units: seconds.
"""
_LONGEST: Final = 120.0
"""How long a place is kept at most, however long the old pod takes to terminate.

Units: seconds.
"""

Group: TypeAlias = tuple[str, str]
"""Namespace and name."""


@attrs.frozen
class _Place:
    """A reserved place."""

    uid: str
    """UID of the evicted pod."""
    controller: str
    """Identity of its controller; "" for none."""
    stand_in: Pod


@attrs.frozen(kw_only=True)
class _Move:
    """Pods of one group that one statement moved.

    Units: seconds.
    """

    group: Group
    places: tuple[_Place, ...]
    until: float
    known: frozenset[str] | None = None
    """UIDs of the pods that the group and the controllers had at the move; None before the first look."""
    is_gone: bool = False
    """Whether all evicted pods are gone."""

    def awaits(self, pod: Pod, group: Group) -> bool:
        """Return whether a new pod may be the successor of one of these."""
        if group == self.group:
            return True
        controller = controller_of(pod.metadata)
        return bool(controller) and any(each.controller == controller for each in self.places)


@attrs.frozen
class _Successor:
    """A pod that replaces a moved one."""

    key: str
    """Key of its group."""
    until: float
    waits: bool = True
    is_replaced: bool = False
    """Whether another waiting pod of its group got the place."""


@attrs.define
class MovedPods:
    """The reserved places of moved pods, and the successors that wait for theirs.

    Units: seconds of a monotonic clock.
    """

    _objects: ClusterObjects | None = None
    """The objects at the last look, which the next cycle decides on."""
    _moves: tuple[_Move, ...] = ()
    _came: Mapping[str, _Successor] = attrs.field(factory=dict)
    """Successors by UID."""
    _early: frozenset[str] = frozenset()
    """UIDs of successors whose gang is not complete: until then the stand-ins take their places."""
    _beside: Mapping[str, str] = attrs.field(factory=dict)
    """Waiting pods beside successors in the same groups at the last look: keys of groups by UID."""

    # --- What happens --------------------------------------------------------------------------------------------

    def note(
        self,
        snapshot: Snapshot,
        decisions: Iterable[Decision],
        pods: Iterable[Pod | None],
        device: Callable[[str], str],
        now: float,
    ) -> None:
        """Remember the pods that a statement moves; ``device`` returns the final name of a device.

        ``pods``: the pod of each decision, None for one that is gone.
        """
        decisions = tuple(decisions)
        promised = {each.pod: each.devices for each in decisions if isinstance(each, Nominate)}
        found: dict[int, list[_Place]] = {}
        for decision, pod in zip(decisions, pods, strict=True):
            if not isinstance(decision, Evict) or decision.moved_to < 0 or pod is None:
                continue
            group, controller = int(snapshot.pod_group[decision.pod]), controller_of(pod.metadata)
            if group < 0 or pod.metadata.deletion_timestamp is not None or self._goes_with(pod):
                continue
            devices = tuple(sorted(device(name) for name in promised.get(decision.pod, ())))
            shown = stand_in(pod, snapshot.nodes[decision.moved_to].name, devices)
            if shown is not None:
                found.setdefault(group, []).append(_Place(_identity(pod.metadata), controller, shown))
        self._moves += tuple(
            _Move(
                group=(snapshot.groups[group].namespace, snapshot.groups[group].name),
                places=tuple(places),
                until=now + _LONGEST,
            )
            for group, places in found.items()
        )

    def forget(self, uid: str) -> None:
        """Forget the move of a pod that was not evicted after all."""
        if self._moves:
            kept = (attrs.evolve(m, places=tuple(each for each in m.places if each.uid != uid)) for m in self._moves)
            self._moves = tuple(move for move in kept if move.places)

    def clear(self) -> None:
        """Forget everything."""
        self._objects, self._moves, self._came, self._beside, self._early = None, (), {}, {}, frozenset()

    def look(self, objects: ClusterObjects, now: float) -> None:
        """Find the successors in ``objects``, which the next cycle decides on.

        Cost: nothing if nothing was moved recently, else O(pods + groups).
        """
        before, self._objects, self._early = self._objects or objects, objects, frozenset()
        if not self._moves and not self._came:
            return
        # The pods of the cycle that moved them, not the present ones: a successor may have come between the decision
        # and this look.
        if any(move.known is None for move in self._moves):
            had = _relatives(before.pods, self._moves, self._came)
            self._moves = tuple(_knowing(move, had) for move in self._moves)
        have = _relatives(objects.pods, self._moves, self._came)
        staying = {uid: pod for uid, pod in have.items() if _stays(pod)}
        ordered = _ordered(objects)
        waiting = {uid for uid, pod in staying.items() if not pod.spec.node_name and uid not in ordered}
        whole = _whole(objects, staying.values())
        came = {uid: each for uid, each in self._came.items() if each.until > now}
        kept: list[_Move] = []
        for move in self._moves:
            left = _after(move, have.keys(), now)
            if left.until > now:
                successors = [
                    pod
                    for uid, pod in staying.items()
                    if uid not in came and uid not in (left.known or ()) and left.awaits(pod, group_of(pod))
                ]
                # One for each place: an owner that scales up at the same time makes pods that replace nothing.
                for pod in [pod for pod in successors if group_of(pod) in whole][: len(left.places)]:
                    left = attrs.evolve(left, places=_others(left.places, pod))
                    came[_identity(pod.metadata)] = _Successor("/".join(group_of(pod)), now + _PATIENCE)
                early = [_identity(pod.metadata) for pod in successors if group_of(pod) not in whole]
                self._early |= {uid for uid in early[: len(left.places)] if uid in waiting}
                if left.places:
                    kept.append(attrs.evolve(left, known=frozenset({*(left.known or ()), *came})))
        self._moves = tuple(kept)
        self._see(came, staying, waiting)

    # --- What a cycle is given -----------------------------------------------------------------------------------

    def shown(self, objects: ClusterObjects) -> ClusterObjects:
        """Return the objects with the stand-ins, and without early successors; the same value if there are none."""
        stand_ins, early = self._stand_ins(), self._early
        if not stand_ins:
            return objects
        pods = objects.pods if not early else [pod for pod in objects.pods if _identity(pod.metadata) not in early]
        return attrs.evolve(objects, pods=(*pods, *stand_ins))

    def early(self, objects: ClusterObjects) -> tuple[Pod, ...]:
        """Return the pods that `shown` leaves out, so that their users can be informed."""
        found = self._early
        return tuple(pod for pod in objects.pods if _identity(pod.metadata) in found) if found else ()

    def served_first(self, awaited: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys of groups to serve first: those in ``awaited``, then the groups of successors."""
        mine = dict.fromkeys(each.key for each in self._came.values() if each.waits)
        return (*awaited, *(key for key in mine if key not in awaited)) if mine else awaited

    def spared(self, protected: tuple[str, ...]) -> tuple[str, ...]:
        """Return the UIDs of pods whose groups must lose none: those in ``protected``, and the stand-ins."""
        stand_ins = self._stand_ins()
        return tuple(sorted({*protected, *(pod.metadata.uid for pod in stand_ins)})) if stand_ins else protected

    def next_due(self) -> float | None:
        """Return when the next place or the next priority of a successor expires; None if there is none."""
        places = (move.until for move in self._moves)
        return min((*places, *(each.until for each in self._came.values() if each.waits)), default=None)

    def _see(self, came: Mapping[str, _Successor], staying: Mapping[str, Pod], waiting: set[str]) -> None:
        """Update the successors that wait, and the pods beside them, which may have taken a successor's place."""
        got = Counter(key for uid, key in self._beside.items() if uid in staying and uid not in waiting)
        self._came = {uid: _served(each, got, waits=uid in waiting) for uid, each in came.items()}
        keys = {each.key for each in self._came.values() if each.waits}
        beside = {uid: "/".join(group_of(staying[uid])) for uid in waiting - came.keys()}
        self._beside = {uid: key for uid, key in beside.items() if key in keys}

    def _goes_with(self, pod: Pod) -> bool:
        """Return whether the group of a pod exists for this pod alone, so that no successor can join it."""
        if self._objects is None or controller_of(pod.metadata):
            return False
        uid, key = pod.metadata.uid, group_of(pod)
        groups = (each.metadata for each in self._objects.pod_groups)
        found = next((each for each in groups if (each.namespace, each.name) == key), None)
        return found is not None and any(owner.uid == uid for owner in found.owner_references)

    def _stand_ins(self) -> list[Pod]:
        return [place.stand_in for move in self._moves for place in move.places]


def is_stand_in(name: str) -> bool:
    """Return whether a pod in the input of a cycle is a stand-in for a moved one."""
    return name.endswith(STAND_IN)


def stand_in(pod: Pod, node: str, devices: tuple[str, ...]) -> Pod | None:
    """Return the stand-in of a moved pod: the pod as if it ran on ``node`` and shared ``devices``.

    None if its place is not kept: it has device claims, or its share of a GPU is unknown.
    """
    metadata, spec = pod.metadata, pod.spec
    if spec.resource_claims:
        return None
    annotations, labels = metadata.annotations, metadata.labels
    if devices:
        grant = grant_of(pod)
        if grant is None or not grant.is_whole:
            return None
        annotations = {**annotations, names.GRANTED: msgspec.structs.replace(grant, gpus=devices).text}
        ties = group_labels(labels)
        # The old labels name the device that the pod leaves.
        labels = {key: text for key, text in labels.items() if key not in ties}
    return attrs.evolve(
        pod,
        metadata=attrs.evolve(
            metadata,
            # A name and a UID of its own: the evicted pod is among the objects too while it terminates.
            name=metadata.name + STAND_IN,
            uid=_identity(metadata) + STAND_IN,
            annotations=annotations,
            labels=labels,
            # Not leaving: a pod that leaves holds a place that will be free.
            deletion_timestamp=None,
        ),
        spec=attrs.evolve(spec, node_name=node),
    )


def controller_of(metadata: ObjectMeta) -> str:
    """Return the identity of the controller of an object; "" for none."""
    for owner in metadata.owner_references:
        if owner.controller:
            return owner.uid or f"{metadata.namespace}/{owner.kind}/{owner.name}"
    return ""


def _identity(metadata: ObjectMeta) -> str:
    return metadata.uid or metadata.name


def group_of(pod: Pod) -> Group:
    """Return the key of the group that a pod names; its name is "" for none."""
    return pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP, "")


def _stays(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED


def _relatives(pods: Iterable[Pod], moves: Iterable[_Move], came: Mapping[str, _Successor]) -> Mapping[str, Pod]:
    """Return the pods of the groups and controllers of moves, the successors, and the pods of their groups, by UID."""
    moves = tuple(moves)
    groups = {move.group for move in moves}
    controllers = {place.controller for move in moves for place in move.places} - {""}
    served = {each.key for each in came.values()}
    spaces = {namespace for namespace, _ in groups} | {key.partition("/")[0] for key in served}
    return {
        uid: pod
        for pod in pods
        if pod.metadata.namespace in spaces
        and (
            (uid := _identity(pod.metadata)) in came
            or (group := group_of(pod)) in groups
            or "/".join(group) in served
            or controller_of(pod.metadata) in controllers
        )
    }


def _ordered(objects: ClusterObjects) -> frozenset[str]:
    """Return the UIDs of pods with a bind request that has not failed."""
    live = (each for each in objects.bind_requests if not has_failed(each))
    return frozenset(owner.uid for each in live for owner in each.metadata.owner_references)


def _served(successor: _Successor, got: Counter[str], *, waits: bool) -> _Successor:
    """Return the new state of a successor; ``got`` counts the places that pods beside successors took, by group."""
    is_replaced = successor.is_replaced
    if waits and not is_replaced and got[successor.key]:
        got[successor.key] -= 1
        is_replaced = True
    return attrs.evolve(successor, waits=waits and not is_replaced, is_replaced=is_replaced)


def _knowing(move: _Move, had: Mapping[str, Pod]) -> _Move:
    """Return a move with the UIDs of the pods that existed when it was decided."""
    if move.known is not None:
        return move
    return attrs.evolve(move, known=frozenset(uid for uid, pod in had.items() if move.awaits(pod, group_of(pod))))


def _after(move: _Move, there: Iterable[str], now: float) -> _Move:
    """Return a move that expires soon if the evicted pods are gone."""
    if move.is_gone or not {place.uid for place in move.places}.isdisjoint(there):
        return move
    return attrs.evolve(move, is_gone=True, until=min(move.until, now + _PATIENCE))


def _whole(objects: ClusterObjects, pods: Iterable[Pod]) -> frozenset[Group]:
    """Return the groups of ``pods`` with enough pods to start: no pod of another group takes their places."""
    counts = Counter(group_of(pod) for pod in pods)
    return frozenset(
        key
        for group in objects.pod_groups
        if (key := key_of(group)) in counts and counts[key] >= least_members(group.spec)
    )


def _others(places: tuple[_Place, ...], pod: Pod) -> tuple[_Place, ...]:
    """Return the places less that of a successor: the one of the same name, else of its controller, else the first."""
    name, controller = pod.metadata.name + STAND_IN, controller_of(pod.metadata)
    # A StatefulSet makes a pod of the same name again. A pod of a Job has a new name, and only its controller tells.
    mine = min(places, key=lambda each: (each.stand_in.metadata.name != name, each.controller != controller))
    return tuple(each for each in places if each is not mine)
