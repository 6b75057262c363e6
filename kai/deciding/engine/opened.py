"""Opened plugins: the extensions of each plugin in one session, wrapped so that failures name the plugin.

``open_plugins`` is the one place where the extensions that a plugin returns become what the engine asks. It wraps each
function of a plugin, so that an exception names the plugin, its package and the arguments of the call. It rejects two
plugins that want the same exclusive role.

A plugin's writes to its row arguments are undone. These are arrays of the engine. Plugins pass them to kernels of their
own, which are compiled for writable arrays, so rows cannot be locked like the session's view; they are compared after
each call instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast, get_args

import attrs
import numpy as np

from kai.basics.errors import ConfigError, KaiError, PluginError, error_text
from kai.deciding.engine.answer_checks import (
    Check,
    check_of,
    objection_to_effects,
    objection_to_extension,
    objection_to_proposal,
    objection_to_proposals,
    objection_to_term,
)
from kai.deciding.engine.failing import OPEN, Failures, with_stand_ins
from kai.deciding.engine.host import Observer, Stopwatch
from kai.facts.model.axis import Bools, Float64s
from kai.framework.hooks import (
    Batch,
    Domains,
    Extension,
    GroupOrder,
    NodeFilter,
    NodeScore,
    NodeWait,
    OnFailure,
    Placement,
    PluginUse,
    PodFilter,
    PodOrder,
    Transitions,
    VictimProposals,
    Victims,
)
from kai.framework.terms import FairShares, Fragmentation, QueueWeights, Term
from kai.framework.view import SessionView

if TYPE_CHECKING:
    from kai.framework.scenario import Outer, Scenario

P = ParamSpec("P")
R = TypeVar("R")


def undisturbed(function: Callable[P, R], blame: Callable[[str], Exception]) -> Callable[P, R]:
    """Wrap ``function``: if a call writes to its array arguments, restore them and raise ``blame``.

    Cost: a copy and a comparison of each array.
    """

    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        rows = [(each, each.copy()) for each in args if isinstance(each, np.ndarray) and each.flags.writeable]
        try:
            answer = function(*args, **kwargs)
        finally:
            # Also where the plugin raised: if its hook is listed as failing, the cycle goes on with these very rows.
            written = _put_back(rows)
        if written:
            raise blame("wrote to the rows that it was asked about, expected a plugin that writes to its own arrays")
        return answer

    return ask


def _put_back(rows: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> bool:
    """Restore the arrays in ``rows``, and return whether one of them had changed."""
    written = False
    for rows_now, before in rows:
        if not np.array_equal(rows_now, before):
            rows_now[...] = before
            written = True
    return written


@attrs.frozen(kw_only=True, eq=False)
class OpenedPlugin:
    """The extensions of one plugin for one set of shapes; a plugin may have several of these."""

    name: str
    concerns: Bools | None = None
    """bool[K]: the shapes for which the plugin is asked; None: all."""
    terms: tuple[Term, ...] = ()
    node_filter: NodeFilter | None = None
    node_score: NodeScore | None = None
    node_wait: NodeWait | None = None
    pod_filter: PodFilter | None = None
    pod_order: PodOrder | None = None
    group_order: GroupOrder | None = None
    domains: Domains | None = None
    placement: Placement | None = None
    victims: Victims | None = None
    proposals: VictimProposals | None = None

    def is_asked(self, shape: int) -> bool:
        """Return whether the plugin is asked about pods of ``shape``."""
        return self.concerns is None or bool(self.concerns[shape])

    @property
    def kind(self) -> str:
        """The kind of detail that the plugin keeps with placements."""
        return (self.placement.kind if self.placement is not None else "") or self.name


_PLACES: Final[dict[type[object], str]] = {
    NodeFilter: "node_filter",
    NodeScore: "node_score",
    NodeWait: "node_wait",
    PodFilter: "pod_filter",
    PodOrder: "pod_order",
    GroupOrder: "group_order",
    Domains: "domains",
    Placement: "placement",
    Victims: "victims",
    VictimProposals: "proposals",
}
_FIELDS: Final[dict[type[object], tuple[str, ...]]] = {
    cls: tuple(field.name for field in attrs.fields(cast("type[attrs.AttrsInstance]", cls))) for cls in _PLACES
}
_TERMS: Final = get_args(Term)


def open_plugins(
    uses: Sequence[PluginUse], view: SessionView, observer: Observer, failures: Failures | None = None
) -> list[OpenedPlugin]:
    """Open the plugins in their order, and return their extensions; at least one entry for each plugin.

    ``failures`` collects the errors of hooks that the caller has listed as failing.

    Raises: PluginError for a plugin that cannot be opened or returns something that is no extension; ConfigError for
        two plugins that want the same exclusive role.
    """
    found: list[OpenedPlugin] = []
    for use in uses:
        observer.plugin(use.name)
        asking = Asking(use, view, observer.stopwatch)
        found += _failing(asking, failures) if use.failing and failures is not None else asking.opened()
    observer.plugin("")
    # First: weights change the shares of the one plugin that divides, and after this check there is at most one.
    _refuse_clashes(found)
    return _with_weights(found)


@attrs.frozen
class Asking:
    """Wraps the functions of one plugin.

    An exception or an answer against the contract is reported as this plugin's error. A stopwatch, if given, measures
    it.
    """

    use: PluginUse
    view: SessionView
    stopwatch: Stopwatch | None = None

    def opened(self) -> list[OpenedPlugin]:
        """Open the plugin, and return its extensions.

        Raises: PluginError.
        """
        return self.grouped(self.guarded(OPEN, self.use.plugin.open)(self.view))

    def grouped(self, extensions: object) -> list[OpenedPlugin]:
        """Group the extensions of the plugin by the shapes that they concern.

        Raises: PluginError for something that is no extension, and for two of one class that concern the same shapes.
        """
        if not isinstance(extensions, Sequence) or isinstance(extensions, str):
            raise self._blamed(OPEN, f"returned {type(extensions).__name__}, expected a sequence of extensions")
        out: list[dict[str, Any]] = []
        for extension in extensions:
            if isinstance(extension, _TERMS):
                field, objection = objection_to_term(extension, self.view)
                if objection:
                    raise self._blamed(OPEN, f"{type(extension).__name__}.{field}: {objection}")
                fields = self._fields_for(out, None)
                fields["terms"] = (*fields.get("terms", ()), self._guarded_term(extension))
                continue
            kind = type(extension).__name__
            place = _PLACES.get(type(extension))
            if place is None:
                raise self._blamed(OPEN, f"returned {kind} among extensions, which is none")
            field, objection = objection_to_extension(extension, self.view)
            if objection:
                raise self._blamed(OPEN, f"{kind}.{field}: {objection}")
            fields = self._fields_for(out, getattr(extension, "concerns", None))
            if place in fields:
                raise self._blamed(OPEN, f"returned two of {kind} for the same pods, expected one")
            objection = objection_to_effects(getattr(extension, "corrections", ()), (), self.view)
            if objection:
                raise self._blamed("Placement.corrections", objection)
            fields[place] = self._guarded_extension(extension)
        return [OpenedPlugin(**fields) for fields in out] or [OpenedPlugin(name=self.use.name)]

    def _fields_for(self, known: list[dict[str, Any]], concerns: Bools | None) -> dict[str, Any]:
        # Plugins hand one mask to several extensions, so identity mostly decides before the comparison.
        for fields in known:
            mine = fields["concerns"]
            if mine is concerns or (mine is not None and concerns is not None and np.array_equal(mine, concerns)):
                return fields
        known.append({"name": self.use.name, "concerns": concerns})
        return known[-1]

    def _guarded_extension(self, extension: Extension) -> Extension:
        """Return ``extension`` with each function wrapped by ``guarded``."""
        cls = type(extension)
        wrap = self._guarded_generator if cls is VictimProposals else self.guarded
        values = {name: getattr(extension, name) for name in _FIELDS[cls]}
        for name, value in values.items():
            if callable(value):
                values[name] = wrap(f"{cls.__name__}.{name}", value)
            elif isinstance(value, Batch):
                count = self.guarded("Batch.count", value.count)
                take = None if value.take is None else self.guarded("Batch.take", value.take)
                rate = None if value.rate is None else self.guarded("Batch.rate", value.rate)
                parts = None if value.parts is None else self.guarded("Batch.parts", value.parts)
                values[name] = attrs.evolve(value, count=count, take=take, rate=rate, parts=parts)
            elif isinstance(value, Transitions):
                names = [field.name for field in attrs.fields(Transitions)]
                hooks = {each: hook for each in names if callable(hook := getattr(value, each))}
                guarded: dict[str, Any] = {
                    each: self.guarded(f"Transitions.{each}", hook) for each, hook in hooks.items()
                }
                values[name] = attrs.evolve(value, **guarded)
        return cls(**values)

    def guarded(self, hook: str, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap ``function``: exceptions and answers against the contract are reported as the plugin's error.

        Cost: a tenth of a microsecond a call, plus the check of the answer; for plugins of other packages also a copy
        of the rows.
        """
        check = check_of(hook)
        # Built-in plugins are spared the copies: the test suite holds them to this law.
        asked = undisturbed(function, partial(self._blamed, hook)) if self._is_foreign else function
        timed = asked if self.stopwatch is None else self.stopwatch.timed(self.use.name, hook, asked)

        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return timed(*args, **kwargs)
            # An error of kai's own has its blame already, perhaps of another hook that this one called.
            except (KaiError, KeyboardInterrupt):
                raise
            except BaseException as error:  # what compiled libraries raise where they panic is no Exception
                raise self._blamed(hook, f"raised {error_text(error)}") from error

        answering = ask if check is None else self._checked(hook, ask, check)
        # The one attribute of ``functools.wraps`` that is read, at a fifth of its cost.
        answering.__dict__["__wrapped__"] = function
        return answering

    def _checked(self, hook: str, function: Callable[P, R], check: Check) -> Callable[P, R]:
        """Wrap ``function``: the plugin gets the blame for an answer that ``check`` rejects."""

        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
            answer = function(*args, **kwargs)
            objection = check(answer, args, self.view)
            if objection:
                raise self._blamed(hook, objection)
            return answer

        return ask

    def _guarded_term(self, term: Term) -> Term:
        """Return ``term``; shares that are divided again are checked like those of the first division."""
        if not isinstance(term, FairShares) or term.divide is None:
            return term
        ask = self.guarded("FairShares.divide", term.divide)

        def divided(factors: Float64s) -> FairShares:
            shares: object = ask(factors)
            if not isinstance(shares, FairShares):
                raise self._blamed("FairShares.divide", f"returned {type(shares).__name__}, expected FairShares")
            field, objection = objection_to_term(shares, self.view)
            if objection:
                raise self._blamed("FairShares.divide", f"FairShares.{field}: {objection}")
            return shares

        return attrs.evolve(term, divide=divided)

    def _guarded_generator(
        self, hook: str, function: Callable[[Iterator[Outer]], Iterator[Scenario]]
    ) -> Callable[[Iterator[Outer]], Iterator[Scenario]]:
        """Wrap a function that yields its results one by one, as ``guarded`` does."""

        def answers(outers: Iterator[Outer]) -> Iterator[Scenario]:
            answer = function(outers)
            if objection := objection_to_proposals(answer):
                raise self._blamed(hook, objection)
            return answer

        timed = answers if self.stopwatch is None else _timed_generator(self.stopwatch, self.use.name, hook, answers)

        def ask(outers: Iterator[Outer]) -> Iterator[Scenario]:
            last: Outer | None = None

            def noted() -> Iterator[Outer]:
                nonlocal last
                for outer in outers:
                    last = outer
                    yield outer

            try:
                # A scenario of a plugin of another package must come from the outer one that it got last. Built-ins are
                # spared the step that this adds to each outer scenario.
                for scenario in timed(noted() if self._is_foreign else outers):
                    objection = objection_to_proposal(scenario, last)
                    if self._is_foreign and last is None:
                        objection = objection or "returned a Scenario of its own, expected one of an outer Scenario"
                    if objection:
                        raise self._blamed(hook, objection)
                    yield scenario
            # GeneratorExit is the engine that stops asking, and no failure of the plugin.
            except (KaiError, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                raise self._blamed(hook, f"raised {error_text(error)}") from error

        return ask

    @property
    def _is_foreign(self) -> bool:
        return type(self.use.plugin).__module__.partition(".")[0] != "kai"

    def _blamed(self, hook: str, message: str) -> PluginError:
        return PluginError(message, plugin=self.use.name, origin=self.use.origin, hook=hook)


def _failing(asking: Asking, failures: Failures) -> list[OpenedPlugin]:
    """Open a plugin that has hooks listed as failing, with stand-ins for the answers of those hooks.

    Raises: PluginError.
    """
    use, view = asking.use, asking.view
    try:
        opened = asking.opened()
    except PluginError as error:
        if error.hook != OPEN or use.failing.get(OPEN) is not OnFailure.LEAVE_OUT:
            raise
        failures.note(error)
        return [OpenedPlugin(name=use.name)]

    def changed(each: OpenedPlugin) -> OpenedPlugin:
        extensions = {place: getattr(each, place) for place in _PLACES.values()}
        present = {place: extension for place, extension in extensions.items() if extension is not None}
        changes: dict[str, Any] = {at: with_stand_ins(use, known, view, failures) for at, known in present.items()}
        if each.placement is not None:  # batches and tables ask none of the failing hooks
            changes["placement"] = attrs.evolve(changes["placement"], batch=None, transitions=None)
        if each.victims is not None:  # a compiled form would bypass the failing hooks
            changes["victims"] = attrs.evolve(changes["victims"], fairness=None)
        return attrs.evolve(each, **changes)

    return [changed(each) for each in opened]


def _timed_generator(
    stopwatch: Stopwatch, plugin: str, hook: str, function: Callable[[Iterator[Outer]], Iterator[Scenario]]
) -> Callable[[Iterator[Outer]], Iterator[Scenario]]:
    """Wrap ``function`` to time each result, less the time in which the engine makes each outer scenario."""

    def ask(outers: Iterator[Outer]) -> Iterator[Scenario]:
        grow = stopwatch.paused(partial(next, outers, None))
        step = stopwatch.timed(plugin, hook, partial(next, iter(function(iter(grow, None))), None))
        yield from iter(step, None)

    return ask


def _with_weights(plugins: list[OpenedPlugin]) -> list[OpenedPlugin]:
    """Return the plugins; where some change weights of queues, the shares are divided again with the product.

    That is done after all have opened, so that the order of plugins makes no difference.

    Raises: ConfigError where the shares do not depend on weights; PluginError of the plugin that divides.
    """
    factors = weight_factors([term for plugin in plugins for term in plugin.terms])
    if factors is None:
        return plugins
    who = next(plugin.name for plugin in plugins if any(isinstance(term, QueueWeights) for term in plugin.terms))

    def divided(plugin: OpenedPlugin, term: Term) -> Term:
        if not isinstance(term, FairShares):
            return term
        if term.divide is None:
            raise ConfigError(
                f"plugins: found {who} that changes weights of queues and {plugin.name} that divides without weights,"
                " expected one of them"
            )
        return term.divide(factors)

    return [
        attrs.evolve(plugin, terms=tuple(divided(plugin, term) for term in plugin.terms)) if plugin.terms else plugin
        for plugin in plugins
    ]


def weight_factors(terms: Iterable[Term]) -> Float64s | None:
    """Return float64[Q, 3], the product of all `QueueWeights`; None without any."""
    factors = [term.factors for term in terms if isinstance(term, QueueWeights)]
    return np.prod(factors, axis=0, dtype=np.float64) if factors else None


def _refuse_clashes(plugins: Sequence[OpenedPlugin]) -> None:
    """Reject two plugins that take the same exclusive role.

    Raises: ConfigError.
    """
    owners: dict[str, str] = {}
    for plugin in plugins:
        for right in exclusive_of(plugin) if plugin.terms or plugin.placement or plugin.victims else ():
            owner = owners.setdefault(right, plugin.name)
            if owner != plugin.name:
                raise ConfigError(f"plugins: found {owner} and {plugin.name} that both {right}, expected one of them")


def exclusive_of(plugin: OpenedPlugin) -> Iterator[str]:
    """Yield, in words, the roles of ``plugin`` that only one plugin may have."""
    if any(isinstance(term, FairShares) for term in plugin.terms):
        yield "give the shares of queues"
    if any(isinstance(term, Fragmentation) for term in plugin.terms):
        yield "say what stays usable of nodes"
    if plugin.placement is not None and plugin.placement.choose is not None:
        yield f"keep the detail {plugin.kind!r} of placements"
    if plugin.victims is not None and plugin.victims.may_reclaim is not None:
        yield "say who may reclaim"
