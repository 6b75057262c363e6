"""Evictions over time: each has a beneficiary, and no two groups evict each other in turns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from tests.simulation.checks import bound_members, is_unheld, queue_of
from tests.simulation.words import EVENT
from tests.simulation.world import GROUP, HOMES, NODE, POD, QUEUE, World, is_leaving, is_over, key_of, node_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.rest_server.storage import Change, Manifest

_EVICTED = "Evict"
_EVICTOR = "evictor-pod-group-name"
_ACTION = "evictor-action-type"
_MOVE = "consolidation"
PARTIAL: Final = "its gang had too few members"
UNHELD: Final = "no pod held the GPU that it shared"
PLACED: Final = "a pod that waited was placed"
NONE_WAITED: Final = "no pod waited any more"
GONE: Final = "a pod that waited was deleted"
REFUSED: Final = "a webhook refused a pod that waited"
CHANGED: Final = "others changed nodes or queues meanwhile"
LATER_TERM: Final = "a later term gave the place to another pod of the queue"
FUTILE: Final = "futile"
_ECHO = 5.0
"""So long after the last deed of a user its pods still come, and shares with them; those who take turns go on later.

What waited while no replica led comes as the next term begins."""


@attrs.frozen
class _Eviction:
    """A pod that was evicted, and the pods that waited then, by UID."""

    pod: str
    waiting: frozenset[str]
    epoch: int
    time: float
    reason: str = ""
    """Why it went, if that is not for the good of others."""


@attrs.define(eq=False)
class Evictions:
    """Keeps all evictions of a schedule."""

    world: World
    found: list[_Eviction] = attrs.field(factory=list)
    placed: set[str] = attrs.field(factory=set)
    """UIDs of pods that were bound at some time."""
    bound_in: dict[str, int] = attrs.field(factory=dict)
    """The newest epoch in which a pod of each queue was bound."""
    queues: dict[str, str] = attrs.field(factory=dict)
    """The queue of each pod, by UID."""
    gone: dict[str, float] = attrs.field(factory=dict)
    """When each pod went, by UID."""
    refused: set[str] = attrs.field(factory=set)
    """UIDs of pods of which a webhook of others refused a binding at some time."""
    changed: float = float("-inf")
    """When an administrator changed a node or a queue last, or another scheduler put a pod on a node."""
    taken: set[tuple[str, str]] = attrs.field(factory=set)
    """Victim and aggressor, since all is calm."""
    moved: set[tuple[str, str]] = attrs.field(factory=set)
    """Victim and aggressor where the victim was promised another place."""

    def __attrs_post_init__(self) -> None:
        self.world.server.storage.listeners.append(self.see)

    def see(self, change: Change) -> None:
        """Take a change."""
        if change.served is EVENT and change.after is not None and change.after.get("reason") == _EVICTED:
            self._take_reason(change.after)
        if (change.served in {NODE, QUEUE} and change.by == "admin") or _is_squatting(change):
            self.changed = self.world.time
        if change.served is not POD or change.place[0] not in HOMES:
            return
        pod, before, uid = change.after, change.before, change.present["metadata"]["uid"]
        if pod is None:
            self.gone[uid] = self.world.time
            return
        if pod["metadata"]["name"] in self.world.refused_binds:
            self.refused.add(uid)
        self.queues[uid] = queue_of(pod)
        if node_of(pod):
            self.placed.add(uid)
        if node_of(pod) and (before is None or not node_of(before)):
            self.bound_in[queue_of(pod)] = self.world.epoch
        is_new = is_leaving(pod) and (before is None or not is_leaving(before))
        if is_new and change.by.startswith("kai"):
            reason = self._reason(pod)
            waiting: frozenset[str] = frozenset() if reason else self._waiting()
            self.found.append(_Eviction(key_of(pod), waiting, self.world.epoch, self.world.time, reason))

    def _reason(self, pod: Manifest) -> str:
        if self._is_partial(pod):
            return PARTIAL
        return UNHELD if is_unheld(self.world, pod) else ""

    def _is_partial(self, pod: Manifest) -> bool:
        """Return whether a pod went because its gang had too few members: what is left of those is given back."""
        name = (pod["metadata"].get("annotations") or {}).get("pod-group-name", "")
        if not name:
            return False
        group = self.world.server.storage.get(GROUP, (pod["metadata"]["namespace"], name))
        return group is None or len(bound_members(self.world, group)) + 1 < int(group["spec"].get("minMember") or 1)

    def _waiting(self) -> frozenset[str]:
        waiting = [each for each in self.world.workers() if not node_of(each) and not is_over(each)]
        names = self.world.refused_binds
        self.refused.update(each["metadata"]["uid"] for each in waiting if each["metadata"]["name"] in names)
        # A pod that went while the eviction was on its way was waiting when that was decided.
        went = {
            uid
            for uid, time in self.gone.items()
            if self.world.time < time + self.world.blind and uid not in self.placed
        }
        return frozenset(each["metadata"]["uid"] for each in waiting) | went

    def _take_reason(self, event: Manifest) -> None:
        """Note who evicted whom; where users and administrators rest, the two must not change places.

        A group that took a place may be moved for the group that it took it from, since both have places then. If it
        has to take one again, they take turns.
        """
        victim = str((event.get("involvedObject") or event.get("regarding") or {}).get("name", ""))
        annotations = event["metadata"].get("annotations") or {}
        aggressor = str(annotations.get(_EVICTOR, ""))
        since = max(self.world.calm_since, self.world.led_since)
        if self.world.time < since + _ECHO or not victim or not aggressor:
            return
        is_move, turn = annotations.get(_ACTION) == _MOVE, (aggressor, victim)
        if turn in self.moved or (turn in self.taken and not is_move):
            self.world.violate(15, f"{aggressor} evicts {victim}, which evicted it before")
        (self.moved if is_move else self.taken).add((victim, aggressor))

    def futile(self) -> Iterator[tuple[int, str]]:
        """Return evictions after which none of the pods that waited was ever placed, and none of them went.

        What a webhook refused is a reason, and what an administrator or another scheduler changed after the decision.
        For which pods the leader of an earlier term evicted is forgotten with it; their queue must have gained then.
        """
        for each in self.found:
            if self._became(each) == FUTILE:
                yield 13, f"{each.pod} was evicted at {each.time:.1f} s, and no pod that waited was placed since"

    def became(self) -> Counter[str]:
        """Return how many evictions had a beneficiary, how many had which reason instead, and how many were futile."""
        return Counter(map(self._became, self.found))

    def _became(self, eviction: _Eviction) -> str:
        waiting = eviction.waiting
        terms = (self.bound_in.get(self.queues.get(each, ""), 0) for each in waiting)
        reasons = (
            (eviction.reason, bool(eviction.reason)),
            (PLACED, bool(waiting & self.placed)),
            (NONE_WAITED, not waiting),
            (GONE, bool(waiting & self.gone.keys())),
            (REFUSED, bool(waiting & self.refused)),
            (CHANGED, self.changed >= eviction.time - self.world.blind),
            (LATER_TERM, any(term > eviction.epoch for term in terms)),
        )
        return next((name for name, holds in reasons if holds), FUTILE)


def _is_squatting(change: Change) -> bool:
    """Return whether another scheduler takes room on a node: what was to be given to a pod that waited may be gone."""
    return change.served is POD and change.by == "stranger" and change.before is None and bool(node_of(change.present))
