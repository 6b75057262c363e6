"""For which groups pods were evicted, so that the next cycle serves those groups first."""

from collections.abc import Sequence

import numpy as np

from kai.engine.world import World
from kai.framework.decisions import Decision, Evict, Nominate
from kai.model.status import Status


class Awaited:
    """The groups that gained by searches, in the order of the searches: each search assumes what earlier ones did."""

    def __init__(self, world: World) -> None:
        """Begin with the groups that earlier cycles left."""
        self._world = world
        self._keys: dict[str, None] = dict.fromkeys(world.snapshot.past.awaited)

    def note(self, decisions: Sequence[Decision]) -> None:
        """Note the groups that gain by a search; groups that lose or move pods have their turn like all others."""
        snapshot = self._world.snapshot
        of_pod = snapshot.pod_group
        losing = {int(of_pod[each.pod]) for each in decisions if isinstance(each, Evict)}
        gaining = {int(of_pod[each.pod]) for each in decisions if isinstance(each, Nominate)} - losing
        for group in losing - {-1}:
            self._keys.pop(snapshot.groups[group].key, None)
        for group in sorted(gaining):
            self._keys.setdefault(snapshot.groups[group].key)

    def keys(self) -> tuple[str, ...]:
        """Return the keys of groups for which pods were evicted, now or before, and which wait for their places."""
        if not self._keys:
            return ()
        snapshot = self._world.snapshot
        waiting = snapshot.pod_group[self._world.pods_in(1 << Status.PIPELINED)]
        promised = {snapshot.groups[row].key for row in np.unique(waiting[waiting >= 0])}
        return tuple(key for key in self._keys if key in promised)
