"""Stand-ins for hooks that are known to fail, so that a failure costs only what the hook was asked about.

A hook that fails ends its cycle with an error that names the plugin. The caller of cycles may then list the hook as
failing (``PluginUse.failing``) and choose how to go on. *Refuse*: the engine treats the question as refused: no node,
no place, no victims. *Leave out*: the engine ignores the hook, as if the plugin had no opinion.

Holds: an answer of the hook counts if it gives one. A group that a failing hook refuses is not tried again in this
cycle, so that a plugin that fails everywhere costs no searches. A hook without a safe stand-in stops the cycle.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

import attrs
import numpy as np

from kai.basics.errors import PluginError
from kai.framework.hooks import Extension, NodeFilter, OnFailure, Partition, PluginUse, VictimProposals
from kai.framework.verdict import ACCEPTED, Code, Verdict
from kai.framework.view import SessionView

P = ParamSpec("P")
R = TypeVar("R")

OPEN: Final = "open"
Answer = Callable[[str, SessionView, tuple[Any, ...]], object]
"""Makes a stand-in answer from the failure's text, the session, and the hook's arguments."""


@attrs.frozen
class _Instead:
    """The possible stand-ins for a hook's answer; None: there is none."""

    refuse: Answer | None = None
    leave_out: Answer | None = None
    default: OnFailure = OnFailure.REFUSE


def _none(_: str, __: SessionView, asked: tuple[Any, ...]) -> object:
    return np.zeros(len(asked[1]), np.bool_)


def _every(_: str, __: SessionView, asked: tuple[Any, ...]) -> object:
    return np.ones(len(asked[1]), np.bool_)


def _scores(value: float) -> Answer:
    return lambda _, __, asked: np.full(len(asked[1]), value, np.float64)


def _plain(value: object) -> Answer:
    return lambda *_: value


def _refused(text: str, _: SessionView, __: tuple[Any, ...]) -> Verdict:
    return Verdict.refused(Code.PLUGIN, text=text)


def _pod_refused(text: str, _: SessionView, __: tuple[Any, ...]) -> Verdict:
    return Verdict.refused(Code.POD_REFUSED, rule="Plugin", text=text)


def _no_part(text: str, _: SessionView, __: tuple[Any, ...]) -> Partition:
    return Partition(verdict=Verdict.refused(Code.PLUGIN, text=text))


def _no_queues(_: str, view: SessionView, __: tuple[Any, ...]) -> object:
    return np.zeros(len(view.snapshot.queues), np.bool_)


def _no_credit(_: str, __: SessionView, asked: tuple[Any, ...]) -> object:
    return np.zeros((2, len(asked[1])), np.int64)


def _same_keys(_: str, __: SessionView, asked: tuple[Any, ...]) -> object:
    return np.zeros((len(asked[0]), 1), np.float64)


def _texts(text: str, _: SessionView, asked: tuple[Any, ...]) -> object:
    return [text] * len(asked[1])


_ACCEPTED: Final = _plain(ACCEPTED)
_NOTHING: Final = _plain(None)
_INSTEAD: Final[Mapping[str, _Instead]] = {
    "NodeFilter.filter": _Instead(_none, _every),
    "NodeFilter.explain": _Instead(None, _texts, OnFailure.LEAVE_OUT),
    "NodeScore.score": _Instead(_scores(np.nan), _scores(0.0), OnFailure.LEAVE_OUT),
    "NodeWait.must_wait": _Instead(_every, _none),
    "PodFilter.admit": _Instead(_pod_refused, _ACCEPTED),
    "PodOrder.keys": _Instead(None, _same_keys, OnFailure.LEAVE_OUT),
    "GroupOrder.keys": _Instead(None, _same_keys, OnFailure.LEAVE_OUT),
    "Domains.partition": _Instead(_no_part, _NOTHING),
    "Domains.tree": _Instead(_NOTHING, _NOTHING),  # the engine falls back to the partition
    "Domains.together": _Instead(_NOTHING, _NOTHING, OnFailure.LEAVE_OUT),
    "Domains.rules_out": _Instead(_plain(value=True), _plain(value=False)),
    # No choice is a refusal. Leaving it out would start pods without what the plugin reserves for them.
    "Placement.choose": _Instead(_NOTHING),
    "Placement.credit": _Instead(_no_credit, _no_credit),
    "Placement.report": _Instead(None, lambda *_: {}, OnFailure.LEAVE_OUT),
    "Victims.queues": _Instead(_no_queues, _NOTHING),
    "Victims.groups": _Instead(_none, _every),
    "Victims.hopeless": _Instead(_plain(value=True), _plain(value=False)),
    "Victims.in_vain": _Instead(_plain(value=True), _plain(value=False)),
    "Victims.may_reclaim": _Instead(_refused, _ACCEPTED),
    "Victims.accept": _Instead(_refused, _ACCEPTED),
    "VictimProposals.propose": _Instead(None, _NOTHING, OnFailure.LEAVE_OUT),
    # A plugin that did not open has no hooks with which to refuse.
    OPEN: _Instead(None, _NOTHING, OnFailure.STOP),
}
_ABOUT_PODS: Final = ("NodeFilter.", "NodeScore.", "NodeWait.", "PodFilter.", "Placement.choose", "Placement.credit")
_ABOUT_GROUPS: Final = ("Domains.", "Victims.queues", "Victims.groups", "Victims.hopeless", "Victims.may_reclaim")


def reaction_to(wanted: OnFailure | None, hook: str) -> OnFailure:
    """Return the reaction to a failure of ``hook``: the wanted one, or else one that is possible and safe."""
    instead = _INSTEAD.get(hook, _Instead())
    chosen = instead.default if wanted is None else wanted
    possible = {OnFailure.STOP: True, OnFailure.REFUSE: instead.refuse, OnFailure.LEAVE_OUT: instead.leave_out}
    if chosen is OnFailure.STOP or possible[chosen] is not None:
        return chosen
    # What was wished has no stand-in, and a stop is safer than a made-up answer.
    return instead.default if possible[instead.default] is not None else OnFailure.STOP


@attrs.frozen(kw_only=True)
class PluginFailure:
    """A failure of a hook that did not end its cycle."""

    plugin: str
    hook: str
    times: int


@attrs.define
class Failures:
    """The failures of one cycle in hooks that are listed as failing."""

    found: dict[tuple[str, str], PluginFailure] = attrs.field(factory=dict)
    refused: dict[int, str] = attrs.field(factory=dict)
    """Groups that are not tried again in this cycle, and why."""

    def note(self, error: PluginError, group: int = -1) -> None:
        """Record a failure; ``group``, if given, is not tried again in this cycle."""
        key = (error.plugin, error.hook)
        known = self.found.get(key)
        self.found[key] = (
            PluginFailure(plugin=error.plugin, hook=error.hook, times=1)
            if known is None
            else attrs.evolve(known, times=known.times + 1)
        )
        # The first failure stays the reason: those after it mostly follow from it.
        if group >= 0:
            self.refused.setdefault(group, str(error))


def with_stand_ins(use: PluginUse, extension: Extension, view: SessionView, failures: Failures) -> Extension:
    """Return ``extension`` with stand-ins for the answers of failing hooks.

    Its functions raise errors that name their plugin when they fail.

    Holds: only what ``use.failing`` names changes.
    """
    cls = type(extension)
    changes: dict[str, Any] = {}
    for field in attrs.fields(cls):
        hook, value = f"{cls.__name__}.{field.name}", getattr(extension, field.name)
        if callable(value) and hook in use.failing:
            wrap = _ending if cls is VictimProposals else _reacting
            changes[field.name] = wrap(use, hook, value, view, failures)
    if use.failing.get("NodeFilter.filter") is OnFailure.REFUSE and cls is NodeFilter:
        # The mask does not tell nodes that were refused from those at which the plugin failed, so all get one text.
        changes["explain"] = lambda _, nodes: [f"node(s) were refused: plugin {use.name} fails"] * len(nodes)
    return attrs.evolve(extension, **changes) if changes else extension


def _reacting(
    use: PluginUse, hook: str, function: Callable[P, R], view: SessionView, failures: Failures
) -> Callable[P, R]:
    reaction = use.failing[hook]
    instead = _INSTEAD.get(hook, _Instead())
    made = instead.refuse if reaction is OnFailure.REFUSE else instead.leave_out
    if reaction is OnFailure.STOP or made is None:
        return function

    @wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except PluginError as error:
            if not _is_mine(error, use, hook):
                raise
            # A hook that is left out decides nothing, so the group is tried like any other.
            failures.note(error, _group_of(hook, view, args) if reaction is OnFailure.REFUSE else -1)
            return cast("R", made(str(error), view, args))

    return ask


def _ending(
    use: PluginUse, hook: str, function: Callable[P, Iterator[R]], _: SessionView, failures: Failures
) -> Callable[P, Iterator[R]]:
    """Like `_reacting`, for a function that yields its results one by one: a failure ends them."""
    if use.failing[hook] is OnFailure.STOP:
        return function

    @wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from function(*args, **kwargs)
        except PluginError as error:
            if not _is_mine(error, use, hook):
                raise
            failures.note(error)

    return ask


def _is_mine(error: PluginError, use: PluginUse, hook: str) -> bool:
    """Return whether ``hook`` itself failed, rather than another hook that it called."""
    return (error.plugin, error.hook) == (use.name, hook)


def _group_of(hook: str, view: SessionView, asked: tuple[Any, ...]) -> int:
    if hook.startswith(_ABOUT_PODS):
        return int(view.group_of(asked[0]))
    return int(asked[0]) if hook.startswith(_ABOUT_GROUPS) else -1
