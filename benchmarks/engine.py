"""Call kai: the only module of the benchmarks that knows it.

Three steps are told apart because they are not measured alike: ``load`` happens before the clock starts, ``decide``
is what the clock runs for, and ``warm`` makes sure that neither compiles anything.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager

from attrs import frozen

from benchmarks.clock import Stopwatch
from benchmarks.manifests import NOW, Manifest
from benchmarks.outcome import Decisions
from kai import kernels
from kai.api.codec import read_object
from kai.api.objects import ClusterObjects
from kai.framework.cycle import run_cycle
from kai.framework.decisions import Bind, Decision, Evict, Nominate
from kai.framework.profile import default_profile
from kai.intake import Settings, take_snapshot


@frozen
class _Watching:
    """Time each action of a cycle as one phase."""

    watch: Stopwatch

    def action(self, name: str) -> AbstractContextManager[None]:
        """Time the body as the action ``name``."""
        return self.watch.phase(name)


@frozen
class _Collecting:
    """Keep the decisions of a cycle in their order."""

    decisions: list[Decision]

    def accept(self, decisions: Iterable[Decision]) -> None:
        """Take ``decisions``, which a statement committed together."""
        self.decisions.extend(decisions)


def warm() -> None:
    """Compile or load every kernel."""
    kernels.warm()


def load(manifests: Iterable[Manifest]) -> ClusterObjects:
    """Read manifests into what a snapshot is made of."""
    return ClusterObjects.of(read_object(manifest) for manifest in manifests)


def decide(objects: ClusterObjects, watch: Stopwatch) -> Decisions:
    """Take a snapshot of ``objects`` and decide once, with everything at its default."""
    with watch.phase("snapshot"):
        snapshot = take_snapshot(objects, Settings(now=NOW.timestamp()))
    sink = _Collecting([])
    run_cycle(snapshot, default_profile(), sink, _Watching(watch))
    return _as_decisions(sink.decisions)


def _as_decisions(decided: Iterable[Decision]) -> Decisions:
    bound, pipelined, evicted = {}, {}, set()
    for decision in decided:
        match decision:
            case Bind():
                bound[decision.pod.name] = decision.node
            case Nominate():
                pipelined[decision.pod.name] = decision.node
            case Evict():
                evicted.add(decision.pod.name)
    return Decisions(bound, pipelined, frozenset(evicted))
