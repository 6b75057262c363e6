"""Sessions and small clusters for unit tests of plugins, scenario files, and sinks for decisions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from kai.answers.cases.case import Case
from kai.answers.cases.files import declare_objects
from kai.answers.offline.run import Outcome, simulate
from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes.meta import Foreign
from kai.basics.errors import InputError
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.configuration.registry import Registry
from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.kernels import begin_plainly
from kai.facts.model.axis import GPU_UNIT, NodeRow, PodRow
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Decision, Recorder
from kai.framework.hooks import Extension, GroupOrder, Plugin, PluginUse, PodOrder
from kai.framework.objects import Objects
from kai.framework.view import SessionView
from kai.intake import take_snapshot
from kai.lab.request import Request
from kai.lab.scenarios.scenario import read_objects
from kai.lab.scenarios.shorthand import NOW, expand
from kai.lab.scenarios.validation import fields
from kai.lab.sources.loading import read_case

Values = Mapping[str, Any]
ObjectsByName = Mapping[Objects, Mapping[str, Values]]
"""Objects that plugins read: by kind, then by ``name`` or ``namespace/name``."""

ONE_QUEUE: Values = {"root": {}, "queue": {"parent": "root", "quota": -1}}
"""The queues of a cluster that defines none."""
_NOTES = ("labels", "annotations")
_OBJECT_KEYS = (*_NOTES, "spec", "status")


def cluster(
    nodes: Values,
    groups: Values | None = None,
    queues: Values | None = None,
    topologies: Values | None = None,
    objects: ObjectsByName | None = None,
) -> ClusterObjects:
    """Return the objects of a small cluster.

        cluster(nodes={"n1": {"gpu": 8}}, groups={"train": {"members": 2, "each": {"gpu": 1}}})

    The keys are those of scenarios in the short form (``kai.lab.scenarios.shorthand``). Without queues there
    is one, which may use everything. ``objects`` are those of kinds that plugins read, with their labels and
    annotations, and what their manifests have beside the metadata:

        cluster(nodes={"n1": {"gpu": 8}}, objects={CAPS: {"rack-a": {"spec": {"watts": 2000}}}})

    Such a cluster is not worth a compiler: kernels run as plain Python from here on, unless
    the process has compiled some, or has said `kai.facts.kernels.run_compiled`.

    Raises: InputError that names the key.
    """
    begin_plainly()
    document = {
        "cluster": {"nodes": nodes, "topologies": topologies or {}, "objects": _manifests(objects or {})},
        "queues": ONE_QUEUE if queues is None else queues,
        "groups": groups or {},
    }
    return read_objects(expand(document, "cluster"), "cluster")[0]


def snapshot(
    nodes: Values,
    groups: Values | None = None,
    queues: Values | None = None,
    topologies: Values | None = None,
    objects: ObjectsByName | None = None,
) -> Snapshot:
    """Return the snapshot of a small cluster, taken at the instant at which scenarios happen."""
    return take_snapshot(cluster(nodes, groups, queues, topologies, objects), NOW)


def _manifests(objects: ObjectsByName) -> list[Values]:
    """Return objects that plugins read as manifests; their kinds are known afterwards.

    Raises: InputError that names the key, for one that no object of a plugin's own kind has.
    """
    out: list[Values] = []
    for kind, members in objects.items():
        is_own = issubclass(declare_objects(kind), Foreign)
        for name, values in members.items():
            if is_own:
                fields(values, _OBJECT_KEYS, f"cluster: objects.{kind.kind}.{name}")
            namespace, _, own = name.rpartition("/")
            place = {"namespace": namespace or "default"} if kind.namespaced else {}
            notes = {key: values[key] for key in _NOTES if key in values}
            rest = {key: value for key, value in values.items() if key not in _NOTES}
            metadata = {"name": own, "uid": name, **place, **notes}
            out.append({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest})
    return out


def default_profile_with(*plugins: Plugin, registry: Registry | None = None) -> Profile:
    """Return the built-in profile with more plugins behind its own."""
    profile = default_profile(registry)
    added = tuple(PluginUse(name=type(plugin).__name__, plugin=plugin) for plugin in plugins)
    return attrs.evolve(profile, plugins=profile.plugins + added)


E = TypeVar("E")


def session_view(
    nodes: Values,
    groups: Values | None = None,
    queues: Values | None = None,
    topologies: Values | None = None,
    plugins: tuple[Plugin, ...] = (),
    objects: ObjectsByName | None = None,
) -> SessionView:
    """Return what a plugin sees of a session on a small cluster, in which only ``plugins`` answer.

        view = session_view(nodes={"n1": {"gpu": 8}}, groups={"g": {"members": 2, "runs_on": {"n1": 1}}})
        score = only(NodeScore, MyPlugin().open(view)).score
        score(pod_row(view, "g-1"), view.nodes)

    A plugin that tracks columns has to be given in ``plugins``: they are laid out while the session opens. ``objects``
    are those of kinds that plugins read, as in ``kai.testing.cluster``.
    """
    return open_session(snapshot(nodes, groups, queues, topologies, objects), *plugins).view


def open_session(taken: Snapshot, *plugins: Plugin) -> Session:
    """Return a session on ``taken`` with only ``plugins``."""
    uses = tuple(PluginUse(name=_name_of(plugin), plugin=plugin) for plugin in plugins)
    return Session(taken, Profile(actions=(), plugins=uses), Recorder(), Silent())


@attrs.frozen(kw_only=True)
class QueueShare:
    """What a queue is entitled to. Units: cores, bytes, devices."""

    cpu: float
    memory: float
    gpu: float


def fair_shares(
    nodes: Values,
    groups: Values | None = None,
    queues: Values | None = None,
    plugins: tuple[Plugin, ...] = (),
) -> dict[str, QueueShare]:
    """Return what each queue of a small cluster is entitled to, by its name.

        fair_shares({"n1": {"gpu": 8}}, groups, queues, plugins=(MyPlugin(),))["team-a"].gpu

    The built-in plugins divide; ``plugins`` come behind them, such as one that gives `QueueWeights`.
    """
    taken = snapshot(nodes, groups, queues)
    session = Session(taken, default_profile_with(*plugins), Recorder(), Silent())
    shares = session.facts.queues.fair_share / (1000.0, 1.0, GPU_UNIT)
    return {
        queue.name: QueueShare(cpu=float(cpu), memory=float(memory), gpu=float(gpu))
        for queue, (cpu, memory, gpu) in zip(taken.queues, shares, strict=True)
    }


@attrs.define
class _Opener:
    """A plugin that opens another one and stores its extensions.

    Key extensions are withheld from the session, which would use them before a test has checked their shape.
    """

    plugin: Plugin
    extensions: Sequence[Extension] | None = None

    def open(self, session: SessionView, /) -> Sequence[Extension]:
        """Open the plugin."""
        found: Any = self.plugin.open(session)
        if isinstance(found, Sequence) and not isinstance(found, str):
            self.extensions = found
            return [each for each in found if not isinstance(each, GroupOrder | PodOrder)]
        answer: Sequence[Extension] = found  # the engine refuses by name what is no sequence
        return answer


def _name_of(plugin: Plugin) -> str:
    return type(plugin.plugin if isinstance(plugin, _Opener) else plugin).__name__


def opened(plugin: Plugin, taken: Snapshot, *others: Plugin) -> tuple[Session, Sequence[Extension]]:
    """Open ``plugin`` beside ``others`` in a session; return the session and the plugin's extensions."""
    opener = _Opener(plugin)
    session = open_session(taken, *others, opener)
    if opener.extensions is None:
        raise AssertionError(f"{type(plugin).__name__}.open was not called")
    return session, opener.extensions


def only(kind: type[E], extensions: Sequence[Extension]) -> E:
    """Return the only one of ``extensions`` that is of ``kind``.

    Raises: LookupError if there is none, or more than one.
    """
    found = [each for each in extensions if isinstance(each, kind)]
    if len(found) != 1:
        raise LookupError(f"found {len(found)} of {kind.__name__}, expected one")
    return found[0]


def pod_row(view: SessionView, name: str) -> PodRow:
    """Return the row of the pod called ``name`` (or ``namespace/name``).

    Raises: KeyError if there is none.
    """
    for row, pod in enumerate(view.snapshot.pods):
        if name in (pod.name, pod.key):
            return PodRow(row)
    raise KeyError(name)


def node_row(view: SessionView, name: str) -> NodeRow:
    """Return the row of the node called ``name``.

    Raises: KeyError if there is none.
    """
    return NodeRow(view.snapshot.node_rows[name])


def load_scenario(path: str | Path) -> Case:
    """Return the scenario in a file.

    Raises: InputError or ConfigError that names what is wrong.
    """
    case = read_case(str(path), Registry.installed())
    if not isinstance(case, Case):
        raise InputError(f"{path}: found a case without a cluster, expected a scenario")
    return case


def run_scenario(case: Case, *plugins: Plugin, registry: Registry | None = None) -> Outcome:
    """Run a scenario and return its outcome; ``plugins`` come after those of its configuration."""
    uses = tuple(PluginUse(name=type(plugin).__name__, plugin=plugin) for plugin in plugins)
    return simulate(case, registry, more=uses)


def check_scenario(path: str | Path) -> tuple[str, ...]:
    """Run the scenario in a file and return the differences from its expectations; empty if there are none.

    Raises: InputError for a file without expectations, or one that cannot be read.
    """
    result = Request().run(str(path))
    found = result.differences()
    if found.unknown:
        raise InputError(f"{path}: found nothing that is expected, expected an `expect` or `expected`")
    return found.found


RecordingSink = Recorder
"""A sink that stores all decisions, by statement."""


@attrs.define
class RejectingSink:
    """A sink that accepts some statements and raises for every further one, like a cluster that rejects writes."""

    accepts: int = 0
    taken: list[tuple[Decision, ...]] = attrs.field(factory=list)

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Store the decisions of one statement, or reject them.

        Raises: ConnectionError once enough were taken.
        """
        if len(self.taken) >= self.accepts:
            raise ConnectionError(f"the sink takes {self.accepts} statements and no more")
        self.taken.append(decisions)


def decision_lines(decisions: list[Decision], snapshot: Snapshot) -> list[str]:
    """Return decisions as lines with names in place of rows, so that runs on differently ordered objects compare."""
    lines = []
    for decision in decisions:
        node = getattr(decision, "node", -1)
        where = f" -> {snapshot.nodes[node].name}" if node >= 0 else ""
        lines.append(f"{type(decision).__name__} {snapshot.pods[decision.pod].key}{where}")
    return lines
