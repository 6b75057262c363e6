"""Evictions of which the API server has not said yet whether they take place, and what must not be bound before.

The pods count as gone from their queues, so that no other victims are looked for. A cycle waits for the answers, for a
second at most. If one still lacks then, the next cycle finds room in the queues that are to lose something; were pods
bound there, and the eviction failed, a queue would hold more than its limit, or more than its quota of what cannot be
taken back. So these pods wait for the answer. Where no limit is in the way nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from kai.api.kinds import Key
from kai.framework.decisions import Bind, Decision
from kai.model.queue import UNLIMITED, Shares, path_to
from kai.state.snapshot import Snapshot

_NO_BOUND: Final = Shares(cpu=UNLIMITED, memory=UNLIMITED, gpu=UNLIMITED)


@attrs.define
class EvictionsInFlight:
    """Evictions that have begun and not ended, by pod: in which cycle, and from which queue."""

    _known: dict[Key, tuple[int, str]] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._known)

    def begin(self, pod: Key, queue: str, cycle: int) -> None:
        """Note an eviction that is asked for."""
        self._known[pod] = cycle, queue

    def end(self, pod: Key) -> None:
        """Forget an eviction of which it is known what became of it."""
        self._known.pop(pod, None)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    def objection(self, snapshot: Snapshot, decisions: Iterable[Decision], cycle: int) -> str:
        """Return in words why decisions of a cycle have to wait; "" if they need no eviction of a cycle before.

        Cost: nothing while all evictions are answered, else the ways from the queues of what is bound to the top.
        """
        losing = {queue for since, queue in self._known.values() if since < cycle}
        if not losing:
            return ""
        rows = {queue.name: row for row, queue in enumerate(snapshot.queues)}
        above = {each for name in losing if name in rows for each in path_to(snapshot.queues, rows[name])}
        for decision in decisions:
            group = int(snapshot.pod_group[decision.pod]) if isinstance(decision, Bind) else -1
            if group < 0:
                continue
            facts = snapshot.groups[group]
            for row in reversed(path_to(snapshot.queues, facts.queue_row)):
                queue = snapshot.queues[row]
                is_bounded = queue.limit != _NO_BOUND or (not facts.preemptible and queue.quota != _NO_BOUND)
                if row in above and is_bounded:
                    pod = snapshot.pods[decision.pod].key
                    return f"pod {pod}: queue {queue.name} is to lose another, which is not answered yet"
        return ""
