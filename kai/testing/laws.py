"""The laws that every plugin must keep, tested on clusters that together use every feature.

A plugin is deterministic, and independent of the order of nodes. Its scores are finite (or NaN, which excludes a node)
and leave some nodes. Its answers have the right type and shape and come quickly. It raises nothing and writes nothing,
neither in ``open`` nor later. An eviction undoes the effects of a placement. With it in the profile, the same cluster
gives the same decisions in whatever order its objects come. ``kai.testing.answer_laws`` tests single answers.

``price_plugin`` measures what these answers cost in a cycle, each kind of question by itself.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.basics.errors import ConfigError
from kai.cluster.process.tracing import PluginTimes
from kai.deciding.configuration.options import build
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import Profile, run_cycle
from kai.deciding.engine.host import Silent
from kai.deciding.engine.opened import exclusive_of
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import BATCH, UNCHANGED
from kai.facts.model.pod import Status
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Recorder
from kai.framework.hooks import Placement, Plugin, PluginUse
from kai.framework.verdict import Reason, Words
from kai.intake import take_snapshot
from kai.lab.scenarios.shorthand import NOW
from kai.testing.answer_laws import BrokenLaw, Rated, blaming, check_answers, shown
from kai.testing.views import cluster, decision_lines, default_profile_with, open_session, opened

Values = Mapping[str, Any]


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
    "contended": {
        "nodes": {"n1..n2": {"gpu": 4}},
        "queues": {
            "all": {"quota": 8},
            "mine": {"parent": "all", "quota": 4},
            "theirs": {"parent": "all", "quota": 4},
        },
        "groups": {
            "spread": {
                "queue": "theirs",
                "members": 6,
                "minimum": 0,
                "each": {"gpu": 1},
                "runs_on": {"n1": 3, "n2": 3},
            },
            "low": {"queue": "mine", "priority": 40, "each": {"gpu": 1}, "runs_on": "n1"},
            "gang": {"queue": "mine", "priority": 60, "members": 2, "each": {"gpu": 2}},
            "large": {"queue": "theirs", "priority": 70, "each": {"gpu": 4}},
        },
    },
    "empty": {"nodes": {"only": {"gpu": 1}}},
}
"""The clusters for tests of plugins, in the short form of scenarios; one needs searches for victims."""


def check_plugin(cls: type[Any], clusters: Mapping[str, Values] | None = None, **options: object) -> None:
    """Test the laws on ``cls`` with these options, on ``clusters`` besides the kit's own.

    Raises: BrokenLaw for the first broken law, ConfigError for options that the plugin does not have.
    """
    check_form(cls, options)
    rated = Rated()
    for name, values in {**CLUSTERS, **(clusters or {})}.items():
        objects = cluster(**values)
        taken = take_snapshot(objects, NOW)
        plugin: Plugin = build(cls, options, cls.__name__, cls.__name__)
        check_answers(plugin, taken, name, rated)
        with blaming(cls.__name__, name):
            _check_effects(plugin, taken, name)
            _check_cycle(plugin, objects, name)
    rated.check()


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


# ------------------------------------------------------------------------------------------------------------- effects


def _check_effects(plugin: Plugin, taken: Snapshot, where: str) -> None:
    """Place pending pods, evict them, undo both: the plugin's columns must follow, byte for byte."""
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
            promised = portion.holding(1 << Status.PIPELINED, chunk)  # they keep their places: nothing evicts them
            if not lasting and not len(promised) and _tracked(session) != tracked:
                raise BrokenLaw(f"what a placement adds, an eviction takes away: not so on cluster {where!r}")
            statement.roll_back(mark)
            if session.ledger.fingerprint() != placed:
                raise BrokenLaw(f"an undone eviction leaves no trace: it did on cluster {where!r}")
        if session.ledger.fingerprint() != untouched:
            raise BrokenLaw(f"an undone placement leaves no trace: it did on cluster {where!r}")


def _tracked(session: Session) -> bytes:
    """Return the columns of the plugin as bytes; they come after the engine's own."""
    ledger = session.ledger
    return ledger.arena[ledger.layout.size :].tobytes()


# -------------------------------------------------------------------------------------------------------------- cycles


def _check_cycle(plugin: Plugin, objects: ClusterObjects, where: str) -> None:
    profile = default_profile()
    mine = _claimed(plugin, objects)
    others = [use for use in profile.plugins if not (mine and mine & _claimed(use.plugin, objects))]
    with_it = attrs.evolve(profile, plugins=(*others, PluginUse(name=type(plugin).__name__, plugin=plugin)))
    first = _decisions(objects, with_it, where)
    if first != _decisions(objects, with_it, where):
        raise BrokenLaw(f"the same cluster gives the same decisions: not so on cluster {where!r}")
    turned = attrs.evolve(
        objects,
        **{field.name: tuple(reversed(getattr(objects, field.name))) for field in attrs.fields(ClusterObjects)},
    )
    if first != _decisions(turned, with_it, where):
        raise BrokenLaw(f"decisions do not depend on the order of objects: they do on cluster {where!r}")


def _claimed(plugin: Plugin, objects: ClusterObjects) -> set[str]:
    """Return the exclusive roles of ``plugin``, in which it replaces the built-in plugin."""
    session = open_session(take_snapshot(objects, NOW), plugin)
    return {right for each in session.policy.plugins for right in exclusive_of(each) if "detail" not in right}


def _decisions(objects: ClusterObjects, profile: Profile, where: str) -> list[str]:
    taken = take_snapshot(objects, NOW)
    sink = Recorder()
    report = run_cycle(taken, profile, sink)
    for record in report.records.values():
        for reason in record.reasons:
            refusals = reason.facts.get("refusals")
            for each in (reason, *(refusals if isinstance(refusals, tuple) else ())):
                _check_words(each, where)
    return decision_lines(sink.decisions, taken)


def _check_words(reason: Reason, where: str) -> None:
    """Check that a refusal with a plugin's own words can be rendered."""
    if not isinstance(reason.code, Words):
        return
    for name in ("text", "plain"):
        write = getattr(reason.code, name)
        if write is None:
            continue
        asked = f"Words.{name} of {reason.code}"
        with blaming(asked, where):
            text = write(reason.facts)
        if not isinstance(text, str):
            raise BrokenLaw(f"{asked} returns a text: on cluster {where!r} found {shown(text)}")


# -------------------------------------------------------------------------------------------------------------- prices

_MICROSECONDS: Final = 1e6


@attrs.frozen(kw_only=True)
class Price:
    """What the questions to one function of a plugin cost in one cycle."""

    hook: str
    """The function, as errors name it: ``NodeFilter.filter``, ``Batch.count``, ``open``."""
    in_batches: bool
    """Whether the cycle placed pods in batches where the plugin has one; else it asked about pods one by one."""
    questions: int
    microseconds: float
    """The time of all these questions; questions to other plugins that were asked meanwhile do not count."""

    @property
    def each(self) -> float:
        """The microseconds of one question, on average; 0 without questions."""
        return self.microseconds / self.questions if self.questions else 0.0

    def __str__(self) -> str:
        """Return the price on one line."""
        way = "in batches" if self.in_batches else "one by one"
        return f"{self.hook}, {way}: {self.questions:,} questions, {self.each:,.1f} us each"


def price_plugin(
    plugin: Plugin, taken: Snapshot, *, clock: Callable[[], float] = time.process_time
) -> tuple[Price, ...]:
    """Return what each question to ``plugin`` costs in a cycle on ``taken``: in batches, then one by one.

    The built-in plugins answer as well, but for one of the same class. Questions that a cycle never asks are left out.

    Units: ``clock`` returns seconds; the default counts the time of the processor.
    Cost:  four cycles. The first one of each way is not measured: it compiles, and makes what plugins keep.
    """
    return (*_prices(plugin, taken, clock, in_batches=True), *_prices(plugin, taken, clock, in_batches=False))


@attrs.define
class _Watching(Silent):
    """An observer that times plugins and notices nothing else."""

    stopwatch: PluginTimes


def _prices(plugin: Plugin, taken: Snapshot, clock: Callable[[], float], *, in_batches: bool) -> Sequence[Price]:
    name, profile = type(plugin).__name__, default_profile_with(plugin)
    uses = tuple(each for each in profile.plugins if each.plugin is plugin or type(each.plugin) is not type(plugin))
    # A cycle that may repeat the report of the one before asks no plugin.
    without = (UNCHANGED.name,) if in_batches else (UNCHANGED.name, BATCH.name)
    parameters = attrs.evolve(profile.parameters, without=without)
    profile = attrs.evolve(profile, plugins=uses, parameters=parameters)
    run_cycle(taken, profile, Recorder())
    times = PluginTimes(clock)
    run_cycle(taken, profile, Recorder(), _Watching(times))
    return [
        Price(hook=hook, in_batches=in_batches, questions=spent.calls, microseconds=spent.seconds * _MICROSECONDS)
        for (owner, hook), spent in times.taken.items()
        if owner == name and spent.calls
    ]
