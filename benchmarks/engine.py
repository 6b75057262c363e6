"""Call kai: the only module of the benchmarks that knows it.

What runs here is what the scheduler runs (``kai.roles.scheduler.service``), without network and threads: lists and
watch events go into its store, a cycle takes the store's objects, decides, and encodes every write that an API server
would be sent. ``Live`` keeps all that a scheduler keeps between cycles.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from typing import TYPE_CHECKING

import msgspec
from attrs import Factory, define, evolve, field, frozen

from benchmarks.clock import Stopwatch
from benchmarks.events import Batch
from benchmarks.outcome import Decisions
from benchmarks.workload import Workload
from kai.api.cluster_objects import FIELD_OF
from kai.api.conventions.caps import NAMESPACE_SHAPES
from kai.api.kinds import BY_NAME, ApiObject
from kai.api.kubernetes.pod import Pod
from kai.api.memory import COMPILER, give_back, growing, paused, settle
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.caching.raw import line_of, manifest_of, take
from kai.cluster.caching.store import Watched, WatchedStore
from kai.cluster.clock import SystemClock
from kai.cluster.port import Arrivals
from kai.cluster.requests import Evict as EvictRequest
from kai.cluster.transport.encoding import ServedVersions, encode_write
from kai.deciding.configuration.peer import PluginEntry
from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import default_profile, make_profile
from kai.deciding.engine.cycle import Profile, run_cycle
from kai.facts.compiled.warm import warm as warm_kernels
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind, Evict, Nominate, Recorder
from kai.framework.parameters import UNBOUNDED
from kai.intake import Intake, IntakeSettings, expired_bind_requests
from kai.roles.scheduler.committing import orders
from kai.roles.scheduler.committing.binds import BindTemplates, pod_of
from kai.roles.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from kai.cluster.caching.assume_cache import AssumeCache


@frozen
class _Timing:
    """An observer that times the phases of a cycle."""

    watch: Stopwatch
    stopwatch: None = None
    """Plugins are not timed."""

    def phase(self, name: str, /) -> AbstractContextManager[None]:
        """Time the phase ``name``."""
        return self.watch.phase(name)

    def plugin(self, name: str, /) -> None:
        """Plugins are not told apart here."""

    def group(self, row: int, /) -> None:
        """Nor are groups."""

    def committed(self, action: str, decisions: int, /) -> None:
        """Do nothing: decisions are counted at the end."""


@frozen
class Outcome:
    """What a cycle leaves behind: the decisions, and the bodies of all writes that follow from them."""

    snapshot: Snapshot
    recorder: Recorder
    bodies: tuple[bytes, ...]


def warm(profile: Profile | None = None) -> None:
    """Compile or load every kernel, and import every plugin and action."""
    warm_kernels(*(type(use.plugin).__module__ for use in (profile or _profile()).plugins))
    give_back(COMPILER)  # as the service does


@cache
def _profile() -> Profile:
    return default_profile()


def profile_of(workload: Workload) -> Profile:
    """Return the default profile, with what ``workload`` changes in it."""
    profile = _profile()
    if workload.nodes.numa:
        base = default_configuration()
        profile = make_profile(evolve(base, plugins=(*base.plugins, PluginEntry(name="numa", options={}))))
    if not workload.moves_any:
        return profile
    return evolve(profile, parameters=evolve(profile.parameters, max_consolidation_preemptees=UNBOUNDED))


@cache
def _settings() -> SchedulerSettings:
    return SchedulerSettings(intake=IntakeSettings(namespace_shapes=NAMESPACE_SHAPES))


def _store() -> WatchedStore:
    return WatchedStore([Watched(cls=cls) for cls in FIELD_OF], SystemClock())


@define(eq=False)
class Live:
    """A scheduler that lives on from cycle to cycle, and its view of a cluster."""

    store: WatchedStore = Factory(_store)
    intake: Intake = Factory(lambda: Intake(_settings().intake))
    served: ServedVersions = Factory(ServedVersions)
    forms: BindTemplates = Factory(lambda: BindTemplates(_settings()))
    profile: Profile = Factory(_profile)
    _listening: ExitStack = Factory(ExitStack)
    _arrivals: Arrivals = field(init=False)
    _has_cycled: bool = False
    _cycles: int = 0

    def __attrs_post_init__(self) -> None:
        """Hear of pods and groups as they arrive."""
        self._arrivals = self._listening.enter_context(self.store.arrivals(Pod, PodGroup))

    # --- What arrives ------------------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """Take what one read from the network brought: decode it, put it into the store, and read ahead."""
        self._put(batch)
        arrived = self._arrivals.take(len(batch.bodies))
        if self._has_cycled:  # as the service does: the first cycle reads everything by itself
            with paused():
                self.intake.read_ahead(arrived)

    def _put(self, batch: Batch) -> None:
        cls = BY_NAME[batch.api_version, batch.kind].cls
        known: AssumeCache[ApiObject] = self.store.cache(cls)
        with self.store.taking(), paused() if self._has_cycled else growing():
            if batch.form == "list":
                for body in batch.bodies:
                    take(known, msgspec.Raw(body))
                return
            for body in batch.bodies:
                line = line_of(body)
                if line is None:
                    raise ValueError(f"event: found {body[:80]!r}, expected a line of a watch stream")
                if line.type != "DELETED":
                    take(known, line.object)
                else:
                    known.remove(manifest_of(line.object, cls))

    def settle(self) -> None:
        """Do what the service does after its first cycle: let the collector pass over what lives long."""
        settle()

    # --- What is decided ---------------------------------------------------------------------------------------

    def cycle(self, now: float, watch: Stopwatch) -> Outcome:
        """Apply what arrived, take a snapshot, run every action, and encode what is to be written."""
        with paused() if self._has_cycled else growing():  # as the service does
            outcome = self._cycle(now, watch)
        self._has_cycled = True
        return outcome

    def _cycle(self, now: float, watch: Stopwatch) -> Outcome:
        with watch.phase("deltas"):
            objects = self.store.cluster_objects()
            if expired_bind_requests(objects, _settings().intake):
                raise ValueError("bind requests: found one that is over, expected none in a benchmark")
        with watch.phase("snapshot"):
            snapshot = self.intake.take(objects, now, revision=self._cycles)
        self._cycles += 1
        recorder = Recorder()
        run_cycle(snapshot, self.profile, recorder, _Timing(watch))
        with watch.phase("encode"):
            bodies = tuple(self._encoded(snapshot, recorder))
        return Outcome(snapshot, recorder, bodies)

    def _encoded(self, snapshot: Snapshot, recorder: Recorder) -> Iterator[bytes]:
        """Encode bind requests and evictions as the service sends them; a promise is no write."""
        forms, served, nodes = self.forms, self.served, snapshot.nodes
        for decision in recorder.decisions:
            pod = pod_of(self.store, snapshot, decision.pod)
            if pod is None:
                raise LookupError(f"pod {snapshot.pods[decision.pod].key}: not in the store")
            match decision:
                case Bind():
                    node = nodes[decision.node].name
                    text = forms.text(decision, pod, node, decision.devices)
                    yield text or encode_write(forms.create(decision, pod, node, decision.devices), served).body or b""
                case Evict():
                    order = orders.eviction(pod, forms.settings, orders.BLANK, budgeted=False)
                    if not isinstance(order, EvictRequest):
                        raise TypeError(f"eviction: found {type(order).__name__}, expected the default, EvictRequest")
                    yield encode_write(order, served).body or b""

    def read(self, outcome: Outcome) -> Decisions:
        """Name the pods and nodes of all decisions; binds and evictions are read from the encoded bodies."""
        pods, nodes = outcome.snapshot.pods, outcome.snapshot.nodes
        bound, evicted = dict[str, str](), set[str]()
        for body in map(json.loads, outcome.bodies):
            if body["kind"] == "BindRequest":
                bound[body["spec"]["podName"]] = body["spec"]["selectedNode"]
            else:
                evicted.add(body["metadata"]["name"])
        promised = {
            pods[decision.pod].name: nodes[decision.node].name
            for decision in outcome.recorder.decisions
            if isinstance(decision, Nominate)
        }
        moved = {pod: node for pod, node in promised.items() if pod in evicted}
        pipelined = {pod: node for pod, node in promised.items() if pod not in evicted}
        return Decisions(bound, pipelined, moved, frozenset(evicted))
