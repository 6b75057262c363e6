"""What became of evictions: each was decided for a group, and a pod of that group has to be bound after it.

The audit log says which evictions the server did, the decision logs of all lives of kai say for whom. A name is never
used again, so a name is a pod.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from kai.cluster.process.decisions import EVICT, Decision
from tests.integration.chaos.history import Write

BOUND: Final = "a pod that it was for was bound"
GONE: Final = "what it was for was taken away"
SHORT: Final = "its gang had too few members"
UNTOLD: Final = "no decision is on record"
FUTILE: Final = "futile"
_OF_GANGS: Final = "stalegangeviction"
_EVICTION: Final = "pods/eviction"
_BINDING: Final = "pods/binding"


@attrs.frozen
class Beneficiaries:
    """What the logs say of evictions and bindings."""

    evictions: tuple[Write, ...]
    bound: dict[str, str]
    """When the server bound each pod, by name, as text that sorts like time."""
    reasons: dict[str, Decision]
    """The last decision to evict each pod, by its name."""
    members: dict[str, set[str]]
    """Names of the pods of each group, as far as decisions name them."""
    waiting: frozenset[str]
    """Names of the pods that are there now and have no node."""

    @classmethod
    def of(cls, writes: Iterable[Write], decisions: Iterable[Decision], waiting: Iterable[str]) -> "Beneficiaries":
        """Return what these writes, decisions and pods that wait say."""
        written, reasons = tuple(writes), dict[str, Decision]()
        members: dict[str, set[str]] = defaultdict(set)
        for each in decisions:
            if each.subject.kind == "Pod":
                members[each.job].add(each.subject.name)
            if each.kind == EVICT:
                reasons[each.subject.name] = each
        evictions = tuple(each for each in written if each.what == _EVICTION)
        bound = {each.key[1]: each.done for each in written if each.what == _BINDING}
        return cls(evictions, bound, reasons, dict(members), frozenset(waiting))

    def became(self) -> Counter[str]:
        """Return how many evictions had which outcome."""
        return Counter(outcome for _, outcome in self._outcomes())

    def futile(self) -> list[str]:
        """Return the pods that were evicted for no group, or for one of which no pod was bound since and one waits."""
        return [f"{name} for {self._gainer(name)}" for name, outcome in self._outcomes() if outcome == FUTILE]

    def _outcomes(self) -> Iterator[tuple[str, str]]:
        for each in self.evictions:
            yield each.key[1], self._outcome(each)

    def _outcome(self, eviction: Write) -> str:
        name = eviction.key[1]
        reason = self.reasons.get(name)
        if reason is None:
            return UNTOLD
        if reason.gainer is None:
            return SHORT if reason.action == _OF_GANGS else FUTILE
        pods = self.members.get(self._gainer(name), set())
        if any(self.bound.get(pod, "") > eviction.received for pod in pods):
            return BOUND
        return FUTILE if pods & self.waiting else GONE

    def _gainer(self, name: str) -> str:
        gainer = self.reasons[name].gainer
        return "no group" if gainer is None else f"{gainer.namespace}/{gainer.name}"


__all__ = ["BOUND", "FUTILE", "GONE", "SHORT", "UNTOLD", "Beneficiaries"]
