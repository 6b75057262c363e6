"""Call kai: the only module of the benchmarks that knows it.

Three steps are told apart because they are not measured alike: ``load`` happens before the clock starts, ``decide``
is what the clock runs for, and ``warm`` makes sure that neither compiles or imports anything for the first time.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import cache

from attrs import frozen

from benchmarks.clock import Stopwatch
from benchmarks.manifests import NOW, Manifest
from benchmarks.outcome import Decisions
from kai import kernels
from kai.api.codec import structure_all
from kai.api.objects import ClusterObjects, collect
from kai.framework.configuration import default_profile
from kai.framework.cycle import run_cycle
from kai.framework.decisions import Bind, Evict, Nominate, Recorder
from kai.framework.profile import Profile
from kai.intake import take_snapshot
from kai.state.snapshot import Snapshot


@frozen
class _Timing:
    """An observer that times the phases of a cycle."""

    watch: Stopwatch

    def phase(self, name: str, /) -> AbstractContextManager[None]:
        """Time the phase ``name``."""
        return self.watch.phase(name)

    def committed(self, action: str, decisions: int, /) -> None:
        """Do nothing: decisions are counted at the end."""


def warm() -> None:
    """Compile or load every kernel, and import every plugin and action."""
    kernels.warm()
    _profile()


@cache
def _profile() -> Profile:
    return default_profile()


def load(manifests: Iterable[Manifest], /) -> ClusterObjects:
    """Read manifests into what a snapshot is made of."""
    return collect(structure_all(manifests).objects)


def decide(objects: ClusterObjects, watch: Stopwatch, /) -> Decisions:
    """Take a snapshot of ``objects`` and decide once, with everything at its default."""
    with watch.phase("snapshot"):
        snapshot = take_snapshot(objects, NOW.timestamp())
    recorder = Recorder()
    run_cycle(snapshot, _profile(), recorder, _Timing(watch))
    return _by_name(snapshot, recorder)


def _by_name(snapshot: Snapshot, recorder: Recorder) -> Decisions:
    """Name the pods and nodes of all decisions.

    Cost: a microsecond or so a decision, inside of what is measured: rows alone are of no use to anybody outside.
    """
    pods, nodes = snapshot.pods, snapshot.nodes
    bound, pipelined, evicted = dict[str, str](), dict[str, str](), set[str]()
    for decision in recorder.decisions:
        match decision:
            case Bind():
                bound[pods[decision.pod].name] = nodes[decision.node].name
            case Nominate():
                pipelined[pods[decision.pod].name] = nodes[decision.node].name
            case Evict():
                evicted.add(pods[decision.pod].name)
    return Decisions(bound, pipelined, frozenset(evicted))
