"""Pods that a disruption budget protected from eviction: what the next decisions must know.

The API server alone decides whether a budget lets a pod go, and says so when the eviction is asked for. Where a budget
is known to be exhausted, nothing is asked. Decided anew on the same facts the same pods would be the victims again, and
the job that gains would wait although other pods could make room. So it is an input of the cycles that follow: groups
of such pods lose none for a while. A process that starts knows of none.

Nodes that refused pods for lack of room: what the next decisions must know, lest they repeat themselves.

A binder counts what is really on a node, and may find less room than the snapshot showed. Decided anew on the same
facts the pod would be sent to the same node, for ever. So a refusal is an input of the cycles that follow: the pod goes
elsewhere, evicts elsewhere, or is told who refused it. It is forgotten when something there makes room (a pod left, a
device lost a user, the node object changed), or after a pause that doubles with each refusal of the pod.

Holds: at most `MOST` refusals are remembered; the oldest are forgotten first.

Pods whose binds failed leave their capacity to others for a while, a little longer each time.

Without that a pod that cannot be bound would win every cycle and starve the pods behind it. Cycles are shown such a pod
at rest, with why it rests (`kai.api.conventions.binding`): it waits, is counted, and users are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kai.api.conventions.binding import at_rest, refusal_text, shared_gpus
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.values import instant_text
from kai.basics.deadlines import Deadlines, doubling_pause
from kai.intake import IntakeSettings
from kai.model.placement import NoRoom

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kai.api.kubernetes.node import Node

MOST: Final = 1000
_LONGEST_REASON: Final = 300
_FIRST: Final = 15.0
_LONGEST: Final = 600.0
_FORGOTTEN_AFTER: Final = 900.0

User = tuple[str, tuple[str, ...]]
"""The UID of a pod on a node, and the GPU groups that it shares."""


@attrs.define
class _Entry:
    """A refusal, and what the node was like then."""

    refusal: NoRoom
    until: float
    users: frozenset[User] | None = None
    """Pods that were on the node at some time since; None before the first look."""
    node: object = None


@attrs.define
class NodeRefusals:
    """Refusals by the pod's UID and the node's name.

    Units: seconds of a clock that does not go back.
    """

    settings: IntakeSettings = attrs.field(factory=IntakeSettings)
    _entries: dict[tuple[str, str], _Entry] = attrs.field(factory=dict)
    _counts: dict[str, tuple[int, float]] = attrs.field(factory=dict)
    """How often each pod was refused, and until when that is remembered."""

    def note(self, refusal: NoRoom, now: float) -> int:
        """Remember a refusal; return how often the pod was refused by now."""
        count = self._counts.get(refusal.uid, (0, 0.0))[0] + 1
        pause = doubling_pause(count, _FIRST, _LONGEST)
        self._counts.pop(refusal.uid, None)
        self._counts[refusal.uid] = (count, now + pause + _FORGOTTEN_AFTER)
        reason = " ".join(refusal.reason.split())[:_LONGEST_REASON]
        key = (refusal.uid, refusal.node)
        self._entries.pop(key, None)
        self._entries[key] = _Entry(attrs.evolve(refusal, reason=reason), now + pause)
        if len(self._entries) > MOST:
            self._entries.pop(next(iter(self._entries)))
        if len(self._counts) > MOST:
            self._counts.pop(next(iter(self._counts)))
        return count

    def current(self, nodes: Iterable[Node], pods: Iterable[Pod], now: float) -> tuple[NoRoom, ...]:
        """Return the refusals that hold in a cluster of ``nodes`` and ``pods``, and forget the others.

        Cost: nothing where nothing was refused, else O(nodes + pods).
        """
        if not self._entries and not self._counts:
            return ()
        self._counts = {uid: known for uid, known in self._counts.items() if known[1] > now}
        if not self._entries:
            return ()
        wanted = {node for _, node in self._entries}
        seen = {node.metadata.name: _facts(node) for node in nodes if node.metadata.name in wanted}
        users, waiting = self._look(pods, wanted, {uid for uid, _ in self._entries})
        kept: dict[tuple[str, str], _Entry] = {}
        for (uid, node), entry in self._entries.items():
            if entry.until > now and uid in waiting and node in seen:
                if entry.users is None:
                    entry.users, entry.node = users[node], seen[node]
                if entry.users <= users[node] and entry.node == seen[node]:
                    entry.users = users[node]
                    kept[uid, node] = entry
        self._entries = kept
        return tuple(sorted((entry.refusal for entry in kept.values()), key=attrs.astuple))

    def next_due(self, now: float) -> float | None:
        """Return when the next refusal is forgotten; None if none is remembered."""
        return min((entry.until for entry in self._entries.values() if entry.until > now), default=None)

    def _look(
        self, pods: Iterable[Pod], nodes: set[str], uids: set[str]
    ) -> tuple[Mapping[str, frozenset[User]], frozenset[str]]:
        """Return which pods are on each of ``nodes``, and which of the pods ``uids`` still wait.

        Reservation pods come and go with the attempts themselves.
        """
        settings = self.settings
        users: dict[str, set[User]] = {node: set() for node in nodes}
        waiting: set[str] = set()
        for pod in pods:
            node, metadata = pod.spec.node_name, pod.metadata
            if not node:
                if metadata.uid in uids:
                    waiting.add(metadata.uid)
            elif node in users and pod.status.phase not in ENDED and not settings.holds_device(metadata):
                users[node].add((metadata.uid, shared_gpus(pod, settings.scheduler_name)))
        return {node: frozenset(found) for node, found in users.items()}, frozenset(waiting)


def _facts(node: Node) -> object:
    """Return what of a node can make room or take it away: not its heartbeats."""
    return node.spec, dict(node.metadata.labels), dict(node.status.allocatable)


_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 300.0


@attrs.frozen
class _Rest:
    """How often binds of a pod failed, until when it is not tried, and what is said of that."""

    count: int
    until: float
    text: str
    shown: tuple[Pod, Pod] | None = None
    """The pod, and how it is shown: the same again for as long as both are the same."""


@attrs.define
class BindBackoff:
    """Pods by UID whose binds failed.

    Units: seconds of a clock that does not go back; ``wall`` is what people read.
    """

    _rests: dict[str, _Rest] = attrs.field(factory=dict)

    def failed(self, uid: str, why: str, now: float, wall: float) -> None:
        """Count a failed bind of a pod."""
        known = self._rests.get(uid)
        count = 1 if known is None else known.count + 1
        pause = doubling_pause(count, _FIRST_PAUSE, _LONGEST_PAUSE)
        again = instant_text(float(round(wall + pause)))
        self._rests[uid] = _Rest(count, now + pause, refusal_text(why, count, again))

    def resting(self, now: float) -> Mapping[str, str]:
        """Return the UIDs of pods that are not to be tried now, each with what it is told."""
        if not self._rests:
            return {}
        self._rests = {uid: rest for uid, rest in self._rests.items() if rest.until > now - _FORGOTTEN_AFTER}
        return {uid: rest.text for uid, rest in self._rests.items() if rest.until > now}

    def shown(self, pod: Pod) -> Pod:
        """Return a pod that rests as cycles are shown it."""
        uid = pod.metadata.uid
        rest = self._rests[uid]
        if rest.shown is not None and rest.shown[0] is pod:
            return rest.shown[1]
        found = at_rest(pod, rest.text)
        self._rests[uid] = attrs.evolve(rest, shown=(pod, found))
        return found

    def next_due(self, now: float) -> float | None:
        """Return when the next of them may be tried again; None if none rests."""
        return min((rest.until for rest in self._rests.values() if rest.until > now), default=None)


REFUSED: Final = 60.0
"""Seconds until a pod is asked to go again after the API server refused it."""
EXHAUSTED: Final = 10.0
"""The same after its budget was seen to be exhausted: when that changes, it is seen as well."""


@attrs.define
class ProtectedPods:
    """Pods by UID, and until when none of them is asked to go.

    Units: seconds of a clock that does not go back.
    """

    _until: Deadlines[str] = attrs.field(factory=Deadlines)

    def note(self, uid: str, now: float, seconds: float) -> None:
        """Remember for so long that a budget protected a pod."""
        self._until[uid] = max(now + seconds, self._until.get(uid, now))

    def holds(self, uid: str, now: float) -> bool:
        """Return whether a budget protected a pod a moment ago."""
        return self._until.get(uid, now) > now

    def current(self, now: float) -> tuple[str, ...]:
        """Return the UIDs of the pods that are protected, in order, and forget the others."""
        self._until.forget(now)
        return tuple(sorted(self._until))

    def next_due(self, now: float) -> float | None:
        """Return when the next pod may be asked to go again; None if none is protected."""
        self._until.forget(now)
        return self._until.first()
