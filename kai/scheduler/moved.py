"""Pods that were moved, and the places that they were promised: nothing else is put there until they come back.

A search that moves a pod evicts it, and counts on a place for it elsewhere. The pod that comes in its stead is made by
its owner, a moment to half a minute later. Until then its place looks idle, and in a full cluster another group is
bound there at once. The group that was moved has lost a pod then, and takes one back from the group that gained by the
move. So the place is shown as taken by a stand-in: the pod that went, as if it ran on the node that it was promised.
Once all successors of a statement have come the stand-ins go, and their groups are served before others, as groups are
for which pods were evicted.

A stand-in is an object of the cycle's input alone. Nothing evicts it: a statement about a pod that the store does not
have is rejected. A process that starts knows of none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs
import msgspec

from kai.api import names
from kai.api.grants import grant_of
from kai.api.objects import ClusterObjects
from kai.api.pod import ENDED, Pod
from kai.api.sharing import group_labels
from kai.framework.decisions import Decision, Evict, Nominate
from kai.state.snapshot import Snapshot

_PATIENCE: Final = 30.0
"""Seconds for which a place is kept: a pod may take so long to end, and some owners replace it only then."""
_MARK: Final = "~moved"
"""Ends the name and the UID of a stand-in; no name of an object has such a character."""

Group: TypeAlias = tuple[str, str]
"""Namespace and name."""


@attrs.frozen
class _Move:
    """Pods of one group that one statement moved."""

    group: Group
    known: frozenset[str]
    """UIDs of the pods that the group had."""
    until: float
    stand_ins: tuple[Pod, ...]


@attrs.define
class Moved:
    """The moves whose successors have not all found places.

    Units: seconds of a clock that does not go back.
    """

    _moves: list[_Move] = attrs.field(factory=list)
    _served: dict[Group, tuple[frozenset[str], float]] = attrs.field(factory=dict)
    """Groups whose successors have come: the UIDs of the pods that they had before, and until when they go first."""

    def note(
        self,
        snapshot: Snapshot,
        decisions: Iterable[Decision],
        pods: Iterable[Pod],
        device: Callable[[str], str],
        now: float,
    ) -> None:
        """Remember which of these ``pods`` a statement moves; ``device`` returns the final name of a device."""
        decisions = tuple(decisions)
        promised = {each.pod: each.devices for each in decisions if isinstance(each, Nominate)}
        found: dict[int, list[Pod]] = {}
        for decision, pod in zip(decisions, pods, strict=True):
            if not isinstance(decision, Evict) or decision.moved_to < 0 or pod.metadata.deletion_timestamp is not None:
                continue
            devices = tuple(sorted(device(name) for name in promised.get(decision.pod, ())))
            shown = stand_in(pod, snapshot.nodes[decision.moved_to].name, devices)
            if shown is not None and (group := int(snapshot.pod_group[decision.pod])) >= 0:
                found.setdefault(group, []).append(shown)
        for group, stand_ins in found.items():
            key = (snapshot.groups[group].namespace, snapshot.groups[group].name)
            known = frozenset(snapshot.pods[row].uid for row in (snapshot.pod_group == group).nonzero()[0].tolist())
            self._moves.append(_Move(key, known, now + _PATIENCE, tuple(stand_ins)))

    def forget(self, uid: str) -> None:
        """Take out a pod that was not evicted after all."""
        if self._moves:
            gone = uid + _MARK
            kept = [
                attrs.evolve(each, stand_ins=tuple(pod for pod in each.stand_ins if pod.metadata.uid != gone))
                for each in self._moves
            ]
            self._moves = [each for each in kept if each.stand_ins]

    def clear(self) -> None:
        """Forget all."""
        self._moves.clear()
        self._served.clear()

    def shown(self, objects: ClusterObjects, now: float) -> ClusterObjects:
        """Return the objects with the stand-ins of pods whose successors are still to come; the same if there is none.

        Cost: nothing where nothing was moved lately, else a look at each pod.
        """
        if not self._moves and not self._served:
            return objects
        members = _members(objects.pods, {each.group for each in self._moves} | self._served.keys())
        kept: list[_Move] = []
        taken: Counter[Group] = Counter()
        for each in self._moves:
            came = len(members.get(each.group, {}).keys() - each.known) - taken[each.group]
            if each.until > now and came < len(each.stand_ins):
                kept.append(each)
            elif each.until > now:
                taken[each.group] += len(each.stand_ins)
                self._served[each.group] = (each.known, now + _PATIENCE)
        self._moves = kept
        self._served = {
            group: (known, until)
            for group, (known, until) in self._served.items()
            if until > now and any(uid not in known and waits for uid, waits in members.get(group, {}).items())
        }
        stand_ins = [pod for each in kept for pod in each.stand_ins]
        return attrs.evolve(objects, pods=(*objects.pods, *stand_ins)) if stand_ins else objects

    def served_first(self, awaited: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys of groups that are served before others: those of ``awaited``, then those that were moved."""
        mine = (f"{namespace}/{name}" for namespace, name in self._served)
        return (*awaited, *(key for key in mine if key not in awaited)) if self._served else awaited

    def next_due(self) -> float | None:
        """Return until when the next place is kept; None if none is."""
        return min((each.until for each in self._moves), default=None)


def stand_in(pod: Pod, node: str, devices: tuple[str, ...]) -> Pod | None:
    """Return a pod that was moved as if it ran on the node that it was promised, sharing these devices.

    None for one whose place is not kept: it has device claims, or what it held of a GPU is not told. Whether another
    comes in its stead is not known: an operator need not be named as the owner of its pods.
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
        labels = {key: text for key, text in labels.items() if key not in ties}
    return attrs.evolve(
        pod,
        metadata=attrs.evolve(
            metadata,
            name=metadata.name + _MARK,
            uid=metadata.uid + _MARK,
            annotations=annotations,
            labels=labels,
            deletion_timestamp=None,
        ),
        spec=attrs.evolve(spec, node_name=node),
    )


def _members(pods: Iterable[Pod], groups: set[Group]) -> dict[Group, dict[str, bool]]:
    """Return the pods of these groups that stay, by UID, and whether each waits for a place."""
    found: dict[Group, dict[str, bool]] = {}
    for pod in pods:
        metadata = pod.metadata
        group = (metadata.namespace, metadata.annotations.get(names.POD_GROUP, ""))
        if group in groups and metadata.deletion_timestamp is None and pod.status.phase not in ENDED:
            found.setdefault(group, {})[metadata.uid] = not pod.spec.node_name
    return found


__all__ = ["Moved", "stand_in"]
