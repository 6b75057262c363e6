"""The laws that every plugin must keep, tried on clusters that have something of everything.

A plugin is deterministic; it does not depend on the order of nodes; its scores are finite (or NaN, which takes a node
out); its masks and keys have the right shape; it writes nothing; what a placement adds, an eviction takes away again;
and with it in the profile, the same cluster gives the same decisions in whatever order its objects come.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from kai.api.objects import ClusterObjects
from kai.configuration.options import build
from kai.configuration.reading import default_profile
from kai.engine.cycle import run_cycle
from kai.engine.opened import exclusive_of
from kai.engine.profile import Profile
from kai.engine.session import Session
from kai.errors import ConfigError
from kai.framework.decisions import Recorder
from kai.framework.hooks import (
    Extension,
    GroupOrder,
    NodeFilter,
    NodeScore,
    NodeWait,
    Placement,
    Plugin,
    PluginUse,
    PodOrder,
)
from kai.intake import take_snapshot
from kai.model.rows import NodeRows, PodRow
from kai.model.status import Status
from kai.simulation.shorthand import NOW
from kai.state.snapshot import Snapshot
from kai.testing.building import cluster
from kai.testing.sinks import told
from kai.testing.views import open_session, opened

Values = Mapping[str, Any]


class BrokenLaw(AssertionError):  # noqa: N818 - it reads as what it is: BrokenLaw: scores are finite
    """A plugin does not keep a law; the message names the law, the cluster and what was seen."""


CLUSTERS: Mapping[str, Values] = {
    "racks": {
        "nodes": {
            "n1..n2": {"gpu": 8, "labels": {"topology.kubernetes.io/rack": "r1"}},
            "n3..n4": {"gpu": 8, "labels": {"topology.kubernetes.io/rack": "r2"}},
            "plain": {},
        },
        "groups": {
            "runs": {"members": 3, "minimum": 1, "each": {"gpu": 2}, "runs_on": ["n1", "n3"]},
            "gang": {"members": 4, "each": {"gpu": 4}},
            "web": {"members": 2, "minimum": 0, "each": {"cpu": 2}},
        },
    },
    "sharing": {
        "nodes": {"a": {"gpu": 2, "gpu_memory": 40000}, "b": {"gpu": 1, "gpu_memory": 80000}, "c": {"gpu": 1}},
        "groups": {
            "halves": {"members": 3, "minimum": 1, "each": {"fraction": 0.5}, "runs_on": ["a"]},
            "memory": {"members": 2, "minimum": 0, "each": {"gpu_memory": 10000}},
            "whole": {"each": {"gpu": 1}, "runs_on": "b", "leaving": 1},
            "next": {"each": {"gpu": 1}},
        },
    },
    "empty": {"nodes": {"only": {"gpu": 1}}},
}
"""Clusters on which plugins are tried, in the words of the short form of scenarios."""


def check_plugin(cls: type[Any], clusters: Mapping[str, Values] | None = None, **options: object) -> None:
    """Try the laws on ``cls`` with these options; ``clusters`` are tried besides the kit's own.

    Raises: BrokenLaw for the first law that does not hold, ConfigError for options that the plugin does not have.
    """
    check_form(cls, options)
    for name, values in {**CLUSTERS, **(clusters or {})}.items():
        objects = cluster(**values)
        taken = take_snapshot(objects, NOW)
        plugin: Plugin = build(cls, options, cls.__name__, cls.__name__)
        _check_answers(plugin, taken, name)
        _check_effects(plugin, taken, name)
        _check_cycle(plugin, objects, name)


def check_form(cls: type[Any], options: Values) -> None:
    """Check that ``cls`` is a frozen attrs class whose fields are its options and which can be opened."""
    if not attrs.has(cls):
        raise BrokenLaw(f"a plugin is an attrs class: found {cls!r}")
    try:
        attrs.resolve_types(cls)
    except NameError as error:
        raise BrokenLaw(f"the types of a plugin's options can be resolved: {error}") from error
    plugin = build(cls, options, cls.__name__, cls.__name__)
    if not callable(getattr(plugin, "open", None)):
        raise BrokenLaw(f"a plugin has a method open: {cls.__name__} has none")
    if not _is_frozen(plugin):
        raise BrokenLaw(f"a plugin is frozen: {cls.__name__} can be changed after it was made")
    try:
        build(cls, {**options, "no-such-option": 1}, cls.__name__, cls.__name__)
    except ConfigError:
        return
    raise BrokenLaw(f"unknown options are refused: {cls.__name__} took one")


def _is_frozen(plugin: Any) -> bool:  # noqa: ANN401 - an instance of whatever class is tried
    try:
        setattr(plugin, next((field.name for field in attrs.fields(type(plugin))), "anything"), None)
    except attrs.exceptions.FrozenInstanceError:
        return True
    return False


# ------------------------------------------------------------------------------------------------------------- answers


def _check_answers(plugin: Plugin, taken: Snapshot, where: str) -> None:
    session, extensions = opened(plugin, taken)
    _, again = opened(plugin, taken)
    before = session.ledger.fingerprint()
    for extension, fresh in zip(extensions, again, strict=True):
        function = _about_nodes(extension)
        if function is not None:
            for pod in _concerned(extension, session):
                _check_function(extension, function, _about_nodes(fresh), pod, session.all_nodes, where)
    if session.ledger.fingerprint() != before:
        raise BrokenLaw(f"a plugin writes nothing: asking it on cluster {where!r} changed the session")
    for extension in extensions:
        _check_keys(extension, session, where)


def _about_nodes(extension: Extension) -> Callable[[PodRow, NodeRows], object] | None:
    """Return the function of ``extension`` that answers for many nodes, if it has one."""
    match extension:
        case NodeFilter():
            return extension.filter
        case NodeScore():
            return extension.score
        case NodeWait():
            return extension.must_wait
        case _:
            return None


def _concerned(extension: Extension, session: Session) -> Iterator[PodRow]:
    concerns = getattr(extension, "concerns", None)
    for row in range(len(session.snapshot.pods)):
        if concerns is None or concerns[session.view.shape_of(PodRow(row))]:
            yield PodRow(row)


def _check_function(
    extension: Extension,
    function: Callable[[PodRow, NodeRows], object],
    fresh: Callable[[PodRow, NodeRows], object] | None,
    pod: PodRow,
    nodes: NodeRows,
    where: str,
) -> None:
    """Ask one function about one pod in several ways that must come to the same."""
    name = type(extension).__name__
    answer = np.asarray(_check_array(extension, function(pod, nodes), nodes))
    turned, half = nodes[::-1].copy(), nodes[::2].copy()
    laws = (
        (f"{name} gives the same answer twice", function(pod, nodes), answer),
        (f"{name} does not depend on the order of nodes", function(pod, turned), answer[::-1]),
        (f"{name} rates each node by itself", function(pod, half), answer[::2]),
        (f"{name} is the same when the plugin is opened again", fresh and fresh(pod, nodes), answer),
    )
    for law, found, wanted in laws:
        if not _same(found, wanted):
            raise BrokenLaw(f"{law}: on cluster {where!r} found {_shown(found)} and {_shown(wanted)}")


def _check_array(extension: Extension, answer: object, nodes: NodeRows) -> object:
    rates = isinstance(extension, NodeScore)
    kind = np.float64 if rates else np.bool_
    wanted = f"{np.dtype(kind).name}[{len(nodes)}]"
    if not isinstance(answer, np.ndarray) or answer.dtype != kind or answer.shape != nodes.shape:
        raise BrokenLaw(f"{type(extension).__name__} returns {wanted}: found {_shown(answer)}")
    if rates and np.isinf(answer).any():
        raise BrokenLaw(f"scores are finite, or NaN to take a node out: found {_shown(answer)}")
    return answer


def _check_keys(extension: Extension, session: Session, where: str) -> None:
    if isinstance(extension, GroupOrder):
        count = len(session.snapshot.groups)
    elif isinstance(extension, PodOrder):
        count = len(session.snapshot.pods)
    else:
        return
    name = type(extension).__name__
    keys = np.asarray(extension.keys(np.arange(count, dtype=np.int64)))
    if keys.dtype != np.float64 or keys.shape[:1] != (count,) or keys.ndim > 2:
        raise BrokenLaw(f"{name} returns float64[{count}, k]: on cluster {where!r} found {_shown(keys)}")
    if not np.isfinite(keys).all():
        raise BrokenLaw(f"keys of {name} are finite: on cluster {where!r} found {_shown(keys)}")


# ------------------------------------------------------------------------------------------------------------- effects


def _check_effects(plugin: Plugin, taken: Snapshot, where: str) -> None:
    """Place pending pods, evict them, undo both: whatever the plugin tracks must follow, byte for byte."""
    session, extensions = opened(plugin, taken)
    lasting = any(isinstance(each, Placement) and each.lasting_effects for each in extensions)
    untouched = session.ledger.fingerprint()
    for group in session.waiting_groups():
        portion = session.portion(int(group))
        chunk = portion.chunk()
        tracked = _tracked(session)
        with session.statement("law") as statement:
            statement.place_pods(chunk, session.all_nodes, session.no_extra, promise=False)
            placed, mark = session.ledger.fingerprint(), statement.mark()
            statement.evict(portion.holding(1 << Status.ALLOCATED, chunk))
            if not lasting and _tracked(session) != tracked:
                raise BrokenLaw(f"what a placement adds, an eviction takes away: not so on cluster {where!r}")
            statement.roll_back(mark)
            if session.ledger.fingerprint() != placed:
                raise BrokenLaw(f"an undone eviction leaves no trace: it did on cluster {where!r}")
        if session.ledger.fingerprint() != untouched:
            raise BrokenLaw(f"an undone placement leaves no trace: it did on cluster {where!r}")


def _tracked(session: Session) -> bytes:
    """Return the columns of the plugin as bytes; they lie behind the engine's own."""
    ledger = session.ledger
    return ledger.arena[ledger.layout.size :].tobytes()


# -------------------------------------------------------------------------------------------------------------- cycles


def _check_cycle(plugin: Plugin, objects: ClusterObjects, where: str) -> None:
    profile = default_profile()
    mine = _claimed(plugin, objects)
    others = [use for use in profile.plugins if not (mine and mine & _claimed(use.plugin, objects))]
    with_it = attrs.evolve(profile, plugins=(*others, PluginUse(name=type(plugin).__name__, plugin=plugin)))
    first = _decisions(objects, with_it)
    if first != _decisions(objects, with_it):
        raise BrokenLaw(f"the same cluster gives the same decisions: not so on cluster {where!r}")
    turned = attrs.evolve(
        objects,
        **{field.name: tuple(reversed(getattr(objects, field.name))) for field in attrs.fields(ClusterObjects)},
    )
    if first != _decisions(turned, with_it):
        raise BrokenLaw(f"decisions do not depend on the order of objects: they do on cluster {where!r}")


def _claimed(plugin: Plugin, objects: ClusterObjects) -> set[str]:
    """Return what ``plugin`` does that only one plugin can do: it then stands in for the built-in one."""
    session = open_session(take_snapshot(objects, NOW), plugin)
    return {right for each in session.policy.plugins for right in exclusive_of(each) if "detail" not in right}


def _decisions(objects: ClusterObjects, profile: Profile) -> list[str]:
    taken = take_snapshot(objects, NOW)
    sink = Recorder()
    run_cycle(taken, profile, sink)
    return told(sink.decisions, taken)


def _same(first: object, second: object) -> bool:
    return bool(np.array_equal(np.asarray(first), np.asarray(second), equal_nan=np.asarray(first).dtype.kind == "f"))


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {np.array2string(value.ravel()[:8], separator=', ')}"
    return f"{type(value).__name__} {value!r}"
