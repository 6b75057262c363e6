"""Refusals that the next decisions must know, lest they repeat themselves: by nodes, binds and disruption budgets.

`NodeRefusals`: nodes that refused pods for lack of room. A binder counts what really is on a node, and may find less
room than the snapshot showed. On the same facts the pod would be sent to the same node for ever. So the refusal becomes
an input of the next cycles: the pod goes elsewhere, evicts elsewhere, or its users see the refusal. A refusal is
forgotten when something makes room on the node (a pod left, a device lost a user, the node object changed), or after a
pause that doubles with each refusal of the pod. Holds: at most `MOST` refusals are kept; the oldest are dropped first.

`BindBackoff`: pods whose binds failed. They leave their capacity to others during a back-off that doubles; otherwise a
pod that cannot be bound would win every cycle and starve the pods behind it. A cycle sees such a pod as resting, with
the reason (`kai.api.conventions.binding`): it waits, is counted, and its users see why.

`ProtectedPods`: pods that a disruption budget protected from eviction. Only the API server decides whether a budget
permits an eviction, and answers when the eviction is requested; if the budget is known to be exhausted, no request is
sent. On the same facts the same pods would be the victims again, and the aggressor would wait although other pods could
make room. So groups of such pods lose none for a while.

After a restart all of these are empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kai.api.conventions.binding import at_rest, refusal_text, shared_gpus
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.values import instant_text
from kai.basics.deadlines import Deadlines, doubling_pause
from kai.facts.model.placement import NoRoom
from kai.intake import IntakeSettings

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
    """A refusal, and the state of the node at that time."""

    refusal: NoRoom
    until: float
    users: frozenset[User] | None = None
    """Pods that were on the node at any time since; None before the first look."""
    node: object = None


@attrs.define
class NodeRefusals:
    """Refusals by pod UID and node name.

    Units: seconds of a monotonic clock.
    """

    settings: IntakeSettings = attrs.field(factory=IntakeSettings)
    _entries: dict[tuple[str, str], _Entry] = attrs.field(factory=dict)
    _counts: dict[str, tuple[int, float]] = attrs.field(factory=dict)
    """How often each pod was refused, and when that is forgotten."""

    def note(self, refusal: NoRoom, now: float) -> int:
        """Remember a refusal; return how often the pod was refused so far."""
        count = self._counts.get(refusal.uid, (0, 0.0))[0] + 1
        pause = doubling_pause(count, _FIRST, _LONGEST)
        # Taken out first, so that the dictionary is in the order of the latest refusals and the oldest is dropped.
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
        """Return the refusals that still hold in a cluster of ``nodes`` and ``pods``, and forget the others.

        Cost: nothing without refusals, else O(nodes + pods).
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
                # Room comes from a user that left or a node that changed; further users make none.
                if entry.users <= users[node] and entry.node == seen[node]:
                    entry.users = users[node]
                    kept[uid, node] = entry
        self._entries = kept
        return tuple(sorted((entry.refusal for entry in kept.values()), key=attrs.astuple))

    def next_due(self, now: float) -> float | None:
        """Return when the next refusal expires; None if there is none."""
        return min((entry.until for entry in self._entries.values() if entry.until > now), default=None)

    def _look(
        self, pods: Iterable[Pod], nodes: set[str], uids: set[str]
    ) -> tuple[Mapping[str, frozenset[User]], frozenset[str]]:
        """Return the pods on each of ``nodes``, and the pods in ``uids`` that still wait.

        Reservation pods are ignored, because bind attempts themselves create and delete them.
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
    """Return the facts of a node that can make or take room; heartbeats are none of them."""
    return node.spec, dict(node.metadata.labels), dict(node.status.allocatable)


_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 300.0


@attrs.frozen
class _Rest:
    """How often binds of a pod failed, when it is tried again, and the text for its users."""

    count: int
    until: float
    text: str
    shown: tuple[Pod, Pod] | None = None
    """Memoized: the pod, and the same pod marked as resting."""


@attrs.define
class BindBackoff:
    """Pods in back-off after failed binds, by UID.

    Units: seconds of a monotonic clock; ``wall`` is the wall clock.
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
        """Return the UIDs of pods in back-off, each with the text for its users."""
        if not self._rests:
            return {}
        # Kept for a while after its end, so that a pod that fails again goes on with the longer pauses.
        self._rests = {uid: rest for uid, rest in self._rests.items() if rest.until > now - _FORGOTTEN_AFTER}
        return {uid: rest.text for uid, rest in self._rests.items() if rest.until > now}

    def shown(self, pod: Pod) -> Pod:
        """Return a pod in back-off as cycles see it."""
        uid = pod.metadata.uid
        rest = self._rests[uid]
        if rest.shown is not None and rest.shown[0] is pod:
            return rest.shown[1]
        found = at_rest(pod, rest.text)
        self._rests[uid] = attrs.evolve(rest, shown=(pod, found))
        return found

    def next_due(self, now: float) -> float | None:
        """Return when the next back-off ends; None if no pod is in back-off."""
        return min((rest.until for rest in self._rests.values() if rest.until > now), default=None)


REFUSED: Final = 60.0
"""How long a pod is spared after the API server refused its eviction.

Units: seconds.
"""
EXHAUSTED: Final = 10.0
"""The same if its budget was seen to be exhausted: shorter, because a change of the budget is seen as well.

Units: seconds.
"""


@attrs.define
class ProtectedPods:
    """Protected pods by UID, and when the protection of each ends.

    Units: seconds of a monotonic clock.
    """

    _until: Deadlines[str] = attrs.field(factory=Deadlines)

    def note(self, uid: str, now: float, seconds: float) -> None:
        """Remember for ``seconds`` that a budget protected a pod."""
        # Never shorter: a budget that is seen to be exhausted must not cut short what the API server said.
        self._until[uid] = max(now + seconds, self._until.get(uid, now))

    def holds(self, uid: str, now: float) -> bool:
        """Return whether a budget protected a pod recently."""
        return self._until.get(uid, now) > now

    def current(self, now: float) -> tuple[str, ...]:
        """Return the UIDs of protected pods in order, and forget the others."""
        self._until.forget(now)
        return tuple(sorted(self._until))

    def next_due(self, now: float) -> float | None:
        """Return when the next protection ends; None if no pod is protected."""
        self._until.forget(now)
        return self._until.first()
